"""The constants of a pair, in Triton: its size, parameters, border, similarities and ends."""

import triton
import triton.language as tl

from shared.kernels.triton.cells import AFFINE, FREE_GAP, GLOBAL, LOCAL_ANY, SOFT_DTW

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


@triton.jit
def parameters_of(kind: tl.constexpr, open_by_position: tl.constexpr, extend_by_position: tl.constexpr, values, pair):
    """open, extend and temperature in float64. A gap that the pair has not, being by position, is 0."""
    if kind == AFFINE:
        of_pair = values + pair * 3
        a, b, c = tl.load(of_pair), tl.load(of_pair + 1), tl.load(of_pair + 2)
        opened, extended, temperature = a.to(tl.float64), b.to(tl.float64), c.to(tl.float64)
        if open_by_position:
            opened = temperature * 0
        if extend_by_position:
            extended = temperature * 0
        return opened, extended, temperature
    elif kind >= FREE_GAP:
        temperature = tl.load(values + pair).to(tl.float64)
        return temperature * 0, temperature * 0, temperature
    elif open_by_position:
        temperature = tl.load(values + pair * 2 + 1).to(tl.float64)
        return temperature * 0, temperature * 0, temperature
    else:
        gap = tl.load(values + pair * 2).to(tl.float64)
        return gap, gap, tl.load(values + pair * 2 + 1).to(tl.float64)


@triton.jit
def clamped(gap):
    """A gap clamped to the limits; NaN stays NaN."""
    return tl.where(gap < LOWEST, LOWEST, tl.where(gap > LARGEST_GAP, LARGEST_GAP, gap))


@triton.jit
def bits_of(amount, temperature):
    return tl.minimum(tl.maximum(amount / temperature * LOG2_E, -MOST), MOST)


@triton.jit
def constants(
    kind: tl.constexpr,
    penalize_turns: tl.constexpr,
    open_by_position: tl.constexpr,
    extend_by_position: tl.constexpr,
    values,
    t_values,
    pair,
    real: tl.constexpr,
):
    """The constants that follow from a pair's parameters, and the parameters themselves in float64."""
    opened, extended, temperature = parameters_of(kind, open_by_position, extend_by_position, values, pair)
    t_opened, t_extended, t_temperature = parameters_of(kind, open_by_position, extend_by_position, t_values, pair)
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
    gap = (open_e.to(real), open_part.to(real), t_open)
    parameters = (opened, extended, temperature, t_opened, t_temperature)
    return costs, match, gap, valid, parameters


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

    Of the even ones, because next to 1.5 * 2^23 negative numbers from 2^22 on would keep a half.
    """
    magic: tl.constexpr = MAGIC_WIDE if x.dtype == tl.float64 else MAGIC
    return (x + magic) - magic


@triton.jit
def outside(kind: tl.constexpr, tangents: tl.constexpr, gaps, gap):
    """The states of cells outside the matrix, `gaps` gap positions from the corner: fractions, exponents, tangents."""
    zero = tl.zeros_like(gaps)
    if kind == SOFT_DTW:
        states = (zero + 1, tl.where(gaps > 0, zero + NOTHING, zero))
        if tangents:
            states = states + (zero,)
    elif kind >= GLOBAL:
        whole, part, t_gap = gap
        more = tl.floor(gaps * part + 0.5)
        states = (tl.exp2(gaps * part - more), gaps * whole + more)
        if tangents:
            states = states + (gaps * t_gap,)
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
    """A similarity or score, of a cost or the least cost; and back."""
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
