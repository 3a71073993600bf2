"""How long does learning to align real protein families take, to a quality that is fixed beforehand?

Both frameworks train the same model from the same weights on the same batches, until their alignments of families that
they do not train on are as good as those by BLOSUM62 with the best gaps (learning_run.py). Then families are left out
one by one, to see whether what is learned is any good (learning_folds.py).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from shared.bench.cases import Case, Settings
from shared.bench.questions.learning_answer import details, tables
from shared.bench.questions.learning_sentences import statements
from shared.bench.questions.question import Question
from shared.bench.record import Record
from shared.bench.report.tables import Answer, Plot
from shared.file_writing import write_atomically
from shared.learning.training import digests
from shared.problems import Inputs, problem_of
from shared.problems.learn_alignment import FamilyInputs
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
        inputs = problem_of(settings.problem).inputs(settings)
        if folder := settings.arguments.get("checkpoints"):
            _claim(Path(folder), settings, cast(FamilyInputs, inputs[DATA]))
        return inputs

    def measure(self, run: "Run", cases: list[Case], inputs: dict[str, Any]) -> None:
        from shared.bench.questions.learning_run import measure_learning  # here: a run has a question

        measure_learning(run, cases, inputs[DATA])

    def answer(self, record: Record) -> Answer:
        return Answer(list(tables(record)), list(statements(record)), list(details(record)))

    def plots(self, record: Record) -> Iterator[Plot]:
        from shared.bench.questions.learning_pictures import pictures  # here: matplotlib takes a second to import

        return pictures(record)


def _claim(folder: Path, settings: Settings, given: FamilyInputs) -> None:
    """Make a folder that of this run's checkpoints. Raises UnusableInput if it has those of another run."""
    path = folder / "run.json"
    own = {
        "model": given.options["model"],
        "seed": settings.seed,
        "dtype": settings.dtype,
        "families": digests(given.families),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.glob("*.checkpoint")):
            write_atomically(path, json.dumps(own))
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else f"{path.name} in it is no JSON"
        raise UnusableInput(f"checkpoints cannot be kept in {folder}: {why}") from None
    if other := [name for name, value in own.items() if found.get(name) != value]:
        raise UnusableInput(f"{folder} has checkpoints of another run (other {', '.join(other)}): take another folder")


QUESTION = Learning()
