"""Pairs that no alignment can serve: one score, and derivatives of exactly 0, in every variant of both frameworks."""

import functools
import itertools

import numpy as np
import pytest
from frameworks import BY_HAND, FRAMEWORKS, Inputs, reference_result, run
from gaps_by_position import by_differences, products

from shared import reference
from shared.alignments import ALIGNMENTS
from shared.variants import usable_variants

PROBLEM = "needleman_wunsch"


def forbidden(by_position: bool) -> Inputs:
    """Pairs of 3 x 4 at random, some without an alignment; one pair has a length of 0."""
    random = np.random.default_rng(5)
    shape = (8, 3, 4)
    similarity = np.where(random.random(shape) < 0.3, -np.inf, np.round(random.normal(size=shape), 2))
    gaps = np.where(random.random(shape) < 0.6, -np.inf, -1.0)
    lengths = np.array([(3, 4)] * 5 + [(3, 3), (0, 4), (2, 4)], np.int32)
    alone = np.where(np.arange(8) % 2, -1.0, -1e20)
    parameters = {"gap": gaps if by_position else alone, "temperature": np.ones(8)}
    return Inputs(similarity, lengths, parameters, np.linspace(-1, 1.5, 8))


FAST = (
    *(("torch", name) for name in (*BY_HAND, "diagonal_loop")),
    *(("jax", name) for name in ("fused", "vmap")),
)


@pytest.mark.parametrize(
    ("framework", "variant", "by_position"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] * (case[:2] not in FAST or not case[2]))
        for case in itertools.product(FRAMEWORKS, usable_variants(PROBLEM, {"cuda_graph": "no GPU"}), [True, False])
    ],
)
def test_pairs_without_alignment_have_one_score_and_no_derivatives(framework: str, variant: str, by_position: bool):
    inputs = forbidden(by_position)
    expected = reference_result(inputs, PROBLEM)
    none = expected.score == -np.inf
    assert none.any() and not none.all()
    how = "quick" if framework == "jax" and variant != "fused" else "eager"
    result = run(framework, inputs, "float32" if by_position else "float64", variant, how, PROBLEM)
    np.testing.assert_array_equal(result.score[none], expected.score[none])
    np.testing.assert_allclose(result.score[~none], expected.score[~none], rtol=1e-5)
    for name, value in result.gradients.items():
        assert not value[none].any(), name
        np.testing.assert_allclose(value, expected.gradients[name], atol=1e-4, err_msg=name)
    if variant not in (*BY_HAND, "diagonal_loop"):
        return
    arguments = {"similarity": inputs.similarity, **inputs.parameters}
    zeros = {name: np.zeros_like(array) for name, array in arguments.items()}
    directions = [zeros | {name: np.ones_like(array)} for name, array in arguments.items()]
    score = functools.partial(getattr(FRAMEWORKS[framework].package, PROBLEM), variant=variant)
    for direction, second in zip(directions, products(framework, score, inputs, directions), strict=True):
        differences = by_differences(PROBLEM, inputs, direction, {})
        for name, value in second.items():
            assert not value[none].any(), name
            np.testing.assert_allclose(value, differences[name], atol=1e-7, err_msg=name)


@pytest.mark.parametrize("function_name", ["smith_waterman", "smith_waterman_affine", "needleman_wunsch"])
@pytest.mark.parametrize("lowest", [-5e19, -3e20])
def test_finite_values_forbid_in_the_reference_as_minus_infinity_does(function_name: str, lowest: float):
    random = np.random.default_rng(6)
    shape = (40, 3, 4)
    similarity = np.where(random.random(shape) < 0.8, -np.inf, 1e4 * random.normal(size=shape))
    parameters = {}
    for name in ALIGNMENTS[function_name].gaps:
        parameters[name] = np.where(random.random(shape) < 0.5, -np.inf, -1.0)

    expected = reference.gradients(function_name, similarity, **parameters)
    finite_gaps = {name: np.maximum(values, -1e20) for name, values in parameters.items()}
    result = reference.gradients(function_name, np.maximum(similarity, lowest), **finite_gaps)
    assert any((matrix == 0).all() for matrix in expected["similarity"])  # pairs without an alignment
    for name, values in expected.items():
        np.testing.assert_array_equal(result[name], values, err_msg=name)
