"""Intervals that hold what they promise, and counts that a person could have made."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hand_made import blocks as even
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shared.bench.statistics import (
    Block,
    Cost,
    Estimate,
    all_seconds,
    break_even,
    cheapest_by_calls,
    drift,
    median_time,
    outliers,
    time_quotient,
    time_ratio,
)

from shared.bench import statistics

WORKERS, ROUNDS, CALLS = 4, 5, 5
EXAMPLES = settings(max_examples=100, deadline=None, derandomize=True)

# Whole seconds, so that sums are exact: which of two costs is the least is then never a matter of rounding.
COSTS = st.builds(Cost, st.integers(0, 200), st.integers(1, 20))


def noisy(
    generator: np.random.Generator, bias: float = 0.01, factor: float = 1.0, workers: int = WORKERS
) -> list[Block]:
    """Blocks of a case: every process is faster or slower by its own luck, beside the noise of rounds and calls."""
    made = []
    for worker in range(workers):
        luck = 1 + bias * generator.standard_normal()
        for round_number in range(ROUNDS):
            noise = (1 + 0.003 * generator.standard_normal()) * (1 + 0.003 * generator.standard_normal(CALLS))
            made.append(Block(worker, round_number, tuple(float(0.01 * factor * luck * n) for n in noise)))
    return made


def as_of_one_worker(made: Sequence[Block]) -> list[Block]:
    """The same rounds, as if all were of one process: what a bootstrap without the level of workers would take."""
    return [block._replace(worker=0, round=number) for number, block in enumerate(made)]


def calls_a_difference(ratio: Estimate | None) -> bool:
    assert ratio is not None and not math.isnan(ratio.low)
    return not ratio.holds(1.0)


# intervals


@pytest.fixture(scope="module")
def same_case_twice() -> list[tuple[list[Block], list[Block]]]:
    generator = np.random.default_rng(1)
    return [(noisy(generator), noisy(generator)) for _ in range(300)]


def test_a_case_against_itself_is_seldom_called_a_difference(same_case_twice: list[tuple[list[Block], list[Block]]]):
    # 5 %, and three standard errors of so many comparisons
    false = sum(calls_a_difference(time_ratio(*sides)) for sides in same_case_twice)
    assert false / len(same_case_twice) < 0.088


def test_without_the_level_of_workers_it_would_be_called_far_too_often(
    same_case_twice: list[tuple[list[Block], list[Block]]],
):
    # over the rounds of one worker, where an interval is given only for a time
    flat = [[as_of_one_worker(side) for side in sides] for sides in same_case_twice[:100]]
    ratios = [
        [block._replace(seconds=(np.median(block.seconds) / np.median(other.seconds),))
         for block, other in zip(*sides, strict=True)]
        for sides in flat
    ]  # fmt: skip
    assert sum(calls_a_difference(median_time(blocks)) for blocks in ratios) > 30
    assert all(math.isnan(ratio.low) for sides in flat if (ratio := time_ratio(*sides)) is not None)


def test_a_case_that_takes_5_percent_longer_is_found():
    generator = np.random.default_rng(2)
    ratios = [time_ratio(noisy(generator, factor=1.05), noisy(generator)) for _ in range(50)]
    assert sum(ratio is not None and ratio.low > 1 for ratio in ratios) >= 45


def test_a_quotient_of_two_runs_finds_5_percent_and_seldom_a_difference_that_is_not_there():
    generator = np.random.default_rng(3)
    longer = [time_quotient(noisy(generator, factor=1.05), noisy(generator)) for _ in range(30)]
    same = [time_quotient(noisy(generator), noisy(generator)) for _ in range(120)]
    assert sum(found.low > 1 for found in longer) >= 27
    assert sum(map(calls_a_difference, same)) <= 12


@pytest.mark.parametrize("workers", [1, 2, 4, 12])
def test_the_interval_is_around_the_median(workers: int):
    made = noisy(np.random.default_rng(4), workers=workers)
    found = median_time(made)
    assert found is not None
    medians = [np.median([np.median(b.seconds) for b in made if b.worker == worker]) for worker in range(workers)]
    assert found.value == pytest.approx(np.exp(np.mean(np.log(medians))), rel=1e-12)
    assert found.low < found.value < found.high
    assert found.relative_half_width == pytest.approx((found.high - found.low) / 2 / found.value)


def test_the_ends_of_one_worker_s_interval_are_medians_of_rounds_that_were_there():
    made = even([0.5, 0.25, 0.125], workers=1)
    assert median_time(made) == (0.25, 0.125, 0.5)


def test_more_workers_make_a_narrower_interval():
    widths = []
    for workers in (6, 24):
        found = [median_time(noisy(np.random.default_rng(seed), workers=workers)) for seed in range(20)]
        widths.append(np.median([one.relative_half_width for one in found if one is not None]))
    assert widths[1] < 0.7 * widths[0]


def test_the_same_samples_give_the_same_interval():
    made = noisy(np.random.default_rng(5))
    other = noisy(np.random.default_rng(6))
    found = []
    for _ in range(2):
        statistics._estimate.cache_clear()  # or the second time would only be remembered
        found.append((median_time(made), time_ratio(made, other), time_quotient(made, other)))
    assert found[0] == found[1]


def test_the_ratio_of_a_case_to_itself_is_one_and_sure():
    made = noisy(np.random.default_rng(7))
    assert time_ratio(made, made) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("seconds", [[0.5], [0.5, 0.5]])
def test_one_round_has_no_interval(seconds: list[float]):
    made = even(seconds)
    found, ratio = median_time(made), time_ratio(made, made)
    assert found is not None and ratio is not None
    assert math.isnan(found.low) == math.isnan(found.high) == (len(seconds) == 1)
    assert ratio.value == 1.0 and math.isnan(ratio.low) and math.isnan(ratio.high)
    one = median_time(even([0.5]))
    assert one is not None and one.value == 0.5 and not one.holds(0.5)


def test_a_quotient_with_one_round_on_one_side_has_no_interval():
    one, many = even([0.5]), even([0.25, 0.25])
    for new, old, value in ((one, many, 2.0), (many, one, 0.5)):
        found = time_quotient(new, old)
        assert found.value == pytest.approx(value) and math.isnan(found.low) and math.isnan(found.high)


def test_without_samples_there_is_no_median():
    assert median_time([]) is None


def test_workers_may_have_different_numbers_of_rounds():
    ragged = [*even([0.25, 0.25, 0.25]), Block(1, 0, (0.5,)), Block(2, 0, (0.125, 0.25))]
    found = median_time(ragged)
    # each worker counts once, however many rounds it had
    assert found is not None and found.value == pytest.approx((0.25 * 0.5 * 0.1875) ** (1 / 3))
    assert math.isfinite(found.low) and found.low < found.value < found.high
    assert time_quotient(ragged, ragged).holds(1.0)


def test_only_rounds_that_both_were_in_make_the_ratio():
    both, more = [Block(0, 0, (0.5,)), Block(1, 0, (0.5,))], [Block(0, 1, (64.0,)), Block(1, 1, (64.0,))]
    faster = even([0.25], workers=2)
    assert time_ratio([*both, *more], faster) == time_ratio(both, faster)
    assert time_ratio(more, faster) is None
    assert time_ratio([], faster) is None


def test_a_drift_that_both_share_cancels_in_the_ratio():
    generator = np.random.default_rng(8)
    slower, faster = noisy(generator, bias=0.0, factor=1.1), noisy(generator, bias=0.0)
    # the machine gets slower from round to round, up to three times
    pace = {(block.worker, block.round): 1 + 2 * number / 19 for number, block in enumerate(faster)}
    drifting = [
        [b._replace(seconds=tuple(value * pace[b.worker, b.round] for value in b.seconds)) for b in side]
        for side in (slower, faster)
    ]
    ratio, time = time_ratio(*drifting), median_time(drifting[0])
    assert ratio is not None and time is not None
    assert ratio.value == pytest.approx(1.1, rel=0.005) and ratio.relative_half_width < 0.005
    assert time.relative_half_width > 0.2


def test_a_ratio_turned_round_is_its_inverse():
    generator = np.random.default_rng(9)
    first, second = noisy(generator), noisy(generator, factor=1.3)
    one, other = time_ratio(first, second), time_ratio(second, first)
    assert one is not None and other is not None
    assert one.value * other.value == pytest.approx(1.0)
    # the ends change places too
    assert (one.low * other.high, one.high * other.low) == (pytest.approx(1.0, rel=1e-3),) * 2


# outliers and drift


def test_outliers_are_counted_on_both_sides_and_stay():
    made = [Block(0, 0, (1.0, 1.1, 1.2, 1.3, 1.4)), Block(0, 1, (1.0, 1.1, 1.2, 1.3, 9.0, 0.01))]
    assert outliers(made) == 2
    assert len(all_seconds(made)) == 11 and max(all_seconds(made)) == 9.0
    slow = even([1.0, 9.0, 9.0])
    time = median_time(slow)
    assert time is not None and (time.value, time.high) == (9.0, 9.0)


def test_nothing_is_an_outlier_among_even_samples():
    assert outliers(even([1.0] * 9)) == outliers([]) == 0
    assert outliers([Block(0, 0, tuple(1 + 0.01 * n for n in range(50)))]) == 0


def test_drift_is_the_last_third_over_the_first():
    assert drift(even([1.0, 1.0, 5.0, 5.0, 1.5, 1.5])) == pytest.approx(0.5)
    assert drift(even([2.0, 2.0, 2.0, 1.0, 1.0, 1.0], workers=1)) == pytest.approx(-0.5)
    assert drift(even([1.0] * 6)) == 0.0


def test_five_rounds_are_too_few_for_a_drift():
    assert drift(even([1.0, 2.0, 3.0, 4.0, 5.0])) is None
    assert drift([]) is None


# what compiling costs


def test_the_first_call_is_one_of_the_calls():
    assert [Cost(10.0, 2.0).of(calls) for calls in (1, 2, 5)] == [10.0, 12.0, 18.0]


@EXAMPLES
@given(costs=st.tuples(COSTS, COSTS))
@example(costs=(Cost(12, 1), Cost(2, 2)))  # at call 11 they are even, so 12 is the first that takes less
def test_break_even_is_the_first_number_of_calls_that_takes_less_time(costs: tuple[Cost, Cost]):
    cheaper, dearer = sorted(costs)
    less = (calls for calls in range(1, 400) if dearer.of(calls) < cheaper.of(calls))
    if cheaper.first == dearer.first:
        assert break_even(dearer, cheaper) == 1
    else:
        assert break_even(dearer, cheaper) == next(less, None)


@EXAMPLES
@given(costs=st.lists(COSTS, min_size=1, max_size=6))
# two lines cross the first one between the same two calls; the one that is least there is not the one that wins
@example(costs=[Cost(0, 100), Cost(905, 10), Cost(930, 9)])
def test_the_cheapest_by_calls_is_the_least_of_all_at_every_number_of_calls(costs: list[Cost]):
    steps = cheapest_by_calls(costs)
    assert steps[0][0] == 1
    assert [calls for calls, _ in steps] == sorted({calls for calls, _ in steps})
    for calls in range(1, 500):
        _, index = [step for step in steps if step[0] <= calls][-1]
        assert costs[index].of(calls) == min(cost.of(calls) for cost in costs)


def test_without_costs_nothing_is_the_cheapest():
    assert cheapest_by_calls([]) == []
