"""Two recorded runs compared: each case's time, new over old, and its first call and memory in both."""

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from shared.bench.analysis.verdict import outcome_text
from shared.bench.cases import Case
from shared.bench.estimates import unpaired_ratio
from shared.bench.measure.machine import different_environments
from shared.bench.record import Record
from shared.bench.report.case_table import CACHES_EMPTY, NAMES, case_cells
from shared.bench.report.report import Report, origin
from shared.bench.report.tables import Answer, Table, left_then_right
from shared.bench.units import NOTHING, ratio_interval, ratio_text

# outcomes that are worse than before
_WORSE = {"slower", "wrong", "failed", "limit", "missing"}


class Changes(NamedTuple):
    """The changes between two runs."""

    report: Report
    exit_code: int  # 0: nothing is worse; 1: an outcome of _WORSE; 2: nothing can be compared


def compare_runs(old: Record, new: Record) -> Changes:
    """A table of the cases that both runs have and those that the new one lacks, a summary, and how they differ."""
    same = [name for name, facts in old.inputs.items() if facts == new.inputs.get(name)]
    before = {result.case for result in old.results if result.case.input in same}
    shared = [result.case for result in new.results if result.case in before]
    rows = [_row(old, new, case) for case in shared]
    names = ("question", "problem", "frameworks", "variants", "passes", "quick", "pythons")
    # with the same settings the new run should have every case of the old one
    if all(getattr(old.settings, name) == getattr(new.settings, name) for name in names):
        gone = [r.case for r in old.results if r.status == "ok" and r.case in before and r.case not in shared]
        no_changes = NOTHING, NOTHING, "missing", NOTHING, NOTHING
        rows += [(*_row(old, old, case)[: len(NAMES) + 1], *no_changes) for case in gone]
    headers = (*NAMES, "old", "new", "new / old", "outcome", CACHES_EMPTY, "memory")
    below = ("Memory is a single sample, and so is a first call without an interval.",)
    table = Table("Cases, old and new", headers, rows, left_then_right(len(NAMES), 6), below)
    outcomes = [row[headers.index("outcome")] for row in rows]
    by_outcome = dict.fromkeys(["slower", "faster", "same", *outcomes])
    counts = ", ".join(f"{outcomes.count(name)} {name}" for name in by_outcome if name != NOTHING)
    extents = f"{len(old.results)} cases in the old run, {len(new.results)} in the new one, {len(shared)} in both"
    report = Report(
        Answer([table] if rows else []),
        head=[f"old: {origin(old)}", f"new: {origin(new)}"],
        warnings=list(_warnings(old, new)),
        diagnostics=[f"{extents}: {counts}"],
    )
    return Changes(report, 1 if _WORSE & set(outcomes) else 2 if set(outcomes) <= {NOTHING} else 0)


def _row(old: Record, new: Record, case: Case) -> tuple[str, ...]:
    """A case: its names, both times, and what changed."""
    results = old.result(case), new.result(case)
    before, after = (case_cells(record, result) for record, result in zip((old, new), results, strict=True))
    names = [after[name] for name in NAMES]
    times = [cells.get("median", cells["status"]) for cells in (before, after)]
    if not all(result.measured for result in results):
        is_worse = results[1].status == "wrong" or (results[0].status == "ok" and results[1].status != "ok")
        return *names, *times, NOTHING, results[1].status if is_worse else NOTHING, NOTHING, NOTHING
    ratio = unpaired_ratio(results[1].blocks, results[0].blocks)
    outcome = outcome_text(ratio, ("slower", "faster"), "no clear change")
    samples = [f"{before[name]} → {after[name]}".replace("\n", " ") for name in (CACHES_EMPTY, "memory")]
    return *names, *times, f"{ratio_text(ratio.value)} ({ratio_interval(ratio)})", outcome, *samples


def _warnings(old: Record, new: Record) -> Iterator[str]:
    """Differences that make the runs hard to compare."""
    texts = different_environments(old.environment, new.environment)  # the commit is expected to differ
    yield from (f"the environments differ: {text}" for text in texts if not text.startswith("git_commit "))
    for name in ("question", "problem", "device", "dtype", "threads"):
        before, after = (getattr(record.settings, name) for record in (old, new))
        if before != after:
            yield f"the settings differ: {name} was {before}, is {after}"
    for name in old.inputs.keys() & new.inputs.keys():
        facts = vars(new.inputs[name])
        if differing := [fact for fact, value in vars(old.inputs[name]).items() if value != facts[fact]]:
            yield f"the input {name} differs in {', '.join(differing)}: its cases are not compared"
    if old.calibration_seconds and new.calibration_seconds:
        before, after = (median(record.calibration_seconds) for record in (old, new))
        if abs(after / before - 1) > 0.05:
            yield f"the machine itself changed: its calibration loop took {after / before - 1:+.0%} in the new run"
