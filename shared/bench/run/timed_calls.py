"""The second phase: repeats, each with fresh workers, in which cases are timed in turn, in rounds of short blocks.

The first repeats time all cases, later ones only those that the question still needs. A worker's first call of a case
is the first call of a new process that finds the caches on disk.
"""

import itertools
import time
from dataclasses import replace
from statistics import median

from shared.bench.cases import Case
from shared.bench.estimates import LEAST_PROCESSES, Block
from shared.bench.record import Record
from shared.bench.run.context import BUDGET_SPENT, Run
from shared.bench.run.first_calls import repeat_first_calls
from shared.bench.run.schedule import (
    ALL_CASES_REPEATS,
    CHEAP_CASE,
    DOMINATED_FACTOR,
    LEAST_REPEATS,
    VERY_SLOW_SECONDS,
    BlockPlan,
    block_of,
    is_precise,
    order,
    rounds_that_fit,
)
from shared.bench.run.worker_handle import Reply

_FIRST_CALLS_SHARE = 0.2  # of a repeat's time, for first calls with empty caches after its rounds
_SHORT_FIRST_CALL = 5.0  # a first call that takes longer is left out if the rest of the budget has no room for it
_LEAST_SHARE = 0.2  # rounds get at least this fraction of the preparation time, even beyond the budget
_DEVICE_SECONDS = 0.5  # that measuring the device time of a case takes, most of it in the profiler


def measure_timed_calls(run: Run, cases: list[Case]) -> None:
    """Time calls until the question is answered precisely, the budget is spent, or all repeats asked for are done."""
    record = run.record
    number = record.next_repeat
    took: dict[tuple[Case, ...], float] = {}  # seconds of the longest repeat that timed these cases
    while choices := _next_cases(run, cases, number):
        costs = [took.get(tuple(choice)) or sum(_seconds_of(run, case) for case in choice) for choice in choices]
        # cases that an interrupted run left without times are always timed
        all_timed = all(record.result(case).blocks for case in choices[0])
        index = next((at for at, cost in enumerate(costs) if cost <= run.seconds_left), -1) if all_timed else 0
        chosen = choices[index]
        if all_timed and is_enough(run, costs[index]):
            break
        began = time.monotonic()
        least, first_calls = (LEAST_PROCESSES, 0.0) if run.settings.quick else (LEAST_REPEATS, _FIRST_CALLS_SHARE)
        missing = (run.settings.workers or least) - len(record.repeats)
        prepared = one_repeat(run, chosen, number, began + (1 - first_calls) * run.seconds_left / max(1, missing))
        taken = time.monotonic() - began
        # what the repeats still to come need is kept: with --workers all of them, else the first three
        to_come = missing - 1 if run.settings.workers else max(0, ALL_CASES_REPEATS - 1 - number)
        spare = run.seconds_left - to_come * taken
        if not run.settings.quick and spare > 0:
            repeat_first_calls(run, prepared, number + 1, min(first_calls * taken, spare), min(taken, spare))
        run.keep()
        run.stop()
        took[tuple(chosen)] = max(took.get(tuple(chosen), 0.0), time.monotonic() - began)
        number += 1
    note_precision(run)


def _next_cases(run: Run, cases: list[Case], number: int) -> list[list[Case]]:
    """Choices of cases for repeat `number`, the largest first; smaller ones for when time is short.

    First all that did not fail, or of these those that prepare fast; later those that the question still needs.
    """
    right = [case for case in cases if run.record.result(case).status == "ok"]
    if run.settings.workers is None and run.plan.drops_dominated:
        right = [case for case in right if not _is_dominated(run.record, case)]
    if run.settings.workers is not None or not number:
        return [right] if right else []
    needed = run.plan.contenders(run.record)
    repeats = {case: len({block.repeat for block in run.record.result(case).blocks}) for case in right}
    cheap = [case for case in right if repeats[case] and _seconds_of(run, case) < CHEAP_CASE]
    few = {case for case in right if not repeats[case] or (case in cheap and repeats[case] < LEAST_REPEATS)}
    chosen = [case for case in right if case in needed or case in few]
    of_all = [right, [case for case in right if _seconds_to_prepare(run, case) <= _SHORT_FIRST_CALL]]
    return [choice for choice in (*(of_all if number < ALL_CASES_REPEATS else []), chosen, cheap) if choice]


def _seconds_of(run: Run, case: Case) -> float:
    """Seconds that a process needs for a case, its start not included; 0 where it is not known."""
    result = run.record.result(case)
    if not result.blocks:
        return 0.0
    block = block_of(result.time.value, run.settings.quick)
    return _seconds_to_prepare(run, case) + block.rounds * block.seconds


def _is_dominated(record: Record, case: Case) -> bool:
    """Whether a call takes seconds and its framework has a far faster variant: timing it further decides nothing."""
    result = record.result(case)
    if not result.measured or result.time.value < VERY_SLOW_SECONDS:
        return False
    alternatives = (o for o in record.results if replace(o.case, variant=case.variant, compiled=case.compiled) == case)
    return any(other.measured and DOMINATED_FACTOR * other.time.value < result.time.value for other in alternatives)


def is_enough(run: Run, longest: float) -> bool:
    """Whether there were enough repeats; an interrupted one does not count. longest: seconds that another may take."""
    number, settings = len(run.record.repeats), run.settings
    if settings.workers is not None:
        return number >= settings.workers
    # a quick run wants LEAST_PROCESSES, so it starts another one while any budget is left
    needed = 0.0 if settings.quick and number < LEAST_PROCESSES else longest
    is_answered = number >= LEAST_REPEATS and is_precise(run.plan.deciding(run.record), settings)
    return is_answered or run.seconds_left < needed


