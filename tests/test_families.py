"""Stockholm files read as people write them; pairs drawn from families, batches of them, and their quality."""

import gzip
import hashlib
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_up_families import made_up_family

from shared.learning.baseline import GAP_EXTEND, GAP_OPEN, TEMPERATURE, blosum_weights
from shared.learning.batches import CELLS, MOST_PAIRS, Batch, Packed, Pair, bucket, draw_pairs, pack
from shared.learning.families import ALPHABET, PFAM, Family, bundled_families, read_families, split
from shared.learning.quality import count, quality
from shared.sequences import SequenceError

FAMILIES = bundled_families()
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
        start, message = message_of(path).split(": expected ")
        assert start == repr(str(path)) and "\n" not in message
        return message

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
    mine, _ = read_families(folder_of(tmp_path, mine=HEADER + "a ACd-E\nb acDEF\nc -W--Y\n", other=OTHER))
    assert [mine.partners(0, other).tolist() for other in (1, 2)] == [[-1, -1, -1, 4], [-1, 0, -1, 1]]
    assert [mine.partners(other, 0).tolist() for other in (1, 2)] == [[-1, -1, -1, -1, 3], [1, 3]]


def test_names_are_those_of_the_annotation_else_of_the_file(tmp_path: Path) -> None:
    rows = "a ACD\nb ACD\n//\n"
    one = f"{HEADER}#=GF ID   Zinc\n#=GF AC   PF00096.29\n#=GF DE   a finger\n{rows}"
    (tmp_path / "one.STO").write_text(one)
    (tmp_path / "two.stockholm").write_text(f"{HEADER}{rows}{HEADER}#=GF ID three\n{rows}{HEADER}{rows}")
    (tmp_path / "four.sth").write_text(HEADER + rows)
    (tmp_path / "Five.stk").write_text(HEADER + rows)
    families = [(family.name, family.accession) for family in read_families(str(tmp_path))]
    assert families == [("Five", ""), ("four", ""), ("three", ""), ("two-1", ""), ("two-3", ""), ("Zinc", "PF00096.29")]


def test_the_bundled_families_are_those_of_their_table() -> None:
    table = (PFAM / "README.md").read_text()
    rows = re.findall(r"^\| (\S+)\.sto \| (\S+) \| .* \| (\d+) \| (\d+) \| (\d+)% \| `(\w+)` \|$", table, re.MULTILINE)
    for family, row in zip(FAMILIES, rows, strict=True):
        lengths = [len(codes) for codes in family.codes]
        aligned = np.mean(np.concatenate(family.columns) >= 0)
        digest = hashlib.sha256((PFAM / f"{family.name}.sto").read_bytes()).hexdigest()
        counts = (str(len(lengths)), f"{np.mean(lengths):.0f}", f"{100 * aligned:.0f}")
        assert row == (family.name, family.accession, *counts, digest)


def test_every_third_family_validates() -> None:
    for chosen, expected in ((FAMILIES[::-1], ["LuxC", "RRM_1"]), (FAMILIES[:2], ["fn3"])):
        train, validation = split(chosen)
        assert [family.name for family in validation] == expected
        assert {*train, *validation} == {*chosen} and len(train) + len(validation) == len(chosen)


def made_up(name: str, columns: list[list[int]]) -> Family:
    """A family with these columns of the residues of its sequences, which are all alanine."""
    codes = tuple(np.zeros(len(residues), np.int32) for residues in columns)
    names = tuple(f"{name}{number}" for number in range(len(columns)))
    return Family(name, "", names, codes, tuple(np.array(residues, np.int32) for residues in columns))


def drawn(of_each: int, seed: int = 0, families: Sequence[Family] = FAMILIES) -> list[Pair]:
    random = np.random.default_rng(seed)
    return [pair for family in families for pair in draw_pairs(family, of_each, random)]


def test_pairs_are_drawn_without_replacement_and_all_of_a_small_family() -> None:
    pairs = drawn(100)
    assert len(set(pairs)) == len(pairs)
    for family in FAMILIES:
        chosen = {(pair.first, pair.second) for pair in pairs if pair.family is family}
        every = set(itertools.combinations(range(len(family.codes)), 2))
        assert chosen <= every and len(chosen) == min(100, len(every))


def test_the_generator_decides_the_draw_and_the_order() -> None:
    def shuffled(seed: int) -> list[tuple[Pair, ...]]:
        return [packed.pairs for packed in pack(drawn(20, seed), np.random.default_rng(seed))]

    assert shuffled(0) == shuffled(0) != shuffled(1)
    pairs = drawn(32, families=[made_up("one", [[0]] * 9), made_up("other", [[0]] * 9)])
    for random, families in ((None, [1, 1]), (np.random.default_rng(0), [2, 2])):  # mixed in a bucket if shuffled
        assert [len({pair.family for pair in packed.pairs}) for packed in pack(pairs, random)] == families


def test_pairs_without_a_true_pair_are_not_drawn() -> None:
    family = made_up("fragments", [[0, 1], [1, 2], [2, 3], [-1, 4]])
    pairs = draw_pairs(family, 10, np.random.default_rng(0))
    assert sorted((pair.first, pair.second) for pair in pairs) == [(0, 1), (1, 2)]
    thirds = made_up("thirds", [[number % 3] for number in range(60)])  # 1,770 pairs, 570 with a true pair
    assert len(draw_pairs(thirds, 50, np.random.default_rng(0))) == 50


