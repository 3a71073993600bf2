"""The forward kernel, in Triton: scores and, on request, the states of all cells."""

import triton
import triton.language as tl

from shared.kernels.triton.cells import (
    AFFINE,
    GLOBAL,
    GLOBAL_AFFINE,
    LOCAL_MATCH,
    all_choices,
    at_highest,
    dot,
    from_best,
    highest,
    less,
    normalized,
    scaled,
    shares,
    smooth_maximum,
    summed,
)
from shared.kernels.triton.gaps import costs_in, gap_rows, gaps_alone
from shared.kernels.triton.pairs import (
    FORBIDDEN,
    LN_2,
    MOST,
    NOTHING,
    constants,
    ends_of,
    match_of,
    outside,
    signed,
    size_of,
)
from shared.kernels.triton.tiles import (
    chosen,
    columns_of,
    in_step,
    is_inside,
    numbers,
    plane,
    shifted,
    tile_of,
    tiles_at,
)

# One machine code for all shapes and addresses, and the same in both frameworks: nothing is gained by knowing more of
# them, because a lane's row begins anywhere.
NUMBERS = ["pairs", "rows", "cols", "pair_stride", "row_stride", "t_pair_stride", "t_row_stride"]
INPUTS = ["similarity", "t_similarity", "lengths", "values", "t_values"]
GAPS = ["gap_open", "gap_extend", "t_gap_open", "t_gap_extend"]


