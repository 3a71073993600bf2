"""Alignments as problems of the benchmark: inputs are what their text says, and the gate rejects every wrong result."""

import functools
import itertools
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from shared import reference, sequence_files
from shared.alignments import ALIGNMENTS
from shared.backends import GAPS_BY_POSITION
from shared.bench.cases import Settings
from shared.bench.questions import QUESTIONS
from shared.bench.record import InputFacts
from shared.problems import PROBLEMS, Verdict, alignment_inputs
from shared.problems.alignment_gate import judge
from shared.problems.alignment_inputs import GROWTH_BATCH, AlignmentInputs
from shared.problems.alignment_reference import ReferenceResults, best_alignments, reference_results
from shared.problems.problem import UnusableInput
from shared.sequences import substitution_matrix
from shared.tolerances import TOLERANCES, hvp_bound, marginals_bound, score_bound


def inputs(**settings: Any) -> tuple[AlignmentInputs, AlignmentInputs]:
    """The single pair and the batch of a ladder."""
    by_name: dict[str, Any] = QUESTIONS["ladder"].inputs(Settings(**settings))
    return by_name["single"], by_name["batch"]


def batch_of(**settings: Any) -> AlignmentInputs:
    return inputs(**settings)[1]


def fasta_of(folder: Path, *sequences: str) -> str:
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
    assert np.array_equal(batch_of(input="random").similarity, batch.similarity.astype(np.float32))
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
    for settings in (
        {"input": path},
        {"input": path, "batch": 4_000_000_000},
        {"input": "random", "batch": 4_000_000_000},
    ):
        with pytest.raises(UnusableInput, match=r"^4\d{6,9} matrices of \d+ x \d+ do not fit into memory: take fewer"):
            batch_of(**settings)
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
    settings = Settings(input="random", size=(2, 2), batch=1)
    (inputs,) = PROBLEMS[problem].inputs(settings).values()
    table = {name: argument.default for name, argument in PROBLEMS[problem].arguments.items()}
    table.pop(GAPS_BY_POSITION, None)
    assert inputs.parameters | inputs.options == getattr(reference, problem).__kwdefaults__ == table
    (inputs,) = PROBLEMS[problem].inputs(Settings(input="random", arguments={"temperature": 0.25})).values()
    assert inputs.parameters["temperature"] == 0.25


def test_gaps_by_position_are_drawn_around_the_parameter():
    settings = Settings(input="random", size=(4, 5), batch=3, arguments={"gap_open": -3.5, GAPS_BY_POSITION: True})
    (inputs,) = PROBLEMS["smith_waterman_affine"].inputs(settings).values()
    assert list(inputs.gaps) == ["gap_open", "gap_extend"] and inputs.options[GAPS_BY_POSITION]
    assert inputs.text.endswith("3 pairs of up to 4 x 5, gaps by position within ±0.5 of the number")
    for name, middle in (("gap_open", -3.5), ("gap_extend", -1.0)):
        gap = inputs.gaps[name]
        assert gap.shape == inputs.similarity.shape and gap.dtype == np.float32
        assert np.abs(gap - middle).max() <= 0.5 and gap.std() > 0.1
    for one, gap in zip(inputs.arguments("hvp")[3:], inputs.gaps.values(), strict=True):
        assert one is gap
    other = replace(inputs, gaps={name: gap + 1 for name, gap in inputs.gaps.items()})
    assert InputFacts.of(inputs).sha256 != InputFacts.of(other).sha256
    assert {gap.shape for gap in inputs.resized(1).gaps.values()} == {(3, 4, 4)}
    assert GAPS_BY_POSITION not in PROBLEMS["free_gap"].arguments


def test_growth_has_an_input_for_each_size_whose_pairs_fill_their_matrices():
    sizes = ((6, 7), (20, 3), (3, 6, 7), (1, 2, 2))
    by_name: dict[str, Any] = QUESTIONS["growth"].inputs(Settings(input="random", sizes=sizes))
    assert list(by_name) == ["6x7", "20x3", "3x6x7", "1x2x2"]
    for size, inputs in zip(sizes, by_name.values(), strict=True):
        batch, *matrix = size if len(size) == 3 else (GROWTH_BATCH, *size)
        assert inputs.similarity.shape == (batch, *matrix)
        assert (inputs.pair_lengths == matrix).all() and inputs.work == inputs.similarity.size
    assert by_name["20x3"].text == f"random similarity, seed 0, {GROWTH_BATCH} pairs of 20 x 3"
    first, *_ = QUESTIONS["growth"].inputs(Settings(sizes=((4, 5), (2, 2), (3, 3), (9, 9)), batch=3)).values()
    assert first.shape == (3, 4, 5)


