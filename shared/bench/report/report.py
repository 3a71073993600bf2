"""A record as its readers see it, walked once for every output: console, Markdown and page."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from shared.bench.analysis.diagnostics import diagnostics, warnings
from shared.bench.cases import FRAMEWORKS
from shared.bench.measure import gpu_state
from shared.bench.record import Record
from shared.bench.report.case_table import BRIEF, NAMES, case_table, case_tables
from shared.bench.report.tables import Answer, Plot, Table
from shared.bench.units import duration, minutes_text
from shared.problems import problem_of


@dataclass
class Report:
    """Lines, tables, sentences and plots; what is empty is not shown."""

    answer: Answer
    head: Sequence[str] = ()
    heading: str = ""
    question: str = ""
    asks: str = ""
    input: str = ""  # its text if there is only one; two records may differ only in it
    warnings: Sequence[str] = ()
    terms: Sequence[str] = ()  # what the names of passes and variants mean
    brief: Sequence[Table] = ()  # the cases, with the columns that one compares
    cases: Sequence[Table] = ()  # with every number
    plots: Callable[[], Iterator[Plot]] = lambda: iter(())
    diagnostics: Sequence[str] = ()


class Items(NamedTuple):
    """Lines of the same kind: "warning", "answer", or "details" for what is less important."""

    kind: str
    lines: Sequence[tuple[str, str]]  # each with what it is about, or ""


def blocks(report: Report, is_brief: bool) -> Iterator[Items | Table | str]:
    """Walk a report in the order in which it is read, without plots. Text is a heading; is_brief: for the console."""
    answer = report.answer

    def items(kind: str, lines: Sequence[str]) -> Items:
        return Items(kind, [("", line) for line in lines])

    yield items("warning", report.warnings)
    yield from answer.tables[: answer.tables_first]
    yield Items("answer", answer.statements)
    if not is_brief:
        yield items("details", report.terms)
    yield from answer.tables[answer.tables_first :]
    yield items("details", report.head)
    if is_brief:
        yield from report.brief
    else:
        yield "Every number, and diagnostics"
        yield from report.cases
    yield items("details", report.diagnostics)


def report_of(
    record: Record, asks: str, passes: Mapping[str, str], answer: Answer, plots: Callable[[], Iterator[Plot]]
) -> Report:
    """The report of a record, with every number. passes: each with what it is."""
    settings, inputs = record.settings, list(record.inputs.values())
    answered = {table.title for table in answer.tables}
    names = {FRAMEWORKS[result.case.framework] for result in record.results}
    only = f" in {min(names)}" if len(names) == 1 else ""
    brief = case_table(record, BRIEF)
    return Report(
        answer,
        list(_head(record)),
        heading=f"{settings.question}: {settings.problem}{only} on {settings.device}, {str(record.started)[:10]}",
        question=settings.question,
        asks=asks,
        input=inputs[0].text if len(inputs) == 1 else "",
        warnings=list(warnings(record)),
        terms=list(_terms(record, passes)),
        brief=[] if set(brief.headers) <= set(NAMES) else [brief],
        cases=[table for table in case_tables(record) if table.title not in answered],
        plots=plots,
        diagnostics=[*diagnostics(record), origin(record)],
    )


def _head(record: Record) -> Iterator[str]:
    """The problem, the inputs, the machine, the versions and the extent of the run, a line each."""
    settings, where = record.settings, record.environment
    problem = problem_of(settings.problem)
    arguments = next((facts.parameters | facts.options for facts in record.inputs.values()), {})
    arguments_text = "".join(f", {name} {_text(value)}" for name, value in arguments.items())
    yield f"{problem.name}: {problem.text}; {settings.dtype.replace(',', ' and ')}{arguments_text}"
    for facts in record.inputs.values():
        yield f"input: {facts.text}; {facts.work:,} {problem.rate.work}"
    frameworks: Mapping[str, Mapping[str, Any]] = where.get("frameworks", {})
    yield f"on {record.device_name}, Python {where.get('python')}, NumPy {where.get('numpy')}"
    for name, facts in frameworks.items():
        starts: list[float] = facts.get("compiler_start_seconds", [])
        took = f"; compiler start-up, not included: {duration(starts[0])}" if starts else ""
        took += f", then {duration(median(starts[1:]))}" if len(starts) > 1 else ""
        smallest = facts.get("smallest_call_seconds")
        took += f"; a call of one kernel on three numbers takes {duration(smallest)}" if smallest else ""
        yield f"{FRAMEWORKS.get(name, name)} {facts.get(name)}{took}"
    yield from where.get("interpreters", [])
    if record.gpu_state:
        yield gpu_state.in_words(record.gpu_state)
    timed = [result.blocks for result in record.results if result.measured]
    if timed and record.repeats:
        counts = [sorted({len({b.repeat for b in blocks}) for blocks in timed}), sorted({len(b) for b in timed})]
        workers, rounds = (" to ".join(dict.fromkeys(map(str, (values[0], values[-1])))) for values in counts)
        yield f"fresh processes for each case: {workers}; rounds: {rounds}; {minutes_text(record.seconds)} minutes"


def _terms(record: Record, passes: Mapping[str, str]) -> Iterator[str]:
    """The passes and variants that were measured, each with what it is."""
    yield from (f"{name}: {passes[name]}" for name in record.settings.passes)
    used, variants = {result.case.variant for result in record.results}, problem_of(record.settings.problem).variants
    yield from (f"{variant.name}: {variant.changes}" for variant in variants if variant.name in used)


def origin(record: Record) -> str:
    """When, of which code and by which commands a record was made."""
    commands = "; ".join([record.command, *record.resumed_by])
    end = record.finished or "its interruption"
    return f"{record.started} to {end}, commit {record.environment.get('git_commit') or 'unknown'}: {commands}"


def _text(value: Any) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
