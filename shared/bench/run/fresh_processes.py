"""Fresh processes for questions that measure in their own way: shares of the budget, resuming, and what has no room."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shared.bench.cases import Case
from shared.bench.estimates import LEAST_PROCESSES
from shared.bench.record import NO_ROOM
from shared.bench.run.context import BUDGET_SPENT, Run
from shared.bench.run.schedule import is_precise
from shared.bench.run.timed_calls import note_precision, one_repeat
from shared.problems import problem_of


class Group(NamedTuple):
    """Cases that are compared, so that their processes take turns."""

    parts: Sequence[Sequence[Case]]  # a process measures the cases of a part
    weight: float = 1.0  # of its share of the budget


def groups_of(cases: Sequence[Case], alike: str, parts: str = "", weight_ratio: float = 1.0) -> list[Group]:
    """Group the cases that agree in the fields `alike`, fast variants first, so that a short run has their answer.

    The cases of a part agree in the fields `parts` too. weight_ratio: of a group's weight to that of the one before.
    """
    variants = problem_of(cases[0].problem).variant_names
    groups: dict[Any, dict[Any, list[Case]]] = {}
    for case in sorted(cases, key=lambda case: -variants.index(case.variant)):
        group, part = (tuple(getattr(case, name) for name in names.split()) for names in (alike, parts))
        groups.setdefault(group, {}).setdefault(part, []).append(case)
    return [Group([*group.values()], weight_ratio**place) for place, group in enumerate(groups.values())]


def measure_in_processes(
    run: Run,
    groups: Sequence[Group],
    measure: Callable[[Sequence[Case], int, float], None],
    entries: str | None,
    processes: int = LEAST_PROCESSES,
) -> None:
    """Measure groups one after the other, each part in up to so many fresh processes, or `--workers` of them.

    A group has its share of the time that is left. A part's first process begins while budget is left (in the first
    group always), a later one if another as long fits into the group's share (where rounds are timed: the budget).
    Where rounds are timed, what remains goes to parts that are not precise. A process that fails does not cost what
    earlier ones measured.

    measure: measures a part in the process of this number, from 0 on, within seconds. entries: names the list in a
    result's details that has an entry for each process; None where rounds are timed.
    """
    count, times_rounds = run.settings.workers or processes, run.plan.times_rounds
    took: dict[Case, float] = {}  # seconds of a part's last process; 0 if it compiled and then timed rounds
    for result in [run.record.result(case) for group in groups for part in group.parts for case in part]:
        if result.reason == NO_ROOM:
            result.status, result.reason = "ok", None

    def finished(case: Case) -> int:
        """The processes that have measured a case, or timed all their rounds of it."""
        if entries:
            return len(run.record.result(case).details.get(entries, ()))
        complete = {repeat.number for repeat in run.record.repeats}
        return len({block.repeat for block in run.record.result(case).blocks} & complete)

    def processes_of(part: Sequence[Case]) -> dict[Case, int]:
        """The processes that have measured each case of a part that is right."""
        return {case: finished(case) for case in part if run.record.result(case).status == "ok"}

    def is_precise_enough(part: Sequence[Case]) -> bool:
        """Whether what this part decides is precise, or cannot be."""
        results = [run.record.result(case) for case in part]
        return is_precise(run.plan.deciding(replace(run.record, results=results)), run.settings)

    def one_process(part: Sequence[Case], seconds: float) -> None:
        before = processes_of(part)
        began, compiles = time.monotonic(), not run.cached.issuperset(before)
        measure([*before], max(before.values()), seconds)
        for result in map(run.record.result, before):
            if before[result.case] and result.status in ("failed", "limit"):
                run.record.note(f"{result.case.title}: process {before[result.case] + 1}: {result.reason}")
                result.status, result.reason = "ok", None  # earlier processes have measured it
        took[part[0]] = 0.0 if compiles and times_rounds else time.monotonic() - began
        run.keep()

    for place, group in enumerate(groups):
        end = time.monotonic() + run.seconds_left * group.weight / sum(later.weight for later in groups[place:])
        for number in range(count):
            for at, part in enumerate(group.parts[::-1] if number % 2 else group.parts):
                share = end - time.monotonic()
                room = (run.seconds_left if times_rounds else share) - took.get(part[0], 0.0)
                is_essential = run.settings.workers or not (place or number)
                if min(processes_of(part).values(), default=count) > number:
                    continue
                if run.settings.workers and not times_rounds:  # the same time for each, whatever earlier ones took
                    weights = sum(one.weight for one in groups) * len(group.parts) * count
                    one_process(part, run.settings.budget * group.weight / weights)
                elif is_essential or (room > 0 if number else run.seconds_left > 0):
                    divided = count - number if times_rounds else 1 if number else len(group.parts) - at
                    one_process(part, share / divided)
    while times_rounds and not run.settings.workers:
        vague = [part for group in groups for part in group.parts
                 if run.seconds_left > took.get(part[0], 0.0) and not is_precise_enough(part)]  # fmt: skip
        if not vague:
            break
        fewest = min(vague, key=lambda part: min(processes_of(part).values(), default=0))
        one_process(fewest, run.seconds_left / len(vague))
    if times_rounds:
        note_precision(run)
    for part in () if times_rounds else (part for group in groups for part in group.parts):
        if 0 < (done := min(processes_of(part).values(), default=0)) < count:
            budget = f"{BUDGET_SPENT} {run.settings.budget:g} s"
            run.record.note(f"{budget} had room for {done} of {count} processes of {part[0].name}")
    for result in run.record.results:
        if result.status == "ok" and not finished(result.case):
            result.status, result.reason = "limit", NO_ROOM


def time_in_processes(run: Run, groups: Sequence[Group]) -> None:
    """Time rounds of groups in fresh workers, without first calls with empty caches."""
    run.stop()
    run.environment = {}

    def timed(part: Sequence[Case], _: int, seconds: float) -> None:
        one_repeat(run, list(part), run.record.next_repeat, time.monotonic() + seconds)
        run.stop()

    measure_in_processes(run, groups, timed, None)
