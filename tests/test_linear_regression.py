"""The training loop: both frameworks, all variants, against NumPy's gradient descent and the least squares."""

import functools
from typing import Any

import jax
import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS
from torch.autograd import forward_ad

import jax_impl.linear_regression
import torch_impl.linear_regression
from shared.bench.cases import Settings
from shared.checks import CannotDifferentiate
from shared.problems import PROBLEMS
from shared.problems.linear_regression import NOISE, TRUE_A, TRUE_B, Points
from shared.reference.linear_regression import START, fit, least_squares
from shared.variants import variant_names

MODULES = {"jax": jax_impl.linear_regression, "torch": torch_impl.linear_regression}
NAMES = variant_names("linear_regression")
PROBLEM = PROBLEMS["linear_regression"]


def points(count: int = 50, dtype: str = "float64", **asked: Any) -> Points:
    (given,) = PROBLEM.inputs(Settings(problem=PROBLEM.name, size=(count,), dtype=dtype, **asked)).values()
    return given


def fitted(framework: str, given: Points, variant: str, **options: Any) -> np.ndarray:
    backend, dtype = FRAMEWORKS[framework].backend, str(given.x.dtype)
    with backend.precision(dtype):
        arrays = [backend.to_device(array, "cpu") for array in (given.x, given.y)]
        return backend.to_numpy(MODULES[framework].fit(*arrays, variant=variant, **options))


# the reference


def test_the_input_is_drawn_from_the_documented_line():
    given = points(200_000)
    assert given.x.min() >= 0 and given.x.max() < 1
    residual = given.y - TRUE_A * given.x - TRUE_B
    assert abs(residual.mean()) < 5e-3 and residual.std() == pytest.approx(NOISE, rel=0.01)
    assert least_squares(given.x, given.y) == pytest.approx([TRUE_A, TRUE_B], abs=0.02)
    assert not np.array_equal(points(seed=1).x, points(seed=2).x)


def test_a_step_of_the_reference_goes_down_the_slope_of_the_error():
    given, rate, h = points(), 1e-2, 1e-6

    def error(a: float, b: float) -> float:
        return float(np.mean((a * given.x + b - given.y) ** 2))

    a, b = START
    slopes = (error(a + h, b) - error(a - h, b)) / (2 * h), (error(a, b + h) - error(a, b - h)) / (2 * h)
    assert fit(given.x, given.y, epochs=1, learning_rate=rate) == pytest.approx(
        np.array(START) - rate * np.array(slopes)
    )


# the frameworks


@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_variant_equals_the_gradient_descent_of_numpy(framework: str, variant: str):
    given = points()
    for epochs in (0, 1, 23):  # a compiled loop takes several steps in a turn
        wanted = fit(given.x, given.y, epochs=epochs, learning_rate=0.3)
        result = fitted(framework, given, variant, epochs=epochs, learning_rate=0.3)
        assert result.dtype == "float64" and result.shape == (2,)
        assert np.abs(result - wanted).max() < 1e-13


def test_pytorch_compiles_for_more_sizes_than_its_default_limit_allows(monkeypatch: pytest.MonkeyPatch):
    module = torch_impl.linear_regression
    traced = torch.compile(module._step, backend="eager", dynamic=False, fullgraph=True)  # without the slow part
    monkeypatch.setitem(module._LOOPS, "jit_step", functools.partial(module._python_loop, traced))
    for count in range(2, 13):
        result = fitted("torch", points(count), "jit_step", epochs=2, learning_rate=0.1)
        assert result == pytest.approx(fit(points(count).x, points(count).y, epochs=2, learning_rate=0.1), rel=1e-12)


def test_pytorch_gives_no_gradient_rather_than_a_wrong_one():
    x, y = (torch.from_numpy(array) for array in (points().x, points().y))
    rate = torch.tensor(0.1, dtype=x.dtype)
    call = functools.partial(MODULES["torch"].fit, x, epochs=3, variant="eager_loop")
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
    wanted = fit(points().x, points().y, epochs=3, learning_rate=0.1)
    with torch.no_grad():
        assert call(y.requires_grad_(), learning_rate=0.1).numpy() == pytest.approx(wanted, rel=1e-12)
    with torch.inference_mode():
        result = MODULES["torch"].fit(x.clone(), y.clone(), epochs=3, learning_rate=0.1, variant="eager_loop")
    assert result.numpy() == pytest.approx(wanted, rel=1e-12)


def test_jax_differentiates_a_fit():
    given = points(20)
    step = 1e-6 * (np.arange(20) == 3)
    with FRAMEWORKS["jax"].backend.precision("float64"):
        for variant in NAMES:
            call = functools.partial(MODULES["jax"].fit, given.x, epochs=5, learning_rate=0.1, variant=variant)
            slope = jax.grad(lambda y: call(y)[0])(given.y)[3]  # noqa: B023
            wanted = float(call(given.y + step)[0] - call(given.y - step)[0]) / 2e-6
            assert float(slope) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ten_thousand_epochs_pass_the_gate_and_end_near_the_least_squares(framework: str):
    given = points()
    result = fitted(framework, given, "compiled_loop", **given.options, **given.parameters)
    verdict = PROBLEM.judge("train", result, PROBLEM.reference_results(given, ["train"]), given, "float64")
    assert verdict.passed, verdict.text
    assert result == pytest.approx(least_squares(given.x, given.y), abs=2e-3)


def test_the_line_found_is_reported_beside_the_least_squares():
    given = points()
    answer = PROBLEM.reference_results(given, ["train"])
    told = PROBLEM.judge("train", answer.descent, answer, given, "float64").summary
    assert told is not None
    assert told.startswith(f"a {answer.descent[0]:.6f}, b ") and f"least squares a {answer.best[0]:.6f}" in told
