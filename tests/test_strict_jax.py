"""JAX's strict modes and debugging checks, all at once: every function, every variant, up to second derivatives."""

import contextlib
import functools
import gc
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from frameworks import BY_HAND

import jax_impl
from jax_impl.alignment import ABSENT
from jax_impl.linear_regression import fit
from jax_impl.stencil import stencil
from shared.alignments import ALIGNMENTS
from shared.variants import variant_names

VARIANTS = tuple(name for name in variant_names("smith_waterman") if name not in ABSENT)
# the variants for hessian_vector_product, reverse mode twice: one that JAX differentiates by itself is enough
TWICE_IN_REVERSE = ("diagonal_loop", *BY_HAND)


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    with contextlib.ExitStack() as settings:
        settings.enter_context(jax.enable_x64(True))  # where there are more types to promote to
        settings.enter_context(jax.numpy_rank_promotion("raise"))
        settings.enter_context(jax.numpy_dtype_promotion("strict"))
        settings.enter_context(jax.debug_nans(True))
        settings.enter_context(jax.debug_infs(True))
        settings.enter_context(jax.checking_leaks())
        gc.freeze()  # the leak checker collects garbage often: spare it the objects that exist already
        settings.callback(gc.unfreeze)
        yield


def numbers(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(1).normal(size=shape), jnp.float32)


def check_derivatives(
    problem: str, variant: str, similarity: jax.Array, lengths: Any, parameters: Any, **options: Any
) -> None:
    """Compute scores, gradients and their tangents; a setting that is violated raises an error."""
    function = functools.partial(getattr(jax_impl, problem), variant=variant, **options)

    def total(s: jax.Array, parameters: dict[str, jax.Array]) -> jax.Array:
        return function(s, lengths, **parameters).sum()

    def everything(*given: Any) -> Any:
        results: list[Any] = [jax.jvp(jax.value_and_grad(total, (0, 1)), given, given)]
        if variant in TWICE_IN_REVERSE:
            results.append(jax_impl.hessian_vector_product(function, given[0], given[0], lengths, **given[1]))
        return results

    for result in jax.tree.leaves(jax.jit(everything)(similarity, parameters)):
        assert jnp.isfinite(result).all()


# one problem by every variant, the others by what auto is, and affine gaps by the variant that has states of its own
CASES = [(problem, "fused") for problem in ALIGNMENTS]
CASES += [("smith_waterman", variant) for variant in VARIANTS if variant != "fused"]
AFFINE = pytest.param("smith_waterman_affine", "wavefront", marks=pytest.mark.slow)


@pytest.mark.parametrize(("problem", "variant"), [*CASES, AFFINE])
def test_alignments_and_their_derivatives_pass_strict_checks(problem, variant):
    values = {name: jnp.full(2, value, jnp.float32) for name, value in ALIGNMENTS[problem].parameters.items()}
    check_derivatives(problem, variant, numbers(2, 2, 2), np.array([[2, 2], [1, 2]], np.uint8), values)


@pytest.mark.parametrize("variant", ["fused", pytest.param("wavefront", marks=pytest.mark.slow)])
def test_gaps_by_position_of_one_pair_pass_strict_checks(variant):
    values = {"gap": numbers(2, 2), "temperature": jnp.ones(())}
    check_derivatives("smith_waterman", variant, numbers(2, 2), np.array([2, 2]), values, end="match")


@pytest.mark.parametrize(
    "variant", ["fused", *(pytest.param(name, marks=pytest.mark.slow) for name in ("wavefront", "scan_select"))]
)
def test_gaps_by_axis_and_free_end_gaps_pass_strict_checks(variant):
    values = {"gap_open": (jnp.ones(2), -jnp.ones(())), "gap_extend": -jnp.ones(2), "temperature": jnp.ones(2)}
    arguments = numbers(2, 2, 3), np.array([[2, 3], [1, 2]], np.uint8), values
    check_derivatives("needleman_wunsch_affine", variant, *arguments, end_gaps="free")


@pytest.mark.parametrize("problem", ALIGNMENTS)
def test_best_alignments_and_bfloat16_pass_strict_checks(problem):
    function, similarity = getattr(jax_impl, problem), numbers(2, 2, 2).astype(jnp.bfloat16)
    scores, matches = jax_impl.best_alignment(function, similarity, np.array([[2, 2], [1, 2]]))
    assert scores.dtype == function(similarity).dtype == jnp.bfloat16
    assert jnp.isfinite(scores).all() and matches.shape == (2, 2, 2)


@pytest.mark.parametrize("variant", variant_names("linear_regression"))
def test_linear_regression_passes_strict_checks(variant):
    assert jnp.isfinite(fit(numbers(3), numbers(3), epochs=2, variant=variant)).all()


@pytest.mark.parametrize("variant", variant_names("stencil"))
def test_stencils_and_their_gradients_pass_strict_checks(variant):
    value, gradient = jax.value_and_grad(lambda w: stencil(w, variant=variant).sum())(numbers(3, 2))
    assert jnp.isfinite(value) and jnp.isfinite(gradient).all()
