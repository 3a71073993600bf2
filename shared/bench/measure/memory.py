"""Peak memory of a call on the CPU: that of the process. On an accelerator the framework's adapter reports it."""

import contextlib
import ctypes
from pathlib import Path

import psutil

_STATUS, _CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
# glibc's malloc_trim returns nothing from the top of the other arenas, where JAX's threads have their arrays
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}


class ProcessMemory:
    """Peak resident memory of this process above what was in use at the start, in bytes; None outside Linux.

    Memory that the C library kept from earlier calls is released first, which is complete only where all threads share
    one arena (ONE_ARENA in the environment). Memory that a framework keeps for reuse counts as in use.
    """

    def __init__(self) -> None:
        self._before: int | None = None

    def start(self) -> None:
        """Take the baseline, and reset the kernel's peak counter (clear_refs, value 5)."""
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # glibc
        self._before = None
        with contextlib.suppress(OSError):
            _CLEAR_REFS.write_text("5")
            self._before = psutil.Process().memory_info().rss

    def stop(self) -> int | None:
        """Peak above the baseline."""
        if self._before is None:
            return None
        lines = _STATUS.read_text().splitlines()
        peak = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), self._before)
        return max(0, peak - self._before)
