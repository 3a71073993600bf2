"""How `memory` measures: processes, the sizes that each calls, and trials just below and above what is predicted.

Resident memory is that of the worker's process, which is killed where it has more than the given memory
(memory_watch.py). On an accelerator the framework itself is limited to the given memory.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil

from shared.bench.cases import MEMORY_SHARE, Case, Settings
from shared.bench.estimates import LEAST_PROCESSES
from shared.bench.questions.memory_fit import (
    FIRST_BYTES,
    FITS,
    STOPPED,
    TRIALS,
    Axis,
    Size,
    cells_that_fit,
    memory_of,
    needs,
)
from shared.bench.questions.memory_watch import watched
from shared.bench.questions.memory_worker import device_memory, peak_of_calls
from shared.bench.record import NO_ROOM, Record, Result
from shared.bench.units import size as bytes_text
from shared.problems import problem_of
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.argument_types import size_text
from shared.problems.problem import DATA, UnusableInput
from shared.variants import variant_names

if TYPE_CHECKING:
    from shared.bench.run.context import Run

# Part of the memory that the larger size shall take: beyond the sizes at which the C library reuses memory that smaller
# arrays have left, and well within the memory; the search ends near it. Each size has at most so many times as many
# cells as the one before.
_PART, _NEAR, _MOST_GROWTH = 0.6, 0.75, 8.0


def measure_memory(run: "Run", cases: Sequence[Case], given: AlignmentInputs) -> None:
    """Variant by variant, the last rung first; of each up to so many processes, then its trials.

    Cases that differ only in framework share what is left of the budget with those that come after them.
    """
    run.write(f"{DATA}.inputs", given)
    run.write(f"{DATA}.reference", problem_of(run.settings.problem).reference_results(given, run.settings.passes))
    _limit_memory(run, cases[0])
    for case in cases:
        result = run.record.result(case)
        result.details = {"processes": [], "trials": {}} | result.details
        if result.reason == NO_ROOM:
            result.status, result.reason = "ok", None
    groups = _groups(run.record, cases)
    run.progress.ends_within(run.seconds_left)
    for number, group in enumerate(groups):
        wanted = run.settings.workers or LEAST_PROCESSES
        run.progress.begin(f"part {number + 1} of {len(groups)}", (wanted + len(TRIALS)) * len(group))
        _measure_group(run, group, wanted, time.monotonic() + run.seconds_left / (len(groups) - number))


def default_memory(settings: Settings) -> int | None:
    """Half of what is free, or 2 GiB if that is less: calls stay short. None on an accelerator: only a worker knows."""
    return min(2**31, psutil.virtual_memory().available // 2) if settings.device == "cpu" else None


def _limit_memory(run: "Run", case: Case) -> None:
    """Fix the memory of the run in its settings; on an accelerator, have the workers to come limited to it.

    Raises UnusableInput.
    """
    memory = run.settings.memory or default_memory(run.settings)
    if run.settings.device != "cpu":
        reply = run.ask("call", case, expected=0.0, function=device_memory)
        total = reply.details.get("total")
        if total is None:
            raise UnusableInput(f"the memory of the accelerator is not known: {reply.reason}")
        memory = memory or total // 2
        if memory > MEMORY_SHARE * total:
            most = f"{bytes_text(int(MEMORY_SHARE * total))}, {MEMORY_SHARE:.0%} of the accelerator's memory"
            raise UnusableInput(f"--memory must be at most {most}, got {bytes_text(memory)}")
        run.memory_share = memory / total
    run.stop()
    run.progress.say(f"memory of a process: {bytes_text(memory)}; --memory SIZE changes that")
    run.record.settings = replace(run.settings, memory=memory)


def _groups(record: Record, cases: Sequence[Case]) -> list[list[Case]]:
    """Cases that differ only in framework, in the order in which they are measured."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.variant, case.pass_name), []).append(case)
    rungs = variant_names(record.settings.problem)
    return sorted(groups.values(), key=lambda own: -rungs.index(own[0].variant))


def _measure_group(run: "Run", group: Sequence[Case], wanted: int, end: float) -> None:
    """The first process of each case if the budget is not spent; more, and the trials, until `end`."""
    took = dict.fromkeys(group, 0.0)  # seconds of a process, its start included
    for number in range(wanted):
        for case in group:
            result, began = run.record.result(case), time.monotonic()
            if result.status != "ok" or len(result.details["processes"]) > number:
                continue
            if not number and run.seconds_left <= 0:
                result.status, result.reason = "limit", NO_ROOM
            elif not number or took[case] <= end - began:
                run.progress.step(case.title)
                _measure_process(run, result)
                took[case] = time.monotonic() - began
            _keep(run)
    for result in map(run.record.result, group):
        for share in TRIALS:
            if needs(result) and share not in result.details["trials"] and time.monotonic() < end:
                run.progress.step(f"{result.case.title}, {share} of the largest size")
                _try(run, result, share)
                _keep(run)
        run.stop(result.case)


