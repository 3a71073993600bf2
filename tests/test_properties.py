"""Padding, pairs without cells or alignments, NaN and half precision: every alignment in both frameworks."""

import functools
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from enumeration import SIGN
from frameworks import (
    BY_HAND,
    FRAMEWORKS,
    PROBLEMS,
    Inputs,
    Result,
    assert_parity,
    axes_of,
    ragged,
    reference_result,
    run,
)
from gaps_by_position import by_differences, outside, products

from shared import reference
from shared.alignments import ALIGNMENTS, COST
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


FAST = (*(("torch", name) for name in (*BY_HAND, "diagonal_loop")), *(("jax", name) for name in ("fused", "vmap")))
# PyTorch compiles batch_loop for each pair by itself
RUNGS = [
    (*which, by_position)
    for which in itertools.product(FRAMEWORKS, usable_variants(PROBLEM, {"cuda_graph": "no GPU"}))
    for by_position in ([True, False] if which[1] in BY_HAND else [True])
    if which != ("torch", "batch_loop")
]


@pytest.mark.parametrize(
    ("framework", "variant", "by_position"),
    [pytest.param(*case, marks=[pytest.mark.slow] * (case[:2] not in FAST or not case[2])) for case in RUNGS],
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


@pytest.mark.parametrize(
    ("framework", "variant"), [*itertools.product(FRAMEWORKS, BY_HAND), ("torch", "diagonal_loop"), ("jax", "vmap")]
)
@pytest.mark.parametrize("names", [("gap_open", "gap_extend"), axes_of("gap_open", "gap_extend")], ids=len)
def test_an_affine_gap_may_be_forbidden_where_it_opens_or_where_it_extends(framework, variant, names):
    problem, pairs = "needleman_wunsch_affine", 2 ** len(names)
    is_forbidden = (np.arange(pairs)[:, None] >> np.arange(len(names))) & 1
    gaps = np.where(is_forbidden, -1e20, -np.arange(1.0, 1 + len(names)))
    parameters = dict(zip(names, gaps.T, strict=True)) | {"temperature": np.full(pairs, 0.5)}
    similarity = np.random.default_rng(3).normal(size=(pairs, 3, 3))
    inputs = Inputs(similarity, np.tile(np.array([3, 3], np.int32), (pairs, 1)), parameters, np.ones(pairs))
    how = "quick" if framework == "jax" and variant != "fused" else "eager"
    result = run(framework, inputs, "float64", variant, how, problem)
    assert_parity(result, reference_result(inputs, problem), "float64", 0.5)


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


PAIRS, ROWS, COLS = 6, 5, 6  # as many pairs as `ragged` has, so that JAX compiles most of this file for one shape
CASES = [(problem, options) for problem, (_, every) in PROBLEMS.items() for options in every]
GAPS = ("gap", "gap_open", "gap_extend")
BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)
# the first and the last options of each problem
FIRST_AND_LAST = [(name, every[number]) for name, (_, every) in PROBLEMS.items() for number in {0, len(every) - 1}]


def same_gaps(gap: Any, temperature: Any) -> dict[str, np.ndarray]:
    return dict.fromkeys(GAPS, np.asarray(gap, float)) | {"temperature": np.asarray(temperature, float)}


def of_problem(inputs: Inputs, problem: str) -> dict[str, np.ndarray]:
    return {name: inputs.parameters[name] for name in PROBLEMS[problem].parameters}


def evaluate(
    framework: str, problem: str, options: dict, inputs: Inputs, dtype: str = "float64", variant: str = "auto"
) -> Result:
    """Scores and, for a cotangent of ones, the marginals and the gradients of each pair's parameters."""
    how = {"jax": "quick" if dtype == "float64" else "compiled", "torch": "eager"}[framework]
    inputs = inputs._replace(parameters=of_problem(inputs, problem))
    return run(framework, inputs, dtype, variant, how, problem, **options)


