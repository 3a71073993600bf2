"""Best alignments, in Triton: the recurrences with maxima in place of the smooth ones, and the way back from an end.

A cell leaves a byte, whose bits say which choice each maximum is; of equal ones it is the first in this order: start,
from the diagonal, from the left, from above; of the states A, R and D the first. The bytes lie where the matches will.
Nothing is rounded but sums of two: whole numbers are exact up to the largest that the number type has without gaps.
"""

import triton
import triton.language as tl

from shared.kernels.triton.cells import AFFINE, GLOBAL, GLOBAL_AFFINE, LOCAL_ANY, LOCAL_MATCH, SOFT_DTW, dot, slice_of
from shared.kernels.triton.gaps import gap_rows, gaps_alone, or_free
from shared.kernels.triton.pairs import (
    FORBIDDEN,
    affine_border,
    clamped,
    ends_of,
    gaps_at,
    parameters_of,
    signed,
    size_of,
)
from shared.kernels.triton.tiles import chosen, columns_of, in_step, is_inside, numbers, shifted, tile_of, tiles_at

# the bits of a cell of one state: it is a match; as one it is a start, or else it comes from the left
MATCHES, STARTS_OR_LEFT = tl.constexpr(1), tl.constexpr(2)
# and of one with the states A, R and D: nothing of it is worth continuing, the next match starts anew; its greatest is
# A; else, it is R; D comes from A; else, from R; R comes from A; else, from R
STARTS, GREATEST_IS_A, GREATEST_IS_R = tl.constexpr(1), tl.constexpr(2), tl.constexpr(4)
D_FROM_A, D_FROM_R, R_FROM_A, R_FROM_R = tl.constexpr(8), tl.constexpr(16), tl.constexpr(32), tl.constexpr(64)
# the state of an affine gap on the way back
GREATEST, A, R, D, BEFORE_END = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3), tl.constexpr(4)
# the byte of a cell that the way back has found to be a match
FOUND = tl.constexpr(128)


@triton.jit
def greatest(kind: tl.constexpr, states):
    """The best score that a match in the next cell continues."""
    if kind == AFFINE or kind == GLOBAL_AFFINE:
        return tl.maximum(states[0], tl.maximum(states[1], states[2]))
    else:
        return states[0]


@triton.jit
def flag(condition, bits: tl.constexpr):
    return tl.where(condition, bits, 0)


@triton.jit
def best_step(kind: tl.constexpr, restrict_turns: tl.constexpr, s, diagonal, left, up, costs):
    """The states of some cells, what the best alignments that end in them are worth, and the cells' bits.

    diagonal: the greatest of the neighbour's states.
    """
    continued = diagonal + s
    opened, extended, turned = costs[:3]
    down = costs[len(costs) - 3 :]
    if kind == AFFINE or kind == GLOBAL_AFFINE:
        matched = s + tl.maximum(diagonal, 0.0) if kind == AFFINE else continued
        from_match, from_row = left[0] + opened, left[1] + extended
        bits = tl.zeros_like(s).to(tl.int32)
        best_gap = from_row
        if not restrict_turns:
            from_column = left[2] + turned
            bits |= flag(from_row >= from_column, R_FROM_R)
            best_gap = tl.maximum(from_row, from_column)
        in_row = tl.maximum(from_match, best_gap)
        bits |= flag(from_match >= best_gap, R_FROM_A)

        down_from_match, down_from_row, down_from_column = up[0] + down[0], up[1] + down[2], up[2] + down[1]
        down_rest = tl.maximum(down_from_row, down_from_column)
        in_column = tl.maximum(down_from_match, down_rest)
        bits |= flag(down_from_match >= down_rest, D_FROM_A) | flag(down_from_row >= down_from_column, D_FROM_R)

        gap = tl.maximum(in_row, in_column)
        if kind == AFFINE:
            bits |= flag(tl.maximum(matched, gap) <= 0, STARTS)
        bits |= flag(matched >= gap, GREATEST_IS_A) | flag(in_row >= in_column, GREATEST_IS_R)
        ending = continued if kind == AFFINE else tl.maximum(matched, gap)
        return (matched, in_row, in_column), ending, bits
    else:
        along_row, along_column = left[0] + opened, up[0] + down[0]
        gap = tl.maximum(along_row, along_column)
        worth_here = continued
        other = along_row >= along_column
        if kind == LOCAL_ANY or kind == LOCAL_MATCH:
            worth_here = s + tl.maximum(diagonal, 0.0)
            other = tl.where(worth_here >= gap, diagonal <= 0, other)
        state = tl.maximum(worth_here, gap)
        if kind == SOFT_DTW:
            worth_here, state = diagonal, s + tl.maximum(diagonal, gap)
        worth = continued if kind == LOCAL_MATCH else state
        return (state,), worth, flag(worth_here >= gap, MATCHES) | flag(other, STARTS_OR_LEFT)


