"""What a person reads: the head, the table, the verdict in words; and the ladder's two tables."""

from collections.abc import Iterable, Sequence

from tabulate import tabulate

from shared.bench.ceilings import share_of_limit
from shared.bench.notes import busy_machine, notes
from shared.bench.plan import FRAMEWORKS
from shared.bench.record import Record, Result
from shared.bench.report.rows import growth_table
from shared.bench.text import clock, duration, size, time_interval
from shared.bench.verdict import verdicts
from shared.problems import PROBLEMS


def report(record: Record) -> str:
    """Everything that a run prints at its end."""
    if record.settings is None:
        return "nothing was measured"
    parts = ["\n".join(_head(record))]
    if record.settings.ladder:
        parts += _ladder(record)
    else:
        parts += [*_tables(record), *_growth(record), "\n\n".join(_verdicts(record))]
    below = list(notes(record))
    return "\n\n".join([*parts, "\n".join(below)] if below else parts)


def _head(record: Record) -> Iterable[str]:
    settings, where = record.settings, record.environment
    assert settings is not None
    problem = PROBLEMS[settings.problem]
    given = next(iter(record.inputs.values()))
    cores = f"{settings.threads} core{'s' if settings.threads > 1 else ''}"
    parameters = [f"{name} {value:g}" for name, value in given.parameters.items()]
    options = [f"{name} {value}" for name, value in given.options.items()]
    unroll = f", unroll {settings.unroll}" if settings.unroll else ""
    yield f"{problem.name}: {problem.text}; {', '.join([settings.dtype, *parameters, *options])}{unroll}"
    for given in record.inputs.values():
        yield f"input: {given.text}; {given.work:,} {problem.rate.work}"
    yield f"on {where['cpu']}, {cores}, Python {where['python']}, NumPy {where['numpy']}"
    for name, details in where["frameworks"].items():
        gpu = f" on {details['gpu']}" if "gpu" in details else ""
        gpu += f", XLA_FLAGS {details['XLA_FLAGS']}" if "XLA_FLAGS" in details else ""
        start = details.get("compiler_start_seconds")
        took = f"; starting its compiler took {duration(start)}, once, not counted below" if start else ""
        yield f"{FRAMEWORKS[name]} {details[name]}{gpu}{took}"
    timed = [result.blocks for result in record.results if result.measured]
    if timed and not settings.ladder:
        workers = _from_to([len({block.worker for block in blocks}) for blocks in timed])
        rounds = _from_to([len(blocks) for blocks in timed])
        yield f"{workers} fresh processes for each case, {rounds} rounds, {clock(record.seconds)} minutes"


def _from_to(counts: Sequence[int]) -> str:
    return f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else str(counts[0])


def _tables(record: Record) -> Iterable[str]:
    """A table for each input, which is one unless sizes are swept."""
    assert record.settings is not None
    unit, on_cpu = PROBLEMS[record.settings.problem].rate.unit, record.settings.device == "cpu"
    for name, given in record.inputs.items():
        rows = [_row(record, result) for result in record.results if result.case.input == name]
        headers = ("pass", "framework", "variant", "compiled", "first call", "new process", "new shape", "median",
                   "95% interval", *([] if on_cpu else _ON_DEVICE), unit, "memory")  # fmt: skip
        columns = ("left",) * 4 + ("right",) * (len(headers) - 4)
        table = tabulate(rows, headers=headers, disable_numparse=True, colalign=columns)
        yield f"{given.text}\n\n{table}" if len(record.inputs) > 1 else table


def _growth(record: Record) -> Iterable[str]:
    """How a sweep's times grow."""
    table = growth_table(record)
    if table.rows:
        shown = tabulate(table.rows, headers=table.headers, disable_numparse=True, colalign=table.aligns)
        yield f"{table.title}\n\n{shown}"


# columns that only an accelerator has
_ON_DEVICE = ("device time", "of the limit")