def test_a_gpu_has_a_small_and_a_repeated_large_batch_where_no_size_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    def shapes(**asked: Any) -> dict[str, tuple[int, ...]]:
        settings = Settings(**{"device": "cuda", "input": "random", **asked})
        return {name: inputs.shape for name, inputs in PROBLEMS["smith_waterman"].inputs(settings).items()}

    monkeypatch.setattr(alignment_inputs, "CHIP_SIZE", (5, 4))
    assert shapes() == {"100x150": (64, 100, 150), "5x4": (4096, 5, 4)}
    for options in ({"size": (3, 4)}, {"batch": 2}, {"input": "globins"}):
        assert [*shapes(**options)] == ["batch"]


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


PASSES = ("score", "marginals", "hvp")  # whose results are numbers
PARAMETERS: dict[str, Any] = {"gap": -0.5, "temperature": 1.0}


def inputs_of(shape: tuple[int, ...], lengths: Any = None) -> AlignmentInputs:
    similarity = np.random.default_rng(5).normal(size=shape)
    sizes = None if lengths is None else np.array(lengths, np.int32)
    return AlignmentInputs("by hand", similarity, sizes, parameters=PARAMETERS, options={"end": "any"})


def results_of(problem: str, inputs: AlignmentInputs) -> dict[str, np.ndarray]:
    """The right result of each pass."""
    similarity, sizes, parameters = inputs.similarity, inputs.lengths, inputs.parameters
    hvp = reference.hessian_vector_product(problem, similarity, inputs.weights, sizes, **parameters)
    return {
        "score": getattr(reference, problem)(similarity, sizes, **parameters),
        "marginals": reference.gradients(problem, similarity, sizes, **parameters)["similarity"],
        "hvp": hvp["similarity"],
    }


def test_the_shortest_the_longest_and_others_drawn_by_the_seed_are_covered():
    inputs = inputs_of((40, 20, 20), np.random.default_rng(6).integers(3, 21, size=(40, 2)))
    work = inputs.pair_lengths.prod(axis=1)
    reference_of = functools.partial(reference_results, "smith_waterman", passes=(), cells=1000, whole=0)
    results, again, other = (reference_of(replace(inputs, seed=seed)) for seed in (0, 0, 1))
    assert work[results.pairs[0]] == work.min() and work[results.pairs[1]] == work.max()
    assert 2 < len(results.pairs) < 40 and len(set(results.pairs)) == len(results.pairs)
    assert results.lengths.prod(axis=1).sum() <= 1000 and not results.is_cut
    assert results.pairs.tolist() == again.pairs.tolist() != other.pairs.tolist()


@pytest.mark.parametrize(
    ("size", "whole", "corner"),
    [
        ((60, 70), 0, (30, 30)),
        ((60, 70), 4199, (30, 30)),
        ((60, 70), 4200, (60, 70)),
        ((4, 1000), 0, (4, 225)),
        ((1000, 4), 0, (225, 4)),
        ((30, 30), 0, (30, 30)),
    ],
)
def test_a_pair_that_is_too_large_is_cut_to_a_corner_that_fits(size, whole, corner):
    inputs = inputs_of(size)
    results = reference_results("smith_waterman", inputs, PASSES, cells=900, whole=whole)
    assert results.is_cut == (size != corner) and results.lengths.tolist() == [list(corner)]
    assert results.score[0] == reference.smith_waterman(inputs.similarity[: corner[0], : corner[1]], **PARAMETERS)
    assert results.marginals.shape == (1, *corner)
    if results.is_cut:
        with pytest.raises(UnusableInput, match="path takes pairs of up to 900 cells"):
            reference_results("smith_waterman", inputs, ("path",), cells=900, whole=900)


