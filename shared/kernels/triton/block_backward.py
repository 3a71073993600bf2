"""The backward kernel with block exponents, in Triton: the probabilities of matches, or their tangents.

A chunk is computed again from what the forward kernel has left of it, and then walked back through in registers. B of a
cell is the weight of all ways on from it; a match's probability is the share of its weight times B in the total.
"""

import triton
import triton.language as tl

from shared.kernels.triton.block_exponent import (
    BLOCK,
    LEAST_CHANGE,
    LEVEL,
    MOST_OF_TANGENTS,
    ROUNDING_OF_ORIGIN,
    above_loaded,
    active_warps,
    bits_of_gaps,
    border_above,
    chunk_at,
    chunk_to,
    exponent_of,
    forward_origin,
    forward_unit,
    from_lane,
    gap_weights,
    joined_columns,
    least_factor,
    least_state,
    moved,
    moved_origin,
    of_lane_below,
    of_lanes_above,
    of_lanes_below,
    of_step,
    repeated,
    state_of,
    tangent_of,
    times,
    warp_and_place,
    way_on,
)
from shared.kernels.triton.cells import AFFINE, GLOBAL, LOCAL_ANY, highest, slice_of, summed
from shared.kernels.triton.gradients import clear_outside, store_values
from shared.kernels.triton.pairs import NOTHING, constants, outside, size_of
from shared.kernels.triton.tiles import columns_of, in_step, is_inside


@triton.jit
def kept_loaded(kept, at, lane, lanes: tl.constexpr, states: tl.constexpr, height: tl.constexpr):
    """Load what the forward kernel kept of a chunk, in the form of `begun`. at: in lanes."""
    first_kept = kept + at * lanes + lane
    numbers = ()
    for n in tl.static_range(states * (height + 1) + 1):
        numbers = numbers + (tl.load(first_kept + n * lanes),)
    left: tl.constexpr = states * height
    # the weights of the last row are the same to the right and downwards
    down = (numbers[left - states],) + numbers[left : left + states - 1]
    return numbers[:left], down, numbers[left + states - 1], numbers[left + states]


@triton.jit
def passed_up(kind: tl.constexpr, costs, up, right_match):
    """The values a lane passes to the one above: the ways on from a match there, and with affine gaps from a gap."""
    if kind == AFFINE:
        return right_match, up
    else:
        return (tl.fma(costs[0], up, right_match),)


@triton.jit
def product(w, d, t_d, t_w, b, t_b):
    """The tangent of w d b. t_w: of the logarithm of w."""
    return tl.fma(w * tl.fma(d, t_w, t_d), b, (w * d) * t_b)


@triton.jit
def largest_in(matrix, stride, rows, cols, lanes: tl.constexpr):
    """The largest absolute value of a matrix that this program has stored."""
    largest = tl.zeros([lanes], matrix.dtype.element_ty)
    lane = tl.arange(0, lanes)
    tl.debug_barrier()
    for row in range(0, rows):
        for first in range(0, cols, lanes):
            values = tl.load(matrix + row * stride + first + lane, mask=first + lane < cols, other=0.0)
            largest = tl.maximum(largest, tl.abs(values))
    return tl.max(largest, 0)


