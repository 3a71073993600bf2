"""The second phase: fresh workers, several times over; in each, cases are timed in turn, in rounds of short blocks.

The first workers time all cases, later ones only those that the question still needs. A worker's first call of a case
is the first call of a new process that finds the caches on disk.
"""

import itertools
import time
from dataclasses import replace

from shared.bench.analysis.estimates import Block
from shared.bench.cases import Case
from shared.bench.measure.machine import busy_seconds, usable_cores
from shared.bench.record import Compilation, Generation, Record, WarmUp
from shared.bench.run.context import PATIENCE_SECONDS, Run
from shared.bench.run.first_calls import measure_device_time
from shared.bench.run.schedule import (
    ALL_CASES_WORKERS,
    DOMINATED_FACTOR,
    LEAST_WORKERS,
    MOST_WORKERS,
    SLOW_SECONDS,
    block_seconds,
    calls_in_block,
    is_precise,
    is_rehearsed,
    lead_calls,
    order,
    rounds_that_fit,
)

# times of a case on an accelerator: three from each of two processes
_ENOUGH_ON_DEVICE = 6


def measure_timed_calls(run: Run, cases: list[Case]) -> None:
    """Until the question is answered precisely or the budget is spent; or by the number of workers asked for."""
    record = run.record
    number = 1 + max((block.worker for result in record.results for block in result.blocks), default=-1)
    longest, before = 0.0, cases
    while timed := _next_cases(run, cases, number):
        if timed != before:  # fewer cases take less time; the next worker shows how much
            longest, before = 0.0, timed
        # cases that an interrupted run left without times are always timed
        if all(record.result(case).blocks for case in timed) and _is_enough(run, longest):
            _note_imprecision(run)
            break
        began = time.monotonic()
        _one_generation(run, timed, number)
        run.stop()
        run.progress.results(record)
        longest = max(longest, time.monotonic() - began)
        number += 1


def _next_cases(run: Run, cases: list[Case], number: int) -> list[Case]:
    """The cases that worker `number` times: at first all that did not fail, then those that the question needs.

    A dominated case is left out from the second worker on.
    """
    well = [case for case in cases if run.record.result(case).status == "ok"]
    if run.settings.workers is not None:
        return well
    if number < ALL_CASES_WORKERS:
        return [case for case in well if not _is_dominated(run.record, case)]
    needed = run.question.contenders(run.record)
    return [case for case in well if case in needed or not run.record.result(case).blocks]


def _is_dominated(record: Record, case: Case) -> bool:
    """Whether a call takes seconds and its framework has a far faster variant: timing it further decides nothing."""
    own = record.result(case)
    if not own.measured or own.time.value < SLOW_SECONDS:
        return False
    return any(
        other.measured and DOMINATED_FACTOR * other.time.value < own.time.value
        for other in record.results
        if replace(other.case, variant=case.variant, compiled=case.compiled) == case
    )


def _is_enough(run: Run, longest: float) -> bool:
    """Whether there were enough fresh workers; an interrupted one does not count. longest: seconds of one."""
    number = len(run.record.generations)
    if run.settings.workers is not None:
        return number >= run.settings.workers
    if number >= LEAST_WORKERS and is_precise(run.question.deciding(run.record), run.settings):
        return True
    return number >= MOST_WORKERS or longest > run.seconds_left


def _note_imprecision(run: Run) -> None:
    """Note how wide the intervals are after fewer workers than are usual, or where they are wider than asked for."""
    settings, record = run.settings, run.record
    number, estimates = len(record.generations), run.question.deciding(record)
    if settings.workers is None:
        if number >= LEAST_WORKERS and is_precise(estimates, settings):
            return
        why = f"more did not fit into the budget of {settings.budget:g} s" if number < MOST_WORKERS else "the maximum"
    elif number == 1:
        why = "as asked for"
    else:
        return
    if number == 1:
        what = "the intervals do not cover the variation between processes"
    else:
        widest = max((estimate.relative_half_width for estimate in estimates), default=0.0)
        what = f"the widest interval of a verdict is ±{widest:.1%}, ±{settings.precision:.1%} was asked for"
    record.notes.append(f"fresh processes of each framework: {number} ({why}); {what}")


