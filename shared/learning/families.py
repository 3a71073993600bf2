"""Families of proteins whose alignment is known, from Stockholm files.

A row of an alignment is a sequence: its letters are residues, '-' and '.' are gaps. Residues of two sequences are a
true pair if both stand in one column in upper case. Lower-case residues belong to their sequence but are not aligned.
"""

import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mode

import numpy as np
from numpy.typing import NDArray

from shared.sequence_files import SequenceError, biopython, letters_at, quoted, quoted_path, raise_faults, read_text
from shared.sequences import SCORED_AS

ALPHABET = "ARNDCQEGHILKMFPSTWYV"  # the letters' numbers, in the order of BLOSUM62
PFAM = Path(__file__).parents[1] / "data" / "pfam"
SUFFIXES = (".sto", ".stk", ".sth", ".stockholm")  # of Stockholm files, in any case

_HEADER, _END = "# STOCKHOLM 1.0", "//"
_NOT_IN_A_ROW = re.compile(rf"[^{ALPHABET}{''.join(SCORED_AS)}.\-]", re.ASCII | re.IGNORECASE)

_CODE_OF_BYTE = np.full(256, -1, np.int32)  # -1: a gap
for _letters in (ALPHABET, ALPHABET.lower()):
    _CODE_OF_BYTE[list(_letters.encode())] = np.arange(len(ALPHABET))
for _letter, _other in SCORED_AS.items():
    _CODE_OF_BYTE[[ord(_letter), ord(_letter.lower())]] = ALPHABET.index(_other)


@dataclass(frozen=True, eq=False)
class Family:
    """One alignment: sequences, and the column that each of their residues stands in."""

    name: str
    accession: str  # with its version; "" where the file has none
    sequences: tuple[str, ...]  # the names of the sequences
    codes: tuple[NDArray[np.int32], ...]  # of each sequence its residues as numbers into ALPHABET
    columns: tuple[NDArray[np.int32], ...]  # of each residue its column, ascending; -1 for one that is not aligned

    def partners(self, first: int, second: int) -> NDArray[np.int32]:
        """The true partner of each residue of the first sequence: a position in the second sequence, or -1."""
        columns, other = self.columns[first], self.columns[second]
        # The last place is that of column -1: it collects the residues that are not aligned, and is then emptied.
        place = np.full(max(columns.max(), other.max()) + 2, -1, np.int32)
        place[other] = np.arange(len(other))
        place[-1] = -1
        return place[columns]


def read_families(folder: str | os.PathLike[str]) -> tuple[Family, ...]:
    """Every family of the Stockholm files of a folder, at least two of them, in order of their names.

    Files are known by their SUFFIXES and may hold several alignments, wrapped or not. The name and the accession of a
    family are #=GF ID and AC; without ID the name is that of the file, numbered if the file holds several alignments.
    Other annotations are not read. U is taken as C, and O as K.

    Raises:
        SequenceError: the folder cannot be read or holds fewer than two families, two of them share a name, or a file
            is no Stockholm text or has an alignment of fewer than two sequences, with rows of unequal lengths, without
            residues or with other letters than the 20 amino acids (positions count from 1, gaps included), or without
            a true pair.
    """
    families = [(family, path.name) for path in _stockholm_files(folder) for family in _families(path)]
    if len(families) < 2:
        reason = "expected at least 2 families, so that one can be kept from training"
        raise SequenceError(f"{quoted_path(folder)}: {reason}, got only {quoted(families[0][0].name)}")
    files: dict[str, list[str]] = {}
    for family, file in families:
        files.setdefault(family.name, []).append(file)
    twice = {name: " and ".join(map(quoted, at)) for name, at in files.items() if len(at) > 1}
    raise_faults(folder, [f"expected a family's name once, got {quoted(name)} in {at}" for name, at in twice.items()])
    return tuple(by_name(family for family, _ in families))


def bundled_families() -> tuple[Family, ...]:
    """The seed alignments of seven Pfam families, which shared/data/pfam/README.md describes."""
    return read_families(PFAM)


def split(families: Sequence[Family]) -> tuple[tuple[Family, ...], tuple[Family, ...]]:
    """Families to train on, and families to validate on: every third by name, or the last of two."""
    ordered = by_name(families)
    validation = tuple(ordered[2::3] or ordered[1:])
    return tuple(family for family in ordered if family not in validation), validation


def by_name(families: Iterable[Family]) -> list[Family]:
    """Sort families by name."""
    return sorted(families, key=lambda family: (family.name.casefold(), family.name))


def _stockholm_files(folder: str | os.PathLike[str]) -> list[Path]:
    where = f"{quoted_path(folder)}: expected a folder of Stockholm files"
    try:
        names = sorted(os.listdir(folder))
    except NotADirectoryError:
        raise SequenceError(f"{where}, got a file") from None
    except OSError as error:
        raise SequenceError(f"{where}, got: {(error.strerror or type(error).__name__).lower()}") from None
    except ValueError:  # a path with a NUL or an unpaired surrogate
        raise SequenceError(f"{where}, got an impossible path") from None
    # Hidden files are no one's data; some systems leave one beside each file.
    paths = [Path(folder, name) for name in names if name.lower().endswith(SUFFIXES) and not name.startswith(".")]
    if not paths:
        raise SequenceError(f"{where} ({', '.join(SUFFIXES)}), got none")
    return paths


