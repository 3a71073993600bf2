"""What a question is: the cases that it needs, how they are measured, and how the record answers it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from shared.bench.analysis.estimates import Estimate
from shared.bench.analysis.verdict import contenders, deciding
from shared.bench.cases import Case, Settings
from shared.bench.record import Record
from shared.bench.report.tables import Answer, Plot, Table
from shared.problems import PROBLEMS, Inputs
from shared.problems.problem import Problem
from shared.variants import Abilities


class Question(ABC):
    """One question. Adding one is a subclass in a file of its own and a line in `QUESTIONS`."""

    name: str
    asks: str  # the question itself, one line
    default_input = "globins"  # of problems that take sequences, on a CPU
    takes_sizes = False  # --sizes, and then neither --size nor sequences
    labels: tuple[str, ...] = ("",)  # each case is measured once for each, in worker processes of its own
    times_rounds = True  # fresh workers time rounds after the first calls
    times_reference = False  # the NumPy reference too
    measures_memory = True
    tries_new_shape = False

    # which cases

    def default_passes(self, problem: Problem) -> tuple[str, ...]:
        return problem.default_passes

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        """The inputs by name. Raises UnusableInput, SequenceError or MemoryError."""
        return PROBLEMS[settings.problem].inputs(settings)

    def is_default(self, settings: Settings, variant: str, abilities: Abilities) -> bool:
        """Whether a variant is measured if the user names none."""
        return PROBLEMS[settings.problem].is_default(variant, abilities, settings)

    def modes(self, settings: Settings, variant: str, input_name: str, abilities: Abilities) -> Sequence[bool]:
        """Whether a variant is measured compiled (True), not compiled (False), both or neither."""
        return PROBLEMS[settings.problem].modes(variant, abilities)

    # how they are measured

    def worker_command(self, label: str) -> Sequence[str]:
        """The command that starts a worker of a label, without its arguments."""
        from shared.bench.run.worker_handle import WORKER_COMMAND  # here: the run imports this module

        return WORKER_COMMAND

    def deciding(self, record: Record) -> list[Estimate]:
        """The estimates that must be precise before the run may end."""
        return deciding(record)

    def contenders(self, record: Record) -> set[Case]:
        """The cases that need more times."""
        return contenders(record)

    # how the record answers

    @abstractmethod
    def answer(self, record: Record) -> Answer:
        """The answer in a table that a hurried person reads, and in sentences."""

    def provisional(self, record: Record) -> Table | None:
        """The answer's table as soon as the first calls are done; None if there is nothing to show yet."""
        return None

    def plots(self, record: Record) -> Iterator[Plot]:
        """Of the page; unless a question has its own, the time of every case."""
        from shared.bench.report.plots import plots_of_cases  # here: matplotlib takes a second to import

        return plots_of_cases(record)
