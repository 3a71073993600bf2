"""The process that one framework is measured in. It speaks JSON lines: commands come in, events go out.

    python -m shared.bench.worker.main FRAMEWORK DEVICE THREADS MEMORY FOLDER

MEMORY is the share of an accelerator's memory that it may take. FOLDER holds the run's inputs and reference results,
and the compilers' caches. Cores are set before the framework is imported. Events: {"event": "hello", ...} or
{"event": "unavailable", "reason": ...}; then for each command {"event": "done", "status": ..., ...}, preceded by
{"event": "first_call"} where there is one. The status is "ok", "wrong", "failed", or "limit" for what is too large.
"""

import os
import sys

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def limit_cores(threads: int) -> None:
    """Pin this process to its first `threads` cores, before anything starts a thread pool."""
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def main() -> None:
    """Execute commands until the parent closes the pipe."""
    framework, device, threads, memory, folder = sys.argv[1:]
    limit_cores(int(threads))
    # the protocol keeps the real standard output; whatever a library prints goes to standard error
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    from shared.bench.worker.commands import serve  # only now: NumPy and the framework start threads on import

    serve(channel, framework, device, int(threads), float(memory), folder)


if __name__ == "__main__":
    main()
