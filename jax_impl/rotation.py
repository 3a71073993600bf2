"""The rotated matrix of every sweep but cell_loop, in JAX, and the score of the ends, which all share.

The rotated matrix holds cell (i, j) at row i + j and position (j - i + rows) // 2, which makes an anti-diagonal
contiguous. The neighbour at (i-1, j-1) keeps its position; of the two others one keeps it and one is next to it;
which of them keeps it alternates with the parity of i + j + rows. The rotation is Petti et al.'s,
doi:10.1101/2021.10.23.465204.
"""

from typing import Any

import jax.numpy as jnp

from jax_impl.recurrences import Array, Parameters, States, smooth_maximum
from shared.alignments import COLS, ROWS, Recurrence
from shared.tolerances import FORBIDDEN, LOWEST


def batch_last(s: Array, lengths: Array) -> tuple[Array, Array]:
    """(rows, cols, *batch) and (2, *batch)."""
    return jnp.moveaxis(s, (-2, -1), (0, 1)), jnp.moveaxis(lengths, -1, 0)


def gaps_batch_last(recurrence: Recurrence, parameters: Parameters) -> Parameters:
    """The gaps by position, each (rows, cols, *batch)."""
    return {name: jnp.moveaxis(parameters[name], (-2, -1), (0, 1)) for name in recurrence.by_position}


def along_diagonal(recurrence: Recurrence, parameters: Parameters) -> Parameters:
    """The parameters per pair, (1, *batch): they broadcast over the positions of an anti-diagonal."""
    return {name: value[None] for name, value in parameters.items() if name not in recurrence.by_position}


def rotate(s: Array) -> tuple[Array, Array, Array, Array]:
    """The rotated matrix (diagonals, positions, *batch); for each element i, j and whether it is in the matrix."""
    rows, cols = s.shape[:2]
    i, j = jnp.indices((rows, cols))
    diagonals, positions = rows + cols - 1, (rows + cols + 1) // 2
    rotated = jnp.zeros((diagonals, positions, *s.shape[2:]), s.dtype).at[i + j, (j - i + rows) // 2].set(s)
    d, p = jnp.indices((diagonals, positions))
    offset = 2 * p + (d + rows) % 2 - rows  # j - i
    i, j = (d - offset) // 2, (d + offset) // 2
    inside = (i >= 0) & (i < rows) & (j >= 0) & (j < cols)
    return rotated, i, j, _trailing(inside, s)


def border(recurrence: Recurrence, parameters: Parameters, d: Any, rows: int, like: Array) -> tuple:
    """The states outside the matrix on anti-diagonal d: one for all places, or (1 + positions + 1, *batch).

    like: a state (positions, *batch); the border has a place more at either end.
    """
    left = recurrence.border(parameters, d + 2, COLS)
    if recurrence.is_same_along_axes:
        return left
    above = recurrence.border(parameters, d + 2, ROWS)
    # of what lies outside, these places lie above the matrix, or behind its last column
    is_above = (2 * jnp.arange(-1, len(like) + 1) >= rows).reshape(-1, *(1 for _ in like.shape[1:]))
    shape = (len(like) + 2, *like.shape[1:])
    return tuple(
        jnp.where(is_above, *(jnp.broadcast_to(jnp.asarray(value, like.dtype), shape) for value in pair))
        for pair in zip(above, left, strict=True)
    )


def initial_states(recurrence: Recurrence, rows: int, parameters: Parameters, rotated: Array) -> tuple[States, States]:
    """The states of the two anti-diagonals before the first, which lie outside the matrix."""
    before, last = (
        tuple(
            jnp.full_like(rotated[0], _within(rotated[0], value))
            for value in border(recurrence, parameters, d, rows, rotated[0])
        )
        for d in (-2, -1)
    )
    return before, last


def bordered(states: States, inside: Array, outside: tuple) -> States:
    """The states with those of the border where the anti-diagonal lies outside the matrix."""
    pairs = zip(states, outside, strict=True)
    return tuple(jnp.where(inside, state, _within(state, value)) for state, value in pairs)


def neighbours_odd(last: States, outside: tuple) -> tuple[States, States]:
    """Odd parity: the left neighbours keep their position, the upper ones are one position further."""
    upper = [jnp.concatenate([state[1:], _end(-1, state, value)]) for state, value in zip(last, outside, strict=True)]
    return last, tuple(upper)


def neighbours_even(last: States, outside: tuple) -> tuple[States, States]:
    """The left and upper neighbours at even parity: the upper keep their position, the left are one back."""
    left = [jnp.concatenate([_end(0, state, value), state[:-1]]) for state, value in zip(last, outside, strict=True)]
    return tuple(left), last


def _within(state: Array, outside: Any) -> Any:
    """The border's values at the places of a state, or the one of all."""
    return outside[1:-1] if len(jnp.shape(outside)) and len(outside) == len(state) + 2 else outside


def _end(place: int, state: Array, outside: Any) -> Array:
    """The border's value at its first or last place, (1, *batch)."""
    return jnp.full_like(state[:1], outside if isinstance(outside, float) else outside[place])


def score_of_ends(
    recurrence: Recurrence, parameters: Parameters, ends: Array, i: Array, j: Array, lengths: Array
) -> Array:
    """The smooth maximum over the cells where an alignment may end; for a pair without one, `empty_score`."""
    i, j = (_trailing(k.astype(lengths.dtype), ends) for k in (i, j))
    may_end = (i >= 0) & (j >= 0) & recurrence.may_end(i, j, jnp.expand_dims(lengths, (1, 2)))
    flat = (ends.shape[0] * ends.shape[1], *ends.shape[2:])
    masked = jnp.where(may_end, ends, LOWEST).reshape(flat)
    score = smooth_maximum(masked, parameters["temperature"], axis=0)
    empty = recurrence.is_empty(masked.max(axis=0), lengths)
    score = jnp.where(empty, recurrence.empty_score(parameters, lengths), score)
    return jnp.where(score <= FORBIDDEN, -jnp.inf, score)


def _trailing(grid: Array, like: Array) -> Array:
    """A 2-D grid with as many axes as `like`, so that it broadcasts over the batch."""
    return grid.reshape(grid.shape + (1,) * (like.ndim - 2))
