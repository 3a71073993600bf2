"""The formulas of other codes for one pair, written anew from their mathematics, cell by cell, as programs of tensors.

Autograd gives their derivatives. A state that nothing reaches is left out, so that no infinity needs a derivative. What
the names mean, and where each code is, is in docs/migrating.md.
"""

from collections.abc import Sequence

import numpy as np
import torch

Tensor = torch.Tensor
Pair = tuple[int, int]


def smax(values: Sequence[Tensor], temperature: Tensor | float | None) -> Tensor:
    """The smooth maximum, or the maximum without a temperature."""
    stacked = torch.stack(list(values))
    return stacked.max() if temperature is None else temperature * torch.logsumexp(stacked / temperature, 0)


def cells(matrix: Tensor) -> list[Pair]:
    return list(np.ndindex(*matrix.shape))


def neighbours(i: int, j: int) -> tuple[Pair, Pair, Pair]:
    return (i - 1, j - 1), (i, j - 1), (i - 1, j)


def at(gap: Tensor, cell: Pair) -> Tensor:
    """The gap that enters a cell, by position or one for all."""
    return gap[cell] if gap.ndim else gap


def plus(states: dict[Pair, Tensor], cell: Pair, *terms: Tensor) -> list[Tensor]:
    """The choice of coming from a cell, if it has a state."""
    return [states[cell] + sum(terms)] if cell in states else []


def affine_states(
    x: Tensor, gap: Tensor, opening: Tensor, temp: Tensor | float | None, restrict_turns: bool, penalize_turns: bool
) -> tuple[dict[Pair, Tensor], list[Tensor]]:
    """The values of alignments that end in each match, and of those with a match before it."""
    align: dict[Pair, Tensor] = {}
    right: dict[Pair, Tensor] = {}
    down: dict[Pair, Tensor] = {}
    ends = []
    for cell in cells(x):
        diagonal, left, up = neighbours(*cell)
        extend, start = at(gap, cell), at(opening, cell)
        turn = start if penalize_turns else extend
        match = [value for state in (align, right, down) for value in plus(state, diagonal, x[cell])]
        ends += match
        align[cell] = smax([*match, x[cell]], temp)
        turned = [] if restrict_turns else plus(down, left, turn)
        along = [*plus(align, left, start), *plus(right, left, extend), *turned]
        across = [*plus(align, up, start), *plus(right, up, turn), *plus(down, up, extend)]
        for state, choices in ((right, along), (down, across)):
            if choices:
                state[cell] = smax(choices, temp)
    return align, ends


def smurf_sw_affine(
    x: Tensor, gap: Tensor, opening: Tensor, temp: Tensor, restrict_turns: bool = True, penalize_turns: bool = True
) -> Tensor:
    """SoftAlign's fork has the matrices gap_matrix and open_matrix in place of gap and open."""
    _, ends = affine_states(x, gap, opening, temp, restrict_turns, penalize_turns)
    return smax(ends, temp)


def smurf_sw(x: Tensor, gap: Tensor, temp: Tensor) -> Tensor:
    """One state in its code, the sum of the three of a gap that opens as it extends and turns as it likes."""
    return smurf_sw_affine(x, gap, gap, temp, restrict_turns=False)


def smurf_sw_nogap(x: Tensor, temp: Tensor) -> Tensor:
    zero = x.new_zeros(())
    h: dict[Pair, Tensor] = {}
    for cell in cells(x):
        diagonal, left, up = (h.get(neighbour, zero) for neighbour in neighbours(*cell))
        h[cell] = smax([diagonal + x[cell], left, up], temp)
    return torch.stack(list(h.values())).max()


def smurf_nw(x: Tensor, gap: Tensor, temp: Tensor) -> Tensor:
    rows, cols = x.shape
    h = {(i, -1): (i + 1) * gap for i in range(-1, rows)} | {(-1, j): (j + 1) * gap for j in range(cols)}
    for cell in cells(x):
        diagonal, left, up = (h[neighbour] for neighbour in neighbours(*cell))
        h[cell] = smax([diagonal + x[cell], left + gap, up + gap], temp)
    return h[rows - 1, cols - 1]


def dedal_sw_affine(sim_mat: Tensor, gap_open: Tensor, gap_extend: Tensor, temp: float | None = 1.0) -> Tensor:
    """Penalties are subtracted; a single match is an alignment; hard without a temperature, and then never below 0."""
    matches, _ = affine_states(sim_mat, -gap_extend, -gap_open, temp, True, True)
    return smax([*matches.values(), *([sim_mat.new_zeros(())] if temp is None else [])], temp)


def deepblast_nw(theta: Tensor, a: Tensor) -> Tensor:
    zero = theta.new_zeros(())
    v: dict[Pair, Tensor] = {}
    for cell in cells(theta):
        diagonal, left, up = (v.get(neighbour, zero) for neighbour in neighbours(*cell))
        v[cell] = theta[cell] + smax([a[cell] + up, diagonal, a[cell] + left], 1.0)
    return v[theta.shape[0] - 1, theta.shape[1] - 1]


def deepblast_sw(theta: Tensor, a: Tensor) -> Tensor:
    """Both of its loops begin one cell later, so that the values of the first row and column stay 0."""
    return deepblast_nw(theta[1:, 1:], a[1:, 1:])


def soft_dtw(d: Tensor, gamma: Tensor | None, bandwidth: int | None = None) -> Tensor:
    """The hard one without gamma. With a bandwidth, cells further from the diagonal have no value."""
    r = {(-1, -1): d.new_zeros(())}
    for i, j in cells(d):
        if bandwidth is None or abs(i - j) <= bandwidth:
            before = [-r[neighbour] for neighbour in neighbours(i, j) if neighbour in r]
            r[i, j] = d[i, j] - smax(before, gamma)
    return r[d.shape[0] - 1, d.shape[1] - 1]
