"""Numerical stress, in both frameworks: the whole range that is promised, drawn by hypothesis, and its corners.

Temperatures from 1e-3 to 1e3, |similarity| up to 1e4, gaps from -1e4 to 1, ties, forbidden matches, lengths from 0,
poisoned padding. Nothing may be NaN or infinite, second derivatives included; scores and marginals stay within the
bounds of `shared.tolerances` around the float64 reference.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import torch
from frameworks import AS_BY_DEFAULT, BY_HAND, FRAMEWORKS, PROBLEMS, Inputs, poison
from hypothesis import given, settings
from hypothesis import strategies as st

from shared import reference
from shared.tolerances import TOLERANCES, marginals_bound, score_bound

PAIRS, ROWS, COLS = 8, 7, 9
CASES = [(problem, options) for problem, (_, every) in PROBLEMS.items() for options in every]
KINDS = (
    *("uniform", "mixed magnitudes", "ties", "ties with gaps", "negative", "equal", "zeros"),
    *("matches cancel gaps", "two matches cancel"),
)


def everywhere() -> Iterator[tuple[str, str, str, dict, str]]:
    """(framework, variant, problem, options, dtype).

    XLA takes seconds to compile a wavefront with its second derivatives: there each problem is shown with one choice
    of options, in one dtype, and free_gap, which is needleman_wunsch without a gap, not at all.
    """
    for (framework, variant), (problem, options) in itertools.product(itertools.product(FRAMEWORKS, BY_HAND), CASES):
        if (framework, variant) != ("jax", "wavefront"):
            yield framework, variant, problem, options, "float32"
            yield framework, variant, problem, options, "float64"
        elif options == PROBLEMS[problem].options[-1] and problem != "free_gap":
            yield framework, variant, problem, options, "float64" if problem == "needleman_wunsch" else "float32"


EVERYWHERE = pytest.mark.parametrize(
    ("framework", "variant", "problem", "options", "dtype"), list(everywhere()), ids=str
)
EXAMPLES = settings(max_examples=12, deadline=None, derandomize=True)


class Derivatives(NamedTuple):
    """Scores, their gradients, and the gradients of sum(direction * marginals)."""

    score: np.ndarray
    first: dict[str, np.ndarray]  # "similarity" and each parameter
    second: dict[str, np.ndarray]


def float32(values: Any) -> np.ndarray:
    return np.asarray(values, dtype=np.float32).astype(np.float64)


def matrices(random: np.random.Generator, kind: str, scale: float, gap: float, shape: tuple[int, int]) -> np.ndarray:
    """A similarity with |s| <= 1e4 of one kind."""
    unit = random.uniform(-1, 1, size=shape)
    drawn = {
        "uniform": unit * scale,
        "mixed magnitudes": np.sign(unit) * scale ** random.uniform(-1, 1, size=shape),
        "ties": random.integers(-2, 3, size=shape) * scale / 2,
        "ties with gaps": random.integers(-2, 3, size=shape) * gap,
        "negative": -np.abs(unit) * scale,
        "equal": np.full(shape, np.sign(unit[0, 0]) * scale),
        "zeros": np.zeros(shape),
        "matches cancel gaps": -gap * (COLS - ROWS) / ROWS * (1 + 1e-4 * unit),
        "two matches cancel": np.where(np.indices(shape).sum(axis=0) == sum(shape) - 2, 1, -1 + 1e-4 * unit) * scale,
    }[kind]
    return np.clip(drawn, -1e4, 1e4)


GAPS = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, -1e4]),
    st.floats(-1, 1),
    st.floats(-4, 4).map(lambda exponent: -(10.0**exponent)),
)
LENGTHS = st.one_of(
    st.just((ROWS, COLS)),
    st.tuples(st.integers(0, ROWS), st.integers(0, COLS)),
    st.sampled_from([(1, COLS), (ROWS, 1), (1, 1), (2, 2), (0, COLS), (ROWS, 0)]),
)
EXPONENTS = st.floats(-3, 3)
PAIR = st.tuples(LENGTHS, EXPONENTS, st.floats(-3, 4), st.sampled_from(KINDS), GAPS, GAPS, st.integers(0, 3))


@st.composite
def batches(draw: st.DrawFn) -> Inputs:
    """A batch of one fixed shape, each pair with a range of its own; gap, gap_open and gap_extend all drawn."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    columns = zip(*draw(st.lists(PAIR, min_size=PAIRS, max_size=PAIRS)), strict=True)
    lengths, exponents, scales, kinds, gaps, others, forbidden = columns
    similarity = np.array(
        [
            matrices(random, kind, 10.0**scale, gap, (ROWS, COLS))
            for kind, scale, gap in zip(kinds, scales, gaps, strict=True)
        ]
    )
    share = np.array([0.0, 0.0, 0.1, 0.7])[list(forbidden)]
    similarity[random.uniform(size=similarity.shape) < share[:, None, None]] = -np.inf
    return batch(similarity, lengths, gaps, others, 10.0 ** np.array(exponents))


