"""The backward kernel, in Triton: gradients from the states that the forward kernel has stored."""

import triton
import triton.language as tl

from shared.kernels.triton.cells import AFFINE, GLOBAL, GLOBAL_AFFINE, LOCAL_ANY, added, all_choices, to_neighbours
from shared.kernels.triton.forward import GAPS, INPUTS, NUMBERS
from shared.kernels.triton.gaps import costs_in, gap_rows, gaps_alone, or_free, to_border, to_gaps
from shared.kernels.triton.gradients import clear_outside, ends_in, parts_of_choices, store_values, sums_of, with_turns
from shared.kernels.triton.pairs import FORBIDDEN, LN_2, clamped, constants, ends_of, match_of, outside, signed, size_of
from shared.kernels.triton.tiles import (
    chosen,
    columns,
    columns_of,
    in_step,
    is_inside,
    numbers,
    plane,
    shifted,
    tile_at,
    tile_of,
    tiles_at,
)

D_GAPS = ["d_gap_open", "d_gap_extend"]


@triton.jit(
    do_not_specialize=NUMBERS,
    do_not_specialize_on_alignment=[
        *INPUTS,
        "totals",
        "first_plane",
        "planes",
        "below",
        "d_values",
        *GAPS,
        *D_GAPS,
        "flags",
    ],
)
def backward_kernel(
    similarity,
    t_similarity,
    lengths,
    values,
    t_values,
    totals,
    first_plane,
    planes,
    below,
    d_values,
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
    d_gap_open,
    d_gap_extend,
    flags,
    kind: tl.constexpr,
    restrict_turns: tl.constexpr,
    penalize_turns: tl.constexpr,
    form: tl.constexpr,
    has_lengths: tl.constexpr,
    tangents: tl.constexpr,
    with_values: tl.constexpr,
    lanes: tl.constexpr,
    steps: tl.constexpr,
):
    """The scores' gradients with respect to similarity, in place of the first plane, values, and gaps by position; or
    their tangents.

    below: (pairs, states, or twice as many with tangents, cols + 1), uninitialized. Without with_values all gradients
    with respect to values are 0. Of the matrices of gaps those that are not needed are None. flags: None, or
    (pairs,), of which those that are 0 are passed over.
    """
    real: tl.constexpr = similarity.dtype.element_ty
    states: tl.constexpr = 3 if kind == AFFINE or kind == GLOBAL_AFFINE else 1
    count: tl.constexpr = 3 * states if tangents else 2 * states
    flows: tl.constexpr = 2 * states if tangents else states
    open_by_position: tl.constexpr = gap_open is not None
    extend_by_position: tl.constexpr = gap_extend is not None
    gap_tangents: tl.constexpr = t_gap_open is not None or t_gap_extend is not None
    # among what is given in matrices, the first gap by position; and how many matrices each of them has
    first_gap: tl.constexpr = 2 if tangents else 1
    numbers_each: tl.constexpr = 2 if gap_tangents else 1
    # gap steps along the border cost what those of the pair do; by position they cost nothing
    has_border: tl.constexpr = (kind == GLOBAL and not open_by_position) or kind == GLOBAL_AFFINE
    turns_by_position: tl.constexpr = open_by_position if penalize_turns else extend_by_position
    pair = tl.program_id(0).to(tl.int64)
    costs, match, gap, _valid, parameters = constants(kind, penalize_turns, form, values, t_values, pair, real)
    by_axis: tl.constexpr = len(costs[0]) > 3
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
    own_totals = totals + pair * 5
    total, poison = (tl.load(own_totals), tl.load(own_totals + 1)), tl.load(own_totals + 2)
    if tangents:
        total = total + (tl.load(own_totals + 3), tl.load(own_totals + 4))

    lane = tl.arange(0, lanes)
    lane_above = tl.maximum(lane - 1, 0)
    lane_below = tl.minimum(lane + 1, lanes - 1)
    s_base = similarity + pair * pair_stride
    t_base = t_similarity + pair * t_pair_stride
    row_size = pair * 0 + cols
    plane_size = row_size * rows * pairs
    plane_base = row_size * rows * pair
    below_base = below + pair * flows * (row_size + 1)
    d_gaps = ()
    if d_gap_open is not None:
        d_gaps = d_gaps + (d_gap_open,)
    if d_gap_extend is not None:
        d_gaps = d_gaps + (d_gap_extend,)

    ones = tl.full([lanes], 1, real)
    # of opened and extended gaps and turns: of those along the row, or both axes, and by axis of those down the column
    zeros = tl.zeros([lanes], tl.float64)
    along_sum, down_sum = (zeros, zeros, zeros), (zeros, zeros, zeros)
    entropy_sum, border_sum = zeros, (zeros, zeros) if kind == GLOBAL_AFFINE else (zeros,)

    strips = (own_rows + lanes - 1) // lanes
    for strip in range(0, strips):
        first_row = (strips - 1 - strip) * lanes
        row = first_row + lane
        is_row = row < own_rows
        # rows outside the matrix have no cells
        widths = tl.where(is_row, own_cols, 0)
        first_end, end_widths = ends_of(kind, row, widths, own_rows)
        # the first lane passes gradients to the strip above, from the column outside on
        sent_widths = tl.where(lane == 0, own_cols + 1, 0)
        given_rows = (s_base + (row.to(tl.int64) * row_stride - lane),)
        if tangents:
            given_rows = given_rows + (t_base + (row.to(tl.int64) * t_row_stride - lane),)
        address = plane_base + row_size * row - lane
        given_rows = given_rows + gap_rows(gap_open, t_gap_open, gap_extend, t_gap_extend, address)
        above = plane_base + row_size * (first_row - 1)
        none = tl.zeros([lanes], real)
        of_along, of_down, of_entropy = (none, none, none), (none, none, none), none
        of_border = (none, none) if kind == GLOBAL_AFFINE else (none,)
        # states: of the cell to the left, of the one above, and of the cell itself
        left = outside(kind, tangents, none, gap, form, 1)
        up, own_cell = left, left
        # gradients: from the cell to the right, to the row above, and to the diagonal one step before
        from_right = (none,)
        for _n in tl.static_range(1, flows):
            from_right = from_right + (none,)
        message, diagonal_before = from_right, from_right
        # from two steps after the last cell, so that the first cells find their own states, to the column outside
        blocks = (own_cols + tl.minimum(own_rows - first_row, lanes) + 2 + steps - 1) // steps
        t0 = (blocks - 1) * steps - 1
        next_tiles = tiles_at(given_rows, t0, t0 - lane, widths, ones, steps)
        for block in range(0, blocks):
            t0 = (blocks - 1 - block) * steps - 1
            given_columns = columns_of(next_tiles, lanes, steps)
            next_tiles = tiles_at(given_rows, t0 - steps, t0 - lane - steps, widths, ones, steps)
            above_cols = t0 - 1 + tl.arange(0, steps)
            # the border's states where there is no cell: of rows to the left of the matrix, of columns above it
            left_border = outside(kind, tangents, (row + 1).to(real), gap, form, 1)
            gaps_above = tl.where(first_row > 0, first_row + 0 * above_cols, above_cols + 1).to(real)
            above_border = outside(kind, tangents, gaps_above, gap, form, 0)
            if kind == GLOBAL_AFFINE or by_axis:
                to_the_left = outside(kind, tangents, gaps_above, gap, form, 1)
                above_border = chosen(first_row > 0, to_the_left, above_border)
            is_above = (first_row > 0) & is_inside(above_cols, own_cols)
            # addresses kept for a strip save instructions, but for nine planes they need more registers than there are
            address_here, ahead = address, t0 - 2
            if states == 3 and tangents:
                address_here, ahead = address + t0, -2
            lefts, aboves, belows = (), (), ()
            for n in tl.static_range(count):
                states_of = plane(first_plane, planes, n, plane_size)
                tile = tile_at(states_of + address_here, ahead, t0 - 2 - lane, widths, left_border[n], steps)
                lefts = lefts + (columns(tile, lanes, steps),)
                row_above = states_of + above + (t0 - 1)
                from_above = tl.load(row_above + tl.arange(0, steps), mask=is_above, other=above_border[n])
                aboves = aboves + (numbers(from_above, steps),)
            sent_cols = t0 - (lanes - 1) + 1 + tl.arange(0, steps)
            is_below = (strip > 0) & is_inside(sent_cols, own_cols + 1)
            for n in tl.static_range(flows):
                row_below = below_base + n * (row_size + 1) + (t0 - (lanes - 1) + 1)
                from_below = tl.load(row_below + tl.arange(0, steps), mask=is_below, other=0.0)
                belows = belows + (numbers(from_below, steps),)
            made, gaps_made, messages = (), (), ()
            for k in tl.static_range(steps - 1, -1, -1):
                col = t0 - lane + k
                is_cell = is_inside(col, widths)
                # one column further to the left: the diagonal neighbours, and the next step's left ones
                further = in_step(lefts, k)
                diagonal = chosen(lane == 0, in_step(aboves, k), shifted(further, lane_above))
                input_columns = in_step(given_columns, k)
                s = signed(kind, input_columns[0])
                of_match = match_of(s, signed(kind, input_columns[first_gap - 1]), match, tangents)
                in_last = (row == own_rows - 1, col == own_cols - 1)
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
                    in_last,
                )

                incoming = chosen(lane == lanes - 1, in_step(belows, k), shifted(message, lane_below))
                at_border = is_row & (col == -1)
                v = ()
                for n in tl.static_range(flows):
                    arrived = from_right[n] + incoming[n]
                    if has_border and n == flows - 1:
                        begun = to_border(kind, form, 1, arrived, (row + 1).to(real))
                        of_border = added(of_border, chosen(at_border, begun, (0.0, 0.0)))
                    v = v + (tl.where(is_cell, arrived, 0.0),)

                m, e, x = all_choices(kind, restrict_turns, tangents, states, of_match, diagonal, left, up, costs_here)
                # the alignments that end here
                ends = is_inside(t0 - lane - first_end + k, end_widths)
                end_parts, t_end_parts, of_entropy = ends_in(
                    kind, tangents, with_values, ends, m, e, x, own_cell, total, of_entropy
                )
                if kind == LOCAL_ANY or kind >= GLOBAL:
                    v = added(v, end_parts + t_end_parts)

                parts, t_parts, of_entropy = parts_of_choices(
                    kind, tangents, with_values, states, m, e, x, v, end_parts, t_end_parts, of_entropy
                )
                to_diagonal, to_left, to_up, matched, to_costs = to_neighbours(kind, restrict_turns, by_axis, parts)
                if tangents:
                    t_diagonal, t_left, t_up, matched, to_costs = to_neighbours(kind, restrict_turns, by_axis, t_parts)
                    to_diagonal, to_left, to_up = to_diagonal + t_diagonal, to_left + t_left, to_up + t_up
                if tangents and with_values:
                    # a forbidden match has no share, but may be infinite
                    of_entropy += matched * tl.maximum(s, FORBIDDEN)
                if by_axis:  # steps that are free do not count
                    to_costs = or_free(form, to_costs, 0, 0, in_last)
                    of_down = added(of_down, to_costs[states:])
                of_along = added(of_along, to_costs[:states])
                made = (matched + poison,) + made
                if len(d_gaps) > 0:
                    stepped = to_gaps(open_by_position, extend_by_position, penalize_turns, to_costs)
                    of_gaps = ()
                    for n in tl.static_range(len(d_gaps)):
                        of_gaps = of_gaps + (stepped[n] + poison,)
                        if tangents:
                            of_entropy += stepped[n] * clamped(input_columns[first_gap + numbers_each * n])
                    gaps_made = (of_gaps,) + gaps_made

                message = ()
                for n in tl.static_range(flows):
                    sent = to_up[n] + diagonal_before[n]
                    message = message + (sent,)
                    if tangents:
                        to = below_base + n * (row_size + 1) + (1 - lane) + t0
                        tl.store(to + k, sent, mask=is_inside(col + 1, sent_widths))
                messages = (message,) + messages
                diagonal_before = to_diagonal
                from_right = to_left
                own_cell, left, up = left, further, diagonal
            if not tangents:  # with tangents registers are scarce
                is_sent = is_inside((t0 + 1 - lane)[:, None] + tl.arange(0, steps)[None, :], sent_widths[:, None])
                for n in tl.static_range(flows):
                    to = (below_base + n * (row_size + 1) + (1 - lane))[:, None] + tl.arange(0, steps)[None, :]
                    tl.store(to + t0, tile_of(in_step(messages, n), lanes, steps), mask=is_sent)
            is_written = is_inside((t0 - lane)[:, None] + tl.arange(0, steps)[None, :], widths[:, None])
            to = (first_plane + address)[:, None] + tl.arange(0, steps)[None, :]
            tl.store(to + t0, tile_of(made, lanes, steps), mask=is_written)
            for n in tl.static_range(len(d_gaps)):
                to = (d_gaps[n] + address)[:, None] + tl.arange(0, steps)[None, :]
                tl.store(to + t0, tile_of(in_step(gaps_made, n), lanes, steps), mask=is_written)
        if not open_by_position:
            along_sum = added(along_sum, of_along[:1])
        if not extend_by_position:
            along_sum = along_sum[:1] + added(along_sum[1:], of_along[1:2])
        if not turns_by_position:
            along_sum = along_sum[:2] + added(along_sum[2:], of_along[2:])
        if by_axis:
            down_sum = added(down_sum, of_down)
        if tangents:
            of_entropy *= match[2]
        entropy_sum += of_entropy.to(tl.float64)
        border_sum = added(border_sum, of_border)
        # the next strip reads what this one has written
        tl.debug_barrier()

    # nothing lies outside a pair that is passed over
    kept_rows, kept_cols = tl.where(is_asked, own_rows, rows), tl.where(is_asked, own_cols, cols)
    clear_outside(first_plane + plane_base, row_size, rows, cols, kept_rows, kept_cols, lanes, steps, real)
    for n in tl.static_range(len(d_gaps)):
        clear_outside(d_gaps[n] + plane_base, row_size, rows, cols, kept_rows, kept_cols, lanes, steps, real)

    if by_axis:
        down_sum = added(down_sum, border_sum)
    else:
        along_sum = added(along_sum, border_sum)
    d_along, d_down = sums_of(along_sum), sums_of(down_sum)
    entropies = tl.sum(entropy_sum, 0)
    if has_border:
        # the gradient that reached the row outside: gaps along it
        above_sum = (zeros, zeros) if kind == GLOBAL_AFFINE else (zeros,)
        flow_above: tl.constexpr = flows - 2 if kind == GLOBAL_AFFINE else flows - 1
        for c0 in range(0, own_cols, lanes):
            at = c0 + lane
            is_there = (at < own_cols) & ~is_empty
            flow = tl.load(below_base + flow_above * (cols + 1) + at + 1, mask=is_there, other=0.0)
            above_sum = added(above_sum, to_border(kind, form, 0, flow.to(tl.float64), (at + 1).to(tl.float64)))
        d_along = added(d_along, sums_of(above_sum))
        if not tangents:  # without a cell it is all gaps
            along, down, alone = gaps_alone(kind, form, full_rows, own_cols, parameters[0], tl.float64)
            is_gaps = alone > FORBIDDEN
            d_along = chosen(is_empty, chosen(is_gaps, along, (0.0, 0.0)), d_along) + d_along[len(along) :]
            d_down = chosen(is_empty, chosen(is_gaps, down, (0.0, 0.0)), d_down) + d_down[len(along) :]
    d_costs = with_turns(penalize_turns, d_along)
    if by_axis:
        d_costs = d_costs + with_turns(penalize_turns, d_down)
    if not with_values:
        d_temperature = 0.0 * entropies
        d_costs = (d_temperature, d_temperature, d_temperature, d_temperature)[: len(d_costs)]
    elif tangents:
        d_temperature = entropies
        for n in tl.static_range(len(d_costs)):
            d_temperature += d_costs[n] * (parameters[0][n] / parameters[2])
        d_temperature = -d_temperature
    else:
        d_temperature = entropies * LN_2
    d_temperature = signed(kind, d_temperature)
    store_values(kind, d_values, pair, d_costs, d_temperature, poison.to(tl.float64), is_asked, real)
