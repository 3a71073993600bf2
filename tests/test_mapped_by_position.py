"""Gaps by position where functions of single pairs are mapped, and where a batch is computed in parts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import BY_HAND, FRAMEWORKS, Inputs, Result, ragged, run_function
from gaps_by_position import FRAMEWORK, how_to_run

from shared import reference


@pytest.mark.parametrize("variant", ["vmap", *BY_HAND])
def test_jax_gradients_of_single_pairs_are_mapped(variant):
    inputs = ragged(4, 5, by_position=("gap",))
    score = functools.partial(FRAMEWORKS["jax"].package.smith_waterman, variant=variant)
    one = lambda s, gap, t, lengths: score(s, lengths, gap=gap, temperature=t)  # noqa: E731
    matrix, gap, temperature = inputs.similarity[0], inputs.parameters["gap"], inputs.parameters["temperature"]
    with FRAMEWORKS["jax"].backend.precision("float64"):
        expected = reference.gradients("smith_waterman", inputs.similarity, inputs.lengths, **inputs.parameters)
        each = jax.jit(jax.vmap(jax.grad(one, argnums=(0, 1, 2))))
        for found, name in zip(
            each(inputs.similarity, gap, temperature, inputs.lengths), ("similarity", "gap", "temperature"), strict=True
        ):
            np.testing.assert_allclose(found, expected[name], rtol=0, atol=1e-12)

        # one similarity with several matrices of gaps
        several = np.nan_to_num(gap, posinf=0, neginf=0)
        total = lambda gap: jax.vmap(one, in_axes=(None, 0, None, None))(matrix, gap, 1.0, None).sum()  # noqa: E731
        expected = reference.gradients("smith_waterman", np.stack([matrix] * 6), None, gap=several)
        found = jax.jit(jax.grad(total))(jnp.asarray(several))
        np.testing.assert_allclose(found, expected["gap"], rtol=0, atol=1e-12)

        # the other way round, and over a batch
        total = lambda s: jax.vmap(score)(s, gap=jnp.broadcast_to(several, s.shape)).sum()  # noqa: E731
        outer = np.stack([several[::-1], several])
        expected = [reference.gradients("smith_waterman", s, None, gap=several)["similarity"] for s in outer]
        found = jax.jit(jax.grad(total))(jnp.asarray(outer))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", ["diagonal_loop", *BY_HAND])
def test_torch_gradients_of_single_pairs_are_mapped(variant):
    inputs = ragged(4, 5, by_position=("gap",))
    score = functools.partial(FRAMEWORKS["torch"].package.smith_waterman, variant=variant)
    one = lambda s, gap, t, lengths: score(s, lengths, gap=gap, temperature=t)  # noqa: E731
    s, gap, temperature = map(torch.from_numpy, (inputs.similarity, *inputs.parameters.values()))
    expected = reference.gradients("smith_waterman", inputs.similarity, inputs.lengths, **inputs.parameters)
    each = torch.func.vmap(torch.func.grad(one, argnums=(0, 1, 2)))
    for found, name in zip(
        each(s, gap, temperature, torch.tensor(inputs.lengths)), ("similarity", "gap", "temperature"), strict=True
    ):
        np.testing.assert_allclose(found, expected[name], rtol=0, atol=1e-12)

    several = torch.nan_to_num(gap, posinf=0, neginf=0)
    of_gap = torch.func.vmap(torch.func.grad(one, argnums=1), in_dims=(None, 0, None, None))
    expected = reference.gradients("smith_waterman", np.stack([inputs.similarity[0]] * 6), None, gap=several)
    np.testing.assert_allclose(of_gap(s[0], several, 1.0, None), expected["gap"], rtol=0, atol=1e-12)


@FRAMEWORK
def test_a_batch_too_large_for_the_cache_is_the_same_in_parts(framework):
    random = np.random.default_rng(3)
    s, gap = random.normal(size=(2, 6000, 5, 6))  # JAX: tables of 2 MiB, of 440 bytes for a pair
    lengths = random.integers(0, (6, 7), size=(6000, 2), dtype=np.int32)
    inputs = Inputs(s, lengths, {"gap": gap, "temperature": np.ones(())}, random.normal(size=6000))

    def result_of(variant: str) -> Result:
        score = functools.partial(FRAMEWORKS[framework].package.smith_waterman, variant=variant)
        return run_function(framework, score, inputs, "float64", how_to_run(framework, variant))

    whole, parts = map(result_of, ("fused", "wavefront"))
    np.testing.assert_allclose(parts.score, whole.score, rtol=1e-12)
    np.testing.assert_allclose(parts.gradients["gap"], whole.gradients["gap"], rtol=0, atol=1e-12)
