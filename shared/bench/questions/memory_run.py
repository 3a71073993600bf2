"""How `memory` measures: processes, the sizes that each calls, and trials just below and above what is predicted.

Resident memory is that of the worker's process. The parent reads it a hundred times a second and kills a worker that
has more than the given memory, whatever it is doing, so that no prediction can endanger the machine. On an accelerator
the framework itself is limited to the given memory.
"""

import contextlib
import gc
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from shared.bench.analysis.estimates import LEAST_PROCESSES
from shared.bench.cases import MEMORY_SHARE, Case, Settings
from shared.bench.measure.memory import resident_peak
from shared.bench.questions.memory_fit import Axis, Size, cells_that_fit, needs
from shared.bench.record import Record, Result
from shared.bench.units import size as bytes_text
from shared.problems import problem_of
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.argument_types import size_text
from shared.problems.problem import DATA, NotMeasurable, UnusableInput
from shared.variants import variant_names

if TYPE_CHECKING:
    from shared.bench.run.context import Run
    from shared.bench.worker.case_runner import CaseRunner

# Cells of the first size, and what part of the memory that is left the other sizes shall take: enough to be seen beside
# what a process takes anyway, and little enough that calls are short.
_FIRST_CELLS = 2**20
_PARTS = (1 / 8, 1 / 4)
_MOST_GROWTH = 32  # from one size to the next
# the trials, as parts of the largest size that is predicted to fit
BELOW, ABOVE = "90%", "120%"
_TRIALS = {BELOW: 0.9, ABOVE: 1.2}
FITS, STOPPED = "fits", "stopped"
NO_ROOM = "the budget had no room for it"
_LOOK_SECONDS = 0.01


def measure_memory(run: "Run", cases: Sequence[Case], given: AlignmentInputs) -> None:
    """Variant by variant, the last rung first; of each up to so many processes, then its trials.

    Cases that differ only in framework share what is left of the budget with those that come after them.
    """
    run.write(f"{DATA}.inputs", given)
    run.write(f"{DATA}.reference", problem_of(run.settings.problem).reference_results(given, run.settings.passes))
    _limit_memory(run, cases[0])
    for case in cases:
        result = run.record.result(case)
        result.details = {"sizes": [], "processes": [], "trials": {}} | result.details
        if result.reason == NO_ROOM:
            result.status, result.reason = "ok", None
    groups = _groups(run.record, cases)
    run.progress.ends_within(run.seconds_left)
    for number, group in enumerate(groups):
        wanted = run.settings.workers or LEAST_PROCESSES
        run.progress.begin(f"part {number + 1} of {len(groups)}", (wanted + 1) * len(group))
        _measure_group(run, group, wanted, time.monotonic() + run.seconds_left / (len(groups) - number))


