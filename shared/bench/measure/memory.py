"""Peak memory of a call on the CPU: that of the process. On an accelerator the framework's adapter reports it."""

import contextlib
import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

_STATUS, _CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
# glibc's malloc_trim returns nothing from the top of the other arenas, where JAX's threads have their arrays
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}


def resident_peak(call: Callable[[], Any]) -> tuple[int, int] | None:
    """Resident memory of this process before a call, and its peak during it; None outside Linux.

    Memory that the C library kept from earlier calls is released first, which is complete only where all threads share
    one arena (ONE_ARENA in the environment). Memory that a framework keeps for reuse counts as in use.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc
    try:
        _CLEAR_REFS.write_text("5")  # resets the kernel's peak counter
    except OSError:
        return None
    before = psutil.Process().memory_info().rss
    call()
    lines = _STATUS.read_text().splitlines()
    peak = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), before)
    return before, peak
