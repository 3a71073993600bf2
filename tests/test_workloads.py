"""The problems beside the alignments: every variant of both frameworks against NumPy, gates, refusals, equal errors."""

import functools
import importlib
import inspect
import itertools
import re
from typing import Any

import jax
import numpy as np
import pytest
import torch
from frameworks import DTYPES, FRAMEWORKS
from native_calls import others_slow
from torch.autograd import forward_ad

import torch_impl.linear_regression
import torch_impl.stencil
from shared.bench.cases import Settings
from shared.checks import CannotDifferentiate
from shared.problems import PROBLEMS
from shared.problems.problem import UnusableInput
from shared.reference.linear_regression import START, fit, least_squares
from shared.reference.stencil import gradient, stencil
from shared.variants import variant_names

FIT = "linear_regression"
SIZES = {FIT: (50,), "stencil": (5, 4)}
FUNCTIONS = {FIT: "fit", "stencil": "stencil"}
BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)
EVERY_STENCIL = pytest.mark.parametrize("variant", variant_names("stencil"))


def inputs(problem: str, size: tuple[int, ...] = (), dtype: str = "float64", seed: int = 0, **arguments: Any) -> Any:
    settings = Settings(problem=problem, size=size or SIZES[problem], dtype=dtype, seed=seed, arguments=arguments)
    (made,) = PROBLEMS[problem].inputs(settings).values()
    return made


def public(framework: str, problem: str) -> Any:
    return getattr(importlib.import_module(f"{framework}_impl.{problem}"), FUNCTIONS[problem])


def computed(
    framework: str, problem: str, given: Any, variant: str, pass_name: str, compiled: bool = False, **options: Any
) -> np.ndarray:
    backend = FRAMEWORKS[framework].backend
    arrays = given.arguments(pass_name)
    with backend.precision(str(arrays[0].dtype)):
        function = backend.call_of(problem, variant, pass_name, options, compiled=compiled)
        return backend.to_numpy(function(*(backend.to_device(array, "cpu") for array in arrays)))


def assert_right(problem: str, result: np.ndarray, given: Any, pass_name: str) -> Any:
    expected = PROBLEMS[problem].reference_results(given, [pass_name])
    verdict = PROBLEMS[problem].judge(pass_name, result, expected, given, str(given.arguments(pass_name)[0].dtype))
    assert verdict.passed, verdict.text
    return verdict


def test_a_step_of_the_reference_goes_down_the_slope_of_the_error():
    data, rate, h = inputs(FIT), 1e-2, 1e-6

    def error(a: float, b: float) -> float:
        return float(np.mean((a * data.x + b - data.y) ** 2))

    a, b = START
    slopes = np.array([error(a + h, b) - error(a - h, b), error(a, b + h) - error(a, b - h)]) / (2 * h)
    expected = np.array(START) - rate * slopes
    assert fit(data.x, data.y, epochs=1, learning_rate=rate) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("framework", "variant"),
    others_slow([*itertools.product(FRAMEWORKS, variant_names("linear_regression"))], *range(7)),
)
def test_every_variant_equals_the_gradient_descent_of_numpy(framework: str, variant: str):
    data = inputs(FIT)
    for epochs in (0, 1, 23):  # a compiled loop takes several steps in an iteration
        result = computed(framework, FIT, data, variant, "train", epochs=epochs, learning_rate=0.3)
        assert result.dtype == "float64" and result.shape == (2,)
        assert np.abs(result - fit(data.x, data.y, epochs=epochs, learning_rate=0.3)).max() < 1e-13


def test_pytorch_compiles_for_more_sizes_than_its_default_limit_allows(monkeypatch: pytest.MonkeyPatch):
    module = torch_impl.linear_regression
    traced = torch.compile(module._step, backend="eager", dynamic=False, fullgraph=True)  # without the slow part
    monkeypatch.setitem(module._LOOPS, "jit_step", functools.partial(module._python_loop, traced))
    for count in range(2, 13):
        data, options = inputs(FIT, (count,)), {"epochs": 2, "learning_rate": 0.1}
        result = computed("torch", FIT, data, "jit_step", "train", **options)
        assert result == pytest.approx(fit(data.x, data.y, **options), rel=1e-12)


def test_pytorch_gives_no_gradient_of_a_fit_rather_than_a_wrong_one():
    data = inputs(FIT)
    x, y, rate = (torch.tensor(value, dtype=torch.float64) for value in (data.x, data.y, 0.1))
    call: Any = functools.partial(torch_impl.linear_regression.fit, x, epochs=3, variant="eager_loop")
    with forward_ad.dual_level():
        dual, dual_rate = (forward_ad.make_dual(value, torch.ones_like(value)) for value in (y, rate))
        for derivative in (
            lambda: call(y.clone().requires_grad_()),
            lambda: call(y, learning_rate=rate.clone().requires_grad_()),
            lambda: torch.func.grad(lambda values: call(values).sum())(y),
            lambda: call(dual),
            lambda: call(y, learning_rate=dual_rate),
        ):
            with pytest.raises(CannotDifferentiate, match="fit cannot be differentiated in PyTorch"):
                derivative()
    expected = fit(data.x, data.y, epochs=3, learning_rate=0.1)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert call(y.clone().requires_grad_(), learning_rate=0.1).numpy() == pytest.approx(expected, rel=1e-12)


