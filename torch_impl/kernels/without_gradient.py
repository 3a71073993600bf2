"""The backward of operators whose results have no gradient: it raises, but only where it is run."""

from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from shared import checks

Tensor = torch.Tensor

# the backward as an operator, so that the compiler can trace it
torch.library.define("smooth_alignment::no_gradient_of_best", "(Tensor of_scores) -> Tensor")


@torch.library.register_fake("smooth_alignment::no_gradient_of_best")
def _fake_gradient(of_scores: Tensor) -> Tensor:
    return torch.empty_like(of_scores)


def _no_gradient(*_: Any) -> Any:
    raise checks.CannotDifferentiate(checks.BEST_GRADIENT_TEXT)


torch.library.impl("smooth_alignment::no_gradient_of_best", ("CPU", "CUDA"), _no_gradient)
torch.library.register_vmap("smooth_alignment::no_gradient_of_best", _no_gradient)


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Of an operator or a Function of any tensors and others."""
    leaves, ctx.structure = tree_flatten(inputs)
    ctx.shapes = [leaf.shape if isinstance(leaf, Tensor) else None for leaf in leaves]


def backward(ctx: Any, of_scores: Tensor, *_: Any) -> Any:
    """The first of the results are the scores."""
    nothing = torch.ops.smooth_alignment.no_gradient_of_best(of_scores).sum()
    needed = zip(ctx.shapes, tree_leaves(ctx.needs_input_grad), strict=True)
    return tree_unflatten([nothing.expand(shape) if own else None for shape, own in needed], ctx.structure)


def register(operator: str) -> None:
    """For the compiler."""
    torch.library.register_autograd(operator, backward, setup_context=setup_context)
