"""Bad arguments raise the same exception with the same text in both frameworks, before anything is computed.

A value that is being traced is not checked but made safe: lengths are clamped, a temperature that is not positive
gives NaN for its pair.
"""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch._dynamo
from frameworks import FRAMEWORKS, PROBLEMS

from torch_impl.compiler import compiled

S = np.ones((4, 5), dtype=np.float32)
BATCH = np.ones((3, 4, 5), dtype=np.float32)
EVERY = pytest.mark.parametrize("problem", PROBLEMS)
FRAMEWORK = pytest.mark.parametrize("framework", FRAMEWORKS)


class Bad(NamedTuple):
    """Arguments of an alignment and what they raise."""

    error: type[Exception]
    text: str
    similarity: Any = S
    lengths: Any = None
    keywords: Mapping[str, Any] = MappingProxyType({})


NO_ARRAY = "similarity must be a floating-point array of this framework or NumPy, got "
NOT_FLOATING = "similarity must be float32 or float64 (float16 and bfloat16 are computed in float32), got "
NO_ORDER = ", expected this machine's byte order"
NO_MATRIX = "similarity must have shape (rows, cols) or (batch, rows, cols), got "
SIMILARITY = {
    "similarity a list": Bad(TypeError, NO_ARRAY + "list", [[1.0, 2.0]]),
    "similarity None": Bad(TypeError, NO_ARRAY + "NoneType", None),
    "similarity text": Bad(TypeError, NO_ARRAY + "str", "ACGT"),
    "similarity masked": Bad(TypeError, NO_ARRAY + "numpy.MaskedArray", np.ma.array(S)),
    "similarity integers": Bad(TypeError, NOT_FLOATING + "int64", np.ones((4, 5), dtype=np.int64)),
    "similarity booleans": Bad(TypeError, NOT_FLOATING + "bool", np.ones((4, 5), dtype=bool)),
    "similarity complex": Bad(TypeError, NOT_FLOATING + "complex64", np.ones((4, 5), dtype=np.complex64)),
    "similarity big-endian": Bad(TypeError, NOT_FLOATING + "big-endian float32" + NO_ORDER, S.astype(">f4")),
    "similarity objects": Bad(TypeError, NOT_FLOATING + "object", np.full((4, 5), None)),
    "similarity a vector": Bad(ValueError, NO_MATRIX + "(5,)", S[0]),
    "similarity a scalar": Bad(ValueError, NO_MATRIX + "()", np.float32(1)),
    "similarity of rank 4": Bad(ValueError, NO_MATRIX + "(1, 3, 4, 5)", BATCH[None]),
}

NO_INTEGERS = "lengths must be an integer array of this framework or NumPy, got "
OF_A_PAIR = "lengths must have shape (2,) for similarity of shape (4, 5), got "
OF_A_BATCH = "lengths must have shape (3, 2) for similarity of shape (3, 4, 5), got "
OUT_OF_RANGE = "lengths must be between 0 and (rows, cols) = (4, 5), got "
LENGTHS = {
    "lengths a list": Bad(TypeError, NO_INTEGERS + "list", lengths=[4, 5]),
    "lengths a tuple": Bad(TypeError, NO_INTEGERS + "tuple", lengths=(4, 5)),
    "lengths a number": Bad(ValueError, OF_A_PAIR + "()", lengths=4),
    "lengths of rank 0": Bad(ValueError, OF_A_PAIR + "()", lengths=np.array(4)),
    "lengths of rank 0 for a batch": Bad(ValueError, OF_A_BATCH + "()", BATCH, np.array(4)),
    "lengths fractional": Bad(TypeError, "lengths must be integers, got float64", lengths=np.array([3.5, 5.0])),
    "lengths booleans": Bad(TypeError, "lengths must be integers, got bool", lengths=np.array([True, True])),
    "lengths big-endian": Bad(
        TypeError, f"lengths must be integers, got big-endian int64{NO_ORDER}", lengths=np.array([4, 5], ">i8")
    ),
    "lengths complex": Bad(TypeError, "lengths must be integers, got complex128", lengths=np.array([4j, 5])),
    "lengths of one side": Bad(ValueError, OF_A_PAIR + "(1,)", lengths=np.array([4])),
    "lengths of a batch for a pair": Bad(ValueError, OF_A_PAIR + "(1, 2)", lengths=np.array([[4, 5]])),
    "lengths of a pair for a batch": Bad(ValueError, OF_A_BATCH + "(2,)", BATCH, np.array([4, 5])),
    "lengths of too few pairs": Bad(ValueError, OF_A_BATCH + "(2, 2)", BATCH, np.array([[4, 5], [4, 5]])),
    "lengths turned": Bad(ValueError, OF_A_BATCH + "(2, 3)", BATCH, np.array([[4, 4, 4], [5, 5, 5]])),
    "lengths negative": Bad(ValueError, OUT_OF_RANGE + "(-1, 5)", lengths=np.array([-1, 5])),
    "lengths too large": Bad(ValueError, OUT_OF_RANGE + "(4, 6)", lengths=np.array([4, 6])),
    "lengths of one pair negative": Bad(
        ValueError, OUT_OF_RANGE + "(4, -2) for pair 2", BATCH, np.array([[4, 5], [0, 0], [4, -2]])
    ),
    "lengths of one pair too large": Bad(
        ValueError, OUT_OF_RANGE + "(5, 5) for pair 1", BATCH, np.array([[4, 5], [5, 5], [9, 9]])
    ),
}


