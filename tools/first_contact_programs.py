"""Programs that tools/first_contact.py starts beside the steps.

    python -m tools.first_contact_programs compile [all]        the machine code of all steps, on all cores
    python -m tools.first_contact_programs sanitized            a few small launches, for compute-sanitizer
    python -m tools.first_contact_programs profiled             two launches of each kernel on much work, for ncu

The last two launch by PyTorch; JAX launches the same machine code.
"""

import functools
import itertools
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from shared.alignments import ALIGNMENTS
from shared.kernels import cpp
from shared.kernels.triton.programs import (
    NARROW,
    TALL,
    WIDE,
    Kernel,
    best_program,
    exponentials_program,
    gradients_program,
    layout_of,
    product_program,
    score_program,
)
from tools.first_contact_runs import first_gpu
from tools.first_contact_steps import DEVICE, DTYPES, FUNCTIONS, SHAPES, WITH_GAPS, ragged


def kernels(options_too: bool = False) -> list[Kernel]:
    """All that `fused` launches in the steps, and the smallest kernel; or also what it launches with other options."""
    programs = [exponentials_program(dtype, 1024, 1, each=1) for dtype in DTYPES]
    for name in FUNCTIONS:
        usual = ALIGNMENTS[name].options
        for options in ALIGNMENTS[name].all_options() if options_too else [usual]:
            layouts = {layout_of(pairs, rows) for pairs, rows, _ in SHAPES} if options == usual else {NARROW}
            for dtype, layout in itertools.product(DTYPES, layouts):
                given = cpp.call_of(name, options), dtype, (2, 9, 7)
                programs += [
                    score_program(*given, (63, 7), True, layout),
                    gradients_program(*given, (63, 7), True, layout, False),
                    product_program(*given, (63, 7, 63, 7), True, layout),
                    best_program(*given, (63, 7), True, layout),
                ]
    for name in WITH_GAPS:
        given = cpp.call_of(name, ALIGNMENTS[name].options, ALIGNMENTS[name].gaps), DTYPES[0], (2, 9, 7)
        layout = layout_of(*SHAPES[-1][:2])
        programs += [
            score_program(*given, (63, 7), True, layout),
            gradients_program(*given, (63, 7), True, layout, False),
            product_program(*given, (63, 7, 63, 7), True, layout),
        ]
    return list(dict.fromkeys(launch.kernel for program in programs for launch in program.launches))


def compile_all(options_too: bool) -> int:
    """Into Triton's cache, and C++ for the CPU; a line for each that failed, and one with their numbers."""
    gpu = first_gpu()
    assert gpu is not None, "there is no GPU to compile for"
    wanted, failed = kernels(options_too), 0
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        on_cpu = [pool.submit(_compile_for_cpu, *which) for which in _cpu_kernels()]
        for done in as_completed([*on_cpu, *(pool.submit(_compile, kernel, gpu.capability) for kernel in wanted)]):
            if problem := done.result():
                failed += 1
                print(problem, flush=True)
    print(json.dumps({"kernels": len(wanted), "failed": failed}), flush=True)
    return min(1, failed)


def _compile(kernel: Kernel, capability: int) -> str | None:
    """The error of a kernel that does not compile; None if it does."""
    try:
        from shared.kernels.triton.machine_code import machine_code  # here: it imports Triton

        machine_code(kernel, capability)
    except Exception as error:
        return f"{kernel}: {type(error).__name__}: {error}"
    return None


def _cpu_kernels() -> Iterator[tuple[str, int, bool, str]]:
    """The native kernels that results are held against, each once: free_gap has those of needleman_wunsch."""
    for name in WITH_GAPS:
        kind = cpp.call_of(name, ALIGNMENTS[name].options).kind
        for pass_name, by_position in itertools.product(("score", "marginals", "tangents"), (False, True)):
            yield "float64", kind, by_position, pass_name
        for dtype in DTYPES:
            yield dtype, kind, True, "best"


def _compile_for_cpu(dtype: str, kind: int, by_position: bool, pass_name: str) -> str | None:
    """The error of a native kernel that does not compile; None if it does."""
    try:
        assert getattr(cpp.kernel(dtype, kind, by_position), pass_name)
    except cpp.Absent as error:
        return str(error)
    return None


SANITIZED = (*((name, "float32") for name in FUNCTIONS), ("smith_waterman", "float64"))


def sanitized() -> None:
    """Every pass in both layouts on matrices of several strips. What comes out is the steps' business.

    racecheck sees shared memory alone, not the rows that a strip leaves to the next in the GPU's.
    """
    import torch

    import torch_impl
    import torch_impl.kernels.triton_binding as calls

    for layout in (NARROW, WIDE, TALL):
        calls.forced_layout = layout
        for problem, dtype in SANITIZED:
            similarity, lengths, vector = ragged(problem, 3, 2 * layout.lanes + 5, 5)
            s, c = (torch.from_numpy(array.astype(dtype)).to(DEVICE) for array in (similarity, vector))
            function = functools.partial(getattr(torch_impl, problem), variant="fused")
            function(s, lengths)
            torch_impl.marginals(function, s, lengths)
            torch_impl.hessian_vector_product(function, s, c, lengths)
            torch_impl.best_alignment(getattr(torch_impl, problem), s, lengths)
    torch.cuda.synchronize()


PROFILED = (1024, 512, 512)


def profiled() -> None:
    """Marginals, twice: each launches the forward and then the backward kernel."""
    import torch

    import torch_impl

    s = torch.rand(PROFILED, device=DEVICE)
    lengths = torch.tensor([PROFILED[1:]] * len(s), dtype=torch.int32, device=DEVICE)
    for _ in range(2):
        torch_impl.marginals(torch_impl.smith_waterman, s, lengths, variant="fused")
    torch.cuda.synchronize()


if __name__ == "__main__":
    what, *more = sys.argv[1:]
    sys.exit({"compile": lambda: compile_all(more == ["all"]), "sanitized": sanitized, "profiled": profiled}[what]())
