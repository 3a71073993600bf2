"""Bad arguments raise the same exception with the same text in both frameworks, before anything is computed."""

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS, PROBLEMS

S = np.ones((4, 5), dtype=np.float32)
BATCH = np.ones((3, 4, 5), dtype=np.float32)
LADDER = "'cell_loop', 'diagonal_loop', 'scan_cond', 'scan_select', 'batch_loop', 'vmap'"


class Bad(NamedTuple):
    """Arguments of smith_waterman and what they raise."""

    error: type[Exception]
    text: str
    similarity: Any = S
    lengths: Any = None
    keywords: Mapping[str, Any] = MappingProxyType({})


NO_ARRAY = "similarity must be a floating-point array of this framework or NumPy, got "
NOT_FLOATING = "similarity must be float32 or float64 (float16 and bfloat16 are computed in float32), got "
NO_MATRIX = "similarity must have shape (rows, cols) or (batch, rows, cols), got "
SIMILARITY = {
    "similarity a list": Bad(TypeError, NO_ARRAY + "list", [[1.0, 2.0]]),
    "similarity None": Bad(TypeError, NO_ARRAY + "NoneType", None),
    "similarity text": Bad(TypeError, NO_ARRAY + "str", "ACGT"),
    "similarity integers": Bad(TypeError, NOT_FLOATING + "int64", np.ones((4, 5), dtype=np.int64)),
    "similarity booleans": Bad(TypeError, NOT_FLOATING + "bool", np.ones((4, 5), dtype=bool)),
    "similarity complex": Bad(TypeError, NOT_FLOATING + "complex64", np.ones((4, 5), dtype=np.complex64)),
    "similarity objects": Bad(TypeError, NOT_FLOATING + "object", np.full((4, 5), None)),
    "similarity a vector": Bad(ValueError, NO_MATRIX + "(5,)", S[0]),
    "similarity a scalar": Bad(ValueError, NO_MATRIX + "()", np.float32(1)),
    "similarity of rank 4": Bad(ValueError, NO_MATRIX + "(1, 3, 4, 5)", BATCH[None]),
}

NO_INTEGERS = "lengths must be an integer array of this framework or NumPy, got "
OUT_OF_RANGE = "lengths must be between 0 and (rows, cols) = (4, 5), got "
LENGTHS = {
    "lengths a list": Bad(TypeError, NO_INTEGERS + "list", lengths=[4, 5]),
    "lengths a tuple": Bad(TypeError, NO_INTEGERS + "tuple", lengths=(4, 5)),
    "lengths a number": Bad(TypeError, NO_INTEGERS + "int", lengths=4),
    "lengths of floats": Bad(TypeError, "lengths must be integers, got float64", lengths=np.array([4.0, 5.0])),
    "lengths of booleans": Bad(TypeError, "lengths must be integers, got bool", lengths=np.array([True, True])),
    "lengths of a batch for a pair": Bad(
        ValueError,
        "lengths must have shape (2,) for similarity of shape (4, 5), got (1, 2)",
        lengths=np.array([[4, 5]]),
    ),
    "lengths of a pair for a batch": Bad(
        ValueError,
        "lengths must have shape (3, 2) for similarity of shape (3, 4, 5), got (2,)",
        BATCH,
        np.array([4, 5]),
    ),
    "lengths of too few pairs": Bad(
        ValueError,
        "lengths must have shape (3, 2) for similarity of shape (3, 4, 5), got (2, 2)",
        BATCH,
        np.array([[4, 5], [4, 5]]),
    ),
    "lengths negative": Bad(ValueError, OUT_OF_RANGE + "(-1, 5)", lengths=np.array([-1, 5])),
    "lengths too large": Bad(ValueError, OUT_OF_RANGE + "(4, 6)", lengths=np.array([4, 6])),
    "lengths of one pair negative": Bad(
        ValueError, OUT_OF_RANGE + "(4, -2) for pair 2", BATCH, np.array([[4, 5], [0, 0], [4, -2]])
    ),
    "lengths of one pair too large": Bad(
        ValueError, OUT_OF_RANGE + "(5, 5) for pair 1", BATCH, np.array([[4, 5], [5, 5], [9, 9]])
    ),
}

PARAMETERS: dict[str, Bad] = {}
for name in PROBLEMS["smith_waterman"].parameters:
    wanted = f"{name} must be {'positive and finite' if name == 'temperature' else 'finite'}, got "
    per_pair = f"{name} must have shape () or (3,) for similarity of shape (3, 4, 5), got "
    PARAMETERS |= {
        f"{name} text": Bad(
            TypeError,
            f"{name} must be a number or an array of this framework or NumPy, got str",
            keywords={name: "1"},
        ),
        f"{name} None": Bad(
            TypeError,
            f"{name} must be a number or an array of this framework or NumPy, got NoneType",
            keywords={name: None},
        ),
        f"{name} a list": Bad(
            TypeError,
            f"{name} must be a number or an array of this framework or NumPy, got list",
            keywords={name: [1.0]},
        ),
        f"{name} complex": Bad(TypeError, f"{name} must be real, got complex", keywords={name: 1j}),
        f"{name} a boolean": Bad(TypeError, f"{name} must be real, got bool", keywords={name: True}),
        f"{name} an array of booleans": Bad(
            TypeError, f"{name} must be real, got bool", keywords={name: np.array(True)}
        ),
        f"{name} of a batch for a pair": Bad(
            ValueError,
            f"{name} must have shape () for similarity of shape (4, 5), got (1,)",
            keywords={name: np.ones(1)},
        ),
        f"{name} of too few pairs": Bad(ValueError, per_pair + "(2,)", BATCH, keywords={name: np.ones(2)}),
        f"{name} of a matrix": Bad(ValueError, per_pair + "(3, 1)", BATCH, keywords={name: np.ones((3, 1))}),
        f"{name} NaN": Bad(ValueError, wanted + "nan", keywords={name: float("nan")}),
        f"{name} infinite": Bad(ValueError, wanted + "inf", keywords={name: float("inf")}),
        f"{name} minus infinite": Bad(ValueError, wanted + "-inf", keywords={name: -np.inf}),
        f"{name} of one pair NaN": Bad(
            ValueError, wanted + "nan for pair 1", BATCH, keywords={name: np.array([1, np.nan, np.nan])}
        ),
    }
