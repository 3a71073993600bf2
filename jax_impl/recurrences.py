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


def _smooth_maximum_of(choices: tuple[Array, ...], parameters: Parameters) -> Array:
    """The smooth maximum of arrays of one shape, place by place."""
    return smooth_maximum(jnp.stack(choices, axis=-1), parameters["temperature"], axis=-1)


class _Recurrence:
    """What all have in common: a state is the smooth maximum of its choices."""

    def choices(
        self, parameters: Parameters, s: Array, diagonal: States, left: States, up: States
    ) -> tuple[States, ...]:
        """For each state, what it is the smooth maximum of. Linear in all arguments, so it maps tangents too."""
        raise NotImplementedError

    def endings(self, choices: tuple[States, ...], states: States) -> States:
        """What the worth of an alignment that ends in these cells is the smooth maximum of. Linear."""
        raise NotImplementedError

    def border_tangent(self, tangents: Parameters, diagonal: Any) -> tuple[Any, ...]:
        """The tangents of `border`, by those of the parameters."""
        raise NotImplementedError

    def step(
        self, parameters: Parameters, s: Array, diagonal: States, left: States, up: States
    ) -> tuple[States, Array]:
        """New states, and what an alignment that ends in these cells is worth."""
        choices = self.choices(parameters, s, diagonal, left, up)
        states = tuple(_smooth_maximum_of(own, parameters) for own in choices)
        endings = self.endings(choices, states)
        return states, endings[0] if len(endings) == 1 else _smooth_maximum_of(endings, parameters)


class _Local(_Recurrence):
    """Where a local alignment may be: anywhere, or, with too few rows or columns or every match forbidden, nowhere."""

    def is_empty(self, best: Array, lengths: Array) -> Array:
        """Which pairs have no alignment. best: (*batch), the largest value where one may end, LOWEST if nowhere."""
        # "not below", so that NaN stays NaN; what only forbidden matches lead to is as low as LOWEST
        return best <= LOWEST / 2

    def empty_score(self, parameters: Parameters, lengths: Array) -> Any:
        """The score of a pair without an alignment: minus infinity would be useless in training."""
        return 0.0


@dataclass(frozen=True)
class LocalLinear(_Local):
    """smith_waterman: local alignment with a linear gap; one state, h.

        h(i,j) = smax( h(i-1,j-1) + s(i,j), h(i,j-1) + gap, h(i-1,j) + gap, s(i,j) )

    Source: Petti et al. 2021, doi:10.1101/2021.10.23.465204.
    """

    end: str = "any"

    def border(self, parameters: Parameters, diagonal: Any) -> tuple[Any, ...]:
        """The states of the cells outside the matrix on anti-diagonal i + j = diagonal."""
        return (LOWEST,)

    def border_tangent(self, tangents: Parameters, diagonal: Any) -> tuple[Any, ...]:
        """The tangents of `border`, by those of the parameters: it is constant."""
        return (0.0,)

    def choices(
        self, parameters: Parameters, s: Array, diagonal: States, left: States, up: States
    ) -> tuple[States, ...]:
        """For each state, what it is the smooth maximum of. Linear in all arguments, so it maps tangents too."""
        gap = parameters["gap"]
        return ((diagonal[0] + s, left[0] + gap, up[0] + gap, s),)

    def endings(self, choices: tuple[States, ...], states: States) -> States:
        """What the worth of an alignment that ends in these cells is the smooth maximum of. Linear."""
        return states if self.end == "any" else choices[0][:1]

    def may_end(self, i: Array, j: Array, lengths: Array) -> Array:
        """Mask of the cells where an alignment may end. lengths: (2, *batch)."""
        inside = (i < lengths[0]) & (j < lengths[1])
        return inside if self.end == "any" else inside & (i >= 1) & (j >= 1)


