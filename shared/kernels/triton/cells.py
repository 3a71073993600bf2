"""The forward and backward recurrence in a cell, in Triton, independent of where cells lie and which lane has them.

As in the C++ kernels a value is stored as a weight, exp(value / T), in two numbers: fraction * 2^exponent, so that it
does not overflow or vanish at any temperature, and rounding does not accumulate along a path. A smooth maximum is a sum
of weights, an addition a product; the part of the sum that is due to a choice is its share. The tangent of a state is
that of value / T, in natural units: the mean of its choices' tangents, weighted by their shares.

A neighbour's states are a tuple, and so are the costs: (open, extend, turn), of which a linear gap is the first. By
axis there are six: of gaps along the row, then down the column.
tests/test_cuda_without_a_gpu.py checks that the choices agree with shared/alignments.py. Source of the recurrences:
Petti et al. 2021, doi:10.1101/2021.10.23.465204.
"""

import triton
import triton.language as tl

# the numbers of shared.kernels.cpp's calls
LOCAL_ANY = tl.constexpr(0)
LOCAL_MATCH = tl.constexpr(1)
AFFINE = tl.constexpr(2)
GLOBAL = tl.constexpr(3)
FREE_GAP = tl.constexpr(4)
SOFT_DTW = tl.constexpr(5)
GLOBAL_AFFINE = tl.constexpr(6)
# those from GLOBAL on are global alignments


@triton.jit
def plus(a, b, product: tl.constexpr):
    """The sum of two values; for fractions of weights, their product."""
    return a * b if product else a + b


@triton.jit
def choices(kind: tl.constexpr, restrict_turns: tl.constexpr, product: tl.constexpr, s, diagonal, left, up, costs):
    """The choices of each state's smooth maximum: products of fractions, or sums of exponents or tangents.

    Those from the diagonal come first; a start is the last one.
    """
    gap = costs[0]
    down = costs[len(costs) - 3 :]
    if kind == AFFINE or kind == GLOBAL_AFFINE:
        match = (plus(diagonal[0], s, product), plus(diagonal[1], s, product), plus(diagonal[2], s, product))
        if kind == AFFINE:
            match = match + (s,)
        in_row = (plus(left[0], gap, product), plus(left[1], costs[1], product))
        if not restrict_turns:
            in_row = in_row + (plus(left[2], costs[2], product),)
        in_column = (plus(up[0], down[0], product), plus(up[1], down[2], product), plus(up[2], down[1], product))
        return match, in_row, in_column
    else:
        gaps = (plus(up[0], down[0], product), plus(left[0], gap, product))
        if kind == SOFT_DTW:
            gaps = (plus(up[0], s, product), plus(left[0], s, product))
        if kind == LOCAL_ANY or kind == LOCAL_MATCH:
            return ((plus(diagonal[0], s, product),) + gaps + (s,),)
        else:
            return ((plus(diagonal[0], s, product),) + gaps,)


@triton.jit
def to_neighbours(kind: tl.constexpr, restrict_turns: tl.constexpr, by_axis: tl.constexpr, parts):
    """Gradients with respect to the states of three neighbours, the match and the costs, from those of the choices.

    parts: for each state, for each of its choices, d score / d choice.
    """
    match = parts[0]
    if kind == AFFINE or kind == GLOBAL_AFFINE:
        in_row, in_column = parts[1], parts[2]
        matched = (match[0] + match[1]) + (match[2] + match[3] if kind == AFFINE else match[2])
        to_left, turns = (in_row[0], in_row[1], tl.zeros_like(in_row[0])), in_column[1]
        if not restrict_turns:
            to_left, turns = in_row, turns + in_row[2]
        to_costs = (in_row[0] + in_column[0], in_row[1] + in_column[2], turns)
        if by_axis:
            to_costs = to_left + (in_column[0], in_column[2], in_column[1])
        return match[:3], to_left, in_column, matched, to_costs
    else:
        matched = match[0]
        if kind == LOCAL_ANY or kind == LOCAL_MATCH:
            matched += match[3]
        if kind == SOFT_DTW:
            matched += match[1] + match[2]
        to_costs = (match[2], match[1]) if by_axis else (match[1] + match[2],)
        return match[:1], match[2:3], match[1:2], matched, to_costs


