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
    """The inputs; repeated ones with as many repeats as all frameworks have memory for, up to those asked for.

    Each framework tries its own choice of a variant, with its last pass, which takes most; a case that needs still more
    memory will report that itself. A resumed run keeps what it found.
    """
    fitting = dict(inputs)
    for name, whole in inputs.items():
        if whole.repeats == 1:
            continue
        if name in run.record.inputs:
            pairs = run.record.inputs[name].pairs or 1
            repeats = max(1, pairs * whole.repeats // (whole.pairs or 1))
        else:
            run.write(f"{name}.inputs", whole)
            repeats = whole.repeats
            for case in {case.framework: case for case in cases if case.input == name}.values():
                able = abilities[case.framework]
                variant = able.auto or case.variant
                tried = replace(case, variant=variant, compiled=variant not in able.uncompiled_variants)
                repeats = _most_repeats(run, whole, tried, repeats)
        fitting[name] = replace(whole, repeats=repeats)
    return fitting


def _most_repeats(run: Run, given: Inputs, case: Case, repeats: int) -> int:
    """The repeats of an input, at most `repeats`, that a case has memory for."""
    while repeats > 1:
        pairs = replace(given, repeats=repeats).pairs
        run.progress.say(f"do {pairs:,} pairs of {case.input} fit? {FRAMEWORKS[case.framework]} tries")
        reply = run.ask("call", case, function=fits, repeats=repeats)
        # any other error, and a first call over the time limit, is reported when the case is measured; but a worker
        # that died may have run out of host memory
        if reply.details.get("fits", reply.status == "limit" or run.running(case) is not None):
            break
        run.stop(case)  # its memory may be fragmented
        repeats //= 2
    return repeats


def fits(runner: CaseRunner, case: Case, repeats: int) -> dict[str, Any]:
    """Tell in a worker whether an accelerator has memory for a case with so many repeats of its input."""
    # not by gate.inputs, which would keep this input, when a smaller one may be measured
    backend, inputs = runner.backend, replace(runner.gate.stored(f"{case.input}.inputs"), repeats=repeats)
    try:
        with runner.context(case, "fits"):
            backend.wait(function_of(runner, case, inputs)(*placed(backend, case, inputs), **inputs.parameters))
    except Exception as error:
        if not backend.is_out_of_memory(error):
            raise
        return {"fits": False}
    return {"fits": True}


def function_of(runner: CaseRunner, case: Case, inputs: Inputs) -> Callable[..., Any]:
    """The function of a case, its native kernels built, not yet compiled."""
    runner.build(case, inputs.options)
    return runner.function(case, inputs)


def placed(backend: Any, case: Case, inputs: Inputs) -> list[Any]:
    """The arrays of a call on the device, repeated there."""
    arrays = inputs.arguments(case.pass_name)
    return [a if a is None else backend.repeated(backend.to_device(a, case.device), inputs.repeats) for a in arrays]
