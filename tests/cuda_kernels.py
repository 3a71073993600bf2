"""Compiles the kernels that the tests marked cuda and the comparison launch on a GPU, before they do.

    python tests/cuda_kernels.py 90     for compute capability 9.0, into Triton's cache

Not among them: what torch.compile makes of a kernel, and kernels for lengths of 64 bits, of which one test has some.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

from shared.alignments import ALIGNMENTS, COLS, ROWS, has_free_ends, of_axis
from shared.kernels import cpp, triton
from shared.kernels.triton.ahead import compile_ahead
from shared.kernels.triton.programs import (
    EXPONENTIALS_IN_A_ROUND,
    NARROW,
    TALL,
    WIDE,
    Kernel,
    exponentials_program,
    kernels_of,
)

DTYPES = FLOAT32, _ = "float32", "float64"
DERIVATIVES = "gradients", "gradients with values"


def kernels() -> list[Kernel]:
    """Each of them once; those of other options, by position and without lengths on small matrices alone."""
    pairs = product(DTYPES, (1, EXPONENTIALS_IN_A_ROUND))
    rates = [exponentials_program(dtype, 1024, 1, number).launches[0].kernel for dtype, number in pairs]
    return list(dict.fromkeys([*rates, *(kernel for call in _asked() for kernel in kernels_of(*call))]))


def _asked() -> Iterator[tuple[Any, ...]]:
    """Arguments of `kernels_of`."""
    for name, alignment in ALIGNMENTS.items():
        free = [options for options in alignment.all_options() if has_free_ends(options)]
        paid = [options for options in alignment.all_options() if not has_free_ends(options)]
        usual, *others_than_usual = (cpp.call_of(name, options) for options in paid)
        by_position = [cpp.call_of(name, options, alignment.gaps) for options in paid if alignment.gaps]
        axes = [of_axis(gap, axis) for gap in alignment.gaps for axis in (ROWS, COLS)]
        by_axis = [cpp.call_of(name, options, axes) for options in (paid[0], *free) if axes]
        yield from product(("score", "gradients", "product", "best"), [usual], DTYPES, (NARROW, WIDE, TALL))
        yield from product(("score", "gradients", "product", "best"), others_than_usual, [FLOAT32], [NARROW])
        yield from product((*DERIVATIVES, "product"), by_position[:1], DTYPES, (NARROW, WIDE))
        yield from product(["best"], by_position, [FLOAT32], [NARROW])
        yield from product(("score", "gradients", "product", "best"), by_axis, [FLOAT32], [NARROW])
        yield from product(["gradients"], by_axis[1:2], [FLOAT32], [WIDE, TALL])
        yield from product(("score", *DERIVATIVES), [usual], [FLOAT32], [NARROW], [False])
        yield "gradients with values", usual, FLOAT32, NARROW
        yield "gradients", usual, FLOAT32, TALL, False


def main(capability: int) -> int:
    """Compile them; the exit code is 1 if one does not compile."""
    all_kernels = kernels()
    if reason := triton.why_absent():
        sys.exit(reason)
    with ThreadPoolExecutor() as pool:  # the native ones that best alignments are compared with, in the meantime
        for name, alignment in ALIGNMENTS.items():
            pool.submit(lambda call: cpp.kernel(FLOAT32, *call).best, cpp.call_of(name, alignment.options))
        problems = compile_ahead(all_kernels, capability)
    print(*problems, f"{len(all_kernels)} kernels, {len(problems)} failed", sep="\n")
    return min(1, len(problems))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
