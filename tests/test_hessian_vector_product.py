"""hessian_vector_product: the reference's numbers, in one native call where nothing more is asked for."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import BY_HAND, FRAMEWORKS, PROBLEMS
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


@EVERY
@pytest.mark.parametrize("variant", BY_HAND)
@FRAMEWORK
def test_products_are_the_references_whatever_stands_outside_lengths(framework, variant, problem):
    package, backend = FRAMEWORKS[framework]
    if variant in backend.absent or ((framework, variant) == ("jax", "wavefront") and problem != "needleman_wunsch"):
        pytest.skip("absent, or slow to compile: test_gradients.py has it")
    expected = wanted(problem)
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-8)):
        with backend.precision(dtype):
            arrays = [backend.to_device(array.astype(dtype), "cpu") for array in (PADDED, VECTOR)]
            product = functools.partial(package.hessian_vector_product, getattr(package, problem), variant=variant)
            product = jax.jit(product) if framework == "jax" else product
            result = backend.to_numpy(product(*arrays, LENGTHS))
        assert result.dtype == dtype
        np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance)
        assert not result[~INSIDE].any()


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
    result = backend.to_numpy(product(backend.to_device(matrix, "cpu"), backend.to_device(ones, "cpu")))
    np.testing.assert_allclose(result, expected, rtol=0, atol=1.5e-4)


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
    """A cross entropy has such a direction, 1 / marginal. A small share of it must not take others' digits."""
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
                fused = functools.partial(getattr(package, problem), variant="fused")
                result = np.asarray(package.hessian_vector_product(fused, *arrays))
            np.testing.assert_allclose(result, expected, rtol=0, atol=bound * largest)


@needs_fused
@pytest.mark.parametrize("shape", [(12, 12), (60, 80)])
@pytest.mark.parametrize("problem", [problem for problem in PROBLEMS if problem != "soft_dtw"])
def test_gaps_and_temperature_may_have_large_directions_beside_forbidden_matches(problem, shape):
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
    similarity = np.random.default_rng(1).normal(size=(150, 150)) + 6 * np.eye(150)
    if problem == "soft_dtw":  # of which every cell of a path counts
        similarity = 6 - similarity
    similarity = torch.from_numpy(similarity)

    def slopes(dtype: torch.dtype) -> list[float]:
        defaults = ALIGNMENTS[problem].parameters | {"temperature": 0.5}
        values = {name: torch.tensor(value, dtype=dtype, requires_grad=True) for name, value in defaults.items()}
        function = functools.partial(getattr(torch_impl, problem), variant="fused")
        loss = (torch_impl.marginals(function, similarity.to(dtype), **values) ** 2).sum()
        return [float(slope) for slope in torch.autograd.grad(loss, list(values.values()))]

    np.testing.assert_allclose(slopes(torch.float32), slopes(torch.float64), rtol=0, atol=1e-5)


@FRAMEWORK
def test_a_product_of_half_precision_has_its_dtype(framework):
    package, backend = FRAMEWORKS[framework]
    half = backend.to_device(np.float16(np.nan_to_num(PADDED)), "cpu")
    result = package.hessian_vector_product(package.smith_waterman, half, np.nan_to_num(VECTOR), LENGTHS)
    assert str(result.dtype).endswith("float16")
    np.testing.assert_allclose(backend.to_numpy(result), wanted("smith_waterman"), rtol=0, atol=1e-2)


