"""One model of a report: what the console, Markdown and the page show of a record, in this order."""

import pprint
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from shared.bench.analysis.diagnostics import diagnostics, warnings
from shared.bench.cases import FRAMEWORKS
from shared.bench.questions import QUESTIONS
from shared.bench.record import Record
from shared.bench.report.case_table import ALL, case_table
from shared.bench.report.tables import Answer, Table
from shared.bench.units import clock, duration
from shared.problems import PROBLEMS


@dataclass
class Report:
    """Lines, tables and sentences; what is empty is not shown."""

    head: list[str]
    heading: str = ""
    warnings: list[str] = field(default_factory=list)
    answer: Answer = field(default_factory=Answer)
    cases: Table | None = None
    diagnostics: list[str] = field(default_factory=list)
    conditions: str = ""


def report_of(record: Record, columns: Sequence[str] = ALL) -> Report:
    """The report of a record. columns: of the table of cases."""
    settings = record.settings
    return Report(
        heading=f"{settings.question}: {settings.problem} on {settings.device}, {record.started}",
        head=list(_head(record)),
        warnings=list(warnings(record)),
        answer=QUESTIONS[settings.question].answer(record),
        cases=case_table(record, columns) if record.results else None,
        diagnostics=list(diagnostics(record)),
        conditions=_conditions(record),
    )


def _head(record: Record) -> Iterator[str]:
    """The problem, the inputs, the machine, the versions and the extent of the run, a line each."""
    settings, where = record.settings, record.environment
    problem = PROBLEMS[settings.problem]
    arguments = next((facts.parameters | facts.options for facts in record.inputs.values()), {})
    given = "".join(f", {name} {_text(value)}" for name, value in arguments.items())
    yield f"{problem.name}: {problem.text}; {settings.dtype}{given}"
    for facts in record.inputs.values():
        yield f"input: {facts.text}; {facts.work:,} {problem.rate.work}"
    frameworks: Mapping[str, Mapping[str, Any]] = where.get("frameworks", {})
    yield f"on {record.device_name}, Python {where.get('python')}, NumPy {where.get('numpy')}"
    for name, facts in frameworks.items():
        start = facts.get("compiler_start_seconds")
        took = f"; starting its compiler took {duration(start)}, once, not counted below" if start else ""
        flags = f", XLA_FLAGS {facts['XLA_FLAGS']}" if "XLA_FLAGS" in facts else ""
        yield f"{FRAMEWORKS.get(name, name)} {facts.get(name)}{flags}{took}"
    timed = [result.blocks for result in record.results if result.measured]
    if timed and record.generations:
        workers = _range([len({block.worker for block in blocks}) for blocks in timed])
        rounds = _range([len(blocks) for blocks in timed])
        yield f"fresh processes for each case: {workers}; rounds: {rounds}; {clock(record.seconds)} minutes"


def _range(counts: Sequence[int]) -> str:
    return f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else str(counts[0])


def _conditions(record: Record) -> str:
    """Everything of the record but what was measured."""
    rest = asdict(replace(record, results=[], speed=[], pictures={}))
    return pprint.pformat({name: value for name, value in rest.items() if value}, width=200, sort_dicts=False)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
