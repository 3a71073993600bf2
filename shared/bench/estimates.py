"""Estimates from samples: medians and ratios with 95 % confidence intervals, and which of two is faster.

Calls are timed in blocks: one case, one round of one worker process. Calls of a block share the state of the machine,
rounds of a worker its memory layout, which makes a process a percent faster or slower for as long as it lives. Only
whole workers are independent. So each contributes one value, the median of the logarithms of its rounds.

A few workers show only roughly how far such values scatter, so there is also an expectation: 1 % for the process
itself, plus the standard error of the median of its rounds, from how far these scatter. The expectation counts
as two further workers beside what is seen (a moderated t test), unless the observed scatter is larger. A worker whose
value is far off is clipped, so that one odd process does not decide.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from statistics import median  # of a few numbers much faster than NumPy's
from typing import Annotated, NamedTuple

import numpy as np

CONFIDENCE = 0.95
# an estimate from fewer processes says how many they were
LEAST_PROCESSES = 3
# a ratio whose interval is within this factor of 1 is called "same", whatever side of 1 it is on
SAME = 1.03

# standard deviations of logarithms: between processes of the same code, beyond what their rounds explain; and between
# rounds, where fewer than _LEAST_DEVIATIONS deviations are known
_PROCESS_SCATTER, _ROUND_SCATTER, _LEAST_DEVIATIONS = 0.01, 0.1, 6
# of normal values: standard deviation / MAD; standard error of the median * sqrt(n) / standard deviation
_MEDIAN_DEVIATION_TO_SIGMA, _ERROR_OF_MEDIAN = 1.4826, 1.2533
# weight of the expected scatter, in workers; distance beyond which a worker is clipped, in units of the scatter
_PRIOR, _CLIP = 2, 3.0

# types of record fields: reading fails unless they are positive
Seconds = Annotated[float, "positive"]
Count = Annotated[int, "positive"]


class Block(NamedTuple):
    """Calls of one case that were timed one after the other, in seconds per call, to eight digits."""

    repeat: int  # number of its set of fresh workers, from 0
    round: int  # which round of these workers
    calls: int
    median: Seconds
    p90: Seconds  # the 90th percentile
    fastest: Seconds
    slowest: Seconds

    @classmethod
    def of(cls, repeat: int, round_number: int, seconds: Sequence[float]) -> "Block":
        """Summarize the seconds of each call."""
        values = (median(seconds), float(np.percentile(seconds, 90)), min(seconds), max(seconds))
        return cls(repeat, round_number, len(seconds), *(float(f"{value:.8g}") for value in values))


class Estimate(NamedTuple):
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float
    processes: int = LEAST_PROCESSES  # that it comes from; fitted models leave the default
    has_interval: bool = True  # False for a few rounds of one process: low and high then come from an assumed scatter

    @property
    def relative_half_width(self) -> float:
        """Half of the interval as a fraction of the value."""
        return (self.high - self.low) / 2 / self.value

    @property
    def outcome(self) -> str:
        """Outcome of a ratio: "same", "different", "one-sided" (contains 1, beyond SAME on one side only) or "open"."""
        if self.low >= 1 / SAME and self.high <= SAME:
            return "same"
        if self.low > 1 or self.high < 1:
            return "different"
        return "one-sided" if self.low >= 1 / SAME or self.high <= SAME else "open"

    @property
    def most(self) -> float:
        """A ratio's end of the interval that is further from 1, as a factor of at least 1."""
        return max(self.high, 1 / self.low)

    @property
    def inverse(self) -> "Estimate":
        """One over a ratio."""
        return self._replace(value=1 / self.value, low=1 / self.high, high=1 / self.low)


def median_time(blocks: Sequence[Block]) -> Estimate:
    """Time of a call: the median of a worker's rounds, and the geometric mean of that over the workers."""
    return _interval(_moderated(_by_repeat(_round_medians(blocks))))


def time_ratio(numerator: Sequence[Block], denominator: Sequence[Block]) -> Estimate:
    """Time of one case over that of another, from the rounds that both were in, if any; otherwise from all.

    Two blocks of the same round are close in time, so slow changes of the machine cancel.
    """
    ratios = paired_ratios(numerator, denominator)
    return _interval(_moderated(ratios)) if ratios else unpaired_ratio(numerator, denominator)


def paired_ratios(numerator: Sequence[Block], denominator: Sequence[Block]) -> tuple[tuple[float, ...], ...]:
    """The time of one case over that of another in the rounds that both were in, by repeat."""
    over, under = _round_medians(numerator), _round_medians(denominator)
    return _by_repeat({key: over[key] / under[key] for key in over if key in under})


