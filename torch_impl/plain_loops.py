"""The first two variants of smith_waterman in PyTorch, as plain code to compare with the mathematics.

    h[i, j] = smax(h[i-1, j-1] + s[i, j], h[i, j-1] + gap, h[i-1, j] + gap, s[i, j])

For the other alignments, for gaps by position or by axis, and for every other sweep of this one, sweeps.py reads the
recurrence from the table.
"""

from collections.abc import Callable

import torch

from shared.alignments import ANYWHERE, Recurrence
from shared.tolerances import LOWEST
from torch_impl.recurrences import Parameters, Tensor, smax
from torch_impl.rotation import batch_last, indices, neighbours_even, neighbours_odd, put, rotate, score_of_ends


def cell_loop(recurrence: Recurrence, parameters: Parameters, s: Tensor, lengths: Tensor) -> Tensor:
    """One cell at a time, written into the table by functional update."""
    s, lengths = batch_last(s, lengths)
    rows, cols, *batch = s.shape
    gap = parameters["gap"]
    h = s.new_full((rows + 1, cols + 1, *batch), LOWEST)  # the last row and column, -1, are outside the matrix
    matched = torch.zeros_like(s)
    for i in range(rows):
        for j in range(cols):
            match = h[i - 1, j - 1] + s[i, j]
            h = put(h, i, j, smax(parameters, match, h[i, j - 1] + gap, h[i - 1, j] + gap, s[i, j]))
            matched = put(matched, i, j, match)
    ends = h[:rows, :cols] if recurrence.where == ANYWHERE else matched
    i, j = indices(rows, cols, s)
    return score_of_ends(recurrence, parameters, ends, i, j, lengths)


def diagonal_loop(recurrence: Recurrence, parameters: Parameters, s: Tensor, lengths: Tensor) -> Tensor:
    """All cells of an anti-diagonal at once: they depend on the two anti-diagonals before it only."""
    s, lengths = batch_last(s, lengths)
    rotated, i, j, inside = rotate(s)
    gap = parameters["gap"]
    before = last = s.new_full(rotated.shape[1:], LOWEST)  # h of the anti-diagonals d - 2 and d - 1
    ends = []
    # unbind, because the backward of each rotated[d] would fill a tensor of rotated's size
    for d, row in enumerate(rotated.unbind(0)):
        shift = neighbours_odd if (d + len(s)) % 2 else neighbours_even
        (left,), (up,) = shift((last,), (LOWEST,))
        match = before + row
        h = smax(parameters, match, left + gap, up + gap, row)
        ends.append(h if recurrence.where == ANYWHERE else match)
        before, last = last, torch.where(inside[d], h, LOWEST)
    return score_of_ends(recurrence, parameters, torch.stack(ends), i, j, lengths)


PLAIN_LOOPS: dict[str, Callable[..., Tensor]] = {"cell_loop": cell_loop, "diagonal_loop": diagonal_loop}
