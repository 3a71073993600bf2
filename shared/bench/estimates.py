"""Estimates from samples: medians and ratios with 95 % confidence intervals, drift, break-even points.

Calls are timed in blocks: one case, one round of one worker process; a block keeps the median, the 90th percentile and
the extremes of its calls. They share the state of the machine, and rounds of a worker share its memory layout, which
makes a process a percent faster or slower for as long as it lives. Only whole workers are independent. So each worker
contributes one value, the median of its rounds' medians, and the interval is Student's t over the logarithms of these
values. From fewer than LEAST_PROCESSES workers there is no interval, and nothing is decided.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from statistics import median  # of a few numbers much faster than NumPy's
from typing import Annotated, NamedTuple

import numpy as np

CONFIDENCE = 0.95
# two may agree by chance, and their interval would look narrow
LEAST_PROCESSES = 3
# a ratio whose interval is within this factor of 1 is called "same", whatever side of 1 it is on
SAME = 1.03

# of what was timed: a record is read only if they are positive
Seconds = Annotated[float, "positive"]


class Block(NamedTuple):
    """Calls of one case that were timed one after the other, in seconds per call, to eight digits."""

    worker: int  # which fresh process, counted over the run
    round: int  # which round of that worker
    calls: int
    median: Seconds
    p90: Seconds  # the 90th percentile
    fastest: Seconds
    slowest: Seconds

    @classmethod
    def of(cls, worker: int, round_number: int, seconds: Sequence[float]) -> "Block":
        """Summarize the seconds of each call."""
        values = (median(seconds), float(np.percentile(seconds, 90)), min(seconds), max(seconds))
        return cls(worker, round_number, len(seconds), *(float(f"{value:.8g}") for value in values))


class Estimate(NamedTuple):
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def relative_half_width(self) -> float:
        """Half of the interval as a fraction of the value."""
        return (self.high - self.low) / 2 / self.value

    @property
    def outcome(self) -> str:
        """Of a ratio: "same", "different", or "not decided" where the interval holds 1 or there is none."""
        if self.low >= 1 / SAME and self.high <= SAME:
            return "same"
        return "different" if self.low > 1 or self.high < 1 else "not decided"


def median_time(blocks: Sequence[Block]) -> Estimate:
    """Time of a call: the median of a worker's rounds, and the geometric mean of that over the workers.

    Without an interval (NaN) where there are too few workers.
    """
    return _estimate(_by_worker(_round_medians(blocks)))


def time_ratio(slower: Sequence[Block], faster: Sequence[Block]) -> Estimate:
    """Time of one case over that of another, from the rounds that both were in; all NaN if there are none.

    Two blocks of the same round are adjacent in time, so slow changes of the machine cancel. Without an interval (NaN)
    where too few workers timed both.
    """
    return _estimate(_by_worker(_paired(slower, faster)))


def ratio_drift(slower: Sequence[Block], faster: Sequence[Block]) -> float | None:
    """How much that ratio changed from the first third of the rounds to the last, as a fraction; as `drift`."""
    return _change(list(_paired(slower, faster).values()))


def of_processes(values: Sequence[float]) -> Estimate:
    """Of a number that each process has once: the geometric mean, as `median_time`."""
    return _estimate(tuple((value,) for value in values))


def _paired(slower: Sequence[Block], faster: Sequence[Block]) -> dict[tuple[int, int], float]:
    over, under = _round_medians(slower), _round_medians(faster)
    return {key: over[key] / under[key] for key in over if key in under}


def time_quotient(new: Sequence[Block], old: Sequence[Block]) -> Estimate:
    """Time of a case in one run over its time in another. The interval is Welch's, over the workers of each run.

    Rounds of different runs are not paired. A change of the machine between the runs is not in the interval.
    """
    from scipy.stats import ttest_ind

    logs = [[math.log(median(rounds)) for rounds in _by_worker(_round_medians(side))] for side in (new, old)]
    value = math.exp(float(np.mean(logs[0]) - np.mean(logs[1])))
    if min(map(len, logs)) < LEAST_PROCESSES:
        return Estimate(value, math.nan, math.nan)
    interval = ttest_ind(*logs, equal_var=False).confidence_interval(CONFIDENCE)
    return Estimate(value, math.exp(interval.low), math.exp(interval.high))


def _round_medians(blocks: Iterable[Block]) -> dict[tuple[int, int], float]:
    """By (worker, round)."""
    return {(block.worker, block.round): block.median for block in blocks}


def _by_worker(rounds: dict[tuple[int, int], float]) -> tuple[tuple[float, ...], ...]:
    """Values by (worker, round), as the values of each worker's rounds."""
    workers: dict[int, list[float]] = {}
    for (worker, _), value in rounds.items():
        workers.setdefault(worker, []).append(value)
    return tuple(map(tuple, workers.values()))


@functools.lru_cache(maxsize=1024)
def _estimate(workers: tuple[tuple[float, ...], ...]) -> Estimate:
    """The geometric mean of the workers' medians, with its interval if there are several."""
    from scipy.stats import sem, t  # imported here: it takes a third of a second

    if not workers:
        return Estimate(math.nan, math.nan, math.nan)
    logs = np.log([median(rounds) for rounds in workers])
    if len(workers) < LEAST_PROCESSES:
        return Estimate(math.exp(logs.mean()), math.nan, math.nan)
    margin = sem(logs) * t.ppf((1 + CONFIDENCE) / 2, len(logs) - 1)
    return Estimate(*(math.exp(logs.mean() + side) for side in (0.0, -margin, margin)))


def drift(blocks: Sequence[Block]) -> float | None:
    """How much slower the last third of the rounds was than the first, as a fraction; None for less than six rounds."""
    return _change([block.median for block in blocks])


def _change(rounds: Sequence[float]) -> float | None:
    third = len(rounds) // 3
    return median(rounds[-third:]) / median(rounds[:third]) - 1 if third > 1 else None


def break_even(fast_first: float, fast_call: float, slow_first: float, slow_call: float) -> int:
    """Number of calls from which the faster of two cases takes less total time, its first call included."""
    if fast_first <= slow_first:
        return 1
    return 2 + math.floor((fast_first - slow_first) / (slow_call - fast_call))
