"""Checks that cannot fail are worth nothing: each kind of check is shown an implementation with a planted fault.

The faults are planted in PyTorch's recurrence, sweep or arguments, and in wrappers of JAX's function; the comparison
that test_parity.py makes, and the properties of test_properties.py, must notice.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import Inputs, Result, assert_parity, ragged, reference_result, run, run_function

import jax_impl
import jax_impl.backend
import torch_impl
from shared.numerics import TOLERANCES
from torch_impl import recurrences, sweeps
from torch_impl.recurrences import LocalLinear

DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
INPUTS = ragged(5, 8)
EXPECTED = reference_result(INPUTS, end="any")


def compare(result: Result, dtype: str) -> None:
    assert_parity(result, EXPECTED, dtype, INPUTS.parameters["temperature"])


def compare_torch(dtype: str, inputs: Inputs = INPUTS) -> None:
    compare(run("torch", inputs, dtype, "diagonal_loop", end="any"), dtype)


def plant(monkeypatch: pytest.MonkeyPatch, step: Callable[..., Any]) -> None:
    """Replace the step of PyTorch's recurrence."""
    faulty = dataclasses.make_dataclass("Faulty", [], bases=(LocalLinear,), frozen=True, namespace={"step": step})
    monkeypatch.setitem(recurrences.RECURRENCES, "smith_waterman", faulty)


@DTYPES
def test_parity_is_green_without_a_fault(dtype, monkeypatch):
    plant(monkeypatch, LocalLinear.step)
    compare_torch(dtype)
    compare(EXPECTED._replace(**as_dtype(EXPECTED, dtype)), dtype)


def as_dtype(result: Result, dtype: str) -> dict[str, Any]:
    gradients = {name: np.array(value, dtype=dtype) for name, value in result.gradients.items()}
    return {"score": np.array(result.score, dtype=dtype), "gradients": gradients}


@DTYPES
def test_parity_sees_a_flipped_gap_sign(dtype, monkeypatch):
    def step(self, parameters, *neighbours):
        return LocalLinear.step(self, parameters | {"gap": -parameters["gap"]}, *neighbours)

    plant(monkeypatch, step)
    with pytest.raises(AssertionError, match=r"^score"):
        compare_torch(dtype)


@DTYPES
def test_parity_sees_a_forgotten_start(dtype, monkeypatch):
    def step(self, parameters, s, diagonal, left, up):
        return LocalLinear.step(self, parameters, s, tuple(state.clamp(min=0) for state in diagonal), left, up)

    plant(monkeypatch, step)
    with pytest.raises(AssertionError, match=r"^score"):
        compare_torch(dtype)


@DTYPES
def test_parity_sees_a_shift_that_is_off_by_one(dtype, monkeypatch):
    monkeypatch.setattr(sweeps, "_left_keeps", sweeps._up_keeps)
    with pytest.raises(AssertionError, match=r"^score"):
        compare_torch(dtype)


@DTYPES
def test_parity_sees_the_other_end(dtype):
    with pytest.raises(AssertionError, match=r"^score"):
        compare(run("torch", INPUTS, dtype, "diagonal_loop", end="match"), dtype)


@DTYPES
def test_parity_sees_ignored_lengths(dtype, monkeypatch):
    monkeypatch.setattr(LocalLinear, "may_end", lambda self, i, j, lengths: torch.ones_like((i + j) < lengths[0]))
    with pytest.raises(AssertionError, match=r"^score"):
        compare_torch(dtype)


@DTYPES
def test_parity_sees_a_maximum_that_is_not_smooth(dtype, monkeypatch):
    monkeypatch.setattr(recurrences, "smooth_maximum", lambda values, temperature, dim: values.amax(dim))
    with pytest.raises(AssertionError, match=r"^score"):
        compare_torch(dtype)


