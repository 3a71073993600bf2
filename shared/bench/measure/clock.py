"""The clock: one timed call, and warm-up calls until times have settled."""

import time
from collections.abc import Callable
from statistics import median_high  # not NumPy's: a call may take only microseconds
from typing import Any

# Warm-up ends when the median of the last WINDOW calls is not below that of the WINDOW calls before by more than
# SETTLED, or after so many calls or seconds. A call of more than half that many seconds is made once.
SETTLED = 0.03
WINDOW = 3
MOST_WARM_UP_CALLS, MOST_WARM_UP_SECONDS = 60, 1.0


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Wall time of one call in seconds, and its result. The call must wait for its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def warm_up(call: Callable[[], Any]) -> tuple[bool | None, float]:
    """Call until the times have settled, within bounds; returns whether they have (None: too few calls to tell), and
    the median seconds of the last calls."""
    seconds: list[float] = []
    while True:
        seconds.append(timed(call)[0])
        if len(seconds) >= 2 * WINDOW:
            before, last = median_high(seconds[-2 * WINDOW : -WINDOW]), median_high(seconds[-WINDOW:])
            if last >= before * (1 - SETTLED):
                return True, last
        if len(seconds) >= MOST_WARM_UP_CALLS or sum(seconds) + seconds[-1] > MOST_WARM_UP_SECONDS:
            return False if len(seconds) >= 2 * WINDOW else None, median_high(seconds[-WINDOW:])
