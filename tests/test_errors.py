"""Bad arguments raise the same exception with the same text in both frameworks, before anything is computed.

A value that is being traced is not checked but made safe: lengths are clamped, a temperature that is not positive
gives NaN for its pair.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch._dynamo
from frameworks import FRAMEWORKS, PROBLEMS, by_keyword

import torch_impl
from torch_impl.compiler import compiled

S = np.ones((4, 5), dtype=np.float32)
BATCH = np.ones((3, 4, 5), dtype=np.float32)
FRAMEWORK = pytest.mark.parametrize("framework", FRAMEWORKS)

NO_ARRAY = "similarity must be a floating-point array of this framework or NumPy, got "
NOT_FLOATING = "similarity must be float32 or float64 (float16 and bfloat16 are computed in float32), got "
NO_MATRIX = "similarity must have shape (rows, cols) or (batch, rows, cols), got "
NO_INTEGERS = "lengths must be an integer array of this framework or NumPy, got "
NO_NUMBER = " must be a number or an array of this framework or NumPy"
NO_ORDER = ", expected this machine's byte order"
OF_A_PAIR = "lengths must have shape (2,) for similarity of shape (4, 5), got "
OF_A_BATCH = "lengths must have shape (3, 2) for similarity of shape (3, 4, 5), got "
OUT_OF_RANGE = "lengths must be between 0 and (rows, cols) = (4, 5), got "
LADDER = "'cell_loop', 'diagonal_loop', 'scan_cond', 'scan_select', 'batch_loop', 'vmap', 'wavefront', 'fused'"

Errors = dict[str, dict[str, Any]]  # text -> arguments; similarity is S unless it is given

# the faults that an alignment of any problem may have
TYPES: Errors = {
    NO_ARRAY + "list": {"similarity": [[1.0, 2.0]]},
    NO_ARRAY + "numpy.MaskedArray": {"similarity": np.ma.array(S)},
    NOT_FLOATING + "int64": {"similarity": np.ones((4, 5), np.int64)},
    NOT_FLOATING + "complex64": {"similarity": np.ones((4, 5), np.complex64)},
    NOT_FLOATING + "big-endian float32" + NO_ORDER: {"similarity": S.astype(">f4")},
    NOT_FLOATING + "object": {"similarity": np.full((4, 5), None)},
    NOT_FLOATING + "[('a', '>f4')]": {"similarity": np.zeros((4, 5), [("a", ">f4")])},
    NO_INTEGERS + "list": {"lengths": [4, 5]},
    "lengths must be integers of 8 to 64 bits, got float64": {"lengths": np.array([3.5, 5.0])},
    "lengths must be integers of 8 to 64 bits, got bool": {"lengths": np.array([True, True])},
    f"lengths must be integers of 8 to 64 bits, got big-endian int64{NO_ORDER}": {"lengths": np.array([4, 5], ">i8")},
}
VALUES: Errors = {
    NO_MATRIX + "()": {"similarity": np.float32(1)},
    NO_MATRIX + "(1, 3, 4, 5)": {"similarity": BATCH[None]},
    OF_A_PAIR + "()": {"lengths": 4},
    OF_A_PAIR + "(1, 2)": {"lengths": np.array([[4, 5]])},
    OF_A_BATCH + "(2,)": {"similarity": BATCH, "lengths": np.array([4, 5])},
    OUT_OF_RANGE + "(-1, 5)": {"lengths": np.array([-1, 5])},
    OUT_OF_RANGE + "(4, 6)": {"lengths": np.array([4, 6])},
    OUT_OF_RANGE + "(5, 5) for pair 1": {"similarity": BATCH, "lengths": np.array([[4, 5], [5, 5], [9, 9]])},
    f"variant must be one of {LADDER}, 'auto', got 'fastest'": {"variant": "fastest"},
}


def parameter_types(name: str) -> Errors:
    numbers = {"str": "1", "NoneType": None, "list": [1.0]}
    real = {"complex": 1j, "bool": True, f"big-endian float64{NO_ORDER}": np.array(1.0, ">f8")}
    real["float128"] = np.longdouble(1)
    pair = "" if name == "temperature" else ", or a tuple (rows, cols) of two"
    errors = {f"{name}{NO_NUMBER}{pair}, got {shown}": {name: value} for shown, value in numbers.items()}
    text = f"{name} must be integers, float32, float64, float16, bfloat16, got "
    return errors | {text + shown: {name: value} for shown, value in real.items()}


def parameter_values(name: str) -> Errors:
    is_temperature = name == "temperature"
    of_a_pair, of_a_batch = ("()", "() or (3,)") if is_temperature else ("() or (4, 5)", "() or (3,) or (3, 4, 5)")
    errors: Errors = {}
    for similarity, allowed, shapes in ((S, of_a_pair, [(1,), (5, 4)]), (BATCH, of_a_batch, [(2,), (4, 5)])):
        for shape in shapes:
            text = f"{name} must have shape {allowed} for similarity of shape {similarity.shape}, got {shape}"
            errors[text] = {"similarity": similarity, name: np.ones(shape)}
    values = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "1e+20": 1e20, "a number too large for a float": 10**400}
    values["nan for pair 1"] = np.array([1, np.nan, np.nan])
    if is_temperature:
        values |= {"0.0": 0, "-1.0": -1.0, "9e-16": 9e-16, "1e-40": 1e-40, "0.0 for pair 2": np.array([1.0, 0.5, 0.0])}
    for shown, value in values.items():
        allowed = "between 1e-15 and 1e+15" if is_temperature else "finite and at most 1e+18"
        similarity = BATCH if np.ndim(value) else S
        errors[f"{name} must be {allowed}, got {shown}"] = {"similarity": similarity, name: value}
    return errors


ENDS: Errors = {f"end must be one of 'any', 'match', got {value!r}": {"end": value} for value in ("both", None, True)}
END_GAPS = "end_gaps must be one of 'cost', 'free', 'free_rows', 'free_cols', got "
ENDS_OF_GAPS: Errors = {f"{END_GAPS}{value!r}": {"end_gaps": value} for value in ("rows", None)}
NO_CELLS = "; gaps by position cannot be combined with gaps by axis or free end gaps"
BY_AXIS: Errors = {
    "gap must be one gap or a tuple (rows, cols) of two, got a tuple of 3": {"gap": (1.0, 2.0, 3.0)},
    f"gap[0] must have shape () for similarity of shape (4, 5), got (4, 5){NO_CELLS}": {"gap": (np.ones((4, 5)), -1.0)},
    "gap[1] must be finite and at most 1e+18, got nan": {"gap": (-1.0, np.nan)},
}
NO_FLAGS = {"str": "no", "float": 1.0, "int": 0, "NoneType": None, "numpy.int64": np.int64(2)}
FLAGS: Errors = {
    f"{name} must be True or False, got {shown}": {name: value}
    for name in ("restrict_turns", "penalize_turns")
    for shown, value in NO_FLAGS.items()
}


def faults(problem: str) -> list[tuple[type[Exception], str, dict[str, Any]]]:
    """Error, text and arguments of everything that can be wrong in a call of a problem."""
    parameters, (options, *_) = PROBLEMS[problem]
    types, values = dict(TYPES), dict(VALUES)
    for name in parameters:
        types |= parameter_types(name)
        values |= parameter_values(name)
    types |= FLAGS if "restrict_turns" in options else {}
    values |= ENDS if "end" in options else {}
    values |= ENDS_OF_GAPS if "end_gaps" in options else {}
    values |= BY_AXIS if "gap" in parameters else {}
    if problem == "needleman_wunsch":  # of one gap for both axes
        values[f"gap must have shape () for similarity of shape (4, 5), got (4, 5){NO_CELLS}"] = {
            "gap": S,
            "end_gaps": "free",
        }
    if problem == "soft_dtw":
        types, values = (
            {text.replace("similarity", "cost"): errors[text] for text in errors} for errors in (types, values)
        )
    both = ((TypeError, types), (ValueError, values))
    return [(error, text, {"similarity": S, **extra}) for error, errors in both for text, extra in errors.items()]


def each_once() -> list[tuple[str, type[Exception], str, dict[str, Any]]]:
    """Problem, error, text and arguments of each fault, in one problem; those that all may have, in turn in each."""
    cases: dict[str, list[Any]] = {}
    for problem in PROBLEMS:
        for error, text, arguments in faults(problem):
            cases.setdefault(text, []).append((problem, error, text, arguments))
    return [cases[text][number % len(cases[text])] for number, text in enumerate(cases)]


def own_array(framework: str, value: Any) -> Any:
    """A NumPy array as the framework's own, other values as they are."""
    if type(value) is not np.ndarray or value.dtype == object or not value.dtype.isnative:
        return value
    return FRAMEWORKS[framework].backend.to_device(value, "cpu")


