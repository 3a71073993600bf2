"""Gaps by position, in Triton: what a gap step into a cell costs, and the gradients with respect to that.

They are matrices like the similarity, and read, and turned into odds, as it is. Outside the matrix they cost nothing.
"""

import triton
import triton.language as tl

from shared.kernels.triton.cells import AFFINE
from shared.kernels.triton.pairs import MOST, bits_beyond, clamped, whole_number


@triton.jit
def gap_rows(
    open_by_position: tl.constexpr, extend_by_position: tl.constexpr, tangents: tl.constexpr, opened, extended, address
):
    """Where the rows of the gaps by position are: of each its values, then with tangents theirs.

    opened, extended: the matrices of values and of tangents, that are read if need be.
    """
    rows = ()
    if open_by_position:
        rows = rows + (opened[0] + address,)
        if tangents:
            rows = rows + (opened[1] + address,)
    if extend_by_position:
        rows = rows + (extended[0] + address,)
        if tangents:
            rows = rows + (extended[1] + address,)
    return rows


@triton.jit
def gap_of(gap, t_gap, match, tangents: tl.constexpr):
    """The odds of a gap step and their tangent."""
    high, low, inverse_t, slope, _lowest = match
    amount = clamped(gap)
    whole = whole_number(amount * high)
    e = tl.minimum(tl.maximum(whole, -MOST), MOST)
    x = e
    if tangents:
        x = t_gap * inverse_t - amount * slope
    return tl.exp2(bits_beyond(whole, amount, high, low)), e, x


@triton.jit
def costs_in(
    open_by_position: tl.constexpr,
    extend_by_position: tl.constexpr,
    penalize_turns: tl.constexpr,
    tangents: tl.constexpr,
    costs,
    gaps,
    match,
):
    """The costs in some cells: the pair's, or of a gap by position the cells'.

    gaps: of each gap by position its values in the cells, then with tangents theirs.
    """
    if open_by_position or extend_by_position:
        each: tl.constexpr = 2 if tangents else 1
        opened, extended = (costs[0][0], costs[1][0], costs[2][0]), (costs[0][1], costs[1][1], costs[2][1])
        if open_by_position:
            opened = gap_of(gaps[0], gaps[each - 1], match, tangents)
        if extend_by_position:
            extended = gap_of(gaps[len(gaps) - each], gaps[len(gaps) - 1], match, tangents)
        turn = opened if penalize_turns else extended
        return (
            (opened[0], extended[0], turn[0]),
            (opened[1], extended[1], turn[1]),
            (opened[2], extended[2], turn[2]),
        )
    else:
        return costs


@triton.jit
def to_gaps(
    kind: tl.constexpr,
    open_by_position: tl.constexpr,
    extend_by_position: tl.constexpr,
    penalize_turns: tl.constexpr,
    to_costs,
):
    """The gradients with respect to the gaps by position in a cell, from those with respect to the costs."""
    parts = ()
    if open_by_position:
        opened = to_costs[0]
        if kind == AFFINE and penalize_turns:
            opened += to_costs[2]
        parts = parts + (opened,)
    if extend_by_position:
        extended = to_costs[1]
        if not penalize_turns:
            extended += to_costs[2]
        parts = parts + (extended,)
    return parts
