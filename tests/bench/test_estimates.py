"""Confidence intervals have the coverage that they promise, on simulated workers; break-even is what counting gives."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hand_made import blocks as even
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.bench.analysis import estimates
from shared.bench.analysis.estimates import (
    Block,
    Cost,
    Estimate,
    all_seconds,
    break_even,
    drift,
    median_time,
    outliers,
    time_quotient,
    time_ratio,
)

WORKERS, ROUNDS, CALLS = 4, 5, 5

# whole seconds, so that sums are exact: which of two costs is the least is then never a matter of rounding
COSTS = st.builds(Cost, st.integers(0, 200), st.integers(1, 20))


def noisy(
    generator: np.random.Generator, bias: float = 0.01, factor: float = 1.0, workers: int = WORKERS
) -> list[Block]:
    """Blocks of a case: every process is faster or slower by chance, beside the noise of rounds and calls."""
    made = []
    for worker in range(workers):
        own = 1 + bias * generator.standard_normal()
        for round_number in range(ROUNDS):
            noise = (1 + 0.003 * generator.standard_normal()) * (1 + 0.003 * generator.standard_normal(CALLS))
            made.append(Block(worker, round_number, tuple(float(0.01 * factor * own * n) for n in noise)))
    return made


def as_of_one_worker(made: Sequence[Block]) -> list[Block]:
    """The same rounds, as if all were of one process: a bootstrap without the level of workers."""
    return [replace(block, worker=0, round=number) for number, block in enumerate(made)]


def finds_a_difference(ratio: Estimate | None) -> bool:
    assert ratio is not None and not math.isnan(ratio.low)
    return not ratio.holds(1.0)


# coverage and power


def test_false_positives_are_rare_and_without_the_level_of_workers_they_would_not_be():
    generator = np.random.default_rng(1)
    pairs = [(noisy(generator), noisy(generator)) for _ in range(300)]
    # 5 %, and three standard errors of so many comparisons
    assert sum(finds_a_difference(time_ratio(*pair)) for pair in pairs) / len(pairs) < 0.088
    # over the rounds of one worker, where an interval is given only for a time
    flat = [[as_of_one_worker(side) for side in pair] for pair in pairs[:60]]
    ratios = [
        [replace(block, seconds=(np.median(block.seconds) / np.median(other.seconds),))
         for block, other in zip(*pair, strict=True)]
        for pair in flat
    ]  # fmt: skip
    assert sum(finds_a_difference(median_time(blocks)) for blocks in ratios) > 15
    assert all(math.isnan(ratio.low) for pair in flat if (ratio := time_ratio(*pair)) is not None)


def test_a_case_that_takes_5_percent_longer_is_found():
    generator = np.random.default_rng(2)
    ratios = [time_ratio(noisy(generator, factor=1.05), noisy(generator)) for _ in range(50)]
    assert sum(ratio is not None and ratio.low > 1 for ratio in ratios) >= 45


def test_a_quotient_of_two_runs_finds_5_percent_with_few_false_positives():
    generator = np.random.default_rng(3)
    longer = [time_quotient(noisy(generator, factor=1.05), noisy(generator)) for _ in range(30)]
    same = [time_quotient(noisy(generator), noisy(generator)) for _ in range(120)]
    assert sum(found.low > 1 for found in longer) >= 27
    assert sum(map(finds_a_difference, same)) <= 12


def test_a_drift_that_both_share_cancels_in_the_ratio():
    generator = np.random.default_rng(8)
    slower, faster = noisy(generator, bias=0.0, factor=1.1), noisy(generator, bias=0.0)
    # the machine gets slower from round to round, up to three times
    pace = {(block.worker, block.round): 1 + 2 * number / 19 for number, block in enumerate(faster)}
    drifting = [
        [replace(b, seconds=tuple(value * pace[b.worker, b.round] for value in b.seconds)) for b in side]
        for side in (slower, faster)
    ]
    ratio, time = time_ratio(*drifting), median_time(drifting[0])
    assert ratio is not None and time is not None
    assert ratio.value == pytest.approx(1.1, rel=0.005) and ratio.relative_half_width < 0.005
    assert time.relative_half_width > 0.2


# values and intervals


def test_the_same_samples_give_the_same_interval_around_the_median_of_each_worker():
    ragged = [*even([0.25, 0.25, 0.25]), Block(1, 0, (0.5,)), Block(2, 0, (0.125, 0.25))]
    found = median_time(ragged)
    # each worker counts once, however many rounds it had
    assert found is not None and found.value == pytest.approx((0.25 * 0.5 * 0.1875) ** (1 / 3))
    assert found.low < found.value < found.high
    # of a single worker the ends are medians of resampled rounds
    one = even([0.5, 0.25, 0.125], workers=1)
    assert median_time(one) == (0.25, 0.125, 0.5)
    estimates._estimate.cache_clear()
    assert median_time(one) == (0.25, 0.125, 0.5)


def test_only_rounds_that_both_were_in_make_the_ratio():
    both, more = [Block(0, 0, (0.5,)), Block(1, 0, (0.5,))], [Block(0, 1, (64.0,)), Block(1, 1, (64.0,))]
    faster = even([0.25], workers=2)
    assert time_ratio([*both, *more], faster) == time_ratio(both, faster)
    assert time_ratio(more, faster) is None
    assert time_ratio([], faster) is None and median_time([]) is None


def test_too_few_rounds_or_workers_have_no_interval():
    one, two = even([0.5]), even([0.25, 0.25])
    found = median_time(one)
    assert found is not None and found.value == 0.5 and math.isnan(found.low) and not found.holds(0.5)
    ratio = time_ratio(two, two)
    assert ratio is not None and ratio.value == 1.0 and math.isnan(ratio.low) and math.isnan(ratio.high)
    for new, old, value in ((one, two, 2.0), (two, one, 0.5)):
        quotient = time_quotient(new, old)
        assert quotient.value == pytest.approx(value) and math.isnan(quotient.low) and math.isnan(quotient.high)


# outliers and drift


def test_outliers_are_counted_on_both_sides_and_kept():
    made = [Block(0, 0, (1.0, 1.1, 1.2, 1.3, 1.4)), Block(0, 1, (1.0, 1.1, 1.2, 1.3, 9.0, 0.01))]
    assert outliers(made) == 2
    assert len(all_seconds(made)) == 11 and max(all_seconds(made)) == 9.0
    assert outliers(even([1.0] * 9)) == outliers([]) == 0
    assert outliers([Block(0, 0, tuple(1 + 0.01 * n for n in range(50)))]) == 0


def test_drift_is_the_last_third_over_the_first():
    assert drift(even([1.0, 1.0, 5.0, 5.0, 1.5, 1.5])) == pytest.approx(0.5)
    assert drift(even([2.0, 2.0, 2.0, 1.0, 1.0, 1.0], workers=1)) == pytest.approx(-0.5)
    assert drift(even([1.0, 2.0, 3.0, 4.0, 5.0])) is None  # too few rounds


# break-even


@settings(max_examples=100, deadline=None, derandomize=True)
@given(costs=st.tuples(COSTS, COSTS))
@example(costs=(Cost(12, 1), Cost(2, 2)))  # equal at call 11, so 12 is the first that takes less
def test_break_even_is_the_first_number_of_calls_that_takes_less_time(costs: tuple[Cost, Cost]):
    cheaper, dearer = sorted(costs)

    def total(cost: Cost, calls: int) -> float:
        return cost.first + (calls - 1) * cost.each

    less = (calls for calls in range(1, 400) if total(dearer, calls) < total(cheaper, calls))
    if cheaper.first == dearer.first:
        assert break_even(dearer, cheaper) == 1
    else:
        assert break_even(dearer, cheaper) == next(less, None)