def test_products_can_be_mapped():
    by_torch = functools.partial(torch_impl.hessian_vector_product, torch_impl.free_gap)
    by_jax = functools.partial(jax_impl.hessian_vector_product, jax_impl.free_gap)
    pushed = lambda s, vector: jax.jvp(jax.grad(jax_impl.free_gap), (s,), (vector,))[1]  # noqa: E731
    pairs = np.nan_to_num(VECTOR)
    last = np.moveaxis(pairs, 0, -1)
    tensors, vectors, columns = map(torch.tensor, (MATRICES, pairs, last))
    expected = reference.hessian_vector_product("free_gap", MATRICES, pairs, None)["similarity"]
    for result in (
        torch.func.vmap(by_torch)(tensors, vectors),
        torch.func.vmap(by_torch, in_dims=(0, -1))(tensors, columns),
        jax.vmap(by_jax)(MATRICES, pairs),
        jax.vmap(pushed, in_axes=(0, -1))(MATRICES, last),
    ):
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)
    # one matrix, several vectors; and single pairs, NumPy arrays too
    several = torch.func.vmap(by_torch, in_dims=(None, 0))(tensors[0], vectors)
    for result, vector in zip(several, pairs, strict=True):
        for alone in (by_torch(MATRICES[0], vector), by_jax(MATRICES[0], vector)):
            np.testing.assert_allclose(result, np.asarray(alone), rtol=0, atol=1e-5)


@pytest.mark.parametrize("variant", torch_impl.variants("free_gap")[-2:])
def test_a_derivative_of_a_product_by_hand_raises(variant):
    matrix, vector = MATRICES[0, :2, :2], np.nan_to_num(VECTOR[0, :2, :2])
    by_jax, by_torch = (
        functools.partial(package.hessian_vector_product, package.free_gap, vector=vector_of_package, variant=variant)
        for package, vector_of_package in ((jax_impl, vector), (torch_impl, torch.tensor(vector)))
    )
    text = f"variant '{variant}' is right to second order only"
    with pytest.raises(CannotDifferentiate, match=text):
        by_torch(torch.tensor(matrix, requires_grad=True)).sum().backward()
    with pytest.raises(CannotDifferentiate, match=text):
        jax.grad(lambda s: by_jax(s).sum())(jnp.asarray(matrix))


def test_a_product_depends_on_a_gap_that_only_its_function_knows():
    gap = torch.tensor(-1.0, requires_grad=True)
    function = functools.partial(torch_impl.smith_waterman, variant="diagonal_loop")
    matrix, vector = torch.from_numpy(MATRICES), torch.ones(MATRICES.shape)
    of_partial = torch_impl.hessian_vector_product(functools.partial(function, gap=gap), matrix, vector)
    of_keyword = torch_impl.hessian_vector_product(function, matrix, vector, gap=gap)
    assert torch.equal(*(torch.autograd.grad(product.square().sum(), gap)[0] for product in (of_partial, of_keyword)))


@pytest.mark.parametrize(
    ("vector", "error", "text"),
    [
        ([[1.0]], TypeError, "vector must be a floating-point array of this framework or NumPy, got list"),
        (MATRICES.astype(np.int32), TypeError, "vector must be float32, float64, float16, bfloat16, got int32"),
        (MATRICES[0], ValueError, "vector must have similarity's shape (4, 6, 5), got (6, 5)"),
    ],
)
@FRAMEWORK
def test_a_bad_vector_is_refused_with_the_same_text(framework, vector, error, text):
    package = FRAMEWORKS[framework].package
    with pytest.raises(error) as raised:
        package.hessian_vector_product(package.free_gap, MATRICES, vector)
    assert str(raised.value) == text
    with pytest.raises(TypeError, match="function must be an alignment function"):
        package.hessian_vector_product("free_gap", MATRICES, MATRICES)


def test_a_variant_right_to_first_order_only_has_no_product():
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
    expected_product = torch_impl.hessian_vector_product(function, similarity, direction)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(similarity, direction)
        expected, tangent = forward_ad.unpack_dual(torch_impl.marginals(function, dual))
        torch.testing.assert_close(expected, torch_impl.marginals(function, similarity))
        torch.testing.assert_close(tangent, expected_product)
        if variant in BY_HAND:
            with pytest.raises(RuntimeError, match="right to second order only"):
                torch_impl.hessian_vector_product(function, dual, similarity)
