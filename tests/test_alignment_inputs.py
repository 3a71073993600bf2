"""The inputs are what their text says: the random ones number by number, the proteins pair by pair."""

import itertools
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared import reference, sequence_files
from shared.alignments import ALIGNMENTS
from shared.backends import GAPS_BY_POSITION
from shared.bench.cases import Settings
from shared.bench.questions import QUESTIONS
from shared.bench.record import Facts
from shared.problems import PROBLEMS, alignment_inputs
from shared.problems.alignment_inputs import GROWTH_BATCH, AlignmentInputs
from shared.problems.problem import UnusableInput
from shared.sequences import substitution_matrix
from shared.variants import keyword_defaults


def inputs(**settings: Any) -> tuple[AlignmentInputs, AlignmentInputs]:
    """The single pair and the batch of a ladder."""
    named: dict[str, Any] = QUESTIONS["ladder"].inputs(Settings(**settings))
    return named["single"], named["batch"]


def batch_of(**settings: Any) -> AlignmentInputs:
    return inputs(**settings)[1]


def fasta_of(folder: Path, *sequences: str) -> str:
    """The path of a file of these sequences."""
    path = folder / "mine.fasta"
    path.write_text("".join(f">{number}\n{sequence}\n" for number, sequence in enumerate(sequences)))
    return str(path)


def test_random_input_is_that_of_the_published_benchmark():
    single, batch = inputs(input="random", dtype="float64")
    random = np.random.RandomState(0)
    assert np.array_equal(single.similarity, random.random_sample((100, 150)))
    assert np.array_equal(batch.similarity, random.random_sample((100, 100, 150)))
    lengths = [[random.choice([80, 90, 100]), random.choice([95, 105, 120])] for _ in range(100)]
    assert np.array_equal(batch.pair_lengths, lengths)
    assert (single.work, batch.work) == (15_000, 959_500)
    np.random.seed(7)
    rounded = batch_of(input="random").similarity
    assert np.array_equal(rounded, batch.similarity.astype(np.float32))
    assert np.random.random() == np.random.RandomState(7).random_sample()  # NumPy's own generator is left alone


def test_size_batch_and_seed_decide_the_random_input():
    same, again, other = (batch_of(input="random", size=(4, 7), batch=9, seed=seed) for seed in (3, 3, 4))
    for one, equal, different in zip(*((x.similarity, x.weights) for x in (same, again, other)), strict=True):
        assert one.shape == (9, 4, 7) and np.array_equal(one, equal) and not np.array_equal(one, different)
    assert np.array_equal(same.pair_lengths, again.pair_lengths)
    for size in ((1, 1), (1, 40), (40, 1)):
        lengths = batch_of(input="random", size=size, batch=20).pair_lengths
        assert (lengths >= 1).all() and (lengths <= size).all()


def test_globins_are_all_pairs_of_all_proteins_and_zero_beyond_their_lengths():
    single, batch = inputs()
    assert batch.similarity.ndim == 3 and len(batch.similarity) == 16 * 15 // 2
    assert f"{len(batch.similarity)} pairs of 16 proteins" in batch.text
    assert batch.work == batch.pair_lengths.astype(int).prod(axis=1).sum()
    for matrix, (rows, cols) in zip(batch.similarity, batch.pair_lengths, strict=True):
        assert not matrix[rows:].any() and not matrix[:, cols:].any()
    assert np.array_equal(single.similarity, batch.similarity[0])
    assert np.array_equal(single.pair_lengths[0], batch.pair_lengths[0])


@pytest.mark.parametrize("count", [1, 4, 12])
def test_a_batch_repeats_the_pairs_and_has_the_size_of_the_longest(tmp_path: Path, count: int):
    lengths = (1, 2, 5, 3, 4)
    path, pairs = fasta_of(tmp_path, *("A" * length for length in lengths)), [*itertools.combinations(lengths, 2)]
    batch = batch_of(input=path, batch=count)
    assert batch.pair_lengths.tolist() == [list(pairs[number % 10]) for number in range(count)]
    rows, cols = batch.pair_lengths.max(axis=0)
    assert batch.similarity.shape == (count, rows, cols)
    assert batch.text.endswith(f"of 5 proteins, up to {rows} x {cols}")


def test_more_pairs_than_memory_could_list_are_neither_listed_nor_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(sequence_files, "LARGEST_FILE_BYTES", 10_000_000)  # which reading sets aside
    path = fasta_of(tmp_path, *["A" * 1000] * 3000)
    tracemalloc.start()
    for given in (
        {"input": path},
        {"input": path, "batch": 4_000_000_000},
        {"input": "random", "batch": 4_000_000_000},
    ):
        with pytest.raises(UnusableInput, match=r"^4\d{6,9} matrices of \d+ x \d+ do not fit into memory: take fewer"):
            batch_of(**given)
    assert len(batch_of(input=path, batch=2).similarity) == 2
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6  # a list of so many pairs takes three times as much


def test_notes_are_about_the_sequences_that_are_used(tmp_path: Path):
    path = fasta_of(tmp_path, "AC*", "ACD", "UAC*")
    noted = ("mine.fasta: the final * is left out in 1 of 2 sequences",)
    assert batch_of(input=path, batch=1).notes == inputs(input=path, batch=1)[0].notes == noted
    assert len(batch_of(input=path).notes) == 2 and batch_of().notes == batch_of(input="random").notes == ()


