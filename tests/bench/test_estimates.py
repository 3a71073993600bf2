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
    time_quotient,
    time_ratio,
)

ROUNDS = 20


def noisy(generator: np.random.Generator, ratio: float, processes: int) -> tuple[list[Block], list[Block]]:
    """Blocks of two cases, with the noise of recorded runs: processes differ by 2 %, one in 20 by 30 %."""
    odd = (generator.random(processes) < 0.05) * generator.normal(0, 0.3, processes)
    scatter = generator.normal(0, 0.02, processes) + odd
    ratios = np.exp(math.log(ratio) + scatter[:, None] + 0.06 * generator.standard_t(2.5, (processes, ROUNDS)))
    places = [*np.ndindex(processes, ROUNDS)]
    first = [Block.of(worker, number, [float(ratios[worker, number])]) for worker, number in places]
    return first, [block._replace(median=1.0) for block in first]


# coverage and power


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_intervals_cover_what_is_true_and_large_differences_are_found(processes: int):
    generator = np.random.default_rng(processes)
    same = [time_ratio(*noisy(generator, 1.0, processes)) for _ in range(400)]
    # 95 %, and three standard errors of so many comparisons
    assert sum(ratio.low <= 1 <= ratio.high for ratio in same) >= 0.917 * len(same)
    faster = [time_ratio(*noisy(generator, 1.3, processes)) for _ in range(200)]
    assert sum(ratio.low > 1 for ratio in faster) >= (0.77 if processes < 3 else 0.93) * len(faster)
    much_faster = [time_ratio(*noisy(generator, 7.0, processes)) for _ in range(100)]
    assert sum(ratio.low > 1 for ratio in much_faster) >= 99


def test_a_quotient_of_two_runs_has_few_false_positives_and_finds_large_differences():
    generator = np.random.default_rng(3)

    def quotients(ratio: float) -> list[Estimate]:
        return [time_quotient(noisy(generator, ratio, 5)[0], noisy(generator, 1.0, 5)[0]) for _ in range(200)]

    assert sum(ratio.low <= 1 <= ratio.high for ratio in quotients(1.0)) >= 180
    assert sum(ratio.low > 1 for ratio in quotients(1.3)) >= 190


def test_a_drift_that_both_share_cancels_in_the_ratio():
    # the machine gets slower from round to round, in every worker
    slower, faster = (
        [Block.of(w, r, [seconds * (1 + r + w)]) for w in range(4) for r in range(5)] for seconds in (2, 1)
    )
    assert time_ratio(slower, faster).value == pytest.approx(2.0)
    assert time_ratio(slower, faster).relative_half_width < 0.02
    assert median_time(slower).relative_half_width > 0.2


# values and intervals


def test_each_worker_counts_once_however_many_rounds_it_had():
    ragged = [*even([0.25, 0.25, 0.25]), Block.of(1, 0, [0.26]), Block.of(2, 0, [0.24, 0.25])]
    found = median_time(ragged)
    assert found.value == pytest.approx((0.25 * 0.26 * 0.245) ** (1 / 3))
    assert found.low < found.value < found.high


def test_only_rounds_that_both_were_in_make_the_ratio_unless_there_are_none():
    both, more = (
        [Block.of(worker, round_, [seconds]) for worker in range(3)] for round_, seconds in ((0, 0.5), (1, 64.0))
    )
    faster = even([0.25], workers=3)
    assert time_ratio([*both, *more], faster) == time_ratio(both, faster)
    assert time_ratio(both, faster).value == 2.0
    assert time_ratio(more, faster) == time_quotient(more, faster)
    assert time_ratio(more, faster).value == pytest.approx(256.0)


def test_one_odd_process_of_five_does_not_decide():
    slower = [Block.of(w, r, [math.exp(x)]) for w, x in enumerate((0.3, 0.31, 0.29, 0.3, -0.5)) for r in range(20)]
    assert time_ratio(slower, even([1.0] * 20, workers=5)).low > 1.1


def test_processes_that_agree_narrow_the_interval():
    rounds = [1.01, 1.03, 1.0, 1.05, 1.02, 1.01, 1.04]
    widths = [median_time(even(rounds, workers=count)).relative_half_width for count in range(1, 12)]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] > 0.005  # rounds are no processes


def test_a_few_rounds_of_one_process_are_no_interval_of_its_own():
    assert not median_time(even([0.5] * 6)).is_measured
    assert median_time(even([0.5] * 7)).is_measured
    assert median_time(even([0.5], workers=2)).is_measured
    assert not time_quotient(even([0.5] * 7), even([0.5])).is_measured
    assert of_processes([1.0, 4.0]).processes == 2


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (2.0, 3.0, "different"),
        (0.5, 0.9, "different"),
        (1.01, 1.04, "different"),  # goes beyond 3 %
        (1.01, 1.02, "same"),  # a difference, but one within 3 %
        (0.98, 1.02, "same"),
        (0.98, 1.05, "one-sided"),
        (0.9, 1.0, "one-sided"),
        (0.95, 1.05, "open"),
    ],
)
def test_a_ratio_is_different_the_same_one_sided_or_open(low: float, high: float, outcome: str):
    ratio = Estimate((low + high) / 2, low, high)
    assert ratio.outcome == ratio.inverse.outcome == outcome
    assert ratio.most == ratio.inverse.most >= 1


# drift


def test_drift_is_the_last_third_over_the_first():
    assert drift(even([1.0, 1.0, 5.0, 5.0, 1.5, 1.5])) == pytest.approx(0.5)
    assert drift(even([1.0, 2.0, 3.0, 4.0, 5.0])) is None  # too few rounds


# break-even

SECONDS = st.integers(1, 200)  # whole, so that sums are exact


@settings(max_examples=100, deadline=None, derandomize=True)
@given(fast=SECONDS, slow=SECONDS, call=st.integers(1, 20), more=st.integers(1, 20))
@example(fast=12, slow=2, call=1, more=1)  # equal at call 11, so 12 is the first that takes less
def test_break_even_is_the_first_number_of_calls_that_takes_less_time(fast: int, slow: int, call: int, more: int):
    less = (n for n in range(1, 400) if fast + (n - 1) * call < slow + (n - 1) * (call + more))
    assert break_even(fast, call, slow, call + more) == (1 if fast == slow else next(less))