@BOTH
@pytest.mark.parametrize(("problem", "options"), FIRST_AND_LAST, ids=str)
def test_padding_and_a_larger_matrix_change_nothing(framework, problem, options):
    poisoned = ragged(ROWS, COLS, problem=problem)
    zeros = poisoned._replace(similarity=np.where(outside(poisoned), 0.0, poisoned.similarity))
    larger = np.pad(poisoned.similarity, [(0, 0), (0, 2), (0, 1)], constant_values=np.nan)
    larger[:, ROWS], larger[:2, :, COLS], larger[2:, :, COLS] = 1e30, np.inf, -np.inf
    expected, result, enlarged = (
        evaluate(framework, problem, options, inputs, "float32")
        for inputs in (zeros, poisoned, poisoned._replace(similarity=larger))
    )
    np.testing.assert_array_equal(result.score, expected.score)
    for name, gradient in expected.gradients.items():
        np.testing.assert_array_equal(result.gradients[name], gradient)
    marginals = enlarged.gradients["similarity"]
    np.testing.assert_allclose(enlarged.score, expected.score, rtol=1e-5)
    np.testing.assert_allclose(marginals[:, :ROWS, :COLS], expected.gradients["similarity"], rtol=1e-5, atol=1e-7)
    assert not result.gradients["similarity"][outside(poisoned)].any()
    assert not marginals[:, ROWS:].any() and not marginals[:, :, COLS:].any()


@BOTH
@pytest.mark.parametrize(
    ("problem", "options", "short"),
    [
        ("smith_waterman", {"end": "any"}, [(0, 1), (1, 0)]),
        ("smith_waterman", {"end": "match"}, [(1, COLS), (ROWS, 1)]),
        ("smith_waterman_affine", {}, [(1, COLS), (ROWS, 1)]),
    ],
    ids=str,
)
def test_local_pairs_without_an_alignment_score_zero_with_zero_gradients(framework, problem, options, short):
    lengths = np.array([(0, 0), (0, COLS), (ROWS, 0), *short, (ROWS, COLS)], dtype=np.int32)
    similarity = np.ones((PAIRS, ROWS, COLS))
    similarity[-1] = -np.inf  # every match is forbidden
    # temperatures that are no powers of two: a compiler that divides by multiplying makes rounding errors of its own
    values = same_gaps(np.linspace(-2, 1, PAIRS), np.linspace(0.3, 3.3, PAIRS))
    result = evaluate(framework, problem, options, Inputs(similarity, lengths, values, np.full(PAIRS, 2.0)), "float32")
    assert not result.score.any()
    assert not any(gradient.any() for gradient in result.gradients.values())


# XLA compiles each case, a wavefront for seconds: every seventh
@pytest.mark.parametrize(
    ("framework", "variant", "problem", "options"),
    [
        (*which, *case)
        for which in itertools.product(FRAMEWORKS, BY_HAND)
        for number, case in enumerate(CASES)
        if case[1].get("end_gaps") != "free_rows"  # where two alignments are worth the same
        and (which[0] == "torch" or number % 7 == 0)
    ],
    ids=str,
)
def test_what_is_forbidden_does_not_depend_on_the_temperature(framework, variant, problem, options):
    similarity = np.full((PAIRS, ROWS, COLS), -1e20)
    similarity[:, [0, 1], [0, 3]] = 1.0  # between them a gap of two, just above what is forbidden
    similarity *= SIGN[problem]
    values = same_gaps(np.full(PAIRS, -2.4e19), [1e-6, 1e-3, 0.05, 1.0, 20.0, 1e6])
    inputs = Inputs(similarity, np.tile(np.array([2, 4], np.int32), (PAIRS, 1)), values, np.ones(PAIRS))
    expected = reference_result(inputs._replace(parameters=of_problem(inputs, problem)), problem, **options)
    result = evaluate(framework, problem, options, inputs, "float32", variant)
    np.testing.assert_allclose(result.score, expected.score, rtol=1e-5)
    for name, gradient in result.gradients.items():
        np.testing.assert_allclose(gradient, expected.gradients[name], rtol=1e-4, atol=1e-5, err_msg=name)


