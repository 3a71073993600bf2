"""Free memory of this machine."""

import math
from pathlib import Path


def available_bytes() -> float:
    """Bytes of memory available without swapping; infinite where the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return math.inf
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), math.inf)
