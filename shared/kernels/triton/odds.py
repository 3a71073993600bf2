"""Plain odds with shared exponents, in Triton: what both directions of that arithmetic have in common.

Odds are exp(value / T), so that a smooth maximum is a sum. cells.py gives each its own exponent, which is safe at every
temperature and takes most of the time. Here what a lane computes in a block of BLOCK steps are multiples of one unit
2^e, chosen so that the largest of what the block begins with is about 1: what is left are products and sums. Where that
could lose anything, the pair is flagged, and left to the exact kernels.

Tangents of odds, by the chain rule, are in the same unit, and relative to an origin: what is held is the tangent less
the odds times the origin, which a lane moves to a state of its own in each block. In a long alignment the tangents of
logarithms are large, and what counts in the end are differences between them.

What is lost is what falls below 2^-126 of a unit: a neighbour's state that is brought to this unit, a match, or the
start. A gap's odds are at most 2^LARGEST_COST and a match's 2^LARGEST_MATCH, so a cell loses at most about 2^-86 of its
unit, a part of 2^-36 of a state that is at least LEAST_STATE. Smaller states are flagged, with one exception: in a
local alignment no unit is below 1, and where it is 1 what is lost is as little beside a fresh start, unless gaps can
raise it by more than 2^LARGEST_RISE before the next match. The total of a local alignment is at least 2^LEAST_TOTAL of
the largest unit: where only matches end, all that counts could else be lost. What is too large becomes infinite, or
NaN, and stays so to the end of the row and in the total. On the way back the same holds of B, the odds of all ways on
from a cell, and of the ends in place of the starts.

A chunk of a few blocks is read from memory, and written, by whole rows, and goes through shared memory to the lanes:
lanes that read their own rows would each touch a line of memory of their own.
"""

import triton
import triton.language as tl

from shared.kernels.triton import programs
from shared.kernels.triton.cells import LOCAL_ANY, LOCAL_MATCH, highest
from shared.kernels.triton.pairs import NOTHING, outside
from shared.kernels.triton.tiles import is_inside

BLOCK = tl.constexpr(programs.BLOCK)
# what a pair's numbers must keep to, in bits
LARGEST_COST = tl.constexpr(27.0)  # of a gap's odds, of either sign
LARGEST_MATCH = tl.constexpr(40.0)  # of a match's odds
LEAST_STATE = tl.constexpr(2.0**-50)  # of a cell's odds, in its block's unit
LARGEST_RISE = tl.constexpr(20.0)  # of an alignment by gaps alone
LEAST_TOTAL = tl.constexpr(-40.0)  # of a local alignment's total, beside the largest unit
LARGEST_TOTAL = tl.constexpr(2.0**125)  # in its unit: its reciprocal is a normal number
LARGEST_TANGENT = tl.constexpr(1e30)  # of a total's logarithm
NO_MATCH = tl.constexpr(float("-inf"))  # a similarity
LARGEST_OFFSET = tl.constexpr(1 << 30)  # of a number in a strip: 32 bits address it


@triton.jit
def exponent_of(x):
    """floor(log2 x) of a positive float32; -127 of 0."""
    return ((x.to(tl.int32, bitcast=True) >> 23) - 127).to(tl.float32)


@triton.jit
def times(values, factor):
    """Each of a tuple of vectors times a vector."""
    own = ()
    for k in tl.static_range(len(values)):
        own = own + (values[k] * factor,)
    return own


@triton.jit
def repeated(value, count: tl.constexpr):
    own = ()
    for _k in tl.static_range(count):
        own = own + (value,)
    return own


@triton.jit
def warp_and_place(lane, group: tl.constexpr):
    """Of each lane its warp, of `group` lanes, and its place there."""
    if lane.shape[0] == group:
        return 0, lane
    else:
        return lane // group, lane % group


@triton.jit
def skew_of(lane, group: tl.constexpr, delay: tl.constexpr):
    """How many columns each lane is behind the first: a warp is `delay` behind the one above."""
    warp, place = warp_and_place(lane, group)
    return warp * delay + place


