"""hessian_vector_product: the reference's numbers, in one native call where nothing more is asked for."""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import BY_HAND, FRAMEWORKS, PROBLEMS
from native_calls import noted_calls
from torch.autograd import forward_ad

import jax_impl
import torch_impl
from shared import reference
from shared.alignments import ALIGNMENTS
from shared.checks import CannotDifferentiate

FRAMEWORK = pytest.mark.parametrize("framework", FRAMEWORKS)
EVERY = pytest.mark.parametrize("problem", PROBLEMS)
generator = np.random.default_rng(3)
MATRICES = generator.normal(size=(4, 6, 5)).astype(np.float32)
LENGTHS = np.array([[6, 5], [4, 5], [0, 3], [2, 1]], np.int32)
INSIDE = (np.arange(6)[:, None] < LENGTHS[:, :1, None]) & (np.arange(5) < LENGTHS[:, 1:, None])
PADDED = np.where(INSIDE, MATRICES, np.nan)
VECTOR = np.where(INSIDE, generator.normal(size=MATRICES.shape), np.nan).astype(np.float32)

needs_fused = pytest.mark.skipif(
    "fused" not in torch_impl.variants("smith_waterman"), reason="the native kernels are absent"
)


def wanted(problem: str) -> np.ndarray:
    zeros = np.nan_to_num(PADDED), np.nan_to_num(VECTOR)
    return reference.hessian_vector_product(problem, *zeros, LENGTHS)["similarity"]


def product_of(framework: str, problem: str, variant: str = "auto", dtype: str = "float32") -> np.ndarray:
    package, backend = FRAMEWORKS[framework]
    function = functools.partial(getattr(package, problem), variant=variant)
    product = functools.partial(package.hessian_vector_product, function)
    with backend.precision(dtype):
        matrices, vector = (backend.to_device(array.astype(dtype), "cpu") for array in (PADDED, VECTOR))
        if framework == "jax":
            product = jax.jit(product)
        return backend.to_numpy(product(matrices, vector, LENGTHS))


@EVERY
@FRAMEWORK
def test_the_numbers_are_the_references_whatever_stands_outside_lengths(framework, problem):
    variants = [name for name in BY_HAND if name not in FRAMEWORKS[framework].backend.absent]
    if framework == "jax" and problem != "needleman_wunsch":
        variants.remove("wavefront")  # XLA takes seconds to compile it: test_gradients.py has the others
    for variant in variants:
        for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-9)):
            found = product_of(framework, problem, variant, dtype)
            assert found.dtype == dtype
            np.testing.assert_allclose(found, wanted(problem), rtol=0, atol=tolerance, err_msg=variant)
            assert not found[~INSIDE].any(), variant


@FRAMEWORK
def test_the_wavefront_is_exact_where_tangents_add_up_along_a_long_alignment(framework):
    # at its end they are the expected number of matches, a thousand times what is left of them
    package, backend = FRAMEWORKS[framework]
    size = 400
    noise = np.random.default_rng(1).normal(size=(size, size))
    matrix = np.where(np.eye(size), 4, noise - 1.5).astype(np.float32)
    ones = np.ones_like(matrix)
    expected = torch_impl.hessian_vector_product(
        torch_impl.smith_waterman, torch.from_numpy(matrix).double(), torch.from_numpy(ones).double()
    )
    product = functools.partial(package.hessian_vector_product, package.smith_waterman, variant="wavefront")
    if framework == "jax":
        product = jax.jit(product)
    found = backend.to_numpy(product(backend.to_device(matrix, "cpu"), backend.to_device(ones, "cpu")))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1.5e-4)