def mean_over_processes(values: Sequence[float], scatter: float = _ROUND_SCATTER) -> Estimate:
    """Geometric mean of a number that each process has once. scatter: assumed, of the logarithms."""
    return _interval(_moderated(tuple((value,) for value in values), scatter))


def unpaired_ratio(numerator: Sequence[Block], denominator: Sequence[Block]) -> Estimate:
    """Time of a case over another's, rounds unpaired; the interval leaves out changes of the machine between runs."""
    over, under = (_moderated(_by_repeat(_round_medians(side))) for side in (numerator, denominator))
    variances = over.error**2, under.error**2
    # of the difference of two means, by Welch and Satterthwaite
    degrees = sum(variances) ** 2 / (variances[0] ** 2 / over.degrees + variances[1] ** 2 / under.degrees)
    processes, has_interval = min(over.processes, under.processes), over.has_interval and under.has_interval
    return _interval(_Mean(over.value - under.value, math.sqrt(sum(variances)), degrees, processes, has_interval))


def _round_medians(blocks: Iterable[Block]) -> dict[tuple[int, int], float]:
    """The median of each round, by (repeat, round)."""
    return {(block.repeat, block.round): block.median for block in blocks}


def _by_repeat(rounds: dict[tuple[int, int], float]) -> tuple[tuple[float, ...], ...]:
    """Group values by (repeat, round) into a tuple for each repeat."""
    repeats: dict[int, list[float]] = {}
    for (repeat, _), value in rounds.items():
        repeats.setdefault(repeat, []).append(value)
    return tuple(map(tuple, repeats.values()))


class _Mean(NamedTuple):
    """The mean of the workers' logarithms."""

    value: float
    error: float  # standard error
    degrees: float  # of freedom
    processes: int
    has_interval: bool


@functools.lru_cache(maxsize=1024)
def _moderated(workers: tuple[tuple[float, ...], ...], usual: float = _ROUND_SCATTER) -> _Mean:
    """The mean over workers, each with the values of its rounds, at least one. usual: the scatter of rounds."""
    rounds = [np.log(values) for values in workers]
    values, count = np.array([median(logs) for logs in rounds]), len(rounds)
    # without a worker's smallest deviation: its median is one of its rounds, or between two
    deviations = [far for logs, value in zip(rounds, values, strict=True) for far in sorted(abs(logs - value))[1:]]
    is_known = len(deviations) >= _LEAST_DEVIATIONS
    scatter = _MEDIAN_DEVIATION_TO_SIGMA * median(deviations) if is_known else usual
    expected = _PROCESS_SCATTER + _ERROR_OF_MEDIAN * scatter * math.sqrt(np.mean([1 / len(logs) for logs in rounds]))
    middle = median(values)
    seen = _MEDIAN_DEVIATION_TO_SIGMA * median(abs(values - middle))
    limit = _CLIP * math.sqrt((_PRIOR * expected**2 + count * seen**2) / (_PRIOR + count))
    values = np.clip(values, middle - limit, middle + limit)
    degrees, squares = _PRIOR + count - 1, float(((values - values.mean()) ** 2).sum())
    variance = max((_PRIOR * expected**2 + squares) / degrees, squares / max(count - 1, 1))
    return _Mean(float(values.mean()), math.sqrt(variance / count), degrees, count, is_known or count > 1)


def _interval(mean: _Mean) -> Estimate:
    """The geometric mean with its interval, a t interval of the logarithms."""
    from scipy.special import stdtrit  # imported here: it takes a third of a second

    margin = mean.error * float(stdtrit(mean.degrees, (1 + CONFIDENCE) / 2))
    value, low, high = (math.exp(mean.value + side) for side in (0.0, -margin, margin))
    return Estimate(value, low, high, mean.processes, mean.has_interval)


def drift(blocks: Sequence[Block]) -> float | None:
    """The slowdown from the first to the last third of the rounds, as a fraction; None below six rounds."""
    rounds, third = [block.median for block in blocks], len(blocks) // 3
    return median(rounds[-third:]) / median(rounds[:third]) - 1 if third > 1 else None


def break_even(fast_first: float, fast_call: float, slow_first: float, slow_call: float) -> int:
    """Number of calls from which the faster of two cases takes less total time, its first call included."""
    if fast_first <= slow_first:
        return 1
    return 2 + math.floor((fast_first - slow_first) / (slow_call - fast_call))
