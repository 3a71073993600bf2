"""How a recurrence of shared.alignments is computed in JAX: the smooth maximum, and one step for some cells.

A sweep hands a step the similarity of some cells and the states of their three neighbours; all arrays have one
shape, (*batch) for a single cell or (positions, *batch) for an anti-diagonal. The differentiable parameters are passed
as a dict, each of shape (*batch) for a single cell or (1, *batch) for an anti-diagonal, or with the values of the cells
where it is by position.
"""

import functools

import jax
import jax.numpy as jnp

from shared.alignments import Recurrence

Array = jax.Array
States = tuple[Array, ...]
Parameters = dict[str, Array]


def smooth_maximum(values: Array, temperature: Array, axis: int) -> Array:
    """temperature * log(sum of exp(value / temperature)) over one axis, the first or the last, of values.

    The largest value is subtracted before the division: after it, value / temperature - largest / temperature would
    lose digits, and for LOWEST (whose rounding error is huge) everything.
    """
    largest = jax.lax.stop_gradient(values.max(axis, keepdims=True))
    shifted = (values - largest) / jnp.expand_dims(temperature, axis)
    return largest.squeeze(axis) + temperature * jax.scipy.special.logsumexp(shifted, axis=axis)


def smax(parameters: Parameters, *values: Array) -> Array:
    """The smooth maximum of arrays of one shape, element by element."""
    return smooth_maximum(jnp.stack(values, axis=-1), parameters["temperature"], axis=-1)


def recurrence_step(
    recurrence: Recurrence, parameters: Parameters, s: Array, diagonal: States, left: States, up: States
) -> tuple[States, Array]:
    """The states of some cells, and the score of the alignments that end there."""
    return recurrence.step(functools.partial(smax, parameters), parameters, s, diagonal, left, up)
