"""The forward kernel with block exponents, in Triton: scores or their tangents and, on request, what each chunk of the
way back begins with."""

import triton
import triton.language as tl

from shared.kernels.triton.block_exponent import (
    BLOCK,
    LARGEST_COST,
    LARGEST_MATCH,
    LARGEST_OFFSET,
    LARGEST_RISE,
    LARGEST_TANGENT,
    LARGEST_TOTAL,
    LEAST_CHANGE,
    LEAST_TOTAL,
    SPARE,
    above_loaded,
    active_warps,
    begun,
    bits_of_gaps,
    border_above,
    chunk_at,
    exponent_of,
    forward_origin,
    forward_unit,
    from_lane,
    gap_weights,
    is_too_steep,
    least_state,
    moved,
    of_lanes_above,
    state_of,
    tangent_of,
    times,
    warp_and_place,
)
from shared.kernels.triton.cells import AFFINE, GLOBAL, LOCAL_ANY, slice_of
from shared.kernels.triton.pairs import LN_2, NOTHING, constants, size_of
from shared.kernels.triton.tiles import columns_of, in_step, is_inside


@triton.jit
def keep_numbers(to, numbers, lanes: tl.constexpr):
    """Stores what a chunk begins with, the lanes' numbers side by side."""
    for n in tl.static_range(len(numbers)):
        tl.store(to + n * lanes, numbers[n])


@triton.jit
def is_beyond(highest_match, lowest, largest_gap, difference):
    """Whether a match's bits or a state's weight is more or less than may be."""
    least = least_state(tl.maximum(highest_match, largest_gap), difference)
    return ~(highest_match <= LARGEST_MATCH) | (lowest < least)


