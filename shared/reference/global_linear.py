"""Global alignment with a linear gap, smoothed, cell by cell in float64: needleman_wunsch, and with gap 0 free_gap.

On a grid one larger than the similarity, so that h[i][j] is the score of the first i rows and j columns:

    h[0][0] = 0
    h[i][j] = smax( h[i-1][j-1] + s[i-1][j-1], h[i][j-1] + gap, h[i-1][j] + gap )      of what lies on the grid
    score = h[rows][cols]

There may be a gap for each of the two directions, or a matrix like the similarity: a step to h[i][j] then costs
gap[i-1][j-1], and one along the border nothing. Free end gaps cost nothing in the first and the last row of the grid,
or column.

A pair without rows or columns has one alignment, all gaps, and needs no rule of its own. The backward recurrence
walks the cells in the opposite order, as in local_linear. Source: Needleman and Wunsch 1970,
doi:10.1016/0022-2836(70)90057-4; smoothed as in Petti et al. 2021, doi:10.1101/2021.10.23.465204.
"""

from math import inf, isinf

import numpy as np

from shared.reference.gaps import COLS, ROWS, Gap, are_paid, as_given, of_steps
from shared.reference.smooth import entropy, smooth_maximum, weights


def score(similarity: np.ndarray, *, gap: Gap, temperature: float, end_gaps: str = "cost") -> float:
    """Score of one pair. similarity: float64 (rows, cols), each at least 0; gap: a number, two, or (rows, cols)."""
    return _fill(similarity, gap, temperature, end_gaps)[-1][-1]


def gradients(
    similarity: np.ndarray, *, gap: Gap, temperature: float, end_gaps: str = "cost"
) -> dict[str, np.ndarray | float]:
    """Exact derivatives of `score`: similarity (rows, cols), gap (as it is given) and temperature."""
    rows, cols = similarity.shape
    paid = are_paid((rows, cols), end_gaps)
    s, costs = similarity.tolist(), of_steps(gap, paid).tolist()
    h = _fill(similarity, gap, temperature, end_gaps)
    to_similarity, to_gap = np.zeros((rows, cols)), np.zeros(paid.shape)
    to_temperature = 0.0
    to_cell = np.zeros((rows + 1, cols + 1)).tolist()
    to_cell[rows][cols] = 1.0
    for i, j in reversed(_corners(rows, cols)):
        v = to_cell[i][j]
        diagonal, left, up = shares = weights(_choices(s, h, i, j, costs), h[i][j], temperature)
        if i and j:
            to_cell[i - 1][j - 1] += v * diagonal
            to_similarity[i - 1, j - 1] = v * diagonal
        if j:
            to_cell[i][j - 1] += v * left
            to_gap[ROWS, i, j] = v * left
        if i:
            to_cell[i - 1][j] += v * up
            to_gap[COLS, i, j] = v * up
        to_temperature += v * entropy(shares)
    return {"similarity": to_similarity, "gap": as_given(to_gap, paid, gap), "temperature": to_temperature}


def largest(similarity: np.ndarray, *, gap: Gap, temperature: float, end_gaps: str = "cost") -> float:
    """The largest |h| of one pair, of the cells that an alignment can reach."""
    h = _fill(similarity, gap, temperature, end_gaps)
    return max(abs(value) for row in h for value in row if not isinf(value))


def _choices(s: list, h: list, i: int, j: int, costs: list) -> tuple[float, float, float]:
    return (
        h[i - 1][j - 1] + s[i - 1][j - 1] if i and j else -inf,
        h[i][j - 1] + costs[ROWS][i][j] if j else -inf,
        h[i - 1][j] + costs[COLS][i][j] if i else -inf,
    )


def _fill(similarity: np.ndarray, gap: Gap, temperature: float, end_gaps: str) -> list:
    rows, cols = similarity.shape
    s, costs = similarity.tolist(), of_steps(gap, are_paid((rows, cols), end_gaps)).tolist()
    h = np.zeros((rows + 1, cols + 1)).tolist()
    for i, j in _corners(rows, cols):
        h[i][j] = smooth_maximum(_choices(s, h, i, j, costs), temperature)
    return h


def _corners(rows: int, cols: int) -> list[tuple[int, int]]:
    """All but the first, row by row."""
    return [(i, j) for i in range(rows + 1) for j in range(cols + 1) if i or j]