@triton.jit
def border(kind: tl.constexpr, form: tl.constexpr, axis: tl.constexpr, gaps, costs):
    """The states of cells outside the matrix, `gaps` gap positions from the corner: as in `outside`."""
    if kind == SOFT_DTW:
        states = (tl.where(gaps > 0, float("-inf"), 0.0 * gaps),)
    elif kind >= GLOBAL:
        counts = gaps_at(kind, form, axis, gaps)
        states = (dot(counts, slice_of(costs, axis if len(costs) > 2 else 0, 2)),)
        if kind == GLOBAL_AFFINE:
            states = affine_border(axis, counts[0] > 0, states[0], tl.zeros_like(gaps) + float("-inf"))
    else:
        never = tl.zeros_like(gaps) + float("-inf")
        states = (never,)
        if kind == AFFINE:
            states = (never, never, never)
    return states


@triton.jit
def walk(kind: tl.constexpr, restrict_turns: tl.constexpr, cells, row_size, i, j, exists):
    """Mark the matches of the alignment that ends in the cell (i, j), if it exists, in the bytes of the cells."""
    # of an affine gap: that of the cell; GREATEST: not known yet; at first one that does not let a match start anew
    state = i * 0 + BEFORE_END
    if kind == AFFINE or kind == LOCAL_MATCH:  # the end is a match, and not the first
        tl.store(cells + (row_size * i + j), FOUND, mask=exists)
        i -= 1
        j -= 1
    going = exists & (i >= 0) & (j >= 0)
    while going:
        cell = cells + (row_size * i + j)
        bits = tl.load(cell).to(tl.int32)
        if kind == AFFINE or kind == GLOBAL_AFFINE:
            is_over = (state == GREATEST) & ((bits & STARTS) != 0)
            row_or_column = tl.where((bits & GREATEST_IS_R) != 0, R, D)
            greatest_state = tl.where((bits & GREATEST_IS_A) != 0, A, row_or_column)
            walk_state = tl.where((state == GREATEST) | (state == BEFORE_END), greatest_state, state)
            is_match, is_left = (walk_state == A) & ~is_over, walk_state == R
            in_row = R if restrict_turns else tl.where((bits & R_FROM_R) != 0, R, D)
            in_row = tl.where((bits & R_FROM_A) != 0, A, in_row)
            in_column = tl.where((bits & D_FROM_A) != 0, A, tl.where((bits & D_FROM_R) != 0, R, D))
            state = tl.where(is_match, GREATEST, tl.where(is_left, in_row, in_column))
        else:
            is_match, other = (bits & MATCHES) != 0, (bits & STARTS_OR_LEFT) != 0
            is_over, is_left = is_match & other, ~is_match & other
        tl.store(cell, FOUND, mask=is_match | (kind == SOFT_DTW))
        i -= tl.where(is_left, 0, 1)
        j -= tl.where(is_match | is_left, 1, 0)
        going = (i >= 0) & (j >= 0)
        if kind < GLOBAL:
            going = going & ~is_over