def _keep(run: "Run") -> None:
    run.keep()
    run.progress.results(run.record)


def _measure_process(run: "Run", result: Result) -> None:
    """The peaks of a fresh process at two sizes, the smaller one first. The first process of a case finds the sizes."""
    run.stop(result.case)
    known, before = result.details.get("sizes"), len(result.details["processes"])
    found = _peaks(run, result, known) if known else _found_sizes(run, result)
    run.stop(result.case)
    if before and result.status in ("failed", "limit"):
        run.record.excuse(result, before + 1)
        return
    if result.status != "ok":
        return
    result.details["sizes"] = [size for size, _ in found]
    result.details["processes"].append({"peaks": [peak for _, peak in found]})
    if not needs(result):
        result.status, result.reason = "limit", "its memory does not grow with the size: take more --memory"


def _peaks(run: "Run", result: Result, sizes: Sequence[Size]) -> list[tuple[Size, int]]:
    """The peak at each size, until the case is not right. The gate checks the first."""
    found: list[tuple[Size, int]] = []
    for size in sizes:
        if (reply := _peak(run, result, size, is_first=not found)) is None:
            break
        found.append((size, reply["peak"]))
    return found


def _found_sizes(run: "Run", result: Result) -> list[tuple[Size, int]]:
    """Two sizes with their peaks: one that takes its part of the memory, found step by step, and one of at most half.

    Each step foresees the next size by the bytes of a cell since the one before. Of the first size all of its memory
    counts, compiled code too: too much, so that the next size is too small rather than too large. A step that takes too
    much memory or time is the last: the sizes before it fit.
    """
    axis, memory = Axis.of(run.settings), memory_of(run.settings)
    # of a length as the input has it, of which the reference is known
    length = run.record.inputs[DATA].shape[1]
    size = axis.size(length if axis.batch else max(1, axis.number(memory / FIRST_BYTES)))
    found: list[tuple[Size, int]] = []
    before, last_cells, last_peak = 0, 0, 0
    while (reply := _peak(run, result, size, is_first=not found)) is not None:
        cells, peak = math.prod(size), reply["peak"]
        found.append((size, peak))
        if not last_cells:
            before = last_peak = reply["before"]
        wanted = before + _PART * (memory - before)
        if len(found) > 1 and peak - before > _NEAR * (wanted - before):
            break
        per_cell = max(1.0, (peak - last_peak) / (cells - last_cells))
        growth = 1 + (wanted - peak) / (per_cell * cells)
        last_cells, last_peak = cells, peak
        # the nearer, the more is known of what a cell takes
        growth = growth if growth <= _MOST_GROWTH else min(_MOST_GROWTH, math.sqrt(growth))
        size = axis.size(max(axis.number(cells) + 1, axis.number(growth * cells)))
    if not found or result.status not in ("ok", "limit"):
        return []
    reason, result.status, result.reason = result.reason, "ok", None
    largest = math.prod(found[-1][0])
    smaller = [one for one in found if 2 * math.prod(one[0]) <= largest]
    if smaller:
        return [smaller[-1], found[-1]]
    half = axis.number(largest / 2)
    if half < 1:
        result.status, result.reason = "limit", f"only {axis.text(1)} could be measured, two sizes are needed: {reason}"
        return []
    run.stop(result.case)  # or memory that the larger size has left would count
    return _peaks(run, result, [axis.size(half), found[-1][0]])


def _peak(run: "Run", result: Result, size: Size, is_first: bool) -> Mapping[str, int] | None:
    """Bytes before and at most; None if the case is not right, or takes more memory than is given."""
    with watched(run, result.case) as watch:
        reply = run.ask_for_result("call", result.case, function=peak_of_calls, size=size, is_first=is_first)
    if watch and watch.has_stopped:
        what = f"the process and {size_text(size)}"
        result.status, result.reason = "limit", f"{what} take more than {bytes_text(memory_of(run.settings))}"
    return reply.details if reply.status == "ok" else None


def _try(run: "Run", result: Result, share: str) -> None:
    """A part of the largest size in a fresh process, which goes on with the next part."""
    case, axis = result.case, Axis.of(run.settings)
    cells = cells_that_fit(result, memory_of(run.settings)).value
    size = axis.size(max(1, axis.number(TRIALS[share] * cells)))
    with watched(run, case) as watch:
        reply = run.ask("call", case, function=peak_of_calls, size=size, is_first=False)
    # an accelerator's framework says itself that it has too little memory
    has_stopped = (watch and watch.has_stopped) or (reply.status == "limit" and case.device != "cpu")
    if has_stopped or reply.status == "ok":
        outcome = STOPPED if has_stopped else FITS
        result.details["trials"][share] = {"size": size, "outcome": outcome, "peak": reply.details.get("peak")}
    else:
        run.record.note(f"{case.title}: {share} of the largest size could not be tried: {reply.reason}")
