"""The backward kernel's steps in a cell, in Triton, and what it writes once for a pair."""

import triton
import triton.language as tl

from shared.kernels.triton.cells import AFFINE, FREE_GAP, GLOBAL_AFFINE, LOCAL_MATCH, dot, entropy, from_best, shares


@triton.jit
def ends_in(
    kind: tl.constexpr,
    tangents: tl.constexpr,
    with_values: tl.constexpr,
    ends,
    m,
    e,
    x,
    own_cell,
    total,
    of_entropy,
):
    """The probabilities of the ways in which an alignment ends in a cell, their tangents, and the entropy less theirs.

    ends: where an alignment may end; m, e, x: the choices; total: the score's exponent, 1 / its fraction, its
    tangent in two parts.
    """
    best, inverse = total[0], total[1]
    if kind == AFFINE:
        end_m, end_e, end_x = m[0][:3], e[0][:3], x[0][:3]
    elif kind == LOCAL_MATCH:
        end_m, end_e, end_x = m[0][:1], e[0][:1], x[0][:1]
    else:
        states: tl.constexpr = len(own_cell) // (3 if tangents else 2)
        end_m, end_e, end_x = own_cell[:states], own_cell[states : 2 * states], own_cell[2 * states :]
    end_parts, t_end_parts = (), ()
    for c in tl.static_range(len(end_m)):
        # at most the whole score; its exponent need not be, where its fraction is not normalized
        relative = tl.minimum(end_e[c] - best, 100.0)
        part = tl.where(ends, end_m[c] * tl.exp2(relative) * inverse, 0.0)
        end_parts = end_parts + (part,)
        if tangents:
            t_end_parts = t_end_parts + (part * ((end_x[c] - total[2]) - total[3]),)
        if with_values and not tangents:
            bits = relative + tl.log2(end_m[c] * inverse)
            of_entropy -= tl.where(part > 0, part * bits, 0.0)
    return end_parts, t_end_parts, of_entropy


@triton.jit
def parts_of_choices(
    kind: tl.constexpr,
    tangents: tl.constexpr,
    with_values: tl.constexpr,
    states: tl.constexpr,
    m,
    e,
    x,
    v,
    end_parts,
    t_end_parts,
    of_entropy,
):
    """The gradients with respect to the choices of each state, their tangents, and the entropy with that of the shares.

    v: the gradients with respect to the states, then their tangents.
    """
    parts, t_parts = (), ()
    for n in tl.static_range(states):
        weights = shares(m[n], e[n])
        if with_values and not tangents:
            of_entropy += v[n] * entropy(m[n], e[n], weights)
        of_state, t_of_state = (), ()
        if tangents:
            away, _base = from_best(weights, x[n])
            mean = dot(weights, away)
        for c in tl.static_range(len(weights)):
            part = v[n] * weights[c]
            if tangents:
                t_part = v[states + n] * weights[c] + part * (away[c] - mean)
            if (kind == AFFINE or kind == LOCAL_MATCH) and n == 0 and c < len(end_parts):
                part += end_parts[c]
                if tangents:
                    t_part += t_end_parts[c]
            of_state = of_state + (part,)
            if tangents:
                t_of_state = t_of_state + (t_part,)
        parts = parts + (of_state,)
        if tangents:
            t_parts = t_parts + (t_of_state,)
    return parts, t_parts, of_entropy


@triton.jit
def sums_of(values):
    """The sum of each of a tuple of vectors."""
    sums = ()
    for k in tl.static_range(len(values)):
        sums = sums + (tl.sum(values[k], 0),)
    return sums


@triton.jit
def with_turns(penalize_turns: tl.constexpr, d_costs):
    """The gradients of opened and extended gaps, with those of turns, which come last."""
    if penalize_turns:
        return d_costs[0] + d_costs[2], d_costs[1]
    else:
        return d_costs[0], d_costs[1] + d_costs[2]


@triton.jit
def clear_outside(
    matrix, row_size, rows, cols, own_rows, own_cols, lanes: tl.constexpr, steps: tl.constexpr, real: tl.constexpr
):
    """Write zeros outside lengths."""
    is_ragged = (own_rows < rows) | (own_cols < cols)
    if is_ragged:
        for first_row in range(0, rows, lanes):
            row = first_row + tl.arange(0, lanes)
            for c0 in range(0, cols, steps):
                at = c0 + tl.arange(0, steps)[None, :]
                is_outside = (row[:, None] >= own_rows) | (at >= own_cols)
                is_there = (row[:, None] < rows) & (at < cols)
                to = matrix + (row_size * row)[:, None] + at
                tl.store(to, tl.zeros([lanes, steps], real), mask=is_outside & is_there)


@triton.jit
def store_values(kind: tl.constexpr, d_values, pair, d_costs, d_temperature, bad, is_asked, real: tl.constexpr):
    """Write the gradients with respect to a pair's parameters. bad: NaN for a pair without a result, else 0.

    d_costs: of opened and extended gaps, by axis of those along the row and then down the column.
    """
    each: tl.constexpr = 2 if kind == AFFINE or kind == GLOBAL_AFFINE else 0 if kind >= FREE_GAP else 1
    ways: tl.constexpr = len(d_costs) // 2
    of_pair = d_values + pair * (each * ways + 1)
    for n in tl.static_range(each * ways):
        tl.store(of_pair + n, (d_costs[n % ways * 2 + n // ways] + bad).to(real), mask=is_asked)
    tl.store(of_pair + each * ways, (d_temperature + bad).to(real), mask=is_asked)
