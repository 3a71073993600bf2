"""Argument checks of the workloads beside the alignments, and their error texts, once for both frameworks."""

from collections.abc import Sequence
from typing import Any

from shared.checks import Seen, is_finite

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


def check_count(name: str, value: Any, least: int = 0) -> None:
    """Raise unless it is a whole number from `least`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, got {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def check_learning_rate(seen: Seen) -> None:
    """Raise unless it is a positive finite number, or an array of shape () that holds one."""
    if seen.shape is None:
        raise TypeError(f"learning_rate must be a number or an array of shape (), got {seen.type_name}")
    if not seen.dtype.startswith(("float", "bfloat", "int", "uint")):
        raise TypeError(f"learning_rate must be real, got {seen.dtype}")
    if seen.shape != ():
        raise ValueError(f"learning_rate must have shape (), got {seen.shape}")
    for value in seen.values() if seen.values else ():
        if not (is_finite(value) and value > 0):
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


def check_result(
    name: str, result: Any, kind: type[Any], inputs: Sequence[Any] = (), shape: tuple[int, ...] | None = None
) -> None:
    """Raise unless a user's function has returned one array of this kind, and of its floating-point inputs' dtype and
    of this shape if they are known."""
    if not isinstance(result, kind):
        raise TypeError(f"{name} must return one array of its framework, got {type(result).__name__}")
    got, *dtypes = (str(array.dtype).rpartition(".")[2] for array in (result, *inputs))  # PyTorch: torch.float32
    floats = [dtype for dtype in dtypes if dtype in _FLOATS]
    if floats and got not in floats:
        raise TypeError(f"{name} must return {floats[0]}, as it is given, got {got}")
    if shape is not None and tuple(result.shape) != shape:
        raise ValueError(f"{name} must return shape {shape}, as reference does, got {tuple(result.shape)}")
