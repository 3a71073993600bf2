"""Gaps by position, by axis and outside the matrix, in Triton: what they cost, and the gradients with respect to that.

By position they are matrices like the similarity, read and turned into weights as it is. Along the border gaps then
cost nothing.
"""

import triton
import triton.language as tl

from shared.kernels.triton.cells import dot
from shared.kernels.triton.pairs import FREE_ROWS, LAST_TURN, MOST, NOTHING, bits_beyond, clamped, gaps_at, whole_number


@triton.jit
def gap_rows(gap_open, t_gap_open, gap_extend, t_gap_extend, address):
    """The addresses of the rows of each gap by position that is given: of its values, then of their tangents."""
    rows = ()
    if gap_open is not None:
        rows = rows + (gap_open + address,)
    if t_gap_open is not None:
        rows = rows + (t_gap_open + address,)
    if gap_extend is not None:
        rows = rows + (gap_extend + address,)
    if t_gap_extend is not None:
        rows = rows + (t_gap_extend + address,)
    return rows


@triton.jit
def gap_of(gap, t_gap, match, tangents: tl.constexpr, gap_tangents: tl.constexpr):
    """The weight of a gap step and its tangent. gap_tangents: whether there is t_gap, which else counts as 0."""
    high, low, inverse_t, slope, _lowest = match
    amount = clamped(gap)
    whole = whole_number(amount * high)
    e = tl.minimum(tl.maximum(whole, -MOST), MOST)
    x = e
    if tangents:
        x = amount * (slope * -1.0)
        if gap_tangents:
            x += t_gap * inverse_t
    return tl.exp2(bits_beyond(whole, amount, high, low)), e, x


@triton.jit
def costs_in(
    open_by_position: tl.constexpr,
    extend_by_position: tl.constexpr,
    penalize_turns: tl.constexpr,
    form: tl.constexpr,
    tangents: tl.constexpr,
    gap_tangents: tl.constexpr,
    costs,
    gaps,
    match,
    in_last,
):
    """The costs in some cells: the pair's, or of a gap by position the cells'.

    gaps: of each gap by position its values in the cells, then their tangents, if there are any. in_last: see or_free.
    """
    if open_by_position or extend_by_position:
        last: tl.constexpr = 1 if gap_tangents else 0
        opened, extended = (costs[0][0], costs[1][0], costs[2][0]), (costs[0][1], costs[1][1], costs[2][1])
        if open_by_position:
            opened = gap_of(gaps[0], gaps[last], match, tangents, gap_tangents)
        if extend_by_position:
            first: tl.constexpr = len(gaps) - 1 - last
            extended = gap_of(gaps[first], gaps[first + last], match, tangents, gap_tangents)
        turn = opened if penalize_turns else extended
        return (
            (opened[0], extended[0], turn[0]),
            (opened[1], extended[1], turn[1]),
            (opened[2], extended[2], turn[2]),
        )
    elif len(costs[0]) > 3:
        m, e, x = costs
        return or_free(form, m, 1, 1, in_last), or_free(form, e, 0, NOTHING, in_last), or_free(form, x, 0, 0, in_last)
    else:
        return costs


@triton.jit
def or_free(form: tl.constexpr, values, free: tl.constexpr, never: tl.constexpr, in_last):
    """Numbers of gap steps by axis, `free` where they are, `never` where there are none.

    in_last: whether a cell is in the last row, and column.
    """
    half: tl.constexpr = len(values) // 2
    changed = ()
    for k in tl.static_range(len(values)):
        value = values[k]
        if LAST_TURN & form and k == 2:
            value = never
        if (FREE_ROWS << k // half) & form:
            value = tl.where(in_last[k // half], free, value)
        changed = changed + (value,)
    return changed


@triton.jit
def gaps_alone(kind: tl.constexpr, form: tl.constexpr, rows, cols, costs, real: tl.constexpr):
    """gaps_at along and down a pair without a cell, and their total cost. Unless by axis, both are of all its gaps."""
    if len(costs) > 2:
        along, down = gaps_at(kind, form, 0, cols.to(real)), gaps_at(kind, form, 1, rows.to(real))
        return along, down, dot(along, costs[:2]) + dot(down, costs[2:])
    else:
        along = gaps_at(kind, form, 0, (rows + cols).to(real))
        return along, along, dot(along, costs)


@triton.jit
def to_border(kind: tl.constexpr, form: tl.constexpr, axis: tl.constexpr, flow, gaps):
    """The gradients with respect to gaps_at, from those with respect to states so many gaps from the corner."""
    counts = gaps_at(kind, form, axis, gaps)
    if len(counts) == 2:
        return flow * counts[0], flow * counts[1]
    else:
        return (flow * counts[0],)


@triton.jit
def to_gaps(
    open_by_position: tl.constexpr,
    extend_by_position: tl.constexpr,
    penalize_turns: tl.constexpr,
    to_costs,
):
    """The gradients with respect to the gaps by position in a cell, from those with respect to the costs."""
    parts = ()
    if open_by_position:
        opened = to_costs[0]
        if len(to_costs) == 3 and penalize_turns:
            opened += to_costs[2]
        parts = parts + (opened,)
    if extend_by_position:
        extended = to_costs[1]
        if not penalize_turns:
            extended += to_costs[2]
        parts = parts + (extended,)
    return parts
