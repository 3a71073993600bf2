"""Linear regression in JAX: the same training loop four times, from a Python loop to one compiled loop.

`torch_impl.linear_regression` has the same names with the same meaning.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_impl.arguments import see
from shared import workload_checks as checks
from shared.checks import check_choice
from shared.reference.linear_regression import START
from shared.variants import Abilities, variant_names

Line = tuple[jax.Array, jax.Array]  # a and b

# steps per iteration of the compiled loop for few points, where an iteration costs more than its steps; with more
# points XLA generates slower code for them (1,000 points: 22 % less time; 100,000: 30 % more)
STEPS_PER_ITERATION, FEW_POINTS = 10, 4096


def fit(
    x: Any, y: Any, *, epochs: int = 10_000, learning_rate: float = 1e-2, variant: str = "compiled_loop"
) -> jax.Array:
    """Fit y = a x + b by full-batch gradient descent on the mean squared error, from a = 1 and b = 0.

    Args:
        x, y: the points, each of shape (points,), float32 or float64.
        epochs: how many steps.
        learning_rate: length of a step, in units of the gradient.
        variant: "eager_loop", "loop_unjitted", "jit_step" or "compiled_loop"; see compare.py --list.

    Returns:
        An array of shape (2,) and of x's dtype: a and b.

    Raises:
        TypeError, ValueError: an argument is not as described.
    """
    checks.check_points(see(x), see(y))
    checks.check_count("epochs", epochs)
    checks.check_learning_rate(see(learning_rate))
    check_choice("variant", variant, variant_names("linear_regression"))
    x, y = jnp.asarray(x), jnp.asarray(y)
    start = tuple(jnp.asarray(value, x.dtype) for value in START)
    rate = jnp.asarray(learning_rate, x.dtype)
    return jnp.stack(_LOOPS[variant](start, x, y, rate, epochs))


def _error(line: Line, x: jax.Array, y: jax.Array) -> jax.Array:
    a, b = line
    return jnp.mean((a * x + b - y) ** 2)


def _step(line: Line, x: jax.Array, y: jax.Array, learning_rate: Any) -> Line:
    gradients = jax.grad(_error)(line, x, y)
    a, b = (value - learning_rate * gradient for value, gradient in zip(line, gradients, strict=True))
    return a, b


def _python_loop(step: Callable[..., Line], line: Line, x: jax.Array, y: jax.Array, rate: Any, epochs: int) -> Line:
    for _ in range(epochs):
        line = step(line, x, y, rate)
    return line


def _own_loop(line: Line, x: jax.Array, y: jax.Array, rate: Any, epochs: int) -> Line:
    return _iterations(line, x, y, rate, epochs, 1)


def _compiled_loop(line: Line, x: jax.Array, y: jax.Array, rate: Any, epochs: int) -> Line:
    return _iterations(line, x, y, rate, epochs, STEPS_PER_ITERATION if len(x) <= FEW_POINTS else 1)


def _iterations(line: Line, x: jax.Array, y: jax.Array, rate: Any, epochs: int, steps: int) -> Line:
    """JAX's own loop, with several steps per iteration."""
    return jax.lax.fori_loop(0, epochs, lambda _, line: _step(line, x, y, rate), line, unroll=steps)


_LOOPS: dict[str, Callable[..., Line]] = {
    "eager_loop": functools.partial(_python_loop, _step),
    "loop_unjitted": _own_loop,
    "jit_step": functools.partial(_python_loop, jax.jit(_step)),
    "compiled_loop": jax.jit(_compiled_loop, static_argnums=4),
}


def abilities(device: str) -> Abilities:
    """Return what the benchmark may ask for: with nothing excluded, every variant."""
    return Abilities(None, {})


def call_of(variant: str, pass_name: str, options: dict[str, Any], compiled: bool) -> Callable[..., jax.Array]:
    """The function to be timed: f(x, y, learning_rate=...). The variant says by itself what is compiled."""
    return functools.partial(fit, variant=variant, **options)
