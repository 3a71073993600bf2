"""Protein sequences to input batches: a FASTA file and a substitution matrix give the similarity of every pair.

    similarity[b, i, j] = matrix[letter i of the first sequence, letter j of the second sequence]    of pair b

Scores keep the unit of the matrix (BLOSUM62 counts half-bits). A batch is as large as its longest sequences;
beyond the lengths of a pair its similarity is zero.

Any error in a file or a name is reported in one line, as a SequenceError. Biopython reads both; it is imported on
first use, so that users with their own matrices do not need it.
"""

import importlib
import io
import math
import os
import re
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

GLOBINS = Path(__file__).parent / "data" / "globins.fasta"

# No set of proteins worth aligning pair by pair comes near it, and it stops a read of /dev/zero.
LARGEST_FILE_BYTES = 2**28

# Nothing of a text file: all control characters but tab, line feed and carriage return.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_NOT_A_LETTER = re.compile(r"[^A-Za-z]")  # all 26 stand for residues: B, J, X and Z for more than one

# Biopython silently drops blanks between letters. They go past it as control characters, which cannot be
# in the text any more, so that they are found and reported at their position.
_HIDE_BLANKS = str.maketrans({" ": "\x00", "\t": "\x01"})
_SHOW_BLANKS = str.maketrans({"\x00": " ", "\x01": "\t"})


class SequenceError(ValueError):
    """A file, record or matrix that cannot be used. One line: the file, the record, what was expected, what came."""


class Record(NamedTuple):
    """One sequence of a file."""

    name: str  # the first word after '>'; two records may share it
    letters: str  # upper case


class Matrix(NamedTuple):
    """Scores of letter against letter."""

    name: str
    alphabet: str  # the letters of its rows and columns, in order
    scores: NDArray[np.float32]  # (letters, letters)


def read_fasta(path: str | os.PathLike[str]) -> list[Record]:
    """Read the records of a FASTA file in their order, at least two of them.

    Accepted: lower case, any line ends, blank lines, blanks around a line, a byte-order mark, and a name that comes
    twice (names only label; errors count the records as well).

    Raises:
        SequenceError: the file cannot be read or is no FASTA text, has fewer than two records, or has a record
            without a name, without letters, or with anything but the letters A-Z; positions count from 1.
    """
    lines = [line for line in map(str.strip, _read_text(path).split("\n")) if line]
    if not lines:
        raise SequenceError(f"{_file(path)}: expected at least 2 records, got an empty file")
    if not lines[0].startswith(">"):
        raise SequenceError(f"{_file(path)}: expected '>' and a name first, got {_quoted(lines[0])}")
    # Biopython refuses blank lines before the first record, but they are gone.
    fasta = "\n".join(line if line.startswith(">") else line.translate(_HIDE_BLANKS) for line in lines)
    parsed = _biopython("Bio.SeqIO").parse(io.StringIO(fasta), "fasta")
    # str(seq) would fail on anything outside ASCII.
    records = [
        _checked_record(path, number, entry.id or "", bytes(entry.seq).decode()) for number, entry in enumerate(parsed)
    ]
    if len(records) < 2:
        raise SequenceError(f"{_file(path)}: expected at least 2 records, got only {_quoted(records[0].name)}")
    return records


@cache
def matrix_names() -> tuple[str, ...]:
    """Names of Biopython's matrices over single letters, sorted; SCHNEIDER, which scores codons, is left out."""
    return tuple(
        name
        for name in sorted(_biopython("Bio.Align.substitution_matrices").load())
        if all(len(letter) == 1 for letter in _load(name).alphabet)
    )


def substitution_matrix(name: str) -> Matrix:
    """Load one of `matrix_names()`; upper and lower case are the same.

    Raises:
        SequenceError: no such matrix.
    """
    known_name = name.upper()
    if known_name not in matrix_names():
        known = ", ".join(matrix_names())
        raise SequenceError(f"expected a substitution matrix out of {known}, got {_quoted(name)}")
    table = _load(known_name)
    return Matrix(known_name, "".join(table.alphabet), np.array(table, dtype=np.float32))


def all_pairs(count: int) -> list[tuple[int, int]]:
    """Pairs (first, second) of the indices below count, first < second, in order: (0, 1), (0, 2), ..., (1, 2), ..."""
    return list(combinations(range(count), 2))


