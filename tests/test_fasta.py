"""FASTA files are read as they are written, all that is wrong with them is told at once; batches of their pairs."""

import bz2
import gzip
import re
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from Bio.Align import substitution_matrices
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared import sequence_files
from shared.sequences import PairBatch, Record, SequenceError, matrix_names, pair_batch, read_fasta, substitution_matrix

RECORDS = [Record("one", "ACDEFGH"), Record("two", "W"), Record("three", "MKVLAAGIVGLW")]


def exactly(text: str) -> str:
    """The pattern of the whole text of an error."""
    return rf"\A{re.escape(text)}\Z"


def assert_batch(batch: PairBatch, records: list[Record], pairs: list[tuple[int, int]], matrix: str) -> None:
    """Compare with Biopython's own lookup, one cell at a time."""
    similarity, lengths, _ = batch
    table = substitution_matrices.load(matrix)
    assert isinstance(table, substitution_matrices.Array)
    for b, (first, second) in enumerate(pairs):
        one, other = records[first].letters, records[second].letters
        assert lengths[b].tolist() == [len(one), len(other)]
        expected = np.zeros(similarity.shape[1:], np.float32)
        for i, j in np.ndindex(len(one), len(other)):
            expected[i, j] = table[one[i], other[j]]
        assert np.array_equal(similarity[b], expected)


def test_matrix_names_are_those_over_single_letters() -> None:
    assert set(substitution_matrices.load()) - set(matrix_names()) == {"SCHNEIDER"}
    assert list(matrix_names()) == sorted(matrix_names())


def test_each_matrix_scores_the_first_sequence_along_the_rows() -> None:
    random = np.random.default_rng(0)
    for name in matrix_names():
        matrix = substitution_matrix(name.lower())
        assert matrix.name == name
        assert type(matrix.scores) is np.ndarray and matrix.scores.dtype == np.float32
        letters = ["".join(random.permutation(list(matrix.alphabet))[:count]) for count in (99, 5, 1)]
        records = [Record("x", letters_of_one) for letters_of_one in letters]
        for pairs in ([(0, 1), (1, 0), (2, 2)], [(2, 1)]):
            batch = pair_batch(records, pairs, matrix, "x.fasta")
            assert batch.similarity.dtype == np.float32 and batch.lengths.dtype == np.int32
            assert batch.similarity.shape == (len(pairs), *batch.lengths.max(axis=0))
            assert_batch(batch, records, pairs, name)
    similarity, lengths, _ = pair_batch(RECORDS, [], substitution_matrix("BLOSUM62"), "x.fasta")
    assert similarity.shape == (0, 0, 0) and lengths.shape == (0, 2)


def test_every_record_with_letters_outside_the_matrix_has_a_line() -> None:
    records = [Record("one", "AJ"), Record("two", "W"), Record("three", "*a\nX*")]
    letters = "expected letters of GONNET1992 (ACDEFGHIKLMNPQRSTVWY)"
    unknown = "'*' at positions 1, 5, 'a' at position 2, '\\n' at position 3, 'X' at position 4"
    expected = f"'x.fasta': record 1 'one': {letters}, got 'J' at position 2\n'x.fasta': record 3 'three': {letters}"
    with pytest.raises(SequenceError, match=exactly(f"{expected}, got {unknown}")):
        pair_batch(records, [(2, 1), (0, 1)], substitution_matrix("gonnet1992"), "x.fasta")


def test_selenocysteine_and_pyrrolysine_are_scored_as_others_with_a_note() -> None:
    records = [Record("one", "AUOU"), Record("two", "WU"), Record("three", "ACKC")]
    matrix = substitution_matrix("BLOSUM62")
    batch = pair_batch(records, [(0, 2), (0, 1)], matrix, "folder/x.fasta")
    usual = [record._replace(letters=record.letters.replace("U", "C").replace("O", "K")) for record in records]
    assert_batch(batch, usual, [(0, 2), (0, 1)], "BLOSUM62")
    assert batch.notes == (
        "x.fasta: U, which BLOSUM62 lacks, is scored as C in 2 of 3 sequences",
        "x.fasta: O, which BLOSUM62 lacks, is scored as K in 1 of 3 sequences",
    )


