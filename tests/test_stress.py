"""Numerical stress, in both frameworks: the whole range that is promised, drawn by hypothesis, and its corners.

Temperatures from 1e-3 to 1e3, |similarity| up to 1e4, gaps from -1e4 to 1, ties, forbidden matches, lengths from 0,
poisoned padding. Nothing may be NaN or infinite, second derivatives included; scores and marginals stay within the
bounds of `shared.tolerances` around the float64 reference.
"""

import functools
import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from frameworks import BY_HAND, DTYPES, FRAMEWORKS, PROBLEMS, Inputs, float32, poison, run, score_of
from gaps_by_position import outside, products
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared import reference
from shared.tolerances import TOLERANCES, marginals_bound, score_bound

PAIRS, ROWS, COLS = 8, 7, 9
CASES = [(problem, options) for problem, (_, every) in PROBLEMS.items() for options in every]
LAST_DIAGONAL = np.indices((ROWS, COLS)).sum(axis=0) == ROWS + COLS - 2
# kinds of similarity, of random numbers between -1 and 1, random whole numbers from -2 to 2, a scale and a gap
KINDS = {
    "uniform": lambda unit, whole, scale, gap: unit * scale,
    "mixed magnitudes": lambda unit, whole, scale, gap: np.sign(unit) * scale ** (2 * np.abs(unit) - 1),
    "ties": lambda unit, whole, scale, gap: whole * scale / 2,
    "ties with gaps": lambda unit, whole, scale, gap: whole * gap,
    "negative": lambda unit, whole, scale, gap: -np.abs(unit) * scale,
    "equal": lambda unit, whole, scale, gap: np.full(unit.shape, np.sign(unit[0, 0]) * scale),
    "zeros": lambda unit, whole, scale, gap: np.zeros(unit.shape),
    "matches cancel gaps": lambda unit, whole, scale, gap: -gap * (COLS - ROWS) / ROWS * (1 + 1e-4 * unit),
    "two matches cancel": lambda unit, whole, scale, gap: np.where(LAST_DIAGONAL, 1, -1 + 1e-4 * unit) * scale,
}


# problem -> dtype
OF_JAX = {
    "fused": dict.fromkeys(PROBLEMS, "float32"),
    "wavefront": {"smith_waterman_affine": "float32", "needleman_wunsch": "float64"},
}


def everywhere() -> Iterator[Any]:
    """(framework, variant, problem, options, dtype).

    JAX's wavefront, whose second derivatives XLA takes seconds to compile, is shown an affine and a global problem, in
    one dtype each; its fused, which is PyTorch's machine code, each problem once. PyTorch's are shown the last options
    in both dtypes, the others in turn.
    """
    for (framework, variant), (problem, options) in itertools.product(itertools.product(FRAMEWORKS, BY_HAND), CASES):
        is_last = options == PROBLEMS[problem].options[-1]
        dtypes = ("float32", "float64") if is_last else (DTYPES[PROBLEMS[problem].options.index(options) % 2],)
        is_slow = not is_last
        if framework == "jax":
            dtypes = [OF_JAX[variant][problem]] if is_last and problem in OF_JAX[variant] else []
            is_slow = problem != {"fused": "smith_waterman", "wavefront": "needleman_wunsch"}[variant]
        for dtype in dtypes:
            yield pytest.param(framework, variant, problem, options, dtype, marks=[pytest.mark.slow] * is_slow)


GAPS = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, -1e4]), st.floats(-1, 1), st.floats(-4, 4).map(lambda exponent: -(10.0**exponent))
)
LENGTHS = st.one_of(
    st.just((ROWS, COLS)),
    st.tuples(st.integers(0, ROWS), st.integers(0, COLS)),
    st.sampled_from([(1, COLS), (ROWS, 1), (1, 1), (2, 2), (0, COLS), (ROWS, 0)]),
)
EXPONENTS = st.floats(-3, 3)
PAIR = st.tuples(LENGTHS, EXPONENTS, st.floats(-3, 4), st.sampled_from(list(KINDS)), GAPS, GAPS, st.integers(0, 3))