def batch(similarity: Any, lengths: Any, gaps: Any, others: Any, temperatures: Any) -> Inputs:
    """Inputs that float32 can hold, with poisoned padding; the cotangent is the direction of second derivatives."""
    sizes = np.array(lengths, dtype=np.int32)
    parameters = {"gap": gaps, "gap_open": gaps, "gap_extend": others, "temperature": temperatures}
    direction = float32(np.random.default_rng(1).normal(size=np.shape(similarity)))
    values = {name: float32(value) for name, value in parameters.items()}
    return Inputs(poison(float32(similarity), sizes), sizes, values, direction)


def of_problem(inputs: Inputs, problem: str) -> dict[str, np.ndarray]:
    return {name: inputs.parameters[name] for name in PROBLEMS[problem].parameters}


def derivatives(
    framework: str, variant: str, problem: str, options: dict, inputs: Inputs, dtype: str, quick: bool = False
) -> Derivatives:
    """Scores and derivatives of each pair, by a variant. quick: as float64, compiled with little optimisation."""
    backend = FRAMEWORKS[framework].backend
    choice = problem, variant, tuple(options.items())
    # the wavefront's three loops would take longest to compile
    quick = quick or dtype == "float64" or variant == "wavefront"
    function = _torch_derivatives(*choice) if framework == "torch" else _jax_derivatives(*choice, quick)
    with backend.precision(dtype):
        similarity, direction, *values = (
            backend.to_device(array.astype(dtype), "cpu")
            for array in (inputs.similarity, inputs.cotangent, *of_problem(inputs, problem).values())
        )
        parameters = dict(zip(PROBLEMS[problem].parameters, values, strict=True))
        score, *gradients = function(similarity, inputs.lengths, parameters, direction)
        first, second = ({name: backend.to_numpy(value) for name, value in each.items()} for each in gradients)
        return Derivatives(backend.to_numpy(score), first, second)


@functools.cache
def _jax_derivatives(problem: str, variant: str, options: tuple, quick: bool) -> Callable[..., Any]:
    function = FRAMEWORKS["jax"].backend.function(problem, variant, dict(options))

    def all_of_them(similarity: Any, lengths: Any, parameters: dict[str, Any], direction: Any) -> Any:
        def total(arguments: dict[str, Any]) -> Any:
            scores = function(arguments["similarity"], lengths, **{name: arguments[name] for name in parameters})
            return scores.sum(), scores

        def loss(arguments: dict[str, Any]) -> Any:
            (_, scores), first = jax.value_and_grad(total, has_aux=True)(arguments)
            return (direction * first["similarity"]).sum(), (scores, first)

        (_, (scores, first)), second = jax.value_and_grad(loss, has_aux=True)({"similarity": similarity, **parameters})
        return scores, first, second

    return jax.jit(all_of_them, compiler_options={} if quick else AS_BY_DEFAULT)


