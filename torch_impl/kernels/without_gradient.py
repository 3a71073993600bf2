"""The backward of best alignments' operators, whose results have no gradient: it raises, but only where it is run."""

from typing import Any

import torch

from shared import checks
from torch_impl.derivatives import library_of, register_vmap

Tensor = torch.Tensor

# an operator, so that the compiler can trace the backward
_LIBRARY = library_of("no_gradient_of_best")
_LIBRARY.define("no_gradient_of_best(Tensor of_scores) -> Tensor")

gradient = torch.ops.smooth_alignment.no_gradient_of_best.default


@torch.library.register_fake(gradient, lib=_LIBRARY)
def _fake_gradient(of_scores: Tensor) -> Tensor:
    return torch.empty_like(of_scores)


def _no_gradient(*_: Any) -> Any:
    raise checks.CannotDifferentiate(checks.BEST_GRADIENT_TEXT)


for _key in ("CPU", "CUDA"):
    _LIBRARY.impl("no_gradient_of_best", _no_gradient, _key)
register_vmap(gradient, _LIBRARY)


def register(operator: Any, library: torch.library.Library | None = None) -> None:
    """Give an operator of similarity, lengths, values and gaps this backward."""
    torch.library.register_autograd(operator, _backward, setup_context=_setup_context, lib=library)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    s, _, values, gaps, *_ = inputs
    ctx.shapes = s.shape, values.shape, [gap.shape for gap in gaps]


def _backward(ctx: Any, ct_scores: Tensor, ct_matches: Any) -> tuple[Any, ...]:
    raises = gradient(ct_scores).sum()
    s_shape, values_shape, gap_shapes = ctx.shapes
    gaps = [raises.expand(shape) for shape in gap_shapes]
    return raises.expand(s_shape), None, raises.expand(values_shape), gaps, None, None
