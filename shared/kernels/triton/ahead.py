"""Compiles GPU kernels before they are called, on all cores, into Triton's cache, where both frameworks find them.

    python -m shared.kernels.triton.ahead CAPABILITY < KERNELS

CAPABILITY is 90 for compute capability 9.0; KERNELS has one kernel as JSON per line. It prints a line for each kernel
that does not compile. A process of its own, because one that has used CUDA cannot be forked.
"""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor

from shared.kernels.triton import why_absent
from shared.kernels.triton.programs import Kernel, kernel_of


def compile_ahead(kernels: Iterable[Kernel], capability: int) -> list[str]:
    """Compile these kernels, each once, into the cache that TRITON_CACHE_DIR names; returns the errors, a line each."""
    lines = "".join(json.dumps(kernel) + "\n" for kernel in dict.fromkeys(kernels))
    if not lines or why_absent():
        return []
    command = [sys.executable, "-W", "ignore", "-m", "shared.kernels.triton.ahead", str(capability)]
    ended = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    last = [line for line in ended.stderr.splitlines() if line.strip()][-1:]
    died = [f"the compiler ended with exit code {ended.returncode}", *last] if ended.returncode else []
    return ended.stdout.splitlines() + ([": ".join(died)] if died else [])


def _problem(kernel: Kernel, capability: int) -> str | None:
    """The error of a kernel that does not compile."""
    from shared.kernels.triton.machine_code import machine_code  # here: it imports Triton

    try:
        machine_code(kernel, capability)
    except Exception as error:
        return f"{kernel.name}, {kernel.dtype}: {type(error).__name__}: {error}".replace("\n", " ")
    return None


def _effort(kernel: Kernel) -> tuple[bool, bool]:
    """Sorts first what takes longest to compile, so that no core waits for it in the end."""
    return "backward" in kernel.name, bool(dict(kernel.constants).get("tangents"))


def main(arguments: Sequence[str], lines: Iterable[str]) -> None:
    """Compile the kernels of these lines."""
    import triton  # noqa: F401 - before the fork, so that each process has it

    kernels = sorted(map(kernel_of, lines), key=_effort, reverse=True)
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for problem in filter(None, pool.map(functools.partial(_problem, capability=int(arguments[0])), kernels)):
            print(problem, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:], sys.stdin)
