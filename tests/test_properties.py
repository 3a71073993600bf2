"""What must hold for every input, in both frameworks: properties, padding, empty inputs, numerical stress."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS, Inputs, Result, ragged, run
from hypothesis import given, settings
from hypothesis import strategies as st

from shared import reference
from shared.numerics import marginals_bound
from shared.reference.local_linear import _fill

BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)
ENDS = pytest.mark.parametrize("end", ["any", "match"])
PAIRS, ROWS, COLS = 4, 5, 6
EXAMPLES = settings(max_examples=25, deadline=None, derandomize=True)


@st.composite
def batches(draw: st.DrawFn) -> Inputs:
    """A batch of one fixed shape (compiled once), of any lengths, gaps, temperatures and magnitudes."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    length = st.tuples(st.integers(0, ROWS), st.integers(0, COLS))
    lengths = np.array(draw(st.lists(length, min_size=PAIRS, max_size=PAIRS)), dtype=np.int32)
    scale = draw(st.sampled_from([0.0, 0.1, 1.0, 30.0]))
    similarity = random.normal(draw(st.sampled_from([-1.0, 0.0, 1.0])), scale, size=(PAIRS, ROWS, COLS))
    gaps = draw(st.lists(st.floats(-5, 1), min_size=PAIRS, max_size=PAIRS))
    temperatures = draw(st.lists(st.floats(0.05, 20), min_size=PAIRS, max_size=PAIRS))
    return Inputs(similarity, lengths, parameters(gaps, temperatures), np.ones(PAIRS))


def parameters(gap: Any, temperature: Any) -> dict[str, np.ndarray]:
    return {"gap": np.asarray(gap, dtype=float), "temperature": np.asarray(temperature, dtype=float)}


def evaluate(framework: str, inputs: Inputs, dtype: str = "float64", end: str = "any") -> Result:
    """Scores and, for a cotangent of ones, the marginals and the gradients of each pair's parameters."""
    return run(framework, inputs, dtype, how={"jax": "quick", "torch": "eager"}[framework], end=end)


def outside(inputs: Inputs) -> np.ndarray:
    assert inputs.lengths is not None
    i, j = np.indices(inputs.similarity.shape[1:])
    return (i >= inputs.lengths[:, 0, None, None]) | (j >= inputs.lengths[:, 1, None, None])


@BOTH
@ENDS
@EXAMPLES
@given(inputs=batches())
def test_marginals_sum_to_at_most_one_per_row_and_column(framework, end, inputs):
    marginals = evaluate(framework, inputs, end=end).gradients["similarity"]
    assert marginals.min() >= 0.0
    assert marginals.sum(axis=1).max() <= 1 + 1e-9
    assert marginals.sum(axis=2).max() <= 1 + 1e-9


@BOTH
@ENDS
@EXAMPLES
@given(inputs=batches())
def test_marginals_sum_to_the_expected_number_of_matches(framework, end, inputs):
    total = evaluate(framework, inputs, end=end).gradients["similarity"].sum(axis=(1, 2))
    shorter = inputs.lengths.min(axis=1)
    fewest = {"any": 1, "match": 2}[end]
    assert (total <= shorter + 1e-9).all()
    assert (total[shorter >= fewest] >= fewest - 1e-9).all()
    assert (total[shorter < fewest] == 0.0).all()


@BOTH
@ENDS
@EXAMPLES
@given(inputs=batches())
def test_the_score_is_homogeneous_of_degree_one(framework, end, inputs):
    result = evaluate(framework, inputs, end=end)
    products = [(result.gradients["similarity"] * inputs.similarity).sum(axis=(1, 2))]
    products += [result.gradients[name] * inputs.parameters[name] for name in ("gap", "temperature")]
    scale = np.abs(inputs.similarity).max() + 5
    np.testing.assert_allclose(sum(products), result.score, rtol=1e-9, atol=1e-10 * scale)


@BOTH
@ENDS
@EXAMPLES
@given(inputs=batches())
def test_swapping_the_sequences_transposes_the_marginals(framework, end, inputs):
    swapped = inputs._replace(similarity=inputs.similarity.swapaxes(1, 2), lengths=inputs.lengths[:, ::-1].copy())
    result, other = evaluate(framework, inputs, end=end), evaluate(framework, swapped, end=end)
    np.testing.assert_allclose(other.score, result.score, rtol=1e-12, atol=1e-12)
    transposed = other.gradients["similarity"].swapaxes(1, 2)
    np.testing.assert_allclose(transposed, result.gradients["similarity"], rtol=1e-9, atol=1e-12)


@BOTH
@ENDS
@EXAMPLES
@given(inputs=batches())
def test_the_score_rises_with_every_argument(framework, end, inputs):
    # marginals, the expected number of gaps and the entropy of the alignments are never negative
    gradients = evaluate(framework, inputs, end=end).gradients
    assert all(gradient.min() >= -1e-10 for gradient in gradients.values())


