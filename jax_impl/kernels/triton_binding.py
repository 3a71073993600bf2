"""The CUDA kernels as calls of XLA, without derivatives: the passes of `cpp_binding`. vmap adds batch axes.

They take and return the same arrays. XLA hands its buffers and its stream to C++ (launch.cc), which launches the
machine code that Triton has generated, the same that PyTorch runs. A call names its kernels; they are compiled for a
GPU when they first run there. So a call can be lowered, and exported, on any machine.
"""

import ctypes
import functools
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_impl.chunks import of_any_batch
from jax_impl.pairs import Array, Arrays, number_per_pair
from shared.kernels import cpp
from shared.kernels.triton.programs import (
    EXPONENTIALS_IN_A_ROUND,
    TYPES,
    Kernel,
    Layout,
    Program,
    best_program,
    exponentials_program,
    gaps_of,
    gradients_program,
    kernel_of,
    layout_of,
    product_program,
    score_program,
    tangents_program,
    values_of,
)

MACHINE_CODE = "shared.kernels.triton.machine_code"  # imported only where a GPU is used, because it imports Triton
TARGET = "jax_torch_alignment_launch"
# overrides the choice of the layout, for tests
forced_layout: Layout | None = None
# for tests: runs a kernel on the CPU, given its grid and its arguments: (is a buffer, address or number, bytes) each
interpreter: Callable[[Kernel, int, list[tuple[bool, int, int]]], None] | None = None

_registering = threading.Lock()
_alive: list[Any] = []  # objects that C++ holds pointers to: functions, and the machine code in use


def score(call: cpp.Call, similarity: Array, lengths: Array, parameters: Arrays) -> Array:
    """Scores (*batch)."""
    (scores,) = _called(
        functools.partial(_score, call), [number_per_pair(similarity)], similarity, lengths, *parameters
    )
    return scores


def gradients(
    call: cpp.Call, with_parameters: bool, similarity: Array, lengths: Array, parameters: Arrays
) -> tuple[Array, Array, Arrays]:
    """Scores, and their gradients for similarity and each parameter; 0 for the parameters unless with_parameters."""
    function = functools.partial(_gradients, call, with_parameters)
    results = [number_per_pair(similarity), *map(jax.typeof, (similarity, *parameters))]
    scores, d_similarity, *rest = _called(function, results, similarity, lengths, *parameters)
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
    results = [number_per_pair(similarity), *map(jax.typeof, (similarity, *parameters))]
    arrays = (similarity, lengths, t_similarity, *parameters, *t_parameters)
    t_scores, t_d_similarity, *rest = _called(functools.partial(_tangents, call), results, *arrays)
    return t_scores, t_d_similarity, tuple(rest)


def product(call: cpp.Call, similarity: Array, lengths: Array, parameters: Arrays, t_similarity: Array) -> Array:
    """The tangents of the gradients for similarity, in a direction that leaves the parameters alone."""
    arrays = (similarity, lengths, t_similarity, *parameters)
    (result,) = _called(functools.partial(_product, call), [jax.typeof(similarity)], *arrays)
    return result


def best(call: cpp.Call, similarity: Array, lengths: Array, parameters: Arrays) -> tuple[Array, Array]:
    """The scores (*batch) of the best alignments, and their matches (*batch, rows, cols), boolean."""
    results = [number_per_pair(similarity), jax.ShapeDtypeStruct(similarity.shape, np.bool_)]
    scores, matches = _called(functools.partial(_best, call), results, similarity, lengths, *parameters)
    return scores, matches


_called = functools.partial(of_any_batch, table_bytes=None)


def exponentials(values: Array, rounds: int, each: int = EXPONENTIALS_IN_A_ROUND) -> Array:
    """values after x -> 2^-x, `each` times per round. Their number must be a multiple of 1024."""
    program = exponentials_program(str(values.dtype), len(values), rounds, each)
    return _run(program, {"values": values})["results"]


def _score(call: cpp.Call, similarity: Array, lengths: Array, *parameters: Array) -> Arrays:
    program = score_program(call, *_described(similarity), layout=_layout(similarity))
    return (_run(program, _inputs(call, similarity, lengths, parameters))["scores"],)


