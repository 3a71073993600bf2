"""The kernels that `fused` launches on a GPU, compiled before anything is measured, once for both frameworks."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from shared.alignments import ALIGNMENTS
from shared.backends import gpu_kernels
from shared.bench.cases import Case
from shared.bench.run.context import Run
from shared.kernels.triton.programs import Kernel
from shared.problems import Inputs, problem_of
from shared.variants import SAME_CODE

# `Worker.ask` waits ten times as long, and a minute more
_EXPECTED_SECONDS = 30.0


def compile_kernels(run: Run, cases: Sequence[Case], inputs: Mapping[str, Inputs]) -> dict[str, float]:
    """Compile them in parallel, into the cache that all workers read; returns the seconds for the environment.

    A kernel that does not compile is noted; the cases that launch it will fail.
    """
    launching = [case for case in cases if case.variant in SAME_CODE and case.problem in ALIGNMENTS]
    if run.settings.device == "cpu" or not launching:
        return {}
    kernels: dict[Kernel, None] = {}
    for case in launching:
        of_case = inputs[case.input]
        batch = of_case.shape if len(of_case.shape) == 3 else (1, *of_case.shape)
        arguments = case.dtype, case.problem, of_case.options, case.pass_name, batch
        # JAX always passes lengths
        for has_lengths in {True, getattr(of_case, "lengths", None) is not None}:
            if case.pass_name in problem_of(case.problem).passes:
                kernels |= dict.fromkeys(gpu_kernels(*arguments, has_lengths))
    by_interpreter = {run.plan.starts[case.worker_key].command: case for case in reversed(launching)}
    run.progress.say(f"compiling {len(kernels)} GPU kernels, once for both frameworks")
    start = time.monotonic()
    for case in by_interpreter.values():
        uncompiled = replace(case, compiled=False)  # the compiler of the framework need not start
        reply = run.ask("compile_kernels", uncompiled, expected=_EXPECTED_SECONDS, kernels=[*kernels])
        for problem in [reply.reason] if reply.status != "ok" else reply.details["problems"]:
            run.record.note(f"not compiled ahead: {problem}")
    return {"gpu_kernels_seconds": time.monotonic() - start}
