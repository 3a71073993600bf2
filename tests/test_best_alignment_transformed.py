"""best_alignment under the transforms of both frameworks, none of which differentiates it."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
from test_best_alignment import assert_equal

import jax_impl
import torch_impl
from shared import reference
from shared.checks import CannotDifferentiate

NO_GRADIENT = "best_alignment is not differentiable; use marginals of the smooth function"


def in_jax(similarity: Any, gap: Any = -1.0) -> Any:
    return jax_impl.best_alignment(jax_impl.smith_waterman, similarity, gap=gap)


def in_torch(similarity: Any, gap: Any = -1.0) -> Any:
    return torch_impl.best_alignment(torch_impl.smith_waterman, similarity, gap=gap)


@pytest.fixture
def whole() -> tuple[np.ndarray, np.ndarray, Any]:
    """Similarity, gaps by position, and the reference's results."""
    random = np.random.default_rng(8)
    similarity, gap = random.integers((-3, -4), (4, 0), size=(5, 9, 11, 2)).astype(np.float32).transpose(3, 0, 1, 2)
    return similarity, gap, reference.best_alignment("smith_waterman", similarity, gap=gap)


def test_it_works_under_the_transforms_of_jax(whole):
    similarity, gap, expected = whole
    for function in (jax.jit(in_jax), jax.vmap(in_jax), jax.jit(jax.vmap(in_jax)), jax.vmap(jax.jit(in_jax))):
        assert_equal(function(similarity, gap), expected)
    twice = jax.vmap(in_jax, in_axes=(0, None))(np.stack([similarity, similarity]), gap)
    assert_equal([result[1] for result in twice], expected)


def test_it_works_under_the_transforms_of_torch(whole):
    similarity, gap, expected = (*map(torch.tensor, whole[:2]), whole[2])
    assert_equal(torch.func.vmap(in_torch)(similarity, gap), expected)
    assert_equal(torch.compile(in_torch, fullgraph=True, backend="aot_eager")(similarity, gap), expected)
    twice = torch.func.vmap(in_torch, in_dims=(0, None))(torch.stack([similarity, similarity]), gap)
    assert_equal([result[1] for result in twice], expected)
    torch.library.opcheck(
        torch.ops.smooth_alignment.fused_best.default,
        (similarity, torch.empty(0, 2), torch.ones(5, 2), [gap], 0, 8),
    )
    with torch.no_grad():
        scores, _ = in_torch(similarity.requires_grad_(), gap)
    assert not scores.requires_grad


def test_jax_does_not_differentiate_it(whole):
    similarity, gap, (_, matches) = whole
    scores_of = lambda *inputs: in_jax(*inputs)[0].sum()  # noqa: E731
    for derivative in (
        lambda: jax.grad(scores_of)(similarity),
        lambda: jax.jit(jax.grad(scores_of))(similarity),
        lambda: jax.grad(scores_of, argnums=1)(similarity, gap),
        lambda: jax.grad(scores_of, argnums=1)(similarity, -1.0),
        lambda: jax.jvp(scores_of, (similarity,), (similarity,)),
    ):
        with pytest.raises(CannotDifferentiate, match=NO_GRADIENT):
            derivative()

    def loss(matrix: Any) -> Any:
        return (matrix * in_jax(jax.lax.stop_gradient(matrix), gap)[1]).sum()

    assert_equal([jax.grad(loss)(similarity), jax.jit(jax.grad(loss))(similarity)], [matches] * 2)


def test_torch_does_not_differentiate_it(whole):
    similarity, gap, (_, matches) = (*map(torch.tensor, whole[:2]), whole[2])
    scores_of = lambda *inputs: in_torch(*inputs)[0].sum()  # noqa: E731
    compiled = torch.compile(lambda matrix: in_torch(matrix), fullgraph=True, backend="aot_eager")
    leaf = lambda tensor: tensor.clone().requires_grad_()  # noqa: E731
    for derivative in (
        lambda: scores_of(leaf(similarity)).backward(),
        lambda: scores_of(similarity, leaf(gap)).backward(),
        lambda: scores_of(similarity, torch.tensor(-1.0, requires_grad=True)).backward(),
        lambda: compiled(leaf(similarity))[0].sum().backward(),
        lambda: torch.func.grad(scores_of)(similarity),
        lambda: torch.func.vmap(torch.func.grad(scores_of))(similarity),
        lambda: torch.func.jvp(scores_of, (similarity,), (similarity,)),
    ):
        with pytest.raises(CannotDifferentiate, match=NO_GRADIENT):
            derivative()

    def loss(matrix: torch.Tensor) -> torch.Tensor:
        return (matrix * in_torch(matrix, gap)[1]).sum()  # matches are no numbers, and have no derivative

    own = leaf(similarity)
    loss(own).backward()
    assert_equal([own.grad, torch.func.grad(loss)(similarity)], [matches] * 2)
