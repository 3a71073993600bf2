"""Properties of every alignment on every input, in both frameworks; padding; pairs without cells."""

import functools
import itertools
from math import comb, log
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS, PROBLEMS, Inputs, Result, assert_parity, ragged, reference_result, run
from hypothesis import given, settings
from hypothesis import strategies as st

PAIRS, ROWS, COLS = 6, 5, 6  # as many pairs as `ragged` has, so that JAX compiles most of this file for one shape
CASES = [(problem, options) for problem, (_, every) in PROBLEMS.items() for options in every]
LOCAL = ("smith_waterman", "smith_waterman_affine")
GAPS = ("gap", "gap_open", "gap_extend")
BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
EVERY = pytest.mark.parametrize(("problem", "options"), CASES, ids=str)
EXAMPLES = settings(max_examples=15, deadline=None, derandomize=True)


@st.composite
def batches(draw: st.DrawFn) -> Inputs:
    """A batch of one fixed shape (compiled once), of any lengths, gaps, temperatures and magnitudes.

    It has the parameters of every problem; `evaluate` takes those that a problem has.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    length = st.tuples(st.integers(0, ROWS), st.integers(0, COLS))
    lengths = np.array(draw(st.lists(length, min_size=PAIRS, max_size=PAIRS)), dtype=np.int32)
    scale = draw(st.sampled_from([0.0, 0.1, 1.0, 30.0]))
    similarity = random.normal(draw(st.sampled_from([-1.0, 0.0, 1.0])), scale, size=(PAIRS, ROWS, COLS))
    gaps = st.lists(st.floats(-5, 1), min_size=PAIRS, max_size=PAIRS)
    temperatures = draw(st.lists(st.floats(0.05, 20), min_size=PAIRS, max_size=PAIRS))
    values = parameters(temperatures, **{name: draw(gaps) for name in GAPS})
    return Inputs(similarity, lengths, values, np.ones(PAIRS))


def parameters(temperature: Any, **gaps: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(value, dtype=float) for name, value in {**gaps, "temperature": temperature}.items()}


def same_gaps(gap: Any, temperature: Any) -> dict[str, np.ndarray]:
    return parameters(temperature, **dict.fromkeys(GAPS, gap))


def of_problem(inputs: Inputs, problem: str) -> dict[str, np.ndarray]:
    return {name: inputs.parameters[name] for name in PROBLEMS[problem].parameters}


def evaluate(
    framework: str, problem: str, options: dict, inputs: Inputs, dtype: str = "float64", variant: str = "auto"
) -> Result:
    """Scores and, for a cotangent of ones, the marginals and the gradients of each pair's parameters."""
    how = {"jax": "quick" if dtype == "float64" else "compiled", "torch": "eager"}[framework]
    own = inputs._replace(parameters=of_problem(inputs, problem))
    return run(framework, own, dtype, variant, how, problem, **options)


def fewest_matches(problem: str, options: dict) -> int:
    """The least number of matches of an alignment."""
    if problem == "smith_waterman":
        return {"any": 1, "match": 2}[options["end"]]
    return 2 if problem == "smith_waterman_affine" else 0


def outside(inputs: Inputs) -> np.ndarray:
    assert inputs.lengths is not None
    i, j = np.indices(inputs.similarity.shape[1:])
    return (i >= inputs.lengths[:, 0, None, None]) | (j >= inputs.lengths[:, 1, None, None])


# the marginals


@BOTH
@EVERY
@EXAMPLES
@given(inputs=batches())
def test_marginals_sum_to_at_most_one_per_row_and_column(framework, problem, options, inputs):
    marginals = evaluate(framework, problem, options, inputs).gradients["similarity"]
    assert marginals.min() >= 0.0
    assert marginals.sum(axis=1).max() <= 1 + 1e-9
    assert marginals.sum(axis=2).max() <= 1 + 1e-9


@BOTH
@EVERY
@EXAMPLES
@given(inputs=batches())
def test_marginals_sum_to_the_expected_number_of_matches(framework, problem, options, inputs):
    total = evaluate(framework, problem, options, inputs).gradients["similarity"].sum(axis=(1, 2))
    shorter, fewest = inputs.lengths.min(axis=1), fewest_matches(problem, options)
    assert (total <= shorter + 1e-9).all()
    assert (total[shorter >= fewest] >= fewest - 1e-9).all()
    assert (total[shorter < max(1, fewest)] == 0.0).all()


