"""The problems of the benchmark: what is computed. The list is here, to be read."""

from shared.problems.alignments import ALIGNMENT_PROBLEMS
from shared.problems.problem import Inputs, Problem

PROBLEMS: dict[str, Problem] = {problem.name: problem for problem in ALIGNMENT_PROBLEMS}

__all__ = ["PROBLEMS", "Inputs", "Problem"]