@triton.jit(
    do_not_specialize=NUMBERS,
    do_not_specialize_on_alignment=[*INPUTS, "scores", "totals", "first_plane", "planes", *GAPS, "flags"],
)
def forward_kernel(
    similarity,
    t_similarity,
    lengths,
    values,
    t_values,
    scores,
    totals,
    first_plane,
    planes,
    pairs: tl.int32,
    rows: tl.int32,
    cols: tl.int32,
    pair_stride: tl.int64,
    row_stride: tl.int64,
    t_pair_stride: tl.int64,
    t_row_stride: tl.int64,
    gap_open,
    gap_extend,
    t_gap_open,
    t_gap_extend,
    flags,
    kind: tl.constexpr,
    restrict_turns: tl.constexpr,
    penalize_turns: tl.constexpr,
    form: tl.constexpr,
    has_lengths: tl.constexpr,
    tangents: tl.constexpr,
    keep: tl.constexpr,
    lanes: tl.constexpr,
    steps: tl.constexpr,
):
    """Scores, or, with tangents, theirs. keep: all states are kept in the planes, (pairs, rows, cols), and totals
    (pairs, 5) is what the ends are shares of. Without, the planes have the states of one row: (pairs, cols). Of the
    matrices of gaps by position those that are not needed are None. flags: None, or (pairs,), of which those that are 0
    are passed over."""
    real: tl.constexpr = similarity.dtype.element_ty
    states: tl.constexpr = 3 if kind == AFFINE or kind == GLOBAL_AFFINE else 1
    count: tl.constexpr = 3 * states if tangents else 2 * states
    # of the last lane's row alone, three states' tiles cost more than one number after the other
    by_tiles: tl.constexpr = keep or states == 1
    open_by_position: tl.constexpr = gap_open is not None
    extend_by_position: tl.constexpr = gap_extend is not None
    gap_tangents: tl.constexpr = t_gap_open is not None or t_gap_extend is not None
    # among what is given in matrices, the first gap by position; and how many matrices each of them has
    first_gap: tl.constexpr = 2 if tangents else 1
    numbers_each: tl.constexpr = 2 if gap_tangents else 1
    pair = tl.program_id(0).to(tl.int64)
    costs, match, gap, valid, parameters = constants(kind, penalize_turns, form, values, t_values, pair, real)
    # loaded here: PyTorch's compiler assumes that a function writes to a pointer that it is passed if its result
    # becomes part of an address
    length, width = rows, cols
    if has_lengths:
        length, width = tl.load(lengths + pair * 2), tl.load(lengths + pair * 2 + 1)
    own_rows, own_cols = size_of(has_lengths, length, width, pair, rows, cols)
    is_empty = (own_rows == 0) | (own_cols == 0)
    full_rows = own_rows
    own_rows = tl.where(is_empty, 0, own_rows)
    is_asked = pair >= 0
    if flags is not None:
        is_asked = tl.load(flags + pair) != 0
        own_rows = tl.where(is_asked, own_rows, 0)

    lane = tl.arange(0, lanes)
    lane_above = tl.maximum(lane - 1, 0)
    s_base = similarity + pair * pair_stride
    t_base = t_similarity + pair * t_pair_stride
    kept_rows = rows if keep else 1
    row_size = pair * 0 + cols
    plane_size = row_size * kept_rows * pairs
    plane_base = row_size * kept_rows * pair

    # weights of 0 cannot be represented
    ones = tl.full([lanes], 1, real)
    top = tl.full([lanes], NOTHING, real)
    total = tl.zeros([lanes], real)
    # The ends' tangents are added up relative to that of one which is worth most: an error of the total's would be in
    # the tangents of all marginals.
    t_total, total_origin = tl.zeros([lanes], real), tl.zeros([lanes], real)
    bad = tl.zeros([lanes], tl.int1)
    for first_row in range(0, own_rows, lanes):
        row = first_row + lane
        is_row = row < own_rows
        # rows outside the matrix have no cells
        widths = tl.where(is_row, own_cols, 0)
        first_end, end_widths = ends_of(kind, row, widths, own_rows)
        last_widths = tl.where(lane == lanes - 1, widths, 0)
        given_rows = (s_base + (row.to(tl.int64) * row_stride - lane),)
        if tangents:
            given_rows = given_rows + (t_base + (row.to(tl.int64) * t_row_stride - lane),)
        in_matrix = row_size * rows * pair + row_size * row - lane
        given_rows = given_rows + gap_rows(gap_open, t_gap_open, gap_extend, t_gap_extend, in_matrix)
        # of one row the last lane's address, for all lanes: one number
        address = plane_base + row_size * row - lane if keep else plane_base - (lanes - 1) + 0 * lane
        above = plane_base + row_size * (first_row - 1) if keep else plane_base
        before = outside(kind, tangents, (row + 1).to(real), gap, form, 1)
        last = before
        diagonal = outside(kind, tangents, row.to(real), gap, form, 1)
        in_all = own_cols + tl.minimum(own_rows - first_row, lanes) - 1
        next_tiles = tiles_at(given_rows, 0, -lane, widths, ones, steps)
        for t0 in range(0, in_all, steps):
            given_columns = columns_of(next_tiles, lanes, steps)
            next_tiles = tiles_at(given_rows, t0 + steps, t0 - lane + steps, widths, ones, steps)
            above_cols = t0 + tl.arange(0, steps)
            border = outside(kind, tangents, (above_cols + 1).to(real), gap, form, 0)
            is_above = (first_row > 0) & (above_cols < own_cols)
            rows_above = ()
            for n in tl.static_range(count):
                row_above = plane(first_plane, planes, n, plane_size) + above + t0
                from_above = tl.load(row_above + tl.arange(0, steps), mask=is_above, other=border[n])
                rows_above = rows_above + (numbers(from_above, steps),)
            made, ends_m, ends_e, ends_x, ends_rest = (), (), (), (), ()
            for k in tl.static_range(steps):
                col = t0 - lane + k
                up = chosen(lane == 0, in_step(rows_above, k), shifted(last, lane_above))
                input_columns = in_step(given_columns, k)
                s = signed(kind, input_columns[0])
                # outside the cells 1 is given
                bad = bad | ~(s < float("inf"))
                for n in tl.static_range(first_gap, len(input_columns), numbers_each):
                    bad = bad | (input_columns[n] != input_columns[n])
                of_match = match_of(s, signed(kind, input_columns[first_gap - 1]), match, tangents)
                costs_here = costs_in(
                    open_by_position,
                    extend_by_position,
                    penalize_turns,
                    form,
                    tangents,
                    gap_tangents,
                    costs,
                    input_columns[first_gap:],
                    match,
                    (row == own_rows - 1, col == own_cols - 1),
                )
                m, e, x = all_choices(kind, restrict_turns, tangents, states, of_match, diagonal, last, up, costs_here)
                if kind == AFFINE:
                    # Without the start: what it outweighs beyond the range of a float may still be the whole score.
                    # With it the state is of two choices.
                    end_m, end_e = smooth_maximum(m[0][:3], e[0][:3])
                    end_x, match_x = end_m, end_m
                    if tangents:
                        weights = shares(m[0][:3], e[0][:3])
                        away, end_x = from_best(weights, x[0][:3])
                        weighted = dot(weights, away)
                        match_x = end_x + weighted
                    m = ((end_m, m[0][3]), m[1], m[2])
                    e = ((end_e, e[0][3]), e[1], e[2])
                    x = ((match_x, x[0][3]), x[1], x[2])
                new_m, new_e, new_x = (), (), ()
                for n in tl.static_range(states):
                    state_m, state_e = smooth_maximum(m[n], e[n])
                    # A fraction grows 16 times at most in a step. The last two steps of a tile keep it in bounds: a
                    # diagonal leaves out one.
                    if k >= steps - 2:
                        state_m, state_e = normalized(state_m, state_e)
                    new_m, new_e = new_m + (state_m,), new_e + (state_e,)
                    if tangents:
                        new_x = new_x + (dot(shares(m[n], e[n]), x[n]),)
                ends = is_inside(t0 - lane - first_end + k, end_widths)
                if kind == LOCAL_MATCH:
                    end_m, end_e, end_x = m[0][0], e[0][0], x[0][0]
                elif kind == GLOBAL_AFFINE:
                    end_m, end_e = smooth_maximum(new_m, new_e)
                    end_x = end_m
                    if tangents:
                        weights = shares(new_m, new_e)
                        away, end_x = from_best(weights, new_x)
                        t_total = tl.where(ends, dot(weights, away), t_total)
                elif kind != AFFINE:
                    end_m, end_e, end_x = new_m[0], new_e[0], new_m[0]
                    if tangents:
                        end_x = new_x[0]
                if kind >= GLOBAL:
                    top = tl.where(ends, end_e, top)
                    total = tl.where(ends, end_m, total)
                    total_origin = tl.where(ends, end_x, total_origin)
                    # lanes that have not started are outside
                    new = chosen(col >= 0, new_m + new_e + new_x, before)
                else:
                    ends_m = ends_m + (end_m,)
                    ends_e = ends_e + (tl.where(ends, end_e, NOTHING),)
                    ends_x = ends_x + (end_x,)
                    if tangents and kind == AFFINE:
                        ends_rest = ends_rest + (weighted,)
                    # outside, where only the exponent counts, as long as the other numbers are no NaN
                    new = new_m + chosen(is_inside(col, widths), new_e, before[states : 2 * states]) + new_x
                diagonal = up
                last = new
                made = made + (new,)
                if not by_tiles:
                    to_keep = is_inside(col, last_widths)
                    for n in tl.static_range(count):
                        to = plane(first_plane, planes, n, plane_size) + address + t0
                        tl.store(to + k, new[n], mask=to_keep)
            if kind < GLOBAL:
                higher = tl.maximum(top, highest(ends_e))
                shrink, weights = tl.exp2(top - higher), scaled(ends_m, ends_e, higher)
                before_it = total
                total = total * shrink + summed(weights)
                if tangents:
                    origin = at_highest(ends_e, ends_x, top, total_origin)
                    t_total = tl.fma(total_origin - origin, before_it, t_total) * shrink
                    t_total += dot(weights, less(ends_x, origin))
                    if kind == AFFINE:
                        t_total += dot(weights, ends_rest)
                    total_origin = origin
                top = higher
            if by_tiles:
                kept_widths = widths if keep else last_widths
                is_kept = is_inside((t0 - lane)[:, None] + tl.arange(0, steps)[None, :], kept_widths[:, None])
                for n in tl.static_range(count):
                    to = (plane(first_plane, planes, n, plane_size) + address)[:, None] + tl.arange(0, steps)[None, :]
                    tl.store(to + t0, tile_of(in_step(made, n), lanes, steps), mask=is_kept)
        # the next strip reads what this one has written
        tl.debug_barrier()

    if kind == GLOBAL_AFFINE:  # so that it is the same with any number of steps
        total, top = normalized(total, top)
        t_total *= total
    highest_top = tl.max(top, 0)
    scales = tl.exp2(top - highest_top)
    own_total = total * scales
    whole = tl.sum(own_total, 0)
    t_whole = tl.sum(total_origin.to(tl.float64) * own_total + t_total * scales, 0)
    # an alignment with a forbidden match scores less than any without
    exists = (highest_top > -MOST / 2) & ~is_empty
    is_bad = tl.max(bad.to(tl.int32), 0) > 0
    gaps, t_gaps, temperature, t_temperature = parameters
    worth = (highest_top.to(tl.float64) + tl.log2(whole.to(tl.float64))) * LN_2
    exists = exists & (temperature * worth > FORBIDDEN)  # nor is one that needs a forbidden gap an alignment
    tangent = t_whole / tl.sum(own_total.to(tl.float64), 0)
    if tangents:
        score = temperature * tangent + t_temperature * worth
    else:
        score = temperature * worth
    if kind >= GLOBAL:  # without a cell it is all gaps
        score = tl.where(exists, score, 0.0 if tangents else float("-inf"))
        _along, _down, alone = gaps_alone(kind, form, full_rows, own_cols, gaps, tl.float64)
        is_gaps = is_empty & (alone > FORBIDDEN)
        if tangents:
            _along, _down, alone = gaps_alone(kind, form, full_rows, own_cols, t_gaps, tl.float64)
        score = tl.where(is_gaps, alone, score)
        score = signed(kind, score)
    else:
        score = tl.where(exists, score, 0.0)
    ok = valid & ~is_bad
    tl.store(scores + pair, tl.where(ok, score, float("nan")).to(real), mask=is_asked)
    if keep:
        # where nothing ends, every share of the ends becomes 0
        own_totals = totals + pair * 5
        tl.store(own_totals, tl.where(exists, highest_top, -NOTHING), mask=is_asked)
        tl.store(own_totals + 1, tl.where(exists, 1 / whole, 1.0), mask=is_asked)
        tl.store(own_totals + 2, tl.where(ok, 0.0, float("nan")).to(real), mask=is_asked)
        if tangents:
            tangent = tl.where(exists, tangent, 0.0)
            high = tangent.to(real)
            tl.store(own_totals + 3, high, mask=is_asked)
            tl.store(own_totals + 4, (tangent - high.to(tl.float64)).to(real), mask=is_asked)
