"""Uses of the functions in models: closures, odd arrays, extreme numbers. Each was wrong once."""

import functools
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import BY_HAND, FRAMEWORKS, PROBLEMS

import jax_impl
import torch_impl
from shared import reference
from shared.tolerances import LARGEST_GAP

PACKAGES = pytest.mark.parametrize("package", [framework.package for framework in FRAMEWORKS.values()])
EVERY = pytest.mark.parametrize("problem", PROBLEMS)
MATRIX = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)


@pytest.mark.parametrize(
    ("problem", "name"), [(problem, name) for problem in PROBLEMS for name in PROBLEMS[problem][0]]
)
def test_torch_marginals_stay_connected_to_what_a_function_closes_over(problem: str, name: str):
    function, similarity = getattr(torch_impl, problem), torch.from_numpy(MATRIX)
    value = torch.tensor(0.7 if name == "temperature" else -0.7, requires_grad=True)
    closed = torch_impl.marginals(lambda s, lengths=None: function(s, lengths, **{name: value}), similarity)
    passed = torch_impl.marginals(function, similarity, **{name: value})
    (by_closure,) = torch.autograd.grad(closed.square().sum(), value)
    (by_argument,) = torch.autograd.grad(passed.square().sum(), value)
    assert by_closure == pytest.approx(by_argument)
    assert by_argument != 0
    assert not torch_impl.marginals(function, similarity).requires_grad  # of plain tensors there is no graph


def test_torch_names_the_variants_that_can_be_mapped():
    usable = "'cell_loop', 'diagonal_loop', 'wavefront', 'fused' or 'auto'"
    with pytest.raises(RuntimeError, match=f"variant 'batch_loop' .* use {usable}"):
        torch.func.vmap(lambda s: torch_impl.smith_waterman(s, variant="batch_loop"))(torch.ones(2, 3, 3))


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")
@pytest.mark.parametrize("variant", ["fused", "wavefront", "scan_select"])
def test_a_float64_array_outside_the_64_bit_mode_of_jax_is_computed_in_float32(variant: str):
    with jax.enable_x64(True):
        wide = jnp.asarray(MATRIX, jnp.float64)
    function = functools.partial(jax_impl.smith_waterman, variant=variant)
    assert jnp.array_equal(function(wide), function(MATRIX))
    assert jnp.array_equal(jax_impl.marginals(function, wide), jax_impl.marginals(function, MATRIX))
    product = jax_impl.hessian_vector_product(function, wide, wide)
    assert jnp.array_equal(product, jax_impl.hessian_vector_product(function, MATRIX, MATRIX))
    for own, expected in zip(*(jax_impl.best_alignment(jax_impl.free_gap, x) for x in (wide, MATRIX)), strict=True):
        assert jnp.array_equal(own, expected)


@PACKAGES
def test_a_function_that_depends_on_the_similarity_linearly_or_not_at_all_has_zeros(package: ModuleType):
    is_torch = package is torch_impl
    matrix = torch.from_numpy(MATRIX) if is_torch else jnp.asarray(MATRIX)

    def constant(similarity: Any, lengths: Any) -> Any:
        return similarity.detach().sum() if is_torch else jax.lax.stop_gradient(similarity).sum()

    def linear(similarity: Any, lengths: Any) -> Any:
        return similarity.sum()

    for function, gradient in ((constant, 0.0), (linear, 1.0)):
        assert np.all(np.asarray(package.marginals(function, matrix)) == gradient)
        assert np.all(np.asarray(package.hessian_vector_product(function, matrix, matrix)) == 0.0)


@PACKAGES
@EVERY
def test_arrays_that_run_backwards_are_accepted(package: ModuleType, problem: str):
    lengths = np.array([5, 4])[::-1]
    got = getattr(package, problem)(MATRIX[::-1], lengths)
    assert float(got) == pytest.approx(float(getattr(reference, problem)(MATRIX[::-1], lengths)), rel=1e-5)


@PACKAGES
@pytest.mark.parametrize(
    ("problem", "name", "gap"),
    [("smith_waterman", "gap", -1e300)]
    + [(problem, name, -1e39) for problem in PROBLEMS for name in PROBLEMS[problem][0] if "gap" in name],
)
def test_a_gap_that_float32_cannot_hold_forbids_gaps(package: ModuleType, problem: str, name: str, gap: float):
    square = MATRIX[:, :4]  # so that a global alignment needs no gap
    wanted = float(getattr(reference, problem)(square, **{name: -1e9}))
    for variant in ("auto",) if package is jax_impl else ("auto", "diagonal_loop", "wavefront"):
        assert float(getattr(package, problem)(square, **{name: gap}, variant=variant)) == pytest.approx(
            wanted, rel=1e-5
        )