@st.composite
def batches(draw: st.DrawFn) -> Inputs:
    """A batch of one fixed shape, each pair with a range of its own; gap, gap_open and gap_extend all drawn."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    columns = zip(*draw(st.lists(PAIR, min_size=PAIRS, max_size=PAIRS)), strict=True)
    lengths, exponents, scales, kinds, gaps, second_gaps, forbidden = columns
    units, wholes = random.uniform(-1, 1, (PAIRS, ROWS, COLS)), random.integers(-2, 3, (PAIRS, ROWS, COLS))
    drawn = zip(kinds, units, wholes, 10.0 ** np.array(scales), gaps, strict=True)
    similarity = np.clip([KINDS[kind](*numbers) for kind, *numbers in drawn], -1e4, 1e4)
    share = np.array([0.0, 0.0, 0.1, 0.7])[list(forbidden)]
    similarity[random.uniform(size=similarity.shape) < share[:, None, None]] = -np.inf
    return batch(similarity, lengths, gaps, second_gaps, 10.0 ** np.array(exponents))


def batch(similarity: Any, lengths: Any, gaps: Any, others: Any, temperatures: Any) -> Inputs:
    """Inputs that float32 can hold, with poisoned padding."""
    sizes = np.array(lengths, dtype=np.int32)
    parameters = {"gap": gaps, "gap_open": gaps, "gap_extend": others, "temperature": temperatures}
    values = {name: float32(value) for name, value in parameters.items()}
    return Inputs(poison(float32(similarity), sizes), sizes, values, np.ones(len(sizes)))


def check(framework: str, variant: str, problem: str, options: dict[str, Any], dtype: str, inputs: Inputs) -> None:
    """Raise AssertionError unless all is finite, and scores and marginals are within the bounds around the reference's.

    So must be the first and second derivatives of pairs where the dtype can tell.
    """
    similarity, lengths, parameters, cotangent = inputs
    if problem == "soft_dtw":  # without a path its cost is infinite
        similarity = np.where(np.isneginf(similarity) & ~outside(inputs), 1e4, -similarity)
    parameters = {name: parameters[name] for name in PROBLEMS[problem].parameters}
    inputs = Inputs(similarity, lengths, parameters, cotangent)
    temperature, arguments = parameters["temperature"], {"lengths": lengths, **parameters, **options}
    how = "eager" if framework == "torch" else "compiled" if (variant, dtype) == ("fused", "float32") else "quick"
    result = run(framework, inputs, dtype, variant, how, problem, **options)
    direction = float32(np.random.default_rng(1).normal(size=similarity.shape))
    along = {"similarity": direction, **{name: np.zeros_like(value) for name, value in parameters.items()}}
    score = score_of(framework, problem, variant, tuple(options.items()))
    (second,) = products(framework, score, inputs, [along], dtype)
    for order, values in (("score", {"": result.score}), ("first", result.gradients), ("second", second)):
        for name, value in values.items():
            assert np.isfinite(value).all(), f"{order} {name} of pairs {np.argwhere(~np.isfinite(value))[:, 0]}"
    for gradients in (result.gradients, second):
        assert not gradients["similarity"][outside(inputs)].any(), "padding has derivatives"

    expected, largest, exact, exact_second = of_reference(pickle.dumps((problem, similarity, direction, arguments)))
    pairs = list(zip(expected, largest, temperature, strict=True))
    assert_within("score", result.score, expected, np.array([score_bound(dtype, *pair) for pair in pairs]))
    if options.get("end") == "any":
        # an alignment may leave out a beginning or an end that costs something, so nothing large cancels
        strict = TOLERANCES[dtype].score * np.maximum(np.abs(expected), temperature)
        assert_within("local score", result.score, expected, strict)
    bounds = np.array([marginals_bound(dtype, *pair[1:]) for pair in pairs])[:, None, None]
    marginals = result.gradients["similarity"]
    assert_within("marginals", marginals, exact["similarity"], bounds)
    assert_within("range of the marginals", marginals, np.clip(marginals, 0, 1), np.minimum(bounds, 1e-5))
    sure = largest <= 1e4 * temperature  # beyond, a near-tie is lost: to float32, and to the reference's differences
    tolerance = {"float32": 5e-3, "float64": 1e-5}[dtype]
    for results, exact_part, scale in ((result.gradients, exact, 1.0), (second, exact_second, 1 / temperature)):
        for name, value in exact_part.items():
            flat = value.reshape(len(value), -1)
            bound = np.where(sure, tolerance * np.maximum(np.abs(flat).max(axis=1), scale), np.inf)
            assert_within(name, results[name].reshape(len(value), -1), flat, bound[:, None])


@functools.cache  # every variant is shown the same examples
def of_reference(pickled: bytes) -> tuple[np.ndarray, np.ndarray, dict[str, Any], dict[str, Any]]:
    """Scores, max|h|, and first and second derivatives of a problem, similarity, direction and other arguments."""
    problem, similarity, direction, arguments = pickle.loads(pickled)
    scores = getattr(reference, problem)(similarity, **arguments)
    largest = reference.largest_state(problem, similarity, **arguments)
    exact = reference.gradients(problem, similarity, **arguments)
    return scores, largest, exact, reference.hessian_vector_product(problem, similarity, direction, **arguments)


def assert_within(what: str, got: np.ndarray, wanted: np.ndarray, bound: np.ndarray) -> None:
    excess = np.abs(got.astype(np.float64) - wanted) / bound
    at = np.unravel_index(np.argmax(excess), excess.shape)
    assert excess[at] <= 1.0, f"{what} of pair {at[0]} is {got[at]!r}, expected {wanted[at]!r}: {excess[at]:.3g} bounds"


# ties, the largest and the lowest everywhere, nothing allowed; dear gaps and gaps that pay; cold, hot; large, small
_CORNER_MATRICES = [
    np.random.default_rng(0).integers(-1, 2, size=(ROWS, COLS)) * 1e4,
    *(np.full((ROWS, COLS), value) for value in (1e4, -1e4, -np.inf)),
]
CORNERS = [
    batch(
        np.repeat(_CORNER_MATRICES, 2, 0), np.repeat(sizes, 2, 0), [-1e4, 1.0] * 4, [-1.0, 1.0] * 4, [temperature] * 8
    )
    for sizes in ([(ROWS, COLS)] * 4, [(4, 4), (1, COLS), (ROWS, 1), (1, 1)])
    for temperature in (1e-3, 1e3)
]


@pytest.mark.parametrize(("framework", "variant", "problem", "options", "dtype"), list(everywhere()), ids=str)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(inputs=batches())
@example(inputs=CORNERS[0])
@example(inputs=CORNERS[1])
@example(inputs=CORNERS[2])
@example(inputs=CORNERS[3])
def test_the_whole_range_is_finite_and_in_bounds(framework, variant, problem, options, dtype, inputs):
    check(framework, variant, problem, options, dtype, inputs)


@pytest.mark.parametrize(
    ("framework", "variant", "problem"),
    [*itertools.product(["torch"], BY_HAND, PROBLEMS), ("jax", "fused", "smith_waterman")],
)
def test_a_score_of_many_large_matches_is_finite_and_in_bounds(framework, variant, problem):
    options = PROBLEMS[problem].options[-1]
    # max|h| is 4e5, where float32 has steps of 0.03: thirty times the lowest temperature
    similarity = np.array([1e4, 1e4, 1e4, -1e4])[:, None, None] * np.ones((40, 40))
    gaps, temperatures = [-1.0, -1.0, -1.0, -1e4], [1e-3, 1.0, 1e3, 1e-3]
    inputs = batch(similarity, [(40, 40)] * 4, gaps, gaps, temperatures)
    check(framework, variant, problem, options, "float32", inputs)
