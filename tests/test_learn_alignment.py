"""Learning to align: the families, the vectorised reference against the reference proper, both frameworks."""

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from frameworks import DTYPES, FRAMEWORKS
from shared.bench.plan import Settings

import jax_impl.learn_alignment
import torch_impl.learn_alignment
from shared import reference
from shared.problems import PROBLEMS
from shared.problems.families import LETTERS, families
from shared.problems.learn_alignment import ALLOWED, Pairs, packed, unpacked
from shared.problems.problem import UnusableInput
from shared.reference import learning
from shared.variants import keyword_defaults, variant_names

MODULES = {"jax": jax_impl.learn_alignment, "torch": torch_impl.learn_alignment}
PROBLEM = PROBLEMS["learn_alignment"]
CASES = [
    (framework, variant)
    for framework, module in MODULES.items()
    for variant in variant_names("learn_alignment")
    if variant not in module.abilities("cpu").absent
]


def pairs(size: tuple[int, int] = (4, 9), dtype: str = "float64", **asked: Any) -> Pairs:
    (given,) = PROBLEM.inputs(Settings(problem=PROBLEM.name, size=size, dtype=dtype, **asked)).values()
    return given


def learned(framework: str, given: Pairs, variant: str, compiled: bool) -> np.ndarray:
    backend = FRAMEWORKS[framework].backend
    with backend.precision(str(given.truth.dtype)):
        arrays = [backend.to_device(array, "cpu") for array in given.arrays.values()]
        call = backend.call_of("learn_alignment", variant, "train", given.options, compiled=compiled)
        return backend.to_numpy(call(*arrays, **given.parameters))


# the families


def test_true_pairs_stand_in_order_and_once():
    drawn = families(20, 30, seed=3)
    for truth, (rows, cols) in zip(drawn.truth, drawn.lengths, strict=True):
        at = np.argwhere(truth > 0)
        assert (np.diff(at, axis=0) > 0).all() and (at < (rows, cols)).all()
        assert truth.sum(axis=0).max() <= 1 and truth.sum(axis=1).max() <= 1


def test_true_pairs_are_alike_more_often_than_others_and_less_than_always():
    drawn = families(60, 40, seed=0)
    at = np.argwhere(drawn.truth > 0)
    alike = np.mean(drawn.first[at[:, 0], at[:, 1]] == drawn.second[at[:, 0], at[:, 2]])
    assert 0.25 < alike < 0.6
    assert drawn.first.max() < len(LETTERS) and drawn.first.min() >= 0


def test_families_have_gaps_and_flanks_and_go_by_the_seed():
    drawn, again, other = (families(30, 30, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(drawn.truth, again.truth) and not np.array_equal(drawn.first, other.first)
    steps = [np.diff(np.argwhere(truth > 0), axis=0) for truth in drawn.truth]
    assert any((step[:, 0] != step[:, 1]).any() for step in steps)
    assert any(truth[0].sum() == 0 for truth in drawn.truth)


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (3, 2)])
def test_the_smallest_families_are_drawn_or_refused(size: tuple[int, int]):
    for seed in range(10):
        try:
            given = pairs(size, seed=seed)
        except UnusableInput as error:
            assert "no two letters have the same ancestor among " in str(error)
        else:
            assert given.truth.any() and given.lengths.min() >= 1


# the reference


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_its_first_derivatives_are_those_of_the_reference_proper(temperature: float):
    given = pairs()
    similarity = np.random.default_rng(1).normal(size=given.truth.shape)
    marginals, d_gap = learning.first_derivatives(similarity, given.lengths, -0.7, temperature)
    wanted = reference.gradients("smith_waterman", similarity, given.lengths, gap=-0.7, temperature=temperature)
    np.testing.assert_allclose(marginals, wanted["similarity"], atol=1e-13)
    np.testing.assert_allclose(d_gap, wanted["gap"], atol=1e-12)


def test_complex_numbers_give_the_second_derivatives_of_the_reference_proper():
    given = pairs()
    generator = np.random.default_rng(2)
    similarity, vector = (generator.normal(size=given.truth.shape) for _ in range(2))
    along = similarity + 1e-30j * vector
    found = [np.imag(value) / 1e-30 for value in learning.first_derivatives(along, given.lengths, -0.7, 1.3)]
    wanted = reference.hessian_vector_product(
        "smith_waterman", similarity, vector, given.lengths, gap=-0.7, temperature=1.3
    )
    np.testing.assert_allclose(found[0], wanted["similarity"], atol=1e-7)
    np.testing.assert_allclose(found[1], wanted["gap"], atol=1e-7)