def _row(record: Record, result: Result) -> tuple[str, ...]:
    case, on_device = result.case, _on_device(record, result)
    variant = f"{case.variant} (auto)" if record.auto.get(case.framework) == case.variant else case.variant
    variant += case.side_text
    names = (case.pass_name, FRAMEWORKS[case.framework], variant, "yes" if case.compiled else "no")
    if result.status != "ok":
        return (*names, _mark(result), *[""] * (6 + len(on_device)))
    cold = duration(result.cold.seconds) if result.cold else "–"
    warm = duration(result.warm_seconds) if result.warm_seconds is not None else "–"
    shape = duration(result.retrace.seconds) if result.retrace else "–"
    if not result.measured:
        return (*names, cold, warm, shape, "–", "–", *on_device, "–", size(result.peak_bytes))
    rate = PROBLEMS[case.problem].rate.text(result.rate or 0)
    times = (duration(result.time.value), time_interval(result.time))
    return (*names, cold, warm, shape, *times, *on_device, rate, size(result.peak_bytes))


def _on_device(record: Record, result: Result) -> tuple[str, ...]:
    """Nothing on a CPU."""
    if result.case.device == "cpu":
        return ()
    seconds, share = result.device_seconds, share_of_limit(record, result)
    return ("–" if seconds is None else duration(seconds), "–" if share is None else f"{share:.1%}")


def _verdicts(record: Record) -> Iterable[str]:
    """A paragraph for each input and pass: who was faster and how sure that is, then the price."""
    for line in busy_machine(record):
        yield f"WARNING: {line}"
    for verdict in verdicts(record):
        where = f"{verdict.input}, " if len(record.inputs) > 1 else ""
        yield "\n".join([f"{where}{verdict.pass_name}: {verdict.sentence}", *(f"  {line}" for line in verdict.price)])


def _ladder(record: Record) -> list[str]:
    """Two tables for each pass: the single pair and the batch; rows are NumPy and the rungs."""
    assert record.settings is not None
    tables = []
    for pass_name in record.settings.passes:
        for name, given in record.inputs.items():
            rows = _ladder_rows(record, pass_name, name)
            headers = ["variant"]
            for framework in _frameworks(record):
                title = FRAMEWORKS[framework]
                headers += [f"{title}\njit off\n{call}" for call in ("first", "second")]
                headers += [f"{title}\njit on\n{call}" for call in ("first", "second")]
            columns = ("left", *["right"] * (len(headers) - 1))
            table = tabulate(rows, headers=headers, disable_numparse=True, colalign=columns)
            tables.append(f"{pass_name}, {given.text}\n\n{table}")
    return tables


def _frameworks(record: Record) -> list[str]:
    """Those that were measured."""
    return list(record.environment["frameworks"])


def _ladder_rows(record: Record, pass_name: str, name: str) -> list[list[str]]:
    cells: dict[tuple[str, str, bool], Result] = {
        (result.case.variant, result.case.framework, result.case.compiled): result
        for result in record.results
        if result.case.pass_name == pass_name and result.case.input == name
    }
    rows = []
    seconds = record.references.get((name, pass_name))
    if seconds:
        rows.append(["NumPy", *([duration(value) for value in seconds] + ["", ""]) * len(_frameworks(record))])
    for variant in dict.fromkeys(variant for variant, _, _ in cells):
        row = [variant]
        for framework in _frameworks(record):
            for compiled in (False, True):
                row += _ladder_cell(cells.get((variant, framework, compiled)))
        rows.append(row)
    return rows


def _ladder_cell(result: Result | None) -> list[str]:
    if result is None:
        return ["–", "–"]
    if result.status == "ok":
        second = duration(result.time.value) if result.measured else "–"
        return [duration(result.cold.seconds) if result.cold else "–", second]
    return [_mark(result), "–"]


def _mark(result: Result) -> str:
    """What stands instead of a time."""
    return {"wrong": "WRONG", "failed": "FAILED", "limit": result.reason or ""}[result.status]
