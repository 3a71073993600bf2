"""The backward kernel in plain odds, in Triton: the probabilities of matches, or their tangents.

A chunk is computed again from what the forward kernel has left of it, and then walked back through in registers. B of a
cell are the odds of all ways on from it, so that a match's probability is the share of its odds times B in the total.
"""

import triton
import triton.language as tl

from shared.kernels.triton.cells import LOCAL_ANY, LOCAL_MATCH, highest
from shared.kernels.triton.gradients import clear_outside, store_values
from shared.kernels.triton.odds import (
    BLOCK,
    LEAST_STATE,
    NO_MATCH,
    above_loaded,
    active_warps,
    border_above,
    chunk_at,
    chunk_to,
    exponent_of,
    forward_origin,
    forward_unit,
    from_lane,
    joined_columns,
    moved,
    moved_origin,
    of_lane_above,
    of_lane_below,
    of_step,
    repeated,
    state_of,
    tangent_of,
    times,
    warp_and_place,
)
from shared.kernels.triton.pairs import NOTHING, constants, outside, size_of
from shared.kernels.triton.tiles import columns_of, is_inside


@triton.jit
def kept_loaded(kept, at, lane, lanes: tl.constexpr, height: tl.constexpr):
    """What the forward kernel has left of a chunk: states to the left, at the corner, and their unit. at: in lanes."""
    own = kept + at * lanes + lane
    left = ()
    for r in tl.static_range(height):
        left = left + (tl.load(own + r * lanes),)
    return left, tl.load(own + height * lanes), tl.load(own + (height + 1) * lanes)


@triton.jit
def product(w, d, t_d, t_w, b, t_b):
    """The tangent of w d b. t_w: of the logarithm of w."""
    return tl.fma(w * tl.fma(d, t_w, t_d), b, (w * d) * t_b)