def decoy(rows: int, cols: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Similarities, and cells of small probability: of an alignment that a better one in the same columns outweighs."""
    similarity = np.random.default_rng(0).normal(size=(rows, cols)) - 2
    row, col = rows // 4, cols - rows // 4 * 3
    similarity[range(row, rows - 2), range(col, cols - 2)] = 2.5
    similarity[range(3), range(col + 4, col + 7)] = 3
    similarity[5, 5] = -20
    return similarity.astype(np.float32), [(1, col + 5), (5, 5)]


@needs_fused
@pytest.mark.parametrize("shape", [(12, 12), (40, 48)])  # the first has an exponent per cell
@EVERY
def test_a_direction_may_be_large_where_alignments_hardly_go(problem, shape):
    """As that of a cross entropy is, by 1 / marginal. A small share of a large tangent must not take others' digits."""
    similarity, cells = decoy(*shape)
    s = torch.from_numpy(similarity)
    function = getattr(torch_impl, problem)
    marginals = torch_impl.marginals(function, s.double(), variant="wavefront")
    vector = torch.zeros(shape)
    for cell in cells:
        vector[cell] = 1 / marginals[cell]
    assert vector.max() > 1e5
    expected = torch_impl.hessian_vector_product(function, s.double(), vector.double(), variant="wavefront")
    largest = max(1.0, float(expected.abs().max()))
    for dtype, bound in ((np.float32, 1e-4), (np.float64, 1e-8)):
        arrays = similarity.astype(dtype), vector.numpy().astype(dtype)
        for package in (jax_impl, torch_impl):
            with jax.enable_x64(dtype == np.float64):
                own = functools.partial(getattr(package, problem), variant="fused")
                found = np.asarray(package.hessian_vector_product(own, *arrays))
            np.testing.assert_allclose(found, expected, rtol=0, atol=bound * largest)


@needs_fused
@pytest.mark.parametrize("shape", [(12, 12), (60, 80)])
@EVERY
def test_so_may_those_of_gap_and_temperature_beside_forbidden_matches(problem, shape):
    similarity, cells = decoy(*shape)
    similarity[np.random.default_rng(1).random(shape) < 0.1] = -1e9
    similarity[cells[1]] = -20

    def second_derivatives(variant: str, dtype: torch.dtype) -> list[float]:
        defaults = ALIGNMENTS[problem].parameters
        values = {name: torch.tensor(value, dtype=dtype, requires_grad=True) for name, value in defaults.items()}
        function = functools.partial(getattr(torch_impl, problem), variant=variant)
        s = torch.from_numpy(similarity).to(dtype).requires_grad_()
        marginals = torch_impl.marginals(function, s, **values)
        loss = -torch.log(torch.stack([marginals[cell] for cell in cells])).sum()
        (of_temperature,) = torch.autograd.grad(function(s, **values), values["temperature"], create_graph=True)
        every = torch.autograd.grad(loss, list(values.values())) + torch.autograd.grad(of_temperature, s)
        return [float(value) for part in every for value in part.flatten()]

    expected = second_derivatives("wavefront", torch.float64)
    for dtype, bound in ((torch.float32, 1e-4), (torch.float64, 1e-8)):
        atol = bound * max(map(abs, expected))
        np.testing.assert_allclose(second_derivatives("fused", dtype), expected, rtol=0, atol=atol)


@needs_fused
@EVERY
def test_a_certain_alignment_hardly_depends_on_the_temperature(problem):
    # at its end tangents are the expected number of matches: what is lost of them there, all its matches have in common
    similarity = torch.from_numpy(np.random.default_rng(1).normal(size=(150, 150)) + 6 * np.eye(150))

    def slopes(dtype: torch.dtype) -> list[float]:
        defaults = ALIGNMENTS[problem].parameters | {"temperature": 0.5}
        values = {name: torch.tensor(value, dtype=dtype, requires_grad=True) for name, value in defaults.items()}
        function = functools.partial(getattr(torch_impl, problem), variant="fused")
        loss = (torch_impl.marginals(function, similarity.to(dtype), **values) ** 2).sum()
        return [float(slope) for slope in torch.autograd.grad(loss, list(values.values()))]

    np.testing.assert_allclose(slopes(torch.float32), slopes(torch.float64), rtol=0, atol=1e-5)


def test_numpy_arrays_and_a_single_pair_are_taken():
    single = [array[0] for array in (MATRICES, VECTOR)]
    expected = reference.hessian_vector_product("free_gap", single[0], single[1], None)["similarity"]
    for package in (jax_impl, torch_impl):
        found = package.hessian_vector_product(package.free_gap, single[0], single[1])
        np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=1e-5)


