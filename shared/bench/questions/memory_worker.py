"""The peak memory of a worker of `memory` while it calls a case with a batch, under the watch of the parent."""

import contextlib
import gc
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from shared.bench.cases import Case
from shared.bench.measure.memory import resident_peak
from shared.bench.record import Result
from shared.bench.run.context import Run
from shared.bench.run.largest_batch import function_of, placed
from shared.bench.units import size as bytes_text
from shared.bench.worker.case_runner import CaseRunner
from shared.problems.problem import DATA, NotMeasurable


def peak_of(run: Run, result: Result, pairs: int, is_first: bool) -> Mapping[str, int] | None:
    """Return resident bytes before the calls and their peak; None if the case fails or exceeds the memory."""
    case, memory, exceeded, ended = result.case, run.settings.memory or 0, threading.Event(), threading.Event()
    if run.running(case) is None:
        run.start_workers([case])
    if (worker := run.running(case)) is None:  # one that `ask` starts would not be watched
        result.status, result.reason = "failed", "its worker did not start"
        return None

    def look() -> None:
        with contextlib.suppress(psutil.Error):  # it has ended
            process = psutil.Process(worker.pid)
            while case.device == "cpu" and not ended.wait(0.01):  # seconds
                if process.memory_info().rss > memory:
                    exceeded.set()
                    process.kill()
                    return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        reply = run.ask_for_result("call", case, function=peak_of_calls, pairs=pairs, is_first=is_first)
    finally:
        ended.set()
        thread.join()
    if exceeded.is_set():
        result.status, result.reason = "limit", f"the process and {pairs:,} pairs take more than {bytes_text(memory)}"
    return reply.details if reply.status == "ok" else None


def peak_of_calls(runner: CaseRunner, case: Case, pairs: int, is_first: bool) -> dict[str, Any]:
    """Bytes of the process before and at most while it gets the arguments of a batch and calls the case twice.

    Compilation is part of the first call; the second may find memory that the first has left, or not. The pairs are
    copies of one, made on the device. On an accelerator: the arguments, and what the framework reports for a call.
    is_first: the gate checks the result, in every process but the trial's. Raises Wrong or NotMeasurable.
    """
    backend, inputs = runner.backend, replace(runner.gate.inputs(DATA), repeats=pairs)
    results: list[Any] = []

    def calls() -> None:
        arguments = placed(backend, case, inputs)
        backend.wait(function(*arguments, **inputs.parameters))
        results.append(backend.wait(function(*arguments, **inputs.parameters)))

    def on_accelerator() -> tuple[int, int] | None:
        arguments = placed(backend, case, inputs)
        result = backend.wait(function(*arguments, **inputs.parameters))
        results.extend([result] if is_first else [])
        del result
        backend.release(case.device)  # so that memory kept for the next call counts too
        peak = backend.peak_bytes(function, arguments, inputs.parameters, case.device)
        return None if peak is None else (0, sum(a.nbytes for a in arguments if a is not None) + peak)

    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty,
        runner.compilers(case, Path(empty)),  # or only the first of the processes would compile
    ):
        function = function_of(runner, case, inputs)
        bounds = resident_peak(calls) if case.device == "cpu" else on_accelerator()
        if bounds is None:
            raise NotMeasurable("its peak memory is not known here")
        parts = backend.extremes(results[0], pairs) if is_first else ()
        gates = [runner.gate.check(case, part) for part in parts]
    results.clear()
    backend.forget_compiled()
    gc.collect()
    return {"before": bounds[0], "peak": bounds[1]} | ({"gate": gates[-1]} if gates else {})
