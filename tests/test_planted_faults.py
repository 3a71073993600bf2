"""Checks that cannot fail are worth nothing: each kind of check is shown an implementation with a planted fault.

The faults are planted in PyTorch's recurrence, sweep or arguments, and in wrappers of JAX's function; the comparison
that test_parity.py makes must notice, in float32 too, where it allows most.
"""

import contextlib
import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import PROBLEMS, Inputs, Result, assert_parity, by_keyword, ragged, reference_result, run, run_function

import jax_impl
import jax_impl.backend
import torch_impl
import torch_impl.alignment
from shared.alignments import ANYWHERE, Choice, Recurrence, recurrence_of
from shared.tolerances import TOLERANCES
from torch_impl import plain_loops, recurrences, sweeps

DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])


@functools.cache
def expected(problem: str) -> tuple[Inputs, Result]:
    """A ragged batch of a problem with its first options, and its results by the reference."""
    inputs = ragged(5, 8, problem=problem)
    return inputs, reference_result(inputs, problem, **PROBLEMS[problem].options[0])


INPUTS, EXPECTED = expected("smith_waterman")


def compare(result: Result, dtype: str = "float32", problem: str = "smith_waterman") -> None:
    inputs, exact = expected(problem)
    assert_parity(result, exact, dtype, inputs.parameters["temperature"])


def compare_torch(problem: str, dtype: str = "float32") -> None:
    options = PROBLEMS[problem].options[0]
    compare(run("torch", expected(problem)[0], dtype, "diagonal_loop", problem=problem, **options), dtype, problem)


def plant(monkeypatch: pytest.MonkeyPatch, problem: str, **changes: Any) -> None:
    """Change the recurrence of a problem in PyTorch: fields of the table's row, or methods."""
    right = recurrence_of(problem, PROBLEMS[problem].options[0])
    fields = {field.name: getattr(right, field.name) for field in dataclasses.fields(right)}
    faulty = type("Faulty", (Recurrence,), {name: changes[name] for name in changes.keys() - fields.keys()})
    planted = faulty(**fields | {name: changes[name] for name in changes.keys() & fields.keys()})
    monkeypatch.setattr(torch_impl.alignment, "recurrence_of", lambda *_: planted)
    monkeypatch.setattr(sweeps, "PLAIN_LOOPS", {})  # which read no table


@DTYPES
@pytest.mark.parametrize("problem", PROBLEMS)
def test_parity_is_green_without_a_fault(problem, dtype, monkeypatch):
    plant(monkeypatch, problem, name="the same")
    compare_torch(problem, dtype)
    exact = expected(problem)[1]
    compare(exact._replace(**as_dtype(exact, dtype)), dtype, problem)


def as_dtype(result: Result, dtype: str) -> dict[str, Any]:
    gradients = {name: np.array(value, dtype=dtype) for name, value in result.gradients.items()}
    return {"score": np.array(result.score, dtype=dtype), "gradients": gradients}


def states_of(problem: str, **options: bool) -> tuple[tuple[Choice, ...], ...]:
    return recurrence_of(problem, PROBLEMS[problem].options[0] | options).states