@BOTH
@EVERY
@EXAMPLES
@given(inputs=batches())
def test_the_score_is_homogeneous_of_degree_one(framework, problem, options, inputs):
    result = evaluate(framework, problem, options, inputs)
    products = [(result.gradients["similarity"] * inputs.similarity).sum(axis=(1, 2))]
    products += [result.gradients[name] * value for name, value in of_problem(inputs, problem).items()]
    scale = np.abs(inputs.similarity).max() + 5
    np.testing.assert_allclose(sum(products), result.score, rtol=1e-9, atol=1e-10 * scale)


@BOTH
@EVERY
@EXAMPLES
@given(inputs=batches())
def test_swapping_the_sequences_transposes_the_marginals(framework, problem, options, inputs):
    # also where turns are restricted to one order: the gaps between two matches cost the same in the other
    swapped = inputs._replace(similarity=inputs.similarity.swapaxes(1, 2), lengths=inputs.lengths[:, ::-1].copy())
    result, other = (evaluate(framework, problem, options, either) for either in (inputs, swapped))
    np.testing.assert_allclose(other.score, result.score, rtol=1e-11, atol=1e-11)
    transposed = other.gradients["similarity"].swapaxes(1, 2)
    np.testing.assert_allclose(transposed, result.gradients["similarity"], rtol=1e-9, atol=1e-12)
    for name in of_problem(inputs, problem):
        np.testing.assert_allclose(other.gradients[name], result.gradients[name], rtol=1e-9, atol=1e-10)


# how the score changes


@BOTH
@EVERY
@EXAMPLES
@given(inputs=batches())
def test_the_score_rises_with_every_argument(framework, problem, options, inputs):
    # marginals, the expected number of gaps and the entropy of the alignments are never negative
    gradients = evaluate(framework, problem, options, inputs).gradients
    assert {name: gradient.min() for name, gradient in gradients.items() if gradient.min() < -1e-10} == {}


@BOTH
@pytest.mark.parametrize(("problem", "options"), [case for case in CASES if case[0] != "needleman_wunsch"], ids=str)
@EXAMPLES
@given(inputs=batches())
def test_a_longer_pair_never_scores_less(framework, problem, options, inputs):
    # it has all alignments of the shorter one, for a free gap at its end too (any other gap changes a global score);
    # with no alignment at all, the score is 0 by definition
    full = inputs._replace(lengths=np.full((PAIRS, 2), (ROWS, COLS), dtype=np.int32))
    exists = inputs.lengths.min(axis=1) >= fewest_matches(problem, options)
    shorter, longer = (evaluate(framework, problem, options, either) for either in (inputs, full))
    assert (longer.score - shorter.score)[exists].min(initial=0.0) >= -1e-9 * (1 + np.abs(shorter.score).max())


# one problem equals another


@BOTH
@pytest.mark.parametrize("penalize_turns", [True, False])
@EXAMPLES
@given(inputs=batches())
def test_affine_with_equal_gaps_and_all_turns_is_linear_that_ends_on_a_match(framework, penalize_turns, inputs):
    inputs = inputs._replace(parameters=same_gaps(inputs.parameters["gap"], inputs.parameters["temperature"]))
    options = {"restrict_turns": False, "penalize_turns": penalize_turns}
    affine = evaluate(framework, "smith_waterman_affine", options, inputs)
    linear = evaluate(framework, "smith_waterman", {"end": "match"}, inputs)
    np.testing.assert_allclose(affine.score, linear.score, rtol=1e-11, atol=1e-11)
    by_gap = affine.gradients["gap_open"] + affine.gradients["gap_extend"]
    np.testing.assert_allclose(by_gap, linear.gradients["gap"], rtol=1e-9, atol=1e-10)
    for name in ("similarity", "temperature"):
        np.testing.assert_allclose(affine.gradients[name], linear.gradients[name], rtol=1e-9, atol=1e-10)


@BOTH
@EXAMPLES
@given(inputs=batches())
def test_free_gap_is_needleman_wunsch_with_gap_zero(framework, inputs):
    inputs = inputs._replace(parameters=same_gaps(np.zeros(PAIRS), inputs.parameters["temperature"]))
    free, general = (evaluate(framework, problem, {}, inputs) for problem in ("free_gap", "needleman_wunsch"))
    np.testing.assert_allclose(free.score, general.score, rtol=1e-13)
    for name, gradient in free.gradients.items():
        np.testing.assert_allclose(gradient, general.gradients[name], rtol=1e-12, atol=1e-13)


# padding, empty pairs