for value in (0, -1.0, -0.0):
    PARAMETERS[f"temperature {value}"] = Bad(
        ValueError,
        f"temperature must be positive and finite, got {float(value)}",
        keywords={"temperature": value},
    )
PARAMETERS["temperature of one pair 0"] = Bad(
    ValueError,
    "temperature must be positive and finite, got 0.0 for pair 2",
    BATCH,
    keywords={"temperature": np.array([1.0, 0.5, 0.0])},
)

CHOICES = {
    "end unknown": Bad(ValueError, "end must be one of 'any', 'match', got 'both'", keywords={"end": "both"}),
    "end None": Bad(ValueError, "end must be one of 'any', 'match', got None", keywords={"end": None}),
    "variant unknown": Bad(
        ValueError, f"variant must be one of {LADDER}, 'auto', got 'fastest'", keywords={"variant": "fastest"}
    ),
    "variant a number": Bad(ValueError, f"variant must be one of {LADDER}, 'auto', got 3", keywords={"variant": 3}),
}
BAD = SIMILARITY | LENGTHS | PARAMETERS | CHOICES


def own_array(framework: str, value: Any) -> Any:
    """A NumPy array as the framework's own, other values as they are."""
    if not isinstance(value, np.ndarray) or value.dtype == object:
        return value
    return FRAMEWORKS[framework].backend.to_device(value, "cpu")


def raised(call: Callable[[], Any]) -> tuple[type[BaseException], str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - what it is, is compared
        call()
    return caught.type, str(caught.value)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_raise_this_text(case, framework):
    bad = BAD[case]
    smith_waterman = FRAMEWORKS[framework].package.smith_waterman
    call = lambda: smith_waterman(bad.similarity, bad.lengths, **bad.keywords)  # noqa: E731
    assert raised(call) == (bad.error, bad.text)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("case", BAD)
def test_arrays_of_the_framework_raise_the_same_text_as_numpys(case, framework):
    bad = BAD[case]
    smith_waterman = FRAMEWORKS[framework].package.smith_waterman
    with FRAMEWORKS[framework].backend.precision("float64"):
        similarity, lengths = own_array(framework, bad.similarity), own_array(framework, bad.lengths)
        keywords = {name: own_array(framework, value) for name, value in bad.keywords.items()}
        assert raised(lambda: smith_waterman(similarity, lengths, **keywords)) == (bad.error, bad.text)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("case", ["similarity a vector", "lengths too large", "gap NaN", "temperature 0", "end None"])
def test_marginals_raise_the_same_text_as_the_score(case, framework):
    bad, package = BAD[case], FRAMEWORKS[framework].package
    call = lambda: package.marginals(package.smith_waterman, bad.similarity, bad.lengths, **bad.keywords)  # noqa: E731
    assert raised(call) == (bad.error, bad.text)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_parameters_cannot_be_passed_by_position(framework):
    smith_waterman = FRAMEWORKS[framework].package.smith_waterman
    with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3 were given"):
        smith_waterman(S, None, -1.0)
    kinds = {name: p.kind for name, p in inspect.signature(smith_waterman).parameters.items()}
    assert all(kinds[name] is inspect.Parameter.KEYWORD_ONLY for name in ("gap", "temperature", "end", "variant"))


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", ["needleman", "", None, "marginals"])
def test_an_unknown_function_has_no_variants(framework, name):
    known = ", ".join(map(repr, PROBLEMS))
    call = lambda: FRAMEWORKS[framework].package.variants(name)  # noqa: E731
    assert raised(call) == (ValueError, f"function_name must be one of {known}, got {name!r}")


@pytest.mark.parametrize("name", ["similarity", "lengths", "gap", "temperature"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_array_of_the_other_framework_is_refused(framework, name):
    foreign = {"jax": torch.ones, "torch": jnp.ones}[framework]
    text = {
        "similarity": "similarity must be a floating-point array of this framework or NumPy, got ",
        "lengths": "lengths must be an integer array of this framework or NumPy, got ",
    }.get(name, f"{name} must be a number or an array of this framework or NumPy, got ")
    arguments = {"similarity": S, name: foreign((4, 5) if name == "similarity" else (2,))}
    error, message = raised(lambda: FRAMEWORKS[framework].package.smith_waterman(**arguments))
    assert error is TypeError
    assert message.startswith(text + {"jax": "torch.", "torch": "jax"}[framework])


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_numbers_of_every_kind_are_accepted(framework):
    smith_waterman = FRAMEWORKS[framework].package.smith_waterman
    wanted = float(smith_waterman(S, gap=-2.0, temperature=1.0))
    for one in (1, 1.0, np.float64(1), np.int32(1), np.array(1.0), np.array(1, dtype=np.int8)):
        assert float(smith_waterman(S, gap=-2 * one, temperature=one)) == wanted
    for kind in (np.int8, np.uint8, np.int32, np.int64, np.uint16):
        assert float(smith_waterman(S, np.array([4, 5], dtype=kind), gap=-2.0)) == wanted
