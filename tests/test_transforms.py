"""Under the transforms of JAX: jit, grad, vmap; and in both frameworks, what arguments and calls are left as."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import BY_HAND, FRAMEWORKS, PROBLEMS, ragged, run, single
from small_batch import LENGTHS, MARGINALS, SCORES, S, batch, close, outer_scores

import jax_impl
import torch_impl
from jax_impl.chunks import of_any_batch
from jax_impl.pairs import number_per_pair
from shared import reference
from shared.alignments import ALIGNMENTS
from shared.variants import usable_variants

# those by hand, and of the sweeps the one that is nearest to the user
VARIANTS = ("vmap", *BY_HAND)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", ["b, 5, 6", "r, c"])
def test_an_export_for_any_shape_is_refused_in_words(variant: str, shape: str):
    score = functools.partial(jax_impl.smith_waterman, variant=variant)
    best = functools.partial(jax_impl.best_alignment, jax_impl.smith_waterman)
    similarity = jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape), jnp.float32)
    text = rf"^similarity must have a shape of numbers, got \({shape}\); export each shape by itself\b"
    for function in (score, best):
        with pytest.raises(TypeError, match=text):
            jax.export.export(jax.jit(function))(similarity)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_jax_jit_traces_lengths_and_parameters(problem):
    traces = []

    @jax.jit
    def jitted(*arguments: Any, **parameters: Any) -> jax.Array:
        traces.append(1)
        return getattr(jax_impl, problem)(*arguments, **parameters)

    score = getattr(reference, problem)
    first = ALIGNMENTS[problem].parameters
    second = {name: value - 0.5 if name.startswith("gap") else 2 * value for name, value in first.items()}
    close(jitted(S, LENGTHS, **first), score(S, LENGTHS, **first))
    close(jitted(S, LENGTHS[::-1], **second), score(S, LENGTHS[::-1], **second))
    assert len(traces) == 1


@pytest.mark.parametrize("problem", ["smith_waterman", "needleman_wunsch"])
def test_jax_marginals_of_a_jitted_function(problem):
    marginals = jax_impl.marginals(jax.jit(getattr(jax_impl, problem)), S, LENGTHS)
    close(marginals, reference.gradients(problem, S, LENGTHS)["similarity"])


def test_jax_without_implicit_promotion():
    similarity = jnp.ones((2, 3, 4), jnp.bfloat16)
    with jax.numpy_dtype_promotion("strict"):
        assert jax_impl.smith_waterman(similarity).dtype == jnp.bfloat16
        assert jax_impl.smith_waterman(similarity, variant="wavefront").dtype == jnp.bfloat16
        assert jax_impl.hessian_vector_product(jax_impl.smith_waterman_affine, similarity, similarity).any()
        assert jax_impl.best_alignment(jax_impl.needleman_wunsch, similarity)[0].dtype == jnp.bfloat16


def test_jax_marginals_under_jit():
    close(jax.jit(functools.partial(jax_impl.marginals, jax_impl.smith_waterman))(S, LENGTHS), MARGINALS)


@pytest.mark.parametrize(
    ("problem", "variant"),
    [
        ("smith_waterman", "batch_loop"),
        ("free_gap", "vmap"),
        ("needleman_wunsch", "wavefront"),
        ("smith_waterman_affine", "fused"),
    ],
)
def test_jax_vmap_over_an_outer_axis(problem, variant):
    outer, lengths = np.stack([S, -S]), np.stack([LENGTHS, LENGTHS[::-1]])
    score = functools.partial(getattr(jax_impl, problem), variant=variant)
    close(jax.jit(jax.vmap(score))(outer, lengths), outer_scores(problem, outer, lengths))


@pytest.mark.parametrize("variant", VARIANTS)
def test_jax_grad_of_vmap_equals_the_sum_of_grads(variant):
    score = functools.partial(jax_impl.smith_waterman, variant=variant)
    total = lambda s: jax.vmap(score)(s, LENGTHS).sum()  # noqa: E731
    close(jax.jit(jax.grad(total))(S), MARGINALS)


def test_jax_splits_a_large_batch_and_drops_what_fills_the_last_chunk():
    matrices = batch(7, 3, 4)
    bytes_of_a_pair = (3 + 4) * 3 * 4
    s = jnp.asarray(matrices)
    function, results = lambda s: (s.sum((1, 2)), 2 * s), (number_per_pair(s), s)
    sums, doubled = of_any_batch(function, results, s, table_bytes=3 * bytes_of_a_pair)
    close(sums, matrices.sum((1, 2)))
    close(doubled, 2 * matrices)


@pytest.mark.parametrize("variant", VARIANTS)
def test_jax_clamps_traced_lengths_to_the_matrix(variant):
    score = functools.partial(jax_impl.smith_waterman, variant=variant)
    wild = np.array([(99, 5), (-3, 3), (2**31 - 1, -(2**31))], dtype=np.int32)
    clamped = np.clip(wild, 0, (4, 5))
    close(jax.jit(score)(S, wild), reference.smith_waterman(S, clamped))
    marginals = jax.jit(functools.partial(jax_impl.marginals, score))(S, wild)
    close(marginals, reference.gradients("smith_waterman", S, clamped)["similarity"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_jax_traced_temperature_that_is_not_positive_gives_nan_for_its_pair_only(variant):
    score = functools.partial(jax_impl.smith_waterman, variant=variant)
    scores, marginals = jax.jit(score), jax.jit(functools.partial(jax_impl.marginals, score))
    for bad in (0.0, -1.0, np.nan):
        temperature = jnp.array([1.0, bad, 1.0])
        got = np.asarray(scores(S, LENGTHS, temperature=temperature))
        assert np.isnan(got).tolist() == [False, True, False]
        close(got[[0, 2]], SCORES[[0, 2]])
        close(marginals(S, LENGTHS, temperature=temperature)[0], MARGINALS[0])


# both


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_moving_an_array_to_the_device_and_back_keeps_it(framework):
    backend = FRAMEWORKS[framework].backend
    for array in (np.float32(3.0).reshape(()), S, S[:, ::2].swapaxes(0, 2), np.zeros((0, 4), np.float32)):
        moved = backend.to_numpy(backend.wait(backend.to_device(array, "cpu")))
        assert (moved.shape, moved.dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(moved, array)


@pytest.mark.parametrize("variant", BY_HAND)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_arguments_are_left_as_they_were(framework, variant):
    inputs = ragged(4, 5)
    run(framework, inputs, "float64", variant, how="quick" if framework == "jax" else "eager")
    for array, untouched in zip(inputs[:2], ragged(4, 5)[:2], strict=True):
        np.testing.assert_array_equal(array, untouched)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.filterwarnings("error")
def test_read_only_numpy_arguments_raise_no_warning(framework):
    arrays = S.copy(), LENGTHS.copy()
    for array in arrays:
        array.setflags(write=False)
    package, backend = FRAMEWORKS[framework]
    close(backend.to_numpy(package.smith_waterman(*arrays)), SCORES)


@pytest.mark.parametrize("variant", BY_HAND)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_same_call_gives_the_same_bits(framework, variant):
    how = {"jax": "quick", "torch": "eager"}[framework]
    first, second = (run(framework, single(5, 8), "float32", variant, how) for _ in range(2))
    assert first.score == second.score
    np.testing.assert_array_equal(first.gradients["similarity"], second.gradients["similarity"])


# on a GPU


@pytest.mark.cuda
def test_torch_cpu_parameters_and_lengths_go_with_a_cuda_matrix():
    similarity, lengths = torch.from_numpy(S).cuda(), torch.from_numpy(LENGTHS)
    gap = torch.tensor(-1.0, requires_grad=True)
    scores = torch_impl.smith_waterman(similarity, lengths, gap=gap, temperature=torch.tensor(1.0))
    assert scores.device.type == "cuda"
    close(scores.detach().cpu(), SCORES)
    (slope,) = torch.autograd.grad(scores.sum(), gap)
    assert slope.device.type == "cpu"


@pytest.mark.cuda
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_cuda_scores_equal_the_reference(framework):
    backend = FRAMEWORKS[framework].backend
    for variant in usable_variants("smith_waterman", backend.absent_on("cuda")):
        scores = backend.function("smith_waterman", variant)(backend.to_device(S, "cuda"), LENGTHS)
        close(backend.to_numpy(scores), SCORES)
