"""Local alignment with a linear gap, smoothed, cell by cell in float64: smith_waterman.

    h(i,j) = smax( s(i,j), h(i-1,j-1) + s(i,j), h(i,j-1) + gap_rows(i,j), h(i-1,j) + gap_cols(i,j) )

    end="any":   score = smax over all cells of h(i,j)
    end="match": score = smax over i >= 1, j >= 1 of h(i-1,j-1) + s(i,j)

The backward recurrence walks the cells in the opposite order. With v(i,j) = d score / d h(i,j), each of the four
choices x of a cell receives v * exp((x - h) / T), and the cell itself adds v * (entropy of these weights) to the
derivative for T. At T = 0 the maximum goes to the first of the largest, in the order above, and that of the ends to the
first, row by row. Source of the recurrence: Petti et al. 2021, doi:10.1101/2021.10.23.465204.
"""

from math import isinf

import numpy as np

from shared.reference.gaps import COLS, ROWS, Gap, are_paid, as_given, of_steps
from shared.reference.smooth import entropy, smooth_maximum, weights

OUTSIDE = -np.inf


def score(similarity: np.ndarray, *, gap: Gap, temperature: float, end: str) -> float:
    """Score of one pair. similarity: float64 (rows, cols), each at least 0; gap: a number, two, or (rows, cols).

    -inf without an alignment: where there are too few rows or columns, or all is forbidden.
    """
    h = _fill(similarity, gap, temperature)
    values = list(_endings(similarity, h, end).values())
    return smooth_maximum(values, temperature) if values else OUTSIDE


def gradients(similarity: np.ndarray, *, gap: Gap, temperature: float, end: str) -> dict[str, np.ndarray | float]:
    """Exact derivatives of `score`: similarity (rows, cols), gap (as it is given) and temperature."""
    rows, cols = similarity.shape
    paid = are_paid((rows, cols))
    s, costs = similarity.tolist(), of_steps(gap, paid).tolist()
    h = _fill(similarity, gap, temperature)
    endings = _endings(similarity, h, end)
    to_similarity, to_gap = np.zeros((rows, cols)), np.zeros(paid.shape)
    if not endings:
        return {"similarity": to_similarity, "gap": as_given(to_gap, paid, gap), "temperature": 0.0}

    values = list(endings.values())
    end_weights = weights(values, smooth_maximum(values, temperature), temperature)
    to_temperature = entropy(end_weights)
    to_cell = np.zeros((rows + 1, cols + 1)).tolist()  # v, shifted by one like h
    for (i, j), weight in zip(endings, end_weights, strict=True):
        if end == "any":
            to_cell[i + 1][j + 1] += weight
        else:
            to_cell[i][j] += weight
            to_similarity[i, j] += weight

    for i in reversed(range(rows)):
        for j in reversed(range(cols)):
            v = to_cell[i + 1][j + 1]
            if v == 0.0:
                continue
            choices = _choices(s[i][j], h, i, j, costs)
            start, diagonal, left, up = shares = weights(choices, h[i + 1][j + 1], temperature)
            to_cell[i][j] += v * diagonal
            to_cell[i + 1][j] += v * left
            to_cell[i][j + 1] += v * up
            to_similarity[i, j] += v * (diagonal + start)
            to_gap[:, i + 1, j + 1] = v * left, v * up
            to_temperature += v * entropy(shares)
    return {"similarity": to_similarity, "gap": as_given(to_gap, paid, gap), "temperature": to_temperature}


def largest(similarity: np.ndarray, *, gap: Gap, temperature: float, end: str) -> float:
    """The largest |h| of one pair, of the cells that an alignment can reach."""
    h = _fill(similarity, gap, temperature)
    return max((abs(value) for row in h for value in row if not isinf(value)), default=0.0)


def _choices(s: float, h: list, i: int, j: int, costs: list) -> tuple[float, float, float, float]:
    along_row, along_column = costs[ROWS][i + 1][j + 1], costs[COLS][i + 1][j + 1]
    return s, h[i][j] + s, h[i + 1][j] + along_row, h[i][j + 1] + along_column


def _fill(similarity: np.ndarray, gap: Gap, temperature: float) -> list:
    """h, one larger than s: h[i+1][j+1] belongs to cell (i, j), the first row and column lie outside."""
    rows, cols = similarity.shape
    s, costs = similarity.tolist(), of_steps(gap, are_paid((rows, cols))).tolist()
    h = np.full((rows + 1, cols + 1), OUTSIDE).tolist()
    for i in range(rows):
        for j in range(cols):
            h[i + 1][j + 1] = smooth_maximum(_choices(s[i][j], h, i, j, costs), temperature)
    return h


def _endings(similarity: np.ndarray, h: list, end: str) -> dict[tuple[int, int], float]:
    """The score of the alignments that end at a cell, for the cells where one may end."""
    rows, cols = similarity.shape
    s = similarity.tolist()
    if end == "any":
        return {(i, j): h[i + 1][j + 1] for i in range(rows) for j in range(cols)}
    if end == "match":
        return {(i, j): h[i][j] + s[i][j] for i in range(1, rows) for j in range(1, cols)}
    raise ValueError(f"end must be 'any' or 'match', got {end!r}")
