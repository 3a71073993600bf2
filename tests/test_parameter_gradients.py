"""Gradients for the gaps and the temperature, however they are given and mapped, against the reference.

By the variants whose derivatives are written by hand; in PyTorch also by the loop that autograd differentiates.

A parameter is a Python number, which has no gradient; an array of shape (), whose gradient is the sum over the pairs,
each weighted by its cotangent; an array of shape (batch,), a value and a gradient for each pair; or, for a gap, a
matrix for each pair. The inputs are a ragged batch with pairs without rows or columns and with poison in the padding,
in float64.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch
from frameworks import (
    BY_HAND,
    FRAMEWORKS,
    PROBLEMS,
    Inputs,
    Result,
    assert_parity,
    ragged,
    reference_result,
    run,
    run_function,
)
from gaps_by_position import FRAMEWORK, how_to_run

WHICH = [("torch", "diagonal_loop"), *itertools.product(FRAMEWORKS, BY_HAND)]


def slow_in_jax(case: tuple[Any, ...], is_default: bool) -> Any:
    """XLA compiles each case anew, a wavefront for seconds."""
    return pytest.param(*case, marks=[pytest.mark.slow] * (case[0] == "jax" and not is_default))


def kinds_of(problem: str) -> list[dict[str, str]]:
    """The ways to give the parameters: all alike, the first per pair and the others shared, and one alone."""
    names = list(PROBLEMS[problem].parameters)
    ways = [dict.fromkeys(names, kind) for kind in ("number", "shared", "per pair")]
    ways.append(dict.fromkeys(names, "shared") | {names[0]: "per pair"})
    for name in names:
        ways += [dict.fromkeys(names, "number") | {name: kind} for kind in ("shared", "per pair")]
    return [way for number, way in enumerate(ways) if way not in ways[:number]]


# each problem's options take turns
EVERY_WAY = [
    slow_in_jax((*which, problem, kinds, options), which[1] == "fused" and problem == "smith_waterman_affine")
    for which, problem in itertools.product([*WHICH, ("jax", "scan_select")], PROBLEMS)
    for kinds, options in zip(kinds_of(problem), itertools.cycle(PROBLEMS[problem].options), strict=False)
    if which[0] == "torch" or which[1] == "fused" or problem == "needleman_wunsch"
]


def given(inputs: Inputs, kinds: dict[str, str]) -> Inputs:
    """The inputs with each parameter per pair, or with the first pair's value for all."""
    values = {name: v if kinds[name] == "per pair" else v[0] for name, v in inputs.parameters.items()}
    return inputs._replace(parameters={name: np.asarray(value) for name, value in values.items()})


@pytest.mark.parametrize(("framework", "variant", "problem", "kinds", "options"), EVERY_WAY, ids=str)
def test_gradients_are_right_however_the_parameters_are_given(framework, variant, problem, kinds, options):
    inputs = given(ragged(3, 4, problem=problem), kinds)
    numbers = {name: float(value) for name, value in inputs.parameters.items() if kinds[name] == "number"}
    arrays = {name: value for name, value in inputs.parameters.items() if kinds[name] != "number"}
    score = functools.partial(getattr(FRAMEWORKS[framework].package, problem), **numbers, **options, variant=variant)
    arguments = inputs._replace(parameters=arrays), "float64", "quick" if framework == "jax" else "eager"
    result = run_function(framework, score, *arguments)

    expected = reference_result(inputs, problem, **options)
    differentiable = {name: value for name, value in expected.gradients.items() if name not in numbers}
    assert result.gradients.keys() == differentiable.keys()
    assert_parity(result, expected._replace(gradients=differentiable), "float64", inputs.parameters["temperature"])


@pytest.mark.parametrize("variant", ["diagonal_loop", *BY_HAND])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_torch_numbers_leave_nothing_to_differentiate(problem, variant):
    inputs = given(ragged(3, 4, problem=problem), dict.fromkeys(PROBLEMS[problem].parameters, "number"))
    similarity, lengths = torch.tensor(inputs.similarity), torch.tensor(inputs.lengths)
    function = functools.partial(getattr(FRAMEWORKS["torch"].package, problem), variant=variant)
    numbers = function(similarity, lengths, **{name: float(value) for name, value in inputs.parameters.items()})
    leaves = {name: torch.tensor(value, requires_grad=True) for name, value in inputs.parameters.items()}
    tensors = function(similarity, lengths, **leaves)
    assert not numbers.requires_grad
    assert tensors.requires_grad
    assert torch.equal(numbers, tensors)


