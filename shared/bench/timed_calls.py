"""The second phase: fresh workers, several times over; in each, cases are timed in turn, in rounds of short blocks.

The first workers time all cases, those that come after them the cases that can still win: they are for the verdicts.

A worker's first call of a case is the first call of a new process that finds the caches on disk.
"""

import time

from shared.bench.going import PATIENCE_SECONDS, Going
from shared.bench.machine import busy_seconds, usable_cores
from shared.bench.plan import Case
from shared.bench.record import Compilation, Generation, Record, WarmUp
from shared.bench.schedule import (
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
from shared.bench.statistics import Block
from shared.bench.verdict import contenders, deciding

# times of a case on an accelerator, three from each of two processes: it differs little between them
_ENOUGH_ON_DEVICE = 6


def measure_timed_calls(going: Going, cases: list[Case]) -> None:
    """Until the verdicts are precise or the budget is spent; with a number of workers from the user, so many."""
    record = going.record
    number = 1 + max((block.worker for result in record.results for block in result.blocks), default=-1)
    longest, before = 0.0, cases
    while timed := _next_cases(going, cases, number):
        if timed != before:  # fewer take less time; how much, the next worker shows
            longest, before = 0.0, timed
        # what a run before this one left without times gets some, whatever else there is
        if all(record.result(case).blocks for case in timed) and _is_enough(going, longest):
            break
        began = time.monotonic()
        _tell_time_left(going, number, longest)
        _one_generation(going, timed, number)
        going.team.stop()
        longest = max(longest, time.monotonic() - began)
        number += 1


def _next_cases(going: Going, cases: list[Case], number: int) -> list[Case]:
    """What worker `number` times: of the cases that go well, at first all, then those that can still win.

    A case that takes seconds is left out from the second on where its framework is many times as fast with another.
    """
    well = [case for case in cases if going.record.result(case).status == "ok"]
    if going.settings.workers is not None:
        return well
    if number < ALL_CASES_WORKERS:
        return [case for case in well if not _is_hopeless(going.record, case)]
    can_win = contenders(going.record)
    return [case for case in well if case in can_win or not going.record.result(case).blocks]


def _is_hopeless(record: Record, case: Case) -> bool:
    """Whether more of its times cost minutes and decide nothing: another variant of its framework is far faster."""
    own = record.result(case)
    if not own.measured or own.time.value < DEAR_SECONDS:
        return False
    rivals = [
        other
        for other in record.results
        if other.measured
        and (other.case.framework, other.case.side) == (case.framework, case.side)
        and (other.case.input, other.case.pass_name) == (case.input, case.pass_name)
    ]
    return any(HOPELESS * rival.time.value < own.time.value for rival in rivals)


def _is_enough(going: Going, longest: float) -> bool:
    """Whether the fresh workers so far will do; one that was interrupted does not count. longest: seconds of one."""
    settings, record = going.settings, going.record
    number = len(record.generations)
    if settings.workers is not None:
        if number >= settings.workers == 1:
            record.notes.append("1 fresh process of each framework: the intervals know nothing of that one's luck")
        return number >= settings.workers
    estimates = deciding(record)
    precise = is_precise(estimates, settings)
    if number >= LEAST_WORKERS and precise:
        return True
    if number < MOST_WORKERS and longest <= going.seconds_left:
        return False
    count = f"{number} fresh process{'es' if number > 1 else ''} of each framework"
    why = (
        f"one more did not fit into the budget of {settings.budget:g} s"
        if number < MOST_WORKERS
        else "no more are tried"
    )
    if number == 1:
        record.notes.append(f"{count}: {why}; the intervals know nothing of that one's luck")
    elif not precise:
        reached = max(estimate.relative_half_width for estimate in estimates)
        asked = f"±{settings.precision:.1%} was asked for"
        record.notes.append(f"{count}: {why}; the widest interval of a verdict is ±{reached:.1%}, {asked}")
    else:
        record.notes.append(f"{count} instead of {LEAST_WORKERS}: {why}")
    return True


def _tell_time_left(going: Going, number: int, longest: float) -> None:
    """Without a number of workers the budget is the end of it; with one, the workers so far tell."""
    settings = going.settings
    if settings.workers is None:
        going.progress.left(max(0.0, going.seconds_left), "at most")
    elif longest:
        going.progress.left((settings.workers - number) * longest, "about")


def _one_generation(going: Going, cases: list[Case], number: int) -> None:
    """Fresh workers: each case's first call in them, then rounds."""
    settings, progress = going.settings, going.progress
    planned = max(settings.workers or LEAST_WORKERS, number + 1)
    end = time.monotonic() + going.seconds_left / (planned - number)
    progress.begin(f"worker {number + 1}, preparing", len(cases))
    going.start_compilers(cases)
    expected: dict[Case, float] = {}
    for case in (case for group in order(cases, settings, number, 0) for case in group):
        progress.step(case.title)
        seconds = _prepare(going, case)
        if seconds is not None:
            expected[case] = seconds
    going.keep()
    groups = order(list(expected), settings, number, 0)
    costs = [sum(block_seconds(expected[case]) for case in group) for group in groups]
    least = 1 if number else 2  # one round alone has no interval
    rounds = rounds_that_fit(costs, settings.rounds, end - time.monotonic(), min(least, settings.rounds))
    allowed = {group[0].match: count for group, count in zip(groups, rounds, strict=True)}
    progress.begin(f"worker {number + 1}, timing", max(rounds, default=0))
    began, busy = time.monotonic(), _busy_with_others(going)
    for round_number in range(max(rounds, default=0)):
        if round_number >= least and time.monotonic() > end:  # a round takes more than its calls
            break
        progress.step(f"round {round_number + 1}")
        _check_speed(going, number, round_number)
        for group in order(list(expected), settings, number, round_number):
            for case in group if round_number < allowed[group[0].match] else ():
                _sample(going, case, number, round_number, expected[case])
        going.keep()
    after = _busy_with_others(going)
    for case in expected if going.settings.device != "cpu" else ():
        _clock(going, case)
    others = None if busy is None or after is None else max(0.0, after - busy)
    going.record.generations.append(Generation(number, time.monotonic() - began, others))
    going.keep()


def _busy_with_others(going: Going) -> float | None:
    """Seconds that the cores of the run have worked for anything but this process and its workers."""
    busy = busy_seconds(usable_cores()[: going.settings.threads])
    return None if busy is None else busy - going.team.seconds_used


def _check_speed(going: Going, number: int, round_number: int) -> None:
    """How fast the machine is now."""
    worker = going.team.any()
    reply = worker.ask("speed", PATIENCE_SECONDS) if worker else None
    if reply is not None and reply.status == "ok":
        going.record.speed.append(Block(number, round_number, (reply.details["seconds"],)))


def _prepare(going: Going, case: Case) -> float | None:
    """The case's first call in a fresh worker. Seconds of a call after it; None if the case is over."""
    reply = going.ask(case, "prepare", PATIENCE_SECONDS, going.settings.compile_limit)
    if reply.status != "ok":
        return None
    result, found = going.record.result(case), reply.details
    if (
        case in going.cached
    ):  # otherwise it was compiled just now, after a run before this one had taken its caches away
        result.warm.append(Compilation(**found["warm"]))
    going.cached.add(case)
    result.warm_up.append(WarmUp(**found["warm_up"]))
    running = going.team.running(case)
    if running is not None:
        running.holds.add(case)
    return found["call_seconds"]


def _clock(going: Going, case: Case) -> None:
    """How long a case keeps the accelerator busy, in another process than the first. After the rounds: to look at it
    may slow what comes then."""
    result, running = going.record.result(case), going.team.running(case)
    if len(result.on_device) >= _ENOUGH_ON_DEVICE or result.status != "ok":
        return
    if running is not None and case in running.holds:
        going.clock(case)


def _sample(going: Going, case: Case, number: int, round_number: int, expected: float) -> None:
    """One block of a case. If its worker has ended meanwhile, by another case's fault, a new one prepares it again."""
    result = going.record.result(case)
    if result.status != "ok":
        return
    running = going.team.running(case)
    if (running is None or case not in running.holds) and _prepare(going, case) is None:
        return
    calls = calls_in_block(expected)
    limit = PATIENCE_SECONDS + 10 * calls * expected
    untimed = {"lead": lead_calls(expected), "rehearse": is_rehearsed(expected)}
    reply = going.ask(case, "sample", limit, calls=calls, **untimed)
    if reply.status == "ok":
        result.blocks.append(Block(number, round_number, tuple(reply.details["seconds"])))
