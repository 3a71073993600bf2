"""The kernels that `fused` launches on a GPU, compiled before anything is measured, once for both frameworks."""

from collections.abc import Mapping, Sequence

from shared.alignments import ALIGNMENTS
from shared.backends import gpu_kernels
from shared.bench.cases import Case
from shared.bench.measure.clock import timed
from shared.bench.run.context import Run
from shared.kernels.triton.programs import Kernel
from shared.problems import Inputs, problem_of
from shared.variants import SAME_CODE

# of the compiler; a worker that takes ten times as long is stopped
_EXPECTED_SECONDS = 30.0


def compile_kernels(run: Run, cases: Sequence[Case], inputs: Mapping[str, Inputs]) -> float | None:
    """Compile them in parallel, into the cache that all workers read; returns the seconds, or None without any.

    A kernel that does not compile is noted; the cases that launch it will fail.
    """
    launching = [case for case in cases if case.variant in SAME_CODE and case.problem in ALIGNMENTS]
    if run.settings.device == "cpu" or not launching:
        return None
    kernels: dict[Kernel, None] = {}
    for case in launching:
        options, shape = inputs[case.input].options, inputs[case.input].shape
        if case.pass_name in problem_of(case.problem).passes:
            batch = shape if len(shape) == 3 else (1, *shape)
            kernels |= dict.fromkeys(gpu_kernels(case.dtype, case.problem, options, case.pass_name, batch))
    run.progress.say(f"compiling {len(kernels)} GPU kernels, once for both frameworks")
    seconds, reply = timed(
        lambda: run.ask("compile_kernels", launching[0], expected=_EXPECTED_SECONDS, kernels=[*kernels])
    )
    run.progress.say(f"compiled {len(kernels)} GPU kernels in {seconds:.1f} s, which no case is charged for")
    for problem in [reply.reason] if reply.status != "ok" else reply.details["problems"]:
        run.record.note(f"not compiled ahead: {problem}")
    return seconds
