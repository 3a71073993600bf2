"""Stockholm files are read as people write them, and a fault is told in one line with its file and sequence."""

import gzip
import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.learning.families import ALPHABET, PFAM, bundled_families, read_families, split
from shared.sequences import SequenceError

HEADER = "# STOCKHOLM 1.0\n"
LETTERS = "expected letters of the 20 amino acids, U, O, '-' or '.', got"
OTHER = HEADER + "#=GF ID other\na ACD\nb ACD\n//\n"  # a second family beside the one that is tried

# mine.sto as bytes, or what stands after its header, and what is said of it
BAD_FILES: dict[str, tuple[str | bytes, str]] = {
    "unequal rows": ("a ACD\nb AC\nc ACD\n", "sequence 'b': expected 3 columns like others, got 2"),
    "a row left out of the last block": (
        "a ACD\nb ACD\nc ACD\n\na ACD\nb ACD\n",
        "sequence 'c': expected 6 columns like others, got 3",
    ),
    "no row": ("a ACD\nb\n", "line 3, sequence 'b': expected a name and a row of letters and gaps, got no row"),
    "B, Z and J, small": (
        "a A-CbzB\nb ACDEFj\n",
        f"line 2, sequence 'a': {LETTERS} 'b' at position 4, 'z' at position 5, 'B' at position 6\n"
        f"line 3, sequence 'b': {LETTERS} 'j' at position 6",
    ),
    "a letter that folds to K": ("a ACD\nb AC\u212a\n", f"line 3, sequence 'b': {LETTERS} '\u212a' at position 3"),
    "one sequence": ("a ACD\n", "expected at least 2 sequences, got only 'a'"),
    "a sequence of gaps": ("a ACD\nb -.-\n", "sequence 'b': expected at least one residue, got none"),
    "a name twice": ("a ACD\na ACD\nb ACDACD\n", "sequence 'a': expected a name of its own, got it 2 times"),
    "lower case alone": (
        "#=GF ID low\na AcD-\nb -cd-\n",
        "family 'low': expected two sequences with upper-case residues in one column, got none",
    ),
    "a row after the end": ("a ACD\nb ACD\n//\nc ACD\n", "expected '# STOCKHOLM 1.0' after '//', got 'c ACD'"),
    "the second alignment": (
        f"a ACD\nb ACD\n//\n{HEADER}a ACD\nc AC?\n",
        f"line 7, sequence 'c': {LETTERS} '?' at position 3",
    ),
    "no bytes": (b"", "expected '# STOCKHOLM 1.0' first, got an empty file"),
    "gzip": (gzip.compress(b">a\nACD\n"), "expected '# STOCKHOLM 1.0' first, got '>a'"),
    "no gzip": (b"\x1f\x8b" + bytes(9), "expected a whole gzip file, got: Unknown compression method"),
    "binary": (b"\x7fELF", "expected text, got the control character '\\x7f'"),
}

# each the same two sequences, ACDkEF and CDEC aligned at C, D, E and F with C
GOOD_ROWS = {
    "plain": "a ACDkE-F\nb -CD.E.C\n//\n",
    "Windows line ends": "a ACDkE-F\r\nb -CD.E.C\r\n//\r\n",
    "no end": "a ACDkE-F\nb -CD.E.C",
    "wrapped": "a ACD\nb -CD\n\na kE-F\nb .E.C\n//\n",
    "tabs and blanks": "\n  a\tACDkE-F  \n\nb\t -CD.E.C\n\n//\n\n",
    "U for C": "a ACDkE-F\nb -UD.E.U\n//\n",
    "O for k": "a ACDoE-F\nb -CD.E.C\n//\n",
    "Latin-1": "#=GF AU M\xfcller\na ACDkE-F\nb -CD.E.C\n//\n",
    "annotations": "#=GF CC two\n#=GF DE\n#=GS a DR PDB; 1abc A;\n#=GS z OS of none\na ACDkE-F\n#=GR a SS HHHHHHH\n"
    "b -CD.E.C\n#=GR b SS H\n#=GC SS_cons HHHH\n#=GC seq_cons .......\n# a remark\n//\n",
}


def folder_of(folder: Path, **files: str | bytes) -> Path:
    for name, content in files.items():
        (folder / f"{name}.sto").write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def message_of(folder: Path | str) -> str:
    with pytest.raises(SequenceError) as caught:
        read_families(folder)
    return str(caught.value)


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_fault_is_told_in_a_line_with_file_and_sequence(tmp_path: Path, content: str | bytes, message: str) -> None:
    folder_of(tmp_path, mine=HEADER + content if isinstance(content, str) else content, other=OTHER)
    expected = [f"'{tmp_path / 'mine.sto'}': {line}" for line in message.split("\n")]
    assert message_of(tmp_path).split("\n") == expected


