"""Uses of the functions in models: closures, odd arrays, extreme numbers."""

import functools
from collections.abc import Callable
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS, PROBLEMS

import jax_impl
import torch_impl
from shared import reference
from shared.tolerances import LARGEST_GAP

PACKAGES = pytest.mark.parametrize("package", [framework.package for framework in FRAMEWORKS.values()])
MATRIX = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)


@pytest.mark.parametrize("name", PROBLEMS["smith_waterman_affine"].parameters)
def test_torch_marginals_stay_connected_to_values_in_a_closure(name: str):
    function: Callable[..., torch.Tensor] = torch_impl.smith_waterman_affine
    similarity = torch.from_numpy(MATRIX)
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
@pytest.mark.parametrize("variant", ["fused", "wavefront", pytest.param("scan_select", marks=pytest.mark.slow)])
def test_float64_outside_the_64_bit_mode_of_jax_is_computed_in_float32(variant: str):
    with jax.enable_x64(True):
        wide = jnp.asarray(MATRIX, jnp.float64)
    function = functools.partial(jax_impl.smith_waterman, variant=variant)
    assert jnp.array_equal(function(wide), function(MATRIX))
    assert jnp.array_equal(jax_impl.marginals(function, wide), jax_impl.marginals(function, MATRIX))
    product = jax_impl.hessian_vector_product(function, wide, wide)
    assert jnp.array_equal(product, jax_impl.hessian_vector_product(function, MATRIX, MATRIX))
    for result, expected in zip(*(jax_impl.best_alignment(jax_impl.free_gap, x) for x in (wide, MATRIX)), strict=True):
        assert jnp.array_equal(result, expected)


@PACKAGES
def test_a_function_linear_in_the_similarity_has_no_second_derivative(package: ModuleType):
    matrix = FRAMEWORKS["torch" if package is torch_impl else "jax"].backend.to_device(MATRIX, "cpu")
    stop = torch.Tensor.detach if package is torch_impl else jax.lax.stop_gradient
    for function, gradient in ((lambda s, lengths: stop(s).sum(), 0.0), (lambda s, lengths: s.sum(), 1.0)):
        assert np.all(np.asarray(package.marginals(function, matrix)) == gradient)
        assert np.all(np.asarray(package.hessian_vector_product(function, matrix, matrix)) == 0.0)


@PACKAGES
@pytest.mark.filterwarnings("error")
def test_arrays_that_run_backwards_and_cannot_be_written_are_accepted_without_a_warning(package: ModuleType):
    matrix, lengths = MATRIX[::-1], np.array([5, 4])[::-1]
    for array in (matrix, lengths):
        array.setflags(write=False)
    got = package.needleman_wunsch(matrix, lengths)
    assert float(got) == pytest.approx(float(reference.needleman_wunsch(matrix, lengths)), rel=1e-5)


@PACKAGES
@pytest.mark.parametrize(
    ("problem", "name", "gap"),
    [("smith_waterman_affine", "gap_open", -1e39), ("needleman_wunsch", "gap", -1e300)],
)
def test_a_gap_that_float32_cannot_hold_forbids_gaps(package: ModuleType, problem: str, name: str, gap: float):
    function, square = getattr(package, problem), MATRIX[:, :4]  # square, so that a global alignment needs no gap
    wanted = float(getattr(reference, problem)(square, **{name: -1e9}))
    for variant in ("auto",) if package is jax_impl else ("auto", "diagonal_loop", "wavefront"):
        assert float(function(square, **{name: gap}, variant=variant)) == pytest.approx(wanted, rel=1e-5)


NONE = np.finfo(np.float32).min  # or any similarity as low forbids a match
# problem, similarity, gap, and the score; no two matches lie on one diagonal of the first matrix
FORBIDDEN = [
    ("smith_waterman", [[-2, NONE, NONE], [NONE, -np.inf, 1]], np.full((2, 3), -np.inf), 0.0),
    ("smith_waterman_affine", [[-2, NONE, NONE], [NONE, -np.inf, 1]], -1e39, 0.0),
    ("needleman_wunsch", MATRIX, -1e39, -np.inf),
]


@PACKAGES
@pytest.mark.parametrize(("problem", "similarity", "gap", "expected"), FORBIDDEN)
def test_an_alignment_that_needs_a_forbidden_gap_is_none(package: ModuleType, problem, similarity, gap, expected):
    function, matrix = getattr(package, problem), np.array(similarity, np.float32)
    gaps = {"gap_open" if problem == "smith_waterman_affine" else "gap": gap}
    options = {"end": "match"} if problem == "smith_waterman" else {}
    for variant in ("fused",) if package is jax_impl else ("fused", "wavefront", "diagonal_loop"):
        keywords = {**gaps, **options, "variant": variant}
        assert float(function(matrix, **keywords)) == expected
        assert not np.asarray(package.marginals(function, matrix, **keywords)).any()
        product = package.hessian_vector_product(function, matrix, np.ones_like(matrix), **keywords)
        assert not np.asarray(product).any()
    score, matches = package.best_alignment(function, matrix, **gaps, **options)
    assert float(score) == expected
    assert not np.asarray(matches).any()


@PACKAGES
def test_the_largest_gap_is_still_far_from_infinity(package: ModuleType):
    # worth most: a match of the first cell, then as many gaps as there can be
    keywords = {"gap": LARGEST_GAP}
    assert float(package.smith_waterman(MATRIX, **keywords)) == pytest.approx(7 * LARGEST_GAP)
    marginals = np.asarray(package.marginals(package.smith_waterman, MATRIX, **keywords))
    assert marginals[0, 0] == pytest.approx(1) and marginals.sum() == pytest.approx(1)


@pytest.mark.parametrize(("dtype", "rows", "inside"), [("uint8", 255, 255), ("int64", 2**40, 300), ("int8", -1, 0)])
def test_traced_lengths_of_any_type_are_clipped_to_the_matrix(dtype: str, rows: int, inside: int):
    matrix = np.random.default_rng(1).normal(size=(300, 4)).astype(np.float32)
    with jax.enable_x64(True):
        got = jax.jit(jax_impl.smith_waterman)(matrix, np.array([rows, 3], dtype))
    assert float(got) == pytest.approx(float(reference.smith_waterman(matrix, (inside, 3))), rel=1e-5)