def test_jax_differentiates_a_fit():
    data = inputs(FIT, (20,))
    step = 1e-6 * (np.arange(20) == 3)
    with FRAMEWORKS["jax"].backend.precision("float64"):
        for variant in variant_names("linear_regression"):
            call = functools.partial(public("jax", FIT), data.x, epochs=5, learning_rate=0.1, variant=variant)
            slope = jax.grad(lambda y: call(y)[0])(data.y)[3]  # noqa: B023
            difference = float(call(data.y + step)[0] - call(data.y - step)[0]) / 2e-6
            assert float(slope) == pytest.approx(difference, rel=1e-5)


@pytest.mark.parametrize("framework", ["jax", pytest.param("torch", marks=pytest.mark.slow)])
def test_ten_thousand_epochs_pass_the_gate_and_end_near_the_least_squares(framework: str):
    data = inputs(FIT)
    result = computed(framework, FIT, data, "compiled_loop", "train", **data.options, **data.parameters)
    verdict, best = assert_right(FIT, result, data, "train"), least_squares(data.x, data.y)
    assert result == pytest.approx(best, abs=2e-3)
    assert verdict.summary.startswith(f"a {result[0]:.6f}, b ") and f"least squares a {best[0]:.6f}" in verdict.summary


def test_the_reference_of_the_stencil_is_the_sum_over_three_neighbours():
    w = np.arange(1.0, 9.0).reshape(4, 2)
    # inner rows of the first column: 1 + 3 + 5 and 3 + 5 + 7; the second weighs (0, 9, 15, 0)
    assert stencil(w).tolist() == [[1, 0, 0], [1, 9, 9 * 4 + 15 * 6], [1, 15, 9 * 4 + 15 * 6], [1, 0, 0]]


def test_the_gradient_of_the_stencils_reference_is_that_of_its_differences():
    data, h = inputs("stencil"), 1e-6
    slope = gradient(data.w, data.cotangent).ravel()
    for number, step in enumerate(h * np.eye(data.w.size).reshape(-1, *data.w.shape)):
        difference = (data.cotangent * (stencil(data.w + step) - stencil(data.w - step))).sum()
        assert slope[number] == pytest.approx(difference / (2 * h), abs=1e-8)


@pytest.mark.parametrize("pass_name", ["value", "gradient"])
@pytest.mark.parametrize(("dtype", "shape"), [("float64", (3, 1)), ("float32", (4, 3))])
@EVERY_STENCIL
@BOTH
def test_every_variant_of_the_stencil_equals_numpy(framework, variant, dtype, shape, pass_name):
    data = inputs("stencil", shape, dtype)
    result = computed(framework, "stencil", data, variant, pass_name, compiled=framework == "jax")
    assert_right("stencil", result, data, pass_name)


@pytest.mark.slow
def test_what_pytorch_compiles_has_the_gradient_of_numpy():
    data = inputs("stencil", (4, 3), "float32")
    torch._dynamo.reset()  # what another test has made to fail is not compiled again
    result = computed("torch", "stencil", data, "scan_sum", "gradient", compiled=True)
    assert_right("stencil", result, data, "gradient")


def second_derivative(given: Any) -> np.ndarray:
    """The derivative of the gradient along a vector of ones, by differences."""
    h = 1e-6
    return (gradient(given.w + h, given.cotangent) - gradient(given.w - h, given.cotangent)) / (2 * h)


@EVERY_STENCIL
def test_jax_differentiates_every_stencil_twice(variant: str):
    data = inputs("stencil", (4, 3))
    with FRAMEWORKS["jax"].backend.precision("float64"):
        slope = jax.grad(lambda w: (public("jax", "stencil")(w, variant=variant) * data.cotangent).sum())
        _, second = jax.jit(lambda w: jax.jvp(slope, (w,), (np.ones_like(data.w),)))(data.w)
    np.testing.assert_allclose(second, second_derivative(data), atol=1e-7)