def test_a_fasta_file_is_scored_with_the_matrix_asked_for(tmp_path: Path):
    batch = batch_of(input=fasta_of(tmp_path, "ACDE", "ACD", "WWWWW"), matrix="pam250")
    matrix = substitution_matrix("PAM250")
    letters = [matrix.alphabet.index(letter) for letter in "ACDE"]
    assert np.array_equal(batch.similarity[0, :4, :3], matrix.scores[np.ix_(letters, letters[:3])])
    assert batch.text == "mine.fasta, PAM250, 3 pairs of 3 proteins, up to 4 x 5"


@pytest.mark.parametrize("problem", ALIGNMENTS)
def test_arguments_are_those_asked_for_else_the_public_functions_defaults(problem: str):
    asked = Settings(input="random", size=(2, 2), batch=1)
    (given,) = PROBLEMS[problem].inputs(asked).values()
    table = {name: argument.default for name, argument in PROBLEMS[problem].arguments.items()}
    table.pop(GAPS_BY_POSITION, None)
    assert given.parameters | given.options == keyword_defaults(getattr(reference, problem)) == table
    (given,) = PROBLEMS[problem].inputs(Settings(input="random", arguments={"temperature": 0.25})).values()
    assert given.parameters["temperature"] == 0.25


def test_gaps_by_position_are_drawn_around_the_parameter():
    asked = Settings(input="random", size=(4, 5), batch=3, arguments={"gap_open": -3.5, GAPS_BY_POSITION: True})
    (given,) = PROBLEMS["smith_waterman_affine"].inputs(asked).values()
    assert list(given.gaps) == ["gap_open", "gap_extend"] and given.options[GAPS_BY_POSITION]
    assert given.text.endswith("3 pairs of up to 4 x 5, gaps by position within ±0.5 of the number")
    for name, middle in (("gap_open", -3.5), ("gap_extend", -1.0)):
        gap = given.gaps[name]
        assert gap.shape == given.similarity.shape and gap.dtype == np.float32
        assert np.abs(gap - middle).max() <= 0.5 and gap.std() > 0.1
    for one, gap in zip(given.arguments("hvp")[3:], given.gaps.values(), strict=True):
        assert one is gap
    other = replace(given, gaps={name: gap + 1 for name, gap in given.gaps.items()})
    assert Facts.of(given).sha256 != Facts.of(other).sha256
    assert {gap.shape for gap in given.resized(1).gaps.values()} == {(3, 4, 4)}
    assert GAPS_BY_POSITION not in PROBLEMS["free_gap"].arguments


def test_only_a_ladder_has_a_single_pair_beside_the_batch():
    settings = Settings(input="random", size=(3, 4), batch=2)
    plain: Any = QUESTIONS["speed"].inputs(settings)
    single, batch = inputs(input="random", size=(3, 4), batch=2)
    assert list(plain) == ["batch"] and np.array_equal(plain["batch"].similarity, batch.similarity)
    assert single.similarity.shape == (3, 4) and single.lengths is None


def test_growth_has_an_input_for_each_size_whose_pairs_fill_their_matrices():
    sizes = ((6, 7), (20, 3), (3, 6, 7), (1, 2, 2))
    named: dict[str, Any] = QUESTIONS["growth"].inputs(Settings(input="random", sizes=sizes))
    assert list(named) == ["6x7", "20x3", "3x6x7", "1x2x2"]
    for size, given in zip(sizes, named.values(), strict=True):
        batch, *matrix = size if len(size) == 3 else (GROWTH_BATCH, *size)
        assert given.similarity.shape == (batch, *matrix)
        assert (given.pair_lengths == matrix).all() and given.work == given.similarity.size
    assert named["20x3"].text == f"random similarity, seed 0, {GROWTH_BATCH} pairs of 20 x 3"
    first, *_ = QUESTIONS["growth"].inputs(Settings(sizes=((4, 5), (2, 2), (3, 3), (9, 9)), batch=3)).values()
    assert first.shape == (3, 4, 5)


def test_a_gpu_has_a_small_and_a_repeated_large_batch_where_no_size_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    def shapes(**asked: Any) -> dict[str, tuple[int, ...]]:
        settings = Settings(**{"device": "cuda", "input": "random", **asked})
        return {name: given.shape for name, given in PROBLEMS["smith_waterman"].inputs(settings).items()}

    monkeypatch.setattr(alignment_inputs, "CHIP_SIZE", (5, 4))
    assert shapes() == {"100x150": (64, 100, 150), "5x4": (4096, 5, 4)}
    for asked in ({"size": (3, 4)}, {"batch": 2}, {"input": "globins"}):
        assert [*shapes(**asked)] == ["batch"]


@pytest.mark.parametrize(("cols", "step", "new"), [(3, 1, 2), (3, 2, 1), (3, 3, 6), (3, 10, 13), (1, 1, 2)])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_new_shape_has_fewer_columns_or_more_where_there_are_not_enough(batch, cols, step, new):
    similarity = np.random.default_rng(0).random((*batch, 4, cols), np.float32)
    lengths = np.broadcast_to(np.array([4, cols], np.int32), (*batch, 2))
    before = AlignmentInputs("by hand", similarity, lengths, parameters={"gap": -2.0}, options={"end": "any"}, seed=3)
    after = before.resized(step)
    assert after.similarity.shape == (*batch, 4, new) and after.similarity.flags.c_contiguous
    assert np.array_equal(after.similarity[..., : min(cols, new)], similarity[..., : min(cols, new)])
    assert np.array_equal(after.pair_lengths, np.minimum(before.pair_lengths, (4, new)))
    assert after.lengths is not None and (after.similarity.dtype, after.lengths.dtype) == ("float32", "int32")
    assert (after.parameters, after.options, after.seed) == (before.parameters, before.options, before.seed)
