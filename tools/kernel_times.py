"""Device times of single kernels with block exponents, in the library's layouts and others: where these are chosen.

    python -m tools.kernel_times smith_waterman/gradients/4096x512x512 smith_waterman/gradients/4096x512x512/1x16x128

Each argument is a function, score, gradients or product, the batch's pairs x rows x cols, and on request the rows to a
lane x steps to a chunk (8, 16 or 32) x registers to a thread at most (0: no limit) x warps to a pair (1). Needs a GPU,
PyTorch and Triton. Times are by CUDA events behind a queue that is busy, with the L2 cache written over before: medians
of each kernel. A layout that does not run gives its error.
"""

import argparse
import itertools
import re
import statistics
import sys
from collections.abc import Sequence
from typing import NamedTuple

import torch

from shared.alignments import ALIGNMENTS
from shared.kernels import cpp
from shared.kernels.triton.programs import Chunk, Layout, Program, block_launches, layout_of, program_of
from torch_impl.backend import compile_kernels, device_problem

CALLS = ("score", "gradients", "product")
FORM = f"FUNCTION/{'|'.join(CALLS)}/PAIRSxROWSxCOLS[/ROWSxSTEPSxREGISTERS[xWARPS]]"
EXAMPLE = "smith_waterman/gradients/4096x512x512/1x16x128"
DEVICE = "cuda"
TIMED_CALLS = 9
# floats that are written before each call: more than caches hold, and a while
FLUSHED = 1 << 28


class Asked(NamedTuple):
    """A call to time. layout: the library's, or one with a chunk of the user's."""

    function: str
    call: str
    shape: tuple[int, int, int]
    layout: Layout


def asked(text: str) -> Asked:
    """Parse a command-line argument."""
    chunk = r"(?:/(\d+)x(8|16|32)x(\d+)(?:x([124]))?)?"
    match = re.fullmatch(rf"(\w+)/({'|'.join(CALLS)})/(\d+)x(\d+)x(\d+){chunk}", text)
    if not match or match[1] not in ALIGNMENTS:
        raise argparse.ArgumentTypeError(f"expected {FORM}, for example {EXAMPLE}, not {text!r}")
    pairs, rows, cols = map(int, match.group(3, 4, 5))
    layout = layout_of(pairs, rows)
    if match[6]:
        height, steps, registers, warps = (int(number or 1) for number in match.group(6, 7, 8, 9))
        warps_chunk = Chunk(32 * warps, height, steps, registers or None, warps)
        layout = layout._replace(scores=warps_chunk, gradients=warps_chunk, products=warps_chunk)
    return Asked(match[1], match[2], (pairs, rows, cols), layout)


def program(what: Asked) -> Program:
    """The kernels with block exponents alone, with the buffers that they use."""
    call = cpp.call_of(what.function, ALIGNMENTS[what.function].options)
    return block_launches(program_of(what.call, call, "float32", what.shape, what.layout))


def times(what: Asked) -> str:
    """Microseconds of each kernel, billions of cells per second, and how many pairs were flagged."""
    from torch_impl.kernels.triton_binding import _launch, _run  # here: it imports Triton

    torch.manual_seed(0)
    pairs, rows, cols = what.shape
    values = list(ALIGNMENTS[what.function].parameters.values())
    timed_program = program(what)
    inputs = {
        "similarity": torch.randn(what.shape, device=DEVICE),
        "lengths": torch.tensor([[rows, cols]] * pairs, dtype=torch.int32, device=DEVICE),
        "values": torch.tensor([values] * pairs, dtype=torch.float32, device=DEVICE),
    }
    if what.call == "product":
        inputs["t_similarity"] = torch.randn(what.shape, device=DEVICE)
    buffers = _run(timed_program, inputs)  # compiled
    flushed = torch.empty(FLUSHED, device=DEVICE)
    measured: list[list[float]] = []
    for _ in range(TIMED_CALLS):
        flushed.fill_(1.0)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(timed_program.launches) + 1)]
        events[0].record()
        for launch, event in zip(timed_program.launches, events[1:], strict=True):
            _launch(launch, buffers)
            event.record()
        torch.cuda.synchronize()
        measured.append([before.elapsed_time(after) for before, after in itertools.pairwise(events)])
    medians = [statistics.median(kernel) for kernel in zip(*measured, strict=True)]
    gcups = pairs * rows * cols / sum(medians) / 1e6
    flagged = int((buffers["flags"] != 0).sum())
    return f"{' + '.join(f'{1e3 * ms:.4g}' for ms in medians)} µs, {gcups:.4g} GCUPS, {flagged} flagged"


def main(arguments: Sequence[str] | None = None) -> int:
    """A line for each argument; the exit code is 1 if one did not run."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.kernel_times", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kernels", nargs="+", type=lambda text: (text, asked(text)), metavar="KERNELS", help=FORM)
    kernels, code = parser.parse_args(arguments).kernels, 0
    if problem := device_problem(DEVICE):
        print(problem, file=sys.stderr)
        return 3
    compile_kernels([launch.kernel for _, kernel in kernels for launch in program(kernel).launches], DEVICE)
    for text, kernel in kernels:
        try:
            times_text = times(kernel)
        except Exception as error:
            times_text, code = f"{type(error).__name__}: {error}", 1
        print(f"{text}: {times_text}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
