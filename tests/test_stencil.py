"""The nested-loop stencil: both frameworks, all variants, value and gradient, against NumPy."""

import functools

import numpy as np
import pytest
import torch
from frameworks import DTYPES, FRAMEWORKS
from shared.bench.plan import Settings

import jax_impl.stencil
import torch_impl.stencil
from shared.checks import CannotDifferentiate
from shared.problems import PROBLEMS
from shared.problems.problem import UnusableInput
from shared.problems.stencil import ALLOWED, SIZE, Weights
from shared.reference.stencil import gradient, stencil
from shared.variants import variant_names

MODULES = {"jax": jax_impl.stencil, "torch": torch_impl.stencil}
NAMES = variant_names("stencil")
PROBLEM = PROBLEMS["stencil"]
PASSES = {"value": 1, "gradient": 2}  # how many arrays a call takes
SHOWN = (("float64", (3, 1)), ("float32", (4, 7)), ("float64", (9, 2)))


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
    found = gradient(given.w, given.cotangent)
    for at in np.ndindex(*given.w.shape):
        moved = [given.w.copy(), given.w.copy()]
        moved[0][at] += h
        moved[1][at] -= h
        difference = sum(sign * (given.cotangent * stencil(w)).sum() for sign, w in zip((1, -1), moved, strict=True))
        assert found[at] == pytest.approx(difference / (2 * h), abs=1e-8)


def test_the_default_neither_grows_nor_vanishes():
    given = weights(SIZE)
    last = stencil(given.w)[1:-1, -1]
    assert given.w.min() >= 0 and given.w.max() < 2 / 3 and 0.01 < last.mean() < 100


# the frameworks


@pytest.mark.parametrize("pass_name", PASSES)
@pytest.mark.parametrize(("dtype", "shape"), SHOWN)
@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_variant_equals_numpy(framework: str, variant: str, dtype: str, shape: tuple[int, int], pass_name: str):
    given = weights(shape, dtype)
    result = computed(framework, given, variant, pass_name)
    verdict = PROBLEM.judge(pass_name, result, PROBLEM.answer(given, [pass_name]), given, dtype)
    assert verdict.passed, verdict.text


@pytest.mark.parametrize("pass_name", PASSES)
@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_variant_equals_numpy_when_it_is_compiled(framework: str, variant: str, pass_name: str):
    given = weights((4, 3), "float32")
    result = computed(framework, given, variant, pass_name, compiled=True)
    verdict = PROBLEM.judge(pass_name, result, PROBLEM.answer(given, [pass_name]), given, "float32")
    assert verdict.passed, verdict.text


@pytest.mark.parametrize("variant", NAMES)
def test_jax_differentiates_every_variant_twice(variant: str):
    given = weights((4, 3))
    with FRAMEWORKS["jax"].backend.precision("float64"):
        jax = jax_impl.stencil.jax
        hessian = jax.hessian(lambda w: MODULES["jax"].stencil(w, variant=variant).sum())(given.w)
        wanted = jax.hessian(lambda w: MODULES["jax"].stencil(w, variant="column_sum").sum())(given.w)
    assert np.abs(np.asarray(hessian)).max() > 0.1
    np.testing.assert_allclose(hessian, wanted, atol=1e-12)


@pytest.mark.parametrize("variant", NAMES)
def test_pytorch_differentiates_twice_what_has_no_scan_and_says_so_of_the_others(variant: str):
    given = weights((4, 3))
    w = torch.from_numpy(given.w).requires_grad_()
    value = MODULES["torch"].stencil(w, variant=variant)
    (first,) = torch.autograd.grad((value * torch.from_numpy(given.cotangent)).sum(), w, create_graph=True)
    np.testing.assert_allclose(first.detach(), gradient(given.w, given.cotangent), atol=1e-12)
    if variant in torch_impl.stencil.SCANNING:
        with pytest.raises(
            CannotDifferentiate, match=r"for second derivatives use 'cell_loop', 'column_convolve', 'column_sum'$"
        ):
            torch.autograd.grad(first.sum(), w)
        with pytest.raises(
            CannotDifferentiate, match=r"cannot be differentiated by torch\.func; use .* 'column_sum', or autograd$"
        ):
            torch.func.grad(lambda w: MODULES["torch"].stencil(w, variant=variant).sum())(w)
    else:
        (second,) = torch.autograd.grad(first.sum(), w)
        h = 1e-6
        along = (gradient(given.w + h, given.cotangent) - gradient(given.w - h, given.cotangent)) / (2 * h)
        np.testing.assert_allclose(second, along, atol=1e-7)


# bad arguments

BAD = {
    "a vector": (
        np.ones(3),
        ValueError,
        "w must have shape (height, width) with at least 3 rows and 1 column, got (3,)",
    ),
    "two rows": (np.ones((2, 5)), ValueError, "got (2, 5)"),
    "no column": (np.ones((5, 0)), ValueError, "got (5, 0)"),
    "integers": (np.ones((5, 4), int), TypeError, "w must be float32 or float64, got int64"),
    "a list": ([[1.0]], TypeError, "w must be a floating-point array of this framework or NumPy, got list"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_bad_arguments_get_the_same_error_from_both(framework: str, name: str):
    w, error, text = BAD[name]
    with FRAMEWORKS[framework].backend.precision("float64"), pytest.raises(error) as raised:
        MODULES[framework].stencil(w)
    assert text in str(raised.value)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_unknown_variant_gets_the_same_error_from_both(framework: str):
    with pytest.raises(ValueError, match="variant must be one of 'cell_loop', 'column_convolve', "):
        MODULES[framework].stencil(np.ones((3, 3), np.float32), variant="vmap")


# the problem of the benchmark


@pytest.mark.parametrize("pass_name", PASSES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gate_goes_red_just_beyond_what_is_allowed(dtype: str, pass_name: str):
    given = weights(dtype=dtype)
    answer = PROBLEM.answer(given, [pass_name])
    wanted = getattr(answer, pass_name)
    judge = functools.partial(PROBLEM.judge, pass_name, answer=answer, inputs=given, dtype=dtype)
    step = np.zeros(wanted.shape)
    step[2, 1] = ALLOWED[dtype] * np.abs(wanted).max()
    assert judge((wanted + 0.8 * step).astype(dtype)).passed and not judge((wanted + 1.3 * step).astype(dtype)).passed
    assert not judge(np.full(wanted.shape, np.nan, dtype)).passed and not judge(wanted[1:].astype(dtype)).passed


def test_a_matrix_without_inner_rows_is_refused():
    with pytest.raises(UnusableInput, match="a height of at least 3, got 2"):
        weights((2, 4))


def test_another_shape_has_a_column_less_and_the_work_is_the_cells():
    given = weights((5, 4))
    assert np.array_equal(given.resized.w, given.w[:, :-1]) and given.resized.w.flags.c_contiguous
    assert (given.work, given.resized.work) == (20, 15)
    assert weights((5, 1)).resized.shape == (5, 2)
    assert [array.shape for array in given.arguments("gradient") if array is not None] == [(5, 4), (5, 5)]