def _gradients(call: cpp.Call, with_parameters: bool, similarity: Array, lengths: Array, *parameters: Array) -> Arrays:
    layout = _layout(similarity)
    program = gradients_program(call, *_described(similarity), layout=layout, with_values=with_parameters)
    return _results(call, _run(program, _inputs(call, similarity, lengths, parameters)))


def _tangents(call: cpp.Call, similarity: Array, lengths: Array, t_similarity: Array, *both: Array) -> Arrays:
    count = values_of(call)
    inputs = _inputs(call, similarity, lengths, both[:count])
    inputs |= {"t_similarity": t_similarity} | _values_and_gaps(call, both[count:], "t_")
    return _results(call, _run(_program(tangents_program, call, similarity), inputs))


def _product(call: cpp.Call, similarity: Array, lengths: Array, t_similarity: Array, *parameters: Array) -> Arrays:
    inputs = _inputs(call, similarity, lengths, parameters)
    inputs |= {"t_similarity": t_similarity, "t_values": jnp.zeros_like(inputs["values"])}
    return (_run(_program(product_program, call, similarity), inputs)["d_similarity"],)


def _program(made: Callable[..., Program], call: cpp.Call, similarity: Array) -> Program:
    """Return the program of a pass that takes tangents, whose strides are those of the similarity."""
    dtype, shape, strides, has_lengths = _described(similarity)
    return made(call, dtype, shape, (*strides, *strides), has_lengths, _layout(similarity))


def _best(call: cpp.Call, similarity: Array, lengths: Array, *parameters: Array) -> Arrays:
    program = best_program(call, *_described(similarity), layout=_layout(similarity))
    outputs = _run(program, _inputs(call, similarity, lengths, parameters))
    return outputs["scores"], outputs["matches"]


def _inputs(call: cpp.Call, similarity: Array, lengths: Array, parameters: Arrays) -> dict[str, Array]:
    return {"similarity": similarity, "lengths": lengths, **_values_and_gaps(call, parameters, "")}


def _values_and_gaps(call: cpp.Call, parameters: Arrays, prefix: str) -> dict[str, Array]:
    """The parameters of the pairs, or their tangents, and the matrices of gaps by position."""
    numbers = [jnp.zeros_like(value, shape=len(value)) if value.ndim > 1 else value for value in parameters]
    gaps = [value for value in parameters if value.ndim > 1]
    return {f"{prefix}values": jnp.stack(numbers, axis=-1)} | dict(
        zip(gaps_of(call.options, prefix), gaps, strict=True)
    )


def _described(similarity: Array) -> tuple[str, tuple[int, ...], tuple[int, ...], bool]:
    """Type, shape, strides, and whether there are lengths."""
    _, rows, cols = similarity.shape
    return str(similarity.dtype), similarity.shape, (rows * cols, cols), True


def _layout(similarity: Array) -> Layout:
    return forced_layout or layout_of(*similarity.shape[:2])


def _results(call: cpp.Call, found: dict[str, Array]) -> Arrays:
    derivatives = list(jnp.moveaxis(found["d_values"], -1, 0))
    for place, name in enumerate(("d_gap_open", "d_gap_extend")):
        if name in gaps_of(call.options, "d_"):
            derivatives[place] = found[name] if name in found else jnp.zeros_like(found["d_similarity"])
    return found["scores"], found["d_similarity"], *derivatives


# bytes of 0 and 1 are truth values
_TYPES = TYPES | {"matches": "bool"}


def _run(program: Program, inputs: dict[str, Array]) -> dict[str, Array]:
    """The results, by name."""
    register()
    dtype = next(iter(inputs.values())).dtype
    kernels, numbers = attributes(program, tuple(inputs))
    outputs = (program.results | program.scratch).items()
    shapes = [jax.ShapeDtypeStruct(shape, _TYPES.get(name, dtype)) for name, shape in outputs]
    results = jax.ffi.ffi_call(TARGET, shapes)(*inputs.values(), kernels=kernels, launches=np.array(numbers, np.int64))
    return dict(zip(program.results, results, strict=False))