@BOTH
@pytest.mark.parametrize("problem", PROBLEMS)
def test_an_empty_matrix_or_batch_has_only_gaps(framework, problem):
    for number, shape in enumerate([(0, 5), (5, 0), (0, 0), (2, 0, 5), (0, 3, 4), (0, 0, 0)]):
        options = PROBLEMS[problem].options[number % len(PROBLEMS[problem].options)]
        batch, paid = shape[:-2], {COST: (1, 1), "free_rows": (1, 0), "free_cols": (0, 1)}
        gaps = 0 if all(shape[-2:]) else int(np.dot(shape[-2:], paid.get(options.get("end_gaps", ""), (0, 0))))
        steps = {"gap": gaps, "gap_open": min(gaps, 1), "gap_extend": max(gaps - 1, 0)}
        inputs = Inputs(np.zeros(shape), None, same_gaps(np.full(batch, -0.75), np.full(batch, 0.7)), np.ones(batch))
        result = evaluate(framework, problem, options, inputs)
        assert result.score.dtype == "float64"
        np.testing.assert_array_equal(result.score, np.full(batch, -0.75 * gaps), strict=True)
        shapes = dict.fromkeys(PROBLEMS[problem].parameters, batch)
        assert {name: gradient.shape for name, gradient in result.gradients.items()} == {"similarity": shape, **shapes}
        for name, gradient in result.gradients.items():
            assert (gradient == steps.get(name, 0)).all(), name


@pytest.mark.parametrize(
    ("framework", "variant", "problem", "options"),
    [
        *(("torch", variant, *case) for variant in (*BY_HAND, "diagonal_loop") for case in CASES),
        # alignments of two matches, none of which passes through two of the corners
        *(("jax", variant, *CASES[1]) for variant in ("fused", "wavefront", "vmap")),
    ],
    ids=str,
)
def test_nan_and_infinity_inside_lengths_are_not_hidden(framework, variant, problem, options):
    """Not even in a corner, through which no alignment of two matches passes."""
    lengths = np.full((PAIRS, 2), (ROWS, COLS), dtype=np.int32)
    similarity = np.ones((PAIRS, ROWS, COLS))
    similarity[0, 2, 2] = similarity[1, 0, 0] = similarity[2, -1, -1] = similarity[3, 0, -1] = np.nan
    similarity[4, -1, 0] = np.inf * SIGN[problem]
    inputs = Inputs(similarity, lengths, same_gaps(np.full(PAIRS, -1.0), np.ones(PAIRS)), np.ones(PAIRS))
    result = evaluate(framework, problem, options, inputs, variant=variant)
    assert np.isnan(result.score).tolist() == [True] * 5 + [False]
    assert np.isnan(result.gradients["similarity"]).any((1, 2)).tolist() == [True] * 5 + [False]


@BOTH
@pytest.mark.parametrize(("name", "by_position"), [("float16", False), ("float16", True), ("bfloat16", False)])
def test_half_precision_is_computed_in_float32_and_kept(framework, name, by_position):
    package, backend = FRAMEWORKS[framework]
    values = backend.to_device(np.random.default_rng(3).normal(size=(2, 2, 4, 5)).astype(np.float32), "cpu")
    similarity, gap = values.astype(name) if framework == "jax" else values.to(getattr(torch, name))
    full = similarity.astype("float32") if framework == "jax" else similarity.float()
    score = functools.partial(package.smith_waterman, **({"gap": gap, "end": "match"} if by_position else {}))
    marginals = functools.partial(package.marginals, score)
    assert score(similarity).dtype == marginals(similarity).dtype == similarity.dtype
    rounding = {"float16": 2**-11, "bfloat16": 2**-8}[name]
    for got, exact in zip(score(similarity).tolist(), score(full).tolist(), strict=True):
        assert got == pytest.approx(exact, rel=rounding)
    assert float(abs(marginals(similarity) - marginals(full)).max()) <= rounding