def test_a_step_goes_down_the_slope_of_the_loss():
    given, h = pairs(), 1e-5

    def loss(matrix: np.ndarray, gap: float) -> float:
        similarity = matrix[given.first[:, :, None], given.second[:, None, :]]
        marginals, _ = learning.first_derivatives(similarity, given.lengths, gap, 1.0)
        return float(((marginals - given.truth) ** 2).sum() / given.truth.sum())

    step = learning.learn(*given.arrays.values(), steps=1, learning_rate=1.0)
    start = learning.start_matrix()
    assert step.losses[0] == pytest.approx(loss(start, learning.START_GAP))
    by_gap = (loss(start, learning.START_GAP + h) - loss(start, learning.START_GAP - h)) / (2 * h)
    assert learning.START_GAP - step.gap == pytest.approx(by_gap, abs=1e-8)
    for at in ((0, 0), (3, 5), (7, 7)):
        change = np.zeros_like(start)
        change[at] = h
        slope = (loss(start + change, learning.START_GAP) - loss(start - change, learning.START_GAP)) / (2 * h)
        assert (start - step.matrix)[at] == pytest.approx(slope, abs=1e-8)


# the frameworks


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("framework", "variant"), CASES)
def test_every_variant_follows_the_reference(framework: str, variant: str, dtype: str):
    given = pairs(dtype=dtype, arguments={"steps": 6})
    result = learned(framework, given, variant, compiled=framework == "jax")
    verdict = PROBLEM.judge("train", result, PROBLEM.answer(given, ["train"]), given, dtype)
    assert verdict.passed, verdict.text


def test_jax_needs_no_compiler_for_a_step():
    given = pairs((2, 4), arguments={"steps": 2})
    result = learned("jax", given, "auto", compiled=False)
    assert PROBLEM.judge("train", result, PROBLEM.answer(given, ["train"]), given, "float64").passed


def test_the_frameworks_follow_the_same_trajectory_for_a_hundred_steps():
    given = pairs((16, 30))
    results = [unpacked(learned(name, given, "auto", compiled=name == "jax")) for name in FRAMEWORKS]
    assert len(results[0].losses) == 100
    assert np.abs(results[0].losses - results[1].losses).max() < 1e-9
    assert np.abs(results[0].matrix - results[1].matrix).max() < 1e-8


def test_most_of_the_true_pairs_are_recovered_that_were_lost_before():
    given = pairs((16, 30))
    answer = PROBLEM.answer(given, ["train"])
    found = PROBLEM.judge("train", packed(*answer), answer, given, "float64")
    before, after = (float(part.split("%")[0].split()[-1]) for part in (found.told or "").split(",")[:2])
    assert found.passed and after > 70 and after > before + 20
    assert answer.losses[-1] < 0.6 * answer.losses[0]


def test_pytorch_says_that_a_step_cannot_be_compiled():
    given = pairs()
    with pytest.raises(ValueError, match=r"compiled must be False here: torch\.compile has no second derivatives"):
        MODULES["torch"].learn(*given.arrays.values(), compiled=True)


def test_what_pytorch_lacks_is_listed_with_its_reason():
    assert MODULES["torch"].abilities("cpu").absent["vmap"] == "PyTorch's scan operator has wrong second derivatives"


# the problem of the benchmark


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gate_goes_red_just_beyond_what_is_allowed(dtype: str):
    given = pairs(dtype=dtype, arguments={"steps": 3})
    answer = PROBLEM.answer(given, ["train"])
    judge = functools.partial(PROBLEM.judge, "train", answer=answer, inputs=given, dtype=dtype)
    for at in (1, -1, 100):  # a loss, the gap, a score of the matrix
        near, far = (packed(*answer) for _ in range(2))
        near[at] += 0.8 * ALLOWED[dtype]
        far[at] += 1.3 * ALLOWED[dtype]
        assert judge(near.astype(dtype)).passed and not judge(far.astype(dtype)).passed
    assert not judge(np.full(near.shape, np.nan, dtype)).passed and not judge(near[1:].astype(dtype)).passed


def test_a_learning_rate_that_runs_away_is_refused_before_anything_is_measured():
    with pytest.raises(UnusableInput, match="take a smaller one"):
        PROBLEM.answer(pairs(arguments={"learning_rate": 1e300, "steps": 5}), ["train"])


