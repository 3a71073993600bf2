"""A substitution matrix scores the letters of pairs of sequences, and all letters that it lacks are told at once."""

import re

import numpy as np
import pytest
from Bio.Align import substitution_matrices

from shared.sequences import PairBatch, Record, SequenceError, matrix_names, pair_batch, substitution_matrix

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


# Matrices.


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
        records = [Record("x", own) for own in letters]
        for pairs in ([(0, 1), (1, 0), (2, 2)], [(2, 1)]):
            batch = pair_batch(records, pairs, matrix, "x.fasta")
            assert batch.similarity.dtype == np.float32 and batch.lengths.dtype == np.int32
            assert batch.similarity.shape == (len(pairs), *batch.lengths.max(axis=0))
            assert_batch(batch, records, pairs, name)
    similarity, lengths, _ = pair_batch(RECORDS, [], substitution_matrix("BLOSUM62"), "x.fasta")
    assert similarity.shape == (0, 0, 0) and lengths.shape == (0, 2)


def test_an_unknown_matrix_is_answered_with_the_known_ones() -> None:
    for name in ("SCHNEIDER", "../BLOSUM62", "two\nlines"):
        expected = f"expected a substitution matrix out of {', '.join(matrix_names())}, got {name!r}"
        with pytest.raises(SequenceError, match=exactly(expected)):
            substitution_matrix(name)


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
