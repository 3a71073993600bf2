"""The native kernels as calls of XLA, without derivatives: see jax_impl.derivatives. vmap adds batch axes.

Arrays: similarity (*batch, rows, cols), lengths (*batch, 2) int32, parameters a tuple of (*batch), in the order of
shared.alignments.ALIGNMENTS; all floats of similarity's dtype.
"""

import ctypes
import threading
from pathlib import Path

import jax
import numpy as np

from shared.kernels import cpp
from shared.kernels.heap import keep_freed_memory

Array = jax.Array
Arrays = tuple[Array, ...]

_registering = threading.Lock()
_registered: set[str] = set()


def score(call: cpp.Call, similarity: Array, lengths: Array, parameters: Arrays) -> Array:
    """Scores (*batch)."""
    target, _, pair = _prepared("score", similarity)
    function = jax.ffi.ffi_call(target, pair, vmap_method="broadcast_all")
    return function(similarity, lengths, *parameters, **_numbers(call))


def gradients(
    call: cpp.Call, with_parameters: bool, similarity: Array, lengths: Array, parameters: Arrays
) -> tuple[Array, Array, Arrays]:
    """Scores, and their gradients for similarity and each parameter; 0 for the parameters unless with_parameters."""
    target, matrix, pair = _prepared("gradients", similarity)
    results = (pair, matrix, *(pair for _ in parameters))
    function = jax.ffi.ffi_call(target, results, vmap_method="broadcast_all")
    flag = np.int32(with_parameters)
    scores, d_similarity, *rest = function(similarity, lengths, *parameters, with_parameters=flag, **_numbers(call))
    return scores, d_similarity, tuple(rest)


def tangents(
    call: cpp.Call,
    similarity: Array,
    lengths: Array,
    parameters: Arrays,
    t_similarity: Array,
    t_parameters: Arrays,
) -> tuple[Array, Array, Arrays]:
    """The tangents of all results of `gradients`."""
    target, matrix, pair = _prepared("tangents", similarity)
    results = (pair, matrix, *(pair for _ in parameters))
    function = jax.ffi.ffi_call(target, results, vmap_method="broadcast_all")
    arrays = (similarity, lengths, t_similarity, *parameters, *t_parameters)
    t_scores, t_d_similarity, *rest = function(*arrays, **_numbers(call))
    return t_scores, t_d_similarity, tuple(rest)


def product(call: cpp.Call, similarity: Array, lengths: Array, parameters: Arrays, t_similarity: Array) -> Array:
    """The tangents of the gradients for similarity, in a direction that leaves the parameters alone."""
    target, matrix, _ = _prepared("product", similarity)
    function = jax.ffi.ffi_call(target, matrix, vmap_method="broadcast_all")
    return function(similarity, lengths, t_similarity, *parameters, **_numbers(call))


def register(dtype: str) -> None:
    """Compile and load what calls in this dtype need, once. Raises cpp.Absent."""
    if dtype in _registered:
        return
    with _registering:
        if dtype not in _registered:
            _register(dtype)
            _registered.add(dtype)


def loaded() -> bool:
    """Whether calls in any dtype can be made already."""
    return bool(_registered)


def _register(dtype: str) -> None:
    own, kernel = Path(__file__).with_name("xla.cc"), cpp.kernel(dtype)
    folders = (jax.ffi.include_dir(), str(Path(cpp.__file__).parent))
    target = cpp.target(dtype, ("-O1", *(f"-I{folder}" for folder in folders)))
    headers = (*target.headers, *sorted(Path(folders[0], "xla/ffi/api").glob("*.h")))
    target = target._replace(name=f"alignment-xla-{dtype}", sources=(own,), headers=headers)
    library = cpp.load(target, {"use_kernels": [ctypes.c_void_p] * 3})
    library.use_kernels(*(ctypes.cast(function, ctypes.c_void_p) for function in kernel[1:]))
    for name in ("score", "gradients", "tangents", "product"):
        handler = jax.ffi.pycapsule(getattr(library, f"xla_{name}"))
        jax.ffi.register_ffi_target(_target(name, dtype), handler, platform="cpu")
    keep_freed_memory()


def _target(name: str, dtype: str) -> str:
    return f"jax_torch_alignment_{name}_{dtype}"


def _prepared(name: str, similarity: Array) -> tuple[str, jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """The call's name; the types of a matrix per pair and of a number per pair."""
    dtype = str(similarity.dtype)
    register(dtype)
    matrix = jax.ShapeDtypeStruct(similarity.shape, similarity.dtype)
    return _target(name, dtype), matrix, jax.ShapeDtypeStruct(similarity.shape[:-2], similarity.dtype)


def _numbers(call: cpp.Call) -> dict[str, np.int32]:
    return {"kind": np.int32(call.kind), "options": np.int32(call.options)}
