"""The problems beside the alignments as the benchmark uses them: gates, refusals, new shapes, and equal errors."""

import functools
import importlib
from typing import Any

import numpy as np
import pytest
from frameworks import DTYPES, FRAMEWORKS

from shared.bench.cases import Settings
from shared.problems import PROBLEMS
from shared.problems.problem import UnusableInput
from shared.variants import keyword_defaults

SIZES = {"linear_regression": (50,), "stencil": (5, 4)}
FUNCTIONS = {"linear_regression": "fit", "stencil": "stencil"}
BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)


def inputs(problem: str, dtype: str = "float64", size: tuple[int, ...] = (), **arguments: Any) -> Any:
    settings = Settings(problem=problem, size=size or SIZES[problem], dtype=dtype, arguments=arguments)
    (given,) = PROBLEMS[problem].inputs(settings).values()
    return given


def public(framework: str, problem: str) -> Any:
    return getattr(importlib.import_module(f"{framework}_impl.{problem}"), FUNCTIONS[problem])


# problem, pass, where the gate has the right result, and where a value of it is changed
GATED = [("linear_regression", "train", "descent", 1)]
GATED += [("stencil", name, name, (2, 1)) for name in ("value", "gradient")]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("problem", "pass_name", "right", "at"), GATED)
def test_the_gate_rejects_an_error_just_above_the_tolerance(problem, pass_name, right, at, dtype):
    given = inputs(problem, dtype)
    expected = PROBLEMS[problem].reference_results(given, [pass_name])
    judge = functools.partial(PROBLEMS[problem].judge, pass_name, expected=expected, inputs=given, dtype=dtype)
    wanted = getattr(expected, right)
    allowed = importlib.import_module(f"shared.problems.{problem}").ALLOWED[dtype]
    step = np.zeros(wanted.shape)
    step[at] = allowed * (np.abs(wanted).max() if problem == "stencil" else 1.0)
    near = (wanted + 0.8 * step).astype(dtype)
    assert judge(near).passed and not judge((wanted + 1.3 * step).astype(dtype)).passed
    for wrong in (np.full(wanted.shape, np.nan, dtype), near[1:], near.astype("float16")):
        assert not judge(wrong).passed


REFUSED = [
    ("linear_regression", (1,), {}, "a line takes at least 2 points, got 1"),
    ("linear_regression", (50,), {"learning_rate": 3.0, "epochs": 20}, "runs away with .* rate of 3: take"),
    ("linear_regression", (50,), {"learning_rate": 3.0}, "runs away with a learning rate of 3: take"),
    ("stencil", (2, 4), {}, "a height of at least 3, got 2"),
]


@pytest.mark.parametrize(("problem", "size", "arguments", "text"), REFUSED)
def test_inputs_without_a_usable_reference_are_refused(problem, size, arguments, text):
    with pytest.raises(UnusableInput, match=text):
        PROBLEMS[problem].reference_results(inputs(problem, size=size, **arguments), PROBLEMS[problem].passes)


def test_a_new_shape_has_a_point_or_a_column_less():
    given = inputs("linear_regression", epochs=77)
    after = given.resized(2)
    assert np.array_equal(after.x, given.x[:-2]) and np.array_equal(after.y, given.y[:-2])
    assert given.work == after.work == 77
    given = inputs("stencil")
    after = given.resized(1)
    assert np.array_equal(after.w, given.w[:, :-1]) and after.w.flags.c_contiguous
    assert (given.work, after.work) == (20, 15)
    assert inputs("stencil", size=(5, 1)).resized(1).shape == (5, 2)


@BOTH
@pytest.mark.parametrize("problem", SIZES)
def test_defaults_are_those_of_the_public_function(problem: str, framework: str):
    defaults = keyword_defaults(public(framework, problem))
    defaults.pop("compiled", None)
    assert {name: argument.default for name, argument in PROBLEMS[problem].arguments.items()} == defaults


BAD: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("linear_regression", {"y": np.ones(4)}, ValueError, "x and y must be alike, got float64 of shape (50,)"),
    ("linear_regression", {"x": np.ones(0), "y": np.ones(0)}, ValueError, "x must have at least 1 point, got 0"),
    ("linear_regression", {"x": np.arange(3)}, TypeError, "x must be float32 or float64, got int64"),
    ("linear_regression", {"epochs": -1}, ValueError, "epochs must be at least 0, got -1"),
    ("linear_regression", {"learning_rate": 0.0}, ValueError, "learning_rate must be positive and finite"),
    ("linear_regression", {"learning_rate": 10**400}, ValueError, "must be positive and finite"),
    ("linear_regression", {"variant": "vmap"}, ValueError, "variant must be one of 'eager_loop', "),
    ("stencil", {"w": np.ones((2, 5))}, ValueError, "w must have shape (height, width) with at least 3 rows and 1 col"),
    ("stencil", {"w": np.ones((5, 4), int)}, TypeError, "w must be float32 or float64, got int64"),
    ("stencil", {"w": [[1.0]]}, TypeError, "w must be a floating-point array of this framework or NumPy, got list"),
    ("stencil", {"variant": "vmap"}, ValueError, "variant must be one of 'cell_loop', 'column_convolve', "),
]


@BOTH
@pytest.mark.parametrize(("problem", "changed", "error", "text"), BAD)
def test_bad_arguments_get_the_same_error_from_both(
    problem: str, changed: dict[str, Any], error: type[Exception], text: str, framework: str
):
    given = inputs(problem)
    with FRAMEWORKS[framework].backend.precision("float64"), pytest.raises(error) as raised:
        public(framework, problem)(**{**given.arrays, **changed})
    assert text in str(raised.value)
