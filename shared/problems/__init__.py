"""The problems of the benchmark: what is computed. The list is here, to be read."""

from shared.problems import smith_waterman
from shared.problems.problem import Inputs, Problem

PROBLEMS: dict[str, Problem] = {problem.name: problem for problem in (smith_waterman.PROBLEM,)}

__all__ = ["PROBLEMS", "Inputs", "Problem"]