@BOTH
@ENDS
@EXAMPLES
@given(inputs=batches())
def test_a_longer_pair_never_scores_less(framework, end, inputs):
    # it has all alignments of the shorter one; with none at all, the score is 0 by definition
    full = inputs._replace(lengths=np.full((PAIRS, 2), (ROWS, COLS), dtype=np.int32))
    exists = inputs.lengths.min(axis=1) >= {"any": 1, "match": 2}[end]
    shorter, longer = evaluate(framework, inputs, end=end), evaluate(framework, full, end=end)
    assert (longer.score - shorter.score)[exists].min(initial=0.0) >= -1e-9 * (1 + np.abs(shorter.score).max())


@BOTH
@ENDS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_padding_changes_nothing(framework, end, dtype):
    poisoned = ragged(ROWS, COLS)
    zeros = poisoned._replace(similarity=np.where(outside(poisoned), 0.0, poisoned.similarity))
    result, expected = evaluate(framework, poisoned, dtype, end), evaluate(framework, zeros, dtype, end)
    np.testing.assert_array_equal(result.score, expected.score)
    for name, gradient in expected.gradients.items():
        np.testing.assert_array_equal(result.gradients[name], gradient)
    assert not result.gradients["similarity"][outside(poisoned)].any()


@BOTH
@ENDS
@pytest.mark.parametrize("filling", [np.nan, np.inf, -np.inf, 1e30])
def test_enlarging_the_matrix_changes_nothing(framework, end, filling):
    inputs = ragged(ROWS, COLS)
    larger = np.pad(inputs.similarity, [(0, 0), (0, 2), (0, 1)], constant_values=filling)
    result = evaluate(framework, inputs._replace(similarity=larger), end=end)
    expected = evaluate(framework, inputs, end=end)
    np.testing.assert_allclose(result.score, expected.score, rtol=1e-13)
    marginals = result.gradients["similarity"]
    np.testing.assert_allclose(marginals[:, :ROWS, :COLS], expected.gradients["similarity"], rtol=1e-12, atol=1e-14)
    assert not marginals[:, ROWS:].any()
    assert not marginals[:, :, COLS:].any()


@BOTH
@ENDS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pairs_without_an_alignment_score_zero_with_zero_gradients(framework, end, dtype):
    lengths = np.array([(0, 0), (0, 4), (3, 0), (3, 0)] + [(1, 4), (3, 1)] * (end == "match"), dtype=np.int32)
    batch = len(lengths)
    # temperatures that are no powers of two: a compiler that divides by multiplying makes rounding errors of its own
    values = parameters(np.linspace(-2, 1, batch), np.linspace(0.3, 3.3, batch))
    inputs = Inputs(np.ones((batch, 3, 4)), lengths, values, np.full(batch, 2.0))
    result = run(framework, inputs, dtype, how={"jax": "compiled", "torch": "eager"}[framework], end=end)
    assert not result.score.any()
    assert set(result.gradients) == {"similarity", "gap", "temperature"}
    assert not any(gradient.any() for gradient in result.gradients.values())


@BOTH
@ENDS
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (2, 0, 5), (0, 3, 4), (0, 0, 0)])
def test_an_empty_matrix_or_batch_has_empty_gradients(framework, end, shape):
    batch = shape[:-2]
    values = parameters(np.full(batch, -1.0), np.full(batch, 0.7))
    result = evaluate(framework, Inputs(np.zeros(shape), None, values, np.ones(batch)), "float32", end)
    assert result.score.shape == batch
    assert result.score.dtype == "float32"
    assert not result.score.any()
    assert {name: g.shape for name, g in result.gradients.items()} == {
        "similarity": shape,
        "gap": batch,
        "temperature": batch,
    }
    assert not any(gradient.any() for gradient in result.gradients.values())


# numbers


@functools.cache
def stress() -> tuple[Inputs, np.ndarray]:
    """Pairs of every temperature, magnitude and gap; and the largest |h| of each."""
    random = np.random.default_rng(11)
    kinds = [
        (temperature, scale, gap)
        for temperature in (1e-3, 0.07, 1.0, 30.0, 1e3)
        for scale in (1e-2, 1.0, 300.0, 1e4)
        for gap in (-1e4, -11.0, -1e-3, 0.0, 1.0)
    ]
    temperatures, scales, gaps = (
        np.array(column, dtype=np.float32).astype(float) for column in zip(*kinds, strict=True)
    )
    similarity = random.uniform(-1, 1, size=(len(kinds), 9, 11)) * scales[:, None, None]
    similarity = similarity.astype(np.float32).astype(float)
    tables = [_fill(s.tolist(), g, t) for s, g, t in zip(similarity, gaps, temperatures, strict=True)]
    largest = np.array([np.abs(np.array(table)[1:, 1:]).max() for table in tables])
    return Inputs(similarity, None, parameters(gaps, temperatures), np.ones(len(kinds))), largest


