"""What the workers of `memory` do: call a case at a size, and tell the peak memory of their process."""

import functools
import gc
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shared.bench.cases import Case
from shared.bench.measure.memory import resident_peak
from shared.bench.questions.memory_fit import Size
from shared.bench.run.largest_batch import function_of, placed
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.problem import DATA, NotMeasurable

if TYPE_CHECKING:
    from shared.bench.worker.case_runner import CaseRunner


def device_memory(runner: "CaseRunner", case: Case) -> dict[str, Any]:
    """The bytes that an accelerator has."""
    return {"total": runner.backend.device_memory(case.device)}


def peak_of_calls(runner: "CaseRunner", case: Case, size: Size, is_first: bool) -> dict[str, Any]:
    """Bytes of the process before and at most while it gets arguments of a size and calls the case twice.

    Compilation is part of the first call; the second may find memory that the first has left, or not. The pairs are
    copies of one, made on the device. On an accelerator: the arguments, and what the framework reports for a call.
    is_first: of the process; the gate then checks the result, if the pairs are those of the input: others have no
    reference. Raises Wrong or NotMeasurable.
    """
    backend, one = runner.backend, runner.gate.inputs(DATA)
    is_judged = is_first and one.shape[1:] == tuple(size[1:])
    inputs = replace(_of_lengths(one, *size[1:]), repeats=size[0])
    results: list[Any] = []

    def calls() -> None:
        arguments = placed(backend, case, inputs)
        backend.wait(function(*arguments, **inputs.parameters))
        results.append(backend.wait(function(*arguments, **inputs.parameters)))

    def on_accelerator() -> tuple[int, int] | None:
        arguments = placed(backend, case, inputs)
        result = backend.wait(function(*arguments, **inputs.parameters))
        results.extend([result] if is_judged else [])
        del result
        backend.release(case.device)  # so that memory kept for the next call counts too
        peak = backend.peak_bytes(function, arguments, inputs.parameters, case.device)
        return None if peak is None else (0, sum(a.nbytes for a in arguments if a is not None) + peak)

    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty,
        runner.compilers(case, Path(empty)),  # or only the first of the processes would compile
    ):
        function = function_of(runner, case, inputs)
        found = resident_peak(calls) if case.device == "cpu" else on_accelerator()
        if found is None:
            raise NotMeasurable("its peak memory is not known here")
        gate = None
        for part in backend.extremes(results[0], inputs.repeats) if is_judged else ():
            gate = runner.gate.check(case, part)
    results.clear()
    backend.forget_compiled()
    gc.collect()
    return {"before": found[0], "peak": found[1]} | ({"gate": gate} if gate else {})


def _of_lengths(one: Any, rows: int, cols: int) -> AlignmentInputs:
    """A pair of these lengths, with the values of another one, repeated."""
    if one.similarity.shape[1:] == (rows, cols):
        return one
    resized = functools.partial(np.resize, new_shape=(1, rows, cols))
    gaps = {name: resized(gap) for name, gap in one.gaps.items()}
    return replace(one, similarity=resized(one.similarity), gaps=gaps, lengths=np.array([[rows, cols]], np.int32))
