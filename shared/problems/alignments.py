"""The alignments as problems of the benchmark: they share their inputs and passes, and differ in what they compute."""

from typing import Any

from shared.alignments import ALIGNMENTS
from shared.problems.alignment_inputs import alignment_inputs
from shared.problems.problem import Inputs, Problem

PASSES = ("score", "marginals", "hvp")


def _problem(name: str) -> Problem:
    text, parameters, options = ALIGNMENTS[name]

    def inputs(settings: Any) -> dict[str, Inputs]:
        asked = settings.arguments
        return alignment_inputs(
            settings,
            {key: asked.get(key, default) for key, default in parameters.items()},
            {key: asked.get(key, default) for key, default in options.items()},
        )

    return Problem(name, text, PASSES, parameters | options, inputs)


ALIGNMENT_PROBLEMS = tuple(_problem(name) for name in ALIGNMENTS)
