"""smith_waterman as a problem of the benchmark: local alignment with a linear gap."""

from typing import Any

from shared.problems.alignment_inputs import alignment_inputs
from shared.problems.problem import Inputs, Problem


def _inputs(settings: Any) -> tuple[Inputs, Inputs]:
    parameters = {"gap": settings.gap, "temperature": settings.temperature}
    return alignment_inputs(settings, parameters, {"end": settings.end})


PROBLEM = Problem(
    name="smith_waterman",
    text="smooth local alignment with a linear gap",
    passes=("score", "marginals"),
    inputs=_inputs,
)