@FRAMEWORK
def test_a_half_precision_similarity_gives_its_own_dtype(framework):
    package, backend = FRAMEWORKS[framework]
    half = backend.to_device(np.float16(np.nan_to_num(PADDED)), "cpu")
    found = package.hessian_vector_product(package.smith_waterman, half, np.nan_to_num(VECTOR), LENGTHS)
    assert str(found.dtype).endswith("float16")
    np.testing.assert_allclose(backend.to_numpy(found), wanted("smith_waterman"), rtol=0, atol=1e-2)


# without what nobody asked for


@needs_fused
def test_where_nothing_is_differentiated_again_torch_computes_no_gradients(monkeypatch):
    called = noted_calls(monkeypatch)
    s, vector = torch.from_numpy(MATRICES), torch.from_numpy(VECTOR)
    gap = torch.tensor(-1.0, requires_grad=True)
    torch_impl.hessian_vector_product(torch_impl.smith_waterman, s, vector, variant="fused")
    with torch.inference_mode():
        torch_impl.hessian_vector_product(functools.partial(torch_impl.smith_waterman, gap=gap), s, vector)
    with torch.no_grad():
        torch_impl.hessian_vector_product(torch_impl.smith_waterman, s.requires_grad_(), vector, gap=gap)
    assert called == ["product"] * 3


@needs_fused
def test_under_jit_jax_computes_no_gradients():
    product = functools.partial(jax_impl.hessian_vector_product, jax_impl.smith_waterman)
    text = jax.jit(product).lower(MATRICES, VECTOR).compile().as_text() or ""
    assert re.findall(r'custom_call_target="jax_torch_alignment_(\w+)_float32"', text) == ["product"]


# with more around it


def test_it_is_the_gradient_of_a_loss_on_the_marginals():
    s = torch.tensor(MATRICES, requires_grad=True)
    vector = torch.tensor(np.nan_to_num(VECTOR))
    lengths = torch.tensor(LENGTHS)
    (vector * torch_impl.marginals(torch_impl.needleman_wunsch, s, lengths)).sum().backward()
    found = torch_impl.hessian_vector_product(torch_impl.needleman_wunsch, s.detach(), vector, lengths)
    torch.testing.assert_close(found, s.grad)


def test_it_can_be_mapped():
    by_torch = functools.partial(torch_impl.hessian_vector_product, torch_impl.free_gap)
    by_jax = functools.partial(jax_impl.hessian_vector_product, jax_impl.free_gap)
    pairs = np.nan_to_num(VECTOR)
    expected = reference.hessian_vector_product("free_gap", MATRICES, pairs, None)["similarity"]
    mapped = torch.func.vmap(by_torch)(torch.tensor(MATRICES), torch.tensor(pairs))
    np.testing.assert_allclose(mapped, expected, rtol=0, atol=1e-5)
    # over another axis than the first
    last = np.moveaxis(pairs, 0, -1)
    mapped = torch.func.vmap(by_torch, in_dims=(0, -1))(torch.tensor(MATRICES), torch.tensor(last))
    np.testing.assert_allclose(mapped, expected, rtol=0, atol=1e-5)
    pushed = lambda s, vector: jax.jvp(jax.grad(jax_impl.free_gap), (s,), (vector,))[1]  # noqa: E731
    np.testing.assert_allclose(jax.vmap(pushed, in_axes=(0, -1))(MATRICES, last), expected, rtol=0, atol=1e-5)
    # one matrix, several vectors
    columns = torch.func.vmap(by_torch, in_dims=(None, 0))(torch.tensor(MATRICES[0]), torch.tensor(pairs))
    alone = [by_torch(torch.tensor(MATRICES[0]), torch.tensor(vector)) for vector in pairs]
    torch.testing.assert_close(columns, torch.stack(alone))
    np.testing.assert_allclose(jax.vmap(by_jax)(MATRICES, pairs), expected, rtol=0, atol=1e-5)


