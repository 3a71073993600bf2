"""Global alignment with a linear gap, smoothed, cell by cell in float64: needleman_wunsch, and with gap 0 free_gap.

On a grid one larger than the similarity, so that h[i][j] is the score of the first i rows and j columns:

    h[0][0] = 0,  h[i][0] = i * gap,  h[0][j] = j * gap
    h[i][j] = smax( h[i-1][j-1] + s[i-1][j-1], h[i][j-1] + gap, h[i-1][j] + gap )
    score = h[rows][cols]

A gap may also be a matrix like the similarity: a step to h[i][j] then costs gap[i-1][j-1], and h[i][0] = h[0][j] = 0.

A pair without rows or columns has one alignment, all gaps, and needs no rule of its own. The backward recurrence
walks the cells in the opposite order, as in local_linear. Source: Needleman and Wunsch 1970,
doi:10.1016/0022-2836(70)90057-4; smoothed as in Petti et al. 2021, doi:10.1101/2021.10.23.465204.
"""

import numpy as np

from shared.reference.gaps import Gap, as_given, by_position, in_each_cell
from shared.reference.smooth import entropy, smooth_maximum, weights


def score(similarity: np.ndarray, *, gap: Gap, temperature: float) -> float:
    """Score of one pair. similarity: float64 (rows, cols), each at least 0; gap: a number, or (rows, cols)."""
    return _fill(similarity, gap, temperature)[-1][-1]


def gradients(similarity: np.ndarray, *, gap: Gap, temperature: float) -> dict[str, np.ndarray | float]:
    """Exact derivatives of `score`: similarity (rows, cols), gap (as it is given) and temperature."""
    rows, cols = similarity.shape
    s, costs = similarity.tolist(), in_each_cell(gap, (rows, cols))
    h = _fill(similarity, gap, temperature)
    to_similarity, to_gap = np.zeros((2, rows, cols))
    to_temperature = 0.0
    to_cell = np.zeros((rows + 1, cols + 1)).tolist()
    to_cell[rows][cols] = 1.0
    for i in reversed(range(rows)):
        for j in reversed(range(cols)):
            v = to_cell[i + 1][j + 1]
            diagonal, left, up = shares = weights(_choices(s[i][j], h, i, j, costs[i][j]), h[i + 1][j + 1], temperature)
            to_cell[i][j] += v * diagonal
            to_cell[i + 1][j] += v * left
            to_cell[i][j + 1] += v * up
            to_similarity[i, j] = v * diagonal
            to_gap[i, j] = v * (left + up)
            to_temperature += v * entropy(shares)
    slope = as_given(to_gap, gap)
    if not by_position(gap):
        slope += sum(i * to_cell[i][0] for i in range(rows + 1)) + sum(j * to_cell[0][j] for j in range(1, cols + 1))
    return {"similarity": to_similarity, "gap": slope, "temperature": to_temperature}


def largest(similarity: np.ndarray, *, gap: Gap, temperature: float) -> float:
    """The largest |h| of one pair."""
    return max(abs(value) for row in _fill(similarity, gap, temperature) for value in row)


def _choices(s: float, h: list, i: int, j: int, gap: float) -> tuple[float, float, float]:
    return h[i][j] + s, h[i + 1][j] + gap, h[i][j + 1] + gap


def _fill(similarity: np.ndarray, gap: Gap, temperature: float) -> list:
    rows, cols = similarity.shape
    s, costs = similarity.tolist(), in_each_cell(gap, (rows, cols))
    outside = 0.0 if by_position(gap) else gap
    h = [[(i + j) * outside if i == 0 or j == 0 else 0.0 for j in range(cols + 1)] for i in range(rows + 1)]
    for i in range(rows):
        for j in range(cols):
            h[i + 1][j + 1] = smooth_maximum(_choices(s[i][j], h, i, j, costs[i][j]), temperature)
    return h