@functools.cache
def _torch_derivatives(problem: str, variant: str, options: tuple) -> Callable[..., Any]:
    function = FRAMEWORKS["torch"].backend.function(problem, variant, dict(options))

    def all_of_them(similarity: Any, lengths: Any, parameters: dict[str, Any], direction: Any) -> Any:
        inputs = {"similarity": similarity, **parameters}
        for tensor in inputs.values():
            tensor.requires_grad_()
        scores = function(similarity, torch.from_numpy(lengths), **parameters)
        first = torch.autograd.grad(scores.sum(), list(inputs.values()), create_graph=True)
        second = torch.autograd.grad((direction * first[0]).sum(), list(inputs.values()))
        return scores, *(dict(zip(inputs, gradients, strict=True)) for gradients in (first, second))

    return all_of_them


def assert_sound(result: Derivatives, problem: str, options: dict, inputs: Inputs, dtype: str) -> None:
    """Raise AssertionError unless everything is finite, and scores and marginals are the reference's to the bounds."""
    parameters = of_problem(inputs, problem)
    temperatures = parameters["temperature"]
    for order, values in (("score", {"": result.score}), ("first", result.first), ("second", result.second)):
        for name, value in values.items():
            assert np.isfinite(value).all(), (
                f"{order} {name} of pairs {np.unique(np.argwhere(~np.isfinite(value))[:, 0])}"
            )

    expected = getattr(reference, problem)(inputs.similarity, inputs.lengths, **parameters, **options)
    largest = reference.largest_state(problem, inputs.similarity, inputs.lengths, **parameters, **options)
    pairs = list(zip(expected, largest, temperatures, strict=True))
    assert_within("score", result.score, expected, np.array([score_bound(dtype, *pair) for pair in pairs]))
    if options.get("end") == "any":
        # an alignment may leave out a beginning or an end that costs something, so nothing large cancels
        strict = TOLERANCES[dtype].score * np.maximum(np.abs(expected), temperatures)
        assert_within("local score", result.score, expected, strict)

    exact = reference.gradients(problem, inputs.similarity, inputs.lengths, **parameters, **options)["similarity"]
    bounds = np.array([marginals_bound(dtype, *pair[1:]) for pair in pairs])[:, None, None]
    marginals = result.first["similarity"]
    assert_within("marginals", marginals, exact, bounds)
    assert_within("range of the marginals", marginals, np.clip(marginals, 0, 1), np.minimum(bounds, 1e-5))
    for name, gradients in (("first", result.first), ("second", result.second)):
        assert not gradients["similarity"][outside(inputs)].any(), f"padding has {name} derivatives"


def assert_second_derivatives(result: Derivatives, problem: str, options: dict, inputs: Inputs, dtype: str) -> None:
    """Raise AssertionError unless the second derivatives of pairs where the dtype can tell are the reference's."""
    similarity, lengths, _, direction = inputs
    parameters = of_problem(inputs, problem)
    temperature = parameters["temperature"]
    # beyond, a near-tie is lost: to float32, and to the differences of the reference
    told = reference.largest_state(problem, similarity, lengths, **parameters, **options) <= 1e4 * temperature
    exact = reference.hessian_vector_product(problem, similarity, direction, lengths, **parameters, **options)
    tolerance = {"float32": 5e-3, "float64": 1e-5}[dtype]
    for name, wanted in exact.items():
        flat, got = wanted.reshape(PAIRS, -1), result.second[name].reshape(PAIRS, -1)
        bound = np.where(told, tolerance * np.maximum(np.abs(flat).max(axis=1), 1 / temperature), np.inf)
        assert_within(name, got, flat, bound[:, None])


def assert_within(what: str, got: np.ndarray, wanted: np.ndarray, bound: np.ndarray) -> None:
    excess = np.abs(got.astype(np.float64) - wanted) / bound
    at = np.unravel_index(np.argmax(excess), excess.shape)
    assert excess[at] <= 1.0, f"{what} of pair {at[0]} is {got[at]!r}, expected {wanted[at]!r}: {excess[at]:.3g} bounds"


def outside(inputs: Inputs) -> np.ndarray:
    assert inputs.lengths is not None
    i, j = np.indices(inputs.similarity.shape[1:])
    return (i >= inputs.lengths[:, 0, None, None]) | (j >= inputs.lengths[:, 1, None, None])