@PACKAGES
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("is_by_position", [False, True])
@pytest.mark.parametrize(("problem", "name"), [("smith_waterman", "gap"), ("smith_waterman_affine", "gap_open")])
def test_a_local_alignment_that_needs_a_forbidden_gap_is_none(
    package: ModuleType, problem: str, name: str, is_by_position: bool, dtype: str
):
    function = getattr(package, problem)
    with jax.enable_x64(dtype == "float64"):
        matrix = np.array([[-2, -np.inf, -np.inf], [-np.inf, -np.inf, 1]], dtype)  # no two matches on a diagonal
        gaps = {name: np.full((2, 3), -np.inf, dtype) if is_by_position else -1e39}
        options = {"end": "match"} if problem == "smith_waterman" else {}
        variants = ("fused", "wavefront", "diagonal_loop")
        if package is jax_impl:  # XLA takes seconds to compile the others
            variants = ("fused",) if is_by_position else ("fused", variants[1 + (dtype == "float64")])
        for variant in variants:
            keywords = {**gaps, **options, "variant": variant}
            assert float(function(matrix, **keywords)) == 0
            assert not np.asarray(package.marginals(function, matrix, **keywords)).any()
            product = package.hessian_vector_product(function, matrix, np.ones_like(matrix), **keywords)
            assert not np.asarray(product).any()
        score, matches = package.best_alignment(function, matrix, **gaps, **options)
        assert float(score) == 0
        assert not np.asarray(matches).any()


@PACKAGES
def test_a_global_alignment_that_needs_a_forbidden_gap_is_none(package: ModuleType):
    function = package.needleman_wunsch
    assert float(function(MATRIX, gap=-1e39)) == -np.inf
    assert not np.asarray(package.marginals(function, MATRIX, gap=-1e39)).any()
    score, matches = package.best_alignment(function, MATRIX, gap=-1e39)
    assert float(score) == -np.inf
    assert not np.asarray(matches).any()


@PACKAGES
def test_the_largest_gap_is_still_far_from_infinity(package: ModuleType):
    # worth most: a match of the first cell, then as many gaps as there can be
    keywords = {"gap": LARGEST_GAP}
    assert float(package.smith_waterman(MATRIX, **keywords)) == pytest.approx(7 * LARGEST_GAP)
    marginals = np.asarray(package.marginals(package.smith_waterman, MATRIX, **keywords))
    assert marginals[0, 0] == pytest.approx(1) and marginals.sum() == pytest.approx(1)


@PACKAGES
@pytest.mark.parametrize("problem", ["smith_waterman", "smith_waterman_affine"])
def test_similarities_as_low_as_minus_infinity_is_here_forbid_a_match(package: ModuleType, problem: str):
    pair = np.full((3, 3), np.finfo(np.float32).min)
    assert float(getattr(package, problem)(pair)) == 0.0


@EVERY
def test_jax_promotes_no_type_implicitly(problem: str):
    function, sizes = getattr(jax_impl, problem), np.array([2, 3], np.uint8)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):  # where there are more types
        matrix = jnp.asarray(MATRIX[:2, :3])
        parameters = {name: jnp.float32(limits[0]) for name, limits in PROBLEMS[problem].parameters.items()}
        for variant in jax_impl.variants(problem) if problem == "needleman_wunsch" else BY_HAND:
            own = functools.partial(function, variant=variant)
            jax.make_jaxpr(jax.grad(lambda s, given, own=own: own(s, sizes, **given), (0, 1)))(matrix, parameters)
            jax.make_jaxpr(lambda s, own=own: jax_impl.hessian_vector_product(own, s, s, sizes))(matrix)


@pytest.mark.parametrize(("dtype", "rows", "inside"), [("uint8", 255, 255), ("int64", 2**40, 300), ("int8", -1, 0)])
def test_traced_lengths_of_any_type_are_clipped_to_the_matrix(dtype: str, rows: int, inside: int):
    matrix = np.random.default_rng(1).normal(size=(300, 4)).astype(np.float32)
    with jax.enable_x64(True):
        got = jax.jit(jax_impl.smith_waterman)(matrix, np.array([rows, 3], dtype))
    assert float(got) == pytest.approx(float(reference.smith_waterman(matrix, (inside, 3))), rel=1e-5)
