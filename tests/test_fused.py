"""The native kernels are called once for each pass, and take the memory that they are given as it is."""

import re
from typing import Any

import jax
import numpy as np
import pytest
import torch

import jax_impl
from torch_impl.kernels import cpp_binding

pytestmark = pytest.mark.skipif(
    "fused" not in jax_impl.variants("smith_waterman"), reason="the native kernels are absent"
)

MATRICES = np.random.default_rng(0).normal(size=(3, 9, 7)).astype(np.float32)
LENGTHS = np.array([[9, 7], [5, 6], [0, 3]], np.int32)
WEIGHTS = np.random.default_rng(1).normal(size=(3, 9, 7)).astype(np.float32)


def jax_score(s: Any, lengths: Any = LENGTHS, **keywords: Any) -> Any:
    return jax_impl.smith_waterman(s, lengths, variant="fused", **keywords)


def marginals_loss(s: Any) -> Any:
    return (WEIGHTS * jax_impl.marginals(jax_score, s)).sum()


def score_and_marginals_loss(s: Any) -> Any:
    score, marginals = jax.value_and_grad(lambda x: jax_score(x).sum())(s)
    return score + (WEIGHTS * marginals).sum()


@pytest.mark.parametrize(
    ("function", "argument", "calls"),
    [
        (jax_score, MATRICES, ["score"]),
        (lambda s: jax_impl.marginals(jax_score, s), MATRICES, ["marginals"]),
        (lambda s: jax_impl.hessian_vector_product(jax_score, s, WEIGHTS), MATRICES, ["product"]),
        (lambda s: jax_impl.best_alignment(jax_impl.smith_waterman, s, LENGTHS), MATRICES, ["best"]),
        (jax.value_and_grad(lambda s: jax_score(s).sum()), MATRICES, ["marginals"]),
        # the parameters' derivatives are computed only where they are asked for
        (jax.grad(lambda gap: jax_score(MATRICES, gap=gap).sum()), 1.0, ["gradients"]),
        (jax.grad(lambda temperature: jax_score(MATRICES, temperature=temperature).sum()), 1.0, ["gradients"]),
        (jax.grad(marginals_loss), MATRICES, ["product"]),
        (jax.grad(lambda s: (WEIGHTS * jax.grad(lambda s: jax_score(s).sum())(s)).sum()), MATRICES, ["product"]),
        (jax.grad(lambda s: (jax_impl.marginals(jax_score, s) ** 2).sum()), MATRICES, ["marginals", "product"]),
        (jax.value_and_grad(marginals_loss), MATRICES, ["marginals", "product"]),
        (jax.value_and_grad(score_and_marginals_loss), MATRICES, ["marginals", "product"]),
    ],
)
def test_xla_makes_each_call_once_and_passes_over_a_matrix_only_between_two(function, argument, calls):
    text = jax.jit(function).lower(argument).compile().as_text() or ""
    assert sorted(re.findall(r'custom_call_target="jax_torch_alignment_(\w+)_float32"', text)) == calls
    if len(calls) == 1:
        made = re.findall(r"= f32\[3,9,7\]\S* (\S+)\(", text)
        assert set(made) <= {"parameter", "get-tuple-element", "constant", "copy", "custom-call"}


def test_pairs_may_share_memory():
    s, values = torch.from_numpy(MATRICES)[:1], torch.tensor([[-1.0, 1.0]] * 4)
    none = torch.empty((0, 2), dtype=torch.int32)
    shared, alone = (cpp_binding.score(x, none, values, [], 0, 0) for x in (s.expand(4, -1, -1), s.repeat(4, 1, 1)))
    assert torch.equal(shared, alone)


def test_jax_calls_them_without_jit():
    with jax.disable_jit():
        np.testing.assert_allclose(
            jax_score(MATRICES), jax_impl.smith_waterman(MATRICES, LENGTHS, variant="wavefront"), rtol=1e-5
        )
        assert jax_impl.best_alignment(jax_impl.smith_waterman, MATRICES)[1].any()
