"""The table of all cases: every number of a record, as plain strings."""

from collections.abc import Callable
from typing import NamedTuple

from shared.bench.analysis.estimates import drift, outliers
from shared.bench.analysis.roofline import share_of_limit
from shared.bench.cases import FRAMEWORKS
from shared.bench.questions import QUESTIONS
from shared.bench.record import Compilation, Record, Result
from shared.bench.report.tables import NOTHING, Table
from shared.bench.units import duration, size, time_interval
from shared.problems import PROBLEMS

Value = Callable[[Record, Result], str | None]

# shorter builds only looked up a compiled kernel
_LEAST_BUILD = 0.1
_MARKS = {"wrong": "WRONG", "failed": "FAILED", "limit": "over the limit"}


class _Column(NamedTuple):
    header: str
    value: Value
    brief: bool = False  # shown on the console too
    align: str = "right"


def variant_name(record: Record, result: Result) -> str:
    """The variant, whether "auto" picks it, and the label."""
    case = result.case
    auto = " (auto)" if record.auto.get(case.framework) == case.variant else ""
    return f"{case.variant}{auto}{f', {case.label}' if case.label else ''}"


def mark(result: Result) -> str:
    """The word that stands in place of a time; empty if there is one."""
    if result.status == "ok":
        return "" if result.blocks else "not timed"
    return _MARKS[result.status]


def status(_: Record, result: Result) -> str:
    """The outcome of a case, with the reason where it has no time."""
    words = mark(result) or "ok"
    return f"{words}: {result.reason}" if result.reason else words


def _first(of: Callable[[Result], Compilation | None], part: str) -> Value:
    """A part of a first call. A wrong result has no times."""

    def value(_: Record, result: Result) -> str | None:
        start = of(result) if result.status != "wrong" else None
        seconds = getattr(start, part) if start else None
        return duration(seconds) if seconds else None

    return value


def _timed(value: Callable[[Result], str | None]) -> Value:
    return lambda _, result: value(result) if result.measured else None


def _bytes(name: str) -> Value:
    return lambda _, result: None if getattr(result, name) is None else size(getattr(result, name))


def _drift(result: Result) -> str | None:
    found = drift(result.blocks)
    return None if found is None else f"{found:+.1%}"


def _warm_up(result: Result) -> str | None:
    calls = [entry.calls for entry in result.warm_up]
    settled = all(entry.stable is not False for entry in result.warm_up)
    return f"{min(calls)} … {max(calls)}{'' if settled else ', not settled'}" if calls else None


def _of_limit(record: Record, result: Result) -> str | None:
    share = share_of_limit(record, result)
    return f"{share:.2%}" if share else None


def _error(_: Record, result: Result) -> str | None:
    if result.gate is None:
        return None
    return "not finite" if result.gate.error_of_allowed is None else f"{result.gate.error_of_allowed:.1%}"


_RATE = "rate"  # its header is the problem's unit
_COLUMNS = (
    _Column("pass", lambda _, result: result.case.pass_name, True, "left"),
    _Column("input", lambda _, result: result.case.input, True, "left"),
    _Column("framework", lambda _, result: FRAMEWORKS[result.case.framework], True, "left"),
    _Column("variant", variant_name, True, "left"),
    _Column("compiled", lambda _, result: "yes" if result.case.compiled else "no", True, "left"),
    _Column("first call", _first(lambda result: result.cold, "seconds"), True),
    _Column("tracing", _first(lambda result: result.cold, "tracing")),
    _Column("compiling", _first(lambda result: result.cold, "compiling")),
    _Column("new process", lambda _, r: duration(r.warm_seconds) if r.warm_seconds and r.measured else None, True),
    _Column("new shape", _first(lambda result: result.retrace, "seconds"), True),
    _Column("median", _timed(lambda result: duration(result.time.value)), True),
    _Column("95% interval", _timed(lambda result: time_interval(result.time).strip(NOTHING) or None), True),
    _Column("samples", _timed(lambda result: str(len(result.seconds)))),
    _Column("rounds", _timed(lambda result: str(len(result.blocks)))),
    _Column("workers", _timed(lambda result: str(len({block.worker for block in result.blocks})))),
    _Column("warm-up calls", _timed(_warm_up)),
    _Column("outliers", _timed(lambda result: str(outliers(result.blocks)))),
    _Column("drift", _timed(_drift)),
    _Column("device time", _timed(lambda r: None if r.device_seconds is None else duration(r.device_seconds)), True),
    _Column(_RATE, lambda _, r: None if r.rate is None else PROBLEMS[r.case.problem].rate.text(r.rate), True),
    _Column("of the limit", _of_limit),
    _Column("memory", _bytes("peak_bytes"), True),
    _Column("input bytes", _bytes("input_bytes")),
    _Column("output bytes", _bytes("output_bytes")),
    _Column("kernel build", lambda _, r: duration(r.build_seconds) if r.build_seconds >= _LEAST_BUILD else None),
    _Column("error, of allowed", _error),
    _Column("status", status, align="left"),
)
# without rounds, what comes of them says nothing
_OF_ROUNDS = ("new process", "95% interval", "samples", "rounds", "workers", "warm-up calls", "outliers", "drift")


def case_table(record: Record, brief: bool = False) -> Table:
    """Every case with all its numbers, or on the console those that one compares; empty columns are left out."""
    assert record.settings is not None
    rounds = QUESTIONS[record.settings.question].times_rounds
    columns = [
        column
        for column in _COLUMNS
        if (column.brief or not brief)
        and (rounds or column.header not in _OF_ROUNDS)
        and (column.header != "input" or len(record.inputs) > 1)
    ]
    rows = [[column.value(record, result) for column in columns] for result in record.results]
    if brief:  # where a case has no time, the reason stands in the column of its first call
        at = next(index for index, column in enumerate(columns) if column.header == "first call")
        for row, result in zip(rows, record.results, strict=True):
            if result.status != "ok":
                row[at] = result.reason if result.status == "limit" else mark(result)
    kept = [at for at, _ in enumerate(columns) if any(row[at] for row in rows)]
    unit = PROBLEMS[record.settings.problem].rate.unit
    return Table(
        "All cases",
        tuple(unit if columns[at].header is _RATE else columns[at].header for at in kept),
        [tuple(row[at] or NOTHING for at in kept) for row in rows],
        tuple(columns[at].align for at in kept),
    )
