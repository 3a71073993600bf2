"""The answer of `processes`: tables for every number of processes, and what to take."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from shared.bench.cases import FRAMEWORKS
from shared.bench.estimates import LEAST_PROCESSES, SAME, Estimate
from shared.bench.questions.processes_inputs import BATCH, COUNT
from shared.bench.questions.processes_rows import Row, rows_of
from shared.bench.record import Record
from shared.bench.report.tables import Statement, Table, left_then_right
from shared.bench.units import NOTHING, ratio_interval, ratio_text

_STRONG = (
    "Speed-up: the time of one process over that of all, with the efficiency (the speed-up for each process) and the "
    "95% interval. Strong: the processes divide a batch. Weak: each has a batch."
)
_SHARED_CORES = (
    "Some of the processes had the same cores, so the speed-ups say little: LOCAL_RANK and LOCAL_WORLD_SIZE in the "
    "environment give each cores of its own."
)


def tables(record: Record) -> Iterator[Table]:
    """Speed-ups and efficiencies; then what dividing by count and communication cost."""
    rows = rows_of(record)
    for count, of_count in groupby(rows, key=lambda row: row.count):
        yield from _tables(record, count, list(of_count))


def _tables(record: Record, count: int, rows: Sequence[Row]) -> Iterator[Table]:
    facts = _facts(record, count)
    where = "one host" if facts.get("hosts", 1) == 1 else f"{facts['hosts']} hosts"
    own, every = _cores(rows[0].cores), _cores(rows[0].all_cores)
    headers = (
        "framework",
        "pass",
        f"strong: speed-up\nover 1 process,\n{own}",
        f"strong: speed-up\nover 1 process,\n{every}",
        f"weak: efficiency\nover 1 process,\n{own}",
        f"weak: speed-up\nover 1 process,\n{every}",
    )
    cells = [
        (
            *(_name(row, rows), row.pass_name),
            _cell(row.speed_up, count),
            _cell(row.against_all, doubts=row.choice.doubts if row.choice else ()),
            _percent(row.weak),
            _cell(row.weak_against_all),
        )
        for row in rows
    ]
    lost = dict.fromkeys(f"No {r.case.title}: {r.reason}." for r in record.results if r.status != "ok")
    yield Table(
        f"Process scaling on {where}: {count} processes, {own} each",
        headers,
        cells,
        left_then_right(2, 4),
        (_STRONG, *lost, *([_SHARED_CORES] if facts.get("share_cores") else [])),
    )
    cells = [
        (_name(row, rows), row.pass_name, _cell(row.by_count), _percent(row.communication))
        for row in rows
        if row.by_count or row.communication
    ]
    if cells:
        headers = (
            "framework",
            "pass",
            "divided by count:\ntime over that\ndivided by cells",
            "communication,\nshare of a step",
        )
        shares = facts.get("largest_share", {})
        below = [
            "Communication: what a step takes longer than one in which no process waits for another, waiting included."
        ]
        if shares and any(row.by_count for row in rows):
            told = f"{shares[COUNT]:.2f} times an equal share of the cells by count, {shares[BATCH]:.2f} times by cells"
            below.append(f"The largest shard of the batch has {told}.")
        yield Table(
            f"Dividing and communicating: {count} processes", headers, cells, left_then_right(2, 2), tuple(below)
        )


def _facts(record: Record, count: int) -> dict:
    """What the run found out about so many processes, beside times."""
    return next((r.details for r in record.results if r.details.get("count") == count), {})


def _name(row: Row, rows: Sequence[Row]) -> str:
    """The framework, and the variant where there are several."""
    several = len({each.variant for each in rows}) > 1
    return FRAMEWORKS[row.framework] + (f" {row.variant}" if several else "")


def _cores(count: int) -> str:
    return f"{count} core{'s' if count > 1 else ''}"


def _cell(ratio: Estimate | None, count: int | None = None, doubts: Sequence[str] = ()) -> str:
    """A speed-up; with the efficiency of so many processes."""
    if ratio is None:
        return NOTHING
    efficiency = f", {ratio.value / count:.0%}" if count else ""
    return f"{ratio_text(ratio.value)}×{efficiency}\n({'; '.join([ratio_interval(ratio), *doubts])})"


def _percent(share: Estimate | None) -> str:
    if share is None:
        return NOTHING
    interval = f"{share.low:.0%} … {share.high:.0%}" if share.low == share.low else f"< {LEAST_PROCESSES} processes"
    return f"{share.value:.0%}\n({interval})"


def statements(record: Record) -> Iterator[Statement]:
    """For each framework, what to take on these cores: one process with as many threads, or several processes."""
    rows = rows_of(record)
    several = len({row.variant for row in rows}) > 1
    for framework, name in FRAMEWORKS.items():
        best: dict[str, tuple[Row, Estimate, str]] = {}  # with the outcome
        for row in rows:
            what = f"{row.variant} {row.pass_name}" if several else row.pass_name
            choice, ratio = row.choice, row.against_all
            if row.framework != framework or choice is None or ratio is None:
                continue
            if what not in best or ratio.value > best[what][1].value:
                best[what] = row, ratio, choice.outcome
        if best:
            every = _cores(next(iter(best.values()))[0].all_cores)
            yield Statement(f"{name} on {every}", f"{'; '.join(_advice(best, every.removesuffix(' cores')))}.")
    for row in rows:
        if share := row.communication:
            about = f"{FRAMEWORKS[row.framework]}, a step by {row.count} processes"
            yield Statement(about, f"{_percent(share).replace(chr(10), ' ')} of it is communication, waiting included.")


def _advice(best: dict[str, tuple[Row, Estimate, str]], threads: str) -> Iterator[str]:
    one = f"one process with {threads} threads"
    kinds: dict[tuple[str, int], list[str]] = {}
    for what, (row, ratio, outcome) in best.items():
        factor = ratio_text(max(ratio.value, 1 / ratio.value))
        if outcome == "different":
            kind = "many" if ratio.value > 1 else "one"
            kinds.setdefault((kind, row.count), []).append(f"{what} ({factor}×)")
        else:
            kinds.setdefault((outcome, row.count), []).append(what)
    for (kind, count), own in kinds.items():
        listed = ", ".join(own)
        yield {
            "one": f"take {one} for {listed}: so many times as fast as {count} processes",
            "many": f"take {count} processes for {listed}: so many times as fast as {one}",
            "same": f"{one} or {count} processes, the same within ±{SAME - 1:.0%}, for {listed}",
        }.get(kind, f"{one} or {count} processes: not decided for {listed}")
