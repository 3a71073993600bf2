"""Files and matrices become the right batches, and whatever is wrong with them is told in one line."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from Bio.Align import substitution_matrices
from hypothesis import given, settings
from hypothesis import strategies as st

from shared import sequences
from shared.sequences import (
    GLOBINS,
    Record,
    SequenceError,
    all_pairs,
    matrix_names,
    pair_batch,
    read_fasta,
    substitution_matrix,
)

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
LENGTHS_BY_ACCESSION = {
    "P69905": 142,
    "P68871": 147,
    "P02042": 147,
    "P69891": 147,
    "P02100": 147,
    "P02008": 142,
    "P09105": 142,
    "P02144": 154,
    "Q8WWM9": 190,
    "Q9NPG2": 151,
}

BAD_CONTENTS = {
    "no bytes": (b"", "expected at least 2 records, got an empty file"),
    "blank lines alone": (b"\n \r\n\t\n", "expected at least 2 records, got an empty file"),
    "byte-order mark alone": (b"\xef\xbb\xbf", "expected at least 2 records, got an empty file"),
    "not UTF-8": (b">a\nAC\n>b\nA\xffC\n", "expected UTF-8 text, got the byte 0xff at 10"),
    "gzip": (b"\x1f\x8b\x08\x00", "expected UTF-8 text, got the byte 0x8b at 1"),
    "UTF-16": (">a\nAC\n".encode("utf-16"), "expected UTF-8 text, got the byte 0xff at 0"),
    "binary that is UTF-8": (b"\x7fELF\x02\x01\x00", "expected text, got the control character '\\x7f'"),
    "terminal codes in a name": (b">a\x1b[31m\nAC\n>b\nAC\n", "expected text, got the control character '\\x1b'"),
    "terminal codes in one character": (">a\x9b".encode(), "expected text, got the control character '\\x9b'"),
    "no record": (b"just words\n", "expected '>' and a name first, got 'just words'"),
    "text before the first record": (b"\n; note\n>a\nAC\n>b\nAC\n", "expected '>' and a name first, got '; note'"),
    "a long line before": (b"A" * 10_000, f"expected '>' and a name first, got '{'A' * 59}…'"),
    "one record": (b">a\nAC\n", "expected at least 2 records, got only 'a'"),
    "no name": (b">a\nAC\n> \nAC\n", "record 2 '': expected a name after '>', got none"),
    "no letters": (b">a\n>b\nAC\n", "record 1 'a': expected at least one letter, got an empty sequence"),
    "no letters at the end": (b">a\nAC\n>b", "record 2 'b': expected at least one letter, got an empty sequence"),
    "a digit": (b">a\nAC\n>b\nACD1E\n", "record 2 'b': expected letters A-Z, got '1' at position 4"),
    "a gap": (b">a\nA-C\n>b\nAC\n", "record 1 'a': expected letters A-Z, got '-' at position 2"),
    "a dot": (b">a\n.AC\n>b\nAC\n", "record 1 'a': expected letters A-Z, got '.' at position 1"),
    "a stop on the second line": (
        b">a x\nACD\nEF*\n>b\nAC\n",
        "record 1 'a': expected letters A-Z, got '*' at position 6",
    ),
    "a space": (b">a\nAC DE\n>b\nAC\n", "record 1 'a': expected letters A-Z, got ' ' at position 3"),
    "a tab": (b">a\nAC\n>b\nACD\tE\n", "record 2 'b': expected letters A-Z, got '\\t' at position 4"),
    "a comment inside": (b">a\nAC\n;c\n>b\nAC\n", "record 1 'a': expected letters A-Z, got ';' at position 3"),
    "a second '>'": (b">a\nA>C\n>b\nAC\n", "record 1 'a': expected letters A-Z, got '>' at position 2"),
    "outside ASCII": (">a\nAC\n>b\nAéC\n".encode(), "record 2 'b': expected letters A-Z, got 'é' at position 2"),
    "a line separator": (
        ">a\nA\u2028C\n>b\nA\n".encode(),
        "record 1 'a': expected letters A-Z, got '\\u2028' at position 2",
    ),
    "a name twice": (b">a\nAC\n>a\nA?\n", "record 2 'a': expected letters A-Z, got '?' at position 2"),
    "a quote in a name": (b">a'b\nA1\n>b\nAC\n", "record 1 \"a'b\": expected letters A-Z, got '1' at position 2"),
    "a long name": (b">" + b"n" * 99 + b"\nA1", f"record 1 '{'n' * 59}…': expected letters A-Z, got '1' at position 2"),
}

GOOD_CONTENTS = {
    "plain": b">a\nACD\n>b\nEF\n",
    "no final newline": b">a\nACD\n>b\nEF",
    "Windows line ends": b">a\r\nACD\r\n>b\r\nEF\r\n",
    "old Macintosh line ends": b">a\rACD\r>b\rEF\r",
    "lower case": b">a\nacD\n>b\nef\n",
    "wrapped": b">a\nA\nC\nD\n>b\nE\nF\n",
    "blank lines": b"\n\n>a\n\nAC\n \nD\n\n>b\nEF\n\n",
    "blanks around lines": b" >a \n  ACD\t\n>b\n EF \n",
    "descriptions": b">a first of two\nACD\n>b\tthe > second\nEF\n",
    "byte-order mark": b"\xef\xbb\xbf>a\nACD\n>b\nEF\n",
}


@pytest.fixture(scope="module")
def globins() -> list[Record]:
    return read_fasta(GLOBINS)


def message_of(call: Callable[[], object]) -> str:
    """The text of the SequenceError that the call raises; it must be one line."""
    with pytest.raises(SequenceError) as caught:
        call()
    message = str(caught.value)
    assert message.isprintable()  # so it has no kind of line end either
    return message


def slow_similarity(first: str, second: str, matrix: str) -> np.ndarray:
    """The definition: Biopython's own lookup, one cell at a time, (len(first), len(second))."""
    table = substitution_matrices.load(matrix)
    assert isinstance(table, substitution_matrices.Array)
    return np.array([[table[one, other] for other in second] for one in first], dtype=np.float32)