@triton.jit
def active_warps(rows_left, lanes: tl.constexpr, group: tl.constexpr, height: tl.constexpr):
    """The warps that have rows, from the first one on."""
    if group == lanes:
        return 1
    else:
        return tl.minimum((rows_left + (group * height - 1)) // (group * height), lanes // group)


@triton.jit
def in_group(values, places, group: tl.constexpr):
    """The number of another lane of the same warp, by its place there."""
    if values.shape[0] == group:
        return tl.gather(values, places, 0)
    else:
        shape: tl.constexpr = [values.shape[0] // group, group]
        own = tl.gather(tl.reshape(values, shape), tl.reshape(places, shape), 1)
        return tl.reshape(own, [values.shape[0]])


@triton.jit
def of_lane_above(values, of_first, place, group: tl.constexpr):
    """The numbers of the lanes above; of_first: what a warp's first lane has instead."""
    return tl.where(place == 0, of_first, in_group(values, tl.maximum(place - 1, 0), group))


@triton.jit
def of_lane_below(values, of_last, place, group: tl.constexpr):
    """The numbers of the lanes below; of_last: what a warp's last lane has instead."""
    return tl.where(place == group - 1, of_last, in_group(values, tl.minimum(place + 1, group - 1), group))


@triton.jit
def of_step(values, k: tl.constexpr, group: tl.constexpr):
    """The number of the k-th lane of the warp, in all its lanes."""
    return in_group(values, values.to(tl.int32) * 0 + k, group)


@triton.jit
def chunk_at(
    base,
    stride,
    t0,
    rows_left,
    own_cols,
    none,
    lanes: tl.constexpr,
    group: tl.constexpr,
    delay: tl.constexpr,
    height: tl.constexpr,
    steps: tl.constexpr,
):
    """The columns of steps t0 to t0 + steps - 1 of each lane's rows, as tiles (lanes, steps); `none` where is no cell.

    base: the strip's first row; rows_left: how many there are from that on. Addresses are a number of 32 bits each, and
    nothing that is known of lanes is kept, which would take most of a thread's registers.
    """
    tiles = ()
    lane, k = tl.arange(0, lanes)[:, None], tl.arange(0, steps)[None, :]
    skew = skew_of(lane, group, delay)
    away = tl.cast(stride, tl.int32)
    for r in tl.static_range(height):
        row = lane * height + r
        is_there = is_inside(t0 + k - skew, own_cols) & (row < rows_left)
        tiles = tiles + (tl.load((base + t0) + (row * away + (k - skew)), mask=is_there, other=none),)
    return tiles


@triton.jit
def joined_halves(c):
    """Half as many tiles of twice as many columns: each with its own from the second half in between."""
    tiles = ()
    for k in tl.static_range(len(c) // 2):
        joined = tl.join(c[k], c[k + len(c) // 2])
        tiles = tiles + (tl.reshape(joined, [joined.shape[0], joined.numel // joined.shape[0]]),)
    return tiles


@triton.jit
def joined_columns(c):
    """The tile made of 8, 16 or 32 columns."""
    tiles = joined_halves(joined_halves(joined_halves(c)))
    if len(c) == 16:
        tiles = joined_halves(tiles)
    if len(c) == 32:
        tiles = joined_halves(joined_halves(tiles))
    return tiles[0]


@triton.jit
def chunk_to(
    base,
    stride,
    t0,
    rows_left,
    own_cols,
    tile,
    later,
    lanes: tl.constexpr,
    group: tl.constexpr,
    delay: tl.constexpr,
    height: tl.constexpr,
    r: tl.constexpr,
    steps: tl.constexpr,
):
    """Stores tiles (lanes, steps) in pieces of rows that begin at a multiple of `steps`.

    tile: the columns that chunk_at would load; later: those of the chunk after it, from which the end of a piece is.
    """
    lane, k = tl.arange(0, lanes)[:, None], tl.arange(0, steps)[None, :]
    shift, skew = lane % steps, skew_of(lane, group, delay)
    piece = tl.gather(tl.where(k >= shift, tile, later), (k + shift) % steps, 1)
    is_there = is_inside(t0 - skew + shift + k, own_cols) & (lane * height + r < rows_left)
    tl.store((base + t0) + ((lane * height + r) * tl.cast(stride, tl.int32) + (k - skew + shift)), piece, mask=is_there)


@triton.jit
def from_lane(start, is_there, numbers):
    """Stores consecutive numbers of each lane, from a multiple of 16 bytes on."""
    k = tl.arange(0, 4)[None, :]
    for first in tl.static_range(0, len(numbers), 4):
        at = tl.max_contiguous(tl.multiple_of((start + first)[:, None] + k, [1, 16]), [1, 4])
        even = tl.join(numbers[first], numbers[first + 2])
        odd = tl.join(numbers[first + 1], numbers[first + 3])
        tile = tl.reshape(tl.join(even, odd), [even.shape[0], 4])
        tl.store(at, tile, mask=tl.broadcast_to(is_there[:, None], at.shape))


@triton.jit
def above_loaded(kept_rows, kept_units, at, t0, own_cols, place, has_above, none, steps: tl.constexpr):
    """What the row above a warp's rows has left for its first lane in these steps: states, and the units of blocks.

    In a register each, step by step in the lanes. Also of tangents, with origins. at: where the row begins, in blocks;
    t0: the column; both of each warp. none: the unit of what is not there.
    """
    is_there = has_above & (t0 >= 0) & (place < steps) & (t0 + place < (own_cols + BLOCK - 1) // BLOCK * BLOCK)
    states = tl.load(kept_rows + (at * BLOCK + t0) + place, mask=is_there, other=0.0)
    units = tl.load(kept_units + (at + t0 // BLOCK) + place // BLOCK, mask=is_there, other=none)
    return states, units


@triton.jit
def border_above(kind: tl.constexpr, t0, border, above, units, warp, place, group: tl.constexpr, real: tl.constexpr):
    """Of the first strip of a global alignment: as above_loaded, in place of what the first warp was given."""
    m, exponent = outside(kind, False, (t0 + place + 1).to(real), border)
    e = in_group(exponent, place // BLOCK * BLOCK, group)
    m *= tl.exp2(exponent - e)
    if m.shape[0] > group:
        m, e = tl.where(warp == 0, m, above), tl.where(warp == 0, e, units)
    return m, e


@triton.jit
def begun(kind: tl.constexpr, g, border, row, real: tl.constexpr, height: tl.constexpr):
    """The states left of each lane's rows, at their upper corner, and their unit."""
    zero = (row * 0).to(real)
    if kind == LOCAL_ANY or kind == LOCAL_MATCH:
        return repeated(zero, height), zero, zero + NOTHING
    else:
        corner, unit = outside(kind, False, row.to(real), border)
        m = corner
        left = ()
        for _r in tl.static_range(height):
            m *= g
            left = left + (m,)
        return left, corner, unit


@triton.jit
def forward_unit(local: tl.constexpr, left, corner, unit, above, above_unit, place, group: tl.constexpr):
    """A block's unit, and what a lane holds in it: states to the left, at the corner; and the factor of those above.

    Last what all that was multiplied by.
    """
    first = of_lane_above(left[len(left) - 1], above, place, group)
    first_unit = of_lane_above(unit, above_unit, place, group)
    now = tl.maximum(unit + exponent_of(highest(left)), first_unit + exponent_of(first))
    if local:
        now = tl.maximum(now, 0.0)
    change = tl.exp2(unit - now)
    from_above = of_lane_above(now, above_unit, place, group)
    return times(left, change), corner * change, now, tl.exp2(from_above - now), change


@triton.jit
def moved_origin(odds, tangent, origin):
    """An origin at which a state's tangent is 0, and how far it is from the one before."""
    there = origin + tl.where(odds >= LEAST_STATE, tangent / odds, 0.0)
    return there, there - origin


@triton.jit
def moved(tangents, odds, by):
    """A tuple of tangents relative to an origin that has moved."""
    own = ()
    for k in tl.static_range(len(odds)):
        own = own + (tl.fma(0.0 - by, odds[k], tangents[k]),)
    return own


@triton.jit
def forward_origin(t_left, t_corner, left, corner, change, origin, above_origin, place, group: tl.constexpr):
    """The tangents that a lane holds in a block, its origin, and how far that of the lane above is from it.

    left, corner: the states, in the block's unit; change: what they were multiplied by.
    """
    t_left, t_corner = times(t_left, change), t_corner * change
    origin, away = moved_origin(left[len(left) - 1], t_left[len(left) - 1], origin)
    apart = of_lane_above(origin, above_origin, place, group) - origin
    return moved(t_left, left, away), tl.fma(0.0 - away, corner, t_corner), origin, apart


@triton.jit
def state_of(local: tl.constexpr, g, w, diagonal, start, left, up, col):
    """A cell's state, and what its match's odds w are multiplied by. Lanes that have not begun stay at the border."""
    before = diagonal + start if local else diagonal
    v = tl.fma(g, up, tl.fma(g, left, w * before))
    if not local:
        v = tl.where(col < 0, left, v)
    return v, before


@triton.jit
def tangent_of(local: tl.constexpr, g, w, t_match, before, t_diagonal, t_start, t_left, t_up, col):
    """The tangent of a cell's state, and of what its match's odds are multiplied by. t_match: of the match's logarithm.

    before: as state_of gives it.
    """
    t_before = t_diagonal + t_start if local else t_diagonal
    t_v = tl.fma(g, t_up, tl.fma(g, t_left, w * tl.fma(t_match, before, t_before)))
    if not local:
        t_v = tl.where(col < 0, t_left, t_v)
    return t_v, t_before
