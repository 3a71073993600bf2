"""What one step of each alignment does, in JAX: its states, borders, step and end. Nothing about walking a matrix.

A sweep hands a step the similarity of some cells and the states of their three neighbours; all arrays have one
shape, (*batch) for a single cell or (positions, *batch) for an anti-diagonal. A recurrence holds its options and is
hashable; its differentiable parameters, each of shape (*batch), are passed to it as a dict.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from shared.numerics import LOWEST

Array = jax.Array
States = tuple[Array, ...]
Parameters = dict[str, Array]


def smooth_maximum(values: Array, temperature: Array, axis: int) -> Array:
    """temperature * log(sum of exp(value / temperature)) over one axis, the first or the last, of values.

    The largest value is taken off before the division: after it, value / temperature - largest / temperature would
    lose digits, and for LOWEST (whose rounding error is huge) everything.
    """
    largest = jax.lax.stop_gradient(values.max(axis, keepdims=True))
    shifted = (values - largest) / jnp.expand_dims(temperature, axis)
    return largest.squeeze(axis) + temperature * jax.scipy.special.logsumexp(shifted, axis=axis)


@dataclass(frozen=True)
class LocalLinear:
    """smith_waterman: local alignment with a linear gap; one state, h.

        h(i,j) = smax( h(i-1,j-1) + s(i,j), h(i,j-1) + gap, h(i-1,j) + gap, s(i,j) )

    Source: Petti et al. 2021, doi:10.1101/2021.10.23.465204.
    """

    end: str = "any"

    def border(self, parameters: Parameters, diagonal: Any) -> tuple[Any, ...]:
        """The states of the cells outside the matrix on anti-diagonal i + j = diagonal."""
        return (LOWEST,)

    def step(
        self, parameters: Parameters, s: Array, diagonal: States, left: States, up: States
    ) -> tuple[States, Array]:
        """New states, and what an alignment that ends in these cells is worth."""
        matched = diagonal[0] + s
        gap = parameters["gap"]
        choices = jnp.stack((matched, left[0] + gap, up[0] + gap, s), axis=-1)
        h = smooth_maximum(choices, parameters["temperature"], axis=-1)
        return (h,), h if self.end == "any" else matched

    def may_end(self, i: Array, j: Array, lengths: Array) -> Array:
        """Mask of the cells where an alignment may end. lengths: (2, *batch)."""
        inside = (i < lengths[0]) & (j < lengths[1])
        return inside if self.end == "any" else inside & (i >= 1) & (j >= 1)


RECURRENCES = {
    "smith_waterman": LocalLinear,
}
