"""The first phase: each case with empty caches, its gate, its memory, and calls on new shapes. Later processes repeat
what is cheap of it."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from shared.bench.cases import Case
from shared.bench.estimates import Block
from shared.bench.record import NO_ROOM, Record, Result
from shared.bench.run.context import Run
from shared.bench.run.schedule import CHEAP_FIRST_CALL, VERY_SLOW_SECONDS, block_of
from shared.bench.units import bytes_text
from shared.problems import problem_of

# parts of the budget: when only essential first calls begin (if rounds follow), and when long ones get no new shapes
_SHARE, _NEW_SHAPES_SHARE = 0.6, 0.4
_NEW_SHAPES_SECONDS = 1.0  # for the new shapes of each case; a first call that takes longer is long
_SAMPLES = 3  # processes that sample a cheap first call, even beyond their share of the time
_INTERRUPTED = "interrupted"  # why a new shape is missing that a resumed run may still measure
_WITH_LESS_WORK = " with less work"
# how the reason begins if a smaller input's memory, scaled up, is too much; peaks below so many bytes are not scaled
_NEEDS, _SCALABLE_BYTES = "needs about", 2**25


def measure_first_calls(run: Run, cases: list[Case]) -> None:
    """The cold call of each case that has none yet, its gate, its memory, and its new shapes.

    Where an earlier run left new shapes out, the cold call is repeated: they need a function that has seen one shape.
    """
    # the last variants of the ladder first: they are fast, and an interrupted run has what matters most; but what takes
    # long to compile goes last
    variants = problem_of(run.settings.problem).variant_names
    ordered = sorted(cases, key=lambda case: (run.is_slow(case), -variants.index(case.variant)))
    pending = [result for result in map(run.record.result, ordered) if _is_pending(run, result)]
    run.progress.begin("first calls", len(pending))
    for result in pending:
        run.progress.step(result.case.title)
        is_first = result.case.group == ordered[0].group and run.is_slow(result.case) <= run.is_slow(ordered[0])
        _first_call(run, result, is_essential=is_first)
        run.keep()
    if run.plan.times_rounds:
        run.progress.first_answer(run.record)


def repeat_first_calls(run: Run, cases: Sequence[Case], process: int, seconds: float, most: float) -> None:
    """First calls with empty caches in these workers too, as far as the time goes.

    If new shapes are asked for, cheap ones with few samples come first, up to `most` seconds; then those of the last
    pass, which the table of costs is about; then the cheapest.
    """
    start = time.monotonic()
    costs = {case: sum(_seconds(run.record.result(case))) for case in cases if run.record.result(case).status == "ok"}
    run.progress.begin(f"repeat {process}, first calls", len(costs))
    last = run.settings.passes[-1]
    results = {case: run.record.result(case) for case in costs if run.plan.tries_new_shape}
    few = {case for case, result in results.items()
           if len(result.cold) < _SAMPLES and max(_seconds(result), default=0.0) < CHEAP_FIRST_CALL}  # fmt: skip
    for case in sorted(costs, key=lambda case: (case not in few, case.pass_name != last, costs[case])):
        if time.monotonic() + costs[case] > start + (max(seconds, most) if case in few else seconds):
            continue
        run.progress.step(case.title)
        result = run.record.result(case)
        reply = run.ask("cold", case, process=process, rounds_follow=True)
        if reply.status == "ok":
            result.cold.append(reply.details["cold"])
            if run.plan.tries_new_shape:
                _new_shapes(run, result, min(start + seconds - time.monotonic(), _NEW_SHAPES_SECONDS))
        elif reply.status == "wrong":
            result.status, result.reason, result.gate = reply.status, reply.reason, reply.details["gate"]


def _seconds(result: Result) -> list[float]:
    """Seconds of a first call and of one on a new shape."""
    return [estimate.value for estimate in (result.first_call, result.new_shape(1)) if estimate]


def _is_pending(run: Run, result: Result) -> bool:
    if not result.cold or not (run.plan.times_rounds or result.blocks):
        return result.status in ("ok", "failed") or (result.reason or "").endswith(NO_ROOM)
    may_retry = result.status == "ok" and result.new_shapes_note in (NO_ROOM, _INTERRUPTED)
    return may_retry and _spent(run) + 2 * result.cold[0].seconds < _NEW_SHAPES_SHARE * run.settings.budget


def _spent(run: Run) -> float:
    """Seconds of the budget that are spent."""
    return run.settings.budget - run.seconds_left


def _first_call(run: Run, result: Result, is_essential: bool) -> None:
    """Make a first call. is_essential: whatever the budget, so that even a short run has an answer."""
    case, plan = result.case, run.plan
    reason = limit_exceeded_with_less_work(run.record, case) or memory_exceeded(run.record, case, run.memory)
    is_late = _spent(run) > (_SHARE if plan.times_rounds else 1.0) * run.settings.budget
    if reason or (is_late and not is_essential):  # waiting for the limit again would show nothing new
        result.status, result.reason = "limit", reason or NO_ROOM
        return
    limit = run.settings.compile_limit if is_essential else min(run.settings.compile_limit, run.seconds_left)
    reply = run.ask_for_result("cold", case, limit=limit, process=0, rounds_follow=plan.times_rounds)
    if reply.reason == f"> {limit:.4g} s" and limit < run.settings.compile_limit:
        result.reason = f"{reply.reason}: {NO_ROOM}"
    if reply.status != "ok":
        return
    run.cached.add(case)
    measured = dict(reply.details)
    run.start += measured["build_seconds"]  # native kernels, built once per machine: no part of the budget
    result.cold, result.new_shapes = [measured.pop("cold")], []
    for name, value in measured.items():  # the rest are fields of the result
        setattr(result, name, value)
    if not plan.times_rounds:  # the calls right after it are all there is
        _time_blocks(run, result)
    if plan.tries_new_shape and not run.settings.quick:
        seconds = result.cold[0].seconds
        if seconds > _NEW_SHAPES_SECONDS and _spent(run) + seconds > _NEW_SHAPES_SHARE * run.settings.budget:
            result.new_shapes_note = NO_ROOM
        else:
            _new_shapes(run, result, _NEW_SHAPES_SECONDS)


def _time_blocks(run: Run, result: Result) -> None:
    """Time the fewest rounds of a case right after its first call; one that takes seconds has been timed by then."""
    block = block_of(seconds := result.early_seconds or 0.0, run.settings.quick)
    if seconds >= VERY_SLOW_SECONDS:
        result.blocks = [Block.of(0, 0, [seconds])]
        return
    for number in range(block.rounds):
        if result.status == "ok" and (not number or run.seconds_left > 0):
            run.time_block(result.case, 0, number, block)


def _new_shapes(run: Run, result: Result, seconds: float) -> None:
    """Call the function that has just had its first call on other shapes; an error here costs only these numbers."""
    result.new_shapes_note = result.new_shapes_note or _INTERRUPTED
    reply = run.ask("new_shapes", result.case, seconds=seconds)
    if reply.status == "ok":
        result.new_shapes.append(reply.details["new_shapes"])
    result.new_shapes_note = None if result.new_shapes else reply.reason


def memory_exceeded(record: Record, case: Case, memory: Mapping[str, int | None]) -> str | None:
    """Return why a case has too little memory, by what its variant took on a smaller input, in proportion; or None.

    memory: bytes of accelerator memory per worker, by framework.
    """
    most = memory.get(case.framework)
    if most is None:
        return None
    tried = [(math.prod(record.inputs[r.case.input].shape), r) for r in record.results
             if replace(r.case, input=case.input) == case and (r.peak_bytes or 0) >= _SCALABLE_BYTES]  # fmt: skip
    more = math.prod(record.inputs[case.input].shape)
    less, nearest = max((entry for entry in tried if entry[0] < more), key=lambda entry: entry[0], default=(0, None))
    if nearest is None:
        return None
    needed = ((nearest.peak_bytes or 0) + (nearest.input_bytes or 0)) * more // less
    return f"{_NEEDS} {bytes_text(needed)}, limit {bytes_text(most)}" if needed > most else None


def limit_exceeded_with_less_work(record: Record, case: Case) -> str | None:
    """The reason, and "with less work", if this variant exceeded a limit on a smaller input or an earlier pass."""
    problem = problem_of(case.problem)

    def amounts(of: Case) -> tuple[int, int]:
        facts = record.inputs[of.input]
        return problem.extent(facts.shape, facts.work), list(problem.passes).index(of.pass_name)

    for result in record.results:
        other = result.case
        if result.status != "limit" or replace(other, input=case.input, pass_name=case.pass_name) != case:
            continue
        reason = (result.reason or "").removesuffix(_WITH_LESS_WORK)
        if other == case or reason.endswith(NO_ROOM) or reason.startswith(_NEEDS):
            continue
        if all(less <= more for less, more in zip(amounts(other), amounts(case), strict=True)):
            return reason + _WITH_LESS_WORK
    return None
