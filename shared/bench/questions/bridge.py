"""What does it cost to stay in PyTorch and call JAX's kernel?

Every variant is timed three times in the same rounds: JAX's in JAX, PyTorch's own, and JAX's called from PyTorch
through torch_impl.jax_bridge, in a worker that has both frameworks (bridge_worker.py). The first against the last is
the crossing, the last two are the choice of who trains a model in PyTorch. What is copied and which transforms are lost
is tried out in that worker (bridge_facts.py).
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared.bench.cases import FRAMEWORKS, Absence, Case, Settings
from shared.bench.estimates import Estimate
from shared.bench.questions.bridge_answer import (
    CROSSING,
    OWN,
    SMALL,
    crossing_table,
    crossings,
    facts_tables,
    sentences,
)
from shared.bench.questions.bridge_facts import facts
from shared.bench.questions.question import Question, WorkerStart
from shared.bench.record import Record
from shared.bench.report.tables import Answer, Plot
from shared.problems import PROBLEMS, Inputs
from shared.problems.alignments import AlignmentProblem
from shared.problems.problem import UnusableInput
from shared.variants import PATH, Abilities

if TYPE_CHECKING:
    from shared.bench.run.context import Run

_SMALL_SIZE = (4, 16, 16)
# how a note begins that holds until the run is resumed
_NOT_TRIED = "copies and transforms could not be tried:"


class Bridge(Question):
    """Stay in PyTorch, call JAX."""

    name = "bridge"
    asks = "what does it cost to stay in PyTorch and call JAX's kernel; which tensors are copied, which transforms lost"
    default_budget = 540.0
    drops_dominated = False
    labels: Mapping[str, WorkerStart] = {
        OWN: WorkerStart(),
        CROSSING: WorkerStart(command=(sys.executable, "-W", "ignore", "-m", "shared.bench.questions.bridge_worker")),
    }

    def starts(self, settings: Settings) -> dict[tuple[str, str], WorkerStart]:
        if settings.pythons:
            raise UnusableInput("bridge needs both frameworks in the interpreter that runs it: leave out --python")
        return super().starts(settings)

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        problem = PROBLEMS.get(settings.problem)
        if not isinstance(problem, AlignmentProblem):
            raise UnusableInput(f"bridge goes with alignments, not with {settings.problem}")
        if PATH in settings.passes:
            raise UnusableInput(f"bridge goes with passes that are functions of a score, not with {PATH}")
        if len(settings.frameworks) < len(FRAMEWORKS):
            raise UnusableInput(f"bridge needs both frameworks, got --framework {settings.frameworks[0]}")
        small = problem.inputs_of_size(replace(settings, batch=None), _SMALL_SIZE)
        return {**problem.inputs(settings), SMALL: small}

    def modes(self, settings: Settings, variant: str, input_name: str, abilities: Abilities) -> Sequence[bool]:
        # a small call shows what a crossing costs, whichever variant it is; more would cost minutes of torch.compile
        if input_name == SMALL and variant != abilities.auto:
            return []
        return super().modes(settings, variant, input_name, abilities)

    def cases(
        self, settings: Settings, abilities: Mapping[str, Abilities], inputs: Sequence[str]
    ) -> tuple[list[Case], list[Absence]]:
        missing = [FRAMEWORKS[name] for name in FRAMEWORKS if name not in abilities]
        if missing:
            return [], [Absence(name, "call through the bridge", f"{missing[0]} is missing") for name in abilities]
        cases, absent = super().cases(settings, abilities, inputs)
        # through the bridge a variant is JAX's, in a worker of PyTorch
        crossing = {c: replace(c, framework="torch") for c in cases if c.label == CROSSING and c.framework == "jax"}
        cases = [crossing.get(case, case) for case in cases if case.label == OWN or case in crossing]
        return cases, [row for row in absent if not row.case.endswith(CROSSING)]

    def compiler_of(self, case: Case) -> str:
        return "jax" if case.label == CROSSING else case.framework

    def measure(self, run: "Run", cases: list[Case], inputs: dict[str, Any]) -> None:
        super().measure(run, cases, inputs)
        case = next((c for c in cases if c.label == CROSSING and run.record.result(c).measured), None)
        if case is not None and not run.record.result(case).details:
            run.progress.begin("copies and transforms", 1)
            run.progress.step(case.title)
            run.record.notes = [note for note in run.record.notes if not note.startswith(_NOT_TRIED)]
            reply = run.ask("call", case, function=facts)
            run.record.result(case).details = dict(reply.details)
            if reply.status != "ok":
                run.record.note(f"{_NOT_TRIED} {reply.reason}")
            run.keep()

    def deciding(self, record: Record) -> list[Estimate]:
        return [ratio for each in crossings(record) for ratio in each.ratios]

    def contenders(self, record: Record) -> set[Case]:
        """Those of comparisons that are not precise yet."""
        wanted = record.settings.precision
        vague = [
            each
            for each in crossings(record)
            if not all(ratio.relative_half_width <= wanted for ratio in each.ratios)  # NaN is vague
        ]
        return {result.case for each in vague for result in each.results}

    def answer(self, record: Record) -> Answer:
        found = list(crossings(record))
        tables = [crossing_table(record, name, found) for name in record.inputs]
        return Answer([*(table for table in tables if table.rows), *facts_tables(record)], list(sentences(found)))

    def plots(self, record: Record) -> Iterator[Plot]:
        """The time of every case, with its label."""
        from shared.bench.report.plots import plots_of_cases  # here: matplotlib takes a second to import

        labelled = [
            replace(r, case=replace(r.case, variant=f"{r.case.variant}, {r.case.label}")) if r.case.label else r
            for r in record.results
        ]
        return plots_of_cases(replace(record, results=labelled))


QUESTION = Bridge()
