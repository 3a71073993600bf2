"""Learning to align in NumPy, float64: a substitution matrix and a gap score by gradient descent through the marginals
of smith_waterman (end "any").

    loss = sum((marginals - truth)^2) / sum(truth)

The recurrence is walked here along anti-diagonals, all pairs at once, because the reference proper, cell by cell, would
take minutes for a hundred steps; the tests hold the one against the other. The code also takes complex numbers: with a
similarity s + i h v, the imaginary part of a derivative divided by h is that derivative's change along v, exact to
rounding for a tiny h. That gives the second derivatives.
"""

from typing import Any, NamedTuple

import numpy as np

MATRIX_LETTERS = 20
START_GAP = -1.0
_LOWEST = -1e20
_STEP = 1e-30  # of the complex numbers: nothing is subtracted, so it can be as small as this


class Learned(NamedTuple):
    """The result of training."""

    losses: np.ndarray  # (steps,), each before its update
    matrix: np.ndarray  # (20, 20)
    gap: Any  # ()


def start_matrix() -> np.ndarray:
    """Where the substitution matrix begins: 1 for the same letter, -0.5 for two different ones."""
    return 1.5 * np.eye(MATRIX_LETTERS) - 0.5


def learn(
    first: Any,
    second: Any,
    truth: Any,
    lengths: Any,
    *,
    steps: int,
    learning_rate: float,
    temperature: float = 1.0,
    start: np.ndarray | None = None,
) -> Learned:
    """Gradient descent from the start. first (pairs, rows), second (pairs, cols), truth (pairs, rows, cols), lengths
    (pairs, 2); start (20, 20): another matrix to begin with."""
    matrix, gap, losses = start_matrix() if start is None else start, START_GAP, []
    at = np.asarray(first)[:, :, None], np.asarray(second)[:, None, :]
    total = np.sum(truth)
    with np.errstate(over="ignore", invalid="ignore"):  # with too long a step it runs away, and the caller sees that
        for _ in range(steps):
            similarity = matrix[at]
            marginals, _ = first_derivatives(similarity, lengths, gap, temperature)
            off = marginals - truth
            losses.append(np.sum(off**2) / total)
            along = similarity + 1j * _STEP * (2 * off / total)
            changes = [np.imag(value) / _STEP for value in first_derivatives(along, lengths, gap, temperature)]
            slope = np.zeros_like(matrix)
            np.add.at(slope, at, changes[0])
            matrix = matrix - learning_rate * slope
            gap = gap - learning_rate * float(changes[1].sum())
    return Learned(np.array(losses), matrix, gap)


def first_derivatives(
    similarity: np.ndarray, lengths: Any, gap: float, temperature: float
) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of each pair's score for its similarity (pairs, rows, cols) and for the gap (pairs,).

    The similarity may be complex. Arrays are skewed: [d, pair, i] belongs to the cell (i, d - i).
    """
    pairs, rows, cols = similarity.shape
    i, j = np.indices((rows, cols))
    sizes = np.asarray(lengths)
    inside = (i < sizes[:, 0, None, None]) & (j < sizes[:, 1, None, None])
    count = rows + cols - 1
    s = np.full((count, pairs, rows), _LOWEST, dtype=similarity.dtype)
    is_cell = np.zeros((count, pairs, rows), dtype=bool)
    s[i + j, :, i] = np.where(inside, similarity, _LOWEST).transpose(1, 2, 0)
    is_cell[i + j, :, i] = inside.transpose(1, 2, 0)

    # two anti-diagonals and one row outside come first
    h = np.full((count + 2, pairs, rows + 1), _LOWEST, dtype=similarity.dtype)
    shares = np.zeros((4, count, pairs, rows), dtype=similarity.dtype)
    for d in range(count):
        choices = np.stack([h[d, :, :-1] + s[d], h[d + 1, :, 1:] + gap, h[d + 1, :, :-1] + gap, s[d]])
        smooth = _smooth_maximum(choices, temperature)
        possible = is_cell[d] & (np.real(smooth) > _LOWEST / 2)
        h[d + 2, :, 1:] = np.where(possible, smooth, _LOWEST)
        shares[:, d] = np.where(possible, np.exp((choices - smooth) / temperature), 0.0)

    cells = h[2:, :, 1:].transpose(1, 0, 2).reshape(pairs, -1)
    total = _smooth_maximum(cells.T, temperature)
    ends = np.where(is_cell, np.exp((h[2:, :, 1:] - total[:, None]) / temperature), 0.0)

    # what the score gains with each cell; two anti-diagonals and one row behind the last
    flow = np.zeros((count + 2, pairs, rows + 1), dtype=similarity.dtype)
    padded = np.pad(shares, [(0, 0), (0, 2), (0, 0), (0, 1)])
    diagonal, left, up, _ = padded
    for d in reversed(range(count)):
        flow[d, :, :-1] = (
            ends[d]
            + flow[d + 2, :, 1:] * diagonal[d + 2, :, 1:]
            + flow[d + 1, :, :-1] * left[d + 1, :, :-1]
            + flow[d + 1, :, 1:] * up[d + 1, :, 1:]
        )
    own = flow[:count, :, :-1]
    marginals = (own * (shares[0] + shares[3]))[i + j, :, i].transpose(2, 0, 1)
    return marginals, (own * (shares[1] + shares[2])).sum(axis=(0, 2))


def recovered(marginals: np.ndarray, truth: np.ndarray) -> float:
    """The part of the true pairs of letters that are matched with a probability above one half."""
    return float((marginals[truth > 0.5] > 0.5).mean())


def _smooth_maximum(values: np.ndarray, temperature: float) -> np.ndarray:
    """Over the first axis; of complex numbers the largest real part is taken off."""
    highest = values[np.argmax(np.real(values), axis=0), *np.indices(values.shape[1:])]
    return highest + temperature * np.log(np.exp((values - highest) / temperature).sum(axis=0))