def bad_parameter(name: str) -> dict[str, Bad]:
    """Bad values of one differentiable parameter."""
    no_number = f"{name} must be a number or an array of this framework or NumPy, got "
    not_real = f"{name} must be real, got "
    of_a_pair, of_a_batch = (
        ("()", "() or (3,)") if name == "temperature" else ("() or (4, 5)", "() or (3,) or (3, 4, 5)")
    )
    for_a_pair = f"{name} must have shape {of_a_pair} for similarity of shape (4, 5), got "
    for_a_batch = f"{name} must have shape {of_a_batch} for similarity of shape (3, 4, 5), got "
    allowed = "between 1e-15 and 1e+15" if name == "temperature" else "finite and at most 1e+18"
    wanted = f"{name} must be {allowed}, got "
    not_positive = {
        "0": (wanted + "0.0", S, 0),
        "negative": (wanted + "-1.0", S, -1.0),
        "minus 0": (wanted + "-0.0", S, -0.0),
        "too small": (wanted + "9e-16", S, 9e-16),
        "too small for float32": (wanted + "1e-40", S, 1e-40),
        "too large": (wanted + "1e+20", S, 1e20),
        "of one pair 0": (wanted + "0.0 for pair 2", BATCH, np.array([1.0, 0.5, 0.0])),
    }
    value_errors = {
        "of a batch for a pair": (for_a_pair + "(1,)", S, np.ones(1)),
        "of too few pairs": (for_a_batch + "(2,)", BATCH, np.ones(2)),
        "of a matrix": (for_a_batch + "(3, 1)", BATCH, np.ones((3, 1))),
        "of another matrix": (for_a_pair + "(5, 4)", S, np.ones((5, 4))),
        "of one matrix for a batch": (for_a_batch + "(4, 5)", BATCH, np.ones((4, 5))),
        "NaN": (wanted + "nan", S, float("nan")),
        "infinite": (wanted + "inf", S, float("inf")),
        "minus infinite": (wanted + "-inf", S, -np.inf),
        "beyond a float": (wanted + "a number too large for a float", S, 10**400),
        "of one pair NaN": (wanted + "nan for pair 1", BATCH, np.array([1, np.nan, np.nan])),
        **(not_positive if name == "temperature" else {"too large": (wanted + "1e+20", S, 1e20)}),
    }
    type_errors = {
        "text": (no_number + "str", "1"),
        "None": (no_number + "NoneType", None),
        "a list": (no_number + "list", [1.0]),
        "complex": (not_real + "complex", 1j),
        "an array of complex numbers": (not_real + "complex64", np.array(1j, dtype=np.complex64)),
        "big-endian": (f"{not_real}big-endian float64{NO_ORDER}", np.array(1.0, ">f8")),
        "a boolean": (not_real + "bool", True),
        "an array of booleans": (not_real + "bool", np.array(True)),
    }
    return {
        f"{name} {what}": Bad(TypeError, text, keywords={name: value}) for what, (text, value) in type_errors.items()
    } | {
        f"{name} {what}": Bad(ValueError, text, s, keywords={name: value})
        for what, (text, s, value) in value_errors.items()
    }