@BOTH
@EVERY
@DTYPES
def test_padding_changes_nothing(framework, problem, options, dtype):
    poisoned = ragged(ROWS, COLS, problem=problem)
    zeros = poisoned._replace(similarity=np.where(outside(poisoned), 0.0, poisoned.similarity))
    result, expected = (evaluate(framework, problem, options, either, dtype) for either in (poisoned, zeros))
    np.testing.assert_array_equal(result.score, expected.score)
    for name, gradient in expected.gradients.items():
        np.testing.assert_array_equal(result.gradients[name], gradient)
    assert not result.gradients["similarity"][outside(poisoned)].any()


@BOTH
@EVERY
@pytest.mark.parametrize("filling", [np.nan, np.inf, -np.inf, 1e30])
def test_enlarging_the_matrix_changes_nothing(framework, problem, options, filling):
    inputs = ragged(ROWS, COLS, problem=problem)
    larger = np.pad(inputs.similarity, [(0, 0), (0, 2), (0, 1)], constant_values=filling)
    result = evaluate(framework, problem, options, inputs._replace(similarity=larger))
    expected = evaluate(framework, problem, options, inputs)
    np.testing.assert_allclose(result.score, expected.score, rtol=1e-12)
    marginals = result.gradients["similarity"]
    np.testing.assert_allclose(marginals[:, :ROWS, :COLS], expected.gradients["similarity"], rtol=1e-12, atol=1e-14)
    assert not marginals[:, ROWS:].any()
    assert not marginals[:, :, COLS:].any()


@BOTH
@pytest.mark.parametrize(("problem", "options"), [case for case in CASES if case[0] in LOCAL], ids=str)
@DTYPES
def test_local_pairs_without_an_alignment_score_zero_with_zero_gradients(framework, problem, options, dtype):
    short = [(1, COLS), (ROWS, 1)] if fewest_matches(problem, options) == 2 else [(0, 1), (1, 0)]
    lengths = np.array([(0, 0), (0, COLS), (ROWS, 0), *short, (ROWS, COLS)], dtype=np.int32)
    similarity = np.ones((PAIRS, ROWS, COLS))
    similarity[-1] = -np.inf  # every match is forbidden
    # temperatures that are no powers of two: a compiler that divides by multiplying makes rounding errors of its own
    values = same_gaps(np.linspace(-2, 1, PAIRS), np.linspace(0.3, 3.3, PAIRS))
    result = evaluate(framework, problem, options, Inputs(similarity, lengths, values, np.full(PAIRS, 2.0)), dtype)
    assert not result.score.any()
    assert set(result.gradients) == {"similarity", *PROBLEMS[problem].parameters}
    assert not any(gradient.any() for gradient in result.gradients.values())


