"""Peak memory of a case on a CPU: the process's. On an accelerator each framework's backend has a counter."""

import contextlib
import ctypes
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
# glibc's malloc_trim gives back nothing from the top of the other arenas, where JAX's threads have their arrays
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}


class ProcessMemory:
    """Peak of the process above what was in use at the start, in bytes; None where the system does not tell.

    What the C library keeps from earlier calls is given back first; it can be only where all threads share one arena
    (ONE_ARENA in the environment of the process). What a framework itself keeps for reuse counts as in use.
    """

    def __init__(self) -> None:
        self._before: int | None = None

    def start(self) -> None:
        """Set the mark; on Linux the process's peak is set back to what it uses now (clear_refs, value 5)."""
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # glibc
        try:
            _CLEAR.write_text("5")
        except OSError:
            self._before = None
            return
        self._before = _kilobytes("VmRSS")

    def stop(self) -> int | None:
        """Peak above the mark."""
        peak = _kilobytes("VmHWM")
        if self._before is None or peak is None:
            return None
        return max(0, peak - self._before) * 1024


def _kilobytes(name: str) -> int | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)