def attributes(program: Program, inputs: tuple[str, ...]) -> tuple[str, list[int]]:
    """The attributes of a call, as launch.cc reads them: kernels, and launches on inputs, then results."""
    places = {name: place for place, name in enumerate((*inputs, *program.results, *program.scratch))}
    kernels, numbers = "", []
    for launch in program.launches:
        kernels += json.dumps(launch.kernel) + "\n"
        numbers += [launch.grid, len(launch.arguments)]
        for argument, is_wide in zip(launch.arguments, launch.is_wide, strict=True):
            numbers += (
                [_BUFFER, places[argument]] if isinstance(argument, str) else [_WIDE if is_wide else _NARROW, argument]
            )
    return kernels, numbers


# kinds of a launch's arguments, in launch.cc
_BUFFER, _NARROW, _WIDE = 0, 1, 2


class _Found(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("sizes", ctypes.c_char_p),
        *((number, ctypes.c_int32) for number in ("parameters", "threads", "shared", "scratch", "blocks")),
        ("error", ctypes.c_char_p),
    )


_Find = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_int32, ctypes.POINTER(_Found))
_Interpret = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, *[ctypes.POINTER(ctypes.c_int64)] * 3
)


def register() -> None:
    """Compile and load the code that launches kernels, once. Raises cpp.Absent."""
    with _registering:
        if not _alive:
            _register()


def _register() -> None:
    source, include = Path(__file__).with_name("launch.cc"), jax.ffi.include_dir()
    headers = (source.with_name("driver.h"), *sorted(Path(include, "xla/ffi/api").glob("*.h")))
    target = cpp.Target("alignment-launch", (source,), headers, ("-O1", f"-I{include}", "-ldl"))
    library = cpp.load(target, {"use_functions": (_Find, _Interpret)})
    functions = _Find(_find), _interpreter(interpreter) if interpreter else _Interpret()
    library.use_functions(*functions)
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(library.xla_launch_on_gpu), platform="CUDA")
    if interpreter:
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(library.xla_launch_interpreted), platform="cpu")
    _alive.extend((library, *functions))


def forget_compiled() -> None:
    """Forget what was compiled in this process; it is then recompiled, or loaded from disk."""
    if _alive:
        _alive[0].forget_kernels()
    if MACHINE_CODE in sys.modules:
        sys.modules[MACHINE_CODE].machine_code.cache_clear()


def _find(kernel: bytes, capability: int, found: Any) -> int:
    """Called by C++, for each kernel and GPU once."""
    try:
        from shared.kernels.triton.machine_code import (  # here: it imports Triton
            machine_code,
            parameter_bytes,
            requirements,
        )

        compiled = machine_code(kernel_of(kernel), capability)
        texts = compiled.asm["cubin"], compiled.metadata.name.encode(), parameter_bytes(compiled)
        result = found.contents
        result.code, result.name, result.sizes = texts
        result.parameters = len(texts[-1])
        needed = requirements(compiled)
        result.threads, result.shared, result.scratch, result.blocks = needed
        _alive.append(texts)
    except Exception as error:
        text = f"Triton could not compile a kernel: {type(error).__name__}: {error}".encode()
        _alive.append(text)
        found.contents.error = text
        return 1
    return 0


def _interpreter(run: Callable[[Kernel, int, list[tuple[bool, int, int]]], None]) -> Any:
    """Wrap a function for a call from C++; the text of an error must outlive the call."""

    def interpret(kernel: bytes, grid: int, count: int, kinds: Any, values: Any, sizes: Any) -> int | None:
        try:
            run(kernel_of(kernel), grid, [(kinds[i] == _BUFFER, values[i], sizes[i]) for i in range(count)])
        except Exception as error:
            text = ctypes.create_string_buffer(f"{type(error).__name__}: {error}".encode())
            _alive.append(text)
            return ctypes.addressof(text)
        return None

    return _Interpret(interpret)
