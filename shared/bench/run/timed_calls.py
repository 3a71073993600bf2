"""The second phase: fresh workers, several times over; in each, cases are timed in turn, in rounds of short blocks.

The first workers time all cases, later ones only those that the question still needs. A worker's first call of a case
is the first call of a new process that finds the caches on disk.
"""

import time

from shared.bench.analysis.estimates import Block
from shared.bench.cases import Case
from shared.bench.measure.machine import busy_seconds, usable_cores
from shared.bench.record import Compilation, Generation, Record, WarmUp
from shared.bench.run.context import PATIENCE_SECONDS, Run
from shared.bench.run.schedule import (
    ALL_CASES_WORKERS,
    DEAR_SECONDS,
    HOPELESS,
    LEAST_WORKERS,
    MOST_WORKERS,
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
            break
        began = time.monotonic()
        _show_time_left(run, number, longest)
        _one_generation(run, timed, number)
        run.stop()
        run.progress.results(record)
        longest = max(longest, time.monotonic() - began)
        number += 1


def _next_cases(run: Run, cases: list[Case], number: int) -> list[Case]:
    """The cases that worker `number` times: at first all that did not fail, then those that the question needs.

    A case that takes seconds is left out from the second worker on if its framework has a far faster variant.
    """
    well = [case for case in cases if run.record.result(case).status == "ok"]
    if run.settings.workers is not None:
        return well
    if number < ALL_CASES_WORKERS:
        return [case for case in well if not _is_hopeless(run.record, case)]
    needed = run.question.contenders(run.record)
    return [case for case in well if case in needed or not run.record.result(case).blocks]


def _is_hopeless(record: Record, case: Case) -> bool:
    """Whether timing it further takes minutes and decides nothing: its framework has a far faster variant."""
    own = record.result(case)
    if not own.measured or own.time.value < DEAR_SECONDS:
        return False
    rivals = [
        other
        for other in record.results
        if other.measured
        and other.case.worker_key == case.worker_key
        and (other.case.input, other.case.pass_name) == (case.input, case.pass_name)
    ]
    return any(HOPELESS * rival.time.value < own.time.value for rival in rivals)


def _is_enough(run: Run, longest: float) -> bool:
    """Whether there were enough fresh workers; an interrupted one does not count. longest: seconds of one."""
    settings, record = run.settings, run.record
    number = len(record.generations)
    if settings.workers is not None:
        if number >= settings.workers == 1:
            record.notes.append(
                "1 fresh process of each framework: the intervals do not cover the variation between processes"
            )
        return number >= settings.workers
    estimates = run.question.deciding(record)
    precise = is_precise(estimates, settings)
    if number >= LEAST_WORKERS and precise:
        return True
    if number < MOST_WORKERS and longest <= run.seconds_left:
        return False
    count = f"{number} fresh process{'es' if number > 1 else ''} of each framework"
    why = (
        f"one more did not fit into the budget of {settings.budget:g} s"
        if number < MOST_WORKERS
        else "that is the maximum"
    )
    if number == 1:
        record.notes.append(f"{count}: {why}; the intervals do not cover the variation between processes")
    elif not precise:
        reached = max(estimate.relative_half_width for estimate in estimates)
        asked = f"±{settings.precision:.1%} was asked for"
        record.notes.append(f"{count}: {why}; the widest interval of a verdict is ±{reached:.1%}, {asked}")
    else:
        record.notes.append(f"{count} instead of {LEAST_WORKERS}: {why}")
    return True


def _show_time_left(run: Run, number: int, longest: float) -> None:
    """By the budget, or with a fixed number of workers by how long they took so far."""
    settings = run.settings
    if settings.workers is None:
        run.progress.left(max(0.0, run.seconds_left), "at most")
    elif longest:
        run.progress.left((settings.workers - number) * longest, "about")


def _one_generation(run: Run, cases: list[Case], number: int) -> None:
    """Fresh workers: each case's first call in them, then rounds."""
    settings, progress = run.settings, run.progress
    planned = max(settings.workers or LEAST_WORKERS, number + 1)
    end = time.monotonic() + run.seconds_left / (planned - number)
    progress.begin(f"worker {number + 1}, preparing", len(cases))
    run.start_compilers(cases)
    expected: dict[Case, float] = {}
    for case in (case for group in order(cases, settings, number, 0) for case in group):
        progress.step(case.title)
        seconds = _prepare(run, case)
        if seconds is not None:
            expected[case] = seconds
    run.keep()
    groups = order(list(expected), settings, number, 0)
    costs = [sum(block_seconds(expected[case]) for case in group) for group in groups]
    least = 1 if number else 2  # one round alone has no interval
    rounds = rounds_that_fit(costs, settings.rounds, end - time.monotonic(), min(least, settings.rounds))
    allowed = {group[0].group: count for group, count in zip(groups, rounds, strict=True)}
    progress.begin(f"worker {number + 1}, timing", max(rounds, default=0))
    began, busy = time.monotonic(), _busy_with_others(run)
    for round_number in range(max(rounds, default=0)):
        if round_number >= least and time.monotonic() > end:  # a round takes more than its calls
            break
        progress.step(f"round {round_number + 1}")
        _calibrate(run, number, round_number)
        for group in order(list(expected), settings, number, round_number):
            for case in group if round_number < allowed[group[0].group] else ():
                _sample(run, case, number, round_number, expected[case])
        run.keep()
    after = _busy_with_others(run)
    for case in expected if run.settings.device != "cpu" else ():
        _measure_device_time(run, case)
    others = None if busy is None or after is None else max(0.0, after - busy)
    run.record.generations.append(Generation(number, time.monotonic() - began, others))
    run.keep()


def _busy_with_others(run: Run) -> float | None:
    """CPU seconds of the run's cores that this process and its workers did not use."""
    busy = busy_seconds(usable_cores()[: run.settings.threads])
    return None if busy is None else busy - run.cpu_seconds


def _calibrate(run: Run, number: int, round_number: int) -> None:
    """Time the calibration loop."""
    worker = run.any_worker()
    reply = worker.ask("calibration", PATIENCE_SECONDS) if worker else None
    if reply is not None and reply.status == "ok":
        run.record.speed.append(Block(number, round_number, (reply.details["seconds"],)))


def _prepare(run: Run, case: Case) -> float | None:
    """The case's first call in a fresh worker. Returns the seconds of a call after it; None if the case failed."""
    reply = run.ask(case, "prepare", PATIENCE_SECONDS, run.settings.compile_limit)
    if reply.status != "ok":
        return None
    result, found = run.record.result(case), reply.details
    if case in run.cached:  # in a resumed run the caches on disk are empty at first
        result.warm.append(Compilation(**found["warm"]))
    run.cached.add(case)
    result.warm_up.append(WarmUp(**found["warm_up"]))
    running = run.running(case)
    if running is not None:
        running.prepared.add(case)
    return found["call_seconds"]


def _measure_device_time(run: Run, case: Case) -> None:
    """The case's time on the accelerator, in another process than the first. After the rounds: profiling may slow
    what follows."""
    result, running = run.record.result(case), run.running(case)
    if len(result.on_device) >= _ENOUGH_ON_DEVICE or result.status != "ok":
        return
    if running is not None and case in running.prepared:
        run.measure_device_time(case)


def _sample(run: Run, case: Case, number: int, round_number: int, expected: float) -> None:
    """One block of a case. If another case has ended the worker meanwhile, a new one prepares this case again."""
    result = run.record.result(case)
    if result.status != "ok":
        return
    running = run.running(case)
    if (running is None or case not in running.prepared) and _prepare(run, case) is None:
        return
    calls = calls_in_block(expected)
    limit = PATIENCE_SECONDS + 10 * calls * expected
    untimed = {"lead": lead_calls(expected), "rehearse": is_rehearsed(expected)}
    reply = run.ask(case, "sample", limit, calls=calls, **untimed)
    if reply.status == "ok":
        result.blocks.append(Block(number, round_number, tuple(reply.details["seconds"])))