@triton.jit
def normalized(m, e):
    """Weights m * 2^e, m any positive number, with the fraction normalized to between 1 and 2."""
    if m.dtype == tl.float64:
        bits = m.to(tl.int64, bitcast=True)
        exponent = ((bits >> 52) - 1023).to(tl.float64)
        fraction = ((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).to(tl.float64, bitcast=True)
    else:
        bits = m.to(tl.int32, bitcast=True)
        exponent = ((bits >> 23) - 127).to(tl.float32)
        fraction = ((bits & 0x7FFFFF) | 0x3F800000).to(tl.float32, bitcast=True)
    return fraction, e + exponent


@triton.jit
def highest(values):
    """The largest of a tuple of vectors, place by place."""
    top = values[0]
    for k in tl.static_range(1, len(values)):
        top = tl.maximum(top, values[k])
    return top


@triton.jit
def at_highest(values, others, top, other):
    """The second tuple's value at the place of the first one's highest, or `other` if none is above top."""
    for k in tl.static_range(len(values)):
        is_higher = values[k] > top
        other = tl.where(is_higher, others[k], other)
        top = tl.maximum(top, values[k])
    return other


@triton.jit
def from_best(weights, values):
    """A tuple of values less that of the largest weight, and that one.

    Tangents of long alignments are large, and differ little; and one that nobody takes may be much larger than all
    others.
    """
    base, most = values[0], weights[0]
    for c in tl.static_range(1, len(weights)):
        base = tl.where(weights[c] > most, values[c], base)
        most = tl.maximum(most, weights[c])
    return less(values, base), base


@triton.jit
def less(values, amount):
    """Each of a tuple of vectors, less a vector."""
    differences = ()
    for k in tl.static_range(len(values)):
        differences = differences + (values[k] - amount,)
    return differences


@triton.jit
def dot(weights, values):
    """Sum of products of two tuples of vectors."""
    total = weights[0] * values[0]
    for k in tl.static_range(1, len(weights)):
        total += weights[k] * values[k]
    return total


@triton.jit
def added(values, others):
    """The sums of two tuples of vectors; the first may be longer."""
    sums = ()
    for k in tl.static_range(len(values)):
        sums = sums + (values[k] + others[k].to(values[k].dtype) if k < len(others) else values[k],)
    return sums


@triton.jit
def scaled(m, e, top):
    """Weights m * 2^e in units of 2^top, for a tuple of them."""
    weights = ()
    for k in tl.static_range(len(m)):
        weights = weights + (m[k] * tl.exp2(e[k] - top),)
    return weights


@triton.jit
def summed(values):
    total = values[0]
    for k in tl.static_range(1, len(values)):
        total += values[k]
    return total


@triton.jit
def smooth_maximum(m, e):
    """The sum of weights, its fraction not normalized: at most the number of choices times the largest fraction."""
    top = highest(e)
    return summed(scaled(m, e, top)), top


@triton.jit
def reciprocal(x):
    """1 / x for x far from the limits of floats; faster than a division, which covers those."""
    if x.dtype == tl.float64:
        return 1 / x
    else:
        root = tl.rsqrt(x)
        near = root * root
        return tl.fma(near, tl.fma(x * -1.0, near, 1.0), near)


@triton.jit
def shares(m, e):
    """The share of each choice in the sum of weights."""
    weights = scaled(m, e, highest(e))
    scale = reciprocal(summed(weights))
    parts = ()
    for k in tl.static_range(len(m)):
        parts = parts + (weights[k] * scale,)
    return parts


@triton.jit
def entropy(m, e, weights):
    """The entropy of the shares, in bits: the smooth maximum less the mean of the values."""
    top = highest(e)
    bits = tl.log2(summed(scaled(m, e, top)))
    for k in tl.static_range(len(m)):
        bits -= weights[k] * ((e[k] - top) + tl.log2(m[k]))
    return bits


@triton.jit
def all_choices(
    kind: tl.constexpr,
    restrict_turns: tl.constexpr,
    tangents: tl.constexpr,
    states: tl.constexpr,
    s,
    diagonal,
    left,
    up,
    costs,
):
    """The choices of each state: their fractions, their exponents, and their tangents, else the exponents again."""
    m = choices(kind, restrict_turns, True, s[0], diagonal[:states], left[:states], up[:states], costs[0])
    of = slice_of(diagonal, 1, states), slice_of(left, 1, states), slice_of(up, 1, states)
    e = choices(kind, restrict_turns, False, s[1], of[0], of[1], of[2], costs[1])
    x = e
    if tangents:
        of = slice_of(diagonal, 2, states), slice_of(left, 2, states), slice_of(up, 2, states)
        x = choices(kind, restrict_turns, False, s[2], of[0], of[1], of[2], costs[2])
    return m, e, x


@triton.jit
def slice_of(values, k: tl.constexpr, states: tl.constexpr):
    """The k-th `states` of a tuple."""
    return values[k * states : (k + 1) * states]
