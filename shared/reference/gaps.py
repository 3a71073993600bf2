"""Gap steps on a grid one larger than the similarity, whose corner (i, j) lies behind i rows and j columns.

A gap is one number for the pair, or two, for steps along the row and along the column; or a matrix with the cost of a
step into each cell, and then steps along the border of the grid cost nothing.
"""

import numpy as np

ROWS, COLS = 0, 1  # the axes of gaps
Gap = float | tuple[float, float] | np.ndarray


def are_paid(shape: tuple[int, int], end_gaps: str = "cost") -> np.ndarray:
    """Whether a gap step to a corner costs anything, [axis, i, j]: free end gaps lie along two sides of the grid."""
    if end_gaps not in ("cost", "free", "free_rows", "free_cols"):
        raise ValueError(f"end_gaps must be 'cost', 'free', 'free_rows' or 'free_cols', got {end_gaps!r}")
    paid = np.ones((2, shape[0] + 1, shape[1] + 1), bool)
    if end_gaps in ("free", "free_rows"):
        paid[ROWS, [0, -1], :] = False
    if end_gaps in ("free", "free_cols"):
        paid[COLS, :, [0, -1]] = False
    return paid


def of_steps(gap: Gap, paid: np.ndarray) -> np.ndarray:
    """The score that a gap step to a corner adds, [axis, i, j]."""
    return np.where(paid, np.pad(gap, [(1, 0), (1, 0)]) if np.ndim(gap) == 2 else np.reshape(gap, (-1, 1, 1)), 0.0)


def as_given(slopes: np.ndarray, paid: np.ndarray, gap: Gap) -> float | np.ndarray:
    """The derivative for the gap, from those for steps: a number, an array of two, or a matrix, as the gap is given."""
    slopes = slopes * paid
    if np.ndim(gap) == 2:
        return slopes.sum(axis=0)[1:, 1:]
    return slopes.sum(axis=(1, 2)) if isinstance(gap, tuple) else float(slopes.sum())