def test_a_third_derivative_is_right_or_raises():
    matrix, vector = (np.nan_to_num(array[0, :2, :2]) for array in (MATRICES, VECTOR))

    def by_jax(m: Any, variant: str) -> Any:
        return (jax_impl.hessian_vector_product(jax_impl.free_gap, m, vector, variant=variant) ** 2).sum()

    gradient = jax.jit(jax.grad(functools.partial(by_jax, variant="diagonal_loop")))
    expected = gradient(jnp.asarray(matrix))
    leaf = torch.tensor(matrix, requires_grad=True)
    product = functools.partial(torch_impl.hessian_vector_product, torch_impl.free_gap, leaf, torch.tensor(vector))
    (product(variant="diagonal_loop") ** 2).sum().backward()
    torch.testing.assert_close(leaf.grad, torch.tensor(np.asarray(expected)), rtol=1e-4, atol=1e-5)
    for variant in torch_impl.variants("free_gap")[-2:]:
        text = f"variant '{variant}' is right to second order only"
        with pytest.raises(CannotDifferentiate, match=text):
            (product(variant=variant) ** 2).sum().backward()
        with pytest.raises(CannotDifferentiate, match=text):
            jax.grad(functools.partial(by_jax, variant=variant))(jnp.asarray(matrix))


# bad arguments


@FRAMEWORK
def test_a_bad_vector_is_refused_with_the_same_text(framework):
    product = FRAMEWORKS[framework].package.hessian_vector_product
    function = FRAMEWORKS[framework].package.free_gap
    array = "vector must be a floating-point array of this framework or NumPy, got list"
    for vector, error, text in (
        ([[1.0]], TypeError, array),
        (MATRICES.astype(np.int32), TypeError, "vector must be floating-point, got int32"),
        (MATRICES[0], ValueError, "vector must have similarity's shape (4, 6, 5), got (6, 5)"),
    ):
        with pytest.raises(error) as raised:
            product(function, MATRICES, vector)
        assert str(raised.value) == text
    with pytest.raises(TypeError, match="similarity must be a floating-point array"):
        product(function, None, MATRICES)
    with pytest.raises(TypeError, match="function must be an alignment function"):
        product("free_gap", MATRICES, MATRICES)


def test_a_variant_that_is_right_to_first_order_only_raises():
    with pytest.raises(CannotDifferentiate, match="is right to first order only"):
        torch_impl.hessian_vector_product(torch_impl.free_gap, MATRICES, MATRICES, variant="scan_select")


@pytest.mark.parametrize("variant", [name for name in torch_impl.variants("smith_waterman") if name != "cell_loop"])
def test_an_empty_batch_has_an_empty_product(variant):
    empty = torch.zeros(0, 4, 5)
    product = torch_impl.hessian_vector_product(torch_impl.smith_waterman, empty, empty, variant=variant)
    assert product.shape == (0, 4, 5)


@pytest.mark.parametrize("variant", ["diagonal_loop", *BY_HAND])
def test_a_dual_number_of_torch_keeps_its_tangent(variant):
    similarity, direction = torch.randn(2, 4, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    function = functools.partial(torch_impl.smith_waterman, variant=variant)
    wanted = torch_impl.hessian_vector_product(function, similarity, direction)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(similarity, direction)
        expected, tangent = forward_ad.unpack_dual(torch_impl.marginals(function, dual))
        torch.testing.assert_close(expected, torch_impl.marginals(function, similarity))
        torch.testing.assert_close(tangent, wanted)
        if variant in BY_HAND:
            with pytest.raises(RuntimeError, match="right to second order only"):
                torch_impl.hessian_vector_product(function, dual, similarity)
