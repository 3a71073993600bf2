"""The first two variants of smith_waterman in JAX, as plain code to compare with the mathematics.

    h[i, j] = smax(h[i-1, j-1] + s[i, j], h[i, j-1] + gap, h[i-1, j] + gap, s[i, j])

For the other alignments, for gaps by position or by axis, and for every other sweep of this one, sweeps.py reads the
recurrence from the table.
"""

from collections.abc import Callable

import jax.numpy as jnp

from jax_impl.recurrences import Array, Parameters, smax
from jax_impl.rotation import along_diagonal, batch_last, neighbours_even, neighbours_odd, rotate, score_of_ends
from shared.alignments import ANYWHERE, Recurrence
from shared.tolerances import LOWEST


def cell_loop(recurrence: Recurrence, parameters: Parameters, s: Array, lengths: Array) -> Array:
    """One cell at a time, written into the table by functional update."""
    s, lengths = batch_last(s, lengths)
    rows, cols, *batch = s.shape
    gap = parameters["gap"]
    h = jnp.full((rows + 1, cols + 1, *batch), LOWEST, s.dtype)  # the last row and column, -1, are outside the matrix
    matched = jnp.zeros_like(s)
    for i in range(rows):
        for j in range(cols):
            match = h[i - 1, j - 1] + s[i, j]
            h = h.at[i, j].set(smax(parameters, match, h[i, j - 1] + gap, h[i - 1, j] + gap, s[i, j]))
            matched = matched.at[i, j].set(match)
    ends = h[:rows, :cols] if recurrence.where == ANYWHERE else matched
    i, j = jnp.indices((rows, cols))
    return score_of_ends(recurrence, parameters, ends, i, j, lengths)


def diagonal_loop(recurrence: Recurrence, parameters: Parameters, s: Array, lengths: Array) -> Array:
    """All cells of an anti-diagonal at once: they depend on the two anti-diagonals before it only."""
    s, lengths = batch_last(s, lengths)
    rotated, i, j, inside = rotate(s)
    of_diagonal = along_diagonal(recurrence, parameters)
    gap = of_diagonal["gap"]
    before = last = jnp.full(rotated.shape[1:], LOWEST, s.dtype)  # h of the anti-diagonals d - 2 and d - 1
    ends = []
    for d in range(len(rotated)):
        shift = neighbours_odd if (d + len(s)) % 2 else neighbours_even
        (left,), (up,) = shift((last,), (LOWEST,))
        match = before + rotated[d]
        h = smax(of_diagonal, match, left + gap, up + gap, rotated[d])
        ends.append(h if recurrence.where == ANYWHERE else match)
        before, last = last, jnp.where(inside[d], h, LOWEST)
    return score_of_ends(recurrence, parameters, jnp.stack(ends), i, j, lengths)


PLAIN_LOOPS: dict[str, Callable[..., Array]] = {"cell_loop": cell_loop, "diagonal_loop": diagonal_loop}
