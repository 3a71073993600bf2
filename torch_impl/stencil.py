"""The nested-loop stencil in PyTorch: the same sums five times, from a double Python loop to a scan.

`jax_impl.stencil` has the same names with the same meaning.
"""

# Dynamo cannot evaluate the annotations of functions that are defined inside a compiled one
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops import scan
from torch.nn.functional import conv1d, pad

from shared.checks import CannotDifferentiate, check_choice, second_order_text, transform_text
from shared.variants import Abilities, variant_names
from shared.workload_checks import check_weights
from torch_impl.arguments import from_numpy, see
from torch_impl.compiler import compiled as compile_function
from torch_impl.first_order_guard import first_order
from torch_impl.transforms import differentiated

Tensor = torch.Tensor

# the scan operator has wrong second derivatives
SCANNING = ("scan", "scan_sum")


def stencil(w: Any, *, variant: str = "scan_sum") -> Tensor:
    """a(i, 0) = 1; a(i, j+1) = sum over k in {i-1, i, i+1} of a(k, j) w(k, j), but 0 in the first and the last row.

    Args:
        w: the weights, of shape (height, width) with height at least 3, float32 or float64.
        variant: "cell_loop", "column_convolve", "column_sum", "scan" or "scan_sum"; see compare.py --list. On a GPU
            "column_convolve" and "scan" are convolutions, which PyTorch rounds to TF32 unless
            torch.backends.cudnn.allow_tf32 is False.

    Returns:
        A tensor of shape (height, width + 1) and of w's dtype, differentiable for w; through a scan, once.

    Raises:
        TypeError, ValueError: an argument is not as described.
        RuntimeError: a scan is differentiated twice, by torch.func, or in forward mode.
    """
    check_weights(see(w))
    check_choice("variant", variant, variant_names("stencil"))
    w = w if isinstance(w, Tensor) else from_numpy(w)
    if variant not in SCANNING:
        return _VARIANTS[variant](w)
    unscanned = tuple(name for name in _VARIANTS if name not in SCANNING)
    # where the scan operator raises in torch.func.linearize, autograd stays off afterwards (2.13)
    if done := differentiated(w):
        raise CannotDifferentiate(transform_text(variant, done, unscanned, has_auto=False))
    return first_order(_VARIANTS[variant], second_order_text(variant, unscanned, has_auto=False), w)


def _cell_loop(w: Tensor) -> Tensor:
    height, width = w.shape
    one, zero = w.new_ones(()), w.new_zeros(())
    columns = [[one] * height]
    for j in range(width):
        before, weights = columns[-1], w[:, j].unbind()
        inner = [
            before[i - 1] * weights[i - 1] + before[i] * weights[i] + before[i + 1] * weights[i + 1]
            for i in range(1, height - 1)
        ]
        columns.append([zero, *inner, zero])
    return torch.stack([torch.stack(column) for column in columns], dim=1)


def _convolved(column: Tensor, w: Tensor) -> Tensor:
    """The next column, by a convolution."""
    return pad(conv1d((column * w)[None, None], w.new_ones((1, 1, 3)))[0, 0], (1, 1))


def _added(column: Tensor, w: Tensor) -> Tensor:
    """The next column, by three slices."""
    products = column * w
    return pad(products[:-2] + products[1:-1] + products[2:], (1, 1))


def _by_column(following: Callable[..., Tensor], w: Tensor) -> Tensor:
    columns = [w.new_ones(len(w))]
    for weights in w.unbind(1):
        columns.append(following(columns[-1], weights))
    return torch.stack(columns, dim=1)


def _scanned(following: Callable[..., Tensor], w: Tensor) -> Tensor:
    def step(column: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        after = following(column, weights)
        return after, after.clone()  # the operator forbids results that alias each other

    # ones, but with a gradient: the scan operator cuts gradients between steps when the first carry needs none (2.11)
    first = w[:, 0] ** 0
    _, columns = scan(step, first, w.T)
    return torch.cat([first[None], columns]).T


_VARIANTS: dict[str, Callable[[Tensor], Tensor]] = {
    "cell_loop": _cell_loop,
    "column_convolve": functools.partial(_by_column, _convolved),
    "column_sum": functools.partial(_by_column, _added),
    "scan": functools.partial(_scanned, _convolved),
    "scan_sum": functools.partial(_scanned, _added),
}


def _gradient(function: Callable[..., Tensor], w: Tensor, cotangent: Tensor) -> Tensor:
    with torch.enable_grad():
        leaf = w.detach().requires_grad_()
        (result,) = torch.autograd.grad(function(leaf), leaf, cotangent)
    return result


def abilities(device: str) -> Abilities:
    """Return what the benchmark may ask for: with nothing excluded, every variant."""
    return Abilities(None, {})


def call_of(variant: str, pass_name: str, options: dict[str, Any], compiled: bool) -> Callable[..., Tensor]:
    """The function to be timed: "value" is f(w), "gradient" f(w, cotangent), the gradient of sum(cotangent * a)."""
    function: Callable[..., Tensor] = functools.partial(stencil, variant=variant)
    if compiled:  # torch.compile does not trace torch.autograd.grad: it compiles the function and its backward
        function = compile_function(function)
    return {"value": function, "gradient": functools.partial(_gradient, function)}[pass_name]
