"""What this machine has left."""

import math
from pathlib import Path


def available_bytes() -> float:
    """Memory that the system can give without taking it from others; no limit where it does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return math.inf
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), math.inf)
