"""The text of files of sequences, and what is wrong with it: a SequenceError, one line for each fault."""

import gzip
import importlib
import io
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# No set of proteins worth aligning pair by pair comes near it, and it stops a read of /dev/zero.
LARGEST_FILE_BYTES = 2**28

# Nothing of a text file: all control characters but tab, line feed and carriage return.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

# Not read, by how a file begins
_OTHERS = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstd", b"PK\x03\x04": "zip",
           b"\xff\xfe": "UTF-16: save it as UTF-8", b"\xfe\xff": "UTF-16: save it as UTF-8"}  # fmt: skip

# An error names at most so many records, and of each so many letters with so many positions.
_MOST_LINES, _MOST_LISTED = 10, 4


class SequenceError(ValueError):
    """A file, record or matrix that cannot be used. A line for each: file, record, what was expected, what came."""


def biopython(module: str) -> Any:
    """A module of Biopython, or a SequenceError that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        files = "FASTA files, Stockholm files and substitution matrices"
        raise SequenceError(f"{files} are read by Biopython: pip install biopython ({error})") from None


def read_text(path: str | os.PathLike[str], kind: str, shortened: re.Pattern[str] | None = None) -> str:
    """The text of a file, packed by gzip or not, with line feeds for every kind of line end.

    What is no UTF-8 is read as Latin-1, in which every byte is a character: authors' names often are.

    Args:
        path: of the file.
        kind: of files, for errors: FASTA or Stockholm.
        shortened: of what it matches, only the first group counts.

    Raises:
        SequenceError: the file cannot be read, is larger than LARGEST_FILE_BYTES, or is no text.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
        if content.startswith(b"\x1f\x8b"):
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(LARGEST_FILE_BYTES + 1)
    except IsADirectoryError:
        raise SequenceError(f"{quoted_path(path)}: expected a {kind} file, got a directory") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise SequenceError(f"{quoted_path(path)}: expected a whole gzip file, got: {error}") from None
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise SequenceError(f"{quoted_path(path)}: expected a readable {kind} file, got: {reason}") from None
    except ValueError:  # a path with a NUL or an unpaired surrogate
        raise SequenceError(f"{quoted_path(path)}: expected a readable {kind} file, got an impossible path") from None
    for beginning, form in _OTHERS.items():
        if content.startswith(beginning):
            raise SequenceError(f"{quoted_path(path)}: expected text, packed by gzip or not, got {form}")
    if len(content) > LARGEST_FILE_BYTES:
        raise SequenceError(f"{quoted_path(path)}: expected at most {LARGEST_FILE_BYTES} bytes, got more")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = shortened.sub(r"\1", text) if shortened else text
    if control := _CONTROL.search(text):
        raise SequenceError(f"{quoted_path(path)}: expected text, got the control character {control.group()!r}")
    return text


def raise_faults(path: str | os.PathLike[str], faults: Sequence[str]) -> None:
    """Raise a SequenceError if there are any faults: a line for each of the first, and how many more there are."""
    lines = [f"{quoted_path(path)}: {fault}" for fault in faults[:_MOST_LINES]]
    if len(faults) > _MOST_LINES:
        lines.append(f"and {len(faults) - _MOST_LINES} more")
    if lines:
        raise SequenceError("\n".join(lines))


def letters_at(letters: str, wrong: Sequence[int]) -> str:
    """Describe the letters at these indices, each with its positions, for an error."""
    positions: dict[str, list[str]] = {}
    for index in wrong:
        positions.setdefault(letters[index], []).append(str(index + 1))
    got = [f"{letter!r} at position{'s' * (len(at) > 1)} {_few(at, 'more')}" for letter, at in positions.items()]
    return f"got {_few(got, 'other letters')}"


def _few(items: Sequence[str], others: str) -> str:
    """The first items, and how many others there are."""
    unlisted = len(items) - _MOST_LISTED
    return ", ".join(items[:_MOST_LISTED]) + (f" and {unlisted} {others}" if unlisted > 0 else "")


def quoted_path(path: str | os.PathLike[str]) -> str:
    return repr(os.fspath(path))  # repr keeps odd names on one line


def quoted(text: str) -> str:
    """The text between quotes, on one line, cut to what a line of an error can hold."""
    return repr(text if len(text) <= 60 else text[:59] + "…")