def test_a_letter_that_the_matrix_has_is_scored_by_its_row() -> None:
    records = [Record("one", "UOK"), Record("two", "A*C")]
    batch = pair_batch(records, [(0, 1)], substitution_matrix("BLASTP"), "x.fasta")
    assert_batch(batch, records, [(0, 1)], "BLASTP")
    assert batch.notes == ()


@pytest.mark.parametrize(
    ("letters", "matrix", "told"),
    [
        ("ACGUN", "BLOSUM62", 1),
        ("ACGT" * 9 + "RY", "BLOSUM62", 1),
        ("ACGT", "NUC.4.4", 0),
        ("ACGTW", "BLOSUM62", 0),
        ("ACGTACGTACGTL", "BLOSUM62", 0),
    ],
)
def test_nucleotides_that_are_scored_as_amino_acids_are_told(letters: str, matrix: str, told: int) -> None:
    records = [Record("one", "ACGT"), Record("two", letters)]
    notes = pair_batch(records, [(0, 1)], substitution_matrix(matrix), "x.fasta").notes
    text = "x.fasta: these look like nucleotides; --matrix NUC.4.4 scores such, BLOSUM62 amino acids"
    assert notes[-1:] == (text,) * told


def test_uracil_is_scored_as_thymine_among_nucleotides() -> None:
    records = [Record("one", "ACGU"), Record("two", "ACGT")]
    batch = pair_batch(records, [(0, 1)], substitution_matrix("NUC.4.4"), "x.fasta")
    assert_batch(batch, [records[1], records[1]], [(0, 1)], "NUC.4.4")
    assert batch.notes == ("x.fasta: U, which NUC.4.4 lacks, is scored as T in 1 of 2 sequences",)


def test_records_of_no_pair_are_neither_refused_nor_noted() -> None:
    records = [*RECORDS, Record("odd", "J"), Record("stop", "U", final_stop=True)]
    similarity, _, notes = pair_batch(records, [(0, 1)], substitution_matrix("BLOSUM62"), "x.fasta")
    assert similarity.shape == (1, 7, 1) and notes == ()
    notes = pair_batch(records, [(0, 4)], substitution_matrix("BLASTP"), "x.fasta").notes
    assert notes == ("x.fasta: the final * is left out in 1 of 2 sequences",)


LETTERS_GOT = "expected letters A-Z or *, got"
BAD_CONTENTS = {
    "no bytes": (b"", "expected at least 2 records, got an empty file"),
    "not UTF-8": (b">a\nAC\n>b\nA\xffC\n", f"record 2 'b': {LETTERS_GOT} 'ÿ' at position 2"),
    "UTF-16": (">a\nAC\n".encode("utf-16"), "expected text, packed by gzip or not, got UTF-16: save it as UTF-8"),
    "a file packed by bzip2": (bz2.compress(b">a\nAC\n"), "expected text, packed by gzip or not, got bzip2"),
    "a cut gzip file": (gzip.compress(b">a\nAC\n")[:-4], "expected a whole gzip file, got: Compressed file ended"),
    "terminal codes in a name": (b">a\x1b[31m\nAC\n>b\nAC\n", "expected text, got the control character '\\x1b'"),
    "text before the first record": (b"\n; note\n>a\nAC\n>b\nAC\n", "expected '>' and a name first, got '; note'"),
    "a long line before": (b"A" * 10_000, f"expected '>' and a name first, got '{'A' * 59}…'"),
    "one record": (b">a\nAC\n", "expected at least 2 records, got only 'a'"),
    "a stop alone": (b">a\n*\n>b\nAC\n", "record 1 'a': expected at least one letter, got none"),
    "a gap on the second line": (b">a x\nACD\nEF-\n>b\nAC\n", f"record 1 'a': {LETTERS_GOT} '-' at position 6"),
    "more than can be listed": (
        b">a\n--------01234\n>b\nAC\n",
        f"record 1 'a': {LETTERS_GOT} '-' at positions 1, 2, 3, 4 and 4 more, '0' at position 9, "
        "'1' at position 10, '2' at position 11 and 2 other letters",
    ),
    "two faults": (b">\nA1\n>b\nAC\n", f"record 1 '': expected a name after '>', got none; {LETTERS_GOT} '1'"),
    "a tab": (b">a\nAC\n>b\nACD\tE\n", f"record 2 'b': {LETTERS_GOT} '\\t' at position 4"),
    "a line separator": (">a\nA\u2028C\n>b\nA\n".encode(), f"record 1 'a': {LETTERS_GOT} '\\u2028' at position 2"),
    "a quote in a name": (b">a'b\nA1\n>b\nAC\n", f"record 1 \"a'b\": {LETTERS_GOT} '1' at position 2"),
}