@triton.jit(
    do_not_specialize=["pairs", "rows", "cols", "pair_stride", "row_stride", "t_pair_stride", "t_row_stride"],
    do_not_specialize_on_alignment=[
        "similarity",
        "t_similarity",
        "lengths",
        "values",
        "scores",
        "block_totals",
        "flags",
        "kept_rows",
        "kept_units",
        "kept",
    ],
)
def block_forward_kernel(
    similarity,
    t_similarity,
    lengths,
    values,
    scores,
    block_totals,
    flags,
    kept_rows,
    kept_units,
    kept,
    pairs: tl.int32,
    rows: tl.int32,
    cols: tl.int32,
    pair_stride: tl.int64,
    row_stride: tl.int64,
    t_pair_stride: tl.int64,
    t_row_stride: tl.int64,
    kind: tl.constexpr,
    restrict_turns: tl.constexpr,
    penalize_turns: tl.constexpr,
    has_lengths: tl.constexpr,
    tangents: tl.constexpr,
    keep: tl.constexpr,
    lanes: tl.constexpr,
    group: tl.constexpr,
    delay: tl.constexpr,
    height: tl.constexpr,
    steps: tl.constexpr,
):
    """Scores, or with `tangents`, for which they are kept, their tangents in the direction t_similarity."""
    local: tl.constexpr = kind < GLOBAL
    blocks: tl.constexpr = steps // BLOCK
    # numbers that a cell passes on; and with their tangents
    states: tl.constexpr = 2 if kind == AFFINE else 1
    flows: tl.constexpr = 2 * states if tangents else states
    # that a chunk begins with
    numbers: tl.constexpr = states * (height + 1) + 1
    all_numbers: tl.constexpr = 2 * numbers if tangents else numbers
    real: tl.constexpr = similarity.dtype.element_ty
    pair = tl.program_id(0).to(tl.int64)
    costs, match, border, valid, parameters = constants(kind, penalize_turns, 0, values, values, pair, real)
    length, width = rows, cols
    if has_lengths:
        length, width = tl.load(lengths + pair * 2), tl.load(lengths + pair * 2 + 1)
    own_rows, own_cols = size_of(has_lengths, length, width, pair, rows, cols)
    opened, extended = bits_of_gaps(costs)
    largest_gap, difference = tl.maximum(opened, extended), tl.abs(opened - extended)
    fits = valid & (own_rows > 0) & (own_cols > 0)
    fits = fits & (tl.abs(opened) <= LARGEST_COST) & (tl.abs(extended) <= LARGEST_COST)
    longest_row: tl.constexpr = LARGEST_OFFSET // (lanes * height)
    fits = fits & (row_stride < longest_row) & (t_row_stride < longest_row) & (cols < longest_row)
    # what gaps may make of a local alignment before its next match: each has one way more, and is worth this
    rise = (largest_gap + 1) * (own_rows + own_cols).to(real)
    spared = tl.where(rise > LARGEST_RISE, -1.0, 0.0)  # the unit up to which states may be small
    own_rows, own_cols = tl.where(fits, own_rows, 0), tl.where(fits, own_cols, 0)
    weights = gap_weights(costs)
    bits, inverse_t = match[0], match[2]

    tiling: tl.constexpr = (lanes, group, delay, height, steps)
    problem: tl.constexpr = (kind, restrict_turns)
    strip_rows: tl.constexpr = lanes * height
    span: tl.constexpr = group + (lanes // group - 1) * delay  # of the lanes' columns in a step
    warps: tl.constexpr = lanes // group
    lane = tl.arange(0, lanes)
    warp, place = warp_and_place(lane, group)
    behind = warp * delay
    skew = behind + place
    base = similarity + pair * pair_stride
    t_base = t_similarity + pair * t_pair_stride
    all_blocks = (cols + BLOCK - 1) // BLOCK
    all_strips = (rows + strip_rows - 1) // strip_rows if keep else 1
    all_chunks = (cols + span + steps - 1) // steps
    all_kept = (kept_rows, kept_units, all_blocks)

    zero = tl.zeros([lanes], real)
    # the highest unit so far, of global alignments that of the end; and the ends in it
    top, total = zero if local else zero + NOTHING, zero
    lowest, highest_match, least_change = zero + 1, zero, zero + 1
    if tangents:
        t_total, total_origin = zero, zero
    for first_row in range(0, own_rows, strip_rows):
        strip = first_row // strip_rows if keep else 0
        row = first_row + lane * height
        # of each warp; what is not kept is written over by the next strip
        of_first = (pair * all_strips + strip) * warps
        of_strip = (of_first + warp) * flows * all_blocks
        before_it = warp - 1 if keep else (warp + (warps - 1)) % warps
        of_above = (of_first + before_it) * flows * all_blocks
        has_above = (first_row > 0) | (warp > 0)
        widths = ()
        for r in tl.static_range(height):
            widths = widths + (tl.where(row + r < own_rows, own_cols, 0),)
        left, down, corner, unit = begun(kind, weights[0], border, row, real, height)
        strip_base = base + (pair * 0 + first_row) * row_stride
        rows_left = own_rows - first_row
        next_tiles = chunk_at(strip_base, row_stride, 0, rows_left, own_cols, tiling)
        next_above, next_units = above_loaded(all_kept, of_above, 0, own_cols, has_above, NOTHING, states, tiling)
        if tangents:
            t_left, t_down, t_corner, origin = times(left, zero), times(down, zero), zero, zero
            strip_t_base = t_base + (pair * 0 + first_row) * t_row_stride
            next_t_tiles = chunk_at(strip_t_base, t_row_stride, 0, rows_left, own_cols, tiling)
            next_t_above, next_origins = above_loaded(
                all_kept, of_above + states * all_blocks, 0, own_cols, has_above, 0.0, states, tiling
            )
        # a pair that is flagged already is not gone through
        has_failed = tl.max(is_beyond(highest_match, lowest, largest_gap, difference).to(tl.int32), 0) > 0
        # of the warps that have rows
        all_steps = own_cols + (group + (active_warps(rows_left, lanes, group, height) - 1) * delay)
        chunks = tl.where(has_failed, 0, (all_steps + steps - 1) // steps)
        for chunk in range(0, chunks):
            t0 = chunk * steps
            input_columns = columns_of(next_tiles, lanes, steps)
            above, above_units = next_above, next_units
            # after the last chunk there are no rows; what is not known before the loop is not kept in registers
            is_last = chunk + 1 == chunks
            next_left, next_stride = tl.where(is_last, 0, rows_left), tl.where(is_last, 0, row_stride)
            next_tiles = chunk_at(strip_base, next_stride, t0 + steps, next_left, own_cols, tiling)
            next_above, next_units = above_loaded(
                all_kept, of_above, t0 + steps, own_cols, has_above, NOTHING, states, tiling
            )
            if tangents:
                t_given = columns_of(next_t_tiles, lanes, steps)
                t_above, origins = next_t_above, next_origins
                next_stride = tl.where(is_last, 0, t_row_stride)
                next_t_tiles = chunk_at(strip_t_base, next_stride, t0 + steps, next_left, own_cols, tiling)
                next_t_above, next_origins = above_loaded(
                    all_kept, of_above + states * all_blocks, t0 + steps, own_cols, has_above, 0.0, states, tiling
                )
            if not local:
                if first_row == 0:
                    above, above_units = border_above(kind, t0, border, above, above_units, warp, place, group, real)
            if keep:
                first_kept = kept + ((pair * all_strips + strip) * all_chunks + chunk) * (all_numbers * lanes) + lane
                keep_numbers(first_kept, left + down[1:] + (corner, unit), lanes)
                if tangents:
                    keep_numbers(first_kept + numbers * lanes, t_left + t_down[1:] + (t_corner, origin), lanes)
            for b in tl.static_range(blocks):
                left, down, corner, unit, factor, change, least_of_block = forward_unit(
                    local, left, down, corner, unit, above, above_units, b * BLOCK, place, group, height
                )
                least_change = tl.minimum(least_change, least_of_block)
                start = tl.exp2(0.0 - unit)
                of_block = zero
                least = zero + 1
                to_keep = (down,)
                if tangents:
                    t_left, t_down, t_corner, origin, apart = forward_origin(
                        t_left, t_down, t_corner, left, down, corner, change, origin, origins, b * BLOCK, place, group
                    )
                    t_start = start * (0.0 - origin)
                    t_of_block = zero
                    t_to_keep = (t_down,)
                for k in tl.static_range(b * BLOCK, b * BLOCK + BLOCK):
                    down = times(of_lanes_above(down, above, k, place, group), factor)
                    diagonal, corner = corner, down[0]
                    fresh = ()
                    if tangents:
                        t_down = times(of_lanes_above(t_down, t_above, k, place, group), factor)
                        t_down = moved(t_down, down, apart)
                        t_diagonal, t_corner = t_corner, t_down[0]
                        t_fresh = ()
                    for r in tl.static_range(height):
                        is_cell = is_inside(t0 - skew + k, widths[r])
                        of_match = tl.where(is_cell, input_columns[r][k] * bits, float("-inf"))
                        highest_match = tl.maximum(highest_match, of_match)
                        w = tl.exp2(of_match)
                        d = diagonal if r == 0 else left[(r - 1) * states]
                        col = t0 - skew + k
                        right, down, before = state_of(
                            problem, weights, w, d, start, slice_of(left, r, states), down, col
                        )
                        v = right[0]
                        least = tl.minimum(least, tl.where(is_cell, v, 1.0))
                        if kind == LOCAL_ANY:
                            of_block += tl.where(is_cell, v, 0.0)
                        elif local:
                            of_block += w * d
                        else:
                            is_last = (row + r == own_rows - 1) & (col == own_cols - 1)
                            of_block = tl.where(is_last, v, of_block)
                        if tangents:
                            t_match = tl.where(is_cell, t_given[r][k] * inverse_t, 0.0)
                            t_d = t_diagonal if r == 0 else t_left[(r - 1) * states]
                            t_right, t_down, _t_before = tangent_of(
                                problem,
                                weights,
                                w,
                                t_match,
                                before,
                                t_d,
                                t_start,
                                slice_of(t_left, r, states),
                                t_down,
                                col,
                            )
                            if kind == LOCAL_ANY:
                                t_of_block += tl.where(is_cell, t_right[0], 0.0)
                            elif local:
                                t_of_block += w * tl.fma(t_match, d, t_d)
                            else:
                                t_of_block = tl.where(is_last, t_right[0], t_of_block)
                            t_fresh = t_fresh + t_right
                        fresh = fresh + right
                    if not local:
                        corner = tl.where(t0 - skew + k < 0, diagonal, corner)
                    left = fresh
                    to_keep = to_keep + (down,)
                    if tangents:
                        if not local:
                            t_corner = tl.where(t0 - skew + k < 0, t_diagonal, t_corner)
                        t_left = t_fresh
                        t_to_keep = t_to_keep + (t_down,)
                if local:
                    lowest = tl.where(unit > spared, tl.minimum(lowest, least), lowest)
                else:
                    lowest = tl.minimum(lowest, least)
                if local:
                    # also without ends: it rises by 126 bits at most, so that only a part of 2^-126 is lost
                    higher = tl.maximum(top, unit)
                    shrink, of_higher = tl.exp2(top - higher), tl.exp2(unit - higher + SPARE)
                    of_block *= tl.exp2(0.0 - SPARE)
                else:
                    ends_unit = tl.where(of_block > 0, unit, NOTHING)
                    higher = tl.maximum(top, ends_unit)
                    shrink, of_higher = tl.exp2(top - higher), tl.exp2(ends_unit - higher)
                if tangents:
                    if local:
                        t_of_block *= tl.exp2(0.0 - SPARE)
                    t_total = tl.fma(total_origin - origin, total, t_total) * shrink + t_of_block * of_higher
                    total_origin = origin
                # what is infinite or no number stays so
                total = total * shrink + of_block * of_higher
                top = higher
                at = t0 - behind + (b * BLOCK - group)
                is_kept = (place == group - 1) & is_inside(at, own_cols + lane * 0)
                for n in tl.static_range(states):
                    of_number = kept_rows + ((of_strip + n * all_blocks) * BLOCK + at)
                    from_lane(of_number + lane * 0, is_kept, in_step(to_keep[:BLOCK], n))
                tl.store(kept_units + (of_strip + at // BLOCK) + lane * 0, unit, mask=is_kept)
                if tangents:
                    of_tangents = of_strip + states * all_blocks
                    for n in tl.static_range(states):
                        of_number = kept_rows + ((of_tangents + n * all_blocks) * BLOCK + at)
                        from_lane(of_number + lane * 0, is_kept, in_step(t_to_keep[:BLOCK], n))
                    tl.store(kept_units + (of_tangents + at // BLOCK) + lane * 0, origin, mask=is_kept)
            # the next warp, or after the strip the first, reads what a warp's last lane has left
            tl.debug_barrier()

    highest_top = tl.max(top, 0)
    # in two steps, because a lane's total may be as far above its unit as that is below the highest
    half = tl.floor((top - highest_top) * 0.5)
    share, rest = tl.exp2(half), tl.exp2(top - highest_top - half)
    own_total = total * share * rest
    whole = tl.sum(own_total, 0)
    bad = is_beyond(highest_match, lowest, largest_gap, difference) | (least_change < LEAST_CHANGE)
    good = fits & (tl.max(bad.to(tl.int32), 0) == 0) & (whole > 0) & (whole < LARGEST_TOTAL)
    good = good & ~is_too_steep(opened, extended, tl.max(highest_match, 0), height)
    if local:
        # no state was much larger: one with an end of its own always counts
        good = good & (tl.log2(whole) >= LEAST_TOTAL)
    if tangents:
        t_whole = tl.sum(total_origin.to(tl.float64) * own_total + t_total * share * rest, 0) / whole
        good = good & (tl.abs(t_whole) < LARGEST_TANGENT)
        score = parameters[2] * t_whole
    else:
        score = parameters[2] * ((highest_top.to(tl.float64) + tl.log2(whole.to(tl.float64))) * LN_2)
    tl.store(scores + pair, score.to(real))
    tl.store(flags + pair, tl.where(good, 0, 1))
    if keep:
        own_totals = block_totals + pair * (4 if tangents else 2)
        tl.store(own_totals, highest_top + exponent_of(whole))
        tl.store(own_totals + 1, tl.exp2(exponent_of(whole)) / whole)
        if tangents:
            high = t_whole.to(real)
            tl.store(own_totals + 2, high)
            tl.store(own_totals + 3, (t_whole - high.to(tl.float64)).to(real))
