"""Under the transforms of JAX and PyTorch: jit, grad, vmap, no_grad, compile; and how arguments and calls are left."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch._dynamo
from frameworks import BY_HAND, FRAMEWORKS, ragged, run
from small_batch import LENGTHS, MARGINALS, SCORES, S, batch, close, outer_scores

import jax_impl
import torch_impl
from jax_impl.chunks import of_any_batch
from jax_impl.pairs import number_per_pair
from torch_impl.compiler import compiled

FRAMEWORK = pytest.mark.parametrize("framework", FRAMEWORKS)
BOTH_BY_HAND = pytest.mark.parametrize("variant", BY_HAND)
# those by hand, and of the sweeps the one that is nearest to the user
LOOP_AND_BY_HAND = pytest.mark.parametrize("variant", ["diagonal_loop", *BY_HAND])


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(S), torch.from_numpy(LENGTHS)


# JAX


@pytest.mark.parametrize("variant", ["vmap", "wavefront", "fused"])
@pytest.mark.parametrize("shape", ["b, 5, 6", "r, c"])
def test_an_export_for_any_shape_is_refused_in_words(variant: str, shape: str):
    score = functools.partial(jax_impl.smith_waterman, variant=variant)
    best = functools.partial(jax_impl.best_alignment, jax_impl.smith_waterman)
    similarity = jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape), jnp.float32)
    text = rf"^similarity must have a shape of numbers, got \({shape}\); export each shape by itself\b"
    for function in (score, best):
        with pytest.raises(TypeError, match=text):
            jax.export.export(jax.jit(function))(similarity)


# of batches of pairs; test_transform_matrix.py maps over single pairs


@FRAMEWORK
@pytest.mark.parametrize(
    ("problem", "variant"),
    [("smith_waterman", "cell_loop"), ("needleman_wunsch", "wavefront"), ("smith_waterman_affine", "fused")],
)
def test_vmap_over_any_axis_repeats_what_it_does_not_map(problem, variant, framework):
    outer, lengths = np.stack([S, -S]), np.stack([LENGTHS, LENGTHS[::-1]])
    backend = FRAMEWORKS[framework].backend
    score = functools.partial(getattr(FRAMEWORKS[framework].package, problem), variant=variant)
    function = lambda s, lengths, temperature: score(s, lengths, temperature=temperature)  # noqa: E731
    vmap = {"jax": lambda *given: jax.jit(jax.vmap(*given)), "torch": torch.func.vmap}[framework]
    given = (np.ascontiguousarray(outer.transpose(1, 2, 3, 0)), lengths, np.ones(len(S), np.float32))
    got = vmap(function, (3, 0, None))(*(backend.to_device(array, "cpu") for array in given))
    close(got, outer_scores(problem, outer, lengths))


def test_jax_splits_a_large_batch_into_chunks():
    matrices = batch(7, 3, 4)
    bytes_of_a_pair = (3 + 4) * 3 * 4
    s = jnp.asarray(matrices)
    function, results = lambda s: (s.sum((1, 2)), 2 * s), (number_per_pair(s), s)
    sums, doubled = of_any_batch(function, results, s, table_bytes=3 * bytes_of_a_pair)
    close(sums, matrices.sum((1, 2)))
    close(doubled, 2 * matrices)


# PyTorch


@LOOP_AND_BY_HAND
def test_a_gradient_through_torch_func_vmap_is_that_of_the_batch(variant):
    score = functools.partial(torch_impl.smith_waterman_affine, variant=variant)
    similarity, lengths = tensors()
    cotangent = torch.linspace(-1, 2, len(similarity), dtype=similarity.dtype)

    def total(matrices: torch.Tensor, mapped: bool) -> torch.Tensor:
        return (cotangent * (torch.func.vmap(score) if mapped else score)(matrices, lengths)).sum()

    by_func, expected = (torch.func.grad(total)(similarity, mapped) for mapped in (True, False))
    leaf = similarity.clone().requires_grad_()
    (by_autograd,) = torch.autograd.grad(total(leaf, True), leaf)
    torch.testing.assert_close(by_func, expected)
    torch.testing.assert_close(by_autograd, expected)


@pytest.mark.parametrize("by_position", [pytest.param(False, marks=pytest.mark.slow), True])
@BOTH_BY_HAND
def test_torch_batches_gradients_by_the_older_vmap(variant, by_position):
    similarity, temperature, *gaps = torch.randn(4, 2, 2, 3, dtype=torch.float64)
    gaps = gaps if by_position else [gap[:, 0, 0] for gap in gaps]
    inputs = [tensor.detach().requires_grad_() for tensor in (similarity, temperature[:, 0, 0].exp(), *gaps)]
    function = functools.partial(torch_impl.smith_waterman_affine, variant=variant)

    def called(function: Callable[..., Any], *values: torch.Tensor) -> torch.Tensor:
        return function(values[0], **dict(zip(("temperature", "gap_open", "gap_extend"), values[1:], strict=True)))

    scores, marginals = functools.partial(called, function), functools.partial(torch_impl.marginals, function)
    assert torch.autograd.gradgradcheck(scores, inputs, check_batched_grad=True)
    assert torch.autograd.gradcheck(functools.partial(called, marginals), inputs, check_batched_grad=True)


@BOTH_BY_HAND
def test_torch_says_what_to_use_instead_of_functional_hvp(variant):
    similarity, _ = tensors()
    total = lambda s: torch_impl.smith_waterman(s, variant=variant).sum()  # noqa: E731
    with pytest.raises(RuntimeError, match="its vhp, or hessian_vector_product"):
        torch.autograd.functional.hvp(total, similarity, similarity)
    _, product = torch.autograd.functional.vhp(total, similarity, similarity)
    expected = torch_impl.hessian_vector_product(torch_impl.smith_waterman, similarity, similarity, variant=variant)
    torch.testing.assert_close(product, expected)


@LOOP_AND_BY_HAND
def test_torch_marginals_inside_no_grad_require_no_grad(variant):
    similarity, lengths = tensors()
    leaf = similarity.clone().requires_grad_()
    for matrix in (similarity, leaf):
        with torch.no_grad():
            marginals = torch_impl.marginals(torch_impl.smith_waterman, matrix, lengths, variant=variant)
        assert not marginals.requires_grad
        close(marginals, MARGINALS)
    torch_impl.marginals(torch_impl.smith_waterman, leaf, variant=variant)
    assert leaf.grad is None


@pytest.mark.parametrize("variant", [pytest.param("vmap", marks=pytest.mark.slow), *BY_HAND])
def test_torch_marginals_of_a_compiled_function(variant):
    function = compiled(functools.partial(torch_impl.smith_waterman, variant=variant), backend="eager")
    close(torch_impl.marginals(function, *tensors()), MARGINALS)


@BOTH_BY_HAND
def test_torch_compiled_by_its_user_is_right(variant):
    similarity, lengths = tensors()
    matrix = similarity.clone().requires_grad_()
    function = torch.compile(torch_impl.smith_waterman, backend="aot_eager", fullgraph=True)
    scores = function(matrix, lengths, variant=variant)
    close(scores.detach(), SCORES)
    close(torch.autograd.grad(scores.sum(), matrix)[0], MARGINALS)


@pytest.mark.parametrize("variant", ["auto", "wavefront"])
def test_torch_with_dynamic_shapes_compiles_once_for_all_sizes(variant):
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


# both


@FRAMEWORK
def test_moving_an_array_to_the_device_and_back_keeps_it(framework):
    backend = FRAMEWORKS[framework].backend
    for array in (np.float32(3.0).reshape(()), S, S[:, ::2].swapaxes(0, 2), np.zeros((0, 4), np.float32)):
        moved = backend.to_numpy(backend.wait(backend.to_device(array, "cpu")))
        assert (moved.shape, moved.dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(moved, array)


@BOTH_BY_HAND
@FRAMEWORK
def test_calls_repeat_their_bits_and_leave_arguments_as_they_were(framework, variant):
    inputs, how = ragged(4, 5), {"jax": "quick", "torch": "eager"}[framework]
    first, second = (run(framework, inputs, "float32", variant, how) for _ in range(2))
    np.testing.assert_array_equal(first.score, second.score)
    np.testing.assert_array_equal(first.gradients["similarity"], second.gradients["similarity"])
    for array, untouched in zip(inputs[:2], ragged(4, 5)[:2], strict=True):
        np.testing.assert_array_equal(array, untouched)


@pytest.mark.cuda
def test_torch_cpu_parameters_and_lengths_go_with_a_cuda_matrix():
    similarity, lengths = torch.from_numpy(S).cuda(), torch.from_numpy(LENGTHS)
    gap = torch.tensor(-1.0, requires_grad=True)
    scores = torch_impl.smith_waterman(similarity, lengths, gap=gap, temperature=torch.tensor(1.0))
    assert scores.device.type == "cuda"
    close(scores.detach().cpu(), SCORES)
    (slope,) = torch.autograd.grad(scores.sum(), gap)
    assert slope.device.type == "cpu"
