"""The constants of a pair, in Triton: its size, parameters, border, similarities and ends."""

import triton
import triton.language as tl

from shared.kernels.triton.cells import AFFINE, FREE_GAP, GLOBAL, GLOBAL_AFFINE, LOCAL_ANY, SOFT_DTW, slice_of

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
# the limits of shared/tolerances.py, and those of the native kernels
LOWEST = tl.constexpr(-1e20)
LARGEST_GAP = tl.constexpr(1e18)
COLDEST = tl.constexpr(1e-15)
HOTTEST = tl.constexpr(1e15)
FORBIDDEN = tl.constexpr(-5e19)
# exponents beyond cannot be told apart; a path may be long: its sum must stay far from overflow
MOST = tl.constexpr(1e29)
# adding this to a float rounds it: its last bit is worth 2
MAGIC, MAGIC_WIDE = tl.constexpr(1.5 * 2.0**24), tl.constexpr(1.5 * 2.0**53)
# the exponent of a weight of 0
NOTHING = tl.constexpr(-1e30)
# the flags of `form`, how gaps are given: opened ones by position; extended ones by position; by axis
OPEN_BY_POSITION, EXTEND_BY_POSITION, BY_AXIS = tl.constexpr(8), tl.constexpr(16), tl.constexpr(32)
# if by axis: gaps free in the last row (the next bit: column); turns into gaps along a row in the last row alone
FREE_ROWS, LAST_TURN = tl.constexpr(64), tl.constexpr(1)


@triton.jit
def parameters_of(kind: tl.constexpr, form: tl.constexpr, values, pair):
    """open and extend, by axis both of each, and temperature in float64. A gap that is none of the pair's is 0."""
    each: tl.constexpr = 2 if kind == AFFINE or kind == GLOBAL_AFFINE else 0 if kind >= FREE_GAP else 1
    ways: tl.constexpr = 2 if BY_AXIS & form else 1
    of_pair = values + pair * (each * ways + 1)
    costs = ()
    for axis in tl.static_range(ways):
        opened = tl.load(of_pair + axis)
        extended = tl.load(of_pair + ways + axis) if each == 2 else opened
        costs = costs + (opened.to(tl.float64), extended.to(tl.float64))
    temperature = tl.load(of_pair + each * ways).to(tl.float64)
    if OPEN_BY_POSITION & form or each == 0:
        costs = (temperature * 0, costs[1] if each == 2 else temperature * 0)
    if EXTEND_BY_POSITION & form:
        costs = (costs[0], temperature * 0)
    return costs + (temperature,)


@triton.jit
def clamped(gap):
    """A gap clamped to the limits; NaN stays NaN."""
    return tl.where(gap < LOWEST, LOWEST, tl.where(gap > LARGEST_GAP, LARGEST_GAP, gap))


@triton.jit
def bits_of(amount, temperature):
    return tl.minimum(tl.maximum(amount / temperature * LOG2_E, -MOST), MOST)


@triton.jit
def constants_along(penalize_turns: tl.constexpr, own, t_own, real: tl.constexpr):
    """The constants that follow from a pair's parameters, and the parameters themselves in float64."""
    opened, extended, temperature = own
    t_opened, t_extended, t_temperature = t_own
    opened, extended = clamped(opened), clamped(extended)
    valid = (temperature > 0) & (temperature < float("inf")) & (opened == opened) & (extended == extended)
    temperature = tl.where(valid, tl.minimum(tl.maximum(temperature, COLDEST), HOTTEST), 1.0)
    opened, extended = tl.where(valid, opened, 0.0), tl.where(valid, extended, 0.0)
    ratio = t_temperature / temperature
    open_bits, extend_bits = bits_of(opened, temperature), bits_of(extended, temperature)
    open_e, extend_e = tl.floor(open_bits + 0.5), tl.floor(extend_bits + 0.5)
    open_part = open_bits - open_e
    open_m, extend_m = tl.exp2(open_part).to(real), tl.exp2(extend_bits - extend_e).to(real)
    t_open = (t_opened / temperature - (opened / temperature) * ratio).to(real)
    t_extend = (t_extended / temperature - (extended / temperature) * ratio).to(real)
    fractions, exponents = (open_m, extend_m), (open_e.to(real), extend_e.to(real))
    t_costs = (t_open, t_extend)
    turn: tl.constexpr = 0 if penalize_turns else 1
    costs = (fractions + (fractions[turn],), exponents + (exponents[turn],), t_costs + (t_costs[turn],))
    scale = 1 / temperature * LOG2_E
    high = scale.to(real)
    low = scale - high.to(tl.float64)
    lowest = tl.maximum(temperature * LN_2 * -MOST, FORBIDDEN)
    # infinity times a similarity of 0 would be NaN
    slope = tl.minimum(tl.maximum(ratio / temperature, -1e38), 1e38)
    match = (high, low.to(real), (1 / temperature).to(real), slope.to(real), lowest.to(real))
    gap = (open_e.to(real), open_part.to(real), t_open, exponents[1], (extend_bits - extend_e).to(real), t_extend)
    parameters = ((opened, extended), (t_opened, t_extended), temperature, t_temperature)
    return costs, match, gap, valid, parameters


@triton.jit
def constants(
    kind: tl.constexpr, penalize_turns: tl.constexpr, form: tl.constexpr, values, t_values, pair, real: tl.constexpr
):
    """The numbers of constants_along; by axis all that is of gaps twice: along the row, then down the column."""
    own, t_own = parameters_of(kind, form, values, pair), parameters_of(kind, form, t_values, pair)
    last: tl.constexpr = len(own) - 1
    along = constants_along(penalize_turns, own[:2] + own[last:], t_own[:2] + t_own[last:], real)
    if BY_AXIS & form:
        costs, match, gap, valid, parameters = along
        down, match, gap_down, is_valid, others = constants_along(penalize_turns, own[2:], t_own[2:], real)
        costs = (costs[0] + down[0], costs[1] + down[1], costs[2] + down[2])
        parameters = (parameters[0] + others[0], parameters[1] + others[1], parameters[2], parameters[3])
        return costs, match, gap + gap_down, valid & is_valid, parameters
    else:
        return along