@EVERY_STENCIL
def test_pytorch_has_further_derivatives_only_without_scan_and_otherwise_raises(variant: str):
    data = inputs("stencil", (4, 3))
    w, cotangent = torch.from_numpy(data.w), torch.from_numpy(data.cotangent)
    leaf = w.clone().requires_grad_()

    def total(w: torch.Tensor) -> torch.Tensor:
        return (torch_impl.stencil.stencil(w, variant=variant) * cotangent).sum()

    def twice() -> torch.Tensor:
        (first,) = torch.autograd.grad(total(leaf), leaf, create_graph=True)
        return torch.autograd.grad(first.sum(), leaf)[0]

    def along_a_dual() -> Any:
        with forward_ad.dual_level():
            return total(forward_ad.make_dual(w, w))

    if variant not in torch_impl.stencil.SCANNING:
        np.testing.assert_allclose(twice(), second_derivative(data), atol=1e-7)
        return
    instead = "use .* 'column_sum', or autograd$"
    for derivative, text in (
        (twice, "for second derivatives use 'cell_loop', 'column_convolve', 'column_sum'$"),
        (lambda: torch.func.grad(total)(w), rf"cannot be differentiated by torch\.func; {instead}"),
        (along_a_dual, f"cannot be differentiated in forward mode; {instead}"),
        (lambda: torch.func.linearize(total, w), f"in forward mode; {instead}"),
    ):
        with pytest.raises(CannotDifferentiate, match=text):
            derivative()
    # an error of the scan operator in linearize would leave autograd switched off
    (first,) = torch.autograd.grad(total(leaf), leaf)
    np.testing.assert_allclose(first, gradient(data.w, data.cotangent), atol=1e-12)


# problem, pass, where the gate has the right result, and where a value of it is changed
GATED = [(FIT, "train", "descent", 1)]
GATED += [("stencil", name, name, (2, 1)) for name in ("value", "gradient")]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("problem", "pass_name", "right", "at"), GATED)
def test_the_gate_rejects_an_error_just_above_the_tolerance(problem, pass_name, right, at, dtype):
    data = inputs(problem, dtype=dtype)
    expected = PROBLEMS[problem].reference_results(data, [pass_name])
    judge = functools.partial(PROBLEMS[problem].judge, pass_name, expected=expected, inputs=data, dtype=dtype)
    exact = getattr(expected, right)
    allowed = importlib.import_module(f"shared.problems.{problem}").ALLOWED[dtype]
    step = np.zeros(exact.shape)
    step[at] = allowed * (np.abs(exact).max() if problem == "stencil" else 1.0)
    near = (exact + 0.8 * step).astype(dtype)
    assert judge(near).passed
    too_far = (exact + 1.3 * step).astype(dtype)
    for wrong in (too_far, np.full(exact.shape, np.nan, dtype), near[1:], near.astype("float16")):
        assert not judge(wrong).passed


REFUSED = [
    (FIT, (1,), {}, "a line takes at least 2 points, got 1"),
    (FIT, (50,), {"learning_rate": 3.0, "epochs": 20}, "runs away with .* rate of 3: take"),
    (FIT, (50,), {"learning_rate": 3.0}, "runs away with a learning rate of 3: take"),
    ("stencil", (2, 4), {}, "a height of at least 3, got 2"),
]


@pytest.mark.parametrize(("problem", "size", "arguments", "text"), REFUSED)
def test_inputs_without_a_usable_reference_are_refused(problem, size, arguments, text):
    with pytest.raises(UnusableInput, match=text):
        PROBLEMS[problem].reference_results(inputs(problem, size, **arguments), PROBLEMS[problem].passes)


@BOTH
@pytest.mark.parametrize("problem", SIZES)
def test_defaults_are_those_of_the_public_function(problem: str, framework: str):
    parameters = inspect.signature(public(framework, problem)).parameters.values()
    options = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in ("variant", "compiled")]
    assert {p.name: p.default for p in options} == {n: a.default for n, a in PROBLEMS[problem].arguments.items()}


BAD: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    (FIT, {"y": np.ones(4)}, ValueError, "x and y must be alike, got float64 of shape (50,)"),
    (FIT, {"x": np.ones(0), "y": np.ones(0)}, ValueError, "x must have at least 1 point, got 0"),
    (FIT, {"x": np.arange(3)}, TypeError, "x must be float32 or float64, got int64"),
    (FIT, {"epochs": -1}, ValueError, "epochs must be at least 0, got -1"),
    (FIT, {"learning_rate": 0.0}, ValueError, "learning_rate must be positive and finite"),
    (FIT, {"learning_rate": 10**400}, ValueError, "must be positive and finite"),
    (FIT, {"variant": "vmap"}, ValueError, "variant must be one of 'eager_loop', "),
    ("stencil", {"w": np.ones((2, 5))}, ValueError, "w must have shape (height, width) with at least 3 rows and 1 col"),
    ("stencil", {"w": np.ones((5, 4), int)}, TypeError, "w must be float32 or float64, got int64"),
    ("stencil", {"w": [[1.0]]}, TypeError, "w must be a floating-point array of this framework or NumPy, got list"),
]


@BOTH
@pytest.mark.parametrize(("problem", "changed", "error", "text"), BAD)
def test_bad_arguments_get_the_same_error_from_both(problem, changed, error, text, framework):
    with FRAMEWORKS[framework].backend.precision("float64"), pytest.raises(error, match=re.escape(text)):
        public(framework, problem)(**{**inputs(problem).arrays, **changed})
