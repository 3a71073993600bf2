"""Learning to align: the families, the vectorised reference against the main one, both frameworks against it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from frameworks import FRAMEWORKS

import jax_impl.learn_alignment
import torch_impl.learn_alignment
from shared import reference
from shared.bench.cases import Settings
from shared.problems import PROBLEMS
from shared.problems.learn_alignment import Pairs, packed
from shared.problems.problem import UnusableInput
from shared.problems.synthetic_pairs import LETTERS, synthetic_pairs
from shared.reference import learning
from shared.variants import variant_names

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


def test_true_pairs_are_in_order_and_alike_more_often_than_by_chance():
    drawn = synthetic_pairs(40, 40, seed=3)
    alike = []
    for first, second, truth, (rows, cols) in zip(drawn.first, drawn.second, drawn.truth, drawn.lengths, strict=True):
        at = np.argwhere(truth > 0)
        assert (np.diff(at, axis=0) > 0).all() and (at < (rows, cols)).all()
        alike += [*(first[at[:, 0]] == second[at[:, 1]])]
    assert 0.25 < np.mean(alike) < 0.6
    assert drawn.first.max() < len(LETTERS) and drawn.first.min() >= 0
    again, other = (synthetic_pairs(40, 40, seed=seed) for seed in (3, 4))
    assert np.array_equal(drawn.truth, again.truth) and not np.array_equal(drawn.first, other.first)


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (3, 2)])
def test_the_smallest_families_are_usable_or_refused(size: tuple[int, int]):
    for seed in range(10):
        try:
            given = pairs(size, seed=seed)
        except UnusableInput as error:
            assert "no two letters have the same ancestor among " in str(error)
        else:
            assert given.truth.any() and given.lengths.min() >= 1


# the reference


def test_its_first_derivatives_are_those_of_the_main_reference():
    given, temperature = pairs(), 0.5
    similarity = np.random.default_rng(1).normal(size=given.truth.shape)
    marginals, d_gap = learning.first_derivatives(similarity, given.lengths, -0.7, temperature)
    wanted = reference.gradients("smith_waterman", similarity, given.lengths, gap=-0.7, temperature=temperature)
    np.testing.assert_allclose(marginals, wanted["similarity"], atol=1e-13)
    np.testing.assert_allclose(d_gap, wanted["gap"], atol=1e-12)


def test_complex_numbers_give_the_second_derivatives_of_the_main_reference():
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


@pytest.mark.parametrize(
    ("framework", "variant", "dtype"),
    [*((*case, "float32") for case in CASES), *((name, "fused", "float64") for name in FRAMEWORKS)],
)
def test_every_variant_follows_the_reference(framework: str, variant: str, dtype: str):
    given = pairs(dtype=dtype, arguments={"steps": 4})
    i, j = np.indices(given.truth.shape[1:])
    outside = (i >= given.lengths[:, :1, None]) | (j >= given.lengths[:, 1:, None])
    assert outside.any()  # where truth has no influence
    poisoned = replace(given, truth=np.where(outside, np.nan, given.truth))
    result = learned(framework, poisoned, variant, compiled=framework == "jax")
    verdict = PROBLEM.judge("train", result, PROBLEM.reference_results(given, ["train"]), given, dtype)
    assert verdict.passed, verdict.text


def test_pytorch_refuses_to_compile_a_step():
    given = pairs()
    with pytest.raises(ValueError, match=r"compiled must be False here: torch\.compile has no second derivatives"):
        MODULES["torch"].learn(*given.arrays.values(), compiled=True)


def test_learning_recovers_most_of_the_true_pairs():
    given = pairs((8, 24))
    answer = PROBLEM.reference_results(given, ["train"])
    found = PROBLEM.judge("train", packed(*answer), answer, given, "float64")
    before, after = (float(part.split("%")[0].split()[-1]) for part in (found.summary or "").split(",")[:2])
    assert found.passed and after > 70 and after > before + 20
    assert answer.losses[-1] < 0.6 * answer.losses[0]


# the problem of the benchmark


def test_a_picture_has_the_first_pair_before_and_after_and_its_truth():
    given = pairs((4, 12), arguments={"steps": 3})
    drawn = PROBLEM.picture(packed(*PROBLEM.reference_results(given, ["train"])), given)
    rows, cols = given.lengths[0]
    assert drawn is not None
    assert np.shape(drawn["before"]) == np.shape(drawn["after"]) == (rows, cols)
    assert len(drawn["truth"]) == given.truth[0].sum() and drawn["before"] != drawn["after"]
    assert (len(drawn["rows"]), len(drawn["columns"])) == (rows, cols)
