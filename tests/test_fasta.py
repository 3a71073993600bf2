"""FASTA files are read as they are written, and all that is wrong with them is told at once."""

import bz2
import gzip
import lzma
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared import sequence_files
from shared.sequences import GLOBINS, Record, SequenceError, read_fasta, substitution_matrix

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
    "not UTF-8": (b">a\nAC\n>b\nA\xffC\n", "record 2 'b': expected letters A-Z or *, got 'ÿ' at position 2"),
    "a file packed by bzip2": (bz2.compress(b">a\nAC\n"), "expected text, packed by gzip or not, got bzip2"),
    "a file packed by xz": (lzma.compress(b">a\nAC\n"), "expected text, packed by gzip or not, got xz"),
    "a cut gzip file": (
        gzip.compress(b">a\nAC\n")[:-4],
        "expected a whole gzip file, got: Compressed file ended before the end-of-stream marker was reached",
    ),
    "UTF-16": (">a\nAC\n".encode("utf-16"), "expected text, got the control character '\\x00'"),
    "binary that is UTF-8": (b"\x7fELF\x02\x01\x00", "expected text, got the control character '\\x7f'"),
    "terminal codes in a name": (b">a\x1b[31m\nAC\n>b\nAC\n", "expected text, got the control character '\\x1b'"),
    "terminal codes in one character": (">a\x9b".encode(), "expected text, got the control character '\\x9b'"),
    "no record": (b"just words\n", "expected '>' and a name first, got 'just words'"),
    "text before the first record": (b"\n; note\n>a\nAC\n>b\nAC\n", "expected '>' and a name first, got '; note'"),
    "a long line before": (b"A" * 10_000, f"expected '>' and a name first, got '{'A' * 59}…'"),
    "one record": (b">a\nAC\n", "expected at least 2 records, got only 'a'"),
    "no name": (b">a\nAC\n> \nAC\n", "record 2 '': expected a name after '>', got none"),
    "no letters": (b">a\n>b\nAC\n", "record 1 'a': expected at least one letter, got none"),
    "no letters at the end": (b">a\nAC\n>b", "record 2 'b': expected at least one letter, got none"),
    "a digit": (b">a\nAC\n>b\nACD1E\n", "record 2 'b': expected letters A-Z or *, got '1' at position 4"),
    "a gap": (b">a\nA-C\n>b\nAC\n", "record 1 'a': expected letters A-Z or *, got '-' at position 2"),
    "a dot": (b">a\n.AC\n>b\nAC\n", "record 1 'a': expected letters A-Z or *, got '.' at position 1"),
    "a stop alone": (b">a\n*\n>b\nAC\n", "record 1 'a': expected at least one letter, got none"),
    "a digit on the second line": (
        b">a x\nACD\nEF1\n>b\nAC\n",
        "record 1 'a': expected letters A-Z or *, got '1' at position 6",
    ),
    "a letter more than once": (
        b">a\nA--C-DE1\n>b\nAC\n",
        "record 1 'a': expected letters A-Z or *, got '-' at positions 2, 3, 5, '1' at position 8",
    ),
    "more than can be listed": (
        b">a\n--------01234\n>b\nAC\n",
        "record 1 'a': expected letters A-Z or *, got '-' at positions 1, 2, 3, 4 and 4 more, '0' at position 9, "
        "'1' at position 10, '2' at position 11 and 2 other letters",
    ),
    "two faults of a record": (
        b">\nA1\n>b\nAC\n",
        "record 1 '': expected a name after '>', got none; expected letters A-Z or *, got '1' at position 2",
    ),
    "a space": (b">a\nAC DE\n>b\nAC\n", "record 1 'a': expected letters A-Z or *, got ' ' at position 3"),
    "a tab": (b">a\nAC\n>b\nACD\tE\n", "record 2 'b': expected letters A-Z or *, got '\\t' at position 4"),
    "a comment inside": (b">a\nAC\n;c\n>b\nAC\n", "record 1 'a': expected letters A-Z or *, got ';' at position 3"),
    "a second '>'": (b">a\nA>C\n>b\nAC\n", "record 1 'a': expected letters A-Z or *, got '>' at position 2"),
    "outside ASCII": (">a\nAC\n>b\nAéC\n".encode(), "record 2 'b': expected letters A-Z or *, got 'é' at position 2"),
    "a line separator": (
        ">a\nA\u2028C\n>b\nA\n".encode(),
        "record 1 'a': expected letters A-Z or *, got '\\u2028' at position 2",
    ),
    "a name twice": (b">a\nAC\n>a\nA?\n", "record 2 'a': expected letters A-Z or *, got '?' at position 2"),
    "a quote in a name": (b">a'b\nA1\n>b\nAC\n", "record 1 \"a'b\": expected letters A-Z or *, got '1' at position 2"),
    "a long name": (
        b">" + b"n" * 99 + b"\nA1\n>b\nAC\n",
        f"record 1 '{'n' * 59}…': expected letters A-Z or *, got '1' at position 2",
    ),
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
    "merged names of NCBI": b">a\x01c [x]\nACD\n>b [x]\x01d\x01e\nEF\n",
    "descriptions that are not UTF-8": b">a M\xfcller \x96\nACD\n>b\nEF\n",
    "gzip": gzip.compress(b">a\nACD\n") + gzip.compress(b">b\nEF\n"),
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


