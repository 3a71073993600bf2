"""The nested-loop stencil: both frameworks, all variants, value and gradient, against NumPy."""

from typing import Any

import jax
import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS
from torch.autograd import forward_ad

import jax_impl.stencil
import torch_impl.stencil
from shared.bench.cases import Settings
from shared.checks import CannotDifferentiate
from shared.problems import PROBLEMS
from shared.problems.stencil import SIZE, Weights
from shared.reference.stencil import gradient, stencil
from shared.variants import variant_names

MODULES = {"jax": jax_impl.stencil, "torch": torch_impl.stencil}
NAMES = variant_names("stencil")
PROBLEM = PROBLEMS["stencil"]
PASSES = {"value": 1, "gradient": 2}  # how many arrays a call takes
COMPARED = (("float64", (3, 1)), ("float32", (4, 3)))


def weights(shape: tuple[int, int] = (5, 4), dtype: str = "float64", seed: int = 0) -> Weights:
    (given,) = PROBLEM.inputs(Settings(problem=PROBLEM.name, size=shape, dtype=dtype, seed=seed)).values()
    return given


def computed(framework: str, given: Weights, variant: str, pass_name: str, compiled: bool = False) -> np.ndarray:
    backend = FRAMEWORKS[framework].backend
    with backend.precision(str(given.w.dtype)):
        arrays = [backend.to_device(array, "cpu") for array in given.arguments(pass_name)]
        function = backend.call_of("stencil", variant, pass_name, {}, compiled=compiled)
        return backend.to_numpy(function(*arrays))


# the reference


def test_the_reference_is_the_sum_over_three_neighbours():
    w = np.arange(1.0, 9.0).reshape(4, 2)
    # inner rows of the first column: 1 + 3 + 5 and 3 + 5 + 7; the second weighs (0, 9, 15, 0)
    assert stencil(w).tolist() == [[1, 0, 0], [1, 9, 9 * 4 + 15 * 6], [1, 15, 9 * 4 + 15 * 6], [1, 0, 0]]


def test_the_gradient_of_the_reference_is_that_of_its_differences():
    given, h = weights((5, 4)), 1e-6
    slope = gradient(given.w, given.cotangent)
    for at in np.ndindex(*given.w.shape):
        moved = [given.w.copy(), given.w.copy()]
        moved[0][at] += h
        moved[1][at] -= h
        difference = sum(sign * (given.cotangent * stencil(w)).sum() for sign, w in zip((1, -1), moved, strict=True))
        assert slope[at] == pytest.approx(difference / (2 * h), abs=1e-8)


def test_the_default_neither_grows_nor_vanishes():
    given = weights(SIZE)
    last = stencil(given.w)[1:-1, -1]
    assert given.w.min() >= 0 and given.w.max() < 2 / 3 and 0.01 < last.mean() < 100


# the frameworks


@pytest.mark.parametrize("pass_name", PASSES)
@pytest.mark.parametrize(("dtype", "shape"), COMPARED)
@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_variant_equals_numpy(framework: str, variant: str, dtype: str, shape: tuple[int, int], pass_name: str):
    given = weights(shape, dtype)
    result = computed(framework, given, variant, pass_name, compiled=framework == "jax")
    verdict = PROBLEM.judge(pass_name, result, PROBLEM.reference_results(given, [pass_name]), given, dtype)
    assert verdict.passed, verdict.text


@pytest.mark.slow
def test_what_pytorch_compiles_has_the_gradient_of_numpy():
    given = weights((4, 3), "float32")
    torch._dynamo.reset()  # what another test has made to fail is not compiled again
    result = computed("torch", given, "scan_sum", "gradient", compiled=True)
    verdict = PROBLEM.judge("gradient", result, PROBLEM.reference_results(given, ["gradient"]), given, "float32")
    assert verdict.passed, verdict.text


def along(given: Weights) -> np.ndarray:
    """The derivative of the gradient along a vector of ones, by differences."""
    h = 1e-6
    return (gradient(given.w + h, given.cotangent) - gradient(given.w - h, given.cotangent)) / (2 * h)


@pytest.mark.parametrize("variant", NAMES)
def test_jax_differentiates_every_variant_twice(variant: str):
    given = weights((4, 3))
    with FRAMEWORKS["jax"].backend.precision("float64"):
        slope = jax.grad(lambda w: (MODULES["jax"].stencil(w, variant=variant) * given.cotangent).sum())
        _, second = jax.jit(lambda w: jax.jvp(slope, (w,), (np.ones_like(given.w),)))(given.w)
    np.testing.assert_allclose(second, along(given), atol=1e-7)


@pytest.mark.parametrize("variant", NAMES)
def test_pytorch_has_further_derivatives_only_without_scan_and_otherwise_raises(variant: str):
    given = weights((4, 3))
    w, cotangent, ones = (
        torch.from_numpy(given.w),
        torch.from_numpy(given.cotangent),
        torch.ones_like(torch.from_numpy(given.w)),
    )
    exact = gradient(given.w, given.cotangent)

    def slope(w: torch.Tensor) -> torch.Tensor:
        return (MODULES["torch"].stencil(w, variant=variant) * cotangent).sum()

    def twice() -> torch.Tensor:
        leaf = w.clone().requires_grad_()
        (first,) = torch.autograd.grad(slope(leaf), leaf, create_graph=True)
        np.testing.assert_allclose(first.detach(), exact, atol=1e-12)
        return torch.autograd.grad(first.sum(), leaf)[0]

    def along_a_dual() -> Any:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(slope(forward_ad.make_dual(w, ones))).tangent

    instead = "use .* 'column_sum', or autograd$"
    for derivative, wanted, text in (
        (twice, along(given), "for second derivatives use 'cell_loop', 'column_convolve', 'column_sum'$"),
        (lambda: torch.func.grad(slope)(w), exact, rf"cannot be differentiated by torch\.func; {instead}"),
        (along_a_dual, exact.sum(), f"cannot be differentiated in forward mode; {instead}"),
        (lambda: torch.func.linearize(slope, w)[1](ones), exact.sum(), f"in forward mode; {instead}"),
    ):
        if variant in torch_impl.stencil.SCANNING:
            with pytest.raises(CannotDifferentiate, match=text):
                derivative()
        else:
            np.testing.assert_allclose(derivative(), wanted, atol=1e-7)
    # an error of the scan operator in linearize would leave autograd switched off
    leaf = w.clone().requires_grad_()
    (first,) = torch.autograd.grad(slope(leaf), leaf)
    np.testing.assert_allclose(first, exact, atol=1e-12)
