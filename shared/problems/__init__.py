"""The problems of the benchmark: what is computed. The list is here, to be read."""

from shared.problems.alignments import ALIGNMENT_PROBLEMS
from shared.problems.learn_alignment import LearnAlignment
from shared.problems.linear_regression import LinearRegression
from shared.problems.problem import Inputs, Problem, Verdict
from shared.problems.stencil import Stencil

PROBLEMS: dict[str, Problem] = {
    problem.name: problem for problem in (*ALIGNMENT_PROBLEMS, LinearRegression(), Stencil(), LearnAlignment())
}

__all__ = ["PROBLEMS", "Inputs", "Problem", "Verdict"]
