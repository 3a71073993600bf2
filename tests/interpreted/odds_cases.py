"""Pairs near what plain odds hold, on both sides: similarities and gaps, most of them in bits."""

from typing import Any

import numpy as np

from shared.kernels.triton.programs import Chunk

# rows to a lane, and blocks of steps to a chunk
CHUNKS = (Chunk(8, 1, 8), Chunk(16, 2, 8, warps=2), Chunk(16, 2, 16))
BIT = float(np.log(2))  # of a value at temperature 1
FORBIDDEN = -1e30


def one(value: float, size: int = 4) -> np.ndarray:
    """Similarities of 0, but for one."""
    table = np.zeros((size, size))
    table[1, 2] = value
    return table


def two_matches(cols: int) -> np.ndarray:
    """The second one of 2^40, where a block ends."""
    table = np.full((2, cols), FORBIDDEN)
    table[0, 6], table[1, 7] = 0, 39 * BIT
    return table


# what has a flag in a score and in a gradient, and what has none
BOUNDS = {
    "a gap's cost": ("any", -27.1 * BIT, [np.zeros((3, 3))], [1]),
    "a gap's gain": ("global", 27.1 * BIT, [np.zeros((2, 2))], [1]),
    "a match": ("any", -1.0, [one(39.9 * BIT), one(40.1 * BIT)], [0, 1]),
    "what is no number": ("any", -1.0, [one(np.nan), one(np.inf), one(-np.inf), one(FORBIDDEN)], [1, 1, 0, 0]),
    "nor globally": ("global", -1.0, [one(np.nan), one(np.inf), one(-np.inf), one(FORBIDDEN)], [1, 1, 0, 0]),
    "no number in the last cell": ("match", -1.0, [[[0, 0], [0, np.nan]]], [1]),
    "an opened gap's cost": ("affine", (-27.1 * BIT, -1.0), [np.zeros((3, 3))], [1]),
    "an extended gap's cost": ("turns", (-1.0, -27.1 * BIT), [np.zeros((3, 3))], [1]),
    "an affine gap's gain": ("affine", (-1.0, 27.1 * BIT), [np.zeros((2, 2))], [1]),
    "a total": ("any", -1.0, [[[-39.9 * BIT]], [[-40.1 * BIT]]], [0, 1]),
    "no way": ("match", -1.0, [np.full((3, 3), FORBIDDEN)], [1]),
    "none but by a forbidden gap": ("match", -1e38, [[[-2, FORBIDDEN, FORBIDDEN], [FORBIDDEN, FORBIDDEN, 1]]], [1]),
}


# for lanes with two rows: how far the first one may sink beside the second
STATES = {
    "a state": ("any", -12 * BIT, [two_matches(10), two_matches(11)], [0, 1]),
    "a state beside a gap": ("affine", (-20 * BIT, -8 * BIT), [two_matches(8), two_matches(9)], [0, 1]),
    "a way around": ("any", -23.7 * BIT, [np.zeros((3, 3))], [1]),
    "one before a match": ("global", -15.7 * BIT, [one(39 * BIT), one(39.9 * BIT)], [0, 1]),
    # gaps, of which there are many, that gain; from a match whose odds are 0 in float32
    "a gain": ("any", 18.7, [[[-105.0, *[FORBIDDEN] * 5, 0.0]]], [1]),
    "a small gain": ("any", 0.5, [[*[[-110.0] * 60] * 59, [*[-110.0] * 59, 0.0]]], [1]),
}


def _diagonal(size: int, own: Any, others: float) -> np.ndarray:
    table = np.full((size, size), float(others))
    np.fill_diagonal(table, own)
    return table


def _ridges(height: float, last: float, between: float = 39.9) -> np.ndarray:
    """Two side by side, which from one block of steps to the next rise by more than a unit holds."""
    table = np.full((8, 9), -300.0)
    for k in range(4):
        table[2 + k, 3 + k] = table[k, 3 + k] = height
    table[4, 7], table[6, 7], table[7, 8] = between, last, last
    return table


_RANDOM = np.random.default_rng(5)
# rises by 2^127 without an end, and has a small one then
_ENDLESS = np.full((32, 30), -300.0)
_ENDLESS[[0, 29, 30, 31, 31], [0, 6, 7, 8, 29]] = 0, 30.4, 30.4, 30.4, -38.4
# in bits, by chunk: a gap, and similarities that come near to what fits, by chance on one side of it or the other
HARD: dict[Chunk, list[tuple[float, np.ndarray]]] = {
    CHUNKS[0]: [
        # from one block of steps to the next more than a unit holds
        (-11, _ridges(30, 20)),
        (-8, _ridges(32, 39.9)),
        (-11.6, np.pad(_ridges(27.8, 32.3, 28.1)[::-1, ::-1], ((1, 0), (2, 0)), constant_values=-300.0)),
        (-7, _diagonal(17, [10] * 4 + [-49] + [12] * 4 + [-80] * 2 + [20] * 6, -150)),  # sinks, and returns
        (-3, _RANDOM.normal(size=(18, 18)) * 3 + 12 * _RANDOM.choice([-1, 1], size=(18, 1))),
        (-0.5, np.array([[39.0] + [FORBIDDEN] * 40, [38.0, *np.arange(1, 41) / BIT]])),  # a long decay
        (-2, _diagonal(18, [39] + [-1] * 16 + [39], -300)),
    ],
    CHUNKS[1]: [
        (-26.9, np.array([[39.0] + [-3] * 3] + [[-3.0] * 4] * 12)),  # from lane to lane another unit
        (-26.9, _diagonal(12, [-40, 39] * 6, -90)),  # what comes from the corner is 2^54 times its neighbours
        (-1, _diagonal(18, 15, -60)),  # near overflow within a block
        (-20, np.where(np.indices((17, 17)).sum(0) % 2, 30.0, -30.0)),
    ],
    CHUNKS[2]: [
        (0, np.full((18, 18), -20.0)),  # the ways are so many that they outweigh their odds
        (0.7, np.full((17, 18), -3.0)),
        (-8, np.where(np.indices((18, 18))[1] % 9 == 8, 39.0, -100.0)),
    ],
    Chunk(8, 4, 8): [(1.9, _ENDLESS)],
}
