"""The gate of a gradient that nobody has written in NumPy: its slopes along random directions.

    g · d  =  (F(d h) - F(-d h)) / 2h,    with F(d) the function at its inputs moved by d

for a few d of random signs, each number's in units of its scale. A wrong entry of g is seen if it is off by what is
allowed of the whole gradient's norm. The difference itself is wrong where F is curved, rounded or has a kink nearby:
how far, is told by twice the step.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from shared.problems.problem import Verdict

# Of the gradient's size: the root mean square of the slopes, which is about the norm of g. Of soft-DTW, 64 x 64, they
# are off by 4e-6 in float32 and 3e-10 in float64.
ALLOWED = {"float32": 1e-4, "float64": 1e-7}
_DIRECTIONS = 8
# 2 h. Largest relative error seen in float64, of soft-DTW, smooth Smith-Waterman and log-sum-exp at temperature 0.01:
# 7e-9 with 1e-6 (rounding), 2e-9 with 1e-5, 2e-7 with 1e-4 (curvature).
_STEP = 1e-5
# Errors of slopes were up to 0.9 of what the two steps disagree by.
_MARGIN = 2.0
_TINY = float(np.finfo(np.float64).tiny)


class Slopes(NamedTuple):
    """Directional derivatives of F, one for each direction."""

    values: np.ndarray
    doubts: np.ndarray  # by how much they may be wrong


def directions(scales: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """Each of the shape of scales: random signs times these."""
    generator = np.random.default_rng([seed, 2])
    for _ in range(_DIRECTIONS):
        yield scales * generator.choice((-1.0, 1.0), scales.size)


def slopes_of(function: Callable[[np.ndarray], float], scales: np.ndarray, seed: int) -> Slopes:
    """The slopes of F, for 4 calls of it in each direction. scales: one for each number that is moved, flat."""
    centre = function(np.zeros_like(scales))
    in_directions = [_slope(function, centre, direction) for direction in directions(scales, seed)]
    slopes, doubts = np.transpose(in_directions)
    # rounding is the same in all directions; that the two steps agree in one is chance
    return Slopes(slopes, _MARGIN * np.maximum(doubts, np.median(doubts)))


def _slope(function: Callable[[np.ndarray], float], centre: float, direction: np.ndarray) -> tuple[float, float]:
    """The central difference with half the step, and by how much it differs from the one with all of it.

    A kink at the inputs themselves bends both alike: forward and backward difference are then apart by the same amount
    for both steps, where those of a smooth function are apart by half as much.
    """
    (ahead, behind), (near_ahead, near_behind) = (
        (function(step * direction), function(-step * direction)) for step in (_STEP, _STEP / 2)
    )
    slope = (near_ahead - near_behind) / _STEP
    change = abs((ahead - behind) / (2 * _STEP) - slope)
    bend, near_bend = (ahead - 2 * centre + behind) / _STEP, (near_ahead - 2 * centre + near_behind) / (_STEP / 2)
    return slope, change + abs(2 * near_bend - bend)


def judge_slopes(gradient: np.ndarray, expected: Slopes, scales: np.ndarray, seed: int, dtype: str) -> Verdict:
    """A verdict on a gradient, flat, in the order of scales."""
    slopes = np.array([gradient.astype(np.float64) @ direction for direction in directions(scales, seed)])
    tolerance = ALLOWED[dtype] * float(np.sqrt(np.mean(expected.values**2)))
    errors, allowed = np.abs(slopes - expected.values), tolerance + expected.doubts + _TINY
    worst = int(np.argmax(errors / allowed))
    text = f"gradient along a random direction off by {errors[worst]:.1e}, allowed {allowed[worst]:.1e}"
    doubt, remark = float(expected.doubts.max()), None
    if doubt > tolerance:
        remark = f"the reference's differences hold to {doubt:.1e} only, where {tolerance:.1e} is asked for: a kink?"
        text += f"; {remark}"
    return Verdict(bool(errors[worst] <= allowed[worst]), text, float(errors[worst] / allowed[worst]), remark)
