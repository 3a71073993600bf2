"""The inputs are what they are said to be: the random ones number by number, the proteins pair by pair."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shared.bench.plan import Settings

from shared import reference
from shared.alignments import ALIGNMENTS
from shared.problems import PROBLEMS
from shared.problems.alignment_inputs import SWEEP_BATCH, AlignmentInputs
from shared.sequences import SequenceError, substitution_matrix
from shared.variants import keyword_defaults

Pair = tuple[AlignmentInputs, AlignmentInputs]


def inputs(**settings: Any) -> Pair:
    """The single pair and the batch, which a ladder has both."""
    named = named_inputs(ladder=True, **settings)
    return named["single"], named["batch"]


def named_inputs(**settings: Any) -> dict[str, AlignmentInputs]:
    return PROBLEMS["smith_waterman"].inputs(Settings(**settings))


@pytest.fixture(scope="module")
def random_default() -> Pair:
    return inputs(input="random", dtype="float64")


@pytest.fixture(scope="module")
def globins() -> Pair:
    return inputs()


@pytest.fixture
def fasta(tmp_path: Path) -> Path:
    path = tmp_path / "mine.fasta"
    path.write_text(">first\nACDE\n>second\nACD\n>third\nWWWWW\n")
    return path


def test_random_input_draws_in_the_order_of_the_published_benchmark(
    random_default: Pair,
):
    single, batch = random_default
    np.random.seed(0)
    assert np.array_equal(single.similarity, np.random.random((100, 150)))
    assert np.array_equal(batch.similarity, np.random.random((100, 100, 150)))
    lengths = [[np.random.choice([80, 90, 100]), np.random.choice([95, 105, 120])] for _ in range(100)]
    assert np.array_equal(batch.pair_lengths, lengths)


def test_random_input_leaves_numpy_s_own_generator_alone():
    np.random.seed(7)
    before = np.random.random()
    np.random.seed(7)
    inputs(input="random", size=(3, 4), batch=2)
    assert np.random.random() == before


def test_random_input_has_the_published_number_of_cells(random_default: Pair):
    single, batch = random_default
    assert (single.work, batch.work) == (15_000, 959_500)
    assert single.lengths is None


def test_size_and_batch_shape_the_random_input():
    single, batch = inputs(input="random", size=(6, 7), batch=3)
    assert single.similarity.shape == (6, 7)
    assert batch.similarity.shape == (3, 6, 7)
    assert set(batch.pair_lengths[:, 0]) <= {5, 6} and set(batch.pair_lengths[:, 1]) <= {4, 5, 6}


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1)])
def test_random_lengths_are_never_zero_and_fit(size: tuple[int, int]):
    _, batch = inputs(input="random", size=size, batch=20)
    assert (batch.pair_lengths >= 1).all() and (batch.pair_lengths <= size).all()


def test_the_seed_decides_the_random_input():
    (_, same), (_, again), (_, other) = (inputs(input="random", size=(4, 5), batch=9, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(same.similarity, again.similarity) and np.array_equal(same.pair_lengths, again.pair_lengths)
    assert not np.array_equal(same.similarity, other.similarity)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("source", ["random", "globins"])
def test_the_dtype_is_the_one_asked_for(source: str, dtype: str):
    single, batch = inputs(input=source, batch=2, dtype=dtype)
    assert (single.similarity.dtype, batch.similarity.dtype) == (dtype, dtype)


def test_float32_input_is_float64_input_rounded(random_default: Pair):
    _, batch = inputs(input="random")
    assert np.array_equal(batch.similarity, random_default[1].similarity.astype(np.float32))


def test_globins_are_all_pairs_of_all_proteins(globins: Pair):
    _, batch = globins
    assert batch.similarity.ndim == 3 and len(batch.similarity) == 16 * 15 // 2
    assert f"{len(batch.similarity)} pairs of 16 proteins" in batch.text
    assert batch.work == batch.pair_lengths.astype(int).prod(axis=1).sum()


def test_globins_are_zero_beyond_their_lengths(globins: Pair):
    _, batch = globins
    for matrix, (rows, cols) in zip(batch.similarity, batch.pair_lengths, strict=True):
        assert not matrix[rows:].any() and not matrix[:, cols:].any()


def test_the_single_pair_is_the_first_of_the_batch(globins: Pair):
    single, batch = globins
    assert np.array_equal(single.similarity, batch.similarity[0])
    assert np.array_equal(single.pair_lengths[0], batch.pair_lengths[0])


def test_batch_takes_the_first_pairs_and_goes_round_when_there_are_not_enough(fasta: Path):
    _, all_three = inputs(input=str(fasta))
    _, two = inputs(input=str(fasta), batch=2)
    _, seven = inputs(input=str(fasta), batch=7)
    lengths = all_three.pair_lengths.tolist()
    assert lengths == [[4, 3], [4, 5], [3, 5]]
    assert two.pair_lengths.tolist() == lengths[:2]
    assert seven.pair_lengths.tolist() == [*lengths, *lengths, lengths[0]]


def test_a_fasta_file_is_scored_with_the_matrix_asked_for(fasta: Path):
    _, batch = inputs(input=str(fasta), matrix="pam250")
    matrix = substitution_matrix("PAM250")
    letters = [matrix.alphabet.index(letter) for letter in "ACDE"]
    assert np.array_equal(batch.similarity[0, :4, :3], matrix.scores[np.ix_(letters, letters[:3])])
    assert batch.text == "mine.fasta, PAM250, 3 pairs of 3 proteins, up to 4 x 5"


def test_a_bad_file_is_told_in_one_line(tmp_path: Path):
    with pytest.raises(SequenceError, match=r"missing\.fasta.*no such file"):
        inputs(input=str(tmp_path / "missing.fasta"))


def test_parameters_and_options_come_from_the_settings():
    asked = {"gap": -3.5, "temperature": 0.25, "end": "match"}
    for given in inputs(input="random", size=(2, 2), batch=1, arguments=asked):
        assert given.parameters == {"gap": -3.5, "temperature": 0.25}
        assert given.options == {"end": "match"}


@pytest.mark.parametrize("problem", ALIGNMENTS)
def test_what_is_not_asked_for_has_the_default_of_the_public_function(problem: str):
    (given,) = PROBLEMS[problem].inputs(Settings(input="random", size=(2, 2), batch=1)).values()
    defaults = keyword_defaults(getattr(reference, problem))
    table = {name: argument.default for name, argument in PROBLEMS[problem].arguments.items()}
    assert given.parameters | given.options == defaults == table
    assert "temperature" in given.parameters


def test_the_weights_of_the_hvp_pass_are_drawn_by_the_seed():
    (single, batch), (_, again), (_, other) = (inputs(input="random", size=(3, 4), seed=seed) for seed in (5, 5, 6))
    assert batch.weights.shape == batch.similarity.shape and single.weights.shape == (3, 4)
    assert np.array_equal(batch.weights, again.weights) and not np.array_equal(batch.weights, other.weights)
    assert batch.weights.std() == pytest.approx(1, abs=0.1)


def test_the_weights_are_the_same_in_both_precisions():
    weights = [inputs(input="random", size=(3, 4), dtype=dtype)[1].weights for dtype in ("float32", "float64")]
    assert [w.dtype for w in weights] == ["float32", "float64"]
    assert np.array_equal(weights[0], weights[1])


# which inputs a run has


@pytest.mark.parametrize("source", ["globins", "random"])
def test_a_run_has_the_batch_and_a_ladder_the_single_pair_too(source: str):
    plain, ladder = (named_inputs(input=source, batch=3, ladder=ladder) for ladder in (False, True))
    assert list(plain) == ["batch"] and list(ladder) == ["single", "batch"]
    assert np.array_equal(plain["batch"].similarity, ladder["batch"].similarity)
    assert plain["batch"].text == ladder["batch"].text
    assert ladder["single"].similarity.ndim == 2


def test_a_sweep_has_an_input_for_each_size_named_by_it():
    swept = named_inputs(input="random", sweep=((6, 7), (20, 3)))
    assert list(swept) == ["6x7", "20x3"]
    assert [given.similarity.shape for given in swept.values()] == [(SWEEP_BATCH, 6, 7), (SWEEP_BATCH, 20, 3)]
    assert swept["20x3"].text == f"random similarity, seed 0, {SWEEP_BATCH} pairs of 20 x 3"


def test_the_pairs_of_a_sweep_fill_their_matrices():
    for (rows, cols), given in zip(((6, 7), (20, 3)), named_inputs(sweep=((6, 7), (20, 3))).values(), strict=True):
        assert (given.pair_lengths == (rows, cols)).all()
        assert given.work == given.similarity.size


def test_batch_and_seed_shape_a_sweep():
    one, again, other = (named_inputs(sweep=((4, 5),), batch=3, seed=seed)["4x5"] for seed in (1, 1, 2))
    assert one.similarity.shape == (3, 4, 5)
    assert np.array_equal(one.similarity, again.similarity) and not np.array_equal(one.similarity, other.similarity)


# a shape that no compiler has seen yet


@pytest.mark.parametrize("ladder_input", [0, 1], ids=["single", "batch"])
@pytest.mark.parametrize("source", ["globins", "random"])
def test_resized_is_the_same_with_a_column_less(source: str, ladder_input: int):
    before = inputs(input=source, batch=3)[ladder_input]
    after = before.resized
    assert np.array_equal(after.similarity, before.similarity[..., :-1])
    assert after.similarity.flags.c_contiguous
    assert np.array_equal(after.pair_lengths, np.minimum(before.pair_lengths, after.similarity.shape[-2:]))
    assert (after.parameters, after.options, after.seed) == (before.parameters, before.options, before.seed)


def test_resized_clips_the_lengths_of_columns_alone():
    lengths = np.array([(4, 3), (2, 2), (4, 1)], np.int32)
    after = AlignmentInputs("by hand", np.zeros((3, 4, 3)), lengths).resized
    assert after.lengths is not None and after.lengths.tolist() == [[4, 2], [2, 2], [4, 1]]
    assert lengths.tolist() == [[4, 3], [2, 2], [4, 1]]


@pytest.mark.parametrize("shape", [(4, 1), (3, 4, 1)])
def test_resized_adds_a_column_where_there_is_one(shape: tuple[int, ...]):
    before = AlignmentInputs("by hand", np.ones(shape, np.float32), np.broadcast_to(np.array([4, 1]), (*shape[:-2], 2)))
    after = before.resized
    assert after.similarity.shape == (*shape[:-1], 2) and (after.pair_lengths == (4, 1)).all()


@pytest.mark.parametrize("cols", [1, 5])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_resized_keeps_the_dtypes(precision: str, dtype: str, cols: int):
    after = AlignmentInputs("by hand", np.zeros((2, 3, cols), precision), np.ones((2, 2), dtype)).resized
    assert after.lengths is not None and (after.similarity.dtype, after.lengths.dtype) == (precision, dtype)


def test_resized_without_lengths_has_none():
    assert AlignmentInputs("by hand", np.zeros((3, 4)), None).resized.lengths is None
