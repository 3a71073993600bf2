"""Under the transforms of PyTorch: vmap, no_grad, compile."""

import functools
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo
from frameworks import BY_HAND, PROBLEMS
from small_batch import LENGTHS, MARGINALS, SCORES, S, batch, close, outer_scores

import torch_impl
from shared import reference
from torch_impl.compiler import compiled
from torch_impl.derivatives import mapped

# those by hand, and of the sweeps the one that is nearest to the user
VARIANTS = ("diagonal_loop", *BY_HAND)


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(S), torch.from_numpy(LENGTHS)


@pytest.mark.parametrize("variant", ["cell_loop", "diagonal_loop", *BY_HAND])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_torch_func_vmap_over_an_outer_axis(problem, variant):
    outer, lengths = np.stack([S, -S]), np.stack([LENGTHS, LENGTHS[::-1]])
    score = functools.partial(getattr(torch_impl, problem), variant=variant)
    got = torch.func.vmap(score)(torch.from_numpy(outer), torch.from_numpy(lengths))
    close(got, outer_scores(problem, outer, lengths))


@pytest.mark.parametrize("variant", ["cell_loop", "diagonal_loop", *BY_HAND])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_gradient_through_torch_func_vmap_is_that_of_the_batch(problem, variant):
    score = functools.partial(getattr(torch_impl, problem), variant=variant)
    similarity, lengths = tensors()
    cotangent = torch.linspace(-1, 2, len(similarity), dtype=similarity.dtype)

    def total(matrices: torch.Tensor, mapped: bool) -> torch.Tensor:
        return (cotangent * (torch.func.vmap(score) if mapped else score)(matrices, lengths)).sum()

    by_func, expected = (torch.func.grad(total)(similarity, mapped) for mapped in (True, False))
    leaf = similarity.clone().requires_grad_()
    (by_autograd,) = torch.autograd.grad(total(leaf, True), leaf)
    torch.testing.assert_close(by_func, expected)
    torch.testing.assert_close(by_autograd, expected)


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_torch_hessians_by_the_older_vmap(variant, strategy):
    similarity, lengths = tensors()
    total = lambda s: torch_impl.smith_waterman(s, lengths, variant=variant).sum()  # noqa: E731
    hessian = torch.autograd.functional.hessian(total, similarity, vectorize=True, outer_jacobian_strategy=strategy)
    torch.testing.assert_close(hessian, torch.func.hessian(total)(similarity))


