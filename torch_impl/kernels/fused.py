"""The variant `fused` in PyTorch: scores, gradients and tangents by one native call each, or by kernels for a GPU.

torch_impl.derivatives builds all derivatives up to second order from them.
"""

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch._C import _dispatch_keys

from shared import checks
from shared.alignments import axis_of, each_axis, has_free_ends
from shared.kernels import cpp
from shared.kernels import triton as triton_kernels
from torch_impl.arguments import _tensor, from_numpy, see, values_and_gaps, vector_of
from torch_impl.derivatives import Engine
from torch_impl.kernels import cpp_binding
from torch_impl.kernels.cpp_binding import Tensor
from torch_impl.transforms import constant_while_compiling, runs_eagerly

# imported only where a GPU is used, because it imports Triton
TRITON_BINDING = "torch_impl.kernels.triton_binding"
_LENGTHS, _NUMBERS = (torch.int32, torch.int64), {float, int}
# the parameters of up to this many pairs are cached
_MOST_PAIRS = 2**14
# the dispatch keys of an ordinary tensor: sparse, nested, fake and wrapped ones, and those on other devices, have
# others; one that was made in inference mode lacks those of autograd
with torch.inference_mode(False):
    _KEYS = _dispatch_keys(torch.empty(0, device="cpu"))
with torch.inference_mode():
    _KEYS_IN_INFERENCE_MODE = _dispatch_keys(torch.empty(0, device="cpu"))


def why_not(similarity: Any, call: cpp.Call, pass_name: str) -> str | None:
    """Why these kernels cannot take this similarity; None if they can. Compiles the pass's native kernel if need be."""
    if is_on_gpu(similarity):
        return why_not_on_gpu()
    if isinstance(similarity, Tensor) and similarity.device.type != "cpu":
        return "it runs on CPUs and CUDA devices only"
    dtype = str(getattr(similarity, "dtype", "")).removeprefix("torch.")
    if dtype not in ("float16", "bfloat16", "float32", "float64"):
        return None  # the checks refuse it with a better reason
    return _why_not("float64" if dtype == "float64" else "float32", *call, pass_name)


def is_on_gpu(similarity: Any) -> bool:
    """Whether it is a tensor on a CUDA device."""
    return isinstance(similarity, Tensor) and similarity.device.type == "cuda"


@constant_while_compiling
def why_not_on_gpu() -> str | None:
    """Why there are no kernels for GPUs; None if there are."""
    reason = triton_kernels.why_absent()
    if reason is None:
        importlib.import_module(TRITON_BINDING)  # here, so that the compiler does not trace the import
    return reason


@constant_while_compiling
def _why_not(dtype: str, kind: int, options: int, pass_name: str) -> str | None:
    try:
        getattr(cpp.kernel(dtype, kind, options), pass_name)
    except cpp.Absent as reason:
        return str(reason)
    return None


def is_plain_call(similarity: Any) -> bool:
    """Whether no transform is active and this is a similarity that the CPU kernels take as it is."""
    return (
        runs_eagerly()
        and is_plain(similarity)
        and similarity.dtype in cpp_binding.DTYPE_NAMES
        and similarity.ndim in (2, 3)
    )


def is_plain(tensor: Any) -> bool:
    """Whether it is an ordinary tensor with values in this machine's memory. Must not be called while compiling."""
    return type(tensor) is Tensor and _dispatch_keys(tensor) in (_KEYS, _KEYS_IN_INFERENCE_MODE)


def is_plain_like(tensor: Any, similarity: Tensor) -> bool:
    """Whether it is an ordinary tensor of similarity's dtype and shape."""
    return is_plain(tensor) and tensor.dtype is similarity.dtype and tensor.shape == similarity.shape


def plain_call(
    pass_function: Callable[..., Any],
    function_name: str,
    options: dict[str, Any],
    similarity: Tensor,
    lengths: Any,
    parameters: dict[str, Any],
) -> Any:
    """The result (*batch, ...), or tuple of results, of a pass function, as in `derivatives`, where `is_plain_call`.

    None if another argument is invalid or not ordinary, or if the kernel cannot be compiled: the caller then takes the
    general path. Most calls are ordinary. Checking every argument one by one, as `fused` does, costs 0.1 ms whenever a
    large similarity has evicted its code from the processor's caches: as much as a batch of 15 pairs of 100 x 150.
    """
    is_single, pairs = similarity.ndim == 2, similarity.shape[0]
    if lengths is None:
        lengths = _no_lengths()
    elif not (is_plain(lengths) and lengths.dtype in _LENGTHS and lengths.shape == ((2,) if is_single else (pairs, 2))):
        return None
    gaps, names = [], ()
    if not _are_numbers(parameters) or has_free_ends(options):
        parameters, names = each_axis(function_name, parameters, options)
        by_position = [name for name in names if axis_of(name) is None]
        gaps = [parameters[name] for name in by_position]
        parameters = parameters | dict.fromkeys(by_position, 0)
        if not (_are_numbers(parameters) and all(is_plain_like(gap, similarity) for gap in gaps)):
            return None
    if is_single:
        similarity, lengths, gaps, pairs = similarity[None], lengths.reshape(-1, 2), [gap[None] for gap in gaps], 1
    plan = _plan if pairs <= _MOST_PAIRS else _plan.__wrapped__
    is_recorded = torch.is_grad_enabled() and (similarity.requires_grad or any(gap.requires_grad for gap in gaps))
    try:
        engines, values = plan(
            function_name, tuple(options.items()), names, tuple(parameters.items()), similarity.dtype, pairs
        )
        results = pass_function(engines[is_recorded], similarity, lengths, values, gaps)
    except (ValueError, cpp.Absent):
        return None
    return _first(results) if is_single else results