LADDER = "'cell_loop', 'diagonal_loop', 'scan_cond', 'scan_select', 'batch_loop', 'vmap', 'wavefront', 'fused'"
VARIANT = f"variant must be one of {LADDER}, 'auto', got "
# option -> value -> error
OPTIONS: dict[str, dict[Any, tuple[type[Exception], str]]] = {
    "variant": {value: (ValueError, VARIANT + shown) for value, shown in (("fastest", "'fastest'"), (3, "3"))},
    "end": {value: (ValueError, f"end must be one of 'any', 'match', got {value!r}") for value in ("both", None, True)},
    **{
        name: {
            value: (TypeError, f"{name} must be True or False, got {shown}")
            for value, shown in (
                ("no", "str"),
                (1.0, "float"),
                (0, "int"),
                (None, "NoneType"),
                (np.int64(2), "numpy.int64"),
            )
        }
        for name in ("restrict_turns", "penalize_turns")
    },
}


def bad_arguments(problem: str) -> dict[str, Bad]:
    """Everything that can be wrong with the arguments of a problem."""
    bad = SIMILARITY | LENGTHS
    for name in PROBLEMS[problem].parameters:
        bad |= bad_parameter(name)
    for name in ("variant", *PROBLEMS[problem].options[0]):
        for value, (error, text) in OPTIONS[name].items():
            bad[f"{name} {value!r}"] = Bad(error, text, keywords={name: value})
    return bad


BAD = {problem: bad_arguments(problem) for problem in PROBLEMS}
CASES = pytest.mark.parametrize(("problem", "case"), [(problem, case) for problem, bad in BAD.items() for case in bad])


def own_array(framework: str, value: Any) -> Any:
    """A NumPy array as the framework's own, other values as they are."""
    if type(value) is not np.ndarray or value.dtype == object or not value.dtype.isnative:
        return value
    return FRAMEWORKS[framework].backend.to_device(value, "cpu")