@triton.jit
def below_loaded(all_sent, at, t0, own_cols, has_below, none, states: tl.constexpr, tiling: tl.constexpr):
    """Load what the row below a warp's rows sent to its last lane in these steps, in the form of above_loaded."""
    rows, units, blocks = all_sent
    group: tl.constexpr = tiling[1]
    warp, place = warp_and_place(tl.arange(0, tiling[0]), group)
    t = t0 - warp * tiling[2]
    # a record has the columns from one after a block's first to the next block's first
    col = t - group + place
    block = t // BLOCK - group // BLOCK + place // BLOCK + 1
    is_there = has_below & (place < tiling[4]) & (block >= 0) & (block <= (own_cols + BLOCK - 1) // BLOCK)
    sent = ()
    for n in tl.static_range(states):
        sent = sent + (tl.load(rows + ((at + n * blocks) * BLOCK + col + BLOCK), mask=is_there, other=0.0),)
    return sent, tl.load(units + (at + block), mask=is_there, other=none)


@triton.jit(
    do_not_specialize=["pairs", "rows", "cols", "pair_stride", "row_stride", "t_pair_stride", "t_row_stride"],
    do_not_specialize_on_alignment=[
        "similarity",
        "t_similarity",
        "lengths",
        "values",
        "block_totals",
        "flags",
        "kept_rows",
        "kept_units",
        "kept",
        "block_below",
        "below_units",
        "d_similarity",
        "d_values",
    ],
)
def block_backward_kernel(
    similarity,
    t_similarity,
    lengths,
    values,
    block_totals,
    flags,
    kept_rows,
    kept_units,
    kept,
    block_below,
    below_units,
    d_similarity,
    d_values,
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
    lanes: tl.constexpr,
    group: tl.constexpr,
    delay: tl.constexpr,
    height: tl.constexpr,
    steps: tl.constexpr,
):
    local: tl.constexpr = kind < GLOBAL
    ends_on_match: tl.constexpr = local and kind != LOCAL_ANY
    blocks: tl.constexpr = steps // BLOCK
    # as in the forward kernel
    states: tl.constexpr = 2 if kind == AFFINE else 1
    flows: tl.constexpr = 2 * states if tangents else states
    numbers: tl.constexpr = states * (height + 1) + 1
    all_numbers: tl.constexpr = 2 * numbers if tangents else numbers
    real: tl.constexpr = similarity.dtype.element_ty
    pair = tl.program_id(0).to(tl.int64)
    costs, match, border, _valid, _parameters = constants(kind, penalize_turns, 0, values, values, pair, real)
    length, width = rows, cols
    if has_lengths:
        length, width = tl.load(lengths + pair * 2), tl.load(lengths + pair * 2 + 1)
    all_rows, all_cols = size_of(has_lengths, length, width, pair, rows, cols)
    given_up = tl.load(flags + pair) != 0
    own_rows, own_cols = tl.where(given_up, 0, all_rows), tl.where(given_up, 0, all_cols)
    weights = gap_weights(costs)
    bits, inverse_t = match[0], match[2]
    own_totals = block_totals + pair * (4 if tangents else 2)
    best, inverse = tl.load(own_totals), tl.load(own_totals + 1)
    if tangents:
        t_whole = tl.load(own_totals + 2).to(tl.float64) + tl.load(own_totals + 3)

    tiling: tl.constexpr = (lanes, group, delay, height, steps)
    problem: tl.constexpr = (kind, restrict_turns)
    strip_rows: tl.constexpr = lanes * height
    span: tl.constexpr = group + (lanes // group - 1) * delay
    warps: tl.constexpr = lanes // group
    lane = tl.arange(0, lanes)
    warp, place = warp_and_place(lane, group)
    behind = warp * delay
    skew = behind + place
    base = similarity + pair * pair_stride
    t_base = t_similarity + pair * t_pair_stride
    all_blocks = (cols + BLOCK - 1) // BLOCK
    all_strips = (rows + strip_rows - 1) // strip_rows
    all_chunks = (cols + span + steps - 1) // steps
    out_row = pair * 0 + cols
    out = d_similarity + out_row * rows * pair
    # what each warp sends up, and where what it is sent comes from
    sent_blocks = all_blocks + 1
    of_sent = (pair * warps + warp) * flows * sent_blocks
    of_below = (pair * warps + (warp + 1) % warps) * flows * sent_blocks
    all_kept, all_sent = (kept_rows, kept_units, all_blocks), (block_below, below_units, sent_blocks)
    of_t_sent, of_t_below = of_sent + states * sent_blocks, of_below + states * sent_blocks

    zero = tl.zeros([lanes], real)
    lowest, seen = zero + 1, zero
    if tangents:
        farthest = zero  # of an origin from 0
    bad = tl.zeros([lanes], tl.int1)
    strips = (own_rows + strip_rows - 1) // strip_rows
    for back_strip in range(0, strips):
        strip = strips - 1 - back_strip
        first_row = strip * strip_rows
        row = first_row + lane * height
        of_above = ((pair * all_strips + strip) * warps + (warp - 1)) * flows * all_blocks
        has_above = (first_row > 0) | (warp > 0)
        of_kept = (pair * all_strips + strip) * all_chunks * all_numbers
        rows_left = own_rows - first_row
        active = active_warps(rows_left, lanes, group, height)
        has_below = (back_strip > 0) | (warp + 1 < active)
        chunks = (own_cols + (group + (active - 1) * delay) + steps - 1) // steps
        widths = ()
        for r in tl.static_range(height):
            widths = widths + (tl.where(row + r < own_rows, own_cols, 0),)
        strip_base = base + (pair * 0 + first_row) * row_stride
        strip_out = out + out_row * first_row
        t0 = (chunks - 1) * steps
        next_tiles = chunk_at(strip_base, row_stride, t0, rows_left, own_cols, tiling)
        next_above, next_units = above_loaded(all_kept, of_above, t0, own_cols, has_above, NOTHING, states, tiling)
        next_kept = kept_loaded(kept, of_kept + (chunks - 1) * all_numbers, lane, lanes, states, height)
        next_below, next_below_units = below_loaded(
            all_sent, of_below, t0, own_cols, has_below, NOTHING, states, tiling
        )
        if tangents:
            strip_t_base = t_base + (pair * 0 + first_row) * t_row_stride
            next_t_tiles = chunk_at(strip_t_base, t_row_stride, t0, rows_left, own_cols, tiling)
            next_t_above, next_origins = above_loaded(
                all_kept, of_above + states * all_blocks, t0, own_cols, has_above, 0.0, states, tiling
            )
            next_t_kept = kept_loaded(kept, of_kept + (chunks - 1) * all_numbers + numbers, lane, lanes, states, height)
            next_t_below, next_t_below_origins = below_loaded(
                all_sent, of_t_below, t0, own_cols, has_below, 0.0, states, tiling
            )
        # what the cells to the right pass on of the ways on from them, and those with their matches, in units
        right, right_match = repeated(zero, height), repeated(zero, height)
        unit = zero if local else zero + NOTHING
        sent = repeated(zero, states)  # and what a lane passes on to the one above
        if tangents:
            t_right, t_right_match, t_sent, origin = right, right_match, sent, zero
        out_stride, out_rows = cols, rows_left
        later = repeated(tl.zeros([lanes, steps], real), height)
        for back_chunk in range(0, chunks):
            chunk = chunks - 1 - back_chunk
            t0 = chunk * steps
            # loaded before these are moved through shared memory, which takes a while: memory takes longer
            tiles = next_tiles
            above, above_units = next_above, next_units
            left, down, corner, down_unit = next_kept
            from_below, below_unit = next_below, next_below_units
            # before the first chunk there are no rows; what is not known before the loop is not kept in registers
            is_first = chunk == 0
            next_count, next_stride = tl.where(is_first, 0, rows_left), tl.where(is_first, 0, row_stride)
            next_tiles = chunk_at(strip_base, next_stride, t0 - steps, next_count, own_cols, tiling)
            has_above = (tl.where(is_first, 0, first_row) > 0) | (warp > 0)
            next_above, next_units = above_loaded(
                all_kept, of_above, t0 - steps, own_cols, has_above, NOTHING, states, tiling
            )
            of_next = of_kept + tl.maximum(chunk - 1, 0) * all_numbers
            next_kept = kept_loaded(kept, of_next, lane, lanes, states, height)
            next_below, next_below_units = below_loaded(
                all_sent, of_below, t0 - steps, own_cols, has_below, NOTHING, states, tiling
            )
            if tangents:
                t_tiles = next_t_tiles
                t_above, origins = next_t_above, next_origins
                t_left, t_down, t_corner, down_origin = next_t_kept
                t_from_below, below_origins = next_t_below, next_t_below_origins
                next_stride = tl.where(is_first, 0, t_row_stride)
                next_t_tiles = chunk_at(strip_t_base, next_stride, t0 - steps, next_count, own_cols, tiling)
                next_t_above, next_origins = above_loaded(
                    all_kept, of_above + states * all_blocks, t0 - steps, own_cols, has_above, 0.0, states, tiling
                )
                next_t_kept = kept_loaded(kept, of_next + numbers, lane, lanes, states, height)
                next_t_below, next_t_below_origins = below_loaded(
                    all_sent, of_t_below, t0 - steps, own_cols, has_below, 0.0, states, tiling
                )
            input_columns = columns_of(tiles, lanes, steps)
            if tangents:
                t_given = columns_of(t_tiles, lanes, steps)
            if not local:
                if first_row == 0:
                    above, above_units = border_above(kind, t0, border, above, above_units, warp, place, group, real)

            # forwards, as the forward kernel went
            matches, before, down_units = (), (), ()
            if tangents:
                t_matches, t_before, down_origins = (), (), ()
            for b in tl.static_range(blocks):
                left, down, corner, down_unit, factor, change, _least = forward_unit(
                    local, left, down, corner, down_unit, above, above_units, b * BLOCK, place, group, height
                )
                down_units = down_units + (down_unit,)
                start = tl.exp2(0.0 - down_unit)
                if tangents:
                    t_left, t_down, t_corner, down_origin, apart = forward_origin(
                        t_left,
                        t_down,
                        t_corner,
                        left,
                        down,
                        corner,
                        change,
                        down_origin,
                        origins,
                        b * BLOCK,
                        place,
                        group,
                    )
                    t_start = start * (0.0 - down_origin)
                    down_origins = down_origins + (down_origin,)
                    farthest = tl.maximum(farthest, tl.abs(down_origin))
                for k in tl.static_range(b * BLOCK, b * BLOCK + BLOCK):
                    down = times(of_lanes_above(down, above, k, place, group), factor)
                    diagonal, corner = corner, down[0]
                    fresh, of_column, of_before = (), (), ()
                    if tangents:
                        t_down = times(of_lanes_above(t_down, t_above, k, place, group), factor)
                        t_down = moved(t_down, down, apart)
                        t_diagonal, t_corner = t_corner, t_down[0]
                        t_fresh, t_of_column, t_of_before = (), (), ()
                    for r in tl.static_range(height):
                        col = t0 - skew + k
                        is_cell = is_inside(col, widths[r])
                        w = tl.exp2(tl.where(is_cell, input_columns[r][k] * bits, float("-inf")))
                        d = diagonal if r == 0 else left[(r - 1) * states]
                        to_right, down, with_start = state_of(
                            problem, weights, w, d, start, slice_of(left, r, states), down, col
                        )
                        fresh, of_column = fresh + to_right, of_column + (w,)
                        of_before = of_before + (d if ends_on_match else with_start,)
                        if tangents:
                            t_match = tl.where(is_cell, t_given[r][k] * inverse_t, 0.0)
                            t_d = t_diagonal if r == 0 else t_left[(r - 1) * states]
                            t_to_right, t_down, t_with_start = tangent_of(
                                problem,
                                weights,
                                w,
                                t_match,
                                with_start,
                                t_d,
                                t_start,
                                slice_of(t_left, r, states),
                                t_down,
                                col,
                            )
                            t_fresh, t_of_column = t_fresh + t_to_right, t_of_column + (t_match,)
                            t_of_before = t_of_before + (t_d if ends_on_match else t_with_start,)
                    if not local:
                        corner = tl.where(t0 - skew + k < 0, diagonal, corner)
                    left = fresh
                    matches, before = matches + (of_column,), before + (of_before,)
                    if tangents:
                        if not local:
                            t_corner = tl.where(t0 - skew + k < 0, t_diagonal, t_corner)
                        t_left = t_fresh
                        t_matches, t_before = t_matches + (t_of_column,), t_before + (t_of_before,)

            # backwards
            made = ()
            for b in tl.static_range(blocks - 1, -1, -1):
                last_unit = of_step(below_unit, b * BLOCK, group)
                first = highest(of_lanes_below(sent, from_below, b * BLOCK + BLOCK - 1, place, group))
                first_unit = of_lane_below(unit, last_unit, place, group)
                carried = tl.maximum(highest(right), highest(right_match))
                now = unit + exponent_of(carried)
                now = tl.maximum(now, first_unit + exponent_of(first)) - LEVEL * height
                if local:
                    now = tl.maximum(now, 0.0)
                else:
                    # from the last column on it is all gaps
                    is_edge = is_inside(own_cols - 1 - (t0 + b * BLOCK - skew), lane * 0 + BLOCK) & (row < own_rows)
                    _m, e = outside(kind, False, tl.maximum(own_rows - row - height, 0).to(real), border)
                    now = tl.where(is_edge, tl.maximum(now, e), now)
                change = tl.exp2(unit - now)
                least_of_block = change if local else tl.where(carried > 0, change, 1.0)
                right, right_match, sent = times(right, change), times(right_match, change), times(sent, change)
                unit = now
                if tangents:
                    t_right, t_right_match = times(t_right, change), times(t_right_match, change)
                    origin, away = moved_origin(right[0], t_right[0], origin)
                    farthest = tl.maximum(farthest, tl.abs(origin))
                    t_right, t_right_match = moved(t_right, right, away), moved(t_right_match, right_match, away)
                    t_sent = moved(times(t_sent, change), sent, away)
                    last_origin = of_step(below_origins, b * BLOCK, group)
                    apart = of_lane_below(origin, last_origin, place, group) - origin
                unit_below = of_lane_below(unit, last_unit, place, group)
                factor = tl.exp2(unit_below - unit)
                bad = bad | (least_factor(least_of_block, factor, unit_below) < LEAST_CHANGE)
                end_weight = tl.exp2(0.0 - unit)
                power = down_units[b] + unit - best
                half = tl.floor(power * 0.5)
                scale, b_scale = tl.exp2(half), tl.exp2(power - half) * inverse
                start = tl.exp2(0.0 - down_units[b])
                least = zero + 1
                to_send = (sent,)
                if tangents:
                    both = down_origins[b].to(tl.float64) + origin
                    less = (both - t_whole).to(real)  # what is left of large numbers may be small
                    t_end, t_start = end_weight * (0.0 - origin), start * (0.0 - down_origins[b])
                    t_to_send = (t_sent,)
                for k in tl.static_range(b * BLOCK + BLOCK - 1, b * BLOCK - 1, -1):
                    below = times(of_lanes_below(sent, from_below, k, place, group), factor)
                    fresh, fresh_match, of_column = (), (), ()
                    if tangents:
                        t_below = times(of_lanes_below(t_sent, t_from_below, k, place, group), factor)
                        t_below = moved(t_below, below, apart)
                        t_fresh, t_fresh_match = (), ()
                    for r in tl.static_range(height - 1, -1, -1):
                        is_cell = is_inside(t0 - skew + k, widths[r])
                        w = matches[k][r]
                        here, along, up = way_on(problem, weights, right[r], below)
                        if tangents:
                            t_here, t_along, t_up = way_on(problem, weights, t_right[r], t_below)
                        if kind == LOCAL_ANY:
                            here += end_weight
                            if tangents:
                                t_here += t_end
                        elif not local:
                            is_last = (row + r == own_rows - 1) & (t0 - skew + k == own_cols - 1)
                            here += tl.where(is_last, end_weight, 0.0)
                            if tangents:
                                t_here += tl.where(is_last, t_end, 0.0)
                        # 0 from the end of the row on; before its first cell what that has, which is looked at below
                        here = tl.where(is_cell, here, right[r])
                        if tangents:
                            t_here = tl.where(is_cell, t_here, t_right[r])
                        if kind == AFFINE:
                            along, up = tl.where(is_cell, along, right[r]), tl.where(is_cell, up, 0.0)
                            if tangents:
                                t_along, t_up = tl.where(is_cell, t_along, t_right[r]), tl.where(is_cell, t_up, 0.0)
                        else:
                            along, up = here, here
                            if tangents:
                                t_along, t_up = t_here, t_here
                        # a match that an alignment may end on counts its end as well
                        with_end = here + end_weight if ends_on_match else here
                        onward, d = w * with_end, before[k][r]
                        if tangents:
                            t_with_end = t_here + t_end if ends_on_match else t_here
                            t_match, t_d = t_matches[k][r], t_before[k][r]
                            t_onward, t_away = w * tl.fma(t_match, with_end, t_with_end), t_match + less
                            of_cell = product(w * scale, d, t_d, t_away, with_end * b_scale, t_with_end * b_scale)
                            if ends_on_match:
                                of_cell += product(w * scale, start, t_start, t_away, here * b_scale, t_here * b_scale)
                        elif ends_on_match:
                            of_cell = (w * scale) * tl.fma(d, with_end * b_scale, start * (here * b_scale))
                        else:
                            of_cell = ((w * d) * scale) * (here * b_scale)
                        if kind == AFFINE:  # its ways on may be infinite where those of a gap along the row are not
                            seen += of_cell
                        least = tl.minimum(least, tl.where(is_cell, with_end, 1.0))
                        of_column = (of_cell,) + of_column
                        below = passed_up(kind, weights, up, right_match[r])
                        fresh, fresh_match = (along,) + fresh, (onward,) + fresh_match
                        if tangents:
                            t_below = passed_up(kind, weights, t_up, t_right_match[r])
                            t_fresh, t_fresh_match = (t_along,) + t_fresh, (t_onward,) + t_fresh_match
                    right, right_match, sent = fresh, fresh_match, below
                    made = (of_column,) + made
                    to_send = (sent,) + to_send
                    if tangents:
                        t_right, t_right_match, t_sent = t_fresh, t_fresh_match, t_below
                        t_to_send = (t_sent,) + t_to_send
                lowest = tl.where((unit > 0) if local else (unit > NOTHING), tl.minimum(lowest, least), lowest)
                at = t0 - behind + b * BLOCK
                is_sent = (place == 0) & (at < own_cols)
                if warps > 1:  # one that has gone beyond the first column
                    is_sent = is_sent & (at >= 0 - BLOCK)
                for n in tl.static_range(states):
                    of_number = block_below + ((of_sent + n * sent_blocks + 1) * BLOCK + at)
                    from_lane(of_number + lane * 0, is_sent, in_step(to_send[1:], n))
                tl.store(below_units + (of_sent + 1 + at // BLOCK) + lane * 0, unit, mask=is_sent)
                if tangents:
                    for n in tl.static_range(states):
                        of_number = block_below + ((of_t_sent + n * sent_blocks + 1) * BLOCK + at)
                        from_lane(of_number + lane * 0, is_sent, in_step(t_to_send[1:], n))
                    tl.store(below_units + (of_t_sent + 1 + at // BLOCK) + lane * 0, origin, mask=is_sent)
            written = ()
            for r in tl.static_range(height):
                tile = joined_columns(in_step(made, r))
                chunk_to(strip_out, out_stride, t0, out_rows, own_cols, tile, later[r], r, tiling)
                written = written + (tile,)
            later = written
            out_stride, out_rows = tl.where(is_first, 0, cols), next_count
            if warps > 1:
                # the warp above reads what this one's first lane has left
                tl.debug_barrier()
        # what is infinite or no number has stayed so to the first column
        bad = bad | ~(summed(right) < float("inf"))
        if tangents:
            for r in tl.static_range(height):
                bad = bad | ~(tl.abs(t_right[r]) < float("inf"))
        for n in tl.static_range(states):
            of_number = block_below + ((of_sent + n * sent_blocks) * BLOCK + BLOCK - 1)
            tl.store(of_number + lane * 0, sent[n], mask=lane == 0)
        tl.store(below_units + of_sent + lane * 0, unit, mask=lane == 0)
        if tangents:
            for n in tl.static_range(states):
                of_number = block_below + ((of_t_sent + n * sent_blocks) * BLOCK + BLOCK - 1)
                tl.store(of_number + lane * 0, t_sent[n], mask=lane == 0)
            tl.store(below_units + of_t_sent + lane * 0, origin, mask=lane == 0)
        # the last lane reads what the first one has left
        tl.debug_barrier()

    opened, extended = bits_of_gaps(costs)
    least = least_state(tl.maximum(opened, extended), tl.abs(opened - extended))
    bad = bad | (lowest < least) | ~(tl.abs(seen) < float("inf"))
    is_bad = tl.max(bad.to(tl.int32), 0) > 0
    if tangents:
        error = (tl.max(farthest, 0) - tl.abs(t_whole.to(real))) * (ROUNDING_OF_ORIGIN / MOST_OF_TANGENTS)
        seen_rows = tl.where(is_bad | (error <= inverse_t), 0, own_rows)
        largest = tl.maximum(inverse_t, largest_in(out, out_row, seen_rows, own_cols, lanes))
        is_bad = is_bad | (error > largest)
    if is_bad:
        tl.store(flags + pair, 1)
    none = (pair * 0).to(real)
    store_values(kind, d_values, pair, (none, none), none, none, pair >= 0, real)
    clear_outside(out, out_row, rows, cols, all_rows, all_cols, lanes, 8, real)