def _one_generation(run: Run, cases: list[Case], number: int) -> None:
    """Fresh workers: each case's first call in them, then rounds."""
    planned = max(run.settings.workers or LEAST_WORKERS, number + 1)
    end = time.monotonic() + run.seconds_left / (planned - number)
    run.progress.begin(f"worker {number + 1}, preparing", len(cases))
    expected: dict[Case, float] = {}  # seconds of a call
    for case in itertools.chain.from_iterable(order(cases, run.settings, number, 0)):
        run.progress.step(case.title)
        seconds = _prepare(run, case)
        if seconds is not None:
            expected[case] = seconds
    run.keep()
    began, busy = time.monotonic(), _busy_with_others(run)
    _time_rounds(run, expected, number, end)
    seconds, after = time.monotonic() - began, _busy_with_others(run)
    if run.settings.device != "cpu":
        _measure_device_times(run, list(expected))
    others = None if busy is None or after is None else max(0.0, after - busy)
    run.record.generations.append(Generation(number, seconds, others))
    run.keep()


def _time_rounds(run: Run, expected: dict[Case, float], number: int, end: float) -> None:
    """As many rounds of blocks as fit until `end`."""
    settings = run.settings
    least = min(1 if number else 2, settings.rounds)  # one round alone has no interval
    groups = order(list(expected), settings, number, 0)
    costs = [sum(block_seconds(expected[case]) for case in group) for group in groups]
    rounds = rounds_that_fit(costs, settings.rounds, end - time.monotonic(), least)
    allowed = {group[0].group: count for group, count in zip(groups, rounds, strict=True)}
    run.progress.begin(f"worker {number + 1}, timing", max(rounds, default=0))
    for round_number in range(max(rounds, default=0)):
        if round_number >= least and time.monotonic() > end:  # a round takes more than its calls
            break
        run.progress.step(f"round {round_number + 1}")
        _calibrate(run, next(iter(expected)), number, round_number)
        for group in order(list(expected), settings, number, round_number):
            for case in group if round_number < allowed[group[0].group] else ():
                _sample(run, case, number, round_number, expected[case])
        run.keep()


def _busy_with_others(run: Run) -> float | None:
    """CPU seconds of the run's cores that this process and its workers did not use."""
    busy = busy_seconds(usable_cores()[: run.settings.threads])
    return None if busy is None else busy - run.cpu_seconds


def _calibrate(run: Run, case: Case, number: int, round_number: int) -> None:
    """Time the calibration loop, in the worker of any case."""
    reply = run.ask("calibration", case, PATIENCE_SECONDS)
    if reply.status == "ok":
        run.record.speed.append(Block(number, round_number, (reply.details["seconds"],)))


def _prepare(run: Run, case: Case) -> float | None:
    """The case's first call in a fresh worker. Returns the seconds of a call after it; None if the case failed."""
    reply = run.ask_for_result("prepare", case, PATIENCE_SECONDS, run.settings.compile_limit)
    if reply.status != "ok":
        return None
    result, found = run.record.result(case), reply.details
    if case in run.cached:  # in a resumed run the caches on disk are empty at first
        result.warm.append(Compilation(**found["warm"]))
    run.cached.add(case)
    result.warm_up.append(WarmUp(**found["warm_up"]))
    return found["call_seconds"]


def _measure_device_times(run: Run, cases: list[Case]) -> None:
    """The cases' times on the accelerator, in another process than the first. After the rounds: profiling may slow
    what follows."""
    for case in cases:
        result = run.record.result(case)
        if result.status == "ok" and len(result.on_device) < _ENOUGH_ON_DEVICE and run.is_prepared(case):
            measure_device_time(run, case)


def _sample(run: Run, case: Case, number: int, round_number: int, expected: float) -> None:
    """One block of a case. If another case has ended the worker meanwhile, a new one prepares this case again."""
    result = run.record.result(case)
    if result.status != "ok":
        return
    if not run.is_prepared(case) and _prepare(run, case) is None:
        return
    calls = calls_in_block(expected)
    limit = PATIENCE_SECONDS + 10 * calls * expected
    untimed = {"lead": lead_calls(expected), "rehearse": is_rehearsed(expected)}
    reply = run.ask_for_result("sample", case, limit, calls=calls, **untimed)
    if reply.status == "ok":
        result.blocks.append(Block(number, round_number, tuple(reply.details["seconds"])))