class Gated(NamedTuple):
    """A ragged batch of a problem, the reference results of three of its ten pairs, and right results of all."""

    dtype: str
    expected: ReferenceResults
    results: dict[str, np.ndarray]

    def judge(self, pass_name: str, result: np.ndarray) -> Verdict:
        shape = self.results["marginals"].shape
        return judge(pass_name, result, self.expected, self.dtype, PARAMETERS["temperature"], shape)

    def allowed(self, pass_name: str, k: int) -> float:
        temperature, largest = PARAMETERS["temperature"], self.expected.largest[k]
        if pass_name == "score":
            return score_bound(self.dtype, self.expected.score[k], largest, temperature)
        if pass_name == "marginals":
            return marginals_bound(self.dtype, largest, temperature)
        return hvp_bound(self.dtype, np.abs(np.asarray(self.expected.hvp)[k]).max(), largest, temperature)

    def spoilt(self, pass_name: str, pair: int, by: float, at: tuple[int, ...] = (0, 0)) -> np.ndarray:
        """A result with one value off."""
        result = self.results[pass_name].copy()
        result[pair if pass_name == "score" else (pair, *at)] += by
        return result


KINDS = [*zip(ALIGNMENTS, itertools.cycle(["float32", "float64"]), strict=False)]


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def gated(request: pytest.FixtureRequest) -> Gated:
    problem, dtype = request.param
    # no pair is as wide as the matrix, so that some padding lies beyond all lengths
    lengths = np.array([(8, 9), (2, 2), (7, 3), (5, 6), (4, 9), (8, 2), (6, 6), (3, 8), (7, 7), (5, 5)])
    parameters = {name: PARAMETERS.get(name, default) for name, default in ALIGNMENTS[problem].parameters.items()}
    inputs = replace(inputs_of((10, 9, 11), lengths), parameters=parameters, options=ALIGNMENTS[problem].options)
    expected = reference_results(problem, inputs, PASSES, cells=115, whole=0)
    assert len(expected.pairs) == 3
    return Gated(dtype, expected, {name: value.astype(dtype) for name, value in results_of(problem, inputs).items()})


every_pass = pytest.mark.parametrize("pass_name", PASSES)


@every_pass
def test_an_error_passes_up_to_the_tolerance_and_is_told_with_pair_size_and_limit(gated: Gated, pass_name: str):
    verdict = gated.judge(pass_name, gated.results[pass_name])
    assert verdict.passed and verdict.error is not None and verdict.error < 0.1
    for k in (1, 2):
        pair, allowed = int(gated.expected.pairs[k]), gated.allowed(pass_name, k)
        for factor in (-0.9, 0.9, -1.1, 1.1):
            verdict = gated.judge(pass_name, gated.spoilt(pass_name, pair, factor * allowed))
            assert verdict.passed == (abs(factor) < 1) and verdict.error == pytest.approx(abs(factor), abs=0.05)
        verdict = gated.judge(pass_name, gated.spoilt(pass_name, pair, 0.5))
        assert verdict.text == f"{pass_name} off by 5.0e-01 for pair {pair}, allowed {allowed:.1e}"


@every_pass
def test_a_value_that_is_not_finite_another_form_and_an_exchanged_pair_are_found(gated: Gated, pass_name: str):
    unseen = next(pair for pair in range(10) if pair not in gated.expected.pairs)  # it is not compared
    for value in (np.nan, np.inf, -np.inf):
        verdict = gated.judge(pass_name, gated.spoilt(pass_name, unseen, value))
        assert not verdict.passed and verdict.error is None
        assert verdict.text == f"{pass_name} has values that are not finite for pair {unseen}"
    right = gated.results[pass_name]
    other = "float64" if gated.dtype == "float32" else "float32"
    for wrong in (right.astype(other), np.concatenate([right, right[:1]])):
        verdict = gated.judge(pass_name, wrong)
        assert not verdict.passed and verdict.text == (
            f"{pass_name} is {wrong.dtype} of shape {wrong.shape}, expected {gated.dtype} of shape {right.shape}"
        )
    assert not gated.judge(pass_name, right[::-1]).passed


def test_a_value_leaked_into_the_padding_is_found(gated: Gated):
    rows, cols = gated.expected.lengths[0]
    assert rows < gated.expected.marginals.shape[1]  # padding of this pair, inside what the reference results hold
    for at in ((rows, 0), (0, cols), (rows, cols), (8, 10)):  # the last: beyond all lengths
        verdict = gated.judge("marginals", gated.spoilt("marginals", int(gated.expected.pairs[0]), 0.01, at))
        assert not verdict.passed and "marginals off by 1.0e-02" in verdict.text


