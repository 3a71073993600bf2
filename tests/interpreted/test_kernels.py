"""The kernels give what the reference and the native kernels give, in both frameworks, for whatever may come."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import (
    FRAMEWORKS,
    assert_parity,
    axes_of,
    by_keyword,
    of_pairs,
    packed,
    ragged,
    reference_result,
    score_of,
)
from frameworks import run as run_public
from gaps_by_position import directions_of, outside, products
from kernel_calls import Given, jax_calls, run, run_native, take_for_a_gpu, torch_calls

import jax_impl
from shared.kernels import cpp
from shared.kernels.triton.programs import NARROW

operators: Any = torch_calls
LOCAL: Any = cpp.call_of("smith_waterman", {"end": "any"})
AFFINE: Any = cpp.call_of("smith_waterman_affine", {"restrict_turns": True, "penalize_turns": True})
GLOBAL: Any = cpp.call_of("needleman_wunsch", {})
GLOBAL_AFFINE: Any = cpp.call_of("needleman_wunsch_affine", {"restrict_turns": False, "penalize_turns": False})
ANY, MATCH = {"end": "any"}, {"end": "match"}
# whether turns are restricted, and cost
RESTRICTED, NO_TURNS, ALL_TURNS, FREE_TURNS = (
    {"restrict_turns": restricted, "penalize_turns": cost} for restricted in (True, False) for cost in (True, False)
)
AXES = axes_of("gap_open", "gap_extend")
# every option, every choice of gaps by position, or by axis, and a cell, a row of several tiles, a column of several
# strips, and strips without an unused lane
CASES = [
    ("torch", "smith_waterman", ANY, (), "float32", (6, 5)),
    ("jax", "smith_waterman_affine", FREE_TURNS, ("gap_open",), "float32", (6, 5)),
    ("torch", "needleman_wunsch", {}, (), "float64", (1, 9)),
    ("torch", "free_gap", {}, (), "float64", (9, 1)),
    ("torch", "smith_waterman_affine", RESTRICTED, (), "float32", (6, 5)),
    ("torch", "soft_dtw", {}, (), "float32", (6, 5)),
    ("torch", "smith_waterman", ANY, ("gap",), "float32", (1, 1)),
    ("jax", "smith_waterman", MATCH, ("gap",), "float64", (6, 5)),
    ("torch", "needleman_wunsch", {}, ("gap",), "float64", (8, 3)),
    ("jax", "smith_waterman_affine", ALL_TURNS, ("gap_open", "gap_extend"), "float64", (6, 5)),
    ("torch", "needleman_wunsch_affine", RESTRICTED | {"end_gaps": "free"}, AXES, "float64", (6, 5)),
    ("jax", "needleman_wunsch_affine", FREE_TURNS | {"end_gaps": "free_rows"}, AXES, "float64", (5, 6)),
    ("torch", "needleman_wunsch_affine", NO_TURNS | {"end_gaps": "free_cols"}, AXES, "float32", (6, 5)),
    ("torch", "needleman_wunsch_affine", ALL_TURNS, AXES, "float32", (9, 1)),
    ("jax", "needleman_wunsch_affine", RESTRICTED, (), "float64", (6, 5)),
    ("torch", "needleman_wunsch_affine", FREE_TURNS, ("gap_extend",), "float64", (1, 9)),
    ("torch", "needleman_wunsch", {"end_gaps": "free_cols"}, axes_of("gap"), "float64", (6, 5)),
    ("jax", "needleman_wunsch", {"end_gaps": "free_rows"}, axes_of("gap"), "float32", (6, 5)),
    ("jax", "smith_waterman", MATCH, axes_of("gap"), "float64", (6, 5)),
    ("torch", "smith_waterman_affine", RESTRICTED, AXES, "float64", (6, 5)),
]


WHOLE = 0, 2
DEFAULT = *WHOLE, 10


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=[pytest.mark.slow] * (n not in DEFAULT)) for n in range(len(CASES))]
)
def test_first_and_second_derivatives_are_right(number: int, monkeypatch: pytest.MonkeyPatch):
    framework, problem, options, by_position, dtype, size = CASES[number]
    inputs = ragged(*size, problem=problem, by_position=by_position)
    if number not in WHOLE:
        inputs = of_pairs(inputs, (0, 1, 4))  # a full, an empty and a partial one: the interpreter is slow
    directions = directions_of(inputs, by_position)[:1]
    (expected,) = products("torch", score_of("torch", problem, "fused", tuple(options.items())), inputs, directions)
    take_for_a_gpu(monkeypatch)
    result = run_public(framework, inputs, dtype, "fused", problem=problem, **options)
    assert_parity(result, reference_result(inputs, problem, **options), dtype, inputs.parameters["temperature"])
    score = score_of(framework, problem, "fused", tuple(options.items()))
    (product,) = products(framework, score, inputs, directions, dtype)
    tolerance = 1e-12 if dtype == "float64" else 1e-4
    for name, other in expected.items():
        largest = max(1.0, float(np.abs(other).max()))
        np.testing.assert_allclose(product[name], other, rtol=tolerance, atol=tolerance * largest, err_msg=name)
        assert other.ndim == 1 or not product[name][outside(inputs)].any(), name
    # scores alone, and gradients for similarity alone
    package, backend = FRAMEWORKS[framework]
    with backend.precision(dtype):
        inputs_by_name = {"similarity": inputs.similarity, **inputs.parameters}
        arrays = {name: backend.to_device(value.astype(dtype), "cpu") for name, value in inputs_by_name.items()}
        scores = backend.to_numpy(by_keyword(score)(lengths=inputs.lengths, **arrays))
        marginals = backend.to_numpy(package.marginals(score, lengths=inputs.lengths, **packed(arrays)))
    np.testing.assert_array_equal(scores, result.score)
    cotangent = result.cotangent[:, None, None]
    np.testing.assert_array_equal(marginals * cotangent, result.gradients["similarity"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "gaps"), [(LOCAL, [-1.0]), (AFFINE, [-4.0, -1.0]), (GLOBAL, [-1.5]), (GLOBAL_AFFINE, [-4.0, -1.0])]
)
def test_tangents_keep_their_digits(call: Any, gaps: list[float]):
    # the direction of a cross entropy is 1 / marginal: a small share of it must not take the digits of the others
    similarity = np.random.default_rng(5).normal(size=(1, 6, 6))
    similarity[0, 2, 2] = -40
    arrays = Given(similarity, np.array([[6, 6]], np.int32), np.array([[*gaps, 1.5]]))
    towards = np.zeros_like(similarity)
    towards[0, 2, 2] = 1 / run_native(call, arrays).d_similarity[0, 2, 2]
    interpreted, native = run(call, arrays, (towards, np.zeros_like(arrays.values))), run_native(call, arrays, towards)
    assert towards.max() > 1e9 and np.abs(native.d_similarity).max() < 100
    for result, other in zip(interpreted, native, strict=True):
        np.testing.assert_allclose(result, other, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("call", "gaps"), [(LOCAL, [-1.0]), (AFFINE, [-4.0, -1.0])])
def test_tangents_of_many_matches_keep_their_digits(call: Any, gaps: list[float], monkeypatch: pytest.MonkeyPatch):
    # what is lost of the tangents at its end, all its matches have in common, and the temperature's derivative adds up
    similarity = np.random.default_rng(1).normal(size=(1, 64, 64)) + 5 * np.eye(64)
    arrays = Given(similarity.astype(np.float32), np.array([[64, 64]]), np.array([[*gaps, 0.7]], np.float32))
    towards = np.ones_like(arrays.similarity)
    monkeypatch.setattr(torch_calls, "forced_layout", NARROW)
    interpreted, native = run(call, arrays, (towards, np.zeros_like(arrays.values))), run_native(call, arrays, towards)
    np.testing.assert_allclose(interpreted.d_similarity, native.d_similarity, rtol=0, atol=4e-6)
    np.testing.assert_allclose(interpreted.d_values, native.d_values, rtol=0, atol=2e-5)


def test_a_gap_beyond_the_limits_is_at_them_and_nan_spoils_its_own_pair(monkeypatch: pytest.MonkeyPatch):
    take_for_a_gpu(monkeypatch)
    inputs = ragged(5, 3, by_position=("gap",))
    gap = inputs.parameters["gap"]
    gap[4, 0, 0] = np.nan
    results = []
    for limits in ((-np.inf, np.inf), (-1e20, 1e18)):
        gap[0, 1, 1], gap[0, 3, 2] = limits
        results.append(run_public("torch", inputs, "float32", "fused"))
    result, other = results
    assert np.isnan(result.score).tolist() == [number == 4 for number in range(6)]
    for name, gradient in result.gradients.items():
        np.testing.assert_array_equal(gradient, other.gradients[name], err_msg=name)
        assert np.isfinite(np.delete(gradient, 4, axis=0)).all()


def test_lengths_are_clamped_and_may_be_of_64_bits():
    similarity, values = np.random.default_rng(2).normal(size=(3, 5, 6)), np.array([[-1.0, 1.0]] * 3)
    wild = np.array([[-3, 2**40], [9, 9], [-1, -1]], np.int64)
    tame = np.array([[0, 6], [5, 6], [0, 0]], np.int32)
    results = []
    for lengths in (wild, tame):
        tensors = [torch.from_numpy(array) for array in (similarity, lengths, values)]
        results.append([*run(LOCAL, Given(similarity, lengths, values)), *operators.best(*tensors, [], *GLOBAL)])
    for result, other in zip(*results, strict=True):
        np.testing.assert_array_equal(result, other)


def test_an_empty_batch_launches_nothing():
    nothing = Given(np.zeros((0, 3, 4)), np.zeros((0, 2), np.int32), np.zeros((0, 2)))
    assert [part.shape for part in run(LOCAL, nothing)] == [(0,), (0, 3, 4), (0, 2)]
    flat = Given(np.zeros((2, 0, 4)), np.zeros((2, 2), np.int32), np.ones((2, 2)))
    assert run(LOCAL, flat).d_similarity.shape == (2, 0, 4)


def test_exponentials_are_taken_one_of_the_other():
    values = np.linspace(-2, 2, 2048, dtype=np.float32)
    expected = values
    for _ in range(2 * 16):
        expected = 2.0**-expected
    np.testing.assert_allclose(torch_calls.exponentials(torch.from_numpy(values), 2).numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(jax_calls.exponentials(jnp.asarray(values), 2), expected, rtol=1e-5)


def test_what_goes_wrong_in_a_kernel_reaches_the_caller(monkeypatch: pytest.MonkeyPatch):
    def broken(_: bytes) -> Any:
        raise ValueError("the kernel is on strike")

    take_for_a_gpu(monkeypatch)
    monkeypatch.setattr(jax_calls, "kernel_of", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="the kernel is on strike"):
        jax_impl.smith_waterman(np.ones((2, 3))).block_until_ready()