def assert_batch(batch: tuple[np.ndarray, np.ndarray], records: list[Record], pairs: list, matrix: str) -> None:
    similarity, lengths = batch
    for b, (first, second) in enumerate(pairs):
        one, other = records[first].letters, records[second].letters
        assert lengths[b].tolist() == [len(one), len(other)], f"lengths of pair {b}"
        within = similarity[b, : len(one), : len(other)]
        assert np.array_equal(within, slow_similarity(one, other, matrix)), f"similarity of pair {b}"
        assert not similarity[b, len(one) :].any() and not similarity[b, :, len(other) :].any(), f"padding of pair {b}"


# Files.


@pytest.mark.parametrize(("content", "message"), BAD_CONTENTS.values(), ids=BAD_CONTENTS)
def test_bad_content_is_told_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.fasta"
    path.write_bytes(content)
    assert message_of(lambda: read_fasta(path)) == f"'{path}': {message}"


@pytest.mark.parametrize("content", GOOD_CONTENTS.values(), ids=GOOD_CONTENTS)
def test_layout_changes_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "good.fasta"
    path.write_bytes(content)
    assert read_fasta(path) == read_fasta(str(path)) == [Record("a", "ACD"), Record("b", "EF")]


def test_a_name_may_come_twice(tmp_path: Path) -> None:
    path = tmp_path / "twice.fasta"
    path.write_text(">a one\nAC\n>a two\nDE\n")
    assert read_fasta(path) == [Record("a", "AC"), Record("a", "DE")]


