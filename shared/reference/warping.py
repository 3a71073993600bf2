"""Soft dynamic time warping, cell by cell in float64, of a similarity that is minus the cost.

On a grid one larger than the similarity, where h is -inf along the border but in the corner:

    h[0][0] = 0
    h[i][j] = s[i-1][j-1] + smax( h[i-1][j-1], h[i][j-1], h[i-1][j] )
    score = h[rows][cols], but 0 without rows or columns

The backward recurrence walks the cells in the opposite order, as in local_linear. Source: Cuturi and Blondel 2017,
arXiv:1703.01541.
"""

from math import inf, isinf

import numpy as np

from shared.reference.smooth import entropy, smooth_maximum, weights


def score(similarity: np.ndarray, *, temperature: float) -> float:
    """Score of one pair. similarity: float64 (rows, cols), each at least 0."""
    return _fill(similarity, temperature)[-1][-1]


def gradients(similarity: np.ndarray, *, temperature: float) -> dict[str, np.ndarray | float]:
    """Exact derivatives of `score`: similarity (rows, cols) and temperature."""
    rows, cols = similarity.shape
    h = _fill(similarity, temperature)
    to_cell = np.zeros((rows + 1, cols + 1))
    to_cell[rows, cols] = 1.0
    to_temperature = 0.0
    for i in reversed(range(rows)):
        for j in reversed(range(cols)):
            v, before = to_cell[i + 1, j + 1], _before(h, i, j)
            shares = weights(before, smooth_maximum(before, temperature), temperature)
            for (row, col), share in zip(((i, j), (i + 1, j), (i, j + 1)), shares, strict=True):
                to_cell[row, col] += v * share
            to_temperature += v * entropy(shares)
    return {"similarity": to_cell[1:, 1:], "temperature": to_temperature}


def largest(similarity: np.ndarray, *, temperature: float) -> float:
    """The largest |h| of one pair, -inf left out."""
    return max(abs(value) for row in _fill(similarity, temperature) for value in row if not isinf(value))


def _before(h: list, i: int, j: int) -> tuple[float, float, float]:
    return h[i][j], h[i + 1][j], h[i][j + 1]


def _fill(similarity: np.ndarray, temperature: float) -> list:
    rows, cols = similarity.shape
    h = [[0.0 if i == j == 0 or 0 in (rows, cols) else -inf for j in range(cols + 1)] for i in range(rows + 1)]
    for i, row in enumerate(similarity.tolist()):
        for j, s in enumerate(row):
            h[i + 1][j + 1] = s + smooth_maximum(_before(h, i, j), temperature)
    return h
