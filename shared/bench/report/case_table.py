"""The table of cases: every number of a record as text, in columns from which each output takes those that it shows."""

from collections.abc import Sequence

from shared.bench.analysis.roofline import share_of_limit
from shared.bench.cases import FRAMEWORKS
from shared.bench.estimates import Estimate
from shared.bench.record import Record, Result
from shared.bench.report.tables import Table
from shared.bench.units import NOTHING, bytes_text, duration, interval_text
from shared.problems import problem_of

CACHES_EMPTY, CACHES_WARM = "first call,\ncaches empty", "first call,\ncaches warm"
RATE = "rate"  # the header is the problem's unit
NAMES = ("pass", "input", "framework", "variant", "compiled")  # of a case
NEW_SHAPES = {1: "new shape", 2: "second\nnew shape", 10: "tenth\nnew shape"}
# the columns for the console
BRIEF = (*NAMES, CACHES_EMPTY, CACHES_WARM, "new shape", "median", "95% interval", "device time", RATE, "memory")
# everything, by title: no table is wider than a page
FIRST_CALLS, STEPS = "First calls", "Kernels and steps"
TABLES = {
    "Time of a call": (
        *NAMES, "median", "95% interval", "samples", "rounds", "workers", "device time", RATE, "of the limit", "status",
    ),
    STEPS: (
        *NAMES, "median", "device time", "kernels", "steps", "kernels\nper step", "median\nper step",
        "device time\nper step",
    ),
    FIRST_CALLS: (*NAMES, CACHES_EMPTY, "tracing", "compiling", CACHES_WARM, *NEW_SHAPES.values()),
    "Memory and errors": (*NAMES, "memory", "input bytes", "output bytes", "error / allowed"),
}  # fmt: skip
_BELOW = {
    STEPS: "Per call: kernels and copies on the GPU, and steps of the loop over anti-diagonals (marginals: forward and "
    "back).",
    FIRST_CALLS: "With a 95% interval where several processes took part; else one sample.",
}

_MARKS = {"ok": "", "wrong": "WRONG", "failed": "FAILED", "limit": "over the limit"}


def case_tables(record: Record, *titles: str) -> list[Table]:
    """Every number of every case, in tables that have any: all of TABLES, or those of these titles."""
    has_kernels = any(result.kernels is not None for result in record.results)
    titles_shown = [title for title in titles or TABLES if has_kernels or title != STEPS]
    tables = [case_table(record, TABLES[title], title) for title in titles_shown]
    return [table for table in tables if not set(table.headers) <= {*NAMES, "status"}]


def case_table(record: Record, columns: Sequence[str], title: str = "All cases") -> Table:
    """Every case, with these columns; empty ones are left out."""
    cells = [case_cells(record, result) for result in record.results]
    if columns == BRIEF:
        cells = [{name: text.partition("\n")[0] for name, text in row.items()} for row in cells]
    # a column that only failed cases fill holds reasons, no measurements: it is left out
    measured = [row for row, result in zip(cells, record.results, strict=True) if result.status == "ok"] or cells
    columns_shown = [name for name in columns if any(row.get(name, NOTHING) != NOTHING for row in measured)]
    if "input" in columns_shown and len(record.inputs) == 1:
        columns_shown.remove("input")
    unit = problem_of(record.settings.problem).rate.unit
    return Table(
        title,
        tuple(unit if name == RATE else name for name in columns_shown),
        [tuple(row.get(name, NOTHING) for name in columns_shown) for row in cells],
        tuple("left" if name in (*NAMES, "status") else "right" for name in columns_shown),
        tuple(filter(None, [_BELOW.get(title)])),
    )


def case_cells(record: Record, result: Result) -> dict[str, str]:
    """The cells of a case by column. A case that is wrong, failed or over the limit has no times."""
    case, mark = result.case, _MARKS[result.status] or ("ok" if result.blocks else "not timed")
    auto = " (auto)" if record.auto.get(case.framework) == case.variant else ""
    variant = f"{case.variant}{auto}{f', {case.label}' if case.label else ''}"
    names = case.pass_name, case.input, FRAMEWORKS[case.framework], variant, "yes" if case.compiled else "no"
    cells = dict(zip(NAMES, names, strict=True)) | {
        "memory": bytes_text(result.peak_bytes or None),  # 0: memory kept from before was enough
        "input bytes": bytes_text(result.input_bytes),
        "output bytes": bytes_text(result.output_bytes),
        "status": f"{mark}: {result.reason}" if result.reason else mark,
    }
    if result.gate:
        error = result.gate.error_of_allowed
        cells["error / allowed"] = "not finite" if error is None else f"{error:.1%}"
    if result.status != "ok":
        limit = (result.reason or mark).partition(":")[0]  # the diagnostics have what follows a colon
        return cells | {CACHES_EMPTY: limit if result.status == "limit" else mark}
    cells |= {CACHES_EMPTY: _with_interval(result.first_call), CACHES_WARM: _with_interval(result.warm_call)}
    cells |= {name: _with_interval(result.new_shape(number)) for number, name in NEW_SHAPES.items()}
    if result.cold:
        cells |= {"tracing": duration(result.cold[0].tracing), "compiling": duration(result.cold[0].compiling)}
    return cells | _time_cells(record, result) if result.blocks else cells


def _with_interval(time: Estimate | None) -> str:
    interval = f"\n({interval_text(time)})" if time and time.has_interval else ""
    return duration(time and time.value) + interval


def _time_cells(record: Record, result: Result) -> dict[str, str]:
    rate, share = result.rate, share_of_limit(record, result)
    cells = {
        "median": duration(result.time.value),
        "95% interval": interval_text(result.time) if result.time.has_interval else NOTHING,
        "device time": duration(result.device_time.value if result.device_time else None),
        RATE: problem_of(result.case.problem).rate.text(rate) if rate else NOTHING,
        "of the limit": f"{share:.2%}" if share else NOTHING,
    }
    if len(result.blocks) > 1:  # or else only calls right after the first, as in the provisional answer
        repeats = {block.repeat for block in result.blocks}
        cells |= {"samples": str(result.calls), "rounds": str(len(result.blocks)), "workers": str(len(repeats))}
    return cells if result.kernels is None else cells | _step_cells(record, result)


def _step_cells(record: Record, result: Result) -> dict[str, str]:
    """Kernels of a call on an accelerator, and what a step of its loop takes."""
    case = result.case
    steps = problem_of(case.problem).steps(case.variant, case.pass_name, record.inputs[case.input].shape)
    cells = {"kernels": f"{result.kernels:,}"}
    if not steps or not result.kernels:
        return cells
    on_device = result.device_time.value / steps if result.device_time else None
    return cells | {
        "steps": f"{steps:,}",
        "kernels\nper step": f"{result.kernels / steps:.3g}",
        "median\nper step": duration(result.time.value / steps),
        "device time\nper step": duration(on_device),
    }
