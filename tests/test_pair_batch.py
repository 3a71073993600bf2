"""A substitution matrix scores the letters of pairs of sequences, and all letters that it lacks are told at once."""

import re

import numpy as np
import pytest
from Bio.Align import substitution_matrices
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.sequences import PairBatch, Record, SequenceError, matrix_names, pair_batch, substitution_matrix

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
RECORDS = [Record("one", "ACDEFGH"), Record("two", "W"), Record("three", "MKVLAAGIVGLW")]


def exactly(text: str) -> str:
    """The pattern of the whole text of an error."""
    return rf"\A{re.escape(text)}\Z"


def slow_similarity(first: str, second: str, matrix: str) -> np.ndarray:
    """The definition: Biopython's own lookup, one cell at a time, (len(first), len(second))."""
    table = substitution_matrices.load(matrix)
    assert isinstance(table, substitution_matrices.Array)
    return np.array([[table[one, other] for other in second] for one in first], dtype=np.float32)


def assert_batch(batch: PairBatch, records: list[Record], pairs: list[tuple[int, int]], matrix: str) -> None:
    similarity, lengths, _ = batch
    for b, (first, second) in enumerate(pairs):
        one, other = records[first].letters, records[second].letters
        assert lengths[b].tolist() == [len(one), len(other)], f"lengths of pair {b}"
        within = similarity[b, : len(one), : len(other)]
        assert np.array_equal(within, slow_similarity(one, other, matrix)), f"similarity of pair {b}"
        assert not similarity[b, len(one) :].any() and not similarity[b, :, len(other) :].any(), f"padding of pair {b}"


# Matrices.


def test_matrix_names_are_those_over_single_letters() -> None:
    assert set(substitution_matrices.load()) - set(matrix_names()) == {"SCHNEIDER"}
    assert list(matrix_names()) == sorted(matrix_names())


def test_matrices_are_those_of_biopython() -> None:
    for name in matrix_names():
        matrix = substitution_matrix(name.lower())
        assert matrix.name == name
        assert type(matrix.scores) is np.ndarray and matrix.scores.dtype == np.float32
        assert np.array_equal(matrix.scores, slow_similarity(matrix.alphabet, matrix.alphabet, name))


@pytest.mark.parametrize("name", ["SCHNEIDER", "../BLOSUM62", "two\nlines"])
def test_an_unknown_matrix_is_answered_with_the_known_ones(name: str) -> None:
    known = ", ".join(matrix_names())
    expected = f"expected a substitution matrix out of {known}, got {name!r}"
    with pytest.raises(SequenceError, match=exactly(expected)):
        substitution_matrix(name)


# Batches.


@settings(deadline=None, database=None, max_examples=50)
@given(
    records=st.lists(st.builds(Record, st.just("x"), st.text(AMINO_ACIDS, min_size=1, max_size=12)), min_size=2),
    matrix=st.sampled_from(["BLOSUM62", "PAM250", "GONNET1992"]),
    data=st.data(),
)
def test_a_batch_follows_the_definition(records: list[Record], matrix: str, data: st.DataObject) -> None:
    index = st.integers(0, len(records) - 1)
    pairs = data.draw(st.lists(st.tuples(index, index), min_size=1, max_size=5))
    batch = pair_batch(records, pairs, substitution_matrix(matrix), "x.fasta")
    assert batch.similarity.dtype == np.float32 and batch.lengths.dtype == np.int32
    assert batch.similarity.shape == (len(pairs), *batch.lengths.max(axis=0))
    assert_batch(batch, records, pairs, matrix)


def test_the_comparison_of_batches_sees_every_planted_fault() -> None:
    pairs = [(0, 1), (0, 2), (1, 2)]
    batch = pair_batch(RECORDS, pairs, substitution_matrix("BLOSUM62"), "x.fasta")
    assert_batch(batch, RECORDS, pairs, "BLOSUM62")
    with pytest.raises(AssertionError, match="similarity of pair 0"):
        assert_batch(batch, RECORDS, pairs, "BLOSUM80")
    with pytest.raises(AssertionError, match="lengths of pair 2"):
        assert_batch(batch, RECORDS, [(0, 1), (0, 2), (2, 1)], "BLOSUM62")
    for row, col in [(6, 1), (0, 11)]:  # beside the one letter of the second sequence
        padded = batch.similarity.copy()
        padded[0, row, col] = -1
        with pytest.raises(AssertionError, match="padding of pair 0"):
            assert_batch(batch._replace(similarity=padded), RECORDS, pairs, "BLOSUM62")


def test_the_first_sequence_lies_along_the_rows() -> None:
    matrix = substitution_matrix("BLOSUM62")
    similarity, lengths, _ = pair_batch(RECORDS, [(0, 1)], matrix, "x.fasta")
    assert similarity.tolist() == [[[-3], [-2], [-4], [-3], [1], [-2], [-2]]]  # A C D E F G H against W
    assert lengths.tolist() == [[7, 1]]
    similarity, lengths, _ = pair_batch(RECORDS, [], matrix, "x.fasta")
    assert similarity.shape == (0, 0, 0) and lengths.shape == (0, 2)


# Letters that the matrix lacks.


def test_every_record_with_letters_outside_the_matrix_has_a_line() -> None:
    records = [Record("one", "AJ"), Record("two", "W"), Record("three", "*a\nX*")]
    wanted = "expected letters of GONNET1992 (ACDEFGHIKLMNPQRSTVWY)"
    others = "'*' at positions 1, 5, 'a' at position 2, '\\n' at position 3, 'X' at position 4"
    expected = f"'x.fasta': record 1 'one': {wanted}, got 'J' at position 2\n'x.fasta': record 3 'three': {wanted}"
    with pytest.raises(SequenceError, match=exactly(f"{expected}, got {others}")):
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
    for records, matrix in ((("UOK", "CK"), "BLASTP"), (("A*C", "*W"), "BLOSUM62")):
        named = [Record(letters, letters) for letters in records]
        batch = pair_batch(named, [(0, 1)], substitution_matrix(matrix), "x.fasta")
        assert_batch(batch, named, [(0, 1)], matrix)
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
    similarity, _, notes = pair_batch(records, [(0, 1)], substitution_matrix("NUC.4.4"), "x.fasta")
    np.testing.assert_array_equal(similarity[0, 3], similarity[0, :, 3])
    assert notes == ("x.fasta: U, which NUC.4.4 lacks, is scored as T in 1 of 2 sequences",)


def test_records_of_no_pair_are_neither_refused_nor_noted() -> None:
    records = [*RECORDS, Record("odd", "J"), Record("stop", "U", final_stop=True)]
    similarity, _, notes = pair_batch(records, [(0, 1)], substitution_matrix("BLOSUM62"), "x.fasta")
    assert similarity.shape == (1, 7, 1) and notes == ()
    notes = pair_batch(records, [(0, 4)], substitution_matrix("BLASTP"), "x.fasta").notes
    assert notes == ("x.fasta: the final * is left out in 1 of 2 sequences",)
