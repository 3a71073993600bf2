"""Learning to align in JAX: a substitution matrix and a gap score, by gradient descent through the marginals.

`torch_impl.learn_alignment` has the same names with the same meaning.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import jax_impl
from jax_impl.alignment import absent_on
from jax_impl.arguments import inside, see
from shared import workload_checks as checks
from shared.checks import check_parameter
from shared.reference.learning import START_GAP, Learned, start_matrix
from shared.variants import Abilities, fastest_variant

Weights = tuple[jax.Array, jax.Array]  # the matrix and the gap


def learn(
    first: Any,
    second: Any,
    truth: Any,
    lengths: Any,
    *,
    steps: int = 100,
    learning_rate: float = 20.0,
    temperature: float = 1.0,
    variant: str = "auto",
    compiled: bool = True,
) -> Learned:
    """Learn from true alignments, by full-batch gradient descent on sum((marginals - truth)^2) / sum(truth).

    Args:
        first, second: sequences as numbers of letters from 0 to 19, (pairs, rows) and (pairs, cols).
        truth: 1 where two letters match, else 0, of shape (pairs, rows, cols), float32 or float64; somewhere not 0.
            Nothing outside lengths has any influence.
        lengths: of each pair, (pairs, 2).
        steps, learning_rate: of the descent.
        temperature, variant: of smith_waterman.
        compiled: whether a step is compiled as a whole.

    Returns:
        The losses (steps,), each before its update; the matrix (20, 20) and the gap (), of truth's dtype.

    Raises:
        TypeError, ValueError: an argument is not as described.
    """
    checks.check_pairs(see, first, second, truth, lengths)
    checks.check_count("steps", steps, least=1)
    checks.check_learning_rate(see(learning_rate))
    check_parameter("temperature", see(temperature), ())
    truth = jnp.asarray(truth)
    truth = jnp.where(inside(jnp.asarray(lengths), *truth.shape[1:]), truth, 0)
    weights = jnp.asarray(start_matrix(), truth.dtype), jnp.asarray(START_GAP, truth.dtype)
    step = _compiled_step if compiled else _step
    losses = []
    for _ in range(steps):
        loss, weights = step(weights, first, second, truth, lengths, learning_rate, temperature, variant)
        losses.append(loss)
    return Learned(jnp.stack(losses), *weights)  # pyright: ignore[reportArgumentType]


def _loss(weights: Weights, first: Any, second: Any, truth: Any, lengths: Any, temperature: Any, variant: str) -> Any:
    matrix, gap = weights
    similarity = matrix[first[:, :, None], second[:, None, :]]
    function = functools.partial(jax_impl.smith_waterman, variant=variant)
    expected = jax_impl.marginals(function, similarity, lengths, gap=gap, temperature=temperature)
    return ((expected - truth) ** 2).sum() / truth.sum()


def _step(
    weights: Weights, first: Any, second: Any, truth: Any, lengths: Any, rate: Any, temperature: Any, variant: str
) -> tuple[jax.Array, Weights]:
    loss, gradients = jax.value_and_grad(_loss)(weights, first, second, truth, lengths, temperature, variant)
    return loss, jax.tree.map(lambda value, gradient: value - rate * gradient, weights, gradients)


_compiled_step = jax.jit(_step, static_argnums=7)


def abilities(device: str) -> Abilities:
    """Which variants the benchmark may ask for."""
    absent = absent_on(device)
    return Abilities(fastest_variant(absent), absent)


def call_of(variant: str, pass_name: str, options: dict[str, Any], compiled: bool) -> Callable[..., jax.Array]:
    """The function that the benchmark times: all results of `learn`, as one vector."""

    def call(*arrays: Any, **parameters: Any) -> jax.Array:
        learned = learn(*arrays, variant=variant, compiled=compiled, **options, **parameters)
        return jnp.concatenate([jnp.ravel(part) for part in learned])

    return call
