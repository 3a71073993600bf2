"""Block exponents, in Triton: what both directions of that arithmetic have in common.

A weight is exp(value / T), so that a smooth maximum is a sum. cells.py gives each its own exponent, which is safe at
every temperature and takes most of the time. Here what a lane computes in a block of BLOCK steps are multiples of one
unit 2^e, and what is left are products and sums. Where that could lose anything, the pair is flagged, and left to the
exact kernels.

A cell passes on its weight, to the right and downwards. With affine gaps this is the sum of three states, and it also
passes on the weight of a gap that goes on there.

Tangents of weights, by the chain rule, are in the same unit and relative to an origin: what is held is the tangent less
the weight times the origin, which a lane moves to a state of its own in each block. In a long alignment the tangents of
logarithms are large, and what counts in the end are differences between them. An origin that is farther from 0 than the
total's tangent comes from a way that is improbable in the end; states of probable ones beside it lose digits. Where
that may count beside the largest tangent of a marginal, or 1 / T, a pair is flagged.

The unit is chosen so that the largest of what a block begins with is about 2^LEVEL for each row of the lane. Above it
there is room for what matches add within the block, below it for what gaps take away, there and from row to row.

What falls below 2^-126 of a unit is lost: a neighbour's state that is brought to this unit, a match, or the start. In a
cell it would have been multiplied by 2^h at most, of the lane's largest match or gap, so beside a state of at least
2^(LEAST_STATE + h) it is a part of 2^-24. Smaller states are flagged, but for those of a local alignment where the unit
is 1, which is the least that it may be: what is lost there is as little beside a fresh start, unless gaps can raise it
by more than 2^LARGEST_RISE before the next match.

A factor below 2^-126 would be 0, and a state be lost that in its block has risen far above its unit. So a pair is
flagged where a unit is more than 126 bits above that of the lane from which states come, or above the lane's last one.
What is lost from block to block then counts beside a way around by gaps, in the lane below: from the largest of what
the block begins with, over the lane's rows, one column and one turn. So these gaps, and the pair's largest match, may
not be too steep.

A lane's total, of the ends of local alignments, is in the highest unit so far, also of blocks without ends: so it
never meets such a rise. In the end it is at least 2^LEAST_TOTAL of the largest, because a start is no end where only
matches end.

What is too large becomes infinite, or NaN, and stays so to the end of the row and in the total. On the way back the
same holds of B, the weight of all ways on from a cell, and of the ends in place of the starts; but a match's weight is
multiplied in before a unit changes, so h is of gaps alone.

With affine gaps one state may be lost beside another. Whatever it goes on to, the other reaches as well, with one gap
position opened in place of extended, or the reverse (engineering-notes-native.md), so it counts at most as much more as
these differ, and the least state is so much larger.

A chunk of a few blocks is read from memory, and written, by whole rows, and goes through shared memory to the lanes:
lanes that read their own rows would each touch a line of memory of their own.
"""

import triton
import triton.language as tl
from triton import knobs

from shared.kernels.triton import programs
from shared.kernels.triton.cells import AFFINE, GLOBAL, highest
from shared.kernels.triton.pairs import NOTHING, outside
from shared.kernels.triton.tiles import is_inside

