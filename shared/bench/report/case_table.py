"""The table of cases: every number of a record as text, in columns from which each output takes those that it shows."""

from collections.abc import Sequence

from shared.bench.analysis.roofline import share_of_limit
from shared.bench.cases import FRAMEWORKS
from shared.bench.record import Record, Result
from shared.bench.report.tables import Table
from shared.bench.units import NOTHING, duration, size, time_interval
from shared.problems import problem_of

CACHES_EMPTY, CACHES_WARM = "first call,\ncaches empty", "first call,\ncaches warm"
RATE = "rate"  # the header is the problem's unit
NAMES = ("pass", "input", "framework", "variant", "compiled")  # of a case
ALL = (
    *NAMES, CACHES_EMPTY, "tracing", "compiling", CACHES_WARM, "new shape", "median", "95% interval", "samples",
    "rounds", "workers", "device time", RATE, "of the limit", "memory",
    "input bytes", "output bytes", "error, of allowed", "status",
)  # fmt: skip
# what one compares, for the console
BRIEF = (*NAMES, CACHES_EMPTY, CACHES_WARM, "new shape", "median", "95% interval", "device time", RATE, "memory")
FIRST_CALLS = (*NAMES, CACHES_EMPTY, "tracing", "compiling", CACHES_WARM, "new shape")

_MARKS = {"ok": "", "wrong": "WRONG", "failed": "FAILED", "limit": "over the limit"}


def case_table(record: Record, columns: Sequence[str] = ALL, title: str = "All cases") -> Table:
    """Every case, with these columns; empty ones are left out."""
    cells = [case_cells(record, result) for result in record.results]
    kept = [name for name in columns if any(row.get(name, NOTHING) != NOTHING for row in cells)]
    if "input" in kept and len(record.inputs) == 1:
        kept.remove("input")
    unit = problem_of(record.settings.problem).rate.unit
    return Table(
        title,
        tuple(unit if name == RATE else name for name in kept),
        [tuple(row.get(name, NOTHING) for name in kept) for row in cells],
        tuple("left" if name in (*NAMES, "status") else "right" for name in kept),
    )


def case_cells(record: Record, result: Result) -> dict[str, str]:
    """The cells of a case by column. A case that is wrong, failed or over the limit has no times."""
    case, mark = result.case, _MARKS[result.status] or ("ok" if result.blocks else "not timed")
    auto = " (auto)" if record.auto.get(case.framework) == case.variant else ""
    cells = {
        "pass": case.pass_name,
        "input": case.input,
        "framework": FRAMEWORKS[case.framework],
        "variant": f"{case.variant}{auto}{f', {case.label}' if case.label else ''}",
        "compiled": "yes" if case.compiled else "no",
        "memory": size(result.peak_bytes),
        "input bytes": size(result.input_bytes),
        "output bytes": size(result.output_bytes),
        "status": f"{mark}: {result.reason}" if result.reason else mark,
    }
    if result.gate:
        error = result.gate.error_of_allowed
        cells["error, of allowed"] = "not finite" if error is None else f"{error:.1%}"
    if result.status != "ok":
        limit = (result.reason or mark).partition(":")[0]  # the diagnostics have what follows a colon
        return cells | {CACHES_EMPTY: limit if result.status == "limit" else mark}
    cold, new_shape = result.cold, result.retrace
    cells |= {
        CACHES_EMPTY: duration(cold.seconds if cold else None),
        "tracing": duration(cold.tracing if cold else None),
        "compiling": duration(cold.compiling if cold else None),
        CACHES_WARM: duration(result.warm_seconds),
        "new shape": duration(new_shape.seconds if new_shape else None),
    }
    return cells | _time_cells(record, result) if result.blocks else cells


def _time_cells(record: Record, result: Result) -> dict[str, str]:
    rate, share = result.rate, share_of_limit(record, result)
    cells = {
        "median": duration(result.time.value),
        "95% interval": time_interval(result.time),
        "device time": duration(result.device_seconds),
        RATE: problem_of(result.case.problem).rate.text(rate) if rate else NOTHING,
        "of the limit": f"{share:.2%}" if share else NOTHING,
    }
    if len(result.blocks) == 1:  # the second call only, as in a ladder
        return cells
    return cells | {
        "samples": str(len(result.seconds)),
        "rounds": str(len(result.blocks)),
        "workers": str(len({block.worker for block in result.blocks})),
    }
