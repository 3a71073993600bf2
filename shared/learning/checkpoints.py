"""What the checkpoints of both frameworks say of themselves."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

FORMAT = 1  # of a checkpoint


def header(framework: str, model: str, dtype: str, state: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a checkpoint, beside weights and optimizer."""
    return {"framework": framework, "format": FORMAT, "model": model, "dtype": dtype, "state": state}


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever a framework says of a file that it cannot read becomes one line, a ValueError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        reason = str(error).split("\n")[0]
        raise ValueError(f"{os.fspath(path)} is damaged, or no checkpoint: {type(error).__name__}: {reason}") from None


def state_of(path: str | os.PathLike[str], found: Any, expected: dict[str, Any]) -> dict[str, Any]:
    """The state of a checkpoint. Raises ValueError unless it is of this framework, format, model and dtype.

    found: its header as it was read; None where the file is no checkpoint.
    """
    found = found if isinstance(found, dict) else {}
    for name in ("framework", "format", "model", "dtype"):
        if found.get(name) != expected[name]:
            came = repr(found[name]) if name in found else "another kind of file, or a damaged one"
            raise ValueError(f"{os.fspath(path)} must be a checkpoint of {name} {expected[name]!r}, got {came}")
    return found["state"]
