"""Gaps by position in tests: every choice of them, and second derivatives to compare with."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch
from frameworks import BY_HAND, FRAMEWORKS, PROBLEMS, Inputs, by_keyword, reference_gradients

from shared.alignments import ALIGNMENTS, has_free_ends

Options = dict[str, Any]
Values = dict[str, Any]
# (problem, names of the gaps by position)
GAPS = [
    (problem, names)
    for problem, alignment in ALIGNMENTS.items()
    for count in range(1, len(alignment.gaps) + 1)
    for names in itertools.combinations(alignment.gaps, count)
]
OPTIONS = {  # free end gaps are by axis
    problem: [options for options in described.options if not has_free_ends(options)]
    for problem, described in PROBLEMS.items()
}
EVERY = [(problem, options, names) for problem, names in GAPS for options in OPTIONS[problem]]
# one option for each, none like another's
TURNS = [
    (problem, OPTIONS[problem][-1 - number % len(OPTIONS[problem])], names)
    for number, (problem, names) in enumerate(GAPS)
]
CASES = pytest.mark.parametrize(("problem", "options", "names"), EVERY, ids=str)
FRAMEWORK = pytest.mark.parametrize("framework", FRAMEWORKS)
VARIANT = pytest.mark.parametrize("variant", BY_HAND)


def how_to_run(framework: str, variant: str) -> str:
    """The cheapest way that is still the variant itself."""
    if framework == "jax":
        return "eager" if variant == "fused" else "quick"
    return "quick" if variant == "batch_loop" else "eager"


def outside(inputs: Inputs) -> np.ndarray:
    """Mask of the padding."""
    assert inputs.lengths is not None
    i, j = np.indices(inputs.similarity.shape[1:])
    return (i >= inputs.lengths[:, 0, None, None]) | (j >= inputs.lengths[:, 1, None, None])


def by_differences(problem: str, inputs: Inputs, direction: Values, options: Options) -> Values:
    """Hessian times direction, from the reference's exact gradients on either side."""
    arguments = {"similarity": inputs.similarity, **inputs.parameters}

    def gradients(step: float) -> Values:
        moved = {name: value + step * direction[name] for name, value in arguments.items()}
        return reference_gradients(problem, lengths=inputs.lengths, **moved, **options)

    ahead, behind = gradients(1e-5), gradients(-1e-5)
    return {name: (ahead[name] - behind[name]) / 2e-5 for name in arguments}


def directions_of(inputs: Inputs, names: tuple[str, ...]) -> list[Values]:
    """Directions: of all arguments, with NaN in the padding; of those named alone; of the similarity alone."""
    random = np.random.default_rng(11)
    arguments = {"similarity": inputs.similarity, **inputs.parameters}
    every = {name: random.normal(size=value.shape) for name, value in arguments.items()}
    poisoned = {
        name: np.where(outside(inputs), np.nan, value) if value.ndim > 1 else value for name, value in every.items()
    }
    alone = [
        {name: value if name in chosen else 0 * value for name, value in every.items()}
        for chosen in (names, ("similarity",))
    ]
    return [poisoned, *alone]


def products(
    framework: str, score: Callable[..., Any], inputs: Inputs, directions: list[Values], dtype: str = "float64"
) -> list[Values]:
    """Return the Hessian times each direction: the gradients of (first derivatives · direction)."""
    backend = FRAMEWORKS[framework].backend
    slope = {"jax": _jax_slope(score), "torch": functools.partial(_torch_slope, score)}[framework]
    with backend.precision(dtype):
        arguments = {"similarity": inputs.similarity, **inputs.parameters}
        results = []
        for direction in directions:
            moved = (
                {name: backend.to_device(value.astype(dtype), "cpu") for name, value in values.items()}
                for values in (arguments, direction)
            )
            result = slope(inputs.lengths, *moved)
            results.append({name: backend.to_numpy(value) for name, value in result.items()})
        return results


@functools.lru_cache(maxsize=32)  # compiled once for the directions and inputs of a shape
def _jax_slope(score: Callable[..., Any]) -> Callable[[Any, Values, Values], Values]:
    def loss(lengths: Any, arguments: Values, direction: Values) -> Any:
        total = lambda values: by_keyword(score)(lengths=lengths, **values).sum()  # noqa: E731
        return sum((direction[name] * slope).sum() for name, slope in jax.grad(total)(arguments).items())

    return jax.jit(jax.grad(loss, argnums=1))


def _torch_slope(score: Callable[..., Any], lengths: Any, arguments: Values, direction: Values) -> Values:
    leaves = {name: value.clone().requires_grad_() for name, value in arguments.items()}
    total = by_keyword(score)(lengths=None if lengths is None else torch.from_numpy(lengths), **leaves).sum()
    first = torch.autograd.grad(total, list(leaves.values()), create_graph=True)
    loss = torch.stack([(direction[name] * value).sum() for name, value in zip(leaves, first, strict=True)]).sum()
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