@triton.jit
def gaps_at(kind: tl.constexpr, form: tl.constexpr, axis: tl.constexpr, gaps):
    """The numbers of these gaps outside the matrix that open one and, if affine, extend it, and cost anything."""
    if (FREE_ROWS << axis) & form:
        gaps = gaps * 0
    if kind == GLOBAL_AFFINE:
        opened = tl.minimum(gaps, 1)
        return opened, gaps - opened
    else:
        return (gaps,)


@triton.jit
def size_of(has_lengths: tl.constexpr, length, width, pair, rows, cols):
    """The rows and columns of a pair, inside the matrix."""
    if has_lengths:
        own_rows = tl.minimum(tl.maximum(length, 0), rows).to(tl.int32)
        own_cols = tl.minimum(tl.maximum(width, 0), cols).to(tl.int32)
    else:
        own_rows, own_cols = (pair * 0 + rows).to(tl.int32), (pair * 0 + cols).to(tl.int32)
    return own_rows, own_cols


@triton.jit
def whole_number(x):
    """A whole number near x, at most 2 away if x is less than `magic`: two additions instead of a slow conversion.

    An even one: with 1.5 * 2^23 instead of `magic`, negative numbers from 2^22 on would keep a half.
    """
    magic: tl.constexpr = MAGIC_WIDE if x.dtype == tl.float64 else MAGIC
    return (x + magic) - magic


@triton.jit
def affine_border(axis: tl.constexpr, is_gap, worth, never):
    """The states A, R and D outside the matrix: above it (0) or to its left (1), in a gap or before any."""
    matched, in_gap = tl.where(is_gap, never, 0.0), tl.where(is_gap, worth, never)
    return (matched, in_gap, never) if axis == 0 else (matched, never, in_gap)


@triton.jit
def outside(kind: tl.constexpr, tangents: tl.constexpr, gaps, gap, form: tl.constexpr = 0, axis: tl.constexpr = 0):
    """The states of cells outside the matrix, `gaps` gap positions from the corner: fractions, exponents, tangents.

    axis: 0 of those above the matrix, 1 of those to its left.
    """
    zero = tl.zeros_like(gaps)
    if kind == SOFT_DTW:
        states = (zero + 1, tl.where(gaps > 0, zero + NOTHING, zero))
        if tangents:
            states = states + (zero,)
    elif kind >= GLOBAL:
        whole, part, t_gap, whole_further, part_further, t_further = slice_of(gap, axis if BY_AXIS & form else 0, 6)
        counts = gaps_at(kind, form, axis, gaps)
        bits = counts[0] * part
        if kind == GLOBAL_AFFINE:
            bits += counts[1] * part_further
        more = tl.floor(bits + 0.5)
        m, e, x = tl.exp2(bits - more), counts[0] * whole + more, counts[0] * t_gap
        if kind == GLOBAL_AFFINE:
            e = affine_border(axis, counts[0] > 0, e + counts[1] * whole_further, zero + NOTHING)
            m, x = (zero + 1, m, m), (zero, x + counts[1] * t_further, x + counts[1] * t_further)
            states = m + e + x if tangents else m + e
        else:
            states = (m, e, x) if tangents else (m, e)
    elif kind == AFFINE:
        one, nothing = zero + 1, zero + NOTHING
        states = (one, one, one, nothing, nothing, nothing)
        if tangents:
            states = states + (zero, zero, zero)
    else:
        states = (zero + 1, zero + NOTHING)
        if tangents:
            states = states + (zero,)
    return states


@triton.jit
def bits_beyond(whole, amount, high, low):
    """The bits of an amount beyond a whole number near them. high, low: the bits of a unit, in two parts."""
    # Larger ones have no fraction, and what they were rounded by may be more than a power of 2 can hold. In Triton
    # -whole is 0 - whole: an instruction more.
    magic: tl.constexpr = MAGIC_WIDE if amount.dtype == tl.float64 else MAGIC
    return tl.where(tl.abs(whole) < magic, tl.fma(amount, low, tl.fma(amount, high, whole * -1.0)), 0.0)


@triton.jit
def signed(kind: tl.constexpr, value):
    """The similarity of a cost, or the score of a least cost; or the reverse: for soft_dtw minus the value."""
    return 0.0 - value if kind == SOFT_DTW else value


@triton.jit
def match_of(s, t_s, match, tangents: tl.constexpr):
    """The weight of a match and its tangent. s and t_s must be finite where there is no cell."""
    high, low, inverse_t, slope, lowest = match
    allowed = s > lowest
    whole = whole_number(s * high)
    part = bits_beyond(whole, s, high, low)
    e = tl.where(allowed, tl.minimum(whole, MOST), -MOST)
    x = e * 0
    if tangents:
        x = tl.where(allowed, t_s * inverse_t - s * slope, 0.0)
    return tl.exp2(part), e, x


@triton.jit
def ends_of(kind: tl.constexpr, row, widths, own_rows):
    """The columns of each row in which an alignment may end: the first, and how many there are."""
    if kind == LOCAL_ANY:
        return 0, widths
    elif kind >= GLOBAL:
        return widths - 1, tl.where(row == own_rows - 1, 1, 0)
    else:
        return 1, tl.where(row > 0, tl.maximum(widths - 1, 0), 0)