@pytest.mark.parametrize("by_position", [False, True])
@pytest.mark.parametrize("variant", BY_HAND)
def test_torch_batches_gradients_by_the_older_vmap(variant, by_position):
    similarity, temperature, *gaps = torch.randn(4, 2, 2, 3, dtype=torch.float64)
    gaps = gaps if by_position else [gap[:, 0, 0] for gap in gaps]
    inputs = [tensor.detach().requires_grad_() for tensor in (similarity, temperature[:, 0, 0].exp(), *gaps)]
    names = "temperature", "gap_open", "gap_extend"
    function = functools.partial(torch_impl.smith_waterman_affine, variant=variant)

    def scores(s: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return function(s, **dict(zip(names, values, strict=True)))

    def marginals(s: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return torch_impl.marginals(function, s, **dict(zip(names, values, strict=True)))

    assert torch.autograd.gradgradcheck(scores, inputs, check_batched_grad=True)
    assert torch.autograd.gradcheck(marginals, inputs, check_batched_grad=True)


@pytest.mark.parametrize("variant", BY_HAND)
def test_torch_says_what_to_use_instead_of_functional_hvp(variant):
    similarity, _ = tensors()
    total = lambda s: torch_impl.smith_waterman(s, variant=variant).sum()  # noqa: E731
    with pytest.raises(RuntimeError, match="its vhp, or hessian_vector_product"):
        torch.autograd.functional.hvp(total, similarity, similarity)
    _, product = torch.autograd.functional.vhp(total, similarity, similarity)
    expected = torch_impl.hessian_vector_product(torch_impl.smith_waterman, similarity, similarity, variant=variant)
    torch.testing.assert_close(product, expected)


def test_torch_maps_an_operator_over_any_axis_and_repeats_what_is_not_mapped():
    matrices, values = torch.from_numpy(batch(2, 3, 4, 5)), torch.arange(3.0)
    info, in_dims = SimpleNamespace(batch_size=2), (3, None)
    sums, out_dim = mapped(lambda s, v: s.sum((1, 2)) + v, info, in_dims, (matrices.movedim(0, 3), values))
    assert out_dim == 0
    torch.testing.assert_close(sums, matrices.sum((2, 3)) + values)


def test_torch_func_vmap_over_scan_cond_is_right():
    close(torch.func.vmap(functools.partial(torch_impl.smith_waterman, variant="scan_cond"))(*tensors()), SCORES)


@pytest.mark.parametrize("variant", VARIANTS)
def test_torch_func_vmap_clamps_lengths_and_gives_nan_for_a_bad_temperature(variant):
    function = functools.partial(torch_impl.smith_waterman, variant=variant)
    wild = torch.tensor([(99, 5), (-3, 3), (4, -(2**40))])
    clamped = wild.numpy().clip(0, (4, 5))
    close(torch.func.vmap(function)(tensors()[0], wild), reference.smith_waterman(S, clamped))
    score = lambda s, temperature: function(s, temperature=temperature)  # noqa: E731
    scores = torch.func.vmap(score)(tensors()[0], torch.tensor([1.0, 0.0, -2.0]))
    assert scores.isnan().tolist() == [False, True, True]


@pytest.mark.parametrize("variant", VARIANTS)
def test_torch_marginals_inside_no_grad_require_no_grad(variant):
    similarity, lengths = tensors()
    for matrix in (similarity, similarity.clone().requires_grad_()):
        with torch.no_grad():
            marginals = torch_impl.marginals(torch_impl.smith_waterman, matrix, lengths, variant=variant)
        assert not marginals.requires_grad
        close(marginals, MARGINALS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_torch_marginals_require_grad_when_an_argument_does(variant):
    similarity, lengths = tensors()
    score = functools.partial(torch_impl.smith_waterman, variant=variant)
    gap = torch.tensor(-1.0, requires_grad=True)
    assert not torch_impl.marginals(score, similarity, lengths).requires_grad
    marginals = torch_impl.marginals(score, similarity, lengths, gap=gap)
    (slope,) = torch.autograd.grad(marginals.sum(), gap)
    step = 1e-4
    sums = [reference.gradients("smith_waterman", S, LENGTHS, gap=-1 + d)["similarity"].sum() for d in (step, -step)]
    assert float(slope) == pytest.approx((sums[0] - sums[1]) / (2 * step), rel=1e-3)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_torch_marginals_inside_vmap(problem, variant):
    marginals = functools.partial(torch_impl.marginals, getattr(torch_impl, problem), variant=variant)
    close(torch.func.vmap(marginals)(*tensors()), reference.gradients(problem, S, LENGTHS)["similarity"])


def test_torch_marginals_leave_no_gradient_behind():
    similarity = torch.from_numpy(S).clone().requires_grad_()
    torch_impl.marginals(torch_impl.smith_waterman, similarity)
    assert similarity.grad is None


@pytest.mark.parametrize(
    ("problem", "variant"),
    [
        ("smith_waterman_affine", "diagonal_loop"),
        ("needleman_wunsch", "vmap"),
        *itertools.product(("smith_waterman", "needleman_wunsch"), BY_HAND),
    ],
)
def test_torch_marginals_of_a_compiled_function(problem, variant):
    function = compiled(functools.partial(getattr(torch_impl, problem), variant=variant), backend="eager")
    close(torch_impl.marginals(function, *tensors()), reference.gradients(problem, S, LENGTHS)["similarity"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_torch_marginals_inside_a_compiled_function(variant):
    similarity, lengths = tensors()
    marginals = functools.partial(torch_impl.marginals, torch_impl.smith_waterman, variant=variant)
    close(torch.compile(marginals, backend="aot_eager")(similarity, lengths), MARGINALS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_torch_compiled_by_its_user_is_right(variant):
    similarity, lengths = tensors()
    matrix = similarity.clone().requires_grad_()
    function = torch.compile(torch_impl.smith_waterman, backend="aot_eager", fullgraph=True)
    scores = function(matrix, lengths, variant=variant)
    close(scores.detach(), SCORES)
    close(torch.autograd.grad(scores.sum(), matrix)[0], MARGINALS)


@pytest.mark.parametrize("variant", ["auto", "wavefront"])
def test_torch_compiles_once_for_all_sizes_where_its_user_wants_dynamic_shapes(variant):
    function, graphs = functools.partial(torch_impl.smith_waterman, temperature=0.5, variant=variant), []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()  # or what was compiled in other tests counts towards the limit
    compiled = torch.compile(function, backend=backend, dynamic=True, fullgraph=True)
    for rows, cols in ((5, 8), (9, 4), (12, 13)):
        matrix = torch.randn(3, rows, cols, requires_grad=True)
        scores, expected = compiled(matrix), function(matrix)
        torch.testing.assert_close(scores, expected)
        torch.testing.assert_close(*(torch.autograd.grad(result.sum(), matrix) for result in (scores, expected)))
    assert len(graphs) == 1


def test_torch_parameters_of_zero_dimensions_go_with_any_matrix():
    similarity, lengths = tensors()
    gap, temperature = torch.tensor(-1, dtype=torch.float64), torch.tensor(1)
    scores = torch_impl.smith_waterman(similarity, lengths, gap=gap, temperature=temperature)
    assert scores.dtype == torch.float32
    close(scores, SCORES)