# matrix, lengths, gap or gap_open, gap_extend, temperature
_TIES = np.random.default_rng(0).integers(-1, 2, size=(ROWS, COLS)) * 1e4
_ONE, _FULL = np.ones((ROWS, COLS)), (ROWS, COLS)
CORNERS = {
    "ties at the lowest temperature": (_TIES, _FULL, -1e4, -1e4, 1e-3),
    "ties, free gaps": (_TIES, _FULL, 0.0, 0.0, 1e-3),
    "ties, gaps that pay": (_TIES, _FULL, 1.0, 1.0, 1e-3),
    "the largest everywhere": (_ONE * 1e4, _FULL, -1e4, -1.0, 1e-3),
    "the lowest everywhere": (_ONE * -1e4, _FULL, -1e4, -1e4, 1e-3),
    "the lowest, gaps that pay": (_ONE * -1e4, _FULL, 1.0, 1.0, 1e-3),
    "zeros at the highest temperature": (_ONE * 0.0, _FULL, 1.0, 0.0, 1e3),
    "the lowest at the highest temperature": (_ONE * -1e4, _FULL, -1e4, 1.0, 1e3),
    "nothing allowed, cold": (_ONE * -np.inf, _FULL, -1e4, -1e4, 1e-3),
    "nothing allowed, hot, gaps that pay": (_ONE * -np.inf, _FULL, 1.0, 1.0, 1e3),
    "one allowed": (np.where(np.eye(ROWS, COLS, 3) > 0, 1e4, -np.inf), (4, 4), -1e4, 0.0, 1e-3),
    "one cell, highest": (_ONE * 1e4, (1, 1), -1e4, -1e4, 1e-3),
    "one cell, lowest": (_ONE * -1e4, (1, 1), -1e4, -1e4, 1e-3),
    "one cell, forbidden": (_ONE * -np.inf, (1, 1), 1.0, 1.0, 1e3),
    "one row": (_TIES, (1, COLS), -1e4, 1.0, 1e-3),
    "one column": (_TIES, (ROWS, 1), -1e4, 1.0, 1e-3),
}
HALVES = (tuple(CORNERS)[:PAIRS], tuple(CORNERS)[PAIRS:])


@EVERYWHERE
@EXAMPLES
@given(inputs=batches())
def test_the_whole_range_is_finite_and_in_bounds(framework, variant, problem, options, dtype, inputs):
    result = derivatives(framework, variant, problem, options, inputs, dtype)
    assert_sound(result, problem, options, inputs, dtype)
    assert_second_derivatives(result, problem, options, inputs, dtype)


@EVERYWHERE
@pytest.mark.parametrize("names", HALVES, ids=["first", "second"])
def test_corners_are_finite_and_in_bounds(framework, variant, problem, options, dtype, names):
    inputs = batch(*zip(*(CORNERS[name] for name in names), strict=True))
    assert_sound(derivatives(framework, variant, problem, options, inputs, dtype), problem, options, inputs, dtype)


LARGE = [(*which, name) for which in itertools.product(FRAMEWORKS, BY_HAND) for name in PROBLEMS]


@pytest.mark.parametrize(
    ("framework", "variant", "problem"),
    [case for case in LARGE if case[:2] != ("jax", "wavefront") or case[2] == "smith_waterman"],
)
def test_a_score_of_many_large_matches_is_finite_and_in_bounds(framework, variant, problem):
    options = PROBLEMS[problem].options[-1]
    # max|h| is 4e5, where float32 has steps of 0.03: thirty times the lowest temperature
    similarity = np.array([1e4, 1e4, 1e4, -1e4])[:, None, None] * np.ones((40, 40))
    gaps, temperatures = [-1.0, -1.0, -1.0, -1e4], [1e-3, 1.0, 1e3, 1e-3]
    inputs = batch(similarity, [(40, 40)] * 4, gaps, gaps, temperatures)
    result = derivatives(framework, variant, problem, options, inputs, "float32", quick=True)
    assert_sound(result, problem, options, inputs, "float32")