def _families(path: Path) -> list[Family]:
    """The alignments of a file."""
    text = read_text(path, "Stockholm")
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    lines = [(number, line) for number, line in lines if line]
    if not lines or lines[0][1] != _HEADER:
        got = quoted(lines[0][1]) if lines else "an empty file"
        raise SequenceError(f"{quoted_path(path)}: expected {_HEADER!r} first, got {got}")
    starts = [at for at, (_, line) in enumerate(lines) if line == _HEADER]
    parts = [lines[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    numbers = [f"-{number}" for number in range(1, len(parts) + 1)] if len(parts) > 1 else [""]
    return [_family(path, path.stem + number, part) for number, part in zip(numbers, parts, strict=True)]


def _family(path: Path, name: str, lines: Sequence[tuple[int, str]]) -> Family:
    """The family of one alignment. name: where it has none of its own."""
    # Of Biopython's two readers, Bio.AlignIO drops these lines, and Bio.Align refuses wrapped alignments.
    matches = [re.match(r"#=GF\s+(ID|AC)\s+(.*\S)", line) for _, line in lines]
    annotations = {match[1]: match[2] for match in matches if match}
    rows = _rows(path, lines)
    residues = {sequence: _residues(row) for sequence, row in rows.items()}
    codes, columns = zip(*residues.values(), strict=True)
    empty = [sequence for sequence, (its_codes, _) in residues.items() if not len(its_codes)]
    raise_faults(path, [f"sequence {quoted(sequence)}: expected at least one residue, got none" for sequence in empty])
    aligned = np.concatenate(columns)
    if np.bincount(aligned[aligned >= 0], minlength=1).max() < 2:
        reason = "expected two sequences with upper-case residues in one column, got none"
        raise SequenceError(f"{quoted_path(path)}: family {quoted(annotations.get('ID', name))}: {reason}")
    return Family(annotations.get("ID", name), annotations.get("AC", ""), tuple(rows), codes, columns)


def _rows(path: Path, lines: Iterable[tuple[int, str]]) -> dict[str, str]:
    """The rows of an alignment by the names of their sequences, all of one length."""
    lines = [(number, line) for number, line in lines if not line.startswith("#")]
    texts = [line for _, line in lines]
    if _END in texts and (after := [line for line in texts[texts.index(_END) :] if line != _END]):
        raise SequenceError(f"{quoted_path(path)}: expected {_HEADER!r} after {_END!r}, got {quoted(after[0])}")
    pieces = [(number, *line.split(None, 1)) for number, line in lines if line != _END]
    faults = []
    for number, name, *letters in pieces:
        where = f"line {number}, sequence {quoted(name)}"
        if not letters:
            faults.append(f"{where}: expected a name and a row of letters and gaps, got no row")
        elif at := [match.start() for match in _NOT_IN_A_ROW.finditer(letters[0])]:
            faults.append(
                f"{where}: expected letters of the 20 amino acids, U, O, '-' or '.', {letters_at(letters[0], at)}"
            )
    raise_faults(path, faults)
    raise_faults(path, _uneven([(name, row) for _, name, row in pieces]))
    # Blanks, as Biopython splits at nothing else; no annotations, as it refuses rows for those of another length.
    text = "\n".join([_HEADER, *(f"{name} {row}" for _, name, row in pieces), _END])
    alignment = biopython("Bio.AlignIO").read(io.StringIO(text), "stockholm")
    return {row.id: str(row.seq) for row in alignment}


def _uneven(pieces: Sequence[tuple[str, str]]) -> list[str]:
    """Why these named pieces of rows make no alignment; Biopython joins pieces of one name, and tells no names."""
    times = Counter(name for name, _ in pieces)
    if len(times) < 2:
        return [f"expected at least 2 sequences, got {f'only {quoted(pieces[0][0])}' if pieces else 'none'}"]
    usual = mode(sorted(times.values()))  # the number of blocks of a wrapped alignment; of two as common the smaller
    if twice := [(name, count) for name, count in times.items() if count > usual]:
        return [f"sequence {quoted(name)}: expected a name of its own, got it {count} times" for name, count in twice]
    lengths = Counter[str]()
    for name, row in pieces:
        lengths[name] += len(row)
    columns = mode(lengths.values())
    uneven = [(name, length) for name, length in lengths.items() if length != columns]
    return [f"sequence {quoted(name)}: expected {columns} columns like others, got {length}" for name, length in uneven]


def _residues(row: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The residues of a row, and their columns."""
    letters = np.frombuffer(row.encode(), np.uint8)
    codes = _CODE_OF_BYTE[letters]
    at = np.flatnonzero(codes >= 0).astype(np.int32)
    is_upper = letters[at] < ord("a")
    return codes[at], np.where(is_upper, at, -1).astype(np.int32)
