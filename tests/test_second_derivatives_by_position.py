"""Second derivatives where gaps are by position, in both frameworks, against differences of the reference's gradients.

Along a direction of all arguments at once, in which the padding is NaN, of the gaps by position alone, or of the
similarity alone.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch
from frameworks import BY_HAND, FRAMEWORKS, Inputs, ragged
from gaps_by_position import EVERY, FRAMEWORK, TURNS, VARIANT, Values, by_differences, directions_of, outside

from shared import reference


def products(framework: str, score: Callable[..., Any], inputs: Inputs, directions: list[Values]) -> list[Values]:
    """For each direction, the gradients of the product of it and the first derivatives: the Hessian times it."""
    backend = FRAMEWORKS[framework].backend
    with backend.precision("float64"):
        arguments = {"similarity": inputs.similarity, **inputs.parameters}
        slope = {"jax": _jax_slope, "torch": _torch_slope}[framework](score, inputs.lengths)
        move = lambda values: {name: backend.to_device(value, "cpu") for name, value in values.items()}  # noqa: E731
        results = [slope(move(arguments), move(direction)) for direction in directions]
        return [{name: backend.to_numpy(value) for name, value in result.items()} for result in results]


def _jax_slope(score: Callable[..., Any], lengths: Any) -> Callable[[Values, Values], Values]:
    def loss(arguments: Values, direction: Values) -> Any:
        total = lambda own: score(lengths=lengths, **own).sum()  # noqa: E731
        return sum((direction[name] * slope).sum() for name, slope in jax.grad(total)(arguments).items())

    return jax.jit(jax.grad(loss))


def _torch_slope(score: Callable[..., Any], lengths: Any) -> Callable[[Values, Values], Values]:
    def slope(arguments: Values, direction: Values) -> Values:
        leaves = {name: value.clone().requires_grad_() for name, value in arguments.items()}
        total = score(lengths=None if lengths is None else torch.from_numpy(lengths), **leaves).sum()
        first = torch.autograd.grad(total, list(leaves.values()), create_graph=True)
        loss = sum((direction[name] * own).sum() for name, own in zip(leaves, first, strict=True))
        assert isinstance(loss, torch.Tensor)
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    return slope


# Of JAX's wavefront XLA takes seconds to compile each: which option it is, only the recurrence's table knows, and first
# derivatives show them all
SECOND = [
    (*which, *case)
    for which in itertools.product(FRAMEWORKS, BY_HAND)
    for case in (TURNS if which == ("jax", "wavefront") else EVERY)
]
SECOND += [(*which, *case) for which in (("jax", "scan_select"), ("torch", "diagonal_loop")) for case in TURNS]


@pytest.mark.parametrize(("framework", "variant", "problem", "options", "names"), SECOND, ids=str)
def test_second_derivatives_are_those_of_the_reference(framework, variant, problem, options, names):
    inputs = ragged(4, 5, problem=problem, by_position=names)
    score = functools.partial(getattr(FRAMEWORKS[framework].package, problem), variant=variant, **options)
    directions = directions_of(inputs, names)
    for direction, found in zip(directions, products(framework, score, inputs, directions), strict=True):
        expected = by_differences(problem, inputs, direction, options)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-7, err_msg=name)
            assert value.ndim == 1 or not found[name][outside(inputs)].any(), name


@VARIANT
@FRAMEWORK
def test_a_hessian_vector_product_with_gaps_that_are_not_differentiated_is_right(framework, variant):
    inputs = ragged(4, 5, problem="needleman_wunsch", by_position=("gap",))
    package, backend = FRAMEWORKS[framework]
    direction, *_ = directions_of(inputs, ())
    given = inputs.similarity, direction["similarity"], inputs.lengths
    wanted = reference.hessian_vector_product("needleman_wunsch", *given, **inputs.parameters)["similarity"]
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-7)):
        matrices = (array.astype(dtype) for array in given[:2])
        with backend.precision(dtype):
            function = functools.partial(package.needleman_wunsch, variant=variant)
            found = package.hessian_vector_product(function, *matrices, inputs.lengths, **inputs.parameters)
            np.testing.assert_allclose(backend.to_numpy(found), wanted, rtol=0, atol=tolerance)


@VARIANT
def test_jax_tangents_are_right_whatever_their_padding_is(variant):
    inputs = ragged(4, 5, by_position=("gap",))
    arguments = {"similarity": inputs.similarity, **inputs.parameters}
    direction, *_ = directions_of(inputs, ("gap",))
    score = functools.partial(FRAMEWORKS["jax"].package.smith_waterman, lengths=inputs.lengths, variant=variant)
    first = reference.gradients("smith_waterman", lengths=inputs.lengths, **arguments)
    along = [np.nan_to_num(first[name] * direction[name]).reshape(6, -1).sum(1) for name in arguments]
    second = by_differences("smith_waterman", inputs, direction, {})
    with FRAMEWORKS["jax"].backend.precision("float64"):
        total = lambda given: score(**given).sum()  # noqa: E731
        both = lambda given, t: [  # noqa: E731
            jax.jvp(function, (given,), (t,))[1] for function in (lambda own: score(**own), jax.grad(total))
        ]
        t_scores, t_gradients = jax.jit(both)(arguments, direction)
    np.testing.assert_allclose(t_scores, sum(along), rtol=0, atol=1e-12)
    for name, value in second.items():
        np.testing.assert_allclose(t_gradients[name], value, rtol=0, atol=1e-7, err_msg=name)
