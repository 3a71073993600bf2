"""Confidence intervals have the coverage that they promise, on simulated workers; break-even is what counting gives."""

import math

import numpy as np
import pytest
from hand_made import blocks as even
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.bench.estimates import (
    Block,
    Estimate,
    break_even,
    drift,
    median_time,
    of_processes,
    ratio_drift,
    time_quotient,
    time_ratio,
)

WORKERS, ROUNDS = 4, 5


def noisy(generator: np.random.Generator, factor: float = 1.0) -> list[Block]:
    """Blocks of a case: every process is about 1 % faster or slower by chance, beside the noise of its rounds."""
    workers = 1 + 0.01 * generator.standard_normal((WORKERS, 1))
    seconds = 0.01 * factor * workers * (1 + 0.003 * generator.standard_normal((WORKERS, ROUNDS)))
    return [
        Block.of(worker, number, [float(seconds[worker, number])]) for worker, number in np.ndindex(WORKERS, ROUNDS)
    ]


# coverage and power


def test_false_positives_are_rare():
    generator = np.random.default_rng(1)
    ratios = [time_ratio(noisy(generator), noisy(generator)) for _ in range(300)]
    # 5 %, and three standard errors of so many comparisons
    assert sum(not ratio.low <= 1 <= ratio.high for ratio in ratios) / len(ratios) < 0.088


def test_a_case_that_takes_5_percent_longer_is_found():
    generator = np.random.default_rng(2)
    ratios = [time_ratio(noisy(generator, factor=1.05), noisy(generator)) for _ in range(50)]
    assert sum(ratio.low > 1 for ratio in ratios) >= 45


def test_a_quotient_of_two_runs_finds_5_percent_with_few_false_positives():
    generator = np.random.default_rng(3)
    longer = [time_quotient(noisy(generator, factor=1.05), noisy(generator)) for _ in range(30)]
    same = [time_quotient(noisy(generator), noisy(generator)) for _ in range(120)]
    assert sum(found.low > 1 for found in longer) >= 27
    assert sum(not found.low <= 1 <= found.high for found in same) <= 12


def test_a_drift_that_both_share_cancels_in_the_ratio():
    # the machine gets slower from round to round, in every worker
    slower, faster = (
        [Block.of(w, r, [seconds * (1 + r + w)]) for w in range(4) for r in range(5)] for seconds in (2, 1)
    )
    assert time_ratio(slower, faster) == pytest.approx((2.0, 2.0, 2.0))
    assert median_time(slower).relative_half_width > 0.2


# values and intervals


def test_each_worker_counts_once_however_many_rounds_it_had():
    ragged = [*even([0.25, 0.25, 0.25]), Block.of(1, 0, [0.5]), Block.of(2, 0, [0.125, 0.25])]
    found = median_time(ragged)
    assert found.value == pytest.approx((0.25 * 0.5 * 0.1875) ** (1 / 3))
    assert found.low < found.value < found.high


def test_only_rounds_that_both_were_in_make_the_ratio():
    both, more = (
        [Block.of(worker, round_, [seconds]) for worker in range(3)] for round_, seconds in ((0, 0.5), (1, 64.0))
    )
    faster = even([0.25], workers=3)
    assert time_ratio([*both, *more], faster) == time_ratio(both, faster) == (2.0, 2.0, 2.0)
    assert all(map(math.isnan, time_ratio(more, faster)))


def test_one_or_two_workers_have_no_interval():
    one, two, three = even([0.5]), even([0.25, 0.25], workers=2), even([0.25], workers=3)
    for found, value in (
        (median_time(one), 0.5), (median_time(two), 0.25), (time_ratio(two, three), 1.0),
        (time_quotient(one, three), 2.0), (time_quotient(three, two), 1.0), (of_processes([1.0, 4.0]), 2.0),
    ):  # fmt: skip
        assert found.value == pytest.approx(value) and math.isnan(found.low) and math.isnan(found.high)
        assert found.outcome == "not decided"


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (2.0, 3.0, "different"),
        (0.5, 0.9, "different"),
        (1.01, 1.04, "different"),  # goes beyond 3 %
        (1.01, 1.02, "same"),  # a difference, but one within 3 %
        (0.98, 1.02, "same"),
        (0.95, 1.05, "not decided"),
    ],
)
def test_a_ratio_is_different_same_or_not_decided(low: float, high: float, outcome: str):
    assert Estimate((low + high) / 2, low, high).outcome == outcome


# drift


def test_drift_is_the_last_third_over_the_first():
    assert drift(even([1.0, 1.0, 5.0, 5.0, 1.5, 1.5])) == pytest.approx(0.5)
    assert drift(even([1.0, 2.0, 3.0, 4.0, 5.0])) is None  # too few rounds
    moving, faster = even([1.0, 1.0, 5.0, 5.0, 2.0, 2.0]), even([1.0, 1.0, 1.0, 1.0, 1.6, 1.6])
    assert ratio_drift(moving, faster) == pytest.approx(0.25)  # what both share cancels
    assert ratio_drift(moving, faster[:-1]) is None


# break-even

SECONDS = st.integers(1, 200)  # whole, so that sums are exact


@settings(max_examples=100, deadline=None, derandomize=True)
@given(fast=SECONDS, slow=SECONDS, call=st.integers(1, 20), more=st.integers(1, 20))
@example(fast=12, slow=2, call=1, more=1)  # equal at call 11, so 12 is the first that takes less
def test_break_even_is_the_first_number_of_calls_that_takes_less_time(fast: int, slow: int, call: int, more: int):
    less = (n for n in range(1, 400) if fast + (n - 1) * call < slow + (n - 1) * (call + more))
    assert break_even(fast, call, slow, call + more) == (1 if fast == slow else next(less))
