"""How `threads` is measured: variant after variant, in fresh processes of every number of threads side by side."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.bench.analysis.estimates import LEAST_PROCESSES
from shared.bench.cases import Case
from shared.bench.record import Record
from shared.bench.run.schedule import is_precise
from shared.bench.run.timed_calls import note_precision, one_generation
from shared.problems import problem_of

if TYPE_CHECKING:
    from shared.bench.run.context import Run


def measure_processes(run: "Run", cases: Sequence[Case]) -> None:
    """Time the variants one after the other, the last rung first: it is fast, and a short run has its answer.

    Each has a share of the time that is left, for LEAST_PROCESSES processes: half of that of the variant after it,
    which is slower and takes longer to compile. What is left goes to further processes of those that are not precise
    yet. With a number of processes asked for, each variant has so many.
    """
    run.stop()
    run.environment = {}
    for case in cases:
        run.record.result(case)  # in the order of the tables
    if run.settings.workers is None:
        run.progress.ends_within(run.seconds_left)
    groups = _by_variant(cases)
    took = dict.fromkeys(groups, 0.0)  # seconds of the last process of a variant that had nothing to compile
    wanted = run.settings.workers or LEAST_PROCESSES
    for place, (variant, own) in enumerate(groups.items()):
        for missing in range(wanted - _finished(run.record, own), 0, -1):
            is_essential = not place and missing == wanted  # whatever the budget, so that there is an answer
            if is_essential or run.settings.workers or run.seconds_left > took[variant]:
                share = run.seconds_left / (2 ** (len(groups) - place) - 1)
                took[variant] = _one_process(run, own, share / missing)
    while further := _imprecise(run, groups, took):
        variant = min(further, key=lambda name: _finished(run.record, groups[name]))
        took[variant] = _one_process(run, groups[variant], run.seconds_left / len(further))
    note_precision(run)
    results = [run.record.result(case) for case in cases]
    unmeasured = [result for result in results if result.status == "ok" and not result.blocks]
    if unmeasured:
        variants = ", ".join(dict.fromkeys(result.case.variant for result in unmeasured))
        run.note_no_room(variants)


def _by_variant(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """The cases of each variant, the last rung of the ladder first."""
    rungs = problem_of(cases[0].problem).variant_names
    variants = sorted({case.variant for case in cases}, key=rungs.index, reverse=True)
    return {variant: [case for case in cases if case.variant == variant] for variant in variants}


def _finished(record: Record, cases: Sequence[Case]) -> int:
    """How many processes have timed all their rounds of these cases."""
    timed = {block.worker for case in cases for block in record.result(case).blocks}
    return len(timed & {generation.worker for generation in record.generations})


def _imprecise(run: "Run", groups: Mapping[str, Sequence[Case]], took: Mapping[str, float]) -> list[str]:
    """The variants that need another process and have the time for it; none if a number of processes was asked for."""
    if run.settings.workers is not None:
        return []
    found = []
    for variant, own in groups.items():
        results = [run.record.result(case) for case in own]
        deciding = run.question.deciding(replace(run.record, results=results))
        if run.seconds_left > took[variant] and not is_precise(deciding, run.settings):
            found.append(variant)
    return found


def _one_process(run: "Run", cases: Sequence[Case], share: float) -> float:
    """Fresh workers for each framework and number of threads.

    Returns the seconds that they took; 0 if they had to compile what later ones find on disk, and take less.
    """
    record, began = run.record, time.monotonic()
    number = 1 + max((block.worker for result in record.results for block in result.blocks), default=-1)
    well = [case for case in cases if record.result(case).status == "ok"]
    compiles = not run.cached.issuperset(well)
    if well:
        one_generation(run, well, number, began + share)
        run.stop()
        run.progress.results(record)
    return 0.0 if compiles else time.monotonic() - began