def raised(call: Callable[..., Any], *arguments: Any, **keywords: Any) -> tuple[type[BaseException], str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - its type and text are compared
        call(*arguments, **keywords)
    return caught.type, str(caught.value)


def alignment(framework: str, problem: str) -> Callable[..., Any]:
    return getattr(FRAMEWORKS[framework].package, problem)


@FRAMEWORK
@pytest.mark.parametrize(("problem", "error", "text", "arguments"), each_once(), ids=[case[2] for case in each_once()])
def test_bad_arguments_raise_one_text_in_both_frameworks(problem, error, text, arguments, framework):
    """Bad NumPy arrays and the framework's own are refused alike, in marginals too."""
    package, backend = FRAMEWORKS[framework]
    assert raised(by_keyword(alignment(framework, problem)), **arguments) == (error, text)
    with backend.precision("float64"):
        converted = {name: own_array(framework, value) for name, value in arguments.items()}
        text = text.replace("cost must", "similarity must")  # which is the name that marginals have for it
        assert raised(package.marginals, alignment(framework, problem), **converted) == (error, text)


@FRAMEWORK
def test_an_unknown_function_has_no_variants(framework):
    for name in ("needleman", None, "marginals"):
        expected = f"function_name must be one of {', '.join(map(repr, PROBLEMS))}, got {name!r}"
        assert raised(FRAMEWORKS[framework].package.variants, name) == (ValueError, expected)


@FRAMEWORK
def test_an_array_of_the_other_framework_is_refused(framework):
    other, module = {"jax": (torch.ones(2), "torch."), "torch": (jnp.ones(2), "jax")}[framework]
    for name, text in {
        "similarity": NO_ARRAY,
        "lengths": NO_INTEGERS,
        "gap": f"gap{NO_NUMBER}, or a tuple (rows, cols) of two, got ",
    }.items():
        error, message = raised(alignment(framework, "smith_waterman"), **{"similarity": S, name: other})
        assert error is TypeError and message.startswith(text + module)


@FRAMEWORK
@jax.enable_x64(True)
def test_numbers_and_truth_values_of_every_kind_are_accepted(framework):
    smith_waterman, affine = (alignment(framework, name) for name in ("smith_waterman", "smith_waterman_affine"))
    to_device = FRAMEWORKS[framework].backend.to_device
    expected = smith_waterman(S, gap=-2.0, temperature=1.0)
    kinds = 1, 1.0, np.float64(1), np.int32(1), np.array(1.0), np.array(1, np.int8), to_device(np.array(1), "cpu")
    for one in (*kinds, torch.tensor(1.0, dtype=torch.float64) if framework == "torch" else 1):
        score = smith_waterman(S, gap=-2 * one, temperature=one)
        assert float(score) == float(expected) and score.dtype == expected.dtype
    for kind, variant in itertools.product((np.int8, np.uint16, np.int64, np.uint64), ("wavefront", "fused")):
        assert abs(smith_waterman(S, np.array([4, 5], kind), gap=-2.0, variant=variant) - expected) < 1e-5
    for restrict, penalize in ((True, False), (False, True)):
        flags = {"restrict_turns": np.bool_(restrict), "penalize_turns": np.bool_(penalize)}
        assert float(affine(S, **flags)) == float(affine(S, restrict_turns=restrict, penalize_turns=penalize))


@FRAMEWORK
def test_whole_numbers_of_more_than_32_bits_are_not_wrapped_around(framework):
    package = FRAMEWORKS[framework].package
    functions: list[Any] = [lambda gap: package.best_alignment(package.needleman_wunsch, S, gap=gap)[0]]
    smith_waterman = functools.partial(package.smith_waterman, S, end="match")
    functions += [functools.partial(smith_waterman, variant=variant) for variant in ("wavefront", "fused")]
    for gap in (-(10**10), np.int64(-3 * 10**9), np.array(-3 * 10**9), np.full((4, 5), -3 * 10**9), -(10**25)):
        for function in functions:
            assert float(function(gap=gap)) == float(function(gap=np.asarray(gap, np.float32)))


@FRAMEWORK
def test_every_variant_gives_an_empty_result_for_an_empty_batch(framework):
    package, backend = FRAMEWORKS[framework]
    lengths, gaps = np.zeros((0, 2), np.int32), np.ones(0, np.float32)
    for variant in package.variants("smith_waterman_affine"):
        scores = backend.to_numpy(package.smith_waterman_affine(BATCH[:0], lengths, gap_open=gaps, variant=variant))
        assert (scores.shape, scores.dtype) == ((0,), np.float32)


# lengths too large, negative, and right; a temperature that is 0, and one that is negative
WILD = np.array([[9, 2], [-1, 3], [2, 3], [1, -7], [2, 99]], dtype=np.int32)
TEMPERATURES = np.array([1.0, 2.0, 0.0, -1.0, 0.5], dtype=np.float32)


def traced_by(framework: str, function: Callable[..., Any], mapped: bool = False) -> Callable[..., Any]:
    if mapped:
        return jax.jit(jax.vmap(function)) if framework == "jax" else torch.func.vmap(function)
    torch._dynamo.reset()
    return jax.jit(function) if framework == "jax" else torch.compile(function, backend="eager", fullgraph=True)


# the native kernels clamp by themselves, so that a variant without them shows what the framework does
@pytest.mark.parametrize(
    ("problem", "variant", "mapped"),
    [
        *((problem, "auto", False) for problem in PROBLEMS),
        *(("needleman_wunsch", name, False) for name in ("diagonal_loop", "wavefront")),
        *(("smith_waterman", name, True) for name in ("diagonal_loop", "wavefront", "fused")),
    ],
)
@FRAMEWORK
def test_traced_arguments_are_not_checked_but_made_safe(framework, problem, variant, mapped):
    function, backend = functools.partial(alignment(framework, problem), variant=variant), FRAMEWORKS[framework].backend
    similarity = np.random.default_rng(0).normal(size=(len(WILD), 2, 3)).astype(np.float32)
    safe = np.where(TEMPERATURES > 0, TEMPERATURES, 1.0)
    arrays = [backend.to_device(array, "cpu") for array in (similarity, WILD, TEMPERATURES)]
    traced = traced_by(framework, lambda s, lengths, temperature: function(s, lengths, temperature=temperature), mapped)
    got = backend.to_numpy(traced(*arrays))
    expected = backend.to_numpy(function(similarity, WILD.clip(0, (2, 3)), temperature=safe))
    np.testing.assert_allclose(got, np.where(TEMPERATURES > 0, expected, np.nan), rtol=1e-6, atol=1e-6)
    assert raised(function, *arrays[:2])[0] is ValueError  # the same values, seen


@FRAMEWORK
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_traced_gap_of_minus_infinity_forbids_gaps(framework, dtype):
    function, module = alignment(framework, "needleman_wunsch"), {"jax": jnp, "torch": torch}[framework]
    similarity = module.ones((3, 3), dtype=module.float32)
    traced = traced_by(framework, lambda gap: function(similarity, gap=gap, variant="diagonal_loop"))
    assert float(traced(module.asarray(-math.inf, dtype=getattr(module, dtype)))) == pytest.approx(3.0, abs=1e-6)


def test_torch_compiled_raises_the_same_errors():
    for shown in ("(1, 3, 4, 5)", "int64", "list", "0.0", "'fastest'"):
        error, text, arguments = [case for case in faults("smith_waterman") if case[1].endswith(f"got {shown}")][-1]
        torch._dynamo.reset()
        similarity = torch.tensor(arguments.pop("similarity"))
        call = compiled(functools.partial(torch_impl.smith_waterman, **arguments))
        assert raised(call, similarity) == (error, text)


@FRAMEWORK
def test_marginals_want_a_function_that_returns_one_array(framework):
    marginals = FRAMEWORKS[framework].package.marginals
    for value, shown in (("smith_waterman", "str"), (None, "NoneType")):
        text = f"function must be an alignment function or one with its signature, got {shown}"
        assert raised(marginals, value, S) == (TypeError, text)
    for returned, shown in (((1, 2), "tuple"), (3.0, "float")):
        text = f"function must return one array of its framework, got {shown}"
        assert raised(marginals, lambda *_, returned=returned: returned, S) == (TypeError, text)


def test_a_sparse_tensor_is_refused():
    expected = TypeError, NO_ARRAY + "torch.Tensor of layout sparse_coo"
    assert raised(alignment("torch", "free_gap"), torch.eye(3).to_sparse()) == expected
