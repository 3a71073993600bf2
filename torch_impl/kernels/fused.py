"""The variant `fused` in PyTorch: scores, gradients and tangents by one native call each.

torch_impl.derivatives makes of them all derivatives to second order.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from shared import native
from shared.variants import CPU_ONLY
from torch_impl.arguments import _tensor
from torch_impl.derivatives import Engine, scores_of
from torch_impl.kernels import calls
from torch_impl.kernels.calls import Tensor
from torch_impl.transforms import in_transform, under_forward_mode


def why_not(similarity: Any, warn: bool) -> str | None:
    """Why these kernels cannot take this similarity; None if they can. Compiles them if that has not been done.

    warn: if that fails, not only return the reason but say it, once.
    """
    if isinstance(similarity, Tensor) and similarity.device.type != "cpu":
        return CPU_ONLY
    dtype = str(getattr(similarity, "dtype", "")).removeprefix("torch.")
    if dtype not in ("float16", "bfloat16", "float32", "float64"):
        return None  # the checks refuse it with a better reason
    return _why_not("float64" if dtype == "float64" else "float32", warn)


@torch.compiler.assume_constant_result
def _why_not(dtype: str, warn: bool) -> str | None:
    try:
        native.kernel(dtype)
    except native.Absent as reason:
        if warn:
            native.warn(str(reason))
        return str(reason)
    return None


def fused(
    function_name: str,
    options: dict[str, Any],
    similarity: Tensor,
    lengths: Any,
    parameters: dict[str, Any],
    text: Callable[[], str],
    instead: Callable[..., Tensor] | None = None,
) -> Tensor:
    """Scores () or (batch,) of checked arguments; what lies outside lengths may be anything.

    With `instead` what it gives for the batch, (*batch, ...), for callers who differentiate nothing.

    A third derivative raises CannotDifferentiate(text()). Raises native.Absent if there are no native kernels.
    """
    batch = similarity.shape[:-2]
    values = _values(parameters, similarity, batch)
    if lengths is None:
        sizes = torch.empty((0, 2), dtype=torch.int32, device=similarity.device)  # none: whole matrices
    else:
        here = isinstance(lengths, Tensor) and lengths.device == similarity.device
        sizes = lengths if here else _tensor(lengths, torch.int64, similarity.device)
    if not batch:
        similarity, values, sizes = similarity[None], values[None], sizes if lengths is None else sizes[None]
    kind, flags = native.call_of(function_name, options)
    if instead is not None:
        results = instead(similarity, sizes, values, kind, flags)
        return results if batch else results[0]
    differentiated = torch.is_grad_enabled() and (similarity.requires_grad or values.requires_grad)
    if differentiated or in_transform() or under_forward_mode():
        operators = (calls.score, calls.gradients, calls.tangents)
        engine = Engine(*(functools.partial(operator, kind=kind, options=flags) for operator in operators))
        scores = scores_of(engine, text(), similarity, sizes, values)
    else:  # without a Function, which costs more than a small alignment
        scores = calls.score(similarity, sizes, values, kind, flags)
    return scores if batch else scores[0]


def _values(parameters: dict[str, Any], like: Tensor, batch: torch.Size) -> Tensor:
    """(*batch, P); by one tensor operation where all parameters are Python's numbers."""
    if any(isinstance(value, (Tensor, np.ndarray)) for value in parameters.values()):
        own = [_tensor(value, like.dtype, like.device).expand(batch) for value in parameters.values()]
        return torch.stack(own, dim=-1)
    numbers = torch.tensor([float(value) for value in parameters.values()], dtype=like.dtype, device=like.device)
    return numbers.expand(*batch, -1)
