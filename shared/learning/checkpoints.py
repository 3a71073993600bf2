"""Checkpoints: files that are written as a whole or not at all, and what they say of themselves."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

FORMAT = 1  # of a checkpoint


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of path when the context ends; after an error path is as it was."""
    path = Path(path)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            yield file  # pyright: ignore[reportReturnType]
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def header(framework: str, model: str, dtype: str, state: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint says of itself, beside weights and optimizer."""
    return {"framework": framework, "format": FORMAT, "model": model, "dtype": dtype, "state": state}


def state_of(path: str | os.PathLike[str], found: Any, expected: dict[str, Any]) -> dict[str, Any]:
    """The state of a checkpoint. Raises ValueError unless it is of this framework, format, model and dtype.

    found: its header as it was read; None where the file is no checkpoint.
    """
    found = found if isinstance(found, dict) else {}
    for name in ("framework", "format", "model", "dtype"):
        if found.get(name) != expected[name]:
            came = repr(found[name]) if name in found else "another kind of file"
            raise ValueError(f"{os.fspath(path)} must be a checkpoint of {name} {expected[name]!r}, got {came}")
    return found["state"]
