"""Gaps by position in tests: every choice of them, and second derivatives to compare with."""

import itertools
from typing import Any

import numpy as np
import pytest
from frameworks import BY_HAND, FRAMEWORKS, PROBLEMS, Inputs

from shared import reference
from shared.alignments import ALIGNMENTS

Options = dict[str, Any]
Values = dict[str, Any]
# (problem, names of the gaps by position)
GAPS = [
    (problem, names)
    for problem, alignment in ALIGNMENTS.items()
    for count in range(1, len(alignment.gaps) + 1)
    for names in itertools.combinations(alignment.gaps, count)
]
EVERY = [(problem, options, names) for problem, names in GAPS for options in PROBLEMS[problem].options]
# one option for each, none like another's
TURNS = [
    (problem, PROBLEMS[problem].options[-1 - number % len(PROBLEMS[problem].options)], names)
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
        return reference.gradients(problem, lengths=inputs.lengths, **moved, **options)

    ahead, behind = gradients(1e-5), gradients(-1e-5)
    return {name: (ahead[name] - behind[name]) / 2e-5 for name in arguments}


def directions_of(inputs: Inputs, names: tuple[str, ...]) -> list[Values]:
    """Of all arguments, with NaN in the padding; of the gaps by position alone; of the similarity alone."""
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
