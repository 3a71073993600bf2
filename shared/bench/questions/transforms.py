"""Which function transforms work on which rung, and what does the framework say where one does not?

Every transform is run on every rung, on a small ragged batch of each alignment, and its result is compared with the
NumPy reference. No time is taken. The transforms: shared/transforms.py; how they are run: transforms_run.py.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Any

from shared.bench.cases import FRAMEWORKS, Absence, Case, Settings
from shared.bench.questions.question import Question
from shared.bench.questions.transforms_run import (
    FAILED,
    LIMIT,
    RAISES,
    RIGHT,
    WRONG,
    measure_transforms,
    ragged_batch,
    transforms_of,
)
from shared.bench.record import Record
from shared.bench.report.tables import Answer, Plot, Statement, Table, left_then_right
from shared.bench.run.context import Run
from shared.bench.units import NOTHING
from shared.problems import Inputs
from shared.problems.problem import Problem
from shared.transforms import TRANSFORMS
from shared.variants import FOR_GPUS, Abilities, variant_names

_TEXT_WIDTH, _RUNGS_WIDTH = 84, 12
# problem -> its outcome of a transform on a rung
Outcomes = dict[str, dict[str, Any]]


class Transforms(Question):
    """What composes."""

    name = "transforms"
    asks = "which transforms (grad of grad, vmap, jvp, export, compile) are right on which rung, and what the rest say"
    takes = ("size",)
    default_input = "random"
    default_budget = 570.0
    times_rounds = False
    takes_every_alignment = True

    def default_passes(self, problem: Problem) -> tuple[str, ...]:
        return problem.default_passes[:1]

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        return {name: ragged_batch(settings, name) for name in (settings.problem, *settings.more_problems)}

    def is_default(self, settings: Settings, variant: str, abilities: Abilities) -> bool:
        return settings.device != "cpu" or variant not in FOR_GPUS

    def modes(self, settings: Settings, variant: str, input_name: str, abilities: Abilities) -> Sequence[bool]:
        return [False]  # compiling is one of the transforms

    def cases(
        self, settings: Settings, abilities: Mapping[str, Abilities], inputs: Sequence[str]
    ) -> tuple[list[Case], list[Absence]]:
        cases, _ = super().cases(settings, abilities, inputs)
        _, absent = super().cases(settings, abilities, inputs[:1])  # each once
        return [replace(case, problem=case.input) for case in cases], absent

    def measure(self, run: Run, cases: list[Case], inputs: dict[str, Any]) -> None:
        measure_transforms(run, cases, inputs)

    def answer(self, record: Record) -> Answer:
        found = {name: _Found(record, name) for name in FRAMEWORKS}
        tried = {name: own for name, own in found.items() if own.rungs}
        tables = [_table(record, own) for own in tried.values()]
        tables += [_errors(own) for own in tried.values() if own.errors]
        wrong = [f"{r.case.title}: {r.reason}" for r in record.results if r.status == WRONG]
        told = [Statement("WRONG", text) for text in wrong]
        told += [Statement(FRAMEWORKS[name], text) for name, own in tried.items() if (text := _advice(own))]
        return Answer(tables, told)

    def plots(self, record: Record) -> Iterator[Plot]:
        return iter(())


QUESTION = Transforms()


class _Found:
    """The outcomes of one framework, and its errors by text, numbered."""

    def __init__(self, record: Record, framework: str) -> None:
        self.framework, self.names = framework, transforms_of(framework)
        self.problems = list(record.inputs)
        self._cells: dict[tuple[str, str], Outcomes] = {}
        self.errors: dict[str, dict[str, dict[str, None]]] = {}  # text -> rungs, and of each the problems
        results = [r for r in record.results if r.case.framework == framework and r.details.get("outcomes")]
        tried = {result.case.variant for result in results}
        self.rungs = [name for name in variant_names(record.settings.problem) if name in tried]
        for name in self.names:
            for rung in self.rungs:
                own = {r.case.input: r.details["outcomes"].get(name) for r in results if r.case.variant == rung}
                cell = {problem: outcome for problem, outcome in own.items() if outcome}
                self._cells[name, rung] = cell
                for problem, outcome in cell.items():
                    if outcome["outcome"] == RAISES:
                        rungs = self.errors.setdefault(_without_rung(outcome["text"], rung), {})
                        rungs.setdefault(rung, {})[problem] = None

    def written(self, name: str) -> str:
        """How a transform is written."""
        return getattr(TRANSFORMS[name], self.framework)

    def cell(self, name: str, rung: str) -> str:
        """What becomes of a transform: the same for all alignments, or each thing that happens."""
        told = [self._word(outcome, rung) for outcome in self._cells[name, rung].values()]
        return " / ".join(dict.fromkeys(told)) or NOTHING

    def _word(self, outcome: Mapping[str, Any], rung: str) -> str:
        if outcome["outcome"] == RAISES:
            return f"E{list(self.errors).index(_without_rung(outcome['text'], rung)) + 1}"
        words = {RIGHT: "yes", WRONG: "WRONG", FAILED: "FAILED", LIMIT: outcome["text"]}
        return words[outcome["outcome"]]

    def with_problems(self, rungs: Mapping[str, Collection[str]]) -> str:
        """Rungs, and the problems of each unless they are all on which it was tried."""
        named: dict[str, list[str]] = {}
        for rung, problems in rungs.items():
            tried = dict.fromkeys(problem for name in self.names for problem in self._cells[name, rung])
            others = [problem for problem in tried if problem not in problems]
            few = f"not for {', '.join(others)}" if len(others) < len(problems) else f"for {', '.join(problems)}"
            named.setdefault(f", {few}" if others else "", []).append(rung)
        return "; ".join(f"{', '.join(own)}{text}" for text, own in named.items())

    def is_right(self, name: str, rung: str) -> bool:
        """On all alignments on which it was tried."""
        return self.cell(name, rung) == "yes"

    def missing(self) -> dict[str, list[str]]:
        """Problem -> the rungs on which not everything was tried."""
        return {
            problem: rungs
            for problem in self.problems
            if (rungs := [r for r in self.rungs if any(problem not in self._cells[n, r] for n in self.names)])
        }


def _without_rung(text: str, rung: str) -> str:
    """The text of an error, such that it is the same for all rungs."""
    return text.replace(f"variant {rung!r}", "variant …")


def _table(record: Record, found: _Found) -> Table:
    """A row for each transform, a column for each rung."""
    name = FRAMEWORKS[found.framework]
    rows = [(found.written(t), *(found.cell(t, rung) for rung in found.rungs)) for t in found.names]
    headers = ("transform", *(rung.replace("_", "\n") for rung in found.rungs))
    errors = "E1, …: raises an error, see below; " if found.errors else ""
    below = [f"yes: equal to the NumPy reference, for {', '.join(found.problems)}"]
    several = "two outcomes: of different problems; " if any(" / " in cell for row in rows for cell in row) else ""
    below += [f"{errors}{several}{NOTHING}: not tried."]
    below += [
        f"Not all of it was tried for {problem} in the time: {', '.join(rungs)}."
        for problem, rungs in found.missing().items()
    ]
    reasons = dict.fromkeys(f"Not built: {row.case}: {row.reason}." for row in record.absent)
    below += [reason for reason in reasons if reason.startswith(f"Not built: {name}")]
    version = record.environment.get("frameworks", {}).get(found.framework, {}).get(found.framework, "")
    title = f"{name} {version}: which transforms work"
    return Table(title, headers, rows, left_then_right(len(headers), 0), tuple(below))


def _errors(found: _Found) -> Table:
    """Each error once, with the rungs that it belongs to."""
    rows = []
    for number, (text, rungs) in enumerate(found.errors.items(), 1):
        names = found.with_problems(rungs)
        lines = "\n".join(wrap(text, _TEXT_WIDTH, break_long_words=False, break_on_hyphens=False))
        rows.append((f"E{number}", "\n".join(wrap(names, _RUNGS_WIDTH, break_long_words=False)), lines))
    return Table(f"What {FRAMEWORKS[found.framework]} says", ("", "rungs", "error"), rows, left_then_right(3, 0))


def _advice(found: _Found) -> str:
    """The last rung of the ladder, and which one to take for what it does not do."""
    *others, best = found.rungs
    instead: dict[str, list[str]] = {}
    for name in found.names:
        if found.cell(name, best) not in ("yes", NOTHING):
            able = [rung for rung in others if found.is_right(name, rung)]
            instead.setdefault(able[-1] if able else "", []).append(found.written(name))
    nobody = instead.pop("", [])
    parts = [f"take {best}" if instead or not nobody else f"take {best} for all but what none of these rungs does"]
    parts += [f"for {', '.join(names)} take {rung}" for rung, names in instead.items()]
    parts += [f"none of these rungs does {', '.join(nobody)}"] if nobody else []
    only = "of what was tried: " if any(found.cell(name, best) == NOTHING for name in found.names) else ""
    return f"{only}{'; '.join(parts)}."
