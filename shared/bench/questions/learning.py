"""How long does learning to align real protein families take, to a quality that is fixed beforehand?

Both frameworks train the same model from the same weights on the same batches, until their alignments of families that
they do not train on are as good as those by BLOSUM62 with the best gaps (learning_run.py). Then families are left out
one by one, to see whether what is learned is any good (learning_folds.py).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.bench.cases import Case, Settings
from shared.bench.questions.learning_answer import details, statements, tables
from shared.bench.questions.question import Question
from shared.bench.record import Record
from shared.bench.report.tables import Answer, Plot
from shared.problems import Inputs, problem_of
from shared.problems.problem import DATA, UnusableInput

if TYPE_CHECKING:
    from shared.bench.run.context import Run


class Learning(Question):
    """Training to a quality."""

    name = "learning"
    asks = "how long learning to align protein families takes to a given quality; is what is learned any good"
    takes = ()
    default_problem = "learn_alignment"
    default_budget = 600.0
    times_rounds = False

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        if settings.problem != self.default_problem:
            raise UnusableInput(f"{self.name} goes with {self.default_problem}, not with {settings.problem}")
        if folder := settings.arguments.get("checkpoints"):
            try:
                Path(folder).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UnusableInput(f"checkpoints cannot be kept in {folder}: {error.strerror}") from None
        return problem_of(settings.problem).inputs(settings)

    def measure(self, run: "Run", cases: list[Case], inputs: dict[str, Any]) -> None:
        from shared.bench.questions.learning_run import measure_learning  # here: a run has a question

        measure_learning(run, cases, inputs[DATA])

    def answer(self, record: Record) -> Answer:
        return Answer(list(tables(record)), list(statements(record)), list(details(record)))

    def plots(self, record: Record) -> Iterator[Plot]:
        from shared.bench.questions.learning_pictures import pictures  # here: matplotlib takes a second to import

        return pictures(record)


QUESTION = Learning()
