"""Two recorded runs compared: each case's time, first call and memory, new over old."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from tabulate import tabulate

from shared.bench.analysis.estimates import Estimate, all_seconds, time_quotient
from shared.bench.cases import FRAMEWORKS, Case
from shared.bench.measure.machine import different_environments
from shared.bench.record import Record, Result
from shared.bench.units import duration, figures, ratio_interval, size

# a smaller change of the first call or of memory is not shown: there is one sample of each
_LEAST_CHANGE = 0.2


def compare_runs(old: Record, new: Record) -> str:
    """A table of the cases that both runs have, a summary, and how the runs differ otherwise."""
    before = {result.case: result for result in old.results}
    same = {name for name in old.inputs if old.inputs[name] == new.inputs.get(name)}
    both = [(before[result.case], result) for result in new.results if result.case in before]
    both = [pair for pair in both if pair[1].case.input in same]
    ratios = [time_quotient(b.blocks, a.blocks) if a.measured and b.measured else None for a, b in both]
    rows = [_row(*pair, ratio) for pair, ratio in zip(both, ratios, strict=True)]
    headers = ("input", "pass", "framework", "variant", "old", "new", "new / old", "95% interval", "", "first call",
               "memory")  # fmt: skip
    parts = [f"old: {_described(old)}\nnew: {_described(new)}"]
    warnings = list(_warnings(old, new))
    if warnings:
        parts.append("\n".join(f"WARNING: {line}" for line in warnings))
    parts.append(tabulate(rows, headers=headers, disable_numparse=True) if rows else "no case is in both runs")
    parts.append("\n".join(_summary(old, new, [ratio for ratio in ratios if ratio is not None])))
    return "\n\n".join(parts)


def _described(record: Record) -> str:
    finished = "" if record.finished else ", not finished"
    return f"{record.started}, commit {record.environment.get('git_commit')}: {record.command}{finished}"


def _row(old: Result, new: Result, ratio: Estimate | None) -> list[str]:
    case = new.case
    mode = "" if case.compiled else " (not compiled)"
    names = [case.input, case.pass_name, FRAMEWORKS[case.framework], f"{case.variant}{mode}"]
    if ratio is None:
        marks = ("–" if r.status == "ok" else r.status.upper() for r in (old, new))
        shown = (duration(r.time.value) if r.measured else mark for r, mark in zip((old, new), marks, strict=True))
        return [*names, *shown, *[""] * 5]
    interval = "–" if math.isnan(ratio.low) else ratio_interval(ratio)
    times = [duration(old.time.value), duration(new.time.value), figures(ratio.value), interval, _word(ratio)]
    first = [result.cold.seconds if result.cold else None for result in (old, new)]
    return [*names, *times, _changed(first, duration), _changed([old.peak_bytes, new.peak_bytes], size)]


def _word(ratio: Estimate) -> str:
    if math.isnan(ratio.low):
        return "one worker"
    if ratio.holds(1.0):
        return "not decided" if ratio.is_wide else "same"
    return "slower" if ratio.value > 1 else "faster"


def _changed(values: Sequence, shown) -> str:
    before, after = values
    if before is None or after is None:
        return ""
    if abs(after - before) <= _LEAST_CHANGE * max(before, after):
        return f"within {_LEAST_CHANGE:.0%}"
    return f"{shown(before)} → {shown(after)}"


def _summary(old: Record, new: Record, ratios: Sequence[Estimate]) -> Iterator[str]:
    words = [_word(ratio) for ratio in ratios]
    yield (
        f"{len(words)} cases measured in both: {words.count('slower')} slower, {words.count('faster')} faster, "
        f"{words.count('same')} with no difference, "
        f"{words.count('not decided') + words.count('one worker')} not decided"
    )
    change = _machine_change(old, new)
    if change is not None:
        yield f"the calibration loop took {change:+.1%} in the new run, which the intervals do not cover"
    for title, one, other in (("old", old, new), ("new", new, old)):
        theirs: set[Case] = {result.case for result in other.results}
        alone = [result.case.title for result in one.results if result.case not in theirs]
        if alone:
            yield f"only in the {title} run: {', '.join(alone)}"


def _warnings(old: Record, new: Record) -> Iterator[str]:
    """What makes the runs hard to compare."""
    for text in different_environments(old.environment, new.environment):
        if not text.startswith("git_commit "):  # which is what one compares
            yield f"the environments differ: {text}"
    yield from _different_settings(old, new)
    for name in old.inputs:
        if name in new.inputs and old.inputs[name] != new.inputs[name]:
            yield f"the input {name} is not the same: its cases are not compared"
    change = _machine_change(old, new)
    if change is not None and abs(change) > 0.05:
        yield (
            f"the machine itself was {abs(change):.0%} {'slower' if change > 0 else 'faster'} in the new run, "
            "by the calibration loop"
        )


def _different_settings(old: Record, new: Record) -> Iterator[str]:
    """Different settings that make the runs incomparable."""
    if old.settings is None or new.settings is None:
        return
    for name in ("question", "problem", "device", "dtype", "threads"):
        asked = [getattr(record.settings, name) for record in (old, new)]
        if asked[0] != asked[1]:
            yield f"the {name} differs: {asked[0]} in the old run, {asked[1]} in the new one"
    given = [next((f.parameters | f.options for f in r.inputs.values()), {}) for r in (old, new)]
    for name in given[0].keys() & given[1].keys():
        if given[0][name] != given[1][name]:
            yield f"{name} differs: {given[0][name]} in the old run, {given[1][name]} in the new one"


def _machine_change(old: Record, new: Record) -> float | None:
    """Relative change of the calibration loop's time; None if a run has none."""
    if not (old.speed and new.speed):
        return None
    before, after = (float(np.median(all_seconds(record.speed))) for record in (old, new))
    return after / before - 1
