"""The clock: a first call, the calls until times have settled, and blocks of timed calls."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

# Warm-up ends when the median of the last calls is no longer below that of the calls before by more than this; or after
# so many calls or seconds, whatever comes first. A call that takes longer than all of these seconds is made once.
SETTLED = 0.03
WINDOW = 3
MOST_WARM_UP_CALLS, MOST_WARM_UP_SECONDS = 60, 2.0
# what is written between calls on an accelerator: more than the largest of its caches holds
FLUSH_BYTES = 2**28


@dataclass
class CompileTimes:
    """Seconds of a call that went into tracing and compiling; None where the framework does not tell."""

    tracing: float | None = None
    compiling: float | None = None


class Settled(NamedTuple):
    """How the warm-up went."""

    calls: int
    stable: bool | None  # None: too few calls to tell
    seconds: float  # of the last calls, their median


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Wall time of one call in seconds, and its result. The call must wait for its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def warm_up(call: Callable[[], Any]) -> Settled:
    """Call until the times have settled, within bounds."""
    seconds: list[float] = []
    while True:
        seconds.append(timed(call)[0])
        if len(seconds) >= 2 * WINDOW:
            before, last = _middle(seconds[-2 * WINDOW : -WINDOW]), _middle(seconds[-WINDOW:])
            if last >= before * (1 - SETTLED):
                return Settled(len(seconds), True, last)
        if len(seconds) >= MOST_WARM_UP_CALLS or sum(seconds) + seconds[-1] > MOST_WARM_UP_SECONDS:
            stable = False if len(seconds) >= 2 * WINDOW else None
            return Settled(len(seconds), stable, _middle(seconds[-WINDOW:]))


@contextlib.contextmanager
def environment_of(**variables: str) -> Iterator[None]:
    """Inside, this process's environment has these values."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _middle(seconds: list[float]) -> float:
    # the upper one of two: no NumPy here, a call may take a few microseconds only
    return sorted(seconds)[len(seconds) // 2]


def longer(call: Callable[[], Any], fraction: float) -> Callable[[], Any]:
    """A call that works this fraction longer than the given one: the planted difference of the protocol's own test."""

    def slowed() -> Any:
        start = time.perf_counter()
        result = call()
        end = start + (time.perf_counter() - start) * (1 + fraction)
        while time.perf_counter() < end:
            pass
        return result

    return slowed


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of (start, end) spans: what nests or overlaps counts once."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