def test_a_score_near_zero_is_judged_by_the_temperature(gated: Gated):
    zero = gated.expected._replace(score=np.zeros(3), largest=np.zeros(3))
    for temperature, passes in ((1.0, True), (0.01, False)):
        result = np.full(10, 0.5 * TOLERANCES[gated.dtype].score, gated.dtype)
        assert judge("score", result, zero, gated.dtype, temperature, (10, 9, 11)).passed is passes


@every_pass
def test_a_single_pair_is_gated_without_a_number(pass_name: str):
    inputs = inputs_of((6, 7))
    expected = reference_results("smith_waterman", inputs, PASSES)
    result = results_of("smith_waterman", inputs)[pass_name].astype("float32")
    assert judge(pass_name, result, expected, "float32", 1.0, (6, 7)).passed
    wrong = judge(pass_name, result + np.float32(1), expected, "float32", 1.0, (6, 7))
    assert not wrong.passed and wrong.text.startswith(f"{pass_name} off by 1.0e+00, allowed ")


def test_a_path_of_least_cost_passes_and_one_that_costs_more_does_not():
    settings = Settings(input="random", size=(7, 9), batch=5, dtype="float64")
    (inputs,) = cast(dict[str, AlignmentInputs], PROBLEMS["soft_dtw"].inputs(settings)).values()
    paths = best_alignments("soft_dtw", inputs.similarity, inputs.pair_lengths, inputs.keywords)[1]
    problem, expected = PROBLEMS["soft_dtw"], reference_results("soft_dtw", inputs, ("path",))
    assert problem.judge("path", paths, expected, inputs, "float64").passed
    dearest = best_alignments("soft_dtw", -inputs.similarity, inputs.pair_lengths, inputs.keywords)[1]
    assert "off by" in problem.judge("path", dearest, expected, inputs, "float64").text


@pytest.mark.parametrize("gaps_by_position", [False, True])
def test_a_best_alignment_passes_and_one_that_is_worse_or_none_does_not(gaps_by_position: bool):
    arguments = {"gap": -0.5, GAPS_BY_POSITION: gaps_by_position}
    settings = Settings(input="random", size=(7, 9), batch=5, dtype="float64", arguments=arguments)
    (alignment,) = cast(dict[str, AlignmentInputs], PROBLEMS["smith_waterman"].inputs(settings)).values()
    inputs = replace(alignment, similarity=alignment.similarity - 0.5)
    matches = best_alignments("smith_waterman", inputs.similarity, inputs.pair_lengths, inputs.keywords)[1]
    problem, expected = PROBLEMS["smith_waterman"], reference_results("smith_waterman", inputs, ("path",))
    assert problem.judge("path", matches, expected, inputs, "float32").passed

    pair = int(matches.sum((1, 2)).argmax())
    fewer, more, crossing = matches.copy(), matches.copy(), matches.copy()
    row, col = np.argwhere(matches[pair])[-1]
    fewer[pair, row, col] = False
    more[pair, row, (col + 1) % 5] = True
    crossing[pair, :2, :2] = np.eye(2)[::-1]
    for wrong, text in (
        (fewer, f"in its score for pair {pair}, allowed "),
        (more, f"path is no alignment for pair {pair}"),
        (crossing, f"path is no alignment for pair {pair}"),
        (matches.astype(np.float32), "path is float32 of shape (5, 7, 9), expected bool of shape (5, 7, 9)"),
    ):
        verdict = problem.judge("path", wrong, expected, inputs, "float32")
        assert not verdict.passed and text in verdict.text


def test_another_alignment_that_is_as_good_passes():
    similarity, parameters = np.array([[[1.0, 1.0], [0.0, 0.0]]]), {"gap": -2.0, "temperature": 1.0}
    inputs = replace(inputs_of((1, 2, 2)), similarity=similarity, parameters=parameters)
    expected = reference_results("smith_waterman", inputs, ("path",))
    for row in np.eye(2, dtype=bool):
        matches = np.array([[row, [False, False]]])
        assert PROBLEMS["smith_waterman"].judge("path", matches, expected, inputs, "float64").passed
