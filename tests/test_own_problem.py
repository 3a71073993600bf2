"""A problem in a user's file: what the file must be, the gates of value and gradient, and both frameworks on it."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from frameworks import DTYPES, FRAMEWORKS

from shared.bench.cases import Settings
from shared.bench.measure.code_size import code_lines
from shared.problems import problem_of
from shared.problems.own_file import where_in
from shared.problems.own_gate import judge_slopes, slopes_of
from shared.problems.own_problem import OwnInputs, OwnProblem
from shared.problems.problem import NotMeasurable, UnusableInput, Verdict

FRAMEWORK = pytest.mark.parametrize("framework", FRAMEWORKS)
EXAMPLE = Path(__file__).parents[1] / "docs/soft_dtw.py"
# integers between two floating-point arrays, of which the second has no influence
MINE = """\
import numpy as np

def inputs(seed):
    drawn = np.random.default_rng(seed).standard_normal((3, 2))
    return drawn, np.arange(2), np.float32([2.0])

def reference(x, n, unused):
    return np.tanh(x[:, n]).sum(0)

def jax_function(x, n, unused):
    import jax.numpy as jnp
    return jnp.tanh(x[:, n]).sum(0)

def torch_function(x, n, unused):
    import torch
    return torch.tanh(x[:, n]).sum(0)
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def changed(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def made(path: Path, dtype: str = "float32") -> tuple[OwnProblem, OwnInputs]:
    """The problem of a file, and its inputs."""
    problem = problem_of(str(path))
    assert isinstance(problem, OwnProblem)
    (inputs,) = problem.inputs(Settings(problem=str(path), passes=problem.default_passes, dtype=dtype)).values()
    return problem, inputs


def assert_right(problem: OwnProblem, result: np.ndarray, given: OwnInputs, pass_name: str) -> None:
    expected = problem.reference_results(given, [pass_name])
    verdict = problem.judge(pass_name, result, expected, given, str(given.cotangent.dtype))
    assert verdict.passed and verdict.summary is None, verdict.text


ARRAYS = "mine.py: inputs(seed) must return a tuple of NumPy arrays"
# what is written, what is written instead, and the error
FAULTS = {
    "import": ("import numpy", "import nympy", "mine.py, line 1: ModuleNotFoundError: No module named 'nympy'"),
    "syntax": ("inputs(seed):", "inputs(seed:", "mine.py, line 3: SyntaxError: '(' was never closed"),
    "exit": ("import numpy as np", "raise SystemExit", "mine.py, line 1: SystemExit: no message"),
    "no reference": ("def reference", "def referenz", "mine.py must define the function reference, got none"),
    "neither": ("_function(", "_loop(", "mine.py must define jax_function or torch_function, got neither"),
    "number": ("def inputs", "inputs = 3\n\ndef other", "mine.py: inputs must be a function, got int"),
    "passes": ("def inputs", "passes = ('slope',)\ndef inputs", "mine.py: passes must be a tuple of value or gradient"),
    "inputs raise": ("(seed).", "(-1).", "mine.py, line 4: ValueError: expected non-negative integer"),
    "list": ("drawn, np.arange(2), np.float32([2.0])", "[drawn]", f"{ARRAYS}, got list"),
    "scalar": ("np.float32([2.0])", "2.0", f"{ARRAYS} of real numbers, got (array of float64, array of int64, float)"),
    "integers": ("return drawn, np.arange(2), np.float32([2.0])", "return (np.arange(2),)",
        f"{ARRAYS}, at least one of them floating-point, got (array of int64)"),
    "arguments": ("reference(x, n, unused)", "reference(x, n)",
        "mine.py: TypeError: reference() takes 2 positional arguments but 3 were given"),
    "reference raises": ("np.tanh", "np.tan_h", "mine.py, line 8: AttributeError: module 'numpy' has no attribute"),
    "tuple": ("np.tanh(x[:, n]).sum(0)", "x, n", "mine.py: reference must return one array or number, got tuple"),
    "complex": ("np.tanh(x", "np.tanh(1j * x", "mine.py: reference must return real numbers, got complex128"),
    "infinite": ("np.tanh(x", "np.log(0 * x", "mine.py: reference must return finite numbers, got others"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_file_is_refused_in_one_line(mine: Path, fault: str):
    old, new, text = FAULTS[fault]
    with pytest.raises(UnusableInput) as error:
        made(changed(mine, old, new))
    assert str(error.value).startswith(text) and "\n" not in str(error.value)
    mine.unlink()
    with pytest.raises(UnusableInput, match=r"^cannot read .*mine\.py: No such file or directory$"):
        made(mine)


@pytest.mark.parametrize("where", ["import numpy as np\n", "    return np.tanh(x[:, n]).sum(0)\n"])
def test_a_framework_is_imported_by_its_own_function_only(mine: Path, monkeypatch: pytest.MonkeyPatch, where: str):
    monkeypatch.delitem(sys.modules, "torch")
    indent = where[: -len(where.lstrip())]
    changed(mine, where, f"{indent}import sys; sys.modules['torch'] = sys\n{where}")  # as an import would
    with pytest.raises(UnusableInput, match=r"^mine\.py must import torch only inside jax_function and torch_function"):
        made(mine)


def test_a_file_may_import_what_lies_beside_it(mine: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (mine.parent / "beside_mine.py").write_text("tanh = __import__('numpy').tanh\n")
    problem, inputs = made(changed(mine, "    return np.tanh", "    from beside_mine import tanh\n    return tanh"))
    assert problem.reference_results(inputs, ["value"]).value.shape == (2,)


@pytest.mark.parametrize("dtype", DTYPES)
def test_floats_get_the_dtype_of_the_run_and_others_stay(mine: Path, dtype: str):
    _, inputs = made(mine, dtype)
    assert [str(array.dtype) for array in inputs.given] == [dtype, "int64", dtype]
    assert inputs.text == f"inputs(0): {dtype} (3, 2), int64 (2,), {dtype} (1,)"
    with pytest.raises(NotMeasurable, match=r"^this input has one shape$"):
        inputs.resized(1)
    changed(mine, "np.arange(2), np.float32([2.0])", "np.arange(2, dtype='>i8'), np.array([2.0], '>f4')")
    assert all(array.dtype.isnative for array in made(mine)[1].given)


def test_a_file_that_is_changed_during_a_run_is_not_measured(mine: Path):
    _, inputs = made(mine)
    changed(mine, "torch.tanh", "torch.sin")
    for framework in FRAMEWORKS.values():
        with pytest.raises(UnusableInput, match=r"^mine\.py was changed during the run$"):
            framework.backend.call_of(str(mine), "compiled", "value", inputs.options, compiled=True)


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b"# -*- coding: latin-1 -*-\n# M\xfcller\n"])
def test_a_file_may_begin_as_python_files_do(mine: Path, start: bytes):
    lines = [code_lines(framework, str(mine)) for framework in FRAMEWORKS]
    mine.write_bytes(start + mine.read_bytes())
    assert made(mine)[1].gradient_shape == (7,)
    assert [code_lines(framework, str(mine)) for framework in FRAMEWORKS] == lines and all(lines)


X, WEIGHTS = (np.random.default_rng(seed).standard_normal(50) for seed in (3, 4))
RIGHT = WEIGHTS * np.cos(X)


def smooth(by: np.ndarray) -> float:
    """A function whose gradient is RIGHT."""
    return float((WEIGHTS * np.sin(X + by)).sum())


def judged(gradient: np.ndarray, dtype: str = "float64", function: Callable[[np.ndarray], float] = smooth) -> Verdict:
    scales = np.ones_like(X)
    return judge_slopes(gradient.astype(dtype), slopes_of(function, scales, 0), scales, 0, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_right_gradient_passes_by_far_and_wrong_ones_do_not(dtype: str):
    verdict = judged(RIGHT, dtype)
    assert verdict.passed and (verdict.error or 0) < 0.05 and verdict.summary is None, verdict.text
    one_off = np.where(np.arange(50) == 7, RIGHT + 1e-3 * np.linalg.norm(RIGHT), RIGHT)
    for wrong in (one_off, 1.001 * RIGHT, -RIGHT, RIGHT[::-1], 0 * RIGHT):
        verdict = judged(wrong, dtype)
        assert not verdict.passed and (verdict.error or 0) > 2
        assert verdict.text.startswith("gradient along a random direction off by ")


@pytest.mark.parametrize("kink", [0.0, 4e-6])
def test_next_to_a_kink_a_right_gradient_passes_with_a_remark(kink: float):
    def bent(by: np.ndarray) -> float:
        return smooth(by) + 3 * max(0.0, kink + by[5])

    verdict = judged(RIGHT + 3 * (kink > 0) * (np.arange(50) == 5), function=bent)
    assert verdict.passed and verdict.summary and verdict.summary in verdict.text
    assert verdict.summary.startswith("the reference's differences hold to ")
    assert not judged(-5 * RIGHT, function=bent).passed


def test_arrays_of_very_different_magnitude_are_moved_each_by_its_own(mine: Path):
    changed(mine, "return drawn, np.arange(2), np.float32([2.0])", "return 1e-8 * drawn, np.arange(2), 1e8 * drawn")
    changed(mine, "np.tanh(x[:, n])", "(np.tanh(1e8 * x) * np.tanh(1e-8 * unused))")
    problem, inputs = made(mine, "float64")
    near, _, far = inputs.given
    slope = 1 - np.tanh(1e8 * near) ** 2
    gradients = [1e8 * slope * np.tanh(1e-8 * far), 1e-8 * slope * np.tanh(1e8 * near)]
    gradient = np.concatenate([(part * inputs.cotangent).ravel() for part in gradients])
    assert_right(problem, gradient, inputs, "gradient")


@pytest.mark.parametrize(("dtype", "allowed"), [("float32", 1e-4), ("float64", 1e-9)])
def test_a_value_may_be_off_by_a_part_of_the_largest(mine: Path, dtype: str, allowed: float):
    problem, inputs = made(mine, dtype)
    expected = problem.reference_results(inputs, ["value"])
    largest = np.abs(expected.value).max()
    for factor, passes in ((0.9, True), (1.1, False)):
        off = (expected.value + np.array([0, factor * allowed * largest])).astype(dtype)
        assert problem.judge("value", off, expected, inputs, dtype).passed is passes
    with pytest.raises(
        UnusableInput, match=rf"^mine\.py: value is {dtype} of shape \(3,\), expected {dtype} of shape \(2,\)$"
    ):
        problem.judge("value", np.zeros(3, dtype), expected, inputs, dtype)


def computed(framework: str, path: Path, given: OwnInputs, pass_name: str, compiled: bool) -> np.ndarray:
    backend = FRAMEWORKS[framework].backend
    variant = "compiled" if compiled else "eager"
    torch._dynamo.reset()
    with backend.precision(str(given.cotangent.dtype)):
        function = backend.call_of(str(path), variant, pass_name, given.options, compiled=compiled)
        arrays = [backend.to_device(array, "cpu") for array in given.arguments(pass_name)]
        return backend.to_numpy(function(*arrays))


@pytest.mark.parametrize("dtype", DTYPES)
@FRAMEWORK
def test_the_example_is_right_in_both_frameworks(framework: str, dtype: str):
    problem, inputs = made(EXAMPLE, dtype)
    assert problem.default_passes == ("value", "gradient")
    for pass_name in problem.default_passes:
        assert_right(problem, computed(framework, EXAMPLE, inputs, pass_name, framework == "jax"), inputs, pass_name)


@pytest.mark.parametrize("framework", ["jax", pytest.param("torch", marks=pytest.mark.slow)])
def test_gradients_have_zeros_where_nothing_depends_and_that_of_one_array_has_its_shape(mine: Path, framework: str):
    problem, inputs = made(mine)
    result = computed(framework, mine, inputs, "gradient", compiled=True)
    assert result.shape == inputs.gradient_shape == (7,) and result[-1] == 0
    assert_right(problem, result, inputs, "gradient")
    _, inputs = made(changed(mine, "np.float32([2.0])", "np.arange(1)"))
    assert computed(framework, mine, inputs, "gradient", compiled=False).shape == inputs.gradient_shape == (3, 2)


JAX_RESULT, TORCH_RESULT = "jnp.tanh(x[:, n]).sum(0)", "torch.tanh(x[:, n]).sum(0)"
BAD_RESULTS = {
    "tuple": ("x, n", "x, n", TypeError, "one array of its framework, got tuple"),
    "shape": ("x", "x", ValueError, r"shape \(2,\), as reference does, got \(3"),
    "dtype": (f"{JAX_RESULT}.astype('bfloat16')", f"{TORCH_RESULT}.bfloat16()", TypeError,
              "float32, as it is given, got bfloat16"),
}  # fmt: skip


@FRAMEWORK
@pytest.mark.parametrize("result", BAD_RESULTS)
def test_a_function_must_return_the_kind_of_array_of_the_reference(mine: Path, framework: str, result: str):
    by_jax, by_torch, error, text = BAD_RESULTS[result]
    _, inputs = made(changed(changed(mine, JAX_RESULT, by_jax), TORCH_RESULT, by_torch))
    of_values = [("value", False), ("value", True)] if result != "shape" else []  # the shape of values, the gate judges
    for pass_name, compiled in [*of_values, ("gradient", False)]:
        with pytest.raises(error, match=rf"^{framework}_function must return {text}\b"):
            computed(framework, mine, inputs, pass_name, compiled)


def test_a_function_that_changes_its_arguments_is_refused(mine: Path):
    _, inputs = made(changed(mine, "return torch.tanh(x[:, n]).sum(0)", "return torch.tanh(x.mul_(0.5)[:, n]).sum(0)"))
    for compiled in (False, True):
        with pytest.raises(ValueError, match=r"^torch_function must not change its arguments, it changes argument 1$"):
            computed("torch", mine, inputs, "value", compiled)


def test_a_function_that_torch_compile_cannot_do_is_no_failure(mine: Path):
    branch = "return (x if x.sum() > 1e9 else torch.tanh(x[:, n]))"
    _, inputs = made(changed(mine, "return torch.tanh(x[:, n])", branch))
    assert computed("torch", mine, inputs, "value", compiled=False).shape == (2,)
    with pytest.raises(NotMeasurable, match=r"^torch\.compile failed at mine\.py, line \d+: Unsupported \(.*\)$"):
        computed("torch", mine, inputs, "value", compiled=True)


def test_an_error_in_a_function_is_told_with_its_line(mine: Path):
    changed(mine, "import jax.numpy as jnp", "raise KeyError")
    _, inputs = made(changed(mine, "import torch", "raise KeyError"))
    for framework, line in (("jax", 11), ("torch", 15)):
        with pytest.raises(KeyError) as caught:
            computed(framework, mine, inputs, "value", compiled=framework == "jax")
        assert where_in(mine.resolve(), caught.value) == f"mine.py, line {line}"