GOOD_CONTENTS = {
    "plain": b">a\nACD\n>b\nEF\n",
    "Windows line ends": b">a\r\nACD\r\n>b\r\nEF\r\n",
    "old Macintosh line ends": b">a\rACD\r>b\rEF\r",
    "lower case": b">a\nacD\n>b\nef\n",
    "wrapped, without a last line end": b">a\nA\nC\nD\n>b\nE\nF",
    "blank lines": b"\n\n>a\n\nAC\n \nD\n\n>b\nEF\n\n",
    "blanks around lines": b" >a \n  ACD\t\n>b\n EF \n",
    "descriptions": b">a first of two\nACD\n>b\tthe > second\nEF\n",
    "merged names of NCBI": b">a\x01c [x]\nACD\n>b [x]\x01d\x01e\nEF\n",
    "descriptions that are not UTF-8": b">a M\xfcller \x96\nACD\n>b\nEF\n",
    "gzip": gzip.compress(b">a\nACD\n") + gzip.compress(b">b\nEF\n"),
    "byte-order mark": b"\xef\xbb\xbf>a\nACD\n>b\nEF\n",
}


def message_of(path: Path | str) -> str:
    """The text of the SequenceError of a file; none of its lines has another kind of line end."""
    with pytest.raises(SequenceError) as caught:
        read_fasta(path)
    message = str(caught.value)
    assert all(line.isprintable() for line in message.split("\n"))
    return message


@pytest.mark.parametrize(("content", "message"), BAD_CONTENTS.values(), ids=BAD_CONTENTS)
def test_bad_content_is_told_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.fasta"
    path.write_bytes(content)
    assert "\n" not in message_of(path)
    assert message_of(path).startswith(f"'{path}': {message}")


@pytest.mark.parametrize("content", GOOD_CONTENTS.values(), ids=GOOD_CONTENTS)
def test_layout_changes_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "good.fasta"
    path.write_bytes(content)
    assert read_fasta(path) == read_fasta(str(path)) == [Record("a", "ACD"), Record("b", "EF")]


def test_every_faulty_record_has_a_line_in_one_error(tmp_path: Path) -> None:
    path = tmp_path / "bad.fasta"
    path.write_text(">a\nA1\n>b\nAC\n>\nAC\n>d\n>e\nA-\n")
    assert message_of(path).split("\n") == [
        f"'{path}': record 1 'a': expected letters A-Z or *, got '1' at position 2",
        f"'{path}': record 3 '': expected a name after '>', got none",
        f"'{path}': record 4 'd': expected at least one letter, got none",
        f"'{path}': record 5 'e': expected letters A-Z or *, got '-' at position 2",
    ]
    path.write_text(">a\nA1\n>b\nAJ\n")
    with pytest.raises(SequenceError, match=r"\n.* 'b': expected letters of NUC.4.4 \(.*\), got 'J' at position 2$"):
        read_fasta(path, substitution_matrix("NUC.4.4"))
    path.write_text(">a\nA1\n")
    first, last = message_of(path).split("\n")
    assert first.endswith("'1' at position 2") and last.endswith("expected at least 2 records, got only 'a'")


