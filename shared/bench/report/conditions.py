"""The conditions of a run: the machine, versions, inputs and settings, as lines and tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from shared.bench.cases import FRAMEWORKS
from shared.bench.record import Record
from shared.bench.report.tables import NOTHING, Table, left_then_right
from shared.bench.units import clock, duration
from shared.problems import PROBLEMS


def title(records: Sequence[Record]) -> str:
    """Of the whole report."""
    names = list(dict.fromkeys(record.settings.problem for record in records if record.settings))
    return "JAX and PyTorch compared" + (f": {', '.join(names)}" if names else "")


def headings(records: Sequence[Record]) -> list[str]:
    """Of each record, numbered where they are the same."""
    names = [_name(record) for record in records]
    return [
        f"{name} ({names[: at + 1].count(name)})" if names.count(name) > 1 else name for at, name in enumerate(names)
    ]


def _name(record: Record) -> str:
    settings = record.settings
    return f"{settings.question}: {settings.problem} on {settings.device}" if settings else "a run that did not begin"


def head(record: Record) -> Iterator[str]:
    """The problem, the inputs, the machine, the versions and the extent of the run, a line each."""
    settings, where = record.settings, record.environment
    if settings is None:
        return
    problem = PROBLEMS[settings.problem]
    arguments = next((facts.parameters | facts.options for facts in record.inputs.values()), {})
    given = "".join(f", {name} {_value(value)}" for name, value in arguments.items())
    yield f"{problem.name}: {problem.text}; {settings.dtype}{given}"
    for facts in list(record.inputs.values())[:2]:
        yield f"input: {facts.text}; {facts.work:,} {problem.rate.work}"
    if len(record.inputs) > 2:
        yield f"and {len(record.inputs) - 2} more size{'s' if len(record.inputs) > 3 else ''}"
    frameworks: Mapping[str, Mapping[str, Any]] = where.get("frameworks", {})
    gpus = dict.fromkeys(str(facts["gpu"]) for facts in frameworks.values() if facts.get("gpu"))
    cores = f"{settings.threads} core{'s' if settings.threads > 1 else ''}"
    versions = f"Python {where.get('python')}, NumPy {where.get('numpy')}"
    yield f"on {', '.join([*gpus, str(where.get('cpu', ''))])}, {cores}, {versions}"
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


def when(record: Record) -> str:
    """Start, end and duration."""
    started = f"Started {record.started}" if record.started else "Not started"
    finished = f"finished {record.finished}" if record.finished else "not finished"
    took = f"; it took {duration(record.seconds)}" if record.seconds else ""
    return f"{started}; {finished}{took}."


def commands(record: Record) -> str:
    """The command, and those that resumed it, a line each."""
    return "\n".join([record.command, *record.resumed_by])


def tables(record: Record) -> list[Table]:
    """Everything else that the numbers depend on; empty tables are left out."""
    settings = list(_flat(asdict(record.settings))) if record.settings else []
    found = [
        _references(record),
        _inputs(record),
        Table("Environment", ("name", "value"), list(_flat(record.environment)), ("left", "left")),
        Table("Settings", ("name", "value"), settings, ("left", "left")),
    ]
    return [table for table in found if table.rows]


def _references(record: Record) -> Table:
    rows = [(entry.pass_name, entry.input, ", ".join(map(duration, entry.seconds))) for entry in record.references]
    return Table("The NumPy reference", ("pass", "input", "each call"), rows, left_then_right(2, 1))


def _inputs(record: Record) -> Table:
    rows = [
        (
            name,
            facts.text,
            " × ".join(map(str, facts.shape)),
            NOTHING if facts.pairs is None else f"{facts.pairs:,}",
            f"{facts.work:,}",
            facts.sha256,
        )
        for name, facts in record.inputs.items()
    ]
    work = PROBLEMS[record.settings.problem].rate.work if record.settings else "work"
    headers = ("input", "what it is", "shape", "pairs", work, "SHA-256")
    return Table("Inputs", headers, rows, ("left", "left", "right", "right", "right", "left"))


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{name} / ")
        else:
            yield f"{above}{name}", _value(value)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e6 else f"{value:.4g}"
    if isinstance(value, list | tuple):
        sized = all(isinstance(entry, list | tuple) for entry in value)
        return ", ".join(" × ".join(map(str, entry)) if sized else _value(entry) for entry in value) or NOTHING
    return NOTHING if value is None or value == {} else str(value)