@triton.jit
def below_loaded(
    below, below_units, at, t0, own_cols, place, has_below, none, group: tl.constexpr, steps: tl.constexpr
):
    """What the row below a warp's rows has sent to its last lane in these steps, and the units of blocks.

    In a register each, step by step in the lanes. Also of tangents, with origins. at: where the row begins, in blocks;
    t0: the column; both of each warp. none: the unit of what is not there.
    """
    # a record has the columns from one after a block's first to the next block's first
    col = t0 - group + place
    block = t0 // BLOCK - group // BLOCK + place // BLOCK + 1
    is_there = has_below & (place < steps) & (block >= 0) & (block <= (own_cols + BLOCK - 1) // BLOCK)
    sent = tl.load(below + (at * BLOCK + col + BLOCK), mask=is_there, other=0.0)
    return sent, tl.load(below_units + (at + block), mask=is_there, other=none)


@triton.jit(
    do_not_specialize=["pairs", "rows", "cols", "pair_stride", "row_stride", "t_pair_stride", "t_row_stride"],
    do_not_specialize_on_alignment=[
        "similarity",
        "t_similarity",
        "lengths",
        "values",
        "odds_totals",
        "flags",
        "kept_rows",
        "kept_units",
        "kept",
        "odds_below",
        "below_units",
        "d_similarity",
        "d_values",
    ],
)
def odds_backward_kernel(
    similarity,
    t_similarity,
    lengths,
    values,
    odds_totals,
    flags,
    kept_rows,
    kept_units,
    kept,
    odds_below,
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
    has_lengths: tl.constexpr,
    tangents: tl.constexpr,
    lanes: tl.constexpr,
    group: tl.constexpr,
    delay: tl.constexpr,
    height: tl.constexpr,
    steps: tl.constexpr,
):
    local: tl.constexpr = kind == LOCAL_ANY or kind == LOCAL_MATCH
    blocks: tl.constexpr = steps // BLOCK
    flows: tl.constexpr = 2 if tangents else 1
    numbers: tl.constexpr = flows * (height + 2)
    real: tl.constexpr = similarity.dtype.element_ty
    pair = tl.program_id(0).to(tl.int64)
    costs, match, border, _valid, _parameters = constants(kind, False, False, False, values, values, pair, real)
    length, width = rows, cols
    if has_lengths:
        length, width = tl.load(lengths + pair * 2), tl.load(lengths + pair * 2 + 1)
    all_rows, all_cols = size_of(has_lengths, length, width, pair, rows, cols)
    given_up = tl.load(flags + pair) != 0
    own_rows, own_cols = tl.where(given_up, 0, all_rows), tl.where(given_up, 0, all_cols)
    g = costs[0][0] * tl.exp2(costs[1][0])
    bits, inverse_t = match[0], match[2]
    own_totals = odds_totals + pair * (2 * flows)
    best, inverse = tl.load(own_totals), tl.load(own_totals + 1)
    if tangents:
        t_whole = tl.load(own_totals + 2).to(tl.float64) + tl.load(own_totals + 3)

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
    of_sent = (pair * warps + warp) * flows * (all_blocks + 1)
    of_below = (pair * warps + (warp + 1) % warps) * flows * (all_blocks + 1)
    of_t_sent, of_t_below = of_sent + all_blocks + 1, of_below + all_blocks + 1

    zero = tl.zeros([lanes], real)
    lowest = zero + 1
    bad = tl.zeros([lanes], tl.int1)
    strips = (own_rows + strip_rows - 1) // strip_rows
    for back_strip in range(0, strips):
        strip = strips - 1 - back_strip
        first_row = strip * strip_rows
        row = first_row + lane * height
        of_above = ((pair * all_strips + strip) * warps + (warp - 1)) * flows * all_blocks
        has_above = (first_row > 0) | (warp > 0)
        of_kept = (pair * all_strips + strip) * all_chunks * numbers
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
        next_tiles = chunk_at(
            strip_base, row_stride, t0, rows_left, own_cols, NO_MATCH, lanes, group, delay, height, steps
        )
        next_above, next_units = above_loaded(
            kept_rows, kept_units, of_above, t0 - behind, own_cols, place, has_above, NOTHING, steps
        )
        next_kept = kept_loaded(kept, of_kept + (chunks - 1) * numbers, lane, lanes, height)
        next_below, next_below_units = below_loaded(
            odds_below, below_units, of_below, t0 - behind, own_cols, place, has_below, NOTHING, group, steps
        )
        if tangents:
            strip_t_base = t_base + (pair * 0 + first_row) * t_row_stride
            next_t_tiles = chunk_at(
                strip_t_base, t_row_stride, t0, rows_left, own_cols, 0.0, lanes, group, delay, height, steps
            )
            next_t_above, next_origins = above_loaded(
                kept_rows, kept_units, of_above + all_blocks, t0 - behind, own_cols, place, has_above, 0.0, steps
            )
            next_t_kept = kept_loaded(kept, of_kept + (chunks - 1) * numbers + height + 2, lane, lanes, height)
            next_t_below, next_t_below_origins = below_loaded(
                odds_below, below_units, of_t_below, t0 - behind, own_cols, place, has_below, 0.0, group, steps
            )
        # B of the cells to the right, and times their matches' odds, in units
        right, right_match, unit = repeated(zero, height), repeated(zero, height), zero + NOTHING
        sent = zero
        if tangents:
            t_right, t_right_match, t_sent, origin = repeated(zero, height), repeated(zero, height), zero, zero
        out_stride, out_rows = cols, rows_left
        later = repeated(tl.zeros([lanes, steps], real), height)
        for back_chunk in range(0, chunks):
            chunk = chunks - 1 - back_chunk
            t0 = chunk * steps
            # loaded before these are moved through shared memory, which takes a while: memory takes longer
            tiles = next_tiles
            above, above_units = next_above, next_units
            left, corner, down_unit = next_kept
            from_below, below_unit = next_below, next_below_units
            # before the first chunk there are no rows; what is not known before the loop is not kept in registers
            is_first = chunk == 0
            next_count, next_stride = tl.where(is_first, 0, rows_left), tl.where(is_first, 0, row_stride)
            next_tiles = chunk_at(
                strip_base,
                next_stride,
                t0 - steps,
                next_count,
                own_cols,
                NO_MATCH,
                lanes,
                group,
                delay,
                height,
                steps,
            )
            has_above = (tl.where(is_first, 0, first_row) > 0) | (warp > 0)
            next_above, next_units = above_loaded(
                kept_rows, kept_units, of_above, t0 - steps - behind, own_cols, place, has_above, NOTHING, steps
            )
            of_next = of_kept + tl.maximum(chunk - 1, 0) * numbers
            next_kept = kept_loaded(kept, of_next, lane, lanes, height)
            next_below, next_below_units = below_loaded(
                odds_below,
                below_units,
                of_below,
                t0 - steps - behind,
                own_cols,
                place,
                has_below,
                NOTHING,
                group,
                steps,
            )
            if tangents:
                t_tiles = next_t_tiles
                t_above, origins = next_t_above, next_origins
                t_left, t_corner, down_origin = next_t_kept
                t_from_below, below_origins = next_t_below, next_t_below_origins
                next_stride = tl.where(is_first, 0, t_row_stride)
                next_t_tiles = chunk_at(
                    strip_t_base,
                    next_stride,
                    t0 - steps,
                    next_count,
                    own_cols,
                    0.0,
                    lanes,
                    group,
                    delay,
                    height,
                    steps,
                )
                next_t_above, next_origins = above_loaded(
                    kept_rows,
                    kept_units,
                    of_above + all_blocks,
                    t0 - steps - behind,
                    own_cols,
                    place,
                    has_above,
                    0.0,
                    steps,
                )
                next_t_kept = kept_loaded(kept, of_next + height + 2, lane, lanes, height)
                next_t_below, next_t_below_origins = below_loaded(
                    odds_below,
                    below_units,
                    of_t_below,
                    t0 - steps - behind,
                    own_cols,
                    place,
                    has_below,
                    0.0,
                    group,
                    steps,
                )
            given = columns_of(tiles, lanes, steps)
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
                left, corner, down_unit, factor, change = forward_unit(
                    local,
                    left,
                    corner,
                    down_unit,
                    of_step(above, b * BLOCK, group),
                    of_step(above_units, b * BLOCK, group),
                    place,
                    group,
                )
                down_units = down_units + (down_unit,)
                start = tl.exp2(0.0 - down_unit)
                if tangents:
                    t_left, t_corner, down_origin, apart = forward_origin(
                        t_left,
                        t_corner,
                        left,
                        corner,
                        change,
                        down_origin,
                        of_step(origins, b * BLOCK, group),
                        place,
                        group,
                    )
                    t_start = start * (0.0 - down_origin)
                    down_origins = down_origins + (down_origin,)
                for k in tl.static_range(b * BLOCK, b * BLOCK + BLOCK):
                    up = of_lane_above(left[height - 1], of_step(above, k, group), place, group) * factor
                    diagonal, corner = corner, up
                    fresh, of_column, of_before = (), (), ()
                    if tangents:
                        t_sent_down = of_lane_above(t_left[height - 1], of_step(t_above, k, group), place, group)
                        t_up = tl.fma(apart, up, t_sent_down * factor)
                        t_diagonal, t_corner = t_corner, t_up
                        t_fresh, t_of_column, t_of_before = (), (), ()
                    for r in tl.static_range(height):
                        w = tl.exp2(given[r][k] * bits)
                        d = diagonal if r == 0 else left[r - 1]
                        v, with_start = state_of(local, g, w, d, start, left[r], up, t0 - skew + k)
                        fresh, of_column = fresh + (v,), of_column + (w,)
                        of_before = of_before + (d if kind == LOCAL_MATCH else with_start,)
                        if tangents:
                            t_match = t_given[r][k] * inverse_t
                            t_d = t_diagonal if r == 0 else t_left[r - 1]
                            t_v, t_with_start = tangent_of(
                                local, g, w, t_match, with_start, t_d, t_start, t_left[r], t_up, t0 - skew + k
                            )
                            t_fresh, t_of_column = t_fresh + (t_v,), t_of_column + (t_match,)
                            t_of_before = t_of_before + (t_d if kind == LOCAL_MATCH else t_with_start,)
                            t_up = t_v
                        up = v
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
                first = of_lane_below(sent, of_step(from_below, b * BLOCK + BLOCK - 1, group), place, group)
                first_unit = of_lane_below(unit, last_unit, place, group)
                now = unit + exponent_of(tl.maximum(highest(right), highest(right_match)))
                now = tl.maximum(now, first_unit + exponent_of(first))
                if local:
                    now = tl.maximum(now, 0.0)
                else:
                    # from the last column on it is all gaps
                    is_edge = is_inside(own_cols - 1 - (t0 + b * BLOCK - skew), lane * 0 + BLOCK) & (row < own_rows)
                    _m, e = outside(kind, False, tl.maximum(own_rows - row - height, 0).to(real), border)
                    now = tl.where(is_edge, tl.maximum(now, e), now)
                change = tl.exp2(unit - now)
                right, right_match, sent = times(right, change), times(right_match, change), sent * change
                unit = now
                if tangents:
                    t_right, t_right_match = times(t_right, change), times(t_right_match, change)
                    origin, away = moved_origin(right[0], t_right[0], origin)
                    t_right, t_right_match = moved(t_right, right, away), moved(t_right_match, right_match, away)
                    t_sent = tl.fma(0.0 - away, sent, t_sent * change)
                    last_origin = of_step(below_origins, b * BLOCK, group)
                    apart = of_lane_below(origin, last_origin, place, group) - origin
                factor = tl.exp2(of_lane_below(unit, last_unit, place, group) - unit)
                end_odds = tl.exp2(0.0 - unit)
                power = down_units[b] + unit - best
                half = tl.floor(power * 0.5)
                scale, b_scale = tl.exp2(half), tl.exp2(power - half) * inverse
                start = tl.exp2(0.0 - down_units[b])
                least = zero + 1
                to_send = (sent,)
                if tangents:
                    both = down_origins[b].to(tl.float64) + origin
                    less = (both - t_whole).to(real)  # what is left of large numbers may be small
                    t_end, t_start = end_odds * (0.0 - origin), start * (0.0 - down_origins[b])
                    t_to_send = (t_sent,)
                for k in tl.static_range(b * BLOCK + BLOCK - 1, b * BLOCK - 1, -1):
                    x = of_lane_below(sent, of_step(from_below, k, group), place, group) * factor
                    fresh, fresh_match, of_column = (), (), ()
                    if tangents:
                        t_x = of_lane_below(t_sent, of_step(t_from_below, k, group), place, group)
                        t_x = tl.fma(apart, x, t_x * factor)
                        t_fresh, t_fresh_match = (), ()
                    for r in tl.static_range(height - 1, -1, -1):
                        is_cell = is_inside(t0 - skew + k, widths[r])
                        w = matches[k][r]
                        here = tl.fma(g, right[r], x)
                        if tangents:
                            t_here = tl.fma(g, t_right[r], t_x)
                        if kind == LOCAL_ANY:
                            here += end_odds
                            if tangents:
                                t_here += t_end
                        elif kind != LOCAL_MATCH:
                            is_last = (row + r == own_rows - 1) & (t0 - skew + k == own_cols - 1)
                            here += tl.where(is_last, end_odds, 0.0)
                            if tangents:
                                t_here += tl.where(is_last, t_end, 0.0)
                        # 0 from the end of the row on; before its first cell what that has, which is looked at below
                        here = tl.where(is_cell, here, right[r])
                        if tangents:
                            t_here = tl.where(is_cell, t_here, t_right[r])
                        # a match that an alignment may end on counts its end as well
                        with_end = here + end_odds if kind == LOCAL_MATCH else here
                        onward, d = w * with_end, before[k][r]
                        if tangents:
                            t_with_end = t_here + t_end if kind == LOCAL_MATCH else t_here
                            t_match, t_d = t_matches[k][r], t_before[k][r]
                            t_onward, t_away = w * tl.fma(t_match, with_end, t_with_end), t_match + less
                            own = product(w * scale, d, t_d, t_away, with_end * b_scale, t_with_end * b_scale)
                            if kind == LOCAL_MATCH:
                                own += product(w * scale, start, t_start, t_away, here * b_scale, t_here * b_scale)
                        elif kind == LOCAL_MATCH:
                            own = (w * scale) * tl.fma(d, with_end * b_scale, start * (here * b_scale))
                        else:
                            own = ((w * d) * scale) * (here * b_scale)
                        least = tl.minimum(least, tl.where(is_cell, with_end, 1.0))
                        of_column = (own,) + of_column
                        x = tl.fma(g, here, right_match[r])
                        fresh, fresh_match = (here,) + fresh, (onward,) + fresh_match
                        if tangents:
                            t_x = tl.fma(g, t_here, t_right_match[r])
                            t_fresh, t_fresh_match = (t_here,) + t_fresh, (t_onward,) + t_fresh_match
                    right, right_match, sent = fresh, fresh_match, x
                    made = (of_column,) + made
                    to_send = (sent,) + to_send
                    if tangents:
                        t_right, t_right_match, t_sent = t_fresh, t_fresh_match, t_x
                        t_to_send = (t_sent,) + t_to_send
                lowest = tl.where((unit > 0) if local else (unit > NOTHING), tl.minimum(lowest, least), lowest)
                bad = bad | ~(highest(right) < float("inf"))
                if tangents:
                    for r in tl.static_range(height):
                        bad = bad | ~(tl.abs(t_right[r]) < float("inf"))
                at = t0 - behind + b * BLOCK
                is_sent = (place == 0) & (at < own_cols)
                if warps > 1:  # one that has gone beyond the first column
                    is_sent = is_sent & (at >= 0 - BLOCK)
                from_lane(odds_below + ((of_sent + 1) * BLOCK + at) + lane * 0, is_sent, to_send[1:])
                tl.store(below_units + (of_sent + 1 + at // BLOCK) + lane * 0, unit, mask=is_sent)
                if tangents:
                    from_lane(odds_below + ((of_t_sent + 1) * BLOCK + at) + lane * 0, is_sent, t_to_send[1:])
                    tl.store(below_units + (of_t_sent + 1 + at // BLOCK) + lane * 0, origin, mask=is_sent)
            written = ()
            for r in tl.static_range(height):
                of_row = ()
                for k in tl.static_range(steps):
                    of_row = of_row + (made[k][r],)
                tile = joined_columns(of_row)
                chunk_to(
                    strip_out, out_stride, t0, out_rows, own_cols, tile, later[r], lanes, group, delay, height, r, steps
                )
                written = written + (tile,)
            later = written
            out_stride, out_rows = tl.where(is_first, 0, cols), next_count
            if warps > 1:
                # the warp above reads what this one's first lane has left
                tl.debug_barrier()
        tl.store(odds_below + (of_sent * BLOCK + BLOCK - 1) + lane * 0, sent, mask=lane == 0)
        tl.store(below_units + of_sent + lane * 0, unit, mask=lane == 0)
        if tangents:
            tl.store(odds_below + (of_t_sent * BLOCK + BLOCK - 1) + lane * 0, t_sent, mask=lane == 0)
            tl.store(below_units + of_t_sent + lane * 0, origin, mask=lane == 0)
        # the last lane reads what the first one has left
        tl.debug_barrier()

    bad = bad | (lowest < LEAST_STATE)
    if tl.max(bad.to(tl.int32), 0) > 0:
        tl.store(flags + pair, 1)
    none = (pair * 0).to(real)
    store_values(kind, d_values, pair, none, none, none, none, pair >= 0, real)
    clear_outside(out, out_row, rows, cols, all_rows, all_cols, lanes, 8, real)
