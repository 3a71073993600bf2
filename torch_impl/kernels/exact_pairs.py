"""Which pairs a GPU computes with an exponent for each cell, because block exponents could lose something."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_impl.derivatives import Engine
from torch_impl.expected_alignment import try_operators
from torch_impl.kernels.fused import is_on_gpu

Tensor = torch.Tensor
PASSES = "score", "marginals"


def exact_pairs(
    function: Callable[..., Tensor],
    similarity: Tensor,
    lengths: Any = None,
    *,
    pass_name: str = "marginals",
    **parameters: Any,
) -> Tensor:
    """Tell which pairs `fused` computes on a GPU with an exponent per cell, which takes longer.

    They are the same in JAX, and their results as accurate as the others. The call takes as long as the pass, so use it
    on a few batches only. (On a CPU, `shared.kernels.cpp.exact_pairs()` counts such pairs.)

    Args:
        function: an alignment of this package, or functools.partial of one with keywords.
        similarity, lengths, parameters: as for that function; similarity on a CUDA device.
        pass_name: "score" or "marginals"; for a Hessian-vector product, the pairs are nearly always those of marginals.

    Returns:
        A boolean tensor of shape () or (batch,); true for pairs without a cell, and everywhere for float64, gaps by
        position or by axis, free end gaps, needleman_wunsch_affine and soft_dtw.

    Raises:
        TypeError, ValueError: as the function; similarity is not on a CUDA device; an unknown pass_name.
    """
    if pass_name not in PASSES:
        raise ValueError(f"pass_name must be {' or '.join(map(repr, PASSES))}, not {pass_name!r}")
    if not is_on_gpu(similarity):
        raise ValueError(f"similarity must be on a CUDA device, got {getattr(similarity, 'device', 'no tensor')}")
    with torch.no_grad():
        flags = try_operators(functools.partial(_flags, pass_name), False, function, similarity, lengths, parameters)
        if flags is None:
            function(similarity, lengths, **parameters)  # raises its own error if an argument is invalid
            raise TypeError(
                f"function must be an alignment of torch_impl with variant 'fused' or 'auto', not {function!r}"
            )
    return flags.bool()


def _flags(pass_name: str, engine: Engine, s: Tensor, lengths: Tensor, values: Tensor, gaps: list[Tensor]) -> Tensor:
    return engine.operators.flags(s, lengths, values, gaps, *engine.call, pass_name == "marginals")
