"""The native kernels are called as often as needed, never more, and no wrong derivative comes out of them."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import PROBLEMS

import jax_impl
import torch_impl
from shared.checks import CannotDifferentiate
from torch_impl.kernels import cpp_binding

pytestmark = pytest.mark.skipif(
    "fused" not in jax_impl.variants("smith_waterman"), reason="the native kernels are absent"
)

MATRICES = np.random.default_rng(0).normal(size=(3, 9, 7)).astype(np.float32)
LENGTHS = np.array([[9, 7], [5, 6], [0, 3]], np.int32)
PADDED = np.where(
    (np.arange(9)[:, None] < LENGTHS[:, :1, None]) & (np.arange(7) < LENGTHS[:, 1:, None]), MATRICES, np.nan
)
WEIGHTS = np.random.default_rng(1).normal(size=(3, 9, 7)).astype(np.float32)
EVERY = pytest.mark.parametrize(
    ("problem", "options"), [(problem, options) for problem, (_, every) in PROBLEMS.items() for options in every]
)


def jax_score(s: Any, lengths: Any = LENGTHS, problem: str = "smith_waterman", **keywords: Any) -> Any:
    return getattr(jax_impl, problem)(s, lengths, variant="fused", **keywords)


def torch_score(s: Any, lengths: Any = None, problem: str = "smith_waterman", **keywords: Any) -> Any:
    lengths = torch.from_numpy(LENGTHS) if lengths is None else lengths
    return getattr(torch_impl, problem)(s, lengths, variant="fused", **keywords)


def compiled_text(function: Any, *arguments: Any) -> str:
    return jax.jit(function).lower(*arguments).compile().as_text() or ""


def marginals_loss(s: Any) -> Any:
    return (WEIGHTS * jax_impl.marginals(jax_score, s)).sum()


@pytest.mark.parametrize(
    ("function", "call"),
    [
        (jax_score, "score"),
        (lambda s: jax_impl.marginals(jax_score, s), "gradients"),
        (jax.value_and_grad(lambda s: jax_score(s).sum()), "gradients"),
        (jax.grad(marginals_loss), "tangents"),
    ],
)
def test_xla_makes_one_call_and_no_pass_over_the_matrix(function, call):
    text = compiled_text(function, MATRICES)
    called = re.findall(r'custom_call_target="jax_torch_alignment_(\w+)_float32"', text)
    assert called == [call]
    made = re.findall(r"= f32\[3,9,7\]\S* (\S+)\(", text)
    assert set(made) <= {"parameter", "get-tuple-element", "constant", "copy"}


@pytest.mark.parametrize(("of", "flag"), [("similarity", 0), ("gap", 0), ("temperature", 1)])
def test_the_temperatures_derivative_is_computed_only_where_asked_for(of, flag):
    def score(value: Any) -> Any:
        return jax_score(value).sum() if of == "similarity" else jax_score(MATRICES, **{of: value}).sum()

    text = compiled_text(jax.grad(score), MATRICES if of == "similarity" else 1.0)
    assert re.findall(r"d_temperature = (\d)", text) == [str(flag)]


def test_a_tangent_outside_lengths_has_no_influence():
    (tangent,) = jax.jvp(jax_score, (PADDED,), (np.where(np.isnan(PADDED), np.nan, 1).astype(np.float32),))[1:]
    expected = jax.jvp(jax_score, (PADDED,), (np.ones_like(PADDED),))[1]
    np.testing.assert_array_equal(tangent, expected)


def test_vmap_over_anything_is_the_batch():
    gaps, temperatures = jnp.array([-1.0, -0.5, -2.0]), jnp.array([1.0, 0.5, 2.0])

    def loss(s: Any, gap: Any, temperature: Any) -> Any:
        single = lambda *own: jax_score(own[0], None, gap=own[1], temperature=own[2])  # noqa: E731
        return jax.value_and_grad(single, (0, 1, 2))(s, gap, temperature)

    for axes in ((0, 0, 0), (0, None, None), (None, 0, None), (None, None, 0)):
        given = [
            array if axis == 0 else array[0] for array, axis in zip((MATRICES, gaps, temperatures), axes, strict=True)
        ]
        mapped = jax.tree.leaves(jax.vmap(loss, axes)(*given))
        for pair in range(3):
            own = [array[pair] if axis == 0 else array for array, axis in zip(given, axes, strict=True)]
            for got, wanted in zip(mapped, jax.tree.leaves(loss(*own)), strict=True):
                np.testing.assert_allclose(got[pair], wanted, rtol=1e-4, atol=1e-5)


def test_a_third_derivative_raises_in_both_frameworks():
    text = "variant 'fused' is right to second order only; for third derivatives use"
    with pytest.raises(CannotDifferentiate, match=text):
        jax.grad(lambda s: (jax.grad(marginals_loss)(s) ** 2).sum())(MATRICES)
    with pytest.raises(CannotDifferentiate, match=text):
        jax.jvp(jax.hessian(lambda gap: jax_score(MATRICES, gap=gap).sum()), (-1.0,), (1.0,))
    leaf = torch.from_numpy(MATRICES).requires_grad_()
    (first,) = torch.autograd.grad(torch_score(leaf).sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad((first * torch.from_numpy(WEIGHTS)).sum(), leaf, create_graph=True)
    with pytest.raises(CannotDifferentiate, match=text):
        torch.autograd.grad(second.sum(), leaf)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("strided", [False, True])
def test_the_operators_are_what_pytorch_expects(dtype, strided):
    s = torch.from_numpy(MATRICES).to(dtype)
    s = s.transpose(1, 2).contiguous().transpose(1, 2) if strided else s
    given = s, torch.from_numpy(LENGTHS), torch.tensor([[-1.0, 1.0]] * 3, dtype=dtype)
    torch.library.opcheck(cpp_binding.score, (*given, 0, 0))
    torch.library.opcheck(cpp_binding.gradients, (*given, 0, 0, True))
    torch.library.opcheck(cpp_binding.tangents, (*given, s, given[2], 0, 0))


def test_pairs_may_share_memory():
    s, values = torch.from_numpy(MATRICES)[:1], torch.tensor([[-1.0, 1.0]] * 4)
    none = torch.empty((0, 2), dtype=torch.int32)
    shared, alone = (cpp_binding.score(x, none, values, 0, 0) for x in (s.expand(4, -1, -1), s.repeat(4, 1, 1)))
    assert torch.equal(shared, alone)