def default_memory(settings: Settings) -> int | None:
    """Half of what is free, or 2 GiB if that is less: calls stay short. None on an accelerator: only a worker knows."""
    return min(2**31, psutil.virtual_memory().available // 2) if settings.device == "cpu" else None


def memory_of(settings: Settings) -> int:
    """The memory of a run that has begun."""
    assert settings.memory is not None, "it is fixed before anything is measured"
    return settings.memory


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
        for share in _TRIALS:
            if needs(result) and share not in result.details["trials"] and time.monotonic() < end:
                run.progress.step(f"{result.case.title}, {share} of the largest size")
                _try(run, result, share)
                _keep(run)
        run.stop(result.case)


def _keep(run: "Run") -> None:
    run.keep()
    run.progress.results(run.record)


def _measure_process(run: "Run", result: Result) -> None:
    """The peaks of a fresh process at each size, from the smallest on. The first process of a case chooses the sizes."""
    case, axis, sizes = result.case, Axis.of(run.settings), result.details["sizes"]
    peaks: list[int] = []
    run.stop(case)
    for number in range(len(_PARTS) + 1):
        if number == len(sizes):
            sizes.append(_first_size(axis) if not number else _next_size(run, axis, sizes, peaks, _before(result)))
        with _watched(run, case) as watch:
            reply = run.ask_for_result("call", case, function=peak_of_calls, size=sizes[number], is_first=not number)
        if watch and watch.has_stopped:
            what = f"the process and {size_text(sizes[number])}"
            result.status, result.reason = "limit", f"{what} take more than {bytes_text(memory_of(run.settings))}"
        if reply.status != "ok":
            return
        peaks.append(reply.details["peak"])
        result.details.setdefault("before", reply.details["before"])
    run.stop(case)
    result.details["processes"].append({"peaks": peaks})
    if not needs(result):
        result.status, result.reason = "limit", "its memory does not grow with the size: take more --memory"


def _before(result: Result) -> int:
    """Memory of its process before the first call."""
    return result.details["before"]


def _first_size(axis: Axis) -> Size:
    """Checked by the gate; of a length as the input has it, of which the reference is known."""
    return axis.size(axis.rows if axis.batch else max(1, axis.number(_FIRST_CELLS)))


def _next_size(run: "Run", axis: Axis, sizes: Sequence[Size], peaks: Sequence[int], before: int) -> Size:
    """The size at which a call shall take its part of the memory that is left.

    By the bytes of a cell between the last two sizes; of a single one all of it counts, which is more than its cells.
    """
    cells, part = [math.prod(size) for size in sizes], _PARTS[len(sizes) - 1]
    under = (0, before) if len(sizes) == 1 else (cells[-2], peaks[-2])
    per_cell = (peaks[-1] - under[1]) / (cells[-1] - under[0])
    wanted = part * (memory_of(run.settings) - before) / max(1.0, per_cell)
    last = axis.number(cells[-1])
    return axis.size(max(last + 1, axis.number(min(wanted, _MOST_GROWTH * cells[-1]))))


def _try(run: "Run", result: Result, share: str) -> None:
    """A part of the largest size in a fresh process, which goes on with the next part."""
    case, axis = result.case, Axis.of(run.settings)
    cells = cells_that_fit(result, memory_of(run.settings)).value
    size = axis.size(max(1, axis.number(_TRIALS[share] * cells)))
    with _watched(run, case) as watch:
        reply = run.ask("call", case, function=peak_of_calls, size=size, is_first=False)
    outcome = FITS if reply.status == "ok" else reply.reason
    # an accelerator's framework says itself that it has too little memory
    if (watch and watch.has_stopped) or (reply.status == "limit" and case.device != "cpu"):
        outcome = STOPPED
    result.details["trials"][share] = {"size": size, "outcome": outcome, "peak": reply.details.get("peak")}


class _Watch:
    """Kills a process that has more resident memory than it may have."""

    has_stopped = False

    def __init__(self, pid: int, memory: int) -> None:
        self._process, self._memory, self._ended = psutil.Process(pid), memory, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        with contextlib.suppress(psutil.Error):  # it has ended
            while not self._ended.wait(_LOOK_SECONDS):
                if self._process.memory_info().rss > self._memory:
                    self.has_stopped = True
                    self._process.kill()
                    return

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()


@contextlib.contextmanager
def _watched(run: "Run", case: Case) -> Iterator[_Watch | None]:
    """Watch the case's worker, which is started if need be; not on an accelerator, nor if it does not start."""
    if run.running(case) is None:
        run.start_workers([case])
    worker = run.running(case)
    watch = _Watch(worker.pid, memory_of(run.settings)) if worker and case.device == "cpu" else None
    try:
        yield watch
    finally:
        if watch:
            watch.end()


# in the worker


def device_memory(runner: "CaseRunner", case: Case) -> dict[str, Any]:
    """The bytes that an accelerator has."""
    return {"total": runner.backend.device_memory(case.device)}


def peak_of_calls(runner: "CaseRunner", case: Case, size: Size, is_first: bool) -> dict[str, Any]:
    """Bytes of the process before and at most while it gets arguments of a size and calls the case twice.

    Compilation is part of the first call; the second may find memory that the first has left, or not. The pairs are
    copies of one, made on the device. is_first: of the process; the gate then checks the result. On an accelerator, the
    arguments and what the framework reports for a call. Raises Wrong or NotMeasurable.
    """
    backend, one = runner.backend, runner.gate.inputs(DATA)
    pairs, rows, cols = size
    runner.build(case)
    results: list[Any] = []
    with backend.compiler_cache(runner.folder / "compiled" / "memory"), backend.precision(case.dtype):
        function = backend.call_of(case.problem, case.variant, case.pass_name, one.options, compiled=case.compiled)

        def placed() -> list[Any]:
            arrays = _of_lengths(one, rows, cols).arguments(case.pass_name)
            return [a if a is None else backend.repeated(backend.to_device(a, case.device), pairs) for a in arrays]

        def planned() -> tuple[int, int] | None:
            calls()
            arguments = placed()
            peak = backend.peak_bytes(function, arguments, one.parameters, case.device)
            return None if peak is None else (0, sum(a.nbytes for a in arguments if a is not None) + peak)

        def calls() -> None:
            arguments = placed()
            backend.wait(function(*arguments, **one.parameters))
            results.append(backend.wait(function(*arguments, **one.parameters)))

        found = resident_peak(calls) if case.device == "cpu" else planned()
        if found is None:
            raise NotMeasurable("its peak memory is not known here")
        gate = None
        for part in backend.extremes(results.pop(), pairs) if is_first and results else ():
            gate = runner.gate.check(case, part)[1]
    results.clear()
    backend.forget_compiled()
    gc.collect()
    return {"before": found[0], "peak": found[1]} | ({"gate": gate} if gate else {})


def _of_lengths(one: AlignmentInputs, rows: int, cols: int) -> AlignmentInputs:
    """A pair of these lengths, with the values of another one, repeated."""
    if one.similarity.shape[1:] == (rows, cols):
        return one
    return replace(one, similarity=np.resize(one.similarity, (1, rows, cols)), lengths=np.array([[rows, cols]], np.int32))
