"""Families of proteins with their true alignments, from Stockholm files."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ALPHABET = "ARNDCQEGHILKMFPSTWYV"  # the letters' numbers, in the order of BLOSUM62
PFAM = Path(__file__).parents[1] / "data" / "pfam"


@dataclass(frozen=True)
class Family:
    """One alignment: sequences, and the column that each of their residues stands in."""

    name: str
    accession: str  # with its version; "" where the file has none
    sequences: tuple[str, ...]  # the names of the sequences
    codes: tuple[NDArray[np.int32], ...]  # residues as numbers into ALPHABET
    columns: tuple[NDArray[np.int32], ...]  # of each residue; -1 for one that is not aligned (lower-case)

    def partners(self, first: int, second: int) -> NDArray[np.int32]:
        """Of each residue of the first sequence its true partner in the second, or -1."""
        place = np.full(max(map(np.max, self.columns)) + 2, -1, np.int32)  # the last is that of column -1
        own = self.columns[second]
        place[own[own >= 0]] = np.flatnonzero(own >= 0)
        return place[self.columns[first]]


def read_families(folder: Path) -> tuple[Family, ...]:
    """Every family of the Stockholm files of a folder, by name."""
    from Bio import AlignIO

    found = []
    for path in sorted(Path(folder).glob("*.sto")):
        rows = [(row.id, str(row.seq)) for row in AlignIO.read(path, "stockholm")]
        codes, columns = zip(*map(_residues, (text for _, text in rows)), strict=True)
        found.append(Family(path.stem, "", tuple(name for name, _ in rows), codes, columns))
    return tuple(found)


def _residues(row: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    letters = [(letter, column) for column, letter in enumerate(row) if not re.match(r"[.\-]", letter)]
    codes = np.array([ALPHABET.index(letter.upper()) for letter, _ in letters], np.int32)
    return codes, np.array([column if letter.isupper() else -1 for letter, column in letters], np.int32)


def bundled_families() -> tuple[Family, ...]:
    """The seed alignments of seven Pfam families."""
    return read_families(PFAM)


def names_of(families: Sequence[Family]) -> str:
    """In words."""
    return ", ".join(family.name for family in families)