AFFINE, GLOBAL_AFFINE = "smith_waterman_affine", "needleman_wunsch_affine"
BORDER = recurrence_of(GLOBAL_AFFINE, PROBLEMS[GLOBAL_AFFINE].options[0]).outside
OPENING = tuple({axis: row._replace(further=row.first) for axis, row in state.items()} for state in BORDER)
# what is wrong -> the problem, and what is changed
FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "no start": ("smith_waterman", {"states": (states_of("smith_waterman")[0][:-1],)}),
    "another end": ("smith_waterman", {"ends_among_choices": (0,)}),
    "ignored lengths": ("smith_waterman", {"may_end": lambda self, i, j, lengths: torch.ones_like(i + j < lengths[0])}),
    "turns not penalized": (AFFINE, {"states": states_of(AFFINE, penalize_turns=False)}),
    "turns not restricted": (AFFINE, {"states": states_of(AFFINE, restrict_turns=False)}),
    "single matches counted": (AFFINE, {"where": ANYWHERE, "ends": (), "ends_among_choices": (0, 1, 2, 3)}),
    "a border one gap short": ("needleman_wunsch", {"border": lambda self, p, gaps, axis: (p["gap"] * (gaps - 1),)}),
    "each gap of a border opens": (GLOBAL_AFFINE, {"outside": OPENING}),
    "a path begins anywhere outside": ("soft_dtw", {"outside": recurrence_of("free_gap", {}).outside}),
    "no gaps beside an empty sequence": ("needleman_wunsch", {"empty_score": lambda self, parameters, lengths: 0.0}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_parity_sees_a_fault_in_a_recurrence(fault, monkeypatch):
    problem, changes = FAULTS[fault]
    plant(monkeypatch, problem, **changes)
    with pytest.raises(AssertionError, match=r"^score is"):
        compare_torch(problem)


@pytest.mark.parametrize(
    ("module", "name", "fault", "problem"),
    [
        (plain_loops, "neighbours_odd", plain_loops.neighbours_even, "smith_waterman"),
        (sweeps, "neighbours_odd", sweeps.neighbours_even, "needleman_wunsch"),
        (recurrences, "smooth_maximum", lambda values, temperature, dim: values.amax(dim), "smith_waterman"),
    ],
)
def test_parity_sees_a_shift_that_is_off_by_one_and_a_hard_maximum(module, name, fault, problem, monkeypatch):
    monkeypatch.setattr(module, name, fault)
    with pytest.raises(AssertionError, match=r"^score"):
        compare_torch(problem)


@pytest.mark.parametrize(
    ("problem", "name"),
    [(problem, name) for problem, (parameters, _) in PROBLEMS.items() for name in ("similarity", *parameters)],
)
def test_parity_sees_one_wrong_gradient_and_names_it(problem, name):
    def faulty(similarity: Any, lengths: Any, **parameters: Any) -> Any:
        arguments = {"similarity": similarity, **parameters}
        arguments[name] = 1.01 * arguments[name] - 0.01 * arguments[name].detach()
        return by_keyword(getattr(torch_impl, problem))(lengths=lengths, **arguments)

    with pytest.raises(AssertionError, match=f"^{name} is"):
        compare(run_function("torch", faulty, expected(problem)[0], "float32"), problem=problem)


def leaking_padding(similarity: Any, lengths: Any, **parameters: Any) -> Any:
    leaking = 1e-3 * similarity.nan_to_num(0, 0, 0).sum((1, 2))
    return torch_impl.smith_waterman(similarity, lengths, **parameters) + leaking - leaking.detach()


def through_float32(similarity: Any, lengths: Any, **parameters: Any) -> Any:
    return jax_impl.smith_waterman(similarity.astype(jnp.float32), lengths, **parameters).astype(jnp.float64)


@pytest.mark.parametrize(
    ("framework", "faulty", "dtype", "seen"),
    [("torch", leaking_padding, "float32", "similarity"), ("jax", through_float32, "float64", "score")],
)
def test_parity_sees_a_faulty_function(framework, faulty, dtype, seen):
    with jax_impl.backend.precision(dtype), pytest.raises(AssertionError, match=f"^{seen}"):
        compare(run_function(framework, faulty, INPUTS, dtype, {"jax": "quick", "torch": "eager"}[framework]), dtype)


@pytest.mark.parametrize("what", ["score", "similarity", "gap", "temperature"])
def test_parity_sees_one_value_that_is_not_finite(what):
    for poison in (np.nan, np.inf, -np.inf):
        bad = EXPECTED._replace(**as_dtype(EXPECTED, "float32"))
        (bad.score if what == "score" else bad.gradients[what]).flat[-1] = poison
        with pytest.raises(AssertionError, match=f"^{what} is"):
            compare(bad)


def test_parity_sees_another_dtype_or_shape():
    with pytest.raises(AssertionError, match=r"^score has dtype float64, expected float32"):
        compare(EXPECTED)
    with pytest.raises(AssertionError, match=r"^score has shape \(1,\), expected \(6,\)"):
        compare(EXPECTED._replace(score=EXPECTED.score[:1]), "float64")


@DTYPES
@pytest.mark.parametrize("name", ["score", "similarity", "gap", "temperature"])
def test_parity_is_as_strict_as_the_table_says(dtype, name):
    tolerance = TOLERANCES[dtype]
    allowed = {"score": tolerance.score, "similarity": tolerance.marginals}.get(name, tolerance.gradient)
    exact = EXPECTED._replace(**as_dtype(EXPECTED, "float64"))
    pair = int(np.argmax(np.abs(EXPECTED.score)))  # where the bounds are widest
    for factor, outcome in ((0.4, contextlib.nullcontext()), (30.0, pytest.raises(AssertionError, match=f"^{name}"))):
        score, gradients = exact.score.copy(), {k: v.copy() for k, v in exact.gradients.items()}
        values = score if name == "score" else gradients[name]
        values[pair] += factor * allowed * max(1.0, float(np.abs(values).max()))
        moved = Result(score.astype(dtype), {k: v.astype(dtype) for k, v in gradients.items()}, exact.cotangent)
        with outcome:
            compare(moved, dtype)
