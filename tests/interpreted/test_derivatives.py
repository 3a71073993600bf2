"""Derivatives and transforms of the kernels, by the engines of both frameworks."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import ragged
from kernel_calls import Given, given, run, run_native, some

import jax_impl.kernels.triton_binding as jax_calls
import torch_impl.kernels.triton_binding as torch_calls
from jax_impl.derivatives import scores_of as jax_scores_of
from jax_impl.kernels.fused import _Kernels
from shared.kernels import cpp
from torch_impl.derivatives import scores_of as torch_scores_of
from torch_impl.operator_calls import engine_of

LOCAL = cpp.call_of("smith_waterman", {"end": "any"})
GLOBAL = cpp.call_of("needleman_wunsch", {})
AFFINE = cpp.call_of("smith_waterman_affine", {"restrict_turns": False, "penalize_turns": True})
CALLS = pytest.mark.parametrize(
    "call", [LOCAL, *(pytest.param(own, marks=pytest.mark.slow) for own in (AFFINE, GLOBAL))]
)


def jax_scores(call: cpp.Call, similarity: Any, lengths: Any, values: Any) -> Any:
    parameters = tuple(jnp.moveaxis(values, -1, 0))
    return jax_scores_of(_Kernels(call, "cuda"), "no third", similarity, lengths, parameters)


def torch_scores(call: cpp.Call, similarity: Any, lengths: Any, values: Any) -> Any:
    return torch_scores_of(engine_of(torch_calls, call.kind, call.options), "no third", similarity, lengths, values)


def small(call: cpp.Call) -> Given:
    problem = {LOCAL: "smith_waterman", AFFINE: "smith_waterman_affine", GLOBAL: "needleman_wunsch"}[call]
    return some(given(ragged(2, 3, problem=problem), "float64"), 0, 4)  # a full one and a partial one


def test_pytorchs_derivatives_are_right_to_second_order():
    similarity, lengths, values = (torch.from_numpy(array) for array in small(LOCAL))
    leaves = similarity.nan_to_num(0, 0, 0).requires_grad_(), values.requires_grad_()
    function = lambda s, v: torch_scores(LOCAL, s, lengths, v)  # noqa: E731
    torch.autograd.gradcheck(function, leaves, fast_mode=True, check_undefined_grad=False)
    torch.autograd.gradgradcheck(function, leaves, fast_mode=True, check_undefined_grad=False)


@CALLS
def test_jaxs_derivatives_are_pytorchs(call: cpp.Call):
    arrays = small(call)
    clean = Given(np.nan_to_num(arrays.similarity, posinf=0, neginf=0), *arrays[1:])
    weights = np.random.default_rng(3).normal(size=clean.similarity.shape)

    def jax_loss(s: Any, v: Any) -> Any:
        slope = jax.grad(lambda own: jax_scores(call, own, clean.lengths, v).sum())(s)
        return (slope * weights).sum()

    found = jax.grad(jax_loss, (0, 1))(clean.similarity, clean.values)
    leaves = [torch.from_numpy(array).requires_grad_() for array in (clean.similarity, clean.values)]
    scores = torch_scores(call, leaves[0], torch.from_numpy(clean.lengths), leaves[1])
    (slope,) = torch.autograd.grad(scores.sum(), leaves[0], create_graph=True)
    wanted = torch.autograd.grad((slope * torch.from_numpy(weights)).sum(), leaves)
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own, other.numpy(), rtol=1e-10, atol=1e-12)


def test_jaxs_vmap_is_the_batch():
    arrays = given(ragged(5, 3), "float64")
    similarity, lengths, values = (jnp.asarray(array) for array in arrays)
    gradient = jax.value_and_grad(functools.partial(jax_scores, LOCAL))
    scores, slopes = jax.vmap(gradient)(similarity, lengths, values)
    wanted = run("jax", LOCAL, arrays)
    np.testing.assert_allclose(scores, wanted.scores, rtol=1e-13)
    np.testing.assert_allclose(slopes, wanted.d_similarity, atol=1e-13)
    folded = [array.reshape(2, 3, *array.shape[1:]) for array in (similarity, lengths, values)]
    twice = jax.jit(jax.vmap(jax.vmap(functools.partial(jax_scores, LOCAL))))(*folded)
    np.testing.assert_allclose(twice.reshape(-1), wanted.scores, rtol=1e-13)


def test_what_goes_wrong_in_a_kernel_reaches_the_caller(monkeypatch: pytest.MonkeyPatch):
    def broken(_: bytes) -> Any:
        raise ValueError("the kernel is on strike")

    monkeypatch.setattr(jax_calls, "kernel_of", broken)
    arrays = [jnp.asarray(array) for array in small(LOCAL)]
    with pytest.raises(jax.errors.JaxRuntimeError, match="the kernel is on strike"):
        jax_scores(LOCAL, *arrays).block_until_ready()


def test_the_calls_of_jax_agree_with_the_native_kernels():
    arrays = given(ragged(6, 5), "float64")
    for own, other in zip(run("jax", LOCAL, arrays), run_native(LOCAL, arrays), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-13)


@pytest.mark.slow
@CALLS
def test_a_direction_may_be_large_where_alignments_hardly_go(call: cpp.Call):
    """The direction of a cross entropy is 1 / marginal: a small share of it must not take the digits of the others."""
    arrays = small(call)
    similarity, values = np.random.default_rng(5).normal(size=(1, 6, 6)), arrays.values[:1]
    similarity[0, 2, 2] = -40
    one = Given(similarity, np.array([[6, 6]], np.int32), values)
    towards = np.zeros_like(similarity)
    towards[0, 2, 2] = 1 / run_native(call, one).d_similarity[0, 2, 2]
    directions = towards, np.zeros_like(values)
    found, wanted = run("torch", call, one, directions), run_native(call, one, directions)
    assert towards.max() > 1e9 and np.abs(wanted.d_similarity).max() < 100
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-9)
