"""How the streams of `shapes` are measured: processes and their shares of the time, and the stream in its worker."""

import functools
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shared.bench.cases import Case
from shared.bench.estimates import LEAST_PROCESSES, Block
from shared.bench.measure.clock import timed
from shared.bench.measure.machine import seconds_of_others, usable_cores
from shared.bench.questions.shapes_stream import (
    BATCHES,
    COUNTED,
    DYNAMIC,
    STRATEGIES,
    batches_of,
    drawn_shapes,
    padded_to,
    references_of,
)
from shared.bench.record import NO_ROOM, Compilation, Generation, Record, Result
from shared.bench.run.context import Run
from shared.bench.worker.case_runner import CaseRunner
from shared.problems.alignment_inputs import AlignmentInputs
from shared.variants import variant_names

# batches at the end of a stream that are called again: so many, or so many seconds of them
_AGAIN, _AGAIN_SECONDS = 5, 5.0


def measure_streams(run: Run, cases: Sequence[Case], stream: AlignmentInputs) -> None:
    """Variant by variant, the last rung first, and of each the strategies with few shapes first.

    Each case has an equal share of the time that is left, in which it runs up to so many processes, the frameworks in
    turn. A stream ends with the batch at which its share is spent.
    """
    run.stop()
    _save_batches(run, stream)
    shapes = drawn_shapes(run.settings)
    for case in cases:
        padded = list(map(tuple, STRATEGIES[case.label](shapes).tolist()))
        later_new = len({*padded}) - len({*padded[:BATCHES]})
        result = run.record.result(case)
        if result.reason == NO_ROOM:
            result.status, result.reason = "ok", None
        details = result.details
        details |= {"shapes": padded[:BATCHES], "later": COUNTED - BATCHES, "later_new": later_new}
        details.setdefault("processes", [])
    groups = _groups(run.record, cases)
    wanted = run.settings.workers or LEAST_PROCESSES
    run.progress.ends_within(run.seconds_left)
    for number, group in enumerate(groups):
        run.progress.begin(f"part {number + 1} of {len(groups)}", wanted * len(group))
        share = len(group) / sum(map(len, groups[number:]))
        if number and run.seconds_left <= 0:
            _leave_out(run, group)
        else:
            _measure_group(run, group, wanted, time.monotonic() + run.seconds_left * share)


def _save_batches(run: Run, stream: AlignmentInputs) -> None:
    """Write the batches and their reference results for the workers."""
    seconds, references = timed(lambda: references_of(run.settings.problem, stream, run.settings.passes))
    run.progress.say(
        f"NumPy reference on {sum(len(r.pairs) for r in references)} of {stream.pairs} pairs: {seconds:.1f} s"
    )
    for number, (batch, expected) in enumerate(zip(batches_of(stream), references, strict=True)):
        run.write(f"{_name(number)}.inputs", batch)
        run.write(f"{_name(number)}.reference", expected)


def _groups(record: Record, cases: Sequence[Case]) -> list[list[Case]]:
    """Cases that differ only in framework, in the order in which they are measured."""
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.pass_name, case.variant, case.label), []).append(case)

    def compilations(case: Case) -> int:
        return len(set(record.result(case).details["shapes"])) if case.compiled else 0

    rungs = variant_names(record.settings.problem)
    return sorted(groups.values(), key=lambda own: (-rungs.index(own[0].variant), max(map(compilations, own))))


def _measure_group(run: Run, group: Sequence[Case], wanted: int, end: float) -> None:
    """Up to so many processes of each case until `end`; the first of each in any case."""
    took = dict.fromkeys(group, 0.0)  # seconds of a process, its start included
    for number in range(wanted):
        for place, case in enumerate(group[:: -1 if number % 2 else 1]):
            result, left = run.record.result(case), end - time.monotonic()
            if (
                result.status == "ok"
                and len(result.details["processes"]) <= number
                and (not number or took[case] <= left)
            ):
                run.progress.step(case.title)
                began = time.monotonic()
                _measure_stream(run, result, left if number else left / (len(group) - place))
                took[case] = time.monotonic() - began