def raised(call: Callable[[], Any]) -> tuple[type[BaseException], str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - what it is, is compared
        call()
    return caught.type, str(caught.value)


def alignment(framework: str, problem: str) -> Callable[..., Any]:
    return getattr(FRAMEWORKS[framework].package, problem)


@CASES
def test_bad_arguments_raise_this_text_in_both_frameworks(problem, case):
    bad = BAD[problem][case]
    for framework in FRAMEWORKS:
        call = functools.partial(alignment(framework, problem), bad.similarity, bad.lengths, **bad.keywords)
        assert raised(call) == (bad.error, bad.text), framework


@CASES
def test_arrays_of_the_framework_raise_the_same_text_as_numpys(problem, case):
    bad = BAD[problem][case]
    for framework in FRAMEWORKS:
        with FRAMEWORKS[framework].backend.precision("float64"):
            similarity, lengths = own_array(framework, bad.similarity), own_array(framework, bad.lengths)
            keywords = {name: own_array(framework, value) for name, value in bad.keywords.items()}
            call = functools.partial(alignment(framework, problem), similarity, lengths, **keywords)
            assert raised(call) == (bad.error, bad.text), framework


@EVERY
@FRAMEWORK
def test_marginals_raise_the_same_text_as_the_score(framework, problem):
    package = FRAMEWORKS[framework].package
    for case, bad in BAD[problem].items():
        arguments = (bad.similarity, bad.lengths)
        call = functools.partial(package.marginals, alignment(framework, problem), *arguments, **bad.keywords)
        assert raised(call) == (bad.error, bad.text), case


@EVERY
@FRAMEWORK
def test_parameters_cannot_be_passed_by_position(framework, problem):
    function = alignment(framework, problem)
    with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3 were given"):
        function(S, None, -1.0)
    kinds = {name: p.kind for name, p in inspect.signature(function).parameters.items()}
    first, second, *others = kinds
    assert (first, second) == ("similarity", "lengths")
    assert {kinds[name] for name in others} == {inspect.Parameter.KEYWORD_ONLY}
    assert set(others) == {*PROBLEMS[problem].parameters, *PROBLEMS[problem].options[0], "variant"}


@EVERY
@FRAMEWORK
def test_what_another_problem_has_is_refused(framework, problem):
    known = {name for parameters, options in PROBLEMS.values() for name in (*parameters, *options[0])}
    others = known - {*PROBLEMS[problem].parameters, *PROBLEMS[problem].options[0]}
    for name in (*others, "gaps", "lenghts"):
        error, text = raised(functools.partial(alignment(framework, problem), S, **{name: 1.0}))
        assert error is TypeError
        # newer Pythons go on with a suggestion
        assert text.startswith(f"{problem}() got an unexpected keyword argument '{name}'")


@FRAMEWORK
@pytest.mark.parametrize("name", ["needleman", "", None, "marginals"])
def test_an_unknown_function_has_no_variants(framework, name):
    known = ", ".join(map(repr, PROBLEMS))
    call = lambda: FRAMEWORKS[framework].package.variants(name)  # noqa: E731
    assert raised(call) == (ValueError, f"function_name must be one of {known}, got {name!r}")


@EVERY
@FRAMEWORK
def test_an_array_of_the_other_framework_is_refused(framework, problem):
    ones, module = {"jax": (torch.ones, "torch."), "torch": (jnp.ones, "jax")}[framework]
    texts = {"similarity": NO_ARRAY, "lengths": NO_INTEGERS} | {
        name: f"{name} must be a number or an array of this framework or NumPy, got "
        for name in PROBLEMS[problem].parameters
    }
    for name, text in texts.items():
        arguments = {"similarity": S, name: ones((4, 5) if name == "similarity" else (2,))}
        error, message = raised(functools.partial(alignment(framework, problem), **arguments))
        assert error is TypeError
        assert message.startswith(text + module)


@FRAMEWORK
def test_numbers_and_truth_values_of_every_kind_are_accepted(framework):
    smith_waterman, affine = (alignment(framework, name) for name in ("smith_waterman", "smith_waterman_affine"))
    wanted = float(smith_waterman(S, gap=-2.0, temperature=1.0))
    for one in (1, 1.0, np.float64(1), np.int32(1), np.array(1.0), np.array(1, dtype=np.int8)):
        assert float(smith_waterman(S, gap=-2 * one, temperature=one)) == wanted
    for kind in (np.int8, np.uint8, np.int32, np.int64, np.uint16):
        assert float(smith_waterman(S, np.array([4, 5], dtype=kind), gap=-2.0)) == wanted
    for restrict, penalize in ((True, False), (False, True)):
        flags = {"restrict_turns": np.bool_(restrict), "penalize_turns": np.bool_(penalize)}
        assert float(affine(S, **flags)) == float(affine(S, restrict_turns=restrict, penalize_turns=penalize))


@FRAMEWORK
def test_whole_numbers_of_more_than_32_bits_are_not_wrapped_around(framework):
    package = FRAMEWORKS[framework].package
    needleman_wunsch = package.needleman_wunsch
    for gap in (-(10**10), np.int64(-3 * 10**9), np.array(-3 * 10**9), np.full((4, 5), -3 * 10**9), -(10**25)):
        own = np.asarray(gap, np.float32)
        best = package.best_alignment(needleman_wunsch, S, gap=gap)[0]
        assert float(best) == float(package.best_alignment(needleman_wunsch, S, gap=own)[0])
        for variant in ("wavefront", "fused"):
            score = needleman_wunsch(S, gap=gap, variant=variant)
            assert float(score) == float(needleman_wunsch(S, gap=own, variant=variant))


@EVERY
@FRAMEWORK
def test_an_empty_batch_gives_an_empty_result(framework, problem):
    package, backend = FRAMEWORKS[framework]
    parameters = {name: np.ones(0, dtype=np.float32) for name in PROBLEMS[problem].parameters}
    for lengths, own in ((None, {}), (np.zeros((0, 2), dtype=np.int32), parameters)):
        for variant in package.variants(problem):
            scores = backend.to_numpy(alignment(framework, problem)(BATCH[:0], lengths, variant=variant, **own))
            assert (scores.shape, scores.dtype) == ((0,), np.float32)
        marginals = backend.to_numpy(package.marginals(alignment(framework, problem), BATCH[:0], lengths, **own))
        assert (marginals.shape, marginals.dtype) == ((0, 4, 5), np.float32)


# lengths too large, negative, and right; a temperature that is 0, and one that is negative
WILD = np.array([[9, 2], [-1, 3], [2, 3], [1, -7], [2, 99]], dtype=np.int32)
TEMPERATURES = np.array([1.0, 2.0, 0.0, -1.0, 0.5], dtype=np.float32)


@EVERY
@FRAMEWORK
def test_what_is_traced_is_not_checked_but_made_safe(framework, problem):
    function, backend = alignment(framework, problem), FRAMEWORKS[framework].backend
    similarity = np.random.default_rng(0).normal(size=(len(WILD), 2, 3)).astype(np.float32)
    safe = np.where(TEMPERATURES > 0, TEMPERATURES, 1.0)
    arrays = [backend.to_device(array, "cpu") for array in (similarity, WILD, TEMPERATURES)]
    call = lambda s, lengths, temperature: function(s, lengths, temperature=temperature)  # noqa: E731
    torch._dynamo.reset()
    traced = jax.jit(call) if framework == "jax" else torch.compile(call, backend="eager", fullgraph=True)
    got = backend.to_numpy(traced(*arrays))
    wanted = backend.to_numpy(function(similarity, WILD.clip(0, (2, 3)), temperature=safe))
    np.testing.assert_allclose(got, np.where(TEMPERATURES > 0, wanted, np.nan), rtol=1e-6, atol=1e-6)
    assert raised(lambda: function(*arrays[:2]))[0] is ValueError  # the same values, seen


@FRAMEWORK
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_traced_gap_of_minus_infinity_forbids_gaps(framework, dtype):
    function, module = alignment(framework, "needleman_wunsch"), {"jax": jnp, "torch": torch}[framework]
    similarity = module.ones((3, 3), dtype=module.float32)
    call = lambda gap: function(similarity, gap=gap, variant="diagonal_loop")  # noqa: E731
    torch._dynamo.reset()
    traced = jax.jit(call) if framework == "jax" else torch.compile(call, backend="eager", fullgraph=True)
    gap = module.asarray(-math.inf, dtype=getattr(module, dtype))
    assert float(traced(gap)) == pytest.approx(3.0, abs=1e-6)


@EVERY
def test_torch_compiled_raises_the_same_errors(problem):
    function = alignment("torch", problem)
    cases = ["similarity of rank 4", "similarity integers", "temperature 0", "temperature a list", "variant 'fastest'"]
    for case in cases:
        bad = BAD[problem][case]
        torch._dynamo.reset()
        call = functools.partial(compiled(functools.partial(function, **bad.keywords)), torch.tensor(bad.similarity))
        assert raised(call) == (bad.error, bad.text), case


@EVERY
@FRAMEWORK
def test_marginals_of_no_function_are_refused(framework, problem):
    for value, shown in ((problem, "str"), (None, "NoneType")):
        call = functools.partial(FRAMEWORKS[framework].package.marginals, value, S)
        assert raised(call) == (
            TypeError,
            f"function must be an alignment function or one with its signature, got {shown}",
        )


@FRAMEWORK
def test_marginals_of_a_function_that_returns_no_array_are_refused(framework):
    for returned, shown in (((1, 2), "tuple"), (3.0, "float")):
        call = functools.partial(FRAMEWORKS[framework].package.marginals, lambda *_, own=returned: own, S)
        assert raised(call) == (TypeError, f"function must return one array of its framework, got {shown}")


def test_a_sparse_tensor_is_refused():
    error, text = raised(lambda: alignment("torch", "free_gap")(torch.eye(3).to_sparse()))
    assert (error, text) == (TypeError, NO_ARRAY + "torch.Tensor of layout sparse_coo")