def test_all_26_letters_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "letters.fasta"
    path.write_text(">a\nabcdefghijklmnopqrstuvwxyz\n>b\nA\n")
    assert read_fasta(path)[0].letters == "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def test_one_very_long_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "long.fasta"
    path.write_text(">a\n" + "acdefghikl" * 200_000 + "\n>b\nA\n")
    assert len(read_fasta(path)[0].letters) == 2_000_000


def test_a_file_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "LARGEST_FILE_BYTES", 8)
    path = tmp_path / "large.fasta"
    path.write_text(">a\nA\n>b\nC")
    assert message_of(lambda: read_fasta(path)) == f"'{path}': expected at most 8 bytes, got more"
    path.write_text(">a\nA\n>b\n")  # 8 bytes: read, and found to lack letters
    assert "empty sequence" in message_of(lambda: read_fasta(path))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "missing.fasta"
    reason = "expected a readable FASTA file, got: no such file or directory"
    assert message_of(lambda: read_fasta(path)) == f"'{path}': {reason}"


def test_a_directory_is_told(tmp_path: Path) -> None:
    assert message_of(lambda: read_fasta(tmp_path)) == f"'{tmp_path}': expected a FASTA file, got a directory"


def test_a_file_below_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "x.fasta"
    assert message_of(lambda: read_fasta(path)) == f"'{path}': expected a readable FASTA file, got: not a directory"


def test_a_forbidden_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(*_: object) -> None:  # file modes do not stop every user who may run the tests
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbid)
    path = tmp_path / "secret.fasta"
    assert message_of(lambda: read_fasta(path)) == f"'{path}': expected a readable FASTA file, got: permission denied"


@pytest.mark.parametrize("path", ["nul\0.fasta", "surrogate\ud800.fasta"])
def test_an_impossible_path_is_told(path: str) -> None:
    assert message_of(lambda: read_fasta(path)) == f"{path!r}: expected a readable FASTA file, got an impossible path"


def test_an_odd_path_stays_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "two\nlines.fasta"
    path.touch()
    expected = f"{str(path)!r}: expected at least 2 records, got an empty file"
    assert message_of(lambda: read_fasta(path)) == expected


def read_or_refuse(directory: Path, content: bytes) -> None:
    path = directory / "random.fasta"
    path.write_bytes(content)
    try:
        records = read_fasta(path)
    except SequenceError as error:
        assert str(error).isprintable() and str(error).startswith(f"'{path}': ")
    else:
        assert len(records) >= 2
        assert all(record.name and re.fullmatch("[A-Z]+", record.letters) for record in records)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random")


@settings(deadline=None, database=None)
@given(content=st.binary(max_size=200))
def test_random_bytes_are_read_or_refused(directory: Path, content: bytes) -> None:
    read_or_refuse(directory, content)


@settings(deadline=None, database=None)
@given(content=st.text(max_size=200))
def test_random_text_is_read_or_refused(directory: Path, content: str) -> None:
    read_or_refuse(directory, content.encode())


FRAGMENTS = [
    ">",
    ">a\n",
    ">b c\r\n",
    "ACD",
    "wy",
    "\n",
    "\r",
    " ",
    "\t",
    "*",
    "-",
    "7",
    ";",
    "é",
    "\u2028",
    "\x85",
    "\0",
]


@settings(deadline=None, database=None)
@given(fragments=st.lists(st.sampled_from(FRAGMENTS), max_size=20))
def test_nearly_fasta_is_read_or_refused(directory: Path, fragments: list[str]) -> None:
    read_or_refuse(directory, "".join(fragments).encode())


NAMES = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1)
LETTERS = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=1)


