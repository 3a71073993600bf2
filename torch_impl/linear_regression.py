"""Linear regression in PyTorch: the same training loop four times, from a Python loop to one compiled loop.

`jax_impl.linear_regression` has the same names with the same meaning.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops import while_loop

from shared import workload_checks as checks
from shared.checks import check_choice
from shared.reference.linear_regression import START
from shared.variants import Abilities, variant_names
from torch_impl.arguments import from_numpy, see

Tensor = torch.Tensor
Line = tuple[Tensor, Tensor]  # a and b

# variant -> why it cannot run in this framework
ABSENT: dict[str, str] = {}


def fit(x: Any, y: Any, *, epochs: int = 10_000, learning_rate: float = 1e-2, variant: str = "compiled_loop") -> Tensor:
    """Fit y = a x + b by full-batch gradient descent on the mean squared error, from a = 1 and b = 0.

    Args:
        x, y: the points, each of shape (points,), float32 or float64.
        epochs: how many steps.
        learning_rate: length of a step, in units of the gradient.
        variant: "eager_loop", "loop_unjitted", "jit_step" or "compiled_loop"; see compare.py --list.

    Returns:
        A tensor of shape (2,) and of x's dtype: a and b.

    Raises:
        TypeError, ValueError: an argument is not as described.
    """
    checks.check_points(see(x), see(y))
    checks.check_count("epochs", epochs)
    checks.check_learning_rate(learning_rate)
    check_choice("variant", variant, variant_names("linear_regression"))
    x, y = (points if isinstance(points, Tensor) else from_numpy(points) for points in (x, y))
    a, b = (x.new_tensor(value) for value in START)
    return torch.stack(_LOOPS[variant](a, b, x, y, learning_rate, epochs))


def _error(a: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return ((a * x + b - y) ** 2).mean()


def _eager_step(a: Tensor, b: Tensor, x: Tensor, y: Tensor, learning_rate: float) -> Line:
    a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
    with torch.enable_grad():
        d_a, d_b = torch.autograd.grad(_error(a, b, x, y), (a, b))
    return a.detach() - learning_rate * d_a, b.detach() - learning_rate * d_b


def _step(a: Tensor, b: Tensor, x: Tensor, y: Tensor, learning_rate: float) -> Line:
    """The same in the form that the compiler can look into."""
    d_a, d_b = torch.func.grad(_error, argnums=(0, 1))(a, b, x, y)
    return a - learning_rate * d_a, b - learning_rate * d_b


def _python_loop(
    step: Callable[..., Line], a: Tensor, b: Tensor, x: Tensor, y: Tensor, rate: float, epochs: int
) -> Line:
    for _ in range(epochs):
        a, b = step(a, b, x, y, rate)
    return a, b


def _own_loop(a: Tensor, b: Tensor, x: Tensor, y: Tensor, rate: float, epochs: int) -> Line:
    def is_before_the_end(number: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return number < epochs

    def step(number: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return number + 1, *_step(a, b, x, y, rate)

    number = torch.zeros((), dtype=torch.int64, device=x.device)
    _, a, b = while_loop(is_before_the_end, step, (number, a, b))
    return a, b


_LOOPS: dict[str, Callable[..., Line]] = {
    "eager_loop": functools.partial(_python_loop, _eager_step),
    "loop_unjitted": _own_loop,
    "jit_step": functools.partial(_python_loop, torch.compile(_step, dynamic=False, fullgraph=True)),
    "compiled_loop": torch.compile(_own_loop, dynamic=False, fullgraph=True),
}


def abilities(device: str) -> Abilities:
    """What the benchmark may ask for."""
    return Abilities(None, ABSENT)


def call_of(variant: str, pass_name: str, options: dict[str, Any], compiled: bool) -> Callable[..., Tensor]:
    """What the benchmark times: f(x, y, learning_rate=...). The variant says by itself what is compiled."""
    return functools.partial(fit, variant=variant, **options)
