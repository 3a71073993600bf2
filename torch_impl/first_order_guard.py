"""A guard for variants whose second derivatives PyTorch gets wrong or cannot get: a double backward raises.

The scan operator's backward is not differentiated correctly (2.11 to 2.13: gradcheck passes, gradgradcheck does
not). A guarded function is right to first order, and what its first derivative returns cannot be differentiated.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from shared.checks import CannotDifferentiate
from torch_impl.transforms import compiled_or_in_torch_func


def first_order(function: Callable[..., torch.Tensor], text: str, *inputs: torch.Tensor) -> torch.Tensor:
    """function(*inputs), differentiable once with respect to all inputs; a double backward raises an error (text)."""
    if compiled_or_in_torch_func():
        # Compiled, or under vmap, the scan operator itself cannot be guarded. Then it is enough to guard every first
        # derivative where it comes out: in the backward of an input.
        result = function(*(_FirstOrderInput.apply(tensor, text) for tensor in inputs))
        # under vmap alone, create_graph would end in an assertion inside the scan operator's backward
        return result if torch.compiler.is_compiling() else _NoGraphOfBackward.apply(result, text)
    return _FirstOrder.apply(function, text, *inputs)


def tied(result: torch.Tensor, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """The result of a compiled function, such that a double backward through it raises.

    torch.compile detects a double backward only if a tensor saved for the backward requires a gradient. Here the
    incoming gradient is made to depend on the inputs, so that it is always detected.
    """
    return _Tied.apply(result, *inputs)


class _Tied(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(result: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        return result.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        text = "a compiled function is right to first order only; take second derivatives of the function itself"
        return _NoDerivative.apply(text, gradients[0], *ctx.saved_tensors), *(None for _ in ctx.saved_tensors)


class _FirstOrder(torch.autograd.Function):
    """Runs a graph of its own, so that create_graph does not reach the scan operator's backward."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., torch.Tensor], text: str, *inputs: torch.Tensor) -> torch.Tensor:
        ctx.text = text
        ctx.save_for_backward(*inputs)
        needed = ctx.needs_input_grad[2:]
        leaves = [tensor.detach().requires_grad_(need) for tensor, need in zip(inputs, needed, strict=True)]
        with torch.set_grad_enabled(any(needed)):
            ctx.result = function(*leaves)
        ctx.leaves = [leaf for leaf in leaves if leaf.requires_grad]
        return ctx.result.detach().clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        with torch.enable_grad():
            first = iter(torch.autograd.grad(ctx.result, ctx.leaves, gradients[0].detach(), retain_graph=True))
        return (
            None,
            None,
            *(
                _NoDerivative.apply(ctx.text, next(first), gradients[0], *ctx.saved_tensors) if need else None
                for need in ctx.needs_input_grad[2:]
            ),
        )


class _FirstOrderInput(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: torch.Tensor, text: str) -> torch.Tensor:
        return tensor.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        ctx.text = inputs[1]
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _NoDerivative.apply(ctx.text, gradients[0], *ctx.saved_tensors), None


class _NoGraphOfBackward(torch.autograd.Function):
    """A result whose backward may not itself be recorded."""

    generate_vmap_rule = True

    @staticmethod
    def forward(result: torch.Tensor, text: str) -> torch.Tensor:
        return result.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        ctx.text = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        if torch.is_grad_enabled():
            raise CannotDifferentiate(ctx.text)
        return gradients[0], None


class _NoDerivative(torch.autograd.Function):
    """A first derivative, tied to the tensors that it depends on by a derivative that raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(text: str, value: torch.Tensor, *depends_on: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        ctx.text = inputs[0]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> None:
        raise CannotDifferentiate(ctx.text)
