"""Gaps that are one number for the pair, or a matrix with the cost of a step into each cell."""

import numpy as np

Gap = float | np.ndarray


def by_position(gap: Gap) -> bool:
    """Whether it is a matrix."""
    return np.ndim(gap) == 2


def in_each_cell(gap: Gap, shape: tuple[int, ...]) -> list[list[float]]:
    """The score that a gap step into each cell adds."""
    return np.broadcast_to(gap, shape).tolist()


def as_given(steps: np.ndarray, gap: Gap) -> float | np.ndarray:
    """The derivative for the gap, from that for the cost of each cell: a number for a number."""
    return steps if by_position(gap) else float(steps.sum())
