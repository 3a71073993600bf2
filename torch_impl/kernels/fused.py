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

from shared.alignments import names_by_position
from shared.kernels import cpp
from shared.kernels import triton as triton_kernels
from torch_impl.arguments import _tensor, columns_and_gaps, vector_of
from torch_impl.derivatives import scores_of
from torch_impl.kernels import cpp_binding
from torch_impl.kernels.cpp_binding import Tensor
from torch_impl.operator_calls import engine_of, score
from torch_impl.transforms import constant_while_compiling, in_transform, no_transform_active, under_forward_mode

# imported only where a GPU is used, because it imports Triton
TRITON_BINDING = "torch_impl.kernels.triton_binding"


def why_not(similarity: Any, kind: int, pass_name: str, by_position: bool) -> str | None:
    """Why these kernels cannot take this similarity; None if they can. Compiles the pass's native one if need be.

    by_position: with gaps by position.
    """
    if is_on_gpu(similarity):
        return why_not_on_gpu()
    if isinstance(similarity, Tensor) and similarity.device.type != "cpu":
        return "it runs on CPUs and CUDA devices only"
    dtype = str(getattr(similarity, "dtype", "")).removeprefix("torch.")
    if dtype not in ("float16", "bfloat16", "float32", "float64"):
        return None  # the checks refuse it with a better reason
    return _why_not("float64" if dtype == "float64" else "float32", kind, pass_name, by_position)


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
def _why_not(dtype: str, kind: int, pass_name: str, by_position: bool) -> str | None:
    try:
        getattr(cpp.kernel(dtype, kind, by_position), pass_name)
    except cpp.Absent as reason:
        return str(reason)
    return None


def fused(
    function_name: str,
    options: dict[str, Any],
    similarity: Tensor,
    lengths: Any,
    parameters: dict[str, Any],
    text: Callable[[], str],
    call: Callable[..., Tensor] = score,
) -> Tensor:
    """Scores () or (batch,) of checked arguments; what lies outside lengths may be anything.

    With another `call` of `operator_calls`: its result (*batch, ...). Under a transform only `score` is allowed.

    A third derivative raises CannotDifferentiate(text()). Raises cpp.Absent if there are no native kernels.
    """
    batch = similarity.shape[:-2]
    values, gaps = _values(parameters, similarity, batch)
    sizes = sizes_of(lengths, similarity.device)
    if not batch:
        similarity, values, gaps = similarity[None], values[None], [gap[None] for gap in gaps]
        sizes = sizes if lengths is None else sizes[None]
    kind, flags = cpp.call_of(function_name, options, names_by_position(function_name, parameters))
    binding: Any = sys.modules[TRITON_BINDING] if is_on_gpu(similarity) else cpp_binding
    if call is score and (in_transform() or under_forward_mode()):
        results = scores_of(engine_of(binding, kind, flags), text(), similarity, sizes, values, gaps)
    else:
        results = call(binding, similarity, sizes, values, gaps, kind, flags, text)
    return results if batch else results[0]


def sizes_of(lengths: Any, device: torch.device) -> Tensor:
    """The lengths as the kernels take them."""
    if lengths is None:
        return torch.empty((0, 2), dtype=torch.int32, device=device)  # none: whole matrices
    if isinstance(lengths, Tensor) and lengths.device == device:
        return lengths
    # kernels for GPUs are compiled for each type: 32-bit lengths stay 32-bit, as in JAX
    is_narrow = str(getattr(lengths, "dtype", "")).removeprefix("torch.") == "int32"
    return _tensor(lengths, torch.int32 if is_narrow else torch.int64, device)


def _values(parameters: dict[str, Any], like: Tensor, batch: torch.Size) -> tuple[Tensor, list[Tensor]]:
    """(*batch, P), by one tensor operation where all parameters are Python's numbers; and the gaps by position."""
    if any(isinstance(value, (Tensor, np.ndarray)) for value in parameters.values()):
        tensors = {name: _tensor(value, like.dtype, like.device) for name, value in parameters.items()}
        return columns_and_gaps(tensors, batch)
    return _of_numbers(parameters, like, batch), []


def _of_numbers(parameters: dict[str, Any], like: Tensor, batch: torch.Size) -> Tensor:
    numbers = tuple(float(value) for value in parameters.values())
    # not while a GPU captures a graph, which would read this memory after it has left the cache
    if like.device.type == "cuda" and no_transform_active() and not torch.cuda.is_current_stream_capturing():
        stream = torch.cuda.current_stream(like.device).cuda_stream
        return _cached_numbers(numbers, like.dtype, like.device, stream).expand(*batch, -1)
    return vector_of(numbers, like.dtype, like.device).expand(*batch, -1)


@functools.lru_cache(maxsize=64)
def _cached_numbers(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device, stream: int) -> Tensor:
    """The numbers as a tensor, cached per stream, so that they are written before anything on it reads them."""
    with torch.inference_mode(False):
        return vector_of(numbers, dtype, device)