@pytest.mark.parametrize(("faulty", "last"), [(10, "record 10 '10'"), (11, "and 1 more"), (13, "and 3 more")])
def test_at_most_ten_faulty_records_are_named(tmp_path: Path, faulty: int, last: str) -> None:
    path = tmp_path / "bad.fasta"
    path.write_text("".join(f">{number}\n-\n" for number in range(1, faulty + 1)) + ">good\nACD\n")
    lines = message_of(path).split("\n")
    assert [line.split(":")[1] for line in lines[:10]] == [f" record {n} '{n}'" for n in range(1, 11)]
    assert len(lines) == min(faulty, 11) and last in lines[-1]


@pytest.mark.parametrize(
    ("written", "letters", "final_stop"),
    [("ACD*", "ACD", True), ("AC\nd\n*", "ACD", True), ("A*CD", "A*CD", False), ("*A*C**", "*A*C*", True)],
)
def test_one_final_stop_is_left_out_and_others_are_letters(tmp_path, written, letters, final_stop) -> None:
    path = tmp_path / "stop.fasta"
    path.write_text(f">a\n{written}\n>b\nEF\n")
    assert read_fasta(path) == [Record("a", letters, final_stop), Record("b", "EF", False)]


def test_names_may_repeat_all_letters_count_and_a_line_may_be_long(tmp_path: Path) -> None:
    path, letters = tmp_path / "file.fasta", "abcdefghijklmnopqrstuvwxyz" * 80_000
    path.write_text(f">a one\n{letters}\n>a two\nDE\n>é|>;*' three\nFG\n", encoding="utf-8")
    assert read_fasta(path) == [Record("a", letters.upper()), Record("a", "DE"), Record("é|>;*'", "FG")]


def test_a_file_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_files, "LARGEST_FILE_BYTES", 8)
    path = tmp_path / "large.fasta"
    path.write_text(">a\nA\n>b\nC")
    assert message_of(path) == f"'{path}': expected at most 8 bytes, got more"
    path.write_text(">a\nA\n>b\n")  # 8 bytes: read, and found to lack letters
    assert "expected at least one letter" in message_of(path)


def test_a_path_that_cannot_be_read_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    readable = "expected a readable FASTA file, got"
    for path, reason in (
        (tmp_path / "missing.fasta", f"{readable}: no such file or directory"),
        (tmp_path, "expected a FASTA file, got a directory"),
        (tmp_path / "file" / "x.fasta", f"{readable}: not a directory"),
        ("nul\0.fasta", f"{readable} an impossible path"),
        ("surrogate\ud800.fasta", f"{readable} an impossible path"),
        (tmp_path / "two\nlines.fasta", f"{readable}: no such file or directory"),
    ):
        assert message_of(path) == f"{str(path)!r}: {reason}"
    # file modes do not stop every user who may run the tests
    monkeypatch.setattr(Path, "open", Mock(side_effect=PermissionError(13, "Permission denied")))
    assert message_of("secret").endswith(f"{readable}: permission denied")


FRAGMENTS = [">a\n", ">b c\r\n", "ACD", "wy", *">\n\r \t*-7;é\u2028\x85\0"]
NEARLY = st.lists(st.sampled_from(FRAGMENTS), max_size=20).map("".join)


@settings(deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200) | (st.text(max_size=200) | NEARLY).map(str.encode))
def test_random_content_is_read_or_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "random.fasta"
    path.write_bytes(content)
    try:
        records = read_fasta(path)
    except SequenceError as error:
        assert all(line.isprintable() and line.startswith((f"'{path}': ", "and ")) for line in str(error).split("\n"))
    else:
        assert len(records) >= 2
        assert all(record.name and re.fullmatch("[A-Z*]+", record.letters) for record in records)