@BOTH
@pytest.mark.parametrize("problem", ["needleman_wunsch", "free_gap"])
@DTYPES
def test_global_pairs_without_matches_are_all_gaps(framework, problem, dtype):
    lengths = np.array([(0, 0), (0, COLS), (ROWS, 0), (1, 1), (2, 3), (ROWS, COLS)], dtype=np.int32)
    similarity = np.full((PAIRS, ROWS, COLS), -np.inf)
    gap, temperature = np.linspace(-2, 1, PAIRS), np.linspace(0.3, 3.3, PAIRS)
    result = evaluate(
        framework, problem, {}, Inputs(similarity, lengths, same_gaps(gap, temperature), np.ones(PAIRS)), dtype
    )
    orders = np.array([log(comb(rows + cols, cols)) for rows, cols in lengths.tolist()])
    expected = {"similarity": np.zeros_like(similarity), "temperature": orders}
    gaps = lengths.sum(axis=1) if problem == "needleman_wunsch" else np.zeros(PAIRS)
    expected |= {"gap": gaps} if problem == "needleman_wunsch" else {}
    assert result.gradients.keys() == expected.keys()
    tolerance = {"float32": 1e-5, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(result.score, gaps * gap + temperature * orders, rtol=tolerance)
    for name, gradient in expected.items():
        np.testing.assert_allclose(result.gradients[name], gradient, rtol=tolerance, err_msg=name)


EMPTY_SHAPES = [(0, 5), (5, 0), (0, 0), (2, 0, 5), (0, 3, 4), (0, 0, 0)]
# the options in turn: each shape is compiled anew
EMPTY = [
    (problem, every[n % len(every)], s) for problem, (_, every) in PROBLEMS.items() for n, s in enumerate(EMPTY_SHAPES)
]


@BOTH
@pytest.mark.parametrize(("problem", "options", "shape"), EMPTY, ids=str)
def test_an_empty_matrix_or_batch_has_only_gaps(framework, problem, options, shape):
    batch, gaps = shape[:-2], sum(shape[-2:]) if problem == "needleman_wunsch" else 0
    inputs = Inputs(np.zeros(shape), None, same_gaps(np.full(batch, -0.75), np.full(batch, 0.7)), np.ones(batch))
    result = evaluate(framework, problem, options, inputs)
    assert result.score.dtype == "float64"
    np.testing.assert_array_equal(result.score, np.full(batch, -0.75 * gaps), strict=True)
    shapes = dict.fromkeys(PROBLEMS[problem].parameters, batch)
    assert {name: gradient.shape for name, gradient in result.gradients.items()} == {"similarity": shape, **shapes}
    for name, gradient in result.gradients.items():
        assert (gradient == (gaps if name == "gap" else 0)).all(), name


@BOTH
@EVERY
def test_minus_infinity_forbids_a_match(framework, problem, options):
    similarity = np.random.default_rng(2).normal(size=(PAIRS, ROWS, COLS)).astype(np.float32).astype(float)
    forbidden = np.zeros(similarity.shape, dtype=bool)
    forbidden[0, 2, 3] = forbidden[1, 0] = forbidden[2, :, 0] = forbidden[3, -1, -1] = True
    forbidden[4, np.arange(ROWS), np.arange(ROWS)] = True
    forbidden[5] = ~np.isin(np.arange(ROWS * COLS).reshape(ROWS, COLS), (7, 22))  # all but two matches
    similarity[forbidden] = -np.inf
    lengths = np.full((PAIRS, 2), (ROWS, COLS), dtype=np.int32)
    values = same_gaps(np.full(PAIRS, -0.5), np.full(PAIRS, np.float32(0.7)))
    inputs = Inputs(similarity, lengths, values, np.ones(PAIRS))
    own = inputs._replace(parameters=of_problem(inputs, problem))
    result, expected = (
        evaluate(framework, problem, options, inputs, "float32"),
        reference_result(own, problem, **options),
    )
    assert not result.gradients["similarity"][forbidden].any()
    assert_parity(result, expected, "float32", values["temperature"])


@pytest.mark.parametrize("variant", ["fused", "wavefront", "diagonal_loop"])
@BOTH
@EVERY
def test_nan_and_infinity_inside_lengths_are_not_hidden(framework, problem, options, variant):
    """Not even in a corner, through which no alignment of two matches passes."""
    lengths = np.full((PAIRS, 2), (ROWS, COLS), dtype=np.int32)
    similarity = np.ones((PAIRS, ROWS, COLS))
    similarity[0, 2, 2] = similarity[1, 0, 0] = similarity[2, -1, -1] = similarity[3, 0, -1] = np.nan
    similarity[4, -1, 0] = np.inf
    inputs = Inputs(similarity, lengths, same_gaps(np.full(PAIRS, -1.0), np.ones(PAIRS)), np.ones(PAIRS))
    result = evaluate(framework, problem, options, inputs, variant=variant)
    assert np.isnan(result.score).tolist() == [True] * 5 + [False]
    assert np.isnan(result.gradients["similarity"]).any((1, 2)).tolist() == [True] * 5 + [False]


@BOTH
@pytest.mark.parametrize(
    ("problem", "name"),
    [*itertools.product(("smith_waterman",), ("float16", "bfloat16")), ("needleman_wunsch", "bfloat16")],
)
def test_half_precision_is_computed_in_float32_and_kept(framework, problem, name):
    values = np.random.default_rng(3).normal(size=(2, 4, 5)).astype(np.float32)
    score = getattr(FRAMEWORKS[framework].package, problem)
    marginals = functools.partial(FRAMEWORKS[framework].package.marginals, score)
    if framework == "jax":
        half, dtype = jnp.asarray(values).astype(name), jnp.dtype(name)
        full = half.astype("float32")
        score, marginals = (jax.jit(function) for function in (score, marginals))
    else:
        dtype = getattr(torch, name)
        half = torch.from_numpy(values).to(dtype)
        full = half.float()
    assert score(half).dtype == marginals(half).dtype == dtype
    rounding = {"float16": 2**-11, "bfloat16": 2**-8}[name]
    for got, wanted in zip(score(half).tolist(), score(full).tolist(), strict=True):
        assert got == pytest.approx(wanted, rel=rounding)
    assert float(abs(marginals(half) - marginals(full)).max()) <= rounding