def test_a_folder_without_families_is_told_in_one_line(tmp_path: Path) -> None:
    def told(path: Path | str) -> str:
        message = message_of(path)
        start = f"{str(path)!r}: expected "
        assert message.startswith(start) and "\n" not in message
        return message.removeprefix(start)

    of_files = "a folder of Stockholm files"
    none = f"{of_files} (.sto, .stk, .sth, .stockholm), got none"
    assert told(tmp_path / "missing") == f"{of_files}, got: no such file or directory"
    assert told("nul\0") == f"{of_files}, got an impossible path"
    assert told(tmp_path) == none
    (tmp_path / "notes.txt").touch()
    (tmp_path / "._mine.sto").write_bytes(b"\0\5\x16\7")  # what some systems leave beside a file
    assert told(tmp_path) == none
    folder_of(tmp_path, other=OTHER)
    assert told(tmp_path / "other.sto") == f"{of_files}, got a file"
    assert told(tmp_path) == "at least 2 families, so that one can be kept from training, got only 'other'"
    folder_of(tmp_path, again=OTHER)
    assert told(tmp_path) == "a family's name once, got 'other' in 'again.sto' and 'other.sto'"


@pytest.mark.parametrize("rows", GOOD_ROWS.values(), ids=GOOD_ROWS)
def test_layout_changes_nothing(tmp_path: Path, rows: str) -> None:
    mine, _ = read_families(folder_of(tmp_path, mine=(HEADER + rows).encode("latin-1"), other=OTHER))
    assert mine.sequences == ("a", "b")
    first, second = ("".join(ALPHABET[code] for code in codes) for codes in mine.codes)
    assert (first, second) == ("ACDKEF", "CDEC")
    assert [columns.tolist() for columns in mine.columns] == [[0, 1, 2, -1, 4, 6], [1, 2, 4, 6]]


FRAGMENTS = [HEADER, "//\n", "a ACD\n", "b AcD\n", "c --D\r\n", *"a \tX\né", "#=GF ID x\n", "#=GR a SS H\n"]


@settings(deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fragments=st.lists(st.sampled_from(FRAGMENTS), max_size=20))
def test_nearly_stockholm_is_read_or_refused(tmp_path: Path, fragments: list[str]) -> None:
    folder = folder_of(tmp_path, mine=HEADER + "".join(fragments), other=OTHER)
    try:
        families = read_families(folder)
    except SequenceError as error:
        assert all(line.isprintable() and line.startswith(f"'{folder}") for line in str(error).split("\n"))
    else:
        assert len(families) >= 2 and all(len(family.codes) >= 2 for family in families)


def test_partners_are_the_upper_case_residues_of_one_column(tmp_path: Path) -> None:
    rows = "a ACd-E\nb acDEF\nc -W--Y\n"
    mine, _ = read_families(folder_of(tmp_path, mine=HEADER + rows, other=OTHER))
    partners = {(i, j): mine.partners(i, j).tolist() for i in range(3) for j in range(3) if i != j}
    assert partners == {
        (0, 1): [-1, -1, -1, 4],
        (1, 0): [-1, -1, -1, -1, 3],
        (0, 2): [-1, 0, -1, 1],
        (2, 0): [1, 3],
        (1, 2): [-1, -1, -1, -1, 1],
        (2, 1): [-1, 4],
    }


def test_names_are_those_of_the_annotation_else_of_the_file(tmp_path: Path) -> None:
    rows = "a ACD\nb ACD\n//\n"
    one = f"{HEADER}#=GF ID   Zinc\n#=GF AC   PF00096.29\n#=GF DE   a finger\n{rows}"
    (tmp_path / "one.STO").write_text(one)
    (tmp_path / "two.stockholm").write_text(f"{HEADER}{rows}{HEADER}#=GF ID three\n{rows}{HEADER}{rows}")
    (tmp_path / "four.sth").write_text(HEADER + rows)
    (tmp_path / "Five.stk").write_text(HEADER + rows)
    found = [(family.name, family.accession) for family in read_families(str(tmp_path))]
    assert found == [("Five", ""), ("four", ""), ("three", ""), ("two-1", ""), ("two-3", ""), ("Zinc", "PF00096.29")]


def test_the_bundled_families_are_those_of_their_table() -> None:
    table = (PFAM / "README.md").read_text()
    rows = re.findall(r"^\| (\S+)\.sto \| (\S+) \| .* \| (\d+) \| (\d+) \| (\d+)% \| `(\w+)` \|$", table, re.MULTILINE)
    for family, row in zip(bundled_families(), rows, strict=True):
        lengths = [len(codes) for codes in family.codes]
        aligned = np.mean(np.concatenate(family.columns) >= 0)
        digest = hashlib.sha256((PFAM / f"{family.name}.sto").read_bytes()).hexdigest()
        counts = (str(len(lengths)), f"{np.mean(lengths):.0f}", f"{100 * aligned:.0f}")
        assert row == (family.name, family.accession, *counts, digest)


def test_every_third_family_validates() -> None:
    families = bundled_families()
    for chosen, expected in ((families[::-1], ["LuxC", "RRM_1"]), (families[:2], ["fn3"])):
        train, validation = split(chosen)
        assert [family.name for family in validation] == expected
        assert {*train, *validation} == {*chosen} and len(train) + len(validation) == len(chosen)
