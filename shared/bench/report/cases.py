"""The table of all cases: every number of a record, as plain strings."""

from collections.abc import Callable
from typing import NamedTuple

from shared.bench.ceilings import is_of_bandwidth_alone, share_of_limit
from shared.bench.plan import FRAMEWORKS
from shared.bench.record import Compilation, Record, Result
from shared.bench.report.rows import NOTHING, Table
from shared.bench.statistics import drift, outliers
from shared.bench.text import duration, size, time_interval
from shared.problems import PROBLEMS
from shared.problems.problem import Rate


def rate_of(record: Record) -> Rate:
    """How the problem's work and its speed are told."""
    assert record.settings is not None
    return PROBLEMS[record.settings.problem].rate


def case_name(record: Record, result: Result) -> str:
    """Framework and variant."""
    case = result.case
    auto = " (auto)" if record.auto.get(case.framework) == case.variant else ""
    return f"{FRAMEWORKS[case.framework]} {case.variant}{auto}{case.side_text}"


# what stands where a case that was tried has no time
MARKS = {"wrong": "WRONG", "failed": "FAILED", "limit": "over the limit"}


def status(result: Result) -> str:
    """What became of a case, with the reason where it has no time."""
    if result.status == "ok":
        return "ok" if result.blocks else "not timed"
    words = MARKS[result.status]
    return f"{words}: {result.reason}" if result.reason else words


class _Column(NamedTuple):
    header: str
    value: Callable[[Record, Result], str | None]
    align: str = "right"


def _first(of: Callable[[Result], Compilation | None], part: str) -> Callable[[Record, Result], str | None]:
    """A part of a first call. What is wrong has no times: nobody should know how fast it was."""

    def value(_: Record, result: Result) -> str | None:
        start = of(result) if result.status != "wrong" else None
        seconds = getattr(start, part) if start else None
        return duration(seconds) if seconds else None

    return value


def _timed(value: Callable[[Result], str | None]) -> Callable[[Record, Result], str | None]:
    return lambda _, result: value(result) if result.measured else None


def _bytes(name: str) -> Callable[[Record, Result], str | None]:
    return lambda _, result: None if getattr(result, name) is None else size(getattr(result, name))


def _drift(result: Result) -> str | None:
    found = drift(result.blocks)
    return None if found is None else f"{found:+.1%}"


def _warm_up(result: Result) -> str | None:
    calls = [entry.calls for entry in result.warm_up]
    settled = all(entry.stable is not False for entry in result.warm_up)
    return f"{min(calls)} … {max(calls)}{'' if settled else ', not settled'}" if calls else None


def _rate(_: Record, result: Result) -> str | None:
    return None if result.rate is None else PROBLEMS[result.case.problem].rate.text(result.rate)


def _of_limit(of_bandwidth: bool) -> Callable[[Record, Result], str | None]:
    def value(record: Record, result: Result) -> str | None:
        share = share_of_limit(record, result) if is_of_bandwidth_alone(record) == of_bandwidth else None
        return f"{share:.2%}" if share else None

    return value


def _error(_: Record, result: Result) -> str | None:
    if result.gate is None:
        return None
    return "not finite" if result.gate.error_of_allowed is None else f"{result.gate.error_of_allowed:.1%}"


_RATE = "rate"  # its header is the problem's
_CASE = (
    _Column("pass", lambda _, result: result.case.pass_name, "left"),
    _Column("input", lambda _, result: result.case.input, "left"),
    _Column("case", case_name, "left"),
    _Column("compiled", lambda _, result: "yes" if result.case.compiled else "no", "left"),
)
# what takes less was no compilation of a kernel but a look at what there is
_A_BUILD = 0.1
_AFTER = (
    _Column(_RATE, _rate),
    _Column("of the bandwidth's limit", _of_limit(True)),
    _Column("of the limit (device time)", _of_limit(False)),
    _Column("peak memory", _bytes("peak_bytes")),
    _Column("input bytes", _bytes("input_bytes")),
    _Column("output bytes", _bytes("output_bytes")),
    _Column("device time", _timed(lambda r: duration(r.device_seconds) if r.device_seconds is not None else None)),
    _Column("kernel build", lambda _, r: duration(r.build_seconds) if r.build_seconds >= _A_BUILD else None),
    _Column("error, of allowed", _error),
    _Column("status", lambda _, result: status(result), "left"),
)
_COLUMNS = (
    *_CASE,
    _Column("first call, cold", _first(lambda result: result.cold, "seconds")),
    _Column("tracing", _first(lambda result: result.cold, "tracing")),
    _Column("compiling", _first(lambda result: result.cold, "compiling")),
    _Column("first call, warm", lambda _, r: duration(r.warm_seconds) if r.warm_seconds and r.measured else None),
    _Column("new shape", _first(lambda result: result.retrace, "seconds")),
    _Column("median", _timed(lambda result: duration(result.time.value))),
    _Column("95% interval", _timed(lambda result: time_interval(result.time))),
    _Column("samples", _timed(lambda result: str(len(result.seconds)))),
    _Column("rounds", _timed(lambda result: str(len(result.blocks)))),
    _Column("workers", _timed(lambda result: str(len({block.worker for block in result.blocks})))),
    _Column("warm-up calls", _timed(_warm_up)),
    _Column("outliers", _timed(lambda result: str(outliers(result.blocks)))),
    _Column("drift", _timed(_drift)),
    *_AFTER,
)
_LADDER_COLUMNS = (
    *_CASE,
    _Column("first call", _first(lambda result: result.cold, "seconds")),
    _Column("tracing", _first(lambda result: result.cold, "tracing")),
    _Column("compiling", _first(lambda result: result.cold, "compiling")),
    _Column("second call", _timed(lambda result: duration(result.time.value))),
    *_AFTER,
)


def case_table(record: Record) -> Table:
    """Every case with all its numbers. A column that no case has something for is left out."""
    columns = _LADDER_COLUMNS if record.settings and record.settings.ladder else _COLUMNS
    rows = [tuple(column.value(record, result) or NOTHING for column in columns) for result in record.results]
    kept = [at for at, column in enumerate(columns) if any(row[at] != NOTHING for row in rows)]
    if len(record.inputs) < 2:
        kept = [at for at in kept if columns[at].header != "input"]
    return Table(
        "All cases",
        tuple(rate_of(record).unit if columns[at].header is _RATE else columns[at].header for at in kept),
        [tuple(row[at] for at in kept) for row in rows],
        tuple(columns[at].align for at in kept),
    )
