"""The reference results, and the gate: it rejects every kind of wrong result."""

import functools
import itertools
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from shared import reference
from shared.alignments import ALIGNMENTS
from shared.backends import GAPS_BY_POSITION
from shared.bench.cases import Settings
from shared.problems import PROBLEMS, Verdict
from shared.problems.alignment_gate import judge
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.alignment_reference import ReferenceResults, best_alignments, reference_results
from shared.problems.problem import UnusableInput
from shared.tolerances import TOLERANCES, hvp_bound, marginals_bound, score_bound

PASSES = ("score", "marginals", "hvp")  # whose results are numbers
PARAMETERS: dict[str, Any] = {"gap": -0.5, "temperature": 1.0}


def inputs_of(shape: tuple[int, ...], lengths: Any = None) -> AlignmentInputs:
    similarity = np.random.default_rng(5).normal(size=shape)
    sizes = None if lengths is None else np.array(lengths, np.int32)
    return AlignmentInputs("by hand", similarity, sizes, parameters=PARAMETERS, options={"end": "any"})


def results_of(problem: str, inputs: AlignmentInputs) -> dict[str, np.ndarray]:
    """The right result of each pass."""
    given, sizes, parameters = inputs.similarity, inputs.lengths, inputs.parameters
    hvp = reference.hessian_vector_product(problem, given, inputs.weights, sizes, **parameters)
    return {
        "score": getattr(reference, problem)(given, sizes, **parameters),
        "marginals": reference.gradients(problem, given, sizes, **parameters)["similarity"],
        "hvp": hvp["similarity"],
    }


def test_the_shortest_the_longest_and_others_drawn_by_the_seed_are_covered():
    inputs = inputs_of((40, 20, 20), np.random.default_rng(6).integers(3, 21, size=(40, 2)))
    work = inputs.pair_lengths.prod(axis=1)
    asked = functools.partial(reference_results, "smith_waterman", passes=(), cells=1000, whole=0)
    found, again, other = (asked(replace(inputs, seed=seed)) for seed in (0, 0, 1))
    assert work[found.pairs[0]] == work.min() and work[found.pairs[1]] == work.max()
    assert 2 < len(found.pairs) < 40 and len(set(found.pairs)) == len(found.pairs)
    assert found.lengths.prod(axis=1).sum() <= 1000 and not found.is_cut
    assert found.pairs.tolist() == again.pairs.tolist() != other.pairs.tolist()


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
    found = reference_results("smith_waterman", inputs, PASSES, cells=900, whole=whole)
    assert found.is_cut == (size != corner) and found.lengths.tolist() == [list(corner)]
    assert found.score[0] == reference.smith_waterman(inputs.similarity[: corner[0], : corner[1]], **PARAMETERS)
    assert found.marginals.shape == (1, *corner)
    if found.is_cut:
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


# each problem once, and each dtype
KINDS = [*zip(ALIGNMENTS, itertools.cycle(["float32", "float64"]), strict=False)]


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def gated(request: pytest.FixtureRequest) -> Gated:
    problem, dtype = request.param
    # no pair is as wide as the matrix, so that some padding lies beyond all lengths
    lengths = np.array([(8, 9), (2, 2), (7, 3), (5, 6), (4, 9), (8, 2), (6, 6), (3, 8), (7, 7), (5, 5)])
    parameters = {name: PARAMETERS.get(name, default) for name, default in ALIGNMENTS[problem].parameters.items()}
    inputs = replace(inputs_of((10, 9, 11), lengths), parameters=parameters, options=ALIGNMENTS[problem].options)
    found = reference_results(problem, inputs, PASSES, cells=115, whole=0)
    assert len(found.pairs) == 3
    return Gated(dtype, found, {name: value.astype(dtype) for name, value in results_of(problem, inputs).items()})


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
    found = reference_results("smith_waterman", inputs, PASSES)
    result = results_of("smith_waterman", inputs)[pass_name].astype("float32")
    assert judge(pass_name, result, found, "float32", 1.0, (6, 7)).passed
    wrong = judge(pass_name, result + np.float32(1), found, "float32", 1.0, (6, 7))
    assert not wrong.passed and wrong.text.startswith(f"{pass_name} off by 1.0e+00, allowed ")


@pytest.mark.parametrize("gaps_by_position", [False, True])
def test_a_best_alignment_passes_and_one_that_is_worse_or_none_does_not(gaps_by_position: bool):
    arguments = {"gap": -0.5, GAPS_BY_POSITION: gaps_by_position}
    asked = Settings(input="random", size=(7, 9), batch=5, dtype="float64", arguments=arguments)
    (given,) = cast(dict[str, AlignmentInputs], PROBLEMS["smith_waterman"].inputs(asked)).values()
    inputs = replace(given, similarity=given.similarity - 0.5)
    matches = best_alignments("smith_waterman", inputs.similarity, inputs.pair_lengths, inputs.keywords)[1]
    problem, expected = PROBLEMS["smith_waterman"], reference_results("smith_waterman", inputs, ("path",))
    assert problem.judge("path", matches, expected, inputs, "float32").passed

    pair = int(matches.sum((1, 2)).argmax())
    fewer, more, crossing = matches.copy(), matches.copy(), matches.copy()
    row, col = np.argwhere(matches[pair])[-1]
    fewer[pair, row, col] = False
    more[pair, row, (col + 1) % 5] = True
    crossing[pair, :2, :2] = np.eye(2)[::-1]
    worse = problem.judge("path", fewer, expected, inputs, "float32")
    assert not worse.passed and f"in its score for pair {pair}, allowed " in worse.text
    for wrong in (more, crossing):
        assert problem.judge("path", wrong, expected, inputs, "float32").text == f"path is no alignment for pair {pair}"
    numbers = problem.judge("path", matches.astype(np.float32), expected, inputs, "float32")
    assert numbers.text == "path is float32 of shape (5, 7, 9), expected bool of shape (5, 7, 9)"


def test_another_alignment_that_is_as_good_passes():
    similarity, parameters = np.array([[[1.0, 1.0], [0.0, 0.0]]]), {"gap": -2.0, "temperature": 1.0}
    inputs = replace(inputs_of((1, 2, 2)), similarity=similarity, parameters=parameters)
    expected = reference_results("smith_waterman", inputs, ("path",))
    for row in np.eye(2, dtype=bool):
        matches = np.array([[row, [False, False]]])
        assert PROBLEMS["smith_waterman"].judge("path", matches, expected, inputs, "float64").passed
