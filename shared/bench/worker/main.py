"""The process that one framework is measured in.

    python -m shared.bench.worker.main FRAMEWORK DEVICE THREADS MEMORY FOLDER CONNECTION

MEMORY is the share of an accelerator's memory that it may take. FOLDER holds the run's inputs and reference results,
and the compilers' caches. CONNECTION is the file descriptor of a pipe to the parent: see `worker/commands.py`.
"""

import ctypes
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # of Linux's prctl


def limit_cores(threads: int, first: int = 0) -> None:
    """Pin this process to its first `threads` cores, or those from another on, before anything starts a thread pool."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[first : first + threads])


def end_with_parent() -> None:
    """Have the system kill this process when its parent ends."""
    if sys.platform == "linux":  # elsewhere a killed parent is noticed at the end of a command
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Execute commands until the parent ends."""
    framework, device, threads, memory, folder, descriptor = sys.argv[1:]
    end_with_parent()
    limit_cores(int(threads))
    from shared.bench.worker.commands import serve  # only now: NumPy and the framework start threads on import

    serve(Connection(int(descriptor)), framework, device, int(threads), float(memory), Path(folder))


if __name__ == "__main__":
    main()