def _are_numbers(parameters: dict[str, Any]) -> bool:
    return {*map(type, parameters.values())} <= _NUMBERS


@functools.cache
def _no_lengths() -> Tensor:
    with torch.inference_mode(False):
        return torch.empty((0, 2), dtype=torch.int32, device="cpu")


@functools.lru_cache(maxsize=16)
def _plan(
    function_name: str,
    options: tuple[tuple[str, Any], ...],
    gaps: tuple[str, ...],
    numbers: tuple[tuple[str, float], ...],
    dtype: torch.dtype,
    pairs: int,
) -> tuple[tuple[Engine, Engine], Tensor]:
    """The engines without and with autograd, and the parameters (pairs, P), into which nobody writes.

    Raises ValueError for a number that is not allowed.
    """
    for name, value in numbers:
        checks.check_parameter(name, checks.see_host(value), ())
    with torch.inference_mode(False):
        host_values = torch.tensor([float(value) for _, value in numbers], dtype=dtype, device="cpu")
        values = host_values.expand(pairs, -1).contiguous()
    kind, flags = cpp.call_of(function_name, dict(options), gaps)
    call = kind, flags | cpp.CHECK_LENGTHS  # the kernel checks all lengths faster than Python does
    return (Engine("fused", cpp_binding.DIRECT, call, False), Engine("fused", cpp_binding.RECORDED, call, True)), values


def fused(
    pass_function: Callable[..., Any],
    call: cpp.Call,
    similarity: Any,
    lengths: Any,
    parameters: dict[str, Any],
    matrix: str = "similarity",
) -> Any:
    """The result (*batch, ...), or tuple of results, of a pass function, as in `derivatives`, for any arguments.

    What lies outside lengths may be anything. matrix: the name of the similarity in errors. Raises TypeError or
    ValueError for invalid arguments, cpp.Absent if there are no native kernels.
    """
    checks.check_alignment(see, similarity, lengths, parameters, matrix)
    s = similarity if isinstance(similarity, Tensor) else from_numpy(similarity)
    result_dtype, batch = s.dtype, s.shape[:-2]
    if result_dtype not in cpp_binding.DTYPE_NAMES:
        s = s.float()
    values, gaps = _values(parameters, s, batch)
    sizes = _sizes(lengths, s.device)
    if not batch:
        s, values, gaps = s[None], values[None], [gap[None] for gap in gaps]
        sizes = sizes if lengths is None else sizes[None]
    binding = sys.modules[TRITON_BINDING] if is_on_gpu(s) else cpp_binding
    results = pass_function(Engine("fused", binding, call), s, sizes, values, gaps)
    results = results if batch else _first(results)
    if s.dtype == result_dtype:
        return results
    return (results[0].to(result_dtype), *results[1:]) if isinstance(results, tuple) else results.to(result_dtype)


def _first(results: Any) -> Any:
    """Results without their batch axis."""
    return tuple(result[0] for result in results) if isinstance(results, tuple) else results[0]


def _sizes(lengths: Any, device: torch.device) -> Tensor:
    """The lengths as the kernels take them."""
    if lengths is None:
        return torch.empty((0, 2), dtype=torch.int32, device=device)  # none: whole matrices
    if isinstance(lengths, Tensor) and lengths.device == device:
        return lengths
    # kernels for GPUs are compiled for each type: 32-bit lengths stay 32-bit, as in JAX
    is_narrow = str(getattr(lengths, "dtype", "")).removeprefix("torch.") == "int32"
    return _tensor(lengths, torch.int32 if is_narrow else torch.int64, device)


def _values(parameters: dict[str, Any], like: Tensor, batch: torch.Size) -> tuple[Tensor, list[Tensor]]:
    """(*batch, P), on a CPU by one operation if all parameters are Python's numbers; and the gaps by position."""
    if any(isinstance(value, (Tensor, np.ndarray)) for value in parameters.values()):
        tensors = {name: _tensor(value, like.dtype, like.device) for name, value in parameters.items()}
        return values_and_gaps(tensors, batch)
    return _of_numbers(parameters, like, batch), []


def _of_numbers(parameters: dict[str, Any], like: Tensor, batch: torch.Size) -> Tensor:
    numbers = tuple(float(value) for value in parameters.values())
    # not while a GPU captures a graph, which would read this memory after it has left the cache
    if like.device.type == "cuda" and runs_eagerly() and not torch.cuda.is_current_stream_capturing():
        stream = torch.cuda.current_stream(like.device).cuda_stream
        return _cached_numbers(numbers, like.dtype, like.device, stream).expand(*batch, -1)
    return vector_of(numbers, like.dtype, like.device).expand(*batch, -1)


@functools.lru_cache(maxsize=64)
def _cached_numbers(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device, stream: int) -> Tensor:
    """The numbers as a tensor, cached per stream, so that they are written before anything on it reads them."""
    with torch.inference_mode(False):
        return vector_of(numbers, dtype, device)
