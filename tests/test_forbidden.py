"""Pairs that no alignment can serve: one score, and derivatives of exactly 0, in every variant of both frameworks."""

import functools

import jax
import numpy as np
import pytest
from frameworks import BY_HAND, FRAMEWORKS, Inputs, reference_result, run
from test_second_derivatives_by_position import products

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


@pytest.mark.parametrize(("is_by_position", "dtype"), [(True, "float32"), (False, "float64")])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_pairs_without_alignment_are_as_in_the_reference(framework: str, is_by_position: bool, dtype: str):
    inputs = forbidden(is_by_position)
    expected = reference_result(inputs, PROBLEM)
    none = expected.score == -np.inf
    assert none.any()
    assert not none.all()
    for variant in usable_variants(PROBLEM, {"cuda_graph": "no GPU"}):
        how = "quick" if framework == "jax" and variant != "fused" else "eager"
        result = run(framework, inputs, dtype, variant, how, PROBLEM)
        np.testing.assert_array_equal(result.score[none], expected.score[none], err_msg=variant)
        np.testing.assert_allclose(result.score[~none], expected.score[~none], rtol=1e-5, err_msg=variant)
        for name, value in result.gradients.items():
            assert not value[none].any(), (variant, name)
            np.testing.assert_allclose(value, expected.gradients[name], atol=1e-4, err_msg=f"{variant} {name}")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("is_by_position", [False, True])
def test_pairs_without_alignment_have_no_second_derivatives(framework: str, is_by_position: bool):
    inputs = forbidden(is_by_position)
    none = reference_result(inputs, PROBLEM).score == -np.inf
    package = FRAMEWORKS[framework].package
    vector = np.ones_like(inputs.similarity)
    with jax.enable_x64(True):
        for variant in ("fused", "wavefront"):
            product = package.hessian_vector_product(
                package.needleman_wunsch,
                inputs.similarity,
                vector,
                inputs.lengths,
                **inputs.parameters,
                variant=variant,
            )
            assert not np.asarray(product)[none].any(), variant
            assert np.isfinite(np.asarray(product)).all(), variant


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("is_by_position", [False, True])
def test_pairs_without_alignment_have_no_second_derivatives_by_parameters(framework: str, is_by_position: bool):
    inputs = forbidden(is_by_position)
    none = reference_result(inputs, PROBLEM).score == -np.inf
    arguments = {"similarity": inputs.similarity, **inputs.parameters}
    zeros = {name: np.zeros_like(array) for name, array in arguments.items()}
    along = ("gap", "temperature")
    directions = [zeros | {name: np.ones_like(arguments[name])} for name in along]
    expected = []
    for variant in ({"jax": "vmap", "torch": "diagonal_loop"}[framework], *BY_HAND):
        score = functools.partial(getattr(FRAMEWORKS[framework].package, PROBLEM), variant=variant)
        found = products(framework, score, inputs, directions)
        expected = expected or found  # by the plain variant
        for direction, own, wanted in zip(along, found, expected, strict=True):
            for name, value in own.items():
                assert not value[none].any(), (variant, direction, name)
                np.testing.assert_allclose(value, wanted[name], atol=1e-9, err_msg=f"{variant} {direction} {name}")
        assert any(value[~none].any() for own in found for value in own.values())


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