def _leave_out(run: Run, group: Sequence[Case]) -> None:
    """Say of cases that have no stream yet that the budget had no room for one."""
    for result in map(run.record.result, group):
        if result.status == "ok" and not result.details["processes"]:
            result.status, result.reason = "limit", NO_ROOM
    run.keep()


def _measure_stream(run: Run, result: Result, seconds: float) -> None:
    """One process. seconds: after which the stream ends."""
    case, cores = result.case, usable_cores()[: run.settings.threads]
    began, before = time.monotonic(), seconds_of_others(cores)
    shapes = result.details["shapes"]
    reply = run.ask_for_result("call", case, function=timed_stream, padded=shapes, seconds=seconds)
    after = seconds_of_others(cores)  # while the worker is there, or its processes would be among others
    run.stop(case)
    number = len(result.details["processes"])
    if number and reply.status in ("failed", "limit"):
        run.record.excuse(result, number + 1)
    if reply.status == "ok":
        process = reply.details["process"]
        result.cold.append(reply.details["first"])
        result.blocks.append(Block(number, 0, tuple(process["again"])))
        result.details["processes"].append(process)
        others = None if before is None or after is None else max(0.0, after - before)
        run.record.generations.append(Generation(number, time.monotonic() - began, others))
    run.keep()
    run.progress.results(run.record)


def timed_stream(runner: CaseRunner, case: Case, padded: list[tuple[int, int]], seconds: float) -> dict[str, Any]:
    """In a fresh worker: the case on one batch after the other, from empty caches. Raises Wrong.

    A batch's time is from its arrays on the host to the result: padding, transfer, compilation and call. The stream
    ends after the batch with which `seconds` are spent; its last batches are then called again, with nothing to
    compile. Every result of the stream is checked after that. padded: the shape of each batch's matrix.
    """
    backend = runner.backend
    batches = [runner.gate.inputs(_name(number)) for number in range(len(padded))]
    options, dynamic = batches[0].options, case.label == DYNAMIC
    runner.build(case, options)
    function = backend.call_of(
        case.problem, case.variant, case.pass_name, options, compiled=case.compiled, dynamic=dynamic
    )

    def call(number: int) -> Any:
        batch = batches[number]
        given = (padded_to(array, padded[number]) for array in batch.arguments(case.pass_name) if array is not None)
        return backend.wait(function(*(backend.to_device(array, case.device) for array in given), **batch.parameters))

    results: list[np.ndarray] = []
    took: list[Compilation] = []
    compilations: list[int] = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty,
        runner.compilers(case, Path(empty)),
    ):
        while len(took) < len(batches) and (not took or sum(each.seconds for each in took) < seconds):
            number = len(took)
            with backend.compile_times() as times:
                batch_seconds, result = timed(functools.partial(call, number))
            unpadded = backend.to_numpy(result)[tuple(map(slice, batches[number].shape[: result.ndim]))]
            results.append(unpadded.copy())
            del unpadded, result  # a training loop frees it too: the next batch can reuse its memory
            took.append(Compilation(batch_seconds, times.tracing, times.compiling))
            compilations.append(times.compilations)
            runner.send("step")
        again: list[float] = []
        for number in range(len(took))[: -_AGAIN - 1 : -1]:
            if sum(again) < _AGAIN_SECONDS:
                again.append(timed(functools.partial(call, number))[0])
        gates = [
            runner.gate.check(replace(case, input=_name(number)), backend.to_device(result, case.device))
            for number, result in enumerate(results)
        ]
    worst = max(gates, key=lambda gate: gate.error_of_allowed or 0.0)
    return {
        "first": took[0],
        "gate": replace(worst, pairs=sum(gate.pairs or 0 for gate in gates)),
        "process": {"seconds": [each.seconds for each in took], "compilations": compilations, "again": again},
    }


def _name(number: int) -> str:
    """Of a batch as an input of workers."""
    return f"batch-{number}"