def note_precision(run: Run) -> None:
    """Note that the budget was too short for intervals as narrow as asked for."""
    settings, estimates = run.settings, run.plan.deciding(run.record)
    if settings.workers is None and not is_precise(estimates, settings):
        widths = [estimate.relative_half_width for estimate in estimates if estimate.has_interval]
        widest = f"the widest interval of a verdict is ±{max(widths):.1%}" if widths else "no verdict has an interval"
        limit = f"asked for was ±{settings.precision:.1%}"
        run.record.note(f"{BUDGET_SPENT} {settings.budget:g} s was spent: {widest}, {limit}")


def one_repeat(run: Run, cases: list[Case], number: int, end: float) -> list[Case]:
    """Fresh workers: each case's first call in them, then rounds until `end`, at least one.

    Returns the cases that were timed. The workers are left running.
    """
    run.progress.begin(f"repeat {number + 1}, preparing", len(cases))
    start = time.monotonic()
    run.start_workers(cases)
    plans: dict[Case, BlockPlan] = {}
    for case in sorted(itertools.chain.from_iterable(order(cases, run.settings, number, 0)), key=run.is_slow):
        run.progress.step(case.title)
        seconds = _seconds_to_prepare(run, case)
        if run.record.result(case).blocks and seconds > max(_SHORT_FIRST_CALL, run.seconds_left):
            left_out = f"{case.title} in repeat {number + 1}, which takes {seconds:.0f} s to prepare"
            run.record.note(f"{BUDGET_SPENT} {run.settings.budget:g} s had no room for {left_out}")
        elif (call_seconds := _prepare(run, case)) is not None:
            plans[case] = block_of(call_seconds, run.settings.quick)
    run.keep()
    began, watched = time.monotonic(), run.watch_other_programs(number)
    is_accelerator = run.settings.device != "cpu"
    end -= is_accelerator * _DEVICE_SECONDS * len(plans)
    _time_rounds(run, plans, number, max(end, began + _LEAST_SHARE * (began - start)))
    repeat = watched()
    if is_accelerator:
        _measure_device_time(run, list(plans), number)
    run.record.repeats.append(repeat)
    run.keep()
    return list(plans)


def _seconds_to_prepare(run: Run, case: Case) -> float:
    """Seconds of a first call in this repeat, by earlier ones: after --resume caches are empty; 0 where unknown."""
    result = run.record.result(case)
    return median((result.warm if case in run.cached else [first.seconds for first in result.cold]) or [0.0])


def _measure_device_time(run: Run, cases: list[Case], number: int) -> None:
    """Take each case's time on the accelerator: after its rounds, as a profiler may slow down calls."""
    run.progress.begin(f"repeat {number + 1}, device time", len(cases))
    for case in cases:
        run.progress.step(case.title)
        worker, result = run.running(case), run.record.result(case)
        if not result.measured:
            continue
        reply = Reply("failed", "its worker has ended")
        if worker is not None and case in worker.prepared:
            reply = run.ask("device_work", case, expected=_DEVICE_SECONDS + 5 * result.time.value)
        if problem := reply.reason or reply.details.get("problem"):
            run.record.note(f"no device time: {case.title} in repeat {number + 1}: {problem}")
            continue
        result.on_device += [Block.of(number, at, [seconds]) for at, seconds in enumerate(reply.details["seconds"])]
        result.kernels = reply.details["kernels"]
    run.keep()


def _time_rounds(run: Run, plans: dict[Case, BlockPlan], number: int, end: float) -> None:
    """Time rounds of blocks until `end`; while budget is left, at least the minimum of each plan."""
    groups = order(list(plans), run.settings, number, 0)
    costs = [sum(plans[case].seconds for case in group) for group in groups]
    least = [max(plans[case].rounds for case in group) for group in groups]
    last = max(end, time.monotonic() + run.seconds_left)
    rounds = rounds_that_fit(costs, least, run.settings.rounds, end - time.monotonic())
    allowed = {group[0].group: count for group, count in zip(groups, rounds, strict=True)}
    run.progress.begin(f"repeat {number + 1}, timing", max(rounds, default=0))
    for round_number in range(max(rounds, default=0)):
        # a round takes more than its calls
        if round_number and time.monotonic() > (end if round_number >= max(least) else last):
            break
        run.progress.step(f"round {round_number + 1}")
        calibration = run.ask("calibration", next(iter(plans)), expected=0.0)
        if calibration.status == "ok":
            run.record.calibration_seconds.append(calibration.details["seconds"])
        for group in order(list(plans), run.settings, number, round_number):
            for case in group if round_number < allowed[group[0].group] else ():
                _sample(run, case, number, round_number, plans[case])
        run.keep()


def _prepare(run: Run, case: Case) -> float | None:
    """The case's first call in a fresh worker. Returns the seconds of a call after it; None if the case failed."""
    reply = run.ask_for_result("prepare", case)
    if reply.status != "ok":
        return None
    result, measured = run.record.result(case), reply.details
    if case in run.cached:  # in a resumed run the caches on disk are empty at first
        result.warm.append(measured["warm"])
    run.cached.add(case)
    result.settled.append(measured["settled"])
    return measured["call_seconds"]


def _sample(run: Run, case: Case, number: int, round_number: int, plan: BlockPlan) -> None:
    """One block of a case. If another case has ended the worker meanwhile, a new one prepares this case again."""
    if run.record.result(case).status == "ok":
        worker = run.running(case)
        if (worker and case in worker.prepared) or _prepare(run, case) is not None:
            run.time_block(case, number, round_number, plan)
