"""Uses of the variants whose derivatives are written by hand, and of their results."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import BY_HAND

import jax_impl
import torch_impl
from torch_impl import diagonal_layout

VARIANT = pytest.mark.parametrize("variant", BY_HAND)
MATRICES = np.random.default_rng(0).normal(size=(3, 6, 7))
LENGTHS = np.array([[6, 7], [4, 5], [3, 2]])


def torch_function(variant: str, **keywords: Any) -> Callable[..., Any]:
    return functools.partial(torch_impl.smith_waterman, variant=variant, **keywords)


def jax_function(variant: str, **keywords: Any) -> Callable[..., Any]:
    return functools.partial(jax_impl.smith_waterman, variant=variant, **keywords)


def leaf() -> torch.Tensor:
    return torch.tensor(MATRICES, requires_grad=True)


# a gradient is the caller's own


@VARIANT
def test_a_gradient_may_be_changed_before_the_next_backward(variant):
    s = leaf()
    score = torch_function(variant)(s).sum()
    (first,) = torch.autograd.grad(score, s, retain_graph=True)
    wanted = first.clone()
    first.numpy()[:] = 7  # which autograd does not see
    (second,) = torch.autograd.grad(score, s, retain_graph=True)
    second.mul_(0)  # which it does
    score.backward()
    assert s.grad is not None
    torch.testing.assert_close(s.grad, wanted, rtol=0, atol=0)


@VARIANT
def test_gradients_are_clipped_between_two_losses_of_one_score(variant):
    s = leaf()
    scores = torch_function(variant)(s)
    scores.sum().backward(retain_graph=True)
    torch.nn.utils.clip_grad_norm_([s], 1e-3)
    s.grad = None
    scores.pow(2).sum().backward()
    again = leaf()
    torch_function("diagonal_loop")(again).pow(2).sum().backward()
    torch.testing.assert_close(s.grad, again.grad)


@VARIANT
def test_marginals_are_new_at_every_call(variant):
    s = torch.tensor(MATRICES)
    first = torch_impl.marginals(torch_function(variant), s)
    wanted = first.clone()
    first.fill_(7)
    torch.testing.assert_close(torch_impl.marginals(torch_function(variant), s), wanted, rtol=0, atol=0)


# devices


@VARIANT
def test_the_default_device_is_of_no_concern_to_tensors_of_the_cpu(variant):
    s, lengths = torch.tensor(MATRICES), torch.tensor(LENGTHS)
    call = lambda *lengths: torch_function(variant, gap=-2.0)(s, *lengths)  # noqa: E731
    wanted, whole = call(lengths), call()
    with torch.device("meta"):  # any that is not the CPU, where nothing can be read
        assert torch.equal(call(lengths), wanted)
        assert torch.equal(call(), whole)
        assert torch.isfinite(torch_impl.marginals(torch_function(variant), s)).all()


# nothing, and what is not a number


@VARIANT
def test_the_default_dtype_is_of_no_concern(variant):
    s, lengths = torch.tensor(MATRICES, dtype=torch.float32), torch.tensor(LENGTHS)
    wanted = torch_function(variant)(s, lengths)
    torch.set_default_dtype(torch.float16)
    try:
        assert torch.equal(torch_function(variant)(s, lengths), wanted)
    finally:
        torch.set_default_dtype(torch.float32)


@VARIANT
def test_calls_inside_and_outside_of_inference_mode_do_not_disturb_each_other(variant, monkeypatch):
    monkeypatch.setattr(diagonal_layout.Memory, "_free", [])  # as in a new process
    s = torch.tensor(MATRICES)
    function = torch_function(variant)
    for _ in range(2):
        with torch.inference_mode():
            inside = function(s), torch_impl.marginals(function, s)
        outside = function(s), torch_impl.marginals(function, s)
        assert all(torch.equal(one, other) for one, other in zip(inside, outside, strict=True))


@VARIANT
@pytest.mark.parametrize("package", [jax_impl, torch_impl])
def test_nan_in_a_cell_that_no_alignment_can_use_is_not_hidden_either(variant, package):
    similarity = np.zeros((3, 3, 4), np.float32)
    similarity[1, 0, 3] = similarity[2, 2, 0] = np.nan
    score = package.smith_waterman(similarity, end="match", variant=variant)
    assert np.isnan(np.asarray(score)).tolist() == [False, True, True]


@VARIANT
@pytest.mark.parametrize("shape", [(0, 3, 4), (0, 2, 3, 4), (2, 0, 3, 4)])
def test_a_mapped_axis_or_a_batch_may_be_empty(variant, shape):
    by_torch, by_jax = torch_function(variant), jax_function(variant)
    of_torch, of_jax = torch.func.grad(lambda s: by_torch(s).sum()), jax.grad(lambda s: by_jax(s).sum())
    assert torch.func.vmap(by_torch)(torch.zeros(shape)).shape == shape[:-2]
    assert torch.func.vmap(of_torch)(torch.zeros(shape)).shape == shape
    assert jax.vmap(by_jax)(jnp.zeros(shape)).shape == shape[:-2]
    assert jax.vmap(of_jax)(jnp.zeros(shape)).shape == shape


@VARIANT
def test_a_tangent_that_is_nan_outside_lengths_has_no_influence(variant):
    i, j = np.indices(MATRICES.shape[1:])
    inside = (i < LENGTHS[:, :1, None]) & (j < LENGTHS[:, 1:, None])
    tangent = np.cos(np.arange(MATRICES.size)).reshape(MATRICES.shape)
    zeros, poison = (np.where(inside, tangent, value) for value in (0.0, np.nan))
    score = torch_function(variant, lengths=torch.tensor(LENGTHS))
    found = [
        torch.func.jvp(function, (torch.tensor(MATRICES),), (torch.tensor(direction),))[1]
        for function in (score, torch.func.grad(lambda s: score(s).sum()))
        for direction in (zeros, poison)
    ]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[2], found[3])
    by_jax = [
        jax.jvp(jax_function(variant, lengths=LENGTHS), (jnp.asarray(MATRICES),), (jnp.asarray(d, jnp.float32),))[1]
        for d in (zeros, poison)
    ]
    np.testing.assert_array_equal(*by_jax)
    np.testing.assert_allclose(by_jax[0], found[0], rtol=1e-4, atol=1e-5)


# temperatures that nobody could check


@pytest.mark.parametrize("variant", ["diagonal_loop", *BY_HAND])
def test_a_traced_temperature_beyond_the_limits_counts_as_the_limit(variant):
    s = MATRICES[:, :3, :4].astype(np.float32)
    score = jax.jit(lambda t: jax_function(variant)(s, temperature=t))
    by_torch = torch.func.vmap(lambda t: torch_function(variant)(torch.tensor(s), temperature=t))
    for temperature, counts_as in ((1e-25, 1e-15), (1e-37, 1e-15), (1e25, 1e15)):
        wanted = score(counts_as)
        np.testing.assert_allclose(score(temperature), wanted, rtol=1e-6)
        np.testing.assert_allclose(by_torch(torch.tensor([temperature]))[0], wanted, rtol=1e-5)


@pytest.mark.parametrize("variant", ["diagonal_loop", *BY_HAND])
def test_a_traced_temperature_that_is_not_valid_gives_nan(variant):
    s = MATRICES[:, :3, :4].astype(np.float32)
    score = jax.jit(lambda t: jax_function(variant)(s, temperature=t))
    by_torch = torch.func.vmap(lambda t: torch_function(variant)(torch.tensor(s), temperature=t))
    for temperature in (0.0, -1.0, np.inf, np.nan):
        assert np.isnan(score(temperature)).all()
        assert by_torch(torch.tensor([temperature])).isnan().all()


@VARIANT
def test_a_pair_that_is_not_a_number_has_zeros_outside_lengths_all_the_same(variant):
    similarity, lengths = np.zeros((3, 3, 3), np.float32), np.array([[2, 2], [2, 2], [3, 3]], np.int32)
    similarity[:2, 0, 0] = np.nan, np.inf
    s, vector = torch.from_numpy(similarity), torch.ones(3, 3, 3)
    jax_vector, sizes = jnp.ones((3, 3, 3)), torch.from_numpy(lengths)
    wanted = np.zeros((3, 3), bool)
    wanted[:2, :2] = True
    for result in (
        torch_impl.marginals(torch_function(variant), s, sizes),
        torch_impl.hessian_vector_product(torch_function(variant), s, vector, sizes),
        jax_impl.marginals(jax_function(variant), similarity, lengths),
        jax_impl.hessian_vector_product(jax_function(variant), similarity, jax_vector, lengths),
    ):
        for pair in np.asarray(result)[:2]:
            assert np.array_equal(np.isnan(pair), wanted)
            assert not pair[~wanted].any()
        assert np.isfinite(np.asarray(result)[2]).all()


# long pairs


@VARIANT
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_roundings_do_not_add_up_on_a_long_way(variant, framework):
    similarity = np.random.default_rng(0).normal(size=(1, 700, 800)).astype(np.float32)
    if framework == "jax":
        score = jax.jit(jax_function(variant, gap=-1.0))(similarity)
    else:
        score = torch_function(variant, gap=-1.0)(torch.from_numpy(similarity))
    wanted = torch_function("wavefront", gap=-1.0)(torch.from_numpy(similarity).double())
    np.testing.assert_allclose(np.asarray(score), wanted, rtol=1e-6)
