"""The kernels give what the reference and the native kernels give, for whatever may come."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import DTYPES, PROBLEMS, Result, assert_parity, ragged, reference_result
from kernel_calls import DEFAULT, EVERY, Derivatives, Given, direction, given, run, run_native, some

import jax_impl.kernels.triton_binding as jax_calls
import torch_impl.kernels.triton_binding as torch_calls
from shared.kernels import cpp
from shared.kernels.triton.programs import NARROW

SLOW = pytest.mark.slow
operators: Any = torch_calls
LOCAL: Any = cpp.call_of("smith_waterman", {"end": "any"})


def close(got: Derivatives, wanted: Derivatives, rtol: float) -> None:
    for own, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=rtol, atol=rtol * max(1.0, float(np.abs(other).max(initial=0.0))))


# for each option the gradients in one type and the tangents in the other, in turn
IN_TURN = pytest.mark.parametrize(
    ("problem", "options", "dtypes"),
    [
        pytest.param(*which, (DTYPES[number % 2], DTYPES[1 - number % 2]), marks=() if which in DEFAULT else SLOW)
        for number, which in enumerate(EVERY)
    ],
)


@IN_TURN
def test_scores_and_gradients_are_the_references(problem: str, options: dict, dtypes: tuple[str, str]):
    dtype, _ = dtypes
    inputs = ragged(6, 5, problem=problem)
    call: Any = cpp.call_of(problem, options)
    arrays = given(inputs, dtype)
    scores, d_similarity, d_values = run("torch", call, arrays)
    cotangent = inputs.cotangent
    gradients = {"similarity": d_similarity * cotangent[:, None, None].astype(dtype)}
    for k, name in enumerate(inputs.parameters):
        gradients[name] = d_values[:, k] * cotangent.astype(dtype)
    expected = reference_result(inputs, problem, **options)
    assert_parity(Result(scores, gradients, cotangent), expected, dtype, inputs.parameters["temperature"])
    only_scores = operators.score(*(torch.from_numpy(array) for array in arrays), [], *call).numpy()
    np.testing.assert_array_equal(only_scores, scores)


@IN_TURN
def test_tangents_are_those_of_the_native_kernels(problem: str, options: dict, dtypes: tuple[str, str]):
    _, dtype = dtypes
    call, arrays = cpp.call_of(problem, options), some(given(ragged(5, 6, problem=problem), dtype), 0, 1, 4)
    towards = direction(arrays)
    close(run("torch", call, arrays, towards), run_native(call, arrays, towards), 1e-12 if dtype == "float64" else 1e-4)


@pytest.mark.slow
def test_tangents_that_add_up_along_an_alignment_leave_exact_products():
    size = 32
    similarity = np.where(np.eye(size), 5, -1).astype(np.float32)[None]
    arrays = Given(similarity, np.array([[size, size]]), np.array([[-1, 1]], np.float32))
    towards = np.ones_like(similarity), np.zeros_like(arrays.values)
    found, expected = run("torch", LOCAL, arrays, towards), run_native(LOCAL, arrays, towards)
    np.testing.assert_allclose(found.d_similarity, expected.d_similarity, rtol=0, atol=4e-6)


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["smith_waterman_affine", "needleman_wunsch"])
def test_a_certain_alignment_hardly_depends_on_the_temperature(problem: str, monkeypatch: pytest.MonkeyPatch):
    # what is lost of the tangents at its end, all its matches have in common, and the temperature's derivative adds up
    size = 64
    similarity = np.random.default_rng(1).normal(size=(1, size, size)) + 5 * np.eye(size)
    gaps = [-4.0, -1.0] if problem == "smith_waterman_affine" else [-1.5]
    arrays = Given(similarity.astype(np.float32), np.array([[size, size]]), np.array([[*gaps, 0.7]], np.float32))
    towards = np.ones_like(arrays.similarity), np.zeros_like(arrays.values)
    call: Any = cpp.call_of(problem, PROBLEMS[problem].options[0])
    monkeypatch.setattr(torch_calls, "forced_layout", NARROW)
    found, wanted = run("torch", call, arrays, towards), run_native(call, *exact(arrays, towards))
    np.testing.assert_allclose(found.d_values, wanted.d_values, rtol=0, atol=2e-5)


def exact(arrays: Given, towards: tuple[np.ndarray, np.ndarray]) -> tuple[Given, tuple[np.ndarray, np.ndarray]]:
    """Convert the arguments to float64."""
    values = Given(arrays.similarity.astype(float), arrays.lengths, arrays.values.astype(float))
    return values, (towards[0].astype(float), towards[1].astype(float))


def test_the_measure_of_exponentials_takes_them_one_of_the_other():
    values = np.linspace(-2, 2, 2048, dtype=np.float32)
    wanted = values
    for _ in range(2 * 16):
        wanted = 2.0**-wanted
    np.testing.assert_allclose(torch_calls.exponentials(torch.from_numpy(values), 2).numpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(jax_calls.exponentials(jnp.asarray(values), 2), wanted, rtol=1e-5)


# a cell, a row of several tiles, a column of several strips, and strips without an unused lane
@pytest.mark.parametrize(
    ("problem", "rows", "cols"),
    [("needleman_wunsch", 1, 1), ("needleman_wunsch", 1, 9), ("smith_waterman", 9, 1), ("needleman_wunsch", 8, 3)],
)
def test_awkward_sizes(problem: str, rows: int, cols: int):
    call = cpp.call_of(problem, {"end": "any"} if problem == "smith_waterman" else {})
    arrays = some(given(ragged(rows, cols, problem=problem), "float64"), 0, 1, 4)
    for towards in (None, direction(arrays)):
        close(run("torch", call, arrays, towards), run_native(call, arrays, towards), 1e-12)


@pytest.mark.slow
def test_results_are_finite_and_right_in_the_whole_range():
    temperatures, sizes = np.array([(1e-3, 1e4), (1e-3, 1.0), (1.0, 1e4), (1e3, 1e-3), (1e3, 1.0)]).T
    similarity = np.random.default_rng(0).normal(size=(5, 5, 6)) * sizes[:, None, None]
    values = np.stack([-0.5 * sizes, temperatures], axis=1)
    lengths = np.array([[5, 6], [4, 4], [5, 6], [3, 6], [5, 5]], np.int32)
    arrays = Given(similarity.astype(np.float32), lengths, values.astype(np.float32))
    got, t_got = run("torch", LOCAL, arrays), run("torch", LOCAL, arrays, direction(arrays))
    assert all(np.isfinite(part).all() for part in (*got, *t_got))
    wanted = run_native(LOCAL, arrays)
    np.testing.assert_allclose(got.scores, wanted.scores, rtol=1e-5)
    np.testing.assert_allclose(got.d_similarity, wanted.d_similarity, atol=2e-4)


def test_what_is_no_number_makes_its_own_pair_nan_and_no_other():
    similarity = np.zeros((5, 6, 7))
    similarity[0, 2, 3], similarity[1, 5, 6], similarity[2, 1, 1] = np.nan, np.inf, -np.inf
    lengths = np.array([[6, 7], [6, 7], [6, 7], [0, 0], [6, 7]], np.int32)
    values = np.array([[-1.0, 1.0]] * 4 + [[-1.0, 0.0]])
    scores, d_similarity, d_values = run("torch", LOCAL, Given(similarity, lengths, values))
    assert np.isnan(scores).tolist() == [True, True, False, False, True]
    for pair in (0, 1, 4):
        assert np.isnan(d_similarity[pair]).all() and np.isnan(d_values[pair]).all()
    assert np.isfinite(d_similarity[[2, 3]]).all() and d_similarity[2, 1, 1] == 0
    assert scores[3] == 0 and not d_similarity[3].any() and not d_values[3].any()


def test_a_local_alignment_that_needs_a_forbidden_gap_is_none():
    dtype = "float32"
    call: Any = cpp.call_of("smith_waterman", {"end": "match"})
    matrix = np.full((2, 3), -np.inf)
    matrix[0, 0], matrix[1, 2] = -2, 1  # no two matches on a diagonal
    arrays = Given(matrix[None].astype(dtype), np.array([[2, 3]]), np.array([[-1e39, 1]]).clip(-1e38).astype(dtype))
    towards = np.ones_like(arrays.similarity), np.zeros_like(arrays.values)
    for found in (*run("torch", call, arrays), *run("torch", call, arrays, towards)):
        np.testing.assert_array_equal(found, np.zeros_like(found))


def test_without_lengths_the_matrices_are_whole_and_may_lie_anywhere():
    random = np.random.default_rng(1)
    wide = torch.from_numpy(random.normal(size=(5, 3, 14)))[:, :, 2:8].transpose(0, 1)
    values = torch.tensor([[-1.0, 1.0]] * 3, dtype=torch.float64)
    assert wide.stride(2) == 1 and not wide.is_contiguous()
    arrays = Given(wide.contiguous().numpy(), np.array([[5, 6]] * 3, np.int32), values.numpy())
    none = torch.empty((0, 2), dtype=torch.int32)
    *found, _ = operators.gradients(wide, none, values, [], *LOCAL, True)
    close(Derivatives(*(tensor.numpy() for tensor in found)), run_native(LOCAL, arrays), 1e-13)


def test_lengths_are_clamped_and_may_be_of_64_bits():
    similarity, values = np.random.default_rng(2).normal(size=(3, 5, 6)), np.array([[-1.0, 1.0]] * 3)
    wild = np.array([[-3, 2**40], [9, 9], [-1, -1]], np.int64)
    tame = np.array([[0, 6], [5, 6], [0, 0]], np.int32)
    close(run("torch", LOCAL, Given(similarity, wild, values)), run("torch", LOCAL, Given(similarity, tame, values)), 0)


def test_an_empty_batch_launches_nothing():
    nothing = Given(np.zeros((0, 3, 4)), np.zeros((0, 2), np.int32), np.zeros((0, 2)))
    assert [part.shape for part in run("torch", LOCAL, nothing)] == [(0,), (0, 3, 4), (0, 2)]
    flat = Given(np.zeros((2, 0, 4)), np.zeros((2, 2), np.int32), np.ones((2, 2)))
    assert run("torch", LOCAL, flat).d_similarity.shape == (2, 0, 4)


def test_the_temperatures_derivative_is_left_out_where_nobody_asks():
    arrays = given(ragged(5, 4), "float64")
    with_it, without = run("torch", LOCAL, arrays), run("torch", LOCAL, arrays, with_values=False)
    assert without.d_values[:, 1].tolist() == [0.0] * 6 and with_it.d_values[:, 1].any()
    np.testing.assert_array_equal(without.d_similarity, with_it.d_similarity)
