"""The smooth maximum of a few numbers, its weights and their entropy, in float64.

Temperature 0 is the limit: the maximum, and all weight on the first of the largest.
"""

from collections.abc import Sequence
from math import exp, inf, log


def smooth_maximum(values: Sequence[float], temperature: float) -> float:
    """temperature * log(sum of exp(value / temperature)); -inf when every value is -inf."""
    highest = max(values)
    if highest == -inf or temperature == 0:
        return highest
    return highest + temperature * log(sum([exp((value - highest) / temperature) for value in values]))


def weights(values: Sequence[float], smooth: float, temperature: float) -> list[float]:
    """d smooth / d value for each value; `smooth` is their smooth maximum. All 0 when nothing is possible."""
    if smooth == -inf:
        return [0.0] * len(values)
    if temperature == 0:
        best = values.index(smooth)
        return [float(number == best) for number in range(len(values))]
    return [exp((value - smooth) / temperature) for value in values]


def entropy(shares: Sequence[float]) -> float:
    """d smooth / d temperature: (smooth - sum of share * value) / temperature, which is the entropy of the weights."""
    return -sum([share * log(share) for share in shares if share > 0.0])
