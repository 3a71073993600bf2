"""What the workers of `memory` do: call a case with a batch, and report the peak memory of their process."""

import gc
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from shared.bench.cases import Case
from shared.bench.measure.memory import resident_peak
from shared.bench.run.largest_batch import function_of, placed
from shared.bench.worker.case_runner import CaseRunner
from shared.problems.problem import DATA, NotMeasurable


def peak_of_calls(runner: CaseRunner, case: Case, pairs: int, is_first: bool) -> dict[str, Any]:
    """Bytes of the process before and at most while it gets the arguments of a batch and calls the case twice.

    Compilation is part of the first call; the second may find memory that the first has left, or not. The pairs are
    copies of one, made on the device. On an accelerator: the arguments, and what the framework reports for a call.
    is_first: the gate checks the result, once in each process. Raises Wrong or NotMeasurable.
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
        gate = None
        for part in backend.extremes(results[0], inputs.repeats) if is_first else ():
            gate = runner.gate.check(case, part)
    results.clear()
    backend.forget_compiled()
    gc.collect()
    return {"before": bounds[0], "peak": bounds[1]} | ({"gate": gate} if gate else {})