def test_every_faulty_record_has_a_line_in_one_error(tmp_path: Path) -> None:
    path = tmp_path / "bad.fasta"
    path.write_text(">a\nA1\n>b\nAC\n>\nAC\n>d\n>e\nA-\n")
    with pytest.raises(SequenceError) as caught:
        read_fasta(path)
    assert str(caught.value).split("\n") == [
        f"'{path}': record 1 'a': expected letters A-Z or *, got '1' at position 2",
        f"'{path}': record 3 '': expected a name after '>', got none",
        f"'{path}': record 4 'd': expected at least one letter, got none",
        f"'{path}': record 5 'e': expected letters A-Z or *, got '-' at position 2",
    ]
    path.write_text(">a\nA1\n>b\nAJ\n")
    with pytest.raises(SequenceError, match=r"\n.* 'b': expected letters of NUC.4.4 \(.*\), got 'J' at position 2$"):
        read_fasta(path, substitution_matrix("NUC.4.4"))
    path.write_text(">a\nA1\n")
    with pytest.raises(SequenceError, match=r"'1' at position 2\n.*: expected at least 2 records, got only 'a'$"):
        read_fasta(path)


@pytest.mark.parametrize(("faulty", "last"), [(10, "record 10 '10'"), (11, "and 1 more"), (13, "and 3 more")])
def test_at_most_ten_faulty_records_are_named(tmp_path: Path, faulty: int, last: str) -> None:
    path = tmp_path / "bad.fasta"
    path.write_text("".join(f">{number}\n-\n" for number in range(1, faulty + 1)) + ">good\nACD\n")
    with pytest.raises(SequenceError) as caught:
        read_fasta(path)
    lines = str(caught.value).split("\n")
    assert [line.split(":")[1] for line in lines[:10]] == [f" record {n} '{n}'" for n in range(1, 11)]
    assert len(lines) == min(faulty, 11) and last in lines[-1]


@pytest.mark.parametrize(
    ("written", "letters", "final_stop"),
    [("ACD*", "ACD", True), ("AC\nd\n*", "ACD", True), ("A*CD", "A*CD", False), ("*A*C**", "*A*C*", True)],
)
def test_one_final_stop_is_left_out_and_others_are_letters(
    tmp_path: Path, written: str, letters: str, final_stop: bool
) -> None:
    path = tmp_path / "stop.fasta"
    path.write_text(f">a\n{written}\n>b\nEF\n")
    assert read_fasta(path) == [Record("a", letters, final_stop), Record("b", "EF", False)]


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
    monkeypatch.setattr(sequence_files, "LARGEST_FILE_BYTES", 8)
    path = tmp_path / "large.fasta"
    path.write_text(">a\nA\n>b\nC")
    assert message_of(lambda: read_fasta(path)) == f"'{path}': expected at most 8 bytes, got more"
    path.write_text(">a\nA\n>b\n")  # 8 bytes: read, and found to lack letters
    assert "expected at least one letter" in message_of(lambda: read_fasta(path))


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
        lines = str(error).split("\n")
        assert all(line.isprintable() and line.startswith((f"'{path}': ", "and ")) for line in lines)
    else:
        assert len(records) >= 2
        assert all(record.name and re.fullmatch("[A-Z*]+", record.letters) for record in records)


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


FRAGMENTS = [">a\n", ">b c\r\n", "ACD", "wy", *">\n\r \t*-7;é\u2028\x85\0"]


@settings(deadline=None, database=None)
@given(fragments=st.lists(st.sampled_from(FRAGMENTS), max_size=20))
def test_nearly_fasta_is_read_or_refused(directory: Path, fragments: list[str]) -> None:
    read_or_refuse(directory, "".join(fragments).encode())


NAMES = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1)
LETTERS = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ*", min_size=1)


@settings(deadline=None, database=None)
@given(
    records=st.lists(st.builds(Record, NAMES, LETTERS, st.just(True)), min_size=2, max_size=5),
    width=st.integers(1, 80),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_what_was_written_is_read(directory: Path, records: list[Record], width: int, line_end: str) -> None:
    lines = []
    for name, letters, _ in records:
        lines += [f">{name} described", *re.findall(f".{{1,{width}}}", f"{letters}*")]
    path = directory / "written.fasta"
    path.write_bytes(line_end.join(lines).encode())
    assert read_fasta(path) == records


def test_globins_are_at_least_twelve_plain_proteins(globins: list[Record]) -> None:
    assert len(globins) >= 12
    assert len({record.name for record in globins}) == len(globins)
    for name, letters, final_stop in globins:
        assert not final_stop
        assert set(letters) <= set(AMINO_ACIDS), name
        assert letters.startswith("M") or not name.endswith("_HUMAN"), name


def test_globins_have_their_known_lengths(globins: list[Record]) -> None:
    lengths = {name.split("|")[1]: len(letters) for name, letters, _ in globins}
    assert {accession: lengths.get(accession) for accession in LENGTHS_BY_ACCESSION} == LENGTHS_BY_ACCESSION