BLOCK = tl.constexpr(programs.BLOCK)
IS_INTERPRETED = tl.constexpr(knobs.runtime.interpret)  # which knows no PTX
# what a pair's numbers must keep to, in bits
LARGEST_COST = tl.constexpr(27.0)  # of a gap's weight, of either sign
LARGEST_MATCH = tl.constexpr(40.0)  # of a match's weight
LEAST_STATE = tl.constexpr(-102.0)  # of a cell's weight, in its block's unit, where nothing makes what is lost larger
LEVEL = tl.constexpr(8.0)  # of the largest of what a block begins with, for each row of a lane
LARGEST_RISE = tl.constexpr(20.0)  # of an alignment by gaps alone
LEAST_TOTAL = tl.constexpr(-40.0)  # of a local alignment's total, beside the largest unit
LARGEST_TOTAL = tl.constexpr(2.0**125)  # in its unit: its reciprocal is a normal number
LEAST_CHANGE = tl.constexpr(2.0**-126)  # of what a lane holds or is passed, from one unit to the next
SPARE = tl.constexpr(63.0)  # of the ends of a block, which may be far above its unit, and this below the total's
LEAST_WEIGHT = tl.constexpr(2.0**-102)  # that a tangent is divided by
LARGEST_TANGENT = tl.constexpr(1e30)  # of a total's logarithm
# what rounding makes of a product's tangents, of an origin; and how much of the largest tangent that may be
ROUNDING_OF_ORIGIN, MOST_OF_TANGENTS = tl.constexpr(6e-8), tl.constexpr(1e-5)
LARGEST_OFFSET = tl.constexpr(1 << 30)  # of a number in a strip: 32 bits address it


@triton.jit
def exponent_of(x):
    """floor(log2 x) of a positive float32; -127 of 0."""
    return ((x.to(tl.int32, bitcast=True) >> 23) - 127).to(tl.float32)


@triton.jit
def times(values, factor):
    """Each of a tuple of vectors times a vector."""
    products = ()
    for k in tl.static_range(len(values)):
        products = products + (values[k] * factor,)
    return products


@triton.jit
def repeated(value, count: tl.constexpr):
    copies = ()
    for _k in tl.static_range(count):
        copies = copies + (value,)
    return copies


@triton.jit
def gap_weights(costs):
    """The weight of a gap position that opens a gap, extends one, or turns: of a linear gap all the same."""
    weights = ()
    for n in tl.static_range(3):
        weights = weights + (costs[0][n] * tl.exp2(costs[1][n]),)
    return weights


@triton.jit
def bits_of_gaps(costs):
    """The bits of a gap position that opens a gap, and of one that extends it."""
    return costs[1][0] + tl.log2(costs[0][0]), costs[1][1] + tl.log2(costs[0][1])


@triton.jit
def is_too_steep(opened, extended, match, height: tl.constexpr):
    """Whether what a lane loses where a block begins may count in the lanes beside it. In bits."""
    around = 2 * tl.maximum(tl.abs(opened), tl.abs(extended)) + (height + 1) * tl.abs(extended)
    return around + tl.abs(opened - extended) + match + LEAST_STATE > LEVEL * height


@triton.jit
def least_state(largest, difference):
    """The least weight of a state beside which the loss does not count. largest: the bits of what may multiply it."""
    return tl.exp2(tl.maximum(largest, 0.0) + difference + LEAST_STATE)


@triton.jit
def warp_and_place(lane, group: tl.constexpr):
    """The warp of each lane, of `group` lanes, and the lane's place in it."""
    if lane.shape[0] == group:
        return 0, lane
    else:
        return lane // group, lane % group


@triton.jit
def skew_of(lane, group: tl.constexpr, delay: tl.constexpr):
    """The number of columns by which each lane is behind the first: a warp is `delay` behind the one above."""
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
        gathered = tl.gather(tl.reshape(values, shape), tl.reshape(places, shape), 1)
        return tl.reshape(gathered, [values.shape[0]])


@triton.jit
def of_lane_above(values, of_first, place, group: tl.constexpr):
    """The numbers of the lanes above; of_first: what a warp's first lane has instead."""
    return tl.where(place == 0, of_first, in_group(values, tl.maximum(place - 1, 0), group))


@triton.jit
def of_lane_below(values, of_last, place, group: tl.constexpr):
    """The numbers of the lanes below; of_last: what a warp's last lane has instead."""
    return tl.where(place == group - 1, of_last, in_group(values, tl.minimum(place + 1, group - 1), group))


