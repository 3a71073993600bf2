"""The training loop: both frameworks, all variants, against NumPy's gradient descent and the least squares."""

import functools
from typing import Any

import jax
import numpy as np
import pytest
import torch
from frameworks import DTYPES, FRAMEWORKS
from hypothesis import given, settings
from hypothesis import strategies as st
from shared.bench.plan import Settings

import jax_impl.linear_regression
import torch_impl.linear_regression
from shared.checks import CannotDifferentiate
from shared.problems import PROBLEMS
from shared.problems.linear_regression import ALLOWED, NOISE, TRUE_A, TRUE_B, Points
from shared.problems.problem import UnusableInput
from shared.reference.linear_regression import START, fit, least_squares
from shared.variants import keyword_defaults, variant_names

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


def test_the_input_is_drawn_from_the_line_that_is_said():
    given = points(200_000)
    assert given.x.min() >= 0 and given.x.max() < 1
    residual = given.y - TRUE_A * given.x - TRUE_B
    assert abs(residual.mean()) < 5e-3 and residual.std() == pytest.approx(NOISE, rel=0.01)
    assert least_squares(given.x, given.y) == pytest.approx([TRUE_A, TRUE_B], abs=0.02)
    assert not np.array_equal(points(seed=1).x, points(seed=2).x)


def test_the_least_squares_have_no_slope_left():
    given = points()
    a, b = least_squares(given.x, given.y)
    residual = a * given.x + b - given.y
    assert abs(residual.mean()) < 1e-12 and abs((residual * given.x).mean()) < 1e-12


def test_a_step_of_the_reference_goes_down_the_slope_of_the_error():
    given, rate, h = points(), 1e-2, 1e-6

    def error(a: float, b: float) -> float:
        return float(np.mean((a * given.x + b - given.y) ** 2))

    a, b = START
    slopes = (error(a + h, b) - error(a - h, b)) / (2 * h), (error(a, b + h) - error(a, b - h)) / (2 * h)
    assert fit(given.x, given.y, epochs=1, learning_rate=rate) == pytest.approx(
        np.array(START) - rate * np.array(slopes)
    )


def test_the_reference_arrives_at_the_least_squares():
    given = points(1000)
    assert fit(given.x, given.y) == pytest.approx(least_squares(given.x, given.y), abs=1e-4)


