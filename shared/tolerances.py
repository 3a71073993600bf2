"""The limits and tolerances of the floating-point results, for the implementations, the tests and the parity gate.

Tests and the gate read the same table, so the gate cannot be looser than the tests.
"""

from typing import NamedTuple

import numpy as np

# "Minus infinity" of every recurrence. Finite, because (-inf) - (-inf) in a gradient is NaN. Small enough that its
# weights underflow to 0 at every supported temperature, large enough that LOWEST / temperature**3, which second
# derivatives meet, is still finite in float32 at temperature 1e-3.
LOWEST = -1e20

# The one rule for what is forbidden: a match of this or less, and an alignment whose score is this or less, which needs
# a forbidden match or gap. A pair that has no other alignment scores 0 if local, -inf if global; its derivatives are 0.
FORBIDDEN = LOWEST / 2

# `wavefront` divides everything by the temperature T. Its lowest value is LOWEST times the lesser of 1 / T and
# LARGEST_SCALE * T, or times 1 if that is more: so what is forbidden stays so at every T; and over T, as second
# derivatives meet it, and times the length of an alignment, it is finite in float32.
LARGEST_SCALE = 1e13

# A larger gap is an error, or clipped (by position, or unknown to the host): added to LOWEST it must stay far below
# everything an alignment can be worth.
LARGEST_GAP = 1e18

# The range of temperatures for which results are promised. Beyond it, typical similarities divided by the temperature
# leave the range of the recurrences; long before, scores are those of the exact alignment, or of pure chance. The
# kernels have these limits in cpp/sweep.h and triton/pairs.py.
TEMPERATURES = 1e-15, 1e15

# What `wavefront` holds with block exponents: see block_exponent.py of each framework.
FIRST_EXPONENT = -20  # of a state at the beginning of a block
MOST_DECAY = 80.0  # in bits, by gaps within a block: so no state is below 2^-100
# match weights are below 2^(LARGEST_MATCH - decay): where 2^-e is below 2^-126, less than 2^-24 of a state is lost
LARGEST_MATCH = 82
LARGEST_TOTAL = 2.0**90  # of the states of a block: so what backwards falls below 2^-126 has a probability below 2^-36
MOST_STEEP = 60  # a step between the exponents of neighbours
# of Z, for a local alignment, also over the largest sum of states: then what is below 2^-126 is negligible
LEAST_EXPONENT = -40
# unless gaps make it grow: k gaps of weight g, in 2^k orders, are worth (2 g)^k. At most 2^-126 S (1 + Z) is missing,
# S = rows cols (rows + cols) max(1, 2 g)^(rows + cols): if S has at most so many bits, less than 2^-24 of Z
MOST_GROWTH = 59
# Where S is more, a pair is given up if the weight of a match is between 2^LEAST_LOST / S and 2^MOST_LOST rows cols / g
# (g at most 1). Smaller ones never count; of what follows greater ones, less than 2^-24 begins with gaps below 2^-126.
LEAST_LOST, MOST_LOST = -66, -102

# Step of the reference's central differences for second derivatives, in units of the temperature.
DIFFERENCE_STEP = 1e-5


class Tolerance(NamedTuple):
    """The largest errors allowed against the float64 reference."""

    score: float  # relative to max(|score|, temperature)
    marginals: float  # absolute; marginals lie between 0 and 1
    per_eps: float  # times eps * max|h|, absolute for a score, divided by the temperature for a marginal: see below
    gradient: float  # relative to max(1, largest |gradient|), for gap and temperature
    hvp: float  # relative to the largest |value| of the pair, or 1 / temperature if that is larger


# The worst errors seen, in the same units, over all variants of both frameworks, awkward sizes and the globins:
#   float64: score 2.1e-16, marginals 6.9e-15, gradient 7.7e-15
#   float32: score 4.4e-07, marginals 2.5e-06, gradient 1.3e-05
# of hvp, on the globins: 2.5e-08 (the reference's own differences) and 2.3e-05.
# The room above them is for other devices, whose exp and log are a few units in the last place worse.
TOLERANCES = {
    "float64": Tolerance(score=1e-10, marginals=1e-8, per_eps=8.0, gradient=1e-8, hvp=1e-6),
    "float32": Tolerance(score=1e-5, marginals=1e-4, per_eps=8.0, gradient=1e-4, hvp=1e-4),
}


def score_bound(dtype: str, score: float, largest: float, temperature: float) -> float:
    """Absolute bound on the error of a score. largest: max|h| of the pair, as reference.largest_state gives it.

    A score can be the small difference of large values (of a global alignment, or of one that must end on a match),
    each of which this dtype holds to eps * max|h|.
    """
    tolerance = TOLERANCES[dtype]
    return tolerance.score * max(abs(score), temperature) + tolerance.per_eps * _eps(dtype) * largest


def marginals_bound(dtype: str, largest: float, temperature: float) -> float:
    """Absolute bound on the error of a marginal: differences below eps * max|h| are ties in this dtype."""
    tolerance = TOLERANCES[dtype]
    return tolerance.marginals + tolerance.per_eps * _eps(dtype) * largest / temperature


def hvp_bound(dtype: str, size: float, largest: float, temperature: float) -> float:
    """Absolute bound on the error of a gradient of sum(c * marginals). size: the largest |value| of the pair.

    Second derivatives are covariances of matches divided by the temperature, so they err as marginals do. What they
    are compared with errs too: it is a difference of marginals in float64 over DIFFERENCE_STEP.
    """
    tolerance = TOLERANCES[dtype]
    eps = _eps(dtype) + _eps("float64") / DIFFERENCE_STEP
    relative = tolerance.hvp + tolerance.per_eps * eps * largest / temperature
    return relative * max(size, 1 / temperature)


def _eps(dtype: str) -> float:
    return float(np.finfo(dtype).eps)