@triton.jit
def of_lanes_above(values, of_first, k: tl.constexpr, place, group: tl.constexpr):
    """Apply of_lane_above to each value of a tuple. of_first: step by step in the lanes, of which this is the k-th."""
    moved_down = ()
    for n in tl.static_range(len(values)):
        moved_down = moved_down + (of_lane_above(values[n], of_step(of_first[n], k, group), place, group),)
    return moved_down


@triton.jit
def of_lanes_below(values, of_last, k: tl.constexpr, place, group: tl.constexpr):
    """Apply of_lane_below to each value of a tuple. of_last: as of_first there."""
    moved_up = ()
    for n in tl.static_range(len(values)):
        moved_up = moved_up + (of_lane_below(values[n], of_step(of_last[n], k, group), place, group),)
    return moved_up


@triton.jit
def of_step(values, k: tl.constexpr, group: tl.constexpr):
    """The number of the k-th lane of the warp, in all its lanes."""
    return in_group(values, values.to(tl.int32) * 0 + k, group)


@triton.jit
def chunk_at(base, stride, t0, rows_left, own_cols, tiling: tl.constexpr):
    """The columns of steps t0 to t0 + steps - 1 of each lane's rows, as tiles (lanes, steps).

    Where there is no cell they hold the nearest one's, so that no thread keeps or asks which of its numbers count.
    base: the strip's first row; rows_left: how many there are from that on, or 0. Addresses are numbers of 32 bits, and
    nothing that is known of lanes is kept, which would take most of a thread's registers.
    """
    lanes: tl.constexpr = tiling[0]
    height: tl.constexpr = tiling[3]
    steps: tl.constexpr = tiling[4]
    tiles = ()
    lane, k = tl.arange(0, lanes)[:, None], tl.arange(0, steps)[None, :]
    skew = skew_of(lane, tiling[1], tiling[2])
    away = tl.cast(stride, tl.int32)
    col = tl.minimum(tl.maximum(t0 + k - skew, 0), tl.maximum(own_cols - 1, 0))
    last_row = tl.maximum(rows_left - 1, 0)
    for r in tl.static_range(height):
        at = tl.minimum(lane * height + r, last_row) * away + col
        # Threads side by side are to load a row's numbers side by side. Beyond its ends they load the same one, which
        # does no harm: each loads its numbers one by one.
        tiles = tiles + (loaded_by_lines(base + tl.max_contiguous(at, [1, steps])),)
    return tiles


@triton.jit
def loaded_by_lines(at):
    """tl.load of float32, for which memory is read by lines of 128 bytes: Triton cannot ask for that.

    Otherwise it is read by 64 bytes, and a line's other half a chunk or more later: kernels took 1.4 times as long.
    """
    if IS_INTERPRETED:
        return tl.load(at)
    else:
        # Triton chooses by its own loads which thread loads what; PTX would go to the thread that needs the result. So
        # the PTX gets a number made of such a load: 0, which the assembler knows, and leaves nothing of the load.
        loaded = tl.load(at).to(tl.int32, bitcast=True)
        nothing = (loaded == loaded + 1).to(tl.int32)
        return tl.inline_asm_elementwise(
            "ld.global.L2::128B.b32 $0, [$1];",
            "=r,l,r",
            [at.to(tl.int64), nothing],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )


@triton.jit
def joined_halves(c):
    """Half as many tiles of twice as many columns: those of tile k alternate with those of tile k + len(c) // 2."""
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
def chunk_to(base, stride, t0, rows_left, own_cols, tile, later, r: tl.constexpr, tiling: tl.constexpr):
    """Stores tiles (lanes, steps) in pieces of rows that begin at a multiple of `steps`.

    tile: the columns of the lanes' r-th rows that chunk_at would load; later: those of the chunk after it, from which
    the end of a piece is.
    """
    lanes: tl.constexpr = tiling[0]
    height: tl.constexpr = tiling[3]
    steps: tl.constexpr = tiling[4]
    lane, k = tl.arange(0, lanes)[:, None], tl.arange(0, steps)[None, :]
    shift, skew = lane % steps, skew_of(lane, tiling[1], tiling[2])
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
def above_loaded(kept, at, t0, own_cols, has_above, none, states: tl.constexpr, tiling: tl.constexpr):
    """Load what the row above a warp's rows left for its first lane in these steps: numbers, and units of blocks.

    In a register each, step by step in the lanes. Also of tangents, with origins. kept: where the numbers and the units
    of all rows are, and how many blocks a row has; at: where the row of the first number begins, in blocks; none: the
    unit of what is not there.
    """
    rows, units, blocks = kept
    warp, place = warp_and_place(tl.arange(0, tiling[0]), tiling[1])
    t = t0 - warp * tiling[2]
    is_there = has_above & (t >= 0) & (place < tiling[4]) & (t + place < (own_cols + BLOCK - 1) // BLOCK * BLOCK)
    above = ()
    for n in tl.static_range(states):
        above = above + (tl.load(rows + ((at + n * blocks) * BLOCK + t) + place, mask=is_there, other=0.0),)
    return above, tl.load(units + (at + t // BLOCK) + place // BLOCK, mask=is_there, other=none)


@triton.jit
def border_above(kind: tl.constexpr, t0, border, above, units, warp, place, group: tl.constexpr, real: tl.constexpr):
    """The border above a global alignment's first strip, as above_loaded gives it, for the first warp."""
    m, exponent = outside(kind, False, (t0 + place + 1).to(real), border)
    e = in_group(exponent, place // BLOCK * BLOCK, group)
    m *= tl.exp2(exponent - e)
    if m.shape[0] > group:
        m, e = tl.where(warp == 0, m, above[0]), tl.where(warp == 0, e, units)
    return (m,), e


@triton.jit
def begun(kind: tl.constexpr, g, border, row, real: tl.constexpr, height: tl.constexpr):
    """The values left of each lane's rows, those that go down to the row below, the corner's, and their unit."""
    zero = (row * 0).to(real)
    if kind >= GLOBAL:
        m, unit = outside(kind, False, row.to(real), border)
        corner = m
        left = ()
        for _r in tl.static_range(height):
            m *= g
            left = left + (m,)
        return left, (m,), corner, unit
    else:
        states: tl.constexpr = 2 if kind == AFFINE else 1
        return repeated(zero, states * height), repeated(zero, states), zero, zero


@triton.jit
def least_factor(change, factor, unit):
    """The least that a lane multiplies states by where a block begins. unit: of the lane beside it, or NOTHING."""
    return tl.minimum(change, tl.where(unit > NOTHING, factor, 1.0))


@triton.jit
def forward_unit(
    local: tl.constexpr,
    left,
    down,
    corner,
    unit,
    above,
    above_unit,
    k: tl.constexpr,
    place,
    group: tl.constexpr,
    height: tl.constexpr,
):
    """A block's unit, and what a lane holds in it: on the left, downwards, and at the corner.

    Then the factor of what comes from above, and what all that was multiplied by; and the least of these. above,
    above_unit: step by step in the lanes, from the k-th on.
    """
    first = of_lane_above(down[0], of_step(above[0], k, group), place, group)
    first_unit = of_lane_above(unit, of_step(above_unit, k, group), place, group)
    now = tl.maximum(unit + exponent_of(highest(left)), first_unit + exponent_of(first)) - LEVEL * height
    if local:
        now = tl.maximum(now, 0.0)
    change = tl.exp2(unit - now)
    from_above = of_lane_above(now, of_step(above_unit, k, group), place, group)
    factor = tl.exp2(from_above - now)
    least = least_factor(change, factor, from_above)
    return times(left, change), times(down, change), corner * change, now, factor, change, least


@triton.jit
def moved_origin(weights, tangent, origin):
    """An origin at which a state's tangent is 0, and how far the one before is from it."""
    there = origin + tl.where(weights >= LEAST_WEIGHT, tangent / weights, 0.0)
    return there, origin - there


@triton.jit
def moved(tangents, weights, away):
    """A tuple of tangents relative to another origin, from which the one before is `away`."""
    moved_states = ()
    for k in tl.static_range(len(weights)):
        moved_states = moved_states + (tl.fma(away, weights[k], tangents[k]),)
    return moved_states


@triton.jit
def forward_origin(
    t_left, t_down, t_corner, left, down, corner, change, origin, above, k: tl.constexpr, place, group: tl.constexpr
):
    """The tangents that a lane holds in a block, its origin, and how far that of the lane above is from it.

    left, down, corner: the weights, in the block's unit; change: what they were multiplied by; above: as above_unit.
    """
    t_left, t_down, t_corner = times(t_left, change), times(t_down, change), t_corner * change
    origin, away = moved_origin(down[0], t_down[0], origin)
    apart = of_lane_above(origin, of_step(above, k, group), place, group) - origin
    t_left, t_down = moved(t_left, left, away), moved(t_down, down, away)
    return t_left, t_down, tl.fma(away, corner, t_corner), origin, apart


@triton.jit
def passed_on(problem: tl.constexpr, costs, matched, left, up):
    """The values that a cell passes on to the right, and downwards: its weight first.

    With affine gaps also those of a gap that goes on there. Or tangents, for which the same holds. matched: the weight
    of the match; left, up: what is passed on to the cell.
    """
    if problem[0] == AFFINE:
        opened, extended, turned = costs
        v, begun_gap = (matched + left[1]) + up[1], opened * matched
        right = tl.fma(extended, left[1], begun_gap)
        if not problem[1]:
            right = tl.fma(turned, up[1], right)
        return (v, right), (v, tl.fma(extended, up[1], tl.fma(turned, left[1], begun_gap)))
    else:
        v = tl.fma(costs[0], up[0], tl.fma(costs[0], left[0], matched))
        return (v,), (v,)


@triton.jit
def way_on(problem: tl.constexpr, costs, right, below):
    """The weight of all ways on from a cell's match, and what the cells to the left and above are passed of them.

    With affine gaps these are the ways on from a gap along the row, and from one along the column. right, below: what
    the cell is passed; below[0] also has the match of the cell below on the right.
    """
    if problem[0] == AFFINE:
        opened, extended, turned = costs
        here = tl.fma(opened, below[1], tl.fma(opened, right, below[0]))
        along = tl.fma(turned, below[1], tl.fma(extended, right, below[0]))
        down = tl.fma(extended, below[1], below[0])
        if not problem[1]:
            down = tl.fma(turned, right, down)
        return here, along, down
    else:
        here = tl.fma(costs[0], right, below[0])
        return here, here, here


@triton.jit
def state_of(problem: tl.constexpr, costs, w, diagonal, start, left, up, col):
    """The values a cell passes on, and the factor of its match's weight w. Lanes not yet begun stay at the border."""
    local: tl.constexpr = problem[0] < GLOBAL
    before = diagonal + start if local else diagonal
    right, down = passed_on(problem, costs, w * before, left, up)
    if not local:
        v = tl.where(col < 0, left[0], right[0])
        right, down = (v,), (v,)
    return right, down, before


@triton.jit
def tangent_of(problem: tl.constexpr, costs, w, t_match, before, t_diagonal, t_start, t_left, t_up, col):
    """The tangents of what state_of gives, `before` among it. t_match: of the match's logarithm."""
    local: tl.constexpr = problem[0] < GLOBAL
    t_before = t_diagonal + t_start if local else t_diagonal
    t_right, t_down = passed_on(problem, costs, w * tl.fma(t_match, before, t_before), t_left, t_up)
    if not local:
        t_v = tl.where(col < 0, t_left[0], t_right[0])
        t_right, t_down = (t_v,), (t_v,)
    return t_right, t_down, t_before
