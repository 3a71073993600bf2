"""The kernel that walks a pair's matrix forwards, in Triton: scores, and the states of all cells if they are kept."""

import triton
import triton.language as tl

from shared.cuda.cells import AFFINE, FREE_GAP, GLOBAL, LOCAL_MATCH, all_choices, dot, shares, smooth_maximum
from shared.cuda.pairs import LN_2, MOST, NOTHING, constants, match_of, may_end, outside, size_of
from shared.cuda.tiles import chosen, columns, numbers, plane, shifted, tile_at, tile_of

# One machine code for all shapes and addresses, and the same in both frameworks: nothing is gained by knowing more of
# them, because a lane's row begins anywhere.
NUMBERS = ["pairs", "rows", "cols", "pair_stride", "row_stride", "t_pair_stride", "t_row_stride"]
INPUTS = ["similarity", "t_similarity", "lengths", "values", "t_values"]


@triton.jit(
    do_not_specialize=NUMBERS,
    do_not_specialize_on_alignment=[*INPUTS, "scores", "totals", "first_plane", "planes"],
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
    kind: tl.constexpr,
    restrict_turns: tl.constexpr,
    penalize_turns: tl.constexpr,
    has_lengths: tl.constexpr,
    tangents: tl.constexpr,
    keep: tl.constexpr,
    lanes: tl.constexpr,
    steps: tl.constexpr,
):
    """Scores, or, with tangents, theirs. keep: all states are kept in the planes, (pairs, rows, cols), and totals
    (pairs, 4) is what the ends are shares of. Without, the planes have the states of one row: (pairs, cols)."""
    real: tl.constexpr = similarity.dtype.element_ty
    states: tl.constexpr = 3 if kind == AFFINE else 1
    count: tl.constexpr = 3 * states if tangents else 2 * states
    pair = tl.program_id(0).to(tl.int64)
    costs, match, gap, valid, given = constants(kind, penalize_turns, values, t_values, pair, real)
    # loaded here: of a function that is given a pointer and whose result becomes part of an address, PyTorch's compiler
    # believes that it writes there
    length, width = rows, cols
    if has_lengths:
        length, width = tl.load(lengths + pair * 2), tl.load(lengths + pair * 2 + 1)
    own_rows, own_cols = size_of(has_lengths, length, width, pair, rows, cols)
    is_empty = (own_rows == 0) | (own_cols == 0)
    full_rows = own_rows
    own_rows = tl.where(is_empty, 0, own_rows)

    lane = tl.arange(0, lanes)
    lane_above = tl.maximum(lane - 1, 0)
    s_base = similarity + pair * pair_stride
    t_base = t_similarity + pair * t_pair_stride
    kept_rows = rows if keep else 1
    row_size = pair * 0 + cols
    plane_size = row_size * kept_rows * pairs
    plane_base = row_size * kept_rows * pair

    top = tl.full([lanes], NOTHING, real)
    total = tl.zeros([lanes], real)
    t_total = tl.zeros([lanes], real)
    bad = tl.zeros([lanes], tl.int1)
    for first_row in range(0, own_rows, lanes):
        row = first_row + lane
        is_row = row < own_rows
        s_rows, t_rows = row.to(tl.int64) * row_stride, row.to(tl.int64) * t_row_stride
        kept = plane_base + row_size * row if keep else plane_base
        above = plane_base + row_size * (first_row - 1) if keep else plane_base
        before = outside(kind, tangents, (row + 1).to(real), gap)
        last = before
        diagonal = outside(kind, tangents, row.to(real), gap)
        in_all = own_cols + tl.minimum(own_rows - first_row, lanes) - 1
        next_tile = tile_at(s_base, s_rows, is_row, -lane, own_cols, steps)
        next_t_tile = next_tile
        if tangents:
            next_t_tile = tile_at(t_base, t_rows, is_row, -lane, own_cols, steps)
        for t0 in range(0, in_all, steps):
            s_columns = columns(next_tile, lanes, steps)
            t_columns = columns(next_t_tile, lanes, steps)
            next_tile = tile_at(s_base, s_rows, is_row, t0 - lane + steps, own_cols, steps)
            if tangents:
                next_t_tile = tile_at(t_base, t_rows, is_row, t0 - lane + steps, own_cols, steps)
            else:
                next_t_tile = next_tile
            above_cols = t0 + tl.arange(0, steps)
            border = outside(kind, tangents, (above_cols + 1).to(real), gap)
            rows_above = ()
            for k in tl.static_range(count):
                from_above = tl.load(
                    plane(first_plane, planes, k, plane_size) + above + above_cols,
                    mask=(first_row > 0) & (above_cols < own_cols),
                    other=1.0,
                )
                rows_above = rows_above + (numbers(tl.where(first_row > 0, from_above, border[k]), steps),)
            made = ()
            for k in tl.static_range(steps):
                col = t0 + k - lane
                is_cell = is_row & (col >= 0) & (col < own_cols)
                corner = (rows_above[0][k],)
                for n in tl.static_range(1, count):
                    corner = corner + (rows_above[n][k],)
                up = chosen(lane == 0, corner, shifted(last, lane_above))
                s_m, s_e, s_x, is_bad = match_of(s_columns[k], t_columns[k], is_cell, match, tangents)
                bad = bad | is_bad
                m, e, x = all_choices(
                    kind, restrict_turns, tangents, states, (s_m, s_e, s_x), diagonal, last, up, costs
                )
                new_m, new_e, new_x = (), (), ()
                for n in tl.static_range(states):
                    state_m, state_e = smooth_maximum(m[n], e[n])
                    new_m, new_e = new_m + (state_m,), new_e + (state_e,)
                    if tangents:
                        new_x = new_x + (dot(shares(m[n], e[n]), x[n]),)
                new = new_m + new_e + new_x
                if kind == AFFINE:
                    # what the start outweighs beyond the range of a float may still be the whole score
                    end_m, end_e = smooth_maximum(m[0][:3], e[0][:3])
                elif kind == LOCAL_MATCH:
                    end_m, end_e = m[0][0], e[0][0]
                else:
                    end_m, end_e = new_m[0], new_e[0]
                end_x = end_m
                if tangents:
                    if kind == AFFINE:
                        end_x = dot(shares(m[0][:3], e[0][:3]), x[0][:3])
                    elif kind == LOCAL_MATCH:
                        end_x = x[0][0]
                    else:
                        end_x = new_x[0]
                # lanes that have not begun stand outside
                new = chosen(col >= 0, new, before)
                ends = may_end(kind, is_cell, row, col, own_rows, own_cols)
                if kind == GLOBAL or kind == FREE_GAP:
                    top = tl.where(ends, end_e, top)
                    total = tl.where(ends, end_m, total)
                    t_total = tl.where(ends, end_m * end_x, t_total)
                else:
                    end_e = tl.where(ends, end_e, NOTHING)
                    higher = tl.maximum(top, end_e)
                    shrink, odds = tl.exp2(top - higher), end_m * tl.exp2(end_e - higher)
                    total = total * shrink + odds
                    if tangents:
                        t_total = t_total * shrink + odds * end_x
                    top = higher
                diagonal = up
                last = new
                if keep:
                    made = made + (new,)
                else:
                    to_keep = (lane == lanes - 1) & is_cell
                    for n in tl.static_range(count):
                        tl.store(plane(first_plane, planes, n, plane_size) + kept + col, new[n], mask=to_keep)
            if keep:
                at = (t0 - lane)[:, None] + tl.arange(0, steps)[None, :]
                is_kept = is_row[:, None] & (at >= 0) & (at < own_cols)
                for n in tl.static_range(count):
                    of_plane = (made[0][n],)
                    for k in tl.static_range(1, steps):
                        of_plane = of_plane + (made[k][n],)
                    to = plane(first_plane, planes, n, plane_size) + kept[:, None] + at
                    tl.store(to, tile_of(of_plane, lanes, steps), mask=is_kept)
        # the next strip reads what this one has written
        tl.debug_barrier()

    highest_top = tl.max(top, 0)
    scales = tl.exp2(top - highest_top)
    whole = tl.sum(total * scales, 0)
    t_whole = tl.sum(t_total * scales, 0)
    # an alignment with a forbidden match is worth less than any without
    exists = (highest_top > -MOST / 2) & ~is_empty
    is_bad = tl.max(bad.to(tl.int32), 0) > 0
    opened, _extended, temperature, t_opened, t_temperature = given
    worth = (highest_top.to(tl.float64) + tl.log2(whole.to(tl.float64))) * LN_2
    tangent = t_whole / whole
    if tangents:
        score = temperature * tangent.to(tl.float64) + t_temperature * worth
    else:
        score = temperature * worth
    score = tl.where(exists, score, 0.0)
    if kind == GLOBAL or kind == FREE_GAP:  # without a cell it is all gaps
        gaps = (full_rows + own_cols).to(tl.float64)
        score = tl.where(is_empty, gaps * (t_opened if tangents else opened), score)
    ok = valid & ~is_bad
    tl.store(scores + pair, tl.where(ok, score, float("nan")).to(real))
    if keep:
        # where nothing ends, every share of the ends becomes 0
        tl.store(totals + pair * 4, tl.where(exists, highest_top, -NOTHING))
        tl.store(totals + pair * 4 + 1, tl.where(exists, 1 / whole, 1.0))
        tl.store(totals + pair * 4 + 2, tl.where(exists, tangent, 0.0))
        tl.store(totals + pair * 4 + 3, tl.where(ok, 0.0, float("nan")).to(real))
