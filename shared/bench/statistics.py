"""What the samples of a run say: medians and ratios with 95 % intervals, drift, outliers, and what compiling costs.

A sample is the wall time of one call. Samples come in blocks: one case, one round of one worker process. Two calls of a
block share the state of the machine, and two rounds of a worker share the worker's luck: where its memory happens to
lie makes a process a percent faster or slower for as long as it lives. What is independent is a whole worker. So each
worker gives one value, the median of its rounds' medians, and the interval is Student's over the workers' logarithms.
A percentile bootstrap over four or five workers cannot do this: all of them lie on the same side of the truth once in 8
or 16 times, and then every resample does. The time of one worker alone has a bootstrap interval over its rounds, which
does not know of its luck; a ratio has none then, so that nothing is decided.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 4000  # of the rounds of a single worker
CONFIDENCE = 0.95
# Tukey's far-out fence: this many interquartile ranges beyond the quartiles
FENCE = 3.0
# An interval that holds 1 says "no difference" if it is narrower than this to each side; a wider one says nothing.
WIDE = 0.05


class Block(NamedTuple):
    """Calls of one case that were timed one after the other."""

    worker: int  # which fresh process, counted over the run
    round: int  # which round of that worker
    seconds: tuple[float, ...]


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
    def is_wide(self) -> bool:
        """Whether the interval is so wide that a difference of WIDE would not show."""
        return not self.relative_half_width <= WIDE

    def holds(self, value: float) -> bool:
        """Whether a value is inside the interval."""
        return self.low <= value <= self.high


def all_seconds(blocks: Iterable[Block]) -> list[float]:
    """Every sample, in the order in which it was taken."""
    return [seconds for block in blocks for seconds in block.seconds]


def median_time(blocks: Sequence[Block]) -> Estimate | None:
    """Time of a call: the median of a worker's rounds, and the geometric mean of that over the workers.

    Without an interval (NaN) where there are too few rounds for one. None without samples.
    """
    return _estimate(_by_worker({(b.worker, b.round): _median(b.seconds) for b in blocks})) if blocks else None


def time_ratio(slower: Sequence[Block], faster: Sequence[Block]) -> Estimate | None:
    """Time of one case over that of another, from the rounds that both were in. None if there are none.

    Two blocks of the same round lie next to each other in time, so what changes slowly in the machine cancels. Without
    an interval (NaN) where one worker alone had both.
    """
    over, under = ({(b.worker, b.round): _median(b.seconds) for b in side} for side in (slower, faster))
    ratios = {key: over[key] / under[key] for key in over if key in under}
    if not ratios:
        return None
    found = _estimate(_by_worker(ratios))
    return found if len({worker for worker, _ in ratios}) > 1 else Estimate(found.value, math.nan, math.nan)


def time_quotient(new: Sequence[Block], old: Sequence[Block]) -> Estimate:
    """Time of a case in one run over its time in another. The interval is Welch's, over the workers of each run.

    The rounds of two runs have nothing to do with each other. What changed in the machine between the runs is not in
    the interval.
    """
    from scipy.stats import ttest_ind

    logs = [
        [math.log(_median(rounds)) for rounds in _by_worker({(b.worker, b.round): _median(b.seconds) for b in side})]
        for side in (new, old)
    ]
    value = math.exp(float(np.mean(logs[0]) - np.mean(logs[1])))
    if min(map(len, logs)) < 2:
        return Estimate(value, math.nan, math.nan)
    if len(set(logs[0])) == len(set(logs[1])) == 1:  # no spread at all: the test has nothing to divide by
        return Estimate(value, value, value)
    interval = ttest_ind(*logs, equal_var=False).confidence_interval(CONFIDENCE)
    return Estimate(value, math.exp(interval.low), math.exp(interval.high))


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


def _by_worker(rounds: dict[tuple[int, int], float]) -> tuple[tuple[float, ...], ...]:
    """The values of each worker's rounds, out of values by (worker, round)."""
    workers: dict[int, list[float]] = {}
    for (worker, _), value in rounds.items():
        workers.setdefault(worker, []).append(value)
    return tuple(map(tuple, workers.values()))


@functools.lru_cache(maxsize=1024)
def _estimate(workers: tuple[tuple[float, ...], ...]) -> Estimate:
    """The geometric mean of the workers' medians, with its interval."""
    # here: it takes a third of a second to import, and the workers have no use for it
    from scipy.stats import bootstrap, t

    medians = [_median(rounds) for rounds in workers]
    if len(medians) > 1:
        if min(medians) == max(medians):  # itself, not what its logarithm rounds to
            return Estimate(medians[0], medians[0], medians[0])
        logs = np.log(medians)
        middle, spread = float(logs.mean()), float(logs.std(ddof=1))
        half = float(t.ppf((1 + CONFIDENCE) / 2, len(medians) - 1)) * spread / len(medians) ** 0.5
        return Estimate(math.exp(middle), math.exp(middle - half), math.exp(middle + half))
    (rounds,) = workers
    if len(rounds) == 1:
        return Estimate(rounds[0], math.nan, math.nan)
    found = bootstrap(
        (np.array(rounds),), np.median, n_resamples=RESAMPLES, confidence_level=CONFIDENCE,
        method="percentile", rng=np.random.default_rng(0),  # the same samples give the same interval
    ).confidence_interval  # fmt: skip
    return Estimate(medians[0], float(found.low), float(found.high))


def outliers(blocks: Sequence[Block]) -> int:
    """How many samples lie far beyond the quartiles (Tukey's outer fences). They are counted, never left out."""
    seconds = np.array(all_seconds(blocks))
    if not seconds.size:
        return 0
    low, high = np.percentile(seconds, [25, 75])
    margin = FENCE * (high - low)
    return int(((seconds < low - margin) | (seconds > high + margin)).sum())


def drift(blocks: Sequence[Block]) -> float | None:
    """How much slower the last third of the rounds was than the first, as a fraction; None for less than six rounds."""
    rounds = [_median(block.seconds) for block in blocks]
    third = len(rounds) // 3
    if third < 2:
        return None
    return _median(rounds[-third:]) / _median(rounds[:third]) - 1


class Cost(NamedTuple):
    """What n calls of a case take: the first, which compiles, and every other one."""

    first: float
    each: float

    def of(self, calls: int) -> float:
        """Seconds for that many calls."""
        return self.first + (calls - 1) * self.each


def break_even(dearer: Cost, cheaper: Cost) -> int | None:
    """From how many calls on the one with the dearer first call takes less time in all; None if it never does."""
    if dearer.first <= cheaper.first:
        return 1
    if dearer.each >= cheaper.each:
        return None
    return 2 + math.floor((dearer.first - cheaper.first) / (cheaper.each - dearer.each))


def cheapest_by_calls(costs: Sequence[Cost]) -> list[tuple[int, int]]:
    """(calls, index): from that many calls on this cost is the least, until the next one's number. Starts at 1."""
    if not costs:
        return []
    best = min(range(len(costs)), key=lambda index: (costs[index].first, costs[index].each))
    steps = [(1, best)]
    while True:
        calls, best = steps[-1]
        later = [
            (max(point, calls + 1), index)
            for index in range(len(costs))
            if costs[index].each < costs[best].each and (point := break_even(costs[index], costs[best])) is not None
        ]
        if not later:
            return steps
        # several may overtake between the same two calls: the least of them all is next
        point = min(point for point, _ in later)
        steps.append((point, min((costs[index].of(point), index) for at, index in later if at == point)[1]))
