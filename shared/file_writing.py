"""Files that are written as a whole or not at all: records, reports, checkpoints."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of path when the context ends; after an error path is as it was.

    A link stays one, and what it leads to is replaced. A device or a pipe is written into as it is.
    """
    path = Path(path).resolve()
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    temporary = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file by atomic_file."""
    with atomic_file(path) as file:
        file.write(text.encode(errors="replace"))  # a path given by the user may not be UTF-8
