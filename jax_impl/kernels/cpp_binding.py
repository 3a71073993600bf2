"""The native kernels as calls of XLA, without derivatives: see jax_impl.derivatives. vmap adds batch axes.

Arrays: similarity (*batch, rows, cols), lengths (*batch, 2) int32, parameters a tuple of (*batch), or of
(*batch, rows, cols) for a gap by position, in the order of shared.alignments.ALIGNMENTS; all floats of similarity's
dtype.
"""

import ctypes
import functools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_impl.pairs import Array, Arrays, Types, number_per_pair, of_pairs
from shared.kernels import cpp

# XLA's name of a call -> the pass of the kernels that it runs
_PASS_OF = {name: name for name in cpp.PASSES} | {"product": "tangents"}

_registering = threading.Lock()
# dtype -> where the calls find the kernels: by the form of the gaps, kind, then pass
_registered: dict[str, Any] = {}


def score(call: cpp.Call, similarity: Array, lengths: Array, parameters: Arrays) -> Array:
    """Scores (*batch)."""
    (scores,) = _called("score", call, [number_per_pair(similarity)], similarity, lengths, *parameters)
    return scores


def gradients(
    call: cpp.Call, with_parameters: bool, similarity: Array, lengths: Array, parameters: Arrays
) -> tuple[Array, Array, Arrays]:
    """Scores, and their gradients for similarity and each parameter; 0 for the parameters unless with_parameters."""
    name = "gradients" if with_parameters else "marginals"
    results = [number_per_pair(similarity), *map(jax.typeof, (similarity, *(parameters if with_parameters else ())))]
    scores, d_similarity, *rest = _called(name, call, results, similarity, lengths, *parameters)
    return scores, d_similarity, tuple(rest) if with_parameters else tuple(map(jnp.zeros_like, parameters))


def tangents(
    call: cpp.Call,
    similarity: Array,
    lengths: Array,
    parameters: Arrays,
    t_similarity: Array,
    t_parameters: Arrays,
) -> tuple[Array, Array, Arrays]:
    """The tangents of all results of `gradients`."""
    results = [number_per_pair(similarity), *map(jax.typeof, (similarity, *parameters))]
    arrays = (similarity, lengths, t_similarity, *parameters, *t_parameters)
    t_scores, t_d_similarity, *rest = _called("tangents", call, results, *arrays)
    return t_scores, t_d_similarity, tuple(rest)


def product(call: cpp.Call, similarity: Array, lengths: Array, parameters: Arrays, t_similarity: Array) -> Array:
    """The tangents of the gradients for similarity, in a direction that leaves the parameters alone."""
    arrays = (similarity, lengths, t_similarity, *parameters)
    (result,) = _called("product", call, [jax.typeof(similarity)], *arrays)
    return result


def best(call: cpp.Call, similarity: Array, lengths: Array, parameters: Arrays) -> tuple[Array, Array]:
    """The scores (*batch) of the best alignments, and their matches (*batch, rows, cols), boolean.

    The temperature among the parameters is not looked at.
    """
    results = [number_per_pair(similarity), jax.ShapeDtypeStruct(similarity.shape, np.bool_)]
    scores, matches = _called("best", call, results, similarity, lengths, *parameters)
    return scores, matches


def register(dtype: str) -> None:
    """Compile and load what takes calls in this dtype to the kernels, once. Raises cpp.Absent."""
    if dtype in _registered:
        return
    with _registering:
        if dtype not in _registered:
            _registered[dtype] = _register(dtype)


def loaded() -> bool:
    """Whether calls in any dtype can be made already."""
    return bool(_registered)


def _register(dtype: str) -> Any:
    source, api = Path(__file__).with_name("xla.cc"), jax.ffi.include_dir()
    target = cpp.target(dtype, flags=("-O1", f"-I{api}", f"-I{Path(cpp.__file__).parent}"))
    headers = (*target.headers, *sorted(Path(api, "xla/ffi/api").glob("*.h")))
    library = cpp.load(target._replace(name=f"alignment-xla-{dtype}", sources=(source,), headers=headers))
    for name in _PASS_OF:
        handler = jax.ffi.pycapsule(getattr(library, f"xla_{name}"))
        jax.ffi.register_ffi_target(_target(name, dtype), handler, platform="cpu")
    kinds = max(cpp.KINDS.values()) + 1
    return (ctypes.c_void_p * len(cpp.PASSES) * kinds * len(cpp.FORMS)).in_dll(library, "alignment_kernels")


def _target(name: str, dtype: str) -> str:
    return f"jax_torch_alignment_{name}_{dtype}"


def _called(name: str, call: cpp.Call, results: Types, similarity: Array, *arrays: Array) -> Arrays:
    """The results of a call, whose kernel is compiled and loaded first."""
    dtype, pass_name = str(similarity.dtype), _PASS_OF[name]
    register(dtype)
    kernel = getattr(cpp.kernel(dtype, *call), pass_name)
    of_kind = _registered[dtype][cpp.form_of(call.options)][call.kind]
    of_kind[list(cpp.PASSES).index(pass_name)] = ctypes.cast(kernel, ctypes.c_void_p).value
    return of_pairs(functools.partial(_native, _target(name, dtype), call), results, similarity, *arrays)


def _native(target: str, call: cpp.Call, results: Types, *arrays: Array) -> Sequence[Array]:
    function = jax.ffi.ffi_call(target, tuple(results))
    return function(*arrays, kind=np.int32(call.kind), options=np.int32(call.options))