class Scaled(torch.autograd.Function):
    """The identity, with a gradient times a factor: the score stays right."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, factor: Any) -> torch.Tensor:
        ctx.factor = factor
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0] * ctx.factor, None


@DTYPES
@pytest.mark.parametrize("name", ["similarity", "gap", "temperature"])
def test_parity_sees_one_wrong_gradient_and_names_it(dtype, name):
    def faulty(similarity: Any, lengths: Any, **parameters: Any) -> Any:
        arguments = {"similarity": similarity, **parameters}
        arguments[name] = Scaled.apply(arguments[name], 1.01)
        return torch_impl.smith_waterman(lengths=lengths, **arguments)

    with pytest.raises(AssertionError, match=f"^{name}"):
        compare(run_function("torch", faulty, INPUTS, dtype), dtype)


@DTYPES
def test_parity_sees_a_lost_temperature_factor(dtype):
    # the gradient of log-sum-exp(x / T) instead of T * log-sum-exp(x / T)
    def faulty(similarity: Any, lengths: Any, **parameters: Any) -> Any:
        lost = Scaled.apply(similarity, 1 / parameters["temperature"].detach()[:, None, None])
        return torch_impl.smith_waterman(lost, lengths, **parameters)

    with pytest.raises(AssertionError, match=r"^similarity"):
        compare(run_function("torch", faulty, INPUTS, dtype), dtype)


def test_parity_sees_a_wrong_weight_on_ties(monkeypatch):
    # a gradient that gives a tie to one of its choices alone; only where the temperature is low do scores not show it
    def step(self, parameters, s, diagonal, left, up):
        matched, gap = diagonal[0] + s, parameters["gap"]
        choices = torch.stack((matched, left[0] + gap, up[0] + gap, s), dim=-1)
        h = recurrences.smooth_maximum(choices, parameters["temperature"], dim=-1)
        first = choices.gather(-1, choices.argmax(-1, keepdim=True)).squeeze(-1)
        return (first + (h - first).detach(),), first + (h - first).detach()

    ones = INPUTS._replace(similarity=np.where(np.isfinite(INPUTS.similarity), 1.0, np.nan))
    expected = reference_result(ones, end="any")
    plant(monkeypatch, step)
    with pytest.raises(AssertionError, match=r"^similarity"):
        assert_parity(
            run("torch", ones, "float64", "diagonal_loop", end="any"),
            expected,
            "float64",
            ones.parameters["temperature"],
        )


@DTYPES
def test_parity_sees_a_gradient_that_leaks_into_the_padding(dtype):
    def faulty(similarity: Any, lengths: Any, **parameters: Any) -> Any:
        leaking = 1e-3 * similarity.nan_to_num(0, 0, 0).sum((1, 2))
        return torch_impl.smith_waterman(similarity, lengths, **parameters) + leaking - leaking.detach()

    with pytest.raises(AssertionError, match=r"^similarity"):
        compare(run_function("torch", faulty, INPUTS, dtype), dtype)


def test_parity_sees_padding_that_is_only_masked_in_the_result():
    # the classic: where() on the result protects the value, not the gradient
    def faulty(similarity: Any, lengths: Any, **parameters: Any) -> Any:
        masked = jnp.where(jnp.isfinite(similarity), jnp.sqrt(jnp.abs(similarity)) ** 2 * jnp.sign(similarity), 0.0)
        return jax_impl.smith_waterman(masked, lengths, **parameters)

    with jax_impl.backend.precision("float64"), pytest.raises(AssertionError, match=r"^similarity"):
        compare(run_function("jax", faulty, INPUTS, "float64", "quick"), "float64")


def test_parity_sees_a_double_precision_score_that_went_through_float32():
    def faulty(similarity: Any, lengths: Any, **parameters: Any) -> Any:
        return jax_impl.smith_waterman(similarity.astype(jnp.float32), lengths, **parameters).astype(jnp.float64)

    with pytest.raises(AssertionError, match=r"^score"):
        compare(run_function("jax", faulty, INPUTS, "float64", "quick"), "float64")


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("what", ["score", "similarity", "gap", "temperature"])
def test_parity_sees_one_value_that_is_not_finite(what, poison):
    bad = EXPECTED._replace(**as_dtype(EXPECTED, "float32"))
    (bad.score if what == "score" else bad.gradients[what]).flat[-1] = poison
    with pytest.raises(AssertionError, match=f"^{what} is"):
        compare(bad, "float32")


def test_parity_sees_another_dtype_or_shape():
    with pytest.raises(AssertionError, match=r"^score has dtype float64, expected float32"):
        compare(EXPECTED, "float32")
    with pytest.raises(AssertionError, match=r"^score has shape \(1,\), expected \(6,\)"):
        compare(EXPECTED._replace(score=EXPECTED.score[:1]), "float64")


@DTYPES
@pytest.mark.parametrize("name", ["score", "similarity", "gap", "temperature"])
def test_parity_is_as_strict_as_the_table_says(dtype, name):
    tolerance = TOLERANCES[dtype]
    allowed = {"score": tolerance.score, "similarity": tolerance.marginals}.get(name, tolerance.gradient)
    exact = EXPECTED._replace(**as_dtype(EXPECTED, "float64"))
    pair = int(np.argmax(np.abs(EXPECTED.score)))  # where the bounds are widest
    for factor, passes in ((0.4, True), (30.0, False)):
        score, gradients = exact.score.copy(), {k: v.copy() for k, v in exact.gradients.items()}
        values = score if name == "score" else gradients[name]
        values[pair] += factor * allowed * max(1.0, float(np.abs(values).max()))
        moved = Result(score.astype(dtype), {k: v.astype(dtype) for k, v in gradients.items()}, exact.cotangent)
        if passes:
            compare(moved, dtype)
        else:
            with pytest.raises(AssertionError, match=f"^{name}"):
                compare(moved, dtype)