@settings(deadline=None, database=None)
@given(
    records=st.lists(st.builds(Record, NAMES, LETTERS), min_size=2, max_size=5),
    width=st.integers(1, 80),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_what_was_written_is_read(directory: Path, records: list[Record], width: int, line_end: str) -> None:
    lines = []
    for name, letters in records:
        lines += [f">{name} described", *re.findall(f".{{1,{width}}}", letters)]
    path = directory / "written.fasta"
    path.write_bytes(line_end.join(lines).encode())
    assert read_fasta(path) == records


# The bundled globins.


def test_globins_are_at_least_twelve_plain_proteins(globins: list[Record]) -> None:
    assert len(globins) >= 12
    assert len({name for name, _ in globins}) == len(globins)
    for name, letters in globins:
        assert set(letters) <= set(AMINO_ACIDS), name
        assert letters.startswith("M") or not name.endswith("_HUMAN"), name


def test_globins_have_their_known_lengths(globins: list[Record]) -> None:
    lengths = {name.split("|")[1]: len(letters) for name, letters in globins}
    assert {accession: lengths.get(accession) for accession in LENGTHS_BY_ACCESSION} == LENGTHS_BY_ACCESSION


def test_all_pairs_of_globins_follow_the_definition(globins: list[Record]) -> None:
    batch = pair_batch(globins, all_pairs(len(globins)), substitution_matrix("BLOSUM62"), GLOBINS)
    few = [0, 1, len(batch[0]) - 1]  # the slow loop is slow
    pairs = all_pairs(len(globins))
    assert_batch((batch[0][few], batch[1][few]), globins, [pairs[b] for b in few], "BLOSUM62")


# Matrices.


def test_matrix_names_are_those_over_single_letters() -> None:
    assert set(substitution_matrices.load()) - set(matrix_names()) == {"SCHNEIDER"}
    assert list(matrix_names()) == sorted(matrix_names())


@pytest.mark.parametrize("name", matrix_names())
def test_a_matrix_is_that_of_biopython(name: str) -> None:
    matrix = substitution_matrix(name)
    assert matrix.name == name
    assert type(matrix.scores) is np.ndarray and matrix.scores.dtype == np.float32
    assert np.array_equal(matrix.scores, slow_similarity(matrix.alphabet, matrix.alphabet, name))


@pytest.mark.parametrize("name", ["blosum62", "Blosum62", "BLOSUM62"])
def test_case_of_a_matrix_name_does_not_matter(name: str) -> None:
    assert substitution_matrix(name).name == "BLOSUM62"


@pytest.mark.parametrize("name", ["BLOSUM63", "SCHNEIDER", "", "../BLOSUM62", "two\nlines"])
def test_an_unknown_matrix_is_answered_with_the_known_ones(name: str) -> None:
    known = ", ".join(matrix_names())
    expected = f"expected a substitution matrix out of {known}, got {name!r}"
    assert message_of(lambda: substitution_matrix(name)) == expected


# Batches.

RECORDS = [Record("one", "ACDEFGH"), Record("two", "W"), Record("three", "MKVLAAGIVGLW")]


def test_all_pairs_are_in_order() -> None:
    assert all_pairs(4) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert all_pairs(1) == all_pairs(0) == []


@settings(deadline=None, database=None, max_examples=50)
@given(
    records=st.lists(st.builds(Record, st.just("x"), st.text(AMINO_ACIDS, min_size=1, max_size=12)), min_size=2),
    matrix=st.sampled_from(["BLOSUM62", "PAM250", "GONNET1992"]),
    data=st.data(),
)
def test_a_batch_follows_the_definition(records: list[Record], matrix: str, data: st.DataObject) -> None:
    index = st.integers(0, len(records) - 1)
    pairs = data.draw(st.lists(st.tuples(index, index), min_size=1, max_size=5))
    similarity, lengths = pair_batch(records, pairs, substitution_matrix(matrix), "x.fasta")
    assert similarity.dtype == np.float32 and lengths.dtype == np.int32
    assert similarity.shape == (len(pairs), *lengths.max(axis=0))
    assert_batch((similarity, lengths), records, pairs, matrix)


def test_every_fault_in_a_batch_is_seen() -> None:
    pairs = [(0, 1), (0, 2), (1, 2)]
    batch = pair_batch(RECORDS, pairs, substitution_matrix("BLOSUM62"), "x.fasta")
    assert_batch(batch, RECORDS, pairs, "BLOSUM62")
    with pytest.raises(AssertionError, match="similarity of pair 0"):
        assert_batch(batch, RECORDS, pairs, "BLOSUM80")
    with pytest.raises(AssertionError, match="lengths of pair 2"):
        assert_batch(batch, RECORDS, [(0, 1), (0, 2), (2, 1)], "BLOSUM62")
    similarity, lengths = batch
    for row, col in [(6, 1), (0, 11)]:  # beside the one letter of the second sequence
        padded = similarity.copy()
        padded[0, row, col] = -1
        with pytest.raises(AssertionError, match="padding of pair 0"):
            assert_batch((padded, lengths), RECORDS, pairs, "BLOSUM62")


def test_swapping_a_pair_transposes_its_similarity() -> None:
    matrix = substitution_matrix("BLOSUM62")
    there, lengths_there = pair_batch(RECORDS, [(0, 2), (1, 0)], matrix, "x.fasta")
    back, lengths_back = pair_batch(RECORDS, [(2, 0), (0, 1)], matrix, "x.fasta")
    assert np.array_equal(there, back.transpose(0, 2, 1))
    assert np.array_equal(lengths_there, lengths_back[:, ::-1])


def test_the_first_sequence_lies_along_the_rows() -> None:
    similarity, lengths = pair_batch(RECORDS, [(0, 1)], substitution_matrix("BLOSUM62"), "x.fasta")
    assert similarity.tolist() == [[[-3], [-2], [-4], [-3], [1], [-2], [-2]]]  # A C D E F G H against W
    assert lengths.tolist() == [[7, 1]]


def test_no_pairs_make_an_empty_batch() -> None:
    similarity, lengths = pair_batch(RECORDS, [], substitution_matrix("BLOSUM62"), "x.fasta")
    assert similarity.shape == (0, 0, 0) and lengths.shape == (0, 2)


@pytest.mark.parametrize("letter", ["U", "?", "a", "é", "\n"])
def test_a_letter_outside_the_matrix_is_told(letter: str) -> None:
    records = [Record("one", "ACD"), Record("two", f"AC{letter}D{letter}")]
    assert message_of(lambda: pair_batch(records, [(0, 1)], substitution_matrix("blosum62"), "x.fasta")) == (
        "'x.fasta': record 2 'two': expected letters of BLOSUM62 (ARNDCQEGHILKMFPSTWYVBZX*), "
        f"got {letter!r} at position 3"
    )


def test_records_of_no_pair_are_not_looked_at() -> None:
    records = [*RECORDS, Record("odd", "U")]
    similarity, _ = pair_batch(records, [(0, 1)], substitution_matrix("BLOSUM62"), "x.fasta")
    assert similarity.shape == (1, 7, 1)


def test_pairs_that_the_system_would_be_killed_for_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(0, 0)] * 100
    records = [Record("short", "A" * 50)]
    available = SimpleNamespace(available=4 * 100 * 50 * 50)
    monkeypatch.setattr(sequences.psutil, "virtual_memory", lambda: available)
    assert pair_batch(records, pairs, substitution_matrix("BLOSUM62"), "x.fasta")[0].shape == (100, 50, 50)
    available.available -= 1
    assert message_of(lambda: pair_batch(records, pairs, substitution_matrix("BLOSUM62"), "x.fasta")) == (
        "'x.fasta': expected pairs that fit into memory, got float32 of shape (100, 50, 50)"
    )


def test_pairs_too_large_for_memory_are_told() -> None:
    records = [Record("long", "A" * 9_000_000)]  # more bytes than 47 bits can address
    assert message_of(lambda: pair_batch(records, [(0, 0)], substitution_matrix("BLOSUM62"), Path("x.fasta"))) == (
        "'x.fasta': expected pairs that fit into memory, got float32 of shape (1, 9000000, 9000000)"
    )
