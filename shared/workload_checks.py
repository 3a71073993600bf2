"""Argument checks of the workloads beside the alignments, and their error texts, once for both frameworks."""

import math
from typing import Any

from shared.checks import Seen

_FLOATS = ("float32", "float64")


def check_points(x: Seen, y: Seen) -> None:
    """Raise unless both are float32 or both float64, of one axis and the same length, which is not 0."""
    for name, seen in (("x", x), ("y", y)):
        _check_floats(name, seen)
        if len(seen.shape or ()) != 1:
            raise ValueError(f"{name} must have shape (points,), got {seen.shape}")
    if x.shape != y.shape or x.dtype != y.dtype:
        raise ValueError(f"x and y must be alike, got {x.dtype} of shape {x.shape} and {y.dtype} of shape {y.shape}")
    if x.shape == (0,):
        raise ValueError("x must have at least 1 point, got 0")


def check_count(name: str, value: Any) -> None:
    """Raise unless it is a whole number from 0."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, got {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{name} must be at least 0, got {value}")


def check_learning_rate(value: Any) -> None:
    """Raise unless it is a positive finite number; what is traced is not looked at."""
    if isinstance(value, int | float) and not (math.isfinite(value) and value > 0):
        raise ValueError(f"learning_rate must be positive and finite, got {value}")


def check_weights(seen: Seen) -> None:
    """Raise unless it is a float32 or float64 matrix of at least 3 rows and 1 column."""
    _check_floats("w", seen)
    shape = seen.shape or ()
    if len(shape) != 2 or shape[0] < 3 or shape[1] < 1:
        raise ValueError(f"w must have shape (height, width) with at least 3 rows and 1 column, got {seen.shape}")


def _check_floats(name: str, seen: Seen) -> None:
    if seen.shape is None:
        raise TypeError(f"{name} must be a floating-point array of this framework or NumPy, got {seen.type_name}")
    if seen.dtype not in _FLOATS:
        raise TypeError(f"{name} must be float32 or float64, got {seen.dtype}")
