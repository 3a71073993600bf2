"""The clock: the first call, then the steady state."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from shared.bench.memory import MemoryMeter

# without a number of repeats from the user: up to this many, within this time, and never fewer than the minimum
DEFAULT_REPEATS, DEFAULT_SECONDS, LEAST_REPEATS = 100, 2.0, 5


class Steady(NamedTuple):
    """Times of the calls after the first, and what they took in memory."""

    seconds: list[float]
    peak_bytes: int | None


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Wall time of one call in seconds, and its result. The call must wait for its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def steady_state(call: Callable[[], Any], repeats: int | None, warm_up: bool, memory: MemoryMeter | None) -> Steady:
    """Call again and again; every sample is kept.

    Memory, if it is asked for, is measured by one call more, without the clock: setting its mark gives pages back
    that a timed call would have to fetch again.
    """
    if warm_up:
        call()
    seconds: list[float] = []
    wanted = repeats or DEFAULT_REPEATS
    while len(seconds) < wanted:
        enough = repeats is None and len(seconds) >= LEAST_REPEATS
        if enough and sum(seconds) + seconds[-1] > DEFAULT_SECONDS:
            break
        seconds.append(timed(call)[0])
    if memory is None:
        return Steady(seconds, None)
    memory.start()
    call()
    return Steady(seconds, memory.stop())