@dataclass(frozen=True)
class LocalAffine(_Local):
    """smith_waterman_affine: local alignment where a gap of length k costs open + (k-1) * extend.

    Three states: A ends in a match, R in a gap along the row, D in a gap along the column.

        A(i,j) = s(i,j) + smax( A(i-1,j-1), R(i-1,j-1), D(i-1,j-1), 0 )
        R(i,j) = smax( A(i,j-1) + open, R(i,j-1) + extend, D(i,j-1) + turn )      the last only if not restrict_turns
        D(i,j) = smax( A(i-1,j) + open, R(i-1,j) + turn, D(i-1,j) + extend )
        turn = open if penalize_turns, else extend

    Source: Petti et al. 2021, doi:10.1101/2021.10.23.465204.
    """

    restrict_turns: bool = True
    penalize_turns: bool = True

    def border(self, parameters: Parameters, diagonal: Any) -> tuple[Any, ...]:
        """The states of the cells outside the matrix on anti-diagonal i + j = diagonal."""
        return (LOWEST, LOWEST, LOWEST)

    def border_tangent(self, tangents: Parameters, diagonal: Any) -> tuple[Any, ...]:
        """The tangents of `border`, by those of the parameters: it is constant."""
        return (0.0, 0.0, 0.0)

    def choices(
        self, parameters: Parameters, s: Array, diagonal: States, left: States, up: States
    ) -> tuple[States, ...]:
        """For each state, what it is the smooth maximum of. Linear in all arguments, so it maps tangents too."""
        start, extend = parameters["gap_open"], parameters["gap_extend"]
        turn = start if self.penalize_turns else extend
        match = (diagonal[0] + s, diagonal[1] + s, diagonal[2] + s, s)
        along_row = (left[0] + start, left[1] + extend)
        along_row = along_row if self.restrict_turns else (*along_row, left[2] + turn)
        return match, along_row, (up[0] + start, up[1] + turn, up[2] + extend)

    def endings(self, choices: tuple[States, ...], states: States) -> States:
        """What the worth of an alignment that ends in these cells is the smooth maximum of. Linear."""
        return choices[0][:3]

    def may_end(self, i: Array, j: Array, lengths: Array) -> Array:
        """Mask of the cells where an alignment may end: with a match that is not its first. lengths: (2, *batch)."""
        return (i >= 1) & (i < lengths[0]) & (j >= 1) & (j < lengths[1])


@dataclass(frozen=True)
class GlobalLinear(_Recurrence):
    """needleman_wunsch: global alignment with a linear gap; one state, h.

        h(i,j) = smax( h(i-1,j-1) + s(i,j), h(i,j-1) + gap, h(i-1,j) + gap );  outside, h = (i + j + 2) * gap

    Source: Needleman and Wunsch 1970, doi:10.1016/0022-2836(70)90057-4; smoothed as in Petti et al. 2021.
    """

    def gap(self, parameters: Parameters) -> Any:
        """What is added for a gap position."""
        return parameters["gap"]

    def border(self, parameters: Parameters, diagonal: Any) -> tuple[Any, ...]:
        """The states of the cells outside the matrix on anti-diagonal i + j = diagonal: gaps from the corner on."""
        return (self.gap(parameters) * (diagonal + 2),)

    def border_tangent(self, tangents: Parameters, diagonal: Any) -> tuple[Any, ...]:
        """The tangents of `border`, by those of the parameters: it is linear."""
        return self.border(tangents, diagonal)

    def choices(
        self, parameters: Parameters, s: Array, diagonal: States, left: States, up: States
    ) -> tuple[States, ...]:
        """For each state, what it is the smooth maximum of. Linear in all arguments, so it maps tangents too."""
        gap = self.gap(parameters)
        return ((diagonal[0] + s, left[0] + gap, up[0] + gap),)

    def endings(self, choices: tuple[States, ...], states: States) -> States:
        """What the worth of an alignment that ends in these cells is the smooth maximum of. Linear."""
        return states

    def may_end(self, i: Array, j: Array, lengths: Array) -> Array:
        """Mask of the cells where an alignment may end: the last one. lengths: (2, *batch)."""
        return (i == lengths[0] - 1) & (j == lengths[1] - 1)

    def is_empty(self, best: Array, lengths: Array) -> Array:
        """Which pairs have no cell. best: (*batch), the largest value where an alignment may end."""
        return (lengths[0] == 0) | (lengths[1] == 0)

    def empty_score(self, parameters: Parameters, lengths: Array) -> Any:
        """The score of a pair without a cell: all gaps."""
        return self.gap(parameters) * (lengths[0] + lengths[1])


@dataclass(frozen=True)
class FreeGap(GlobalLinear):
    """free_gap: global alignment whose gaps cost nothing, so that h = 0 outside.

    Source: Petti et al. 2021, doi:10.1101/2021.10.23.465204.
    """

    def gap(self, parameters: Parameters) -> Any:
        """What is added for a gap position: nothing."""
        return 0.0


RECURRENCES = {
    "smith_waterman": LocalLinear,
    "smith_waterman_affine": LocalAffine,
    "free_gap": FreeGap,
    "needleman_wunsch": GlobalLinear,
}
