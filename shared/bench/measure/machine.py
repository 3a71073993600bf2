"""The machine of a run: the computer, its cores and their load, the state of the code, and how fast memory streams."""

import contextlib
import os
import platform
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from shared.bench.measure.clock import timed

ROOT = Path(__file__).resolve().parents[3]
# bytes of all threads together, more than caches hold (except those of some server CPUs); and how often they are copied
_STREAM_BYTES, _STREAM_REPEATS = 2**28, 5
_CALIBRATION_COUNT = 200_000  # additions: about 5 ms of plain Python


def machine() -> dict[str, Any]:
    """The computer, the system and the state of the code."""
    return {
        "cpu": _cpu_name(),
        "cores": len(usable_cores()),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "git_commit": git_commit(),
    }


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def git_commit() -> str | None:
    """The commit of the running code, with "-dirty" if files outside of results/ differ from it; None outside of its
    own checkout."""
    status = "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)results"
    try:
        commit, changed = (
            subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=10, check=True).stdout
            for arguments in (("rev-parse", "HEAD", "--show-prefix"), status)
        )
    except (OSError, subprocess.SubprocessError):
        return None
    commit, *prefix = commit.split()  # the prefix is where this is in another project's checkout
    return None if prefix else commit + ("-dirty" if changed.strip() else "")


def different_environments(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The differences between two environments, a line each; measured rates and times are not compared."""
    if not ("variables" in before and "variables" in after):  # an old record has none
        before, after = ({**environment, "variables": {}} for environment in (before, after))
    first, second = _facts(before), _facts(after)
    names = [name for name in first | second if not name.endswith(("_per_second", "_seconds"))]
    names = [name for name in names if first.get(name) != second.get(name)]
    return [f"{name} was {first.get(name, 'not set')}, is {second.get(name, 'not set')}" for name in names]


def _facts(environment: dict[str, Any]) -> dict[str, Any]:
    """An environment, flattened; a framework's version is named after the framework."""
    facts = {name: value for name, value in environment.items() if name not in ("frameworks", "variables", "settings")}
    facts |= environment.get("variables", {}) | environment.get("settings", {})
    for framework, about in environment.get("frameworks", {}).items():
        facts |= {name if name == framework else f"{framework} {name}": value for name, value in about.items()}
    return facts


def usable_cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def counts_up_to(threads: int) -> list[int]:
    """Return the powers of two below a number of threads, and that number."""
    return [*(2**power for power in range((threads - 1).bit_length())), threads]


def seconds_of_others(cores: list[int]) -> float | None:
    """CPU seconds, from a fixed time on, of these cores for programs that this one has not started; None where the
    system does not tell."""
    per_core = psutil.cpu_times(percpu=True)
    if max(cores) >= len(per_core):
        return None
    # guest time is part of user time; stolen time went to other virtual machines on the same core
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    seconds = sum(getattr(per_core[core], name, 0.0) for core in cores for name in names)
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            seconds -= sum(process.cpu_times()[:4])  # user and system, its own and of its ended children
    return seconds


def calibration_seconds() -> float:
    """Seconds that a fixed loop in plain Python takes now: shows when the machine itself becomes slower or faster."""

    def loop() -> None:
        total = 0
        for number in range(_CALIBRATION_COUNT):
            total += number

    return timed(loop)[0]


def stream_bandwidth(threads: int) -> float:
    """Bytes per second that copying a large array moves, read plus written, on this many threads; the best of a few."""
    size = _STREAM_BYTES // threads // 8
    sources, targets = ([np.full(size, value) for _ in range(threads)] for value in (1.0, 0.0))
    with ThreadPoolExecutor(threads) as pool:
        return best_rate(lambda: timed(lambda: list(pool.map(np.copyto, targets, sources)))[0], 2 * 8 * size * threads)


def best_rate(once: Callable[[], float], count: float) -> float:
    """The highest rate of a few repeats. once: returns the seconds for this count."""
    return count / min(once() for _ in range(_STREAM_REPEATS))
