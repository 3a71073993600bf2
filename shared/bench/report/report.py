"""One model of a report: what the console, Markdown and the page show of a record, in this order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from shared.bench.analysis.diagnostics import diagnostics, warnings
from shared.bench.cases import FRAMEWORKS
from shared.bench.measure import gpu_state
from shared.bench.questions import QUESTIONS
from shared.bench.record import Record
from shared.bench.report.case_table import case_tables
from shared.bench.report.tables import Answer, Table
from shared.bench.units import clock, duration
from shared.problems import problem_of


@dataclass
class Report:
    """Lines, tables and sentences; what is empty is not shown."""

    head: list[str]
    heading: str = ""
    question: str = ""
    asks: str = ""
    warnings: list[str] = field(default_factory=list)
    answer: Answer = field(default_factory=Answer)
    terms: list[str] = field(default_factory=list)  # what the names of passes and variants mean
    cases: list[Table] = field(default_factory=list)
    diagnostics: list[str] = field(default_factory=list)


def report_of(record: Record) -> Report:
    """The report of a record, with every number."""
    settings = record.settings
    answer = QUESTIONS[settings.question].answer(record)
    answered = {table.title for table in answer.tables}
    names = {FRAMEWORKS[result.case.framework] for result in record.results}
    only = f" in {min(names)}" if len(names) == 1 else ""
    return Report(
        heading=f"{settings.question}: {settings.problem}{only} on {settings.device}, {str(record.started)[:10]}",
        question=settings.question,
        asks=_asks(record),
        head=list(_head(record)),
        warnings=list(warnings(record)),
        answer=answer,
        terms=list(_terms(record)),
        cases=[*answer.details, *(table for table in case_tables(record) if table.title not in answered)],
        diagnostics=[*diagnostics(record), origin(record)],
    )


def _asks(record: Record) -> str:
    """The question, of which input if it is one: two records may differ in nothing else."""
    asks, inputs = QUESTIONS[record.settings.question].asks, list(record.inputs.values())
    return f"{asks}; {inputs[0].text}" if len(inputs) == 1 else asks


def _head(record: Record) -> Iterator[str]:
    """The problem, the inputs, the machine, the versions and the extent of the run, a line each."""
    settings, where = record.settings, record.environment
    problem = problem_of(settings.problem)
    arguments = next((facts.parameters | facts.options for facts in record.inputs.values()), {})
    given = "".join(f", {name} {_text(value)}" for name, value in arguments.items())
    yield f"{problem.name}: {problem.text}; {settings.dtype.replace(',', ' and ')}{given}"
    for facts in record.inputs.values():
        yield f"input: {facts.text}; {facts.work:,} {problem.rate.work}"
    frameworks: Mapping[str, Mapping[str, Any]] = where.get("frameworks", {})
    yield f"on {record.device_name}, Python {where.get('python')}, NumPy {where.get('numpy')}"
    for name, facts in frameworks.items():
        starts: list[float] = facts.get("compiler_start_seconds", [])
        took = f"; starting its compiler takes {duration(starts[0])}" if starts else ""
        took += f", in later processes {duration(median(starts[1:]))}" if len(starts) > 1 else ""
        took += ": in none of the times" if starts else ""
        smallest = facts.get("smallest_call_seconds")
        took += f"; a call of one kernel on three numbers takes {duration(smallest)}" if smallest else ""
        yield f"{FRAMEWORKS.get(name, name)} {facts.get(name)}{took}"
    yield from where.get("interpreters", [])
    if record.gpu_state:
        yield gpu_state.in_words(record.gpu_state)
    timed = [result.blocks for result in record.results if result.measured]
    if timed and record.generations:
        workers = _range([len({block.worker for block in blocks}) for blocks in timed])
        rounds = _range([len(blocks) for blocks in timed])
        yield f"fresh processes for each case: {workers}; rounds: {rounds}; {clock(record.seconds)} minutes"


def _terms(record: Record) -> Iterator[str]:
    """The passes and variants that were measured, each with what it is."""
    problem = problem_of(record.settings.problem)
    passes = {**problem.passes, **QUESTIONS[record.settings.question].own_passes}
    for name in record.settings.passes:
        yield f"{name}: {passes[name]}"
    used = {result.case.variant for result in record.results}
    for variant in problem.variants:
        if variant.name in used:
            yield f"{variant.name}: {variant.changes}"


def _range(counts: Sequence[int]) -> str:
    return f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else str(counts[0])


def origin(record: Record) -> str:
    """When, of which code and by which commands a record was made."""
    commands = "; ".join([record.command, *record.resumed_by])
    end = record.finished or "its interruption"
    return f"{record.started} to {end}, commit {record.environment.get('git_commit')}: {commands}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