Axes = tuple[int | None, dict[str, int | None]]
# XLA takes seconds to compile a wavefront: one problem
ALONE = [
    slow_in_jax((*which, problem, name, names), which[1] == "fused" and problem == "needleman_wunsch")
    for which, problem in itertools.product(WHICH, PROBLEMS)
    if which != ("jax", "wavefront") or problem == "needleman_wunsch"
    for name in ("similarity", *PROBLEMS[problem].parameters)
    for names in ((), (next(iter(PROBLEMS[problem].parameters)) if name == "similarity" else name,))
    if "temperature" not in names
]


def mapped(framework: str, score: Callable[..., Any], inputs: Inputs, axes: Axes) -> Result:
    """Scores and gradients of single pairs, by the framework's vmap of its functional gradient."""

    def of_one(matrix: Any, values: dict[str, Any]) -> Any:
        return score(matrix, **values)

    backend = FRAMEWORKS[framework].backend
    with backend.precision("float64"):
        matrix = backend.to_device(inputs.similarity, "cpu")
        values = {name: backend.to_device(value, "cpu") for name, value in inputs.parameters.items()}
        if framework == "jax":
            function: Any = jax.vmap(jax.value_and_grad(of_one, argnums=(0, 1)), in_axes=axes)
            scores, gradients = jax.jit(function)(matrix, values)
        else:
            function = torch.func.vmap(torch.func.grad_and_value(of_one, argnums=(0, 1)), in_dims=axes)
            gradients, scores = function(matrix, values)
        scores, (to_similarity, to_parameters) = jax.tree.map(backend.to_numpy, (scores, gradients))
    return Result(scores, {"similarity": to_similarity, **to_parameters}, np.ones(scores.shape))


@pytest.mark.parametrize(("framework", "variant", "problem", "name", "names"), ALONE, ids=str)
def test_a_gradient_mapped_over_one_argument_alone_is_right(framework, variant, problem, name, names):
    every = ragged(3, 4, problem=problem, by_position=names)
    arrays = {"similarity": every.similarity, **every.parameters}
    arrays = {key: np.nan_to_num(value, posinf=0, neginf=0) for key, value in arrays.items()}
    alone = {key: value if key == name else value[0] for key, value in arrays.items()}
    repeated = {key: value if key == name else np.stack([value[0]] * 6) for key, value in arrays.items()}
    axes: Axes = (0 if name == "similarity" else None, dict.fromkeys(every.parameters) | {name: 0})
    arguments, expected = (
        Inputs(values.pop("similarity"), None, {key: np.asarray(value) for key, value in values.items()}, np.ones(6))
        for values in (alone, repeated)
    )
    axes[1].pop("similarity", None)
    options = {"end": "match"} if problem == "smith_waterman" and names else {}
    score = functools.partial(getattr(FRAMEWORKS[framework].package, problem), variant=variant, **options)
    result = mapped(framework, score, arguments, axes)
    exact = reference_result(expected, problem, **options)
    assert_parity(result, exact, "float64", expected.parameters["temperature"])


@FRAMEWORK
def test_a_batch_too_large_for_the_cache_is_the_same_in_parts(framework):
    random = np.random.default_rng(3)
    s, gap = random.normal(size=(2, 6000, 5, 6))  # JAX: tables of 2 MiB, of 440 bytes for a pair
    lengths = random.integers(0, (6, 7), size=(6000, 2), dtype=np.int32)
    inputs = Inputs(s, lengths, {"gap": gap, "temperature": np.ones(())}, random.normal(size=6000))
    whole, parts = (
        run(framework, inputs, "float64", name, how_to_run(framework, name), end="match") for name in BY_HAND[::-1]
    )
    np.testing.assert_allclose(parts.score, whole.score, rtol=1e-12)
    np.testing.assert_allclose(parts.gradients["gap"], whole.gradients["gap"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("framework", "variant"), [("torch", "diagonal_loop"), ("jax", "wavefront"), ("jax", "vmap")])
@pytest.mark.parametrize(("name", "limit"), [("temperature", 1e-15), ("temperature", 1e15), ("gap", 1e18)])
def test_at_a_limit_the_gradient_is_whole(framework, variant, name, limit):
    unit = 1e-15 if limit < 1 else 1e15
    values = {key: np.array(value) for key, value in ({"gap": -unit, "temperature": unit} | {name: limit}).items()}
    inputs = Inputs(np.full((1, 3, 2), unit), None, values, np.ones(1))
    result = run(framework, inputs, "float32", variant, how_to_run(framework, variant), "needleman_wunsch")
    expected = reference_result(inputs, "needleman_wunsch").gradients[name]
    assert expected > 0.5
    assert result.gradients[name] == pytest.approx(expected, rel=1e-3)
