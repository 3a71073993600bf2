"""Protein sequences to input batches: a FASTA file and a substitution matrix give the similarity of every pair.

    similarity[b, i, j] = matrix[letter i of the first sequence, letter j of the second sequence]    of pair b

Scores keep the unit of the matrix (BLOSUM62 counts half-bits). A batch is as large as its longest sequences;
beyond the lengths of a pair its similarity is zero.

Errors in a file or a name are reported as a SequenceError, one line for each faulty record. Biopython reads files and
matrices; it is imported on first use, so that users with their own matrices do not need it.
"""

import io
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.sequence_files import SequenceError, biopython, letters_at, quoted, quoted_path, raise_faults, read_text

GLOBINS = Path(__file__).parent / "data" / "globins.fasta"

_NOT_A_LETTER = re.compile(r"[^A-Za-z*]")  # all 26 stand for residues: B, J, X and Z for more than one; * for a stop

# Selenocysteine and pyrrolysine, as HMMER scores them (BLAST: U as C, O as X).
SCORED_AS = {"U": "C", "O": "K"}
_AMINO_ACIDS, _NUCLEOTIDES = "ACDEFGHIKLMNPQRSTVWY", "ACGTUN"
_AMBIGUOUS = "RYSWKMBDHV"  # IUPAC's letters for two or three nucleotides
# Of a header the name alone is used, not what follows it: a description, or after ^A the other names of NCBI's nr.
_HEADER = re.compile(r"^([^\S\n]*>[^\S\n]*[^\s\x01]*).*", re.MULTILINE)

# Biopython silently drops blanks between letters. They go past it as control characters, which cannot be
# in the text any more, so that they are found and reported at their position.
_HIDE_BLANKS = str.maketrans({" ": "\x00", "\t": "\x01"})
_SHOW_BLANKS = str.maketrans({"\x00": " ", "\x01": "\t"})


class Record(NamedTuple):
    """One sequence of a file."""

    name: str  # the first word after '>'; two records may share it
    letters: str  # upper case
    final_stop: bool = False  # whether the file has a * after the letters


class Matrix(NamedTuple):
    """Scores of letter against letter."""

    name: str
    alphabet: str  # the letters of its rows and columns, in order
    scores: NDArray[np.float32]  # (letters, letters)


class PairBatch(NamedTuple):
    """The input of an aligner: a batch of pairs, and notes for its user."""

    similarity: NDArray[np.float32]  # (batch, rows, cols), zero beyond each pair's lengths, in the matrix's unit
    lengths: NDArray[np.int32]  # (batch, 2), in letters
    notes: tuple[str, ...]  # a line for each kind of change to the sequences of these pairs, or of doubt


def read_fasta(path: str | os.PathLike[str], matrix: Matrix | None = None) -> list[Record]:
    """Read the records of a FASTA file in their order, at least two of them.

    matrix: what they will be scored by. It changes only what an error lists: letters that it lacks, too.

    Accepted: gzip, Latin-1, lower case, any line ends, blank lines, blanks around a line, a byte-order mark, and a name
    that comes twice (names only label; errors count the records as well). A final * is left out; any other is a letter.

    Raises:
        SequenceError: the file cannot be read or is no FASTA text, has fewer than two records, or has records without
            a name, without letters, or with anything but the letters A-Z and *; positions count from 1.
    """
    lines = [line for line in map(str.strip, read_text(path, "FASTA", _HEADER).split("\n")) if line]
    if not lines:
        raise SequenceError(f"{quoted_path(path)}: expected at least 2 records, got an empty file")
    if not lines[0].startswith(">"):
        raise SequenceError(f"{quoted_path(path)}: expected '>' and a name first, got {quoted(lines[0])}")
    # Biopython refuses blank lines before the first record, but they are gone.
    fasta = "\n".join(line if line.startswith(">") else line.translate(_HIDE_BLANKS) for line in lines)
    records: list[Record] = []
    faults: list[str] = []
    lacking: list[str] = []
    for index, entry in enumerate(biopython("Bio.SeqIO").parse(io.StringIO(fasta), "fasta")):
        name, sequence = entry.id or "", bytes(entry.seq).decode()  # str(seq) would fail on anything outside ASCII
        letters = sequence.removesuffix("*")
        records.append(Record(name, letters.upper(), final_stop=letters != sequence))
        wrong = [] if name else ["expected a name after '>', got none"]
        if not letters:
            wrong.append("expected at least one letter, got none")
        if at := [match.start() for match in _NOT_A_LETTER.finditer(letters)]:
            wrong.append(f"expected letters A-Z or *, {letters_at(letters.translate(_SHOW_BLANKS), at)}")
        if wrong:
            faults.append(f"{_record(index, name)}: {'; '.join(wrong)}")
        elif matrix and (text := _lacking(records[-1], matrix)):
            lacking.append(f"{_record(index, name)}: {text}")
    if len(records) < 2:
        faults.append(f"expected at least 2 records, got only {quoted(records[0].name)}")
    raise_faults(path, faults and faults + lacking)
    return records


