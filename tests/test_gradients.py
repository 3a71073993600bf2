"""Second derivatives and forward mode against differences of the reference's exact gradients, in float64.

Through the variants whose derivatives are written by hand, and through loops that the framework differentiates by
itself; gaps are numbers or by position. A loss on the marginals is what people differentiate twice.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch
from frameworks import BY_AXIS, BY_HAND, FRAMEWORKS, PROBLEMS, by_keyword, ragged, reference_gradients, single
from gaps_by_position import EVERY as BY_POSITION
from gaps_by_position import TURNS, Values, by_differences, directions_of, outside, products

from shared import reference

NUMBERS = [(problem, options, ()) for problem, (_, every) in PROBLEMS.items() for options in every]
# the last options of each problem, and two gaps by position
LAST = [(problem, every[-1], ()) for problem, (_, every) in PROBLEMS.items()]
LAST_AND_GAPS = [*LAST, TURNS[3]]
AFFINE = ("smith_waterman_affine", {"restrict_turns": True, "penalize_turns": False}, ())
slow = pytest.mark.slow
CHEAP = [case for case in itertools.product(FRAMEWORKS, BY_HAND) if case != ("jax", "wavefront")]


# XLA takes seconds to compile each wavefront or loop: which option it is, only the recurrence's table knows
REST = [case for case in [*NUMBERS, *BY_POSITION] if case not in LAST_AND_GAPS]
SECOND = [
    *((*which, *case) for which in CHEAP for case in LAST_AND_GAPS),
    *(
        pytest.param(
            "torch", variant, *case, marks=[slow] * (variant == "fused" and case in BY_POSITION and case not in TURNS)
        )
        for variant in BY_HAND
        for case in REST
    ),
    ("torch", "diagonal_loop", *TURNS[3]),
    ("torch", "cell_loop", *TURNS[4]),
    *(("jax", "wavefront", *case) for case in (LAST[-1], TURNS[4])),
    ("jax", "vmap", *LAST[-1]),
    *(pytest.param("jax", "fused", *case, marks=slow) for case in REST),
    *(pytest.param("torch", variant, *case, marks=slow) for variant in BY_HAND for case in BY_AXIS),
    *(pytest.param("jax", variant, *BY_AXIS[-3], marks=slow) for variant in BY_HAND),
    *(("torch", variant, *BY_AXIS[-2]) for variant in ("wavefront", "diagonal_loop")),
    *(pytest.param("jax", "wavefront", *case, marks=slow) for case in (*LAST[:-1], TURNS[3])),
    *(pytest.param("jax", "scan_select", *case, marks=slow) for case in (AFFINE, TURNS[0])),
    pytest.param("jax", "scan_cond", *LAST[-1], marks=slow),
    *(pytest.param("torch", "diagonal_loop", *case, marks=slow) for case in [*NUMBERS, *TURNS] if case != TURNS[3]),
]


@pytest.mark.parametrize(("framework", "variant", "problem", "options", "names"), SECOND, ids=str)
def test_second_derivatives_are_those_of_the_reference(framework, variant, problem, options, names):
    size = (2, 2) if variant in ("scan_cond", "cell_loop") else (4, 5)
    inputs = ragged(*size, problem=problem, by_position=names)
    score = functools.partial(getattr(FRAMEWORKS[framework].package, problem), variant=variant, **options)
    directions = directions_of(inputs, names or tuple(inputs.parameters))
    for direction, result in zip(directions, products(framework, score, inputs, directions), strict=True):
        expected = by_differences(problem, inputs, direction, options)
        for name, value in expected.items():
            np.testing.assert_allclose(result[name], value, rtol=0, atol=1e-7, err_msg=name)
            assert value.ndim == 1 or not result[name][outside(inputs)].any(), name


MARGINALS = [
    *((*which, *case[:2], "a ragged batch") for which in (*CHEAP, ("torch", "diagonal_loop")) for case in LAST),
    *((*which, *AFFINE[:2], "shared parameters") for which in (*CHEAP, ("torch", "diagonal_loop"))),
    *((*which, *LAST[-1][:2], "a pair") for which in CHEAP),
    pytest.param("jax", "wavefront", *LAST[-1][:2], "a ragged batch", marks=slow),
]


@pytest.mark.parametrize(("framework", "variant", "problem", "options", "kind"), MARGINALS, ids=str)
def test_gradients_of_a_loss_on_the_marginals_are_right(framework, variant, problem, options, kind):
    is_pair = kind == "a pair"
    inputs = single(3, 4, problem=problem) if is_pair else ragged(3, 4, 0, problem, kind != "shared parameters")
    arrays = {"similarity": inputs.similarity, **inputs.parameters}
    exact = reference.gradients(problem, lengths=inputs.lengths, **arrays, **options)["similarity"]
    weights = np.random.default_rng(5).normal(size=exact.shape)
    direction = 2 * weights * exact  # of sum(weights * marginals^2)
    arguments = inputs.similarity, direction, inputs.lengths
    expected = reference.hessian_vector_product(problem, *arguments, **inputs.parameters, **options)

    package, backend = FRAMEWORKS[framework]
    score = functools.partial(getattr(package, problem), variant=variant, **options)
    marginals = functools.partial(package.marginals, score, lengths=inputs.lengths)
    with backend.precision("float64"):
        if framework == "jax":
            result = jax.jit(jax.grad(lambda values: (weights * marginals(**values) ** 2).sum()))(arrays)
        else:
            leaves = {name: torch.tensor(value, requires_grad=True) for name, value in arrays.items()}
            loss = (torch.tensor(weights) * marginals(**leaves) ** 2).sum()
            result = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
    for name, value in arrays.items():
        exact_value = expected[name] if value.ndim else expected[name].sum()
        assert result[name].shape == exact_value.shape
        bound = 1e-8 * max(1.0, np.abs(exact_value).max())
        np.testing.assert_allclose(np.asarray(result[name]), exact_value, rtol=0, atol=bound, err_msg=name)
    assert is_pair or not np.asarray(result["similarity"])[outside(inputs)].any()


FORWARD = [
    *(("jax", "fused", *case) for case in LAST_AND_GAPS),
    ("jax", "wavefront", *TURNS[4]),
    # those that JAX differentiates by itself take turns
    ("jax", "scan_select", *NUMBERS[1]),
    pytest.param("jax", "vmap", *AFFINE, marks=slow),
    ("jax", "diagonal_loop", *LAST[2]),
    *(("torch", variant, *case) for variant in ("cell_loop", "diagonal_loop", *BY_HAND) for case in LAST_AND_GAPS),
]


def jvp(framework: str, function: Callable[[Values], Any], at: Values, along: Values) -> Any:
    """The tangents of a function of arrays by their names, in float64."""
    backend = FRAMEWORKS[framework].backend
    with backend.precision("float64"):
        point, tangent = ({name: backend.to_device(v, "cpu") for name, v in values.items()} for values in (at, along))
        if framework == "jax":
            tangents = jax.jit(lambda *pair: jax.jvp(function, pair[:1], pair[1:])[1])(point, tangent)
        else:
            tangents = torch.func.jvp(function, (point,), (tangent,))[1]
        return jax.tree.map(backend.to_numpy, tangents)


@pytest.mark.parametrize(("framework", "variant", "problem", "options", "names"), FORWARD, ids=str)
def test_forward_mode_is_right_whatever_the_padding_of_tangents_is(framework, variant, problem, options, names):
    inputs = ragged(2, 3, problem=problem, by_position=names)
    arguments = {"similarity": inputs.similarity, **inputs.parameters}
    direction, *_ = directions_of(inputs, names)
    package = FRAMEWORKS[framework].package
    function = by_keyword(functools.partial(getattr(package, problem), variant=variant, **options))
    exact = reference_gradients(problem, lengths=inputs.lengths, **arguments, **options)
    along = [np.nan_to_num(exact[name] * direction[name]).reshape(6, -1).sum(1) for name in arguments]
    tangents = jvp(framework, lambda values: function(lengths=inputs.lengths, **values), arguments, direction)
    np.testing.assert_allclose(tangents, sum(along), 1e-12, 1e-12)


@pytest.mark.parametrize(("framework", "variant"), itertools.product(FRAMEWORKS, BY_HAND))
def test_tangents_of_gradients_are_right_whatever_their_padding_is(framework, variant):
    problem, options, names = TURNS[4] if (framework, variant) == ("jax", "wavefront") else TURNS[3]
    inputs = ragged(4, 5, problem=problem, by_position=names)
    direction, *_ = directions_of(inputs, names)
    package = FRAMEWORKS[framework].package
    score = functools.partial(getattr(package, problem), lengths=inputs.lengths, variant=variant, **options)
    gradient = {"jax": jax.grad, "torch": torch.func.grad}[framework](lambda values: score(**values).sum())
    tangents = jvp(framework, gradient, {"similarity": inputs.similarity, **inputs.parameters}, direction)
    for name, value in by_differences(problem, inputs, direction, options).items():
        np.testing.assert_allclose(tangents[name], value, rtol=0, atol=1e-7, err_msg=name)
