"""The process that one framework is measured in.

    python -m shared.bench.worker.main [COMMANDS CORES ...] FRAMEWORK DEVICE THREADS MEMORY FOLDER CONNECTION

COMMANDS (MODULE:CLASS) replaces the usual class `Commands`; its constructor gets the arguments after CORES first.
CORES are the cores to pin the process to, such as 0,1.
MEMORY is the share of an accelerator's memory that it may take. FOLDER holds the run's inputs and reference results,
and the compilers' caches. CONNECTION is the file descriptor of a pipe to the parent: see `worker/commands.py`.
"""

import ctypes
import functools
import importlib
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # of Linux's prctl


def limit_cores(threads: int, cores: str | None = None) -> None:
    """Pin this process to these cores, or its first `threads` ones, before anything starts a thread pool."""
    if hasattr(os, "sched_setaffinity"):
        chosen = map(int, cores.split(",")) if cores else sorted(os.sched_getaffinity(0))[:threads]
        os.sched_setaffinity(0, chosen)


def end_with_parent() -> None:
    """Have the system kill this process when its parent ends."""
    if sys.platform == "linux":  # elsewhere a killed parent is noticed at the end of a command
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Execute commands until the parent ends."""
    *special, framework, device, threads, memory, folder, descriptor = sys.argv[1:]
    end_with_parent()
    limit_cores(int(threads), special[1] if special else None)
    from shared.bench.worker.commands import serve  # only now: NumPy and the framework start threads on import

    make_commands = None
    if special:
        module, _, name = special[0].partition(":")
        make_commands = functools.partial(getattr(importlib.import_module(module), name), *special[2:])
    serve(Connection(int(descriptor)), framework, device, int(threads), float(memory), Path(folder), make_commands)


if __name__ == "__main__":
    main()
