"""What the samples of a run say: medians and ratios with 95 % intervals, drift, outliers, and what compiling costs.

A sample is the wall time of one call. Samples come in blocks: one case, one round of one worker process. Two calls of a
block share the state of the machine and of the process, so they are not independent; the intervals therefore resample
workers, then rounds within a worker (a hierarchical bootstrap), never single calls. Without the workers' level a case
compared with itself in two processes differs far too often: where its memory happens to lie makes a process 1 % faster
or slower for as long as it lives.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 4000
CONFIDENCE = 0.95
# Tukey's far-out fence: this many interquartile ranges beyond the quartiles
FENCE = 3.0


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

    def holds(self, value: float) -> bool:
        """Whether a value is inside the interval."""
        return self.low <= value <= self.high


def all_seconds(blocks: Iterable[Block]) -> list[float]:
    """Every sample, in the order in which it was taken."""
    return [seconds for block in blocks for seconds in block.seconds]


def median_time(blocks: Sequence[Block]) -> Estimate | None:
    """Median time of a call; without an interval (NaN) where there are too few rounds for one. None without samples."""
    if not blocks:
        return None
    low, high = _interval(tuple((b.worker, float(np.median(b.seconds))) for b in blocks))
    return Estimate(float(np.median(all_seconds(blocks))), low, high)


def time_ratio(slower: Sequence[Block], faster: Sequence[Block]) -> Estimate | None:
    """Time of one case over that of another: the median over the rounds that both were in. None if there are none.

    Two blocks of the same round lie next to each other in time, so what changes slowly in the machine cancels.
    """
    over, under = ({(b.worker, b.round): float(np.median(b.seconds)) for b in side} for side in (slower, faster))
    logs = {key: math.log(over[key] / under[key]) for key in over if key in under}
    if not logs:
        return None
    low, high = _interval(tuple((worker, value) for (worker, _), value in logs.items()))
    return Estimate(math.exp(float(np.median(list(logs.values())))), math.exp(low), math.exp(high))


def time_quotient(new: Sequence[Block], old: Sequence[Block]) -> Estimate:
    """Time of a case in one run over its time in another: the quotient of the medians.

    The rounds of two runs have nothing to do with each other, so both are resampled, each by itself. What changed in
    the machine between the runs is not in the interval.
    """
    sides = [tuple((block.worker, math.log(float(np.median(block.seconds)))) for block in side) for side in (new, old)]
    value = math.exp(float(np.median([log for _, log in sides[0]]) - np.median([log for _, log in sides[1]])))
    if min(map(len, sides)) < 2:
        return Estimate(value, math.nan, math.nan)
    tables = [_Rounds(side) for side in sides]
    generator = np.random.default_rng(0)
    differences = [table.resampled_medians(RESAMPLES, generator) for table in tables]
    low, high = np.quantile(differences[0] - differences[1], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value, math.exp(low), math.exp(high))


@functools.lru_cache(maxsize=1024)
def _interval(values: tuple[tuple[int, float], ...]) -> tuple[float, float]:
    """95 % percentile interval of the median of (worker, value of a round); NaN for fewer than two rounds."""
    # here: it takes a third of a second to import, and the workers have no use for it
    from scipy.stats import bootstrap

    if len(values) < 2:
        return math.nan, math.nan
    generator = np.random.default_rng(0)  # the same samples give the same interval
    rounds = _Rounds(values)
    if rounds.workers == 1:
        data, statistic = np.array([value for _, value in values]), np.median
    else:
        data, statistic = np.arange(rounds.workers), functools.partial(rounds.redrawn_median, generator)
    found = bootstrap(
        (data,), statistic, n_resamples=RESAMPLES, confidence_level=CONFIDENCE, method="percentile",
        vectorized=True, rng=generator,
    ).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)


class _Rounds:
    """Values of rounds, by worker, to be drawn again."""

    def __init__(self, values: Sequence[tuple[int, float]]) -> None:
        by_worker: dict[int, list[float]] = {}
        for worker, value in values:
            by_worker.setdefault(worker, []).append(value)
        self.workers = len(by_worker)
        self._counts = np.array([len(rounds) for rounds in by_worker.values()])
        most = self._counts.max()
        self._table = np.array([rounds + [math.nan] * (most - len(rounds)) for rounds in by_worker.values()])

    def redrawn_median(self, generator: np.random.Generator, drawn: np.ndarray, axis: int) -> np.ndarray:
        """Median of rounds drawn anew from each drawn worker, along the axis of the draw."""
        drawn = np.moveaxis(drawn, axis, -1)
        rounds = (generator.random((*drawn.shape, self._table.shape[1])) * self._counts[drawn][..., None]).astype(int)
        return np.median(self._table[drawn[..., None], rounds], axis=(-2, -1))

    def resampled_medians(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """So many of them, each of workers drawn anew."""
        drawn = generator.integers(0, self.workers, (count, self.workers))
        return self.redrawn_median(generator, drawn, axis=-1)


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
    rounds = [float(np.median(block.seconds)) for block in blocks]
    third = len(rounds) // 3
    if third < 2:
        return None
    return float(np.median(rounds[-third:]) / np.median(rounds[:third])) - 1


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
            (max(point, calls + 1), costs[index].each, index)
            for index in range(len(costs))
            if costs[index].each < costs[best].each and (point := break_even(costs[index], costs[best])) is not None
        ]
        if not later:
            return steps
        point, _, index = min(later)
        steps.append((point, index))
