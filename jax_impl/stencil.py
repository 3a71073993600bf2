"""The nested-loop stencil in JAX: the same sums five times, from a double Python loop to a scan.

`torch_impl.stencil` has the same names with the same meaning.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_impl.arguments import see
from shared.checks import check_choice
from shared.variants import Abilities, variant_names
from shared.workload_checks import check_weights


def stencil(w: Any, *, variant: str = "scan_sum") -> jax.Array:
    """a(i, 0) = 1; a(i, j+1) = sum over k in {i-1, i, i+1} of a(k, j) w(k, j), but 0 in the first and the last row.

    Args:
        w: the weights, of shape (height, width) with height at least 3, float32 or float64.
        variant: "cell_loop", "column_convolve", "column_sum", "scan" or "scan_sum"; see compare.py --list.

    Returns:
        An array of shape (height, width + 1) and of w's dtype, differentiable with respect to w.

    Raises:
        TypeError, ValueError: an argument is not as described.
    """
    check_weights(see(w))
    check_choice("variant", variant, variant_names("stencil"))
    return _VARIANTS[variant](jnp.asarray(w))


def _cell_loop(w: jax.Array) -> jax.Array:
    height, width = w.shape
    a = jnp.zeros((height, width + 1), w.dtype).at[:, 0].set(1)
    for j in range(width):
        for i in range(1, height - 1):
            cell = a[i - 1, j] * w[i - 1, j] + a[i, j] * w[i, j] + a[i + 1, j] * w[i + 1, j]
            a = a.at[i, j + 1].set(cell)
    return a


def _convolved(column: jax.Array, w: jax.Array) -> jax.Array:
    """The next column, by a convolution."""
    products = column * w
    # "highest": on a GPU float32 would be rounded to TF32
    return jnp.pad(jnp.convolve(products, jnp.ones(3, w.dtype), mode="valid", precision="highest"), 1)


def _added(column: jax.Array, w: jax.Array) -> jax.Array:
    """The next column, by three slices."""
    products = column * w
    return jnp.pad(products[:-2] + products[1:-1] + products[2:], 1)


def _by_column(following: Callable[..., jax.Array], w: jax.Array) -> jax.Array:
    columns = [jnp.ones(len(w), w.dtype)]
    for weights in w.T:
        columns.append(following(columns[-1], weights))
    return jnp.stack(columns, axis=1)


def _scanned(following: Callable[..., jax.Array], w: jax.Array) -> jax.Array:
    def step(column: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        after = following(column, weights)
        return after, after

    first = jnp.ones(len(w), w.dtype)
    _, columns = jax.lax.scan(step, first, w.T)
    return jnp.concatenate([first[None], columns]).T


_VARIANTS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "cell_loop": _cell_loop,
    "column_convolve": functools.partial(_by_column, _convolved),
    "column_sum": functools.partial(_by_column, _added),
    "scan": functools.partial(_scanned, _convolved),
    "scan_sum": functools.partial(_scanned, _added),
}


def _gradient(function: Callable[..., jax.Array], w: jax.Array, cotangent: jax.Array) -> jax.Array:
    return jax.grad(lambda weights: (cotangent * function(weights)).sum())(w)


def abilities(device: str) -> Abilities:
    """Return what the benchmark may ask for: with nothing excluded, every variant."""
    return Abilities(None, {})


def call_of(variant: str, pass_name: str, options: dict[str, Any], compiled: bool) -> Callable[..., jax.Array]:
    """The function to be timed: "value" is f(w), "gradient" f(w, cotangent), the gradient of sum(cotangent * a)."""
    function = functools.partial(stencil, variant=variant)
    call = {"value": function, "gradient": functools.partial(_gradient, function)}[pass_name]
    return jax.jit(call) if compiled else call
