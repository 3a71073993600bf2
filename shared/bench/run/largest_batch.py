"""The part of a repeated input that an accelerator has memory for: found by trying, before anything is measured.

The question `memory` finds the largest batch of each case; here it is one that all frameworks can be timed on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shared.bench.cases import FRAMEWORKS, Case
from shared.bench.run.context import Run
from shared.bench.worker.case_runner import CaseRunner
from shared.problems import Inputs
from shared.variants import Abilities


def largest_batches(
    run: Run, inputs: dict[str, Inputs], cases: Sequence[Case], abilities: Mapping[str, Abilities]
) -> dict[str, Inputs]:
    """The inputs; repeated ones with as many copies as all frameworks have memory for, up to those asked for.

    Each framework tries its own choice of a variant, with its last pass, which takes most; a case that needs still more
    memory will report that itself. A resumed run keeps what it found.
    """
    fitting = dict(inputs)
    for name, whole in inputs.items():
        if whole.copies == 1:
            continue
        if name in run.record.inputs:
            pairs = run.record.inputs[name].pairs or 1
            copies = max(1, pairs * whole.copies // (whole.pairs or 1))
        else:
            run.write(f"{name}.inputs", whole)
            copies = whole.copies
            for case in {case.framework: case for case in cases if case.input == name}.values():
                able = abilities[case.framework]
                variant = able.auto or case.variant
                tried = replace(case, variant=variant, compiled=variant not in able.uncompiled_variants)
                copies = _most_copies(run, whole, tried, copies)
        fitting[name] = replace(whole, copies=copies)
    return fitting


def _most_copies(run: Run, given: Inputs, case: Case, copies: int) -> int:
    """The copies of an input, at most `copies`, that a case has memory for."""
    while copies > 1:
        pairs = replace(given, copies=copies).pairs
        run.progress.say(f"do {pairs:,} pairs of {case.input} fit? {FRAMEWORKS[case.framework]} tries")
        reply = run.ask("call", case, function=fits, copies=copies)
        # any other error, and a first call over the time limit, is reported when the case is measured; but a worker
        # that died may have run out of host memory
        if reply.details.get("fits", reply.status == "limit" or run.running(case) is not None):
            break
        run.stop(case)  # its memory may be fragmented
        copies //= 2
    return copies


def fits(runner: CaseRunner, case: Case, copies: int) -> dict[str, Any]:
    """Tell in a worker whether an accelerator has memory for a case with so many copies of its input."""
    # not by gate.inputs, which would keep this input, when a smaller one may be measured
    backend, inputs = runner.backend, replace(runner.gate.stored(f"{case.input}.inputs"), copies=copies)
    try:
        with runner.context(case, "fits"):
            backend.wait(function_of(runner, case, inputs)(*placed(backend, case, inputs), **inputs.parameters))
    except Exception as error:
        if not backend.is_out_of_memory(error):
            raise
        return {"fits": False}
    return {"fits": True}


def function_of(runner: CaseRunner, case: Case, inputs: Inputs) -> Callable[..., Any]:
    """Build the native kernels of a case; return its function, not yet compiled."""
    runner.build(case, inputs.options)
    return runner.function(case, inputs)


def placed(backend: Any, case: Case, inputs: Inputs) -> list[Any]:
    """The arrays of a call on the device, repeated there."""
    arrays = inputs.arguments(case.pass_name)
    return [a if a is None else backend.repeated(backend.to_device(a, case.device), inputs.copies) for a in arrays]