@cache
def matrix_names() -> tuple[str, ...]:
    """Names of Biopython's matrices over single letters, sorted; SCHNEIDER, which scores codons, is left out."""
    return tuple(
        name
        for name in sorted(biopython("Bio.Align.substitution_matrices").load())
        if all(len(letter) == 1 for letter in _load(name).alphabet)
    )


def substitution_matrix(name: str) -> Matrix:
    """Load one of `matrix_names()`; upper and lower case are the same.

    Raises:
        SequenceError: no such matrix.
    """
    known_name = name.upper()
    if known_name not in matrix_names():
        names_known = ", ".join(matrix_names())
        raise SequenceError(f"expected a substitution matrix out of {names_known}, got {quoted(name)}")
    table = _load(known_name)
    return Matrix(known_name, "".join(table.alphabet), np.array(table, dtype=np.float32))


def pair_batch(
    records: Sequence[Record],
    pairs: Sequence[tuple[int, int]],
    matrix: Matrix,
    source: str | os.PathLike[str],
) -> PairBatch:
    """Score every letter of the first sequence of a pair against every letter of its second, for a batch of pairs.

    U is scored as C and O as K where a matrix of amino acids lacks them, and U as T where one of nucleotides does.

    Args:
        records: the sequences.
        pairs: (first, second) indices into records.
        matrix: the scores.
        source: where the records come from; only errors and notes use it.

    Returns:
        The batch; its rows and cols are the longest first and second sequence.

    Raises:
        SequenceError: letters of these pairs are not in the matrix.
        MemoryError: the batch does not fit into memory.
    """
    substitutes = _substitutes(matrix)
    row_of_byte = np.full(256, -1, dtype=np.intp)
    row_of_byte[np.frombuffer(matrix.alphabet.encode("ascii"), dtype=np.uint8)] = np.arange(len(matrix.alphabet))
    used = {index: records[index] for index in sorted({i for pair in pairs for i in pair})}
    codes: dict[int, NDArray[np.intp]] = {}
    faults: list[str] = []
    for index, record in used.items():
        letters = record.letters.translate(str.maketrans(substitutes))
        # "replace" puts one '?' for a letter outside ASCII, so positions stay; no matrix has a '?'.
        codes[index] = row_of_byte[np.frombuffer(letters.encode("ascii", "replace"), dtype=np.uint8)]
        if text := _lacking(record, matrix):
            faults.append(f"{_record(index, record.name)}: {text}")
    raise_faults(source, faults)
    lengths = np.array([[len(codes[i]) for i in pair] for pair in pairs], dtype=np.int32).reshape(-1, 2)  # (batch, 2)
    rows, cols = (int(longest) for longest in lengths.max(axis=0, initial=0))
    similarity = np.zeros((len(pairs), rows, cols), dtype=np.float32)
    for scores, (first, second) in zip(similarity, pairs, strict=True):
        # All letters against the second sequence, then one row of that for each letter of the first: whole rows are
        # copied instead of single cells looked up.
        profile = matrix.scores.take(codes[second], axis=1)  # (letters, len(second))
        scores[: len(codes[first]), : len(codes[second])] = profile.take(codes[first], axis=0)
    return PairBatch(similarity, lengths, _notes(list(used.values()), matrix, substitutes, Path(source).name))


def _load(name: str) -> Any:
    return biopython("Bio.Align.substitution_matrices").load(name)


def _substitutes(matrix: Matrix) -> dict[str, str]:
    """Return the letters that the matrix lacks and that are scored as others."""
    scored_as = SCORED_AS if set(_AMINO_ACIDS) <= set(matrix.alphabet) else {"U": "T"}
    return {letter: other for letter, other in scored_as.items() if letter not in matrix.alphabet}


def _lacking(record: Record, matrix: Matrix) -> str:
    """The letters that the matrix lacks, as part of an error; empty if there are none."""
    letters = {*matrix.alphabet, *_substitutes(matrix)}
    if letters.issuperset(record.letters):
        return ""
    at = [position for position, letter in enumerate(record.letters) if letter not in letters]
    return f"expected letters of {matrix.name} ({matrix.alphabet}), {letters_at(record.letters, at)}"


def _notes(used: Sequence[Record], matrix: Matrix, substitutes: dict[str, str], source: str) -> tuple[str, ...]:
    counts = {"the final * is left out": sum(record.final_stop for record in used)}
    for letter, other in substitutes.items():
        text = f"{letter}, which {matrix.name} lacks, is scored as {other}"
        counts[text] = sum(letter in record.letters for record in used)
    notes = [f"{source}: {text} in {n} of {len(used)} sequences" for text, n in counts.items() if n]
    if set(_AMINO_ACIDS) <= set(matrix.alphabet) and _look_like_nucleotides("".join(r.letters for r in used)):
        notes.append(f"{source}: these look like nucleotides; --matrix NUC.4.4 scores such, {matrix.name} amino acids")
    return tuple(notes)


def _look_like_nucleotides(letters: str) -> bool:
    """Return whether these are IUPAC's letters of nucleotides, few of them ambiguous."""
    clear = sum(map(letters.count, _NUCLEOTIDES))
    return set(letters) <= set(_NUCLEOTIDES + _AMBIGUOUS) and clear >= 0.9 * len(letters)


def _record(index: int, name: str) -> str:
    return f"record {index + 1} {quoted(name)}"