def pair_batch(
    records: Sequence[Record],
    pairs: Sequence[tuple[int, int]],
    matrix: Matrix,
    source: str | os.PathLike[str],
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Score every letter of the first sequence of a pair against every letter of its second, for a batch of pairs.

    Args:
        records: the sequences.
        pairs: (first, second) indices into records.
        matrix: the scores.
        source: where the records come from; only errors use it.

    Returns:
        similarity (batch, rows, cols), zero beyond each pair's lengths, in the matrix's unit; rows and cols are the
        longest first and second sequence. lengths (batch, 2), in letters.

    Raises:
        SequenceError: a letter of these pairs is not in the matrix, or the batch does not fit into memory.
    """
    codes = {
        index: _codes(records[index], index, matrix, source) for index in sorted({i for pair in pairs for i in pair})
    }
    lengths = np.array([[len(codes[i]) for i in pair] for pair in pairs], dtype=np.int32).reshape(-1, 2)  # (batch, 2)
    rows, cols = (int(longest) for longest in lengths.max(axis=0, initial=0))
    shape = (len(pairs), rows, cols)
    too_large = SequenceError(f"{_file(source)}: expected pairs that fit into memory, got float32 of shape {shape}")
    if (
        4 * math.prod(shape) > psutil.virtual_memory().available
    ):  # a system may promise it all the same, and kill who takes it
        raise too_large
    try:
        similarity = np.zeros(shape, dtype=np.float32)
    except (MemoryError, ValueError):  # ValueError: more bytes than an address can count
        raise too_large from None
    for scores, (first, second) in zip(similarity, pairs, strict=True):
        # All letters against the second sequence, then one row of that for each letter of the first: whole rows are
        # copied instead of single cells looked up.
        profile = matrix.scores.take(codes[second], axis=1)  # (letters, len(second))
        scores[: len(codes[first]), : len(codes[second])] = profile.take(codes[first], axis=0)
    return similarity, lengths


def _load(name: str) -> Any:
    return _biopython("Bio.Align.substitution_matrices").load(name)


def _biopython(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        text = f"FASTA files and substitution matrices are read by Biopython: pip install biopython ({error})"
        raise SequenceError(text) from None


def _read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file, with line feeds for every kind of line end."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except IsADirectoryError:
        raise SequenceError(f"{_file(path)}: expected a FASTA file, got a directory") from None
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise SequenceError(f"{_file(path)}: expected a readable FASTA file, got: {reason}") from None
    except ValueError:  # a path with a NUL or an unpaired surrogate
        raise SequenceError(f"{_file(path)}: expected a readable FASTA file, got an impossible path") from None
    if len(content) > LARGEST_FILE_BYTES:
        raise SequenceError(f"{_file(path)}: expected at most {LARGEST_FILE_BYTES} bytes, got more")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise SequenceError(f"{_file(path)}: expected UTF-8 text, got the byte 0x{byte:02x} at {error.start}") from None
    if control := _CONTROL.search(text):
        raise SequenceError(f"{_file(path)}: expected text, got the control character {control.group()!r}")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _checked_record(path: str | os.PathLike[str], index: int, name: str, letters: str) -> Record:
    """The record in upper case, or a SequenceError."""
    if not name:
        raise SequenceError(f"{_record(path, index, name)}: expected a name after '>', got none")
    if not letters:
        raise SequenceError(f"{_record(path, index, name)}: expected at least one letter, got an empty sequence")
    if wrong := _NOT_A_LETTER.search(letters):
        letter, position = wrong.group().translate(_SHOW_BLANKS), wrong.start() + 1
        raise SequenceError(
            f"{_record(path, index, name)}: expected letters A-Z, got {letter!r} at position {position}"
        )
    return Record(name, letters.upper())


def _codes(record: Record, index: int, matrix: Matrix, source: str | os.PathLike[str]) -> NDArray[np.intp]:
    """Row of the matrix for each letter of a record, (len(letters),), or a SequenceError."""
    row_of_byte = np.full(256, -1, dtype=np.intp)
    row_of_byte[np.frombuffer(matrix.alphabet.encode("ascii"), dtype=np.uint8)] = np.arange(len(matrix.alphabet))
    # "replace" puts one '?' for a letter outside ASCII, so positions stay; no matrix has a '?'.
    codes = row_of_byte[np.frombuffer(record.letters.encode("ascii", "replace"), dtype=np.uint8)]
    if (codes < 0).any():
        at = int(np.argmax(codes < 0))
        raise SequenceError(
            f"{_record(source, index, record.name)}: expected letters of {matrix.name} ({matrix.alphabet}), "
            f"got {record.letters[at]!r} at position {at + 1}"
        )
    return codes


def _file(path: str | os.PathLike[str]) -> str:
    return repr(os.fspath(path))  # repr keeps odd names on one line


def _record(path: str | os.PathLike[str], index: int, name: str) -> str:
    return f"{_file(path)}: record {index + 1} {_quoted(name)}"


def _quoted(text: str) -> str:
    """The text between quotes, on one line, cut to what a line of an error can hold."""
    return repr(text if len(text) <= 60 else text[:59] + "…")