@BOTH
@ENDS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stress_keeps_scores_and_marginals_in_bounds(framework, end, dtype):
    inputs, largest = stress()
    result = run(framework, inputs, dtype, how={"jax": "compiled", "torch": "eager"}[framework], end=end)
    assert all(np.isfinite(gradient).all() for gradient in result.gradients.values())
    temperature = inputs.parameters["temperature"]
    score = reference.smith_waterman(inputs.similarity, **inputs.parameters, end=end)
    error = np.abs(result.score - score) / np.maximum(np.abs(score), temperature)
    assert error.max() <= {"float32": 1e-5, "float64": 1e-10}[dtype]
    marginals = reference.gradients("smith_waterman", inputs.similarity, **inputs.parameters, end=end)["similarity"]
    bounds = [marginals_bound(dtype, *pair) for pair in zip(largest, temperature, strict=True)]
    excess = np.abs(result.gradients["similarity"] - marginals).max(axis=(1, 2)) / bounds
    assert excess.max() <= 1.0


@BOTH
@ENDS
@pytest.mark.parametrize("forbidden", ["a cell", "the first row", "the first column", "a diagonal", "all but two"])
def test_minus_infinity_forbids_a_match(framework, end, forbidden):
    where = {
        "a cell": (2, 3),
        "the first row": (0, slice(None)),
        "the first column": (slice(None), 0),
        "a diagonal": (np.arange(5), np.arange(5)),
        "all but two": np.ones((5, 6), dtype=bool) & ~np.isin(np.arange(30).reshape(5, 6), (7, 22)),
    }[forbidden]
    similarity = np.random.default_rng(2).normal(size=(5, 6)).astype(np.float32).astype(float)
    similarity[where] = -np.inf
    inputs = Inputs(similarity, None, parameters(-0.5, np.float32(0.7)), np.ones(()))
    result = run(framework, inputs, "float32", how={"jax": "compiled", "torch": "eager"}[framework], end=end)
    expected = reference.gradients("smith_waterman", similarity, **inputs.parameters, end=end)
    score = reference.smith_waterman(similarity, **inputs.parameters, end=end)
    np.testing.assert_allclose(result.score, score, rtol=1e-5)
    assert not result.gradients["similarity"][where].any()
    np.testing.assert_allclose(result.gradients["similarity"], expected["similarity"], atol=1e-4)
    for name in ("gap", "temperature"):
        np.testing.assert_allclose(result.gradients[name], expected[name], rtol=1e-3, atol=1e-3)


@BOTH
def test_nan_inside_lengths_is_not_hidden(framework):
    similarity = np.ones((2, 4, 5))
    similarity[1, 2, 2] = np.nan
    inputs = Inputs(similarity, None, parameters([-1.0, -1.0], [1.0, 1.0]), np.ones(2))
    assert np.isnan(evaluate(framework, inputs).score).tolist() == [False, True]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@BOTH
def test_half_precision_is_computed_in_float32_and_kept(framework, name):
    values = np.random.default_rng(3).normal(size=(2, 4, 5)).astype(np.float32)
    package = FRAMEWORKS[framework].package
    if framework == "jax":
        half, dtype = jnp.asarray(values).astype(name), jnp.dtype(name)
        full = half.astype("float32")
    else:
        dtype = getattr(torch, name)
        half = torch.from_numpy(values).to(dtype)
        full = half.float()
    smith_waterman = jax.jit(package.smith_waterman) if framework == "jax" else package.smith_waterman
    score, marginals = smith_waterman(half), package.marginals(smith_waterman, half)
    assert score.dtype == marginals.dtype == dtype
    rounding = {"float16": 2**-11, "bfloat16": 2**-8}[name]
    expected = smith_waterman(full)
    for got, wanted in zip(score.tolist(), expected.tolist(), strict=True):
        assert got == pytest.approx(wanted, rel=rounding)
    wanted = package.marginals(smith_waterman, full)
    assert float(abs(marginals - wanted).max()) <= rounding


def test_the_exact_score_is_approached_from_above(globin_pair):
    similarity, exact, gap = globin_pair
    log_paths = float(reference.smith_waterman(np.zeros_like(similarity), gap=0.0, temperature=1.0))
    for temperature in (1.0, 0.1, 0.01):
        smooth = float(reference.smith_waterman(similarity, gap=gap, temperature=temperature))
        assert 0 <= smooth - exact <= temperature * log_paths
        for framework in FRAMEWORKS:
            inputs = Inputs(similarity, None, parameters(gap, temperature), np.ones(()))
            assert evaluate(framework, inputs).score == pytest.approx(smooth, rel=1e-10)


@pytest.fixture(scope="module")
def globin_pair() -> tuple[np.ndarray, float, float]:
    """The similarity of two short pieces of globins, their exact score by Biopython's aligner, and the gap score."""
    from Bio.Align import PairwiseAligner, substitution_matrices

    from shared.sequences import GLOBINS, Record, pair_batch, read_fasta, substitution_matrix

    gap = -4.0
    records = [Record(record.name, record.letters[20:70]) for record in read_fasta(GLOBINS)]
    pieces = [records[0], records[-1]]
    aligner = PairwiseAligner(mode="local", open_gap_score=gap, extend_gap_score=gap)
    aligner.substitution_matrix = substitution_matrices.load("BLOSUM62")
    exact = aligner.score(pieces[0].letters, pieces[1].letters)
    similarity, _ = pair_batch(pieces, [(0, 1)], substitution_matrix("BLOSUM62"), GLOBINS)
    return similarity[0].astype(float), exact, gap
