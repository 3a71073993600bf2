"""The problems of the benchmark: what is computed. The list is here, to be read."""

from shared.backends import is_file
from shared.problems.alignments import ALIGNMENT_PROBLEMS
from shared.problems.argument_types import one_of
from shared.problems.learn_alignment import LearnAlignment
from shared.problems.linear_regression import LinearRegression
from shared.problems.own_problem import ANY_FILE, OwnProblem
from shared.problems.problem import Inputs, Problem, Verdict
from shared.problems.stencil import Stencil

PROBLEMS: dict[str, Problem] = {
    problem.name: problem for problem in (*ALIGNMENT_PROBLEMS, LinearRegression(), Stencil(), LearnAlignment())
}


def problem_of(name: str) -> Problem:
    """A problem of the list, or one of the user's own by the path of its file, which is not read yet."""
    return OwnProblem(name) if is_file(name) else PROBLEMS[name]


def problem_name(text: str) -> str:
    """The type of a command-line argument."""
    return text if is_file(text) else one_of("problem", (*PROBLEMS, ANY_FILE))(text)


__all__ = ["ANY_FILE", "PROBLEMS", "Inputs", "Problem", "Verdict", "problem_name", "problem_of"]