@pytest.mark.parametrize(("dtype", "refused"), [("float32", True), ("float64", False)])
def test_a_descent_that_rounding_decides_is_refused_not_called_wrong(dtype: str, refused: bool):
    given = pairs((8, 20), dtype, arguments={"temperature": 0.01, "steps": 30})
    if refused:
        with pytest.raises(UnusableInput, match="float32 cannot tell a right result from a wrong one"):
            PROBLEM.answer(given, ["train"])
    else:
        assert np.isfinite(PROBLEM.answer(given, ["train"]).losses).all()


def test_more_pairs_than_memory_holds_are_refused():
    with pytest.raises(UnusableInput, match="100000 pairs of 1000 letters do not fit into memory"):
        pairs((100_000, 1000))


SOME = pairs((2, 8))
BAD = {
    "a letter too many": ({"first": SOME.first + 20}, ValueError, "first must be letters from 0 to 19, got "),
    "a letter below": ({"second": SOME.second - 20}, ValueError, "second must be letters from 0 to 19, got -"),
    "real letters": ({"first": SOME.first * 1.0}, TypeError, "first must be integers, got float64"),
    "a list": ({"first": SOME.first.tolist()}, TypeError, "first must be an integer array of this framework or NumPy"),
    "fewer pairs": ({"second": SOME.second[:1]}, ValueError, "second must have shape (2, "),
    "truth of integers": ({"truth": SOME.truth.astype(int)}, TypeError, "truth must be float32 or float64, got int64"),
    "truth of one pair": ({"truth": SOME.truth[0]}, ValueError, "truth must have shape (pairs, rows, cols)"),
    "long lengths": ({"lengths": SOME.lengths + 99}, ValueError, "lengths must be between 0 and (rows, cols)"),
    "cold": ({"temperature": 0.0}, ValueError, "temperature must be between 1e-15 and 1e+15, got 0.0"),
    "no rate": ({"learning_rate": float("nan")}, ValueError, "learning_rate must be positive and finite, got nan"),
    "no step": ({"steps": 0}, ValueError, "steps must be at least 1, got 0"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_bad_arguments_get_the_same_error_from_both(framework: str, name: str):
    options, error, text = BAD[name]
    given = {**SOME.arrays, "steps": 1, **options}
    with FRAMEWORKS[framework].backend.precision("float64"), pytest.raises(error) as raised:
        MODULES[framework].learn(**given)
    assert text in str(raised.value)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_lies_outside_lengths_has_no_influence(framework: str):
    i, j = np.indices(SOME.truth.shape[1:])
    outside = (i >= SOME.lengths[:, :1, None]) | (j >= SOME.lengths[:, 1:, None])
    assert outside.any()
    poisoned = replace(SOME, truth=np.where(outside, np.nan, SOME.truth), options={"steps": 2})
    wanted = learned(framework, replace(SOME, options={"steps": 2}), "wavefront", compiled=False)
    np.testing.assert_array_equal(learned(framework, poisoned, "wavefront", compiled=False), wanted)


def test_what_a_case_gives_is_packed_and_unpacked():
    parts = np.arange(5.0), np.arange(400.0).reshape(20, 20), np.array(-2.0)
    again = unpacked(packed(*parts))
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))


def test_a_picture_has_the_first_pair_before_and_after_and_its_truth():
    given = pairs((4, 12), arguments={"steps": 3})
    drawn = PROBLEM.picture(packed(*PROBLEM.answer(given, ["train"])), given)
    rows, cols = given.lengths[0]
    assert drawn is not None
    assert np.shape(drawn["before"]) == np.shape(drawn["after"]) == (rows, cols)
    assert len(drawn["truth"]) == given.truth[0].sum() and drawn["before"] != drawn["after"]
    assert (len(drawn["rows"]), len(drawn["columns"])) == (rows, cols)


def test_another_shape_keeps_what_is_inside():
    given = pairs()
    after = given.resized
    assert after.shape == (*given.shape[:2], given.shape[2] - 1)
    assert (after.lengths[:, 1] <= after.shape[2]).all() and after.second.shape == (4, after.shape[2])
    assert given.work == after.work == 100


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_is_not_asked_for_has_the_default_of_the_function(framework: str):
    defaults = keyword_defaults(MODULES[framework].learn)
    assert {name: argument.default for name, argument in PROBLEM.arguments.items()} == {
        name: value for name, value in defaults.items() if name != "compiled"
    }