@pytest.mark.parametrize("seed", [None, 0])
def test_batches_hold_each_pair_once_with_its_residues_and_true_partners(seed: int | None) -> None:
    pairs = drawn(20)
    batches = pack(pairs, None if seed is None else np.random.default_rng(seed))
    held = [pair for packed in batches for pair in packed.pairs]
    assert len(held) == len(pairs) and set(held) == set(pairs)
    for batch, packed in batches:
        assert batch.weights.tolist() == [1] * len(packed) + [0] * (len(batch.weights) - len(packed))
        assert not batch.lengths[len(packed) :].any()
        for row, (one, other) in enumerate(batch.lengths):  # padding
            assert not batch.first[row, one:].any() and not batch.second[row, other:].any()
            assert (batch.partners[row, one:] == -1).all()
        for row, (family, first, second) in enumerate(packed):
            one, other = batch.lengths[row]
            assert np.array_equal(batch.first[row, :one], family.codes[first])
            assert np.array_equal(batch.second[row, :other], family.codes[second])
            at = np.flatnonzero(batch.partners[row] >= 0)
            columns, partner_columns = family.columns[first][at], family.columns[second][batch.partners[row, at]]
            assert np.array_equal(columns, partner_columns) and columns.min() >= 0
            common = np.intersect1d(family.columns[first], family.columns[second])
            assert len(at) == np.count_nonzero(common >= 0) > 0


def test_few_shapes_come_again_in_every_draw_and_grow_by_a_half() -> None:
    shapes = {packed.batch.first.shape for seed in range(5) for packed in pack(drawn(100, seed))}
    assert len(shapes) <= 9
    for pairs, length in shapes:
        assert pairs <= MOST_PAIRS and (pairs == 1 or pairs * length**2 <= CELLS)
    sizes = sorted({bucket(length) for length in range(1, 3000)})
    assert sizes[:6] == [32, 48, 72, 112, 168, 256]
    assert all(size % 8 == 0 and bucket(size) == size and bucket(size + 1) > size for size in sizes[:-1])
    assert all(after / before < 1.6 for before, after in itertools.pairwise(sizes))


def by_hand() -> tuple[Packed, np.ndarray]:
    """Two pairs of a family with unaligned residues and one that only fills, and a prediction of them."""
    family = made_up("made up", [[0, 1, 2, -1, 4, -1], [0, 1, -1, 4, -1], [0, 3]])
    (packed,) = pack([Pair(family, 0, 1), Pair(family, 0, 2)])
    predicted = np.zeros(packed.batch.partners.shape, np.int32)  # all that lies beyond the sequences is wrong
    # a hit; wrong; one where none is true; unaligned with aligned; not made; unaligned with unaligned, not counted
    predicted[0, :6] = [0, 2, 1, 3, -1, 4]
    predicted[1, :6] = [0, -1, -1, -1, -1, -1]
    return packed, predicted


class Trainer:
    """Predicts what it is given, or half of the true partners."""

    def __init__(self, predicted: np.ndarray | None = None) -> None:
        self._predicted = predicted

    def predicted(self, batch: Batch) -> np.ndarray:
        shown = np.arange(batch.partners.shape[1]) < batch.lengths[:, :1] / 2
        return np.where(shown, batch.partners, -1) if self._predicted is None else self._predicted


def test_counts_and_quality_are_those_by_hand_and_a_wrong_prediction_lowers_it() -> None:
    packed, predicted = by_hand()
    assert count(predicted, packed).tolist() == [[1, 1], [4, 1], [3, 1]]
    assert quality(Trainer(predicted), [packed]) == 4 / 9
    predicted[1, 0] = 1  # the hit becomes wrong
    assert quality(Trainer(predicted), [packed]) == 2 / 9
    assert quality(Trainer(np.full_like(predicted, -1)), [packed]) == 0


def test_quality_is_the_mean_over_families_however_pairs_are_packed() -> None:
    families = made_up_family("one", 1), made_up_family("two", 2)
    random = np.random.default_rng(0)
    pairs = [draw_pairs(family, number, random) for family, number in zip(families, (6, 3), strict=True)]
    alone = [quality(Trainer(), pack(pairs_of_family)) for pairs_of_family in pairs]
    together = pack([*pairs[1], *pairs[0]], cells=3 * 32**2)
    assert alone[0] != alone[1] and quality(Trainer(), together) == pytest.approx(np.mean(alone))


def test_a_matrix_model_given_blosum62_aligns_by_it() -> None:
    weights = blosum_weights()
    for name, gap in (("gap_open", GAP_OPEN), ("gap_extend", GAP_EXTEND)):
        assert -np.log1p(np.exp(weights[name])) == pytest.approx(gap / TEMPERATURE, rel=1e-12)
    for pair, score in (("WW", 11), ("AR", -1)):
        assert TEMPERATURE * weights["matrix"][*map(ALPHABET.index, pair)] == score