# the frameworks


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_variant_equals_numpy_s_gradient_descent(framework: str, variant: str, dtype: str):
    given = points(dtype=dtype)
    options = {"epochs": 60, "learning_rate": 0.3}
    wanted = fit(given.x, given.y, **options)
    result = fitted(framework, given, variant, **options)
    assert result.dtype == dtype and result.shape == (2,)
    assert np.abs(result - wanted).max() < (1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("epochs", [1, 9, 10, 11, 23])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_compiled_loop_takes_exactly_so_many_steps(framework: str, epochs: int):
    given = points(30)
    options = {"epochs": epochs, "learning_rate": 0.3}
    result = fitted(framework, given, "compiled_loop", **options)
    assert result == pytest.approx(fit(given.x, given.y, **options), rel=1e-12)


@pytest.mark.parametrize("variant", ["jit_step", "compiled_loop"])
def test_pytorch_compiles_for_more_sizes_than_its_own_limit_allows(variant: str):
    for count in range(2, 13):
        result = fitted("torch", points(count), variant, epochs=2, learning_rate=0.01 * count)
        wanted = fit(points(count).x, points(count).y, epochs=2, learning_rate=0.01 * count)
        assert result == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("variant", NAMES)
def test_pytorch_gives_no_gradient_rather_than_a_wrong_one(variant: str):
    x, y = (torch.from_numpy(array) for array in (points().x, points().y))
    call = functools.partial(MODULES["torch"].fit, x, epochs=3, variant=variant)
    with pytest.raises(CannotDifferentiate, match="fit cannot be differentiated in PyTorch"):
        call(y.requires_grad_())
    with pytest.raises(CannotDifferentiate, match="fit cannot be differentiated in PyTorch"):
        torch.func.grad(lambda own: call(own).sum())(y.detach())
    with torch.no_grad():
        assert call(y).isfinite().all()


@pytest.mark.parametrize("variant", NAMES)
def test_pytorch_fits_in_inference_mode_too(variant: str):
    wanted = fit(points().x, points().y, epochs=3, learning_rate=0.1)
    with torch.inference_mode():
        x, y = (torch.tensor(array) for array in (points().x, points().y))
        assert x.is_inference()
        result = MODULES["torch"].fit(x, y, epochs=3, learning_rate=0.1, variant=variant)
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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ten_thousand_epochs_pass_the_gate_and_end_near_the_least_squares(framework: str, dtype: str):
    given = points(1000, dtype)
    result = fitted(framework, given, "compiled_loop", **given.options, **given.parameters)
    verdict = PROBLEM.judge("train", result, PROBLEM.answer(given, ["train"]), given, dtype)
    assert verdict.passed, verdict.text
    assert result == pytest.approx(least_squares(given.x, given.y), abs=2e-3)


@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_epoch_leaves_the_start(framework: str, variant: str):
    assert fitted(framework, points(), variant, epochs=0).tolist() == list(START)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(count=st.integers(2, 12), epochs=st.integers(1, 5), rate=st.floats(1e-3, 0.4), seed=st.integers(0, 99))
def test_both_frameworks_take_the_same_steps(count: int, epochs: int, rate: float, seed: int):
    given = points(count, seed=seed)
    options = {"epochs": epochs, "learning_rate": rate}
    wanted = fit(given.x, given.y, **options)
    for framework in FRAMEWORKS:
        assert fitted(framework, given, "eager_loop", **options) == pytest.approx(wanted, rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_autograd_runs_in_every_step(framework: str, monkeypatch: pytest.MonkeyPatch):
    counted = []
    if framework == "torch":
        real = torch.autograd.grad
        monkeypatch.setattr(torch.autograd, "grad", lambda *a, **k: (counted.append(1), real(*a, **k))[1])
    else:
        real = jax_impl.linear_regression.jax.grad
        monkeypatch.setattr(
            jax_impl.linear_regression.jax, "grad", lambda *a, **k: (counted.append(1), real(*a, **k))[1]
        )
    fitted(framework, points(), "eager_loop", epochs=7)
    assert len(counted) == 7


def test_pytorch_s_caller_keeps_no_graph_and_no_gradient():
    x, y = (torch.from_numpy(array) for array in (points().x, points().y))
    with torch.no_grad():
        inside = MODULES["torch"].fit(x, y, epochs=3, variant="eager_loop")
    assert not inside.requires_grad and x.grad is None
    assert torch.equal(inside, MODULES["torch"].fit(x, y, epochs=3, variant="eager_loop"))


# bad arguments

BAD = {
    "lengths": (np.ones(3), np.ones(4), {}, ValueError, "x and y must be alike, got float64 of shape (3,)"),
    "axes": (np.ones((3, 1)), np.ones((3, 1)), {}, ValueError, "x must have shape (points,), got (3, 1)"),
    "none": (np.ones(0), np.ones(0), {}, ValueError, "x must have at least 1 point, got 0"),
    "integers": (np.arange(3), np.arange(3), {}, TypeError, "x must be float32 or float64, got int64"),
    "list": ([1.0], np.ones(1), {}, TypeError, "x must be a floating-point array of this framework or NumPy, got list"),
    "epochs": (np.ones(3), np.ones(3), {"epochs": -1}, ValueError, "epochs must be at least 0, got -1"),
    "half an epoch": (np.ones(3), np.ones(3), {"epochs": 0.5}, TypeError, "epochs must be a whole number, got float"),
    "rate": (np.ones(3), np.ones(3), {"learning_rate": 0.0}, ValueError, "learning_rate must be positive and finite"),
    "text for a rate": (np.ones(3), np.ones(3), {"learning_rate": "a"}, TypeError, "must be a number or an array"),
    "a truth value for a rate": (np.ones(3), np.ones(3), {"learning_rate": True}, TypeError, "must be real, got bool"),
    "rates": (np.ones(3), np.ones(3), {"learning_rate": np.ones(2)}, ValueError, "must have shape (), got (2,)"),
    "large rate": (np.ones(3), np.ones(3), {"learning_rate": 10**400}, ValueError, "must be positive and finite"),
    "variant": (np.ones(3), np.ones(3), {"variant": "vmap"}, ValueError, "variant must be one of 'eager_loop', "),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_bad_arguments_get_the_same_error_from_both(framework: str, name: str):
    x, y, options, error, text = BAD[name]
    with FRAMEWORKS[framework].backend.precision("float64"), pytest.raises(error) as raised:
        MODULES[framework].fit(x, y, **options)
    assert text in str(raised.value)


# the problem of the benchmark


@pytest.mark.parametrize("epochs", [20, 10_000])
def test_a_learning_rate_that_runs_away_is_refused_before_anything_is_measured(epochs: int):
    with pytest.raises(UnusableInput, match="runs away with a learning rate of 3: take a smaller one"):
        PROBLEM.answer(points(arguments={"learning_rate": 3.0, "epochs": epochs}), ["train"])


def test_a_few_short_steps_far_from_the_end_are_not_running_away():
    for seed in range(20):
        given = points(3, seed=seed, arguments={"learning_rate": 1e-3, "epochs": 1})
        assert np.isfinite(PROBLEM.answer(given, ["train"]).descent).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gate_goes_red_just_beyond_what_is_allowed(dtype: str):
    given = points(dtype=dtype)
    answer = PROBLEM.answer(given, ["train"])
    judge = functools.partial(PROBLEM.judge, "train", answer=answer, inputs=given, dtype=dtype)
    near, far = (answer.descent + np.array([0, factor * ALLOWED[dtype]]) for factor in (0.9, 1.2))
    assert judge(near.astype(dtype)).passed and not judge(far.astype(dtype)).passed
    assert not judge(np.full(2, np.nan, dtype)).passed and not judge(np.zeros(3, dtype)).passed
    assert not judge(near.astype("float16")).passed


def test_what_was_found_is_told_beside_the_least_squares():
    given = points()
    answer = PROBLEM.answer(given, ["train"])
    told = PROBLEM.judge("train", answer.descent, answer, given, "float64").told
    assert told is not None
    assert told.startswith(f"a {answer.descent[0]:.6f}, b ") and f"least squares a {answer.best[0]:.6f}" in told


def test_another_shape_has_a_point_less_and_the_work_is_the_epochs():
    given = points(5, arguments={"epochs": 77})
    assert np.array_equal(given.resized.x, given.x[:-1]) and np.array_equal(given.resized.y, given.y[:-1])
    assert given.work == given.resized.work == 77
    with pytest.raises(UnusableInput, match="a line takes at least 2 points, got 1"):
        points(1)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_is_not_asked_for_has_the_default_of_the_function(framework: str):
    defaults = keyword_defaults(MODULES[framework].fit)
    assert {name: argument.default for name, argument in PROBLEM.arguments.items()} == {
        name: value for name, value in defaults.items() if name != "compiled"
    }
