"""The fused kernels called with ordinary arguments: nothing is traced, mapped or on another device.

Most calls are such. Checking every argument one by one, as the general path does, costs 0.1 ms whenever a large
similarity has evicted its code from the processor's caches: as much as a batch of 15 pairs of 100 x 150.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._C import _dispatch_keys

from shared import checks
from shared.alignments import names_by_position
from shared.kernels import cpp
from torch_impl.kernels import cpp_binding
from torch_impl.kernels.cpp_binding import Tensor
from torch_impl.transforms import no_transform_active

_LENGTHS = (torch.int32, torch.int64)
# the parameters of up to this many pairs are cached
_MOST_PAIRS = 2**14
# the dispatch keys of an ordinary tensor: sparse, nested, fake and wrapped ones, and those elsewhere, have others; one
# that was made in inference mode lacks those of autograd
with torch.inference_mode(False):
    _KEYS = _dispatch_keys(torch.empty(0, device="cpu"))
with torch.inference_mode():
    _KEYS_IN_INFERENCE_MODE = _dispatch_keys(torch.empty(0, device="cpu"))


def is_plain(tensor: Any) -> bool:
    """Whether it is an ordinary tensor with values in this machine's memory. Must not be called while compiling."""
    return type(tensor) is Tensor and _dispatch_keys(tensor) in (_KEYS, _KEYS_IN_INFERENCE_MODE)


def is_plain_similarity(value: Any) -> bool:
    """Whether it is a similarity that the kernels take, so that nothing is left to check of it."""
    return is_plain(value) and value.dtype in cpp_binding.NAMES and value.ndim in (2, 3)


def plain_call(
    call: Callable[..., Any],
    function_name: str,
    options: dict[str, Any],
    similarity: Any,
    lengths: Any,
    parameters: dict[str, Any],
    text: Callable[[], str],
) -> Any:
    """The result (*batch, ...), or tuple of results, of `call`, a function of `operator_calls`, on ordinary arguments.

    None if an argument is invalid or not ordinary, or if the kernel cannot be compiled: the general path then handles
    the call. text: returns the error message of a third derivative.
    """
    if not (no_transform_active() and is_plain_similarity(similarity)):
        return None
    dtype, batch = similarity.dtype, similarity.shape[:-2]
    if lengths is None:
        lengths = _whole()
    elif not (is_plain(lengths) and lengths.dtype in _LENGTHS and lengths.shape == (*batch, 2)):
        return None
    by_position, gaps = (), []
    if not _are_numbers(parameters):
        by_position = names_by_position(function_name, parameters)
        gaps = [parameters[name] for name in by_position]
        parameters = parameters | dict.fromkeys(by_position, 0)
        if not (_are_numbers(parameters) and all(_is_alike(gap, similarity) for gap in gaps)):
            return None
    numbers = tuple(parameters.items())
    if not batch:
        similarity, lengths, gaps = similarity[None], lengths.reshape(-1, 2), [gap[None] for gap in gaps]
    pairs = len(similarity)
    try:
        values = (_cached_values if pairs <= _MOST_PAIRS else _values)(numbers, dtype, pairs)
    except ValueError:
        return None
    kind, flags = cpp.call_of(function_name, options, by_position)
    is_recorded = torch.is_grad_enabled() and (similarity.requires_grad or any(gap.requires_grad for gap in gaps))
    calls = cpp_binding.RECORDED if is_recorded else cpp_binding.DIRECT
    try:  # the kernel checks all lengths faster than Python does
        results = call(calls, similarity, lengths, values, gaps, kind, flags | cpp.CHECK_LENGTHS, text)
    except (cpp_binding.LengthsOutside, cpp.Absent):
        return None
    if batch:
        return results
    return tuple(result[0] for result in results) if isinstance(results, tuple) else results[0]


def _are_numbers(parameters: dict[str, Any]) -> bool:
    return all(type(value) is float or type(value) is int for value in parameters.values())


def _is_alike(gap: Any, similarity: Tensor) -> bool:
    return is_plain(gap) and gap.dtype is similarity.dtype and gap.shape == similarity.shape


@functools.cache
def _whole() -> Tensor:
    with torch.inference_mode(False):
        return torch.empty((0, 2), dtype=torch.int32, device="cpu")


def _values(numbers: tuple[tuple[str, float], ...], dtype: torch.dtype, pairs: int) -> Tensor:
    """The parameters (pairs, P), checked; nobody writes into them."""
    for name, value in numbers:
        checks.check_parameter(name, checks.see_host(value), ())
    with torch.inference_mode(False):
        host_values = torch.tensor([float(value) for _, value in numbers], dtype=dtype, device="cpu")
        return host_values.expand(pairs, -1).contiguous()


_cached_values = functools.lru_cache(maxsize=16)(_values)
