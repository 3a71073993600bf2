"""Linear regression in PyTorch: the same training loop four times, from a Python loop to one compiled loop.

`jax_impl.linear_regression` has the same names with the same meaning.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops import while_loop

from shared import workload_checks as checks
from shared.checks import CannotDifferentiate, check_choice
from shared.reference.linear_regression import START
from shared.variants import Abilities, variant_names
from torch_impl import cuda_graph
from torch_impl.arguments import from_numpy, see
from torch_impl.transforms import differentiated

Tensor = torch.Tensor
Line = tuple[Tensor, Tensor]  # a and b

# steps in one iteration of the compiled loop, which adds 5 microseconds to them; more take longer to compile
STEPS_PER_ITERATION = 10
# steps in a CUDA graph, which is launched from Python: fewer, and the GPU waits for Python
GRAPH_STEPS = 100
# one compile for each number of points and dtype; 8, the default, are soon used up
_DYNAMO = {"recompile_limit": 256, "accumulated_recompile_limit": 1024}


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
        RuntimeError: an argument requires a gradient or has a tangent: the fit has no derivative.
    """
    checks.check_points(see(x), see(y))
    checks.check_count("epochs", epochs)
    checks.check_learning_rate(see(learning_rate))
    check_choice("variant", variant, variant_names("linear_regression"))
    x, y = (points if isinstance(points, Tensor) else from_numpy(points) for points in (x, y))
    tensors = [argument for argument in (x, y, learning_rate) if isinstance(argument, Tensor)]
    recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if recorded or differentiated(*tensors):
        # a loop in the compiler, and one that detaches its steps, would give wrong derivatives without a word
        raise CannotDifferentiate("fit cannot be differentiated in PyTorch; give it detached arguments, as x.detach()")
    with torch.inference_mode(False), torch._dynamo.config.patch(_DYNAMO):  # each step has a gradient inside
        x, y = (points.clone() if points.is_inference() else points.detach() for points in (x, y))
        a, b = (x.new_tensor(value) for value in START)
        rate = torch.as_tensor(learning_rate, dtype=x.dtype, device=x.device)
        return torch.stack(_LOOPS[variant](a, b, x, y, rate, epochs))


def _error(a: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return ((a * x + b - y) ** 2).mean()


def _eager_step(a: Tensor, b: Tensor, x: Tensor, y: Tensor, learning_rate: Tensor) -> Line:
    a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
    with torch.enable_grad():
        d_a, d_b = torch.autograd.grad(_error(a, b, x, y), (a, b))
    return a.detach() - learning_rate * d_a, b.detach() - learning_rate * d_b


def _step(a: Tensor, b: Tensor, x: Tensor, y: Tensor, learning_rate: Tensor) -> Line:
    """A step of gradient descent in a form that torch.compile can trace."""
    d_a, d_b = torch.func.grad(_error, argnums=(0, 1))(a, b, x, y)
    return a - learning_rate * d_a, b - learning_rate * d_b


_compiled_step = torch.compile(_step, dynamic=False, fullgraph=True)


def _python_loop(
    step: Callable[..., Line], a: Tensor, b: Tensor, x: Tensor, y: Tensor, rate: Tensor, epochs: int
) -> Line:
    for _ in range(epochs):
        a, b = step(a, b, x, y, rate)
    return a, b


def _iterations(a: Tensor, b: Tensor, x: Tensor, y: Tensor, rate: Tensor, iterations: Tensor, steps: int) -> Line:
    """PyTorch's while_loop, with `steps` steps in each iteration."""

    def is_before_the_end(number: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return number < iterations

    def iteration(number: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        for _ in range(steps):
            a, b = _step(a, b, x, y, rate)
        return number + 1, a, b

    _, a, b = while_loop(is_before_the_end, iteration, (torch.zeros_like(iterations), a, b))
    return a, b


def _while_loop(a: Tensor, b: Tensor, x: Tensor, y: Tensor, rate: Tensor, epochs: int) -> Line:
    return _iterations(a, b, x, y, rate, torch.tensor(epochs, device=x.device), 1)


@functools.partial(torch.compile, dynamic=False, fullgraph=True)
def _two_loops(a: Tensor, b: Tensor, x: Tensor, y: Tensor, rate: Tensor, iterations: Tensor, rest: Tensor) -> Line:
    a, b = _iterations(a, b, x, y, rate, iterations, STEPS_PER_ITERATION)
    return _iterations(a, b, x, y, rate, rest, 1)


@functools.partial(torch.compile, dynamic=False, fullgraph=True)
def _steps(a: Tensor, b: Tensor, x: Tensor, y: Tensor, rate: Tensor) -> Line:
    return _python_loop(_step, a, b, x, y, rate, STEPS_PER_ITERATION)


def _go_on(a: Tensor, b: Tensor, x: Tensor, y: Tensor, rate: Tensor) -> Line:
    """Many steps, written into a and b: what a CUDA graph repeats."""
    moved_a, moved_b = _python_loop(_steps, a, b, x, y, rate, GRAPH_STEPS // STEPS_PER_ITERATION)
    return a.copy_(moved_a), b.copy_(moved_b)


def _launched_loop(a: Tensor, b: Tensor, x: Tensor, y: Tensor, rate: Tensor, epochs: int) -> Line:
    """A CUDA graph of compiled steps, launched until there are only a few to do."""
    launches, last_epochs = divmod(epochs, GRAPH_STEPS)
    if launches:
        inputs = (a, b, x, y, rate)
        with cuda_graph.using():
            graph = cuda_graph.graph_of(_go_on, inputs, key=_go_on)
            graph.load(inputs)
            for _ in range(launches):
                graph.launch()
            a, b = (line.clone() for line in graph.results)
    return _python_loop(_compiled_step, a, b, x, y, rate, last_epochs)


def _compiled_loop(a: Tensor, b: Tensor, x: Tensor, y: Tensor, rate: Tensor, epochs: int) -> Line:
    if x.device.type == "cuda":  # there each iteration of PyTorch's own loop waits for the device's "go on"
        return _launched_loop(a, b, x, y, rate, epochs)
    counts = (torch.tensor(count, device=x.device) for count in divmod(epochs, STEPS_PER_ITERATION))
    return _two_loops(a, b, x, y, rate, *counts)


_LOOPS: dict[str, Callable[..., Line]] = {
    "eager_loop": functools.partial(_python_loop, _eager_step),
    "loop_unjitted": _while_loop,
    "jit_step": functools.partial(_python_loop, _compiled_step),
    "compiled_loop": _compiled_loop,
}


def abilities(device: str) -> Abilities:
    """Return what the benchmark may ask for: with nothing excluded, every variant."""
    return Abilities(None, {})


def call_of(variant: str, pass_name: str, options: dict[str, Any], compiled: bool) -> Callable[..., Tensor]:
    """The function to be timed: f(x, y, learning_rate=...). The variant says by itself what is compiled."""
    return functools.partial(fit, variant=variant, **options)