@triton.jit
def leave_matches(cells, row_size, rows, cols, own_rows, own_cols, lanes: tl.constexpr, steps: tl.constexpr):
    """Write 1 for the cells that are marked, and 0 for all others."""
    for first_row in range(0, rows, lanes):
        row = first_row + tl.arange(0, lanes)
        for c0 in range(0, cols, steps):
            at = c0 + tl.arange(0, steps)[None, :]
            is_cell = (row[:, None] < own_rows) & (at < own_cols)
            is_there = (row[:, None] < rows) & (at < cols)
            to = cells + (row_size * row)[:, None] + at
            is_match = tl.load(to, mask=is_cell, other=0) == FOUND
            tl.store(to, is_match.to(tl.uint8), mask=is_there)


@triton.jit(
    do_not_specialize=["pairs", "rows", "cols", "pair_stride", "row_stride"],
    do_not_specialize_on_alignment=[
        "similarity",
        "lengths",
        "values",
        "scores",
        "matches",
        "ends",
        "last_row",
        "gap_open",
        "gap_extend",
    ],
)
def best_kernel(
    similarity,
    lengths,
    values,
    scores,
    matches,
    ends,
    last_row,
    pairs: tl.int32,
    rows: tl.int32,
    cols: tl.int32,
    pair_stride: tl.int64,
    row_stride: tl.int64,
    gap_open,
    gap_extend,
    kind: tl.constexpr,
    restrict_turns: tl.constexpr,
    penalize_turns: tl.constexpr,
    form: tl.constexpr,
    has_lengths: tl.constexpr,
    lanes: tl.constexpr,
    steps: tl.constexpr,
):
    """Scores, and matches as bytes of 0 or 1. last_row (states, pairs, cols): what a strip passes to the next."""
    real: tl.constexpr = similarity.dtype.element_ty
    states: tl.constexpr = 3 if kind == AFFINE or kind == GLOBAL_AFFINE else 1
    open_by_position: tl.constexpr = gap_open is not None
    extend_by_position: tl.constexpr = gap_extend is not None
    pair = tl.program_id(0).to(tl.int64)
    own = parameters_of(kind, form, values, pair)
    costs = ()
    for n in tl.static_range(len(own) - 1):
        costs = costs + (clamped(own[n]).to(real),)
    length, width = rows, cols
    if has_lengths:
        length, width = tl.load(lengths + pair * 2), tl.load(lengths + pair * 2 + 1)
    own_rows, own_cols = size_of(has_lengths, length, width, pair, rows, cols)
    is_empty = (own_rows == 0) | (own_cols == 0)
    full_rows = own_rows
    own_rows = tl.where(is_empty, 0, own_rows)

    lane = tl.arange(0, lanes)
    lane_above = tl.maximum(lane - 1, 0)
    row_size = pair * 0 + cols
    matrix = row_size * rows * pair
    cells = matches + matrix
    passed = last_row + row_size * pair
    zeros = tl.zeros([lanes], real)
    worth = zeros + float("-inf")
    end_row, end_col = lane * 0, lane * 0
    bad = tl.zeros([lanes], tl.int1)
    for first_row in range(0, own_rows, lanes):
        row = first_row + lane
        # rows outside the matrix have no cells
        widths = tl.where(row < own_rows, own_cols, 0)
        first_end, end_widths = ends_of(kind, row, widths, own_rows)
        last_widths = tl.where(lane == lanes - 1, widths, 0)
        given_rows = (similarity + pair * pair_stride + (row.to(tl.int64) * row_stride - lane),)
        given_rows = given_rows + gap_rows(gap_open, None, gap_extend, None, matrix + row_size * row - lane)
        before = border(kind, form, 1, (row + 1).to(real), costs)
        left = before
        diagonal = greatest(kind, border(kind, form, 1, row.to(real), costs))
        in_all = own_cols + tl.minimum(own_rows - first_row, lanes) - 1
        next_tiles = tiles_at(given_rows, 0, -lane, widths, zeros, steps)
        for t0 in range(0, in_all, steps):
            given_columns = columns_of(next_tiles, lanes, steps)
            next_tiles = tiles_at(given_rows, t0 + steps, t0 - lane + steps, widths, zeros, steps)
            above_cols = t0 + tl.arange(0, steps)
            outside = border(kind, form, 0, (above_cols + 1).to(real), costs)
            is_above = (first_row > 0) & (above_cols < own_cols)
            rows_above = ()
            for n in tl.static_range(states):
                from_above = tl.load(passed + row_size * pairs * n + above_cols, mask=is_above, other=outside[n])
                rows_above = rows_above + (numbers(from_above, steps),)
            made = ()
            for k in tl.static_range(steps):
                col = t0 - lane + k
                up = chosen(lane == 0, in_step(rows_above, k), shifted(left, lane_above))
                input_columns = in_step(given_columns, k)
                raw = signed(kind, input_columns[0])
                # outside the cells 0 is given
                bad = bad | ~(raw < float("inf"))
                s = tl.where(raw > FORBIDDEN, raw, float("-inf"))
                open_here, extend_here = costs[0], costs[1]
                if open_by_position:
                    open_here = clamped(input_columns[1])
                    bad = bad | (input_columns[1] != input_columns[1])
                if extend_by_position:
                    extend_here = clamped(input_columns[len(input_columns) - 1])
                    bad = bad | (input_columns[len(input_columns) - 1] != input_columns[len(input_columns) - 1])
                costs_here = (open_here, extend_here, open_here if penalize_turns else extend_here)
                if len(costs) > 2:
                    costs_here = costs_here + costs[2:] + (costs[2] if penalize_turns else costs[3],)
                    costs_here = or_free(form, costs_here, 0, float("-inf"), (row == own_rows - 1, col == own_cols - 1))
                new, ending, bits = best_step(kind, restrict_turns, s, diagonal, left, up, costs_here)
                is_better = is_inside(col - first_end, end_widths) & (ending > worth)
                worth = tl.where(is_better, ending, worth)
                end_row, end_col = tl.where(is_better, row, end_row), tl.where(is_better, col, end_col)
                diagonal = greatest(kind, up)
                # lanes that have not started are outside
                left = chosen(col >= 0, new, before)
                made = made + (bits.to(tl.uint8),)
                to_pass = is_inside(col, last_widths)
                for n in tl.static_range(states):
                    # the last lane's address, for all lanes: one number
                    tl.store(passed + row_size * pairs * n + (t0 - (lanes - 1) + k) + 0 * lane, left[n], mask=to_pass)
            to = (cells + row_size * row - lane)[:, None] + tl.arange(0, steps)[None, :]
            is_cell = is_inside((t0 - lane)[:, None] + tl.arange(0, steps)[None, :], widths[:, None])
            tl.store(to + t0, tile_of(made, lanes, steps), mask=is_cell)
        # the next strip reads what this one has written, and the way back all of it
        tl.debug_barrier()

    top = tl.max(worth, 0)
    is_bad = tl.max(bad.to(tl.int32), 0) > 0
    for n in tl.static_range(len(costs)):
        is_bad = is_bad | (costs[n] != costs[n])
    # an alignment that needs a forbidden gap is none
    exists = top > FORBIDDEN
    is_top = worth == top
    first = tl.min(tl.where(is_top, end_row, rows), 0)
    score = tl.where(exists, top, 0.0)
    if kind >= GLOBAL:  # without a cell it is all gaps
        _along, _down, alone = gaps_alone(kind, form, full_rows, own_cols, costs, real)
        score = tl.where(is_empty, alone, top)
        score = signed(kind, tl.where(score > FORBIDDEN, score, float("-inf")))
    tl.store(scores + pair, tl.where(is_bad, float("nan"), score))
    tl.store(ends + pair * 2, first)
    tl.store(ends + pair * 2 + 1, tl.min(tl.where(is_top & (end_row == first), end_col, cols), 0))
    tl.debug_barrier()
    # through memory: PyTorch's compiler assumes that a kernel writes to all that an address is computed from
    i, j = tl.load(ends + pair * 2), tl.load(ends + pair * 2 + 1)
    walk(kind, restrict_turns, cells, row_size, i, j, exists & (is_bad == 0))
    tl.debug_barrier()
    leave_matches(cells, row_size, rows, cols, own_rows, own_cols, lanes, steps)
