"""Neither side has the better place, the order is one of the seed's, and the rounds fit into the time that there is."""

import itertools
import math
from collections.abc import Sequence

import pytest
from hand_made import case, record, right, steady
from hypothesis import given, settings
from hypothesis import strategies as st
from shared.bench.plan import Case, Settings
from shared.bench.schedule import (
    BLOCK_SECONDS,
    MOST_CALLS,
    block_seconds,
    calls_in_block,
    is_precise,
    is_rehearsed,
    lead_calls,
    order,
    rounds_that_fit,
)
from shared.bench.statistics import Block
from shared.bench.verdict import deciding

from shared.bench.record import Result

EXAMPLES = settings(max_examples=200, deadline=None, derandomize=True)
SECONDS = st.floats(1e-7, 1e3)
CASES = [
    case(framework, variant, pass_name)
    for pass_name in ("score", "marginals")
    for variant in ("vmap", "wavefront", "fused")
    for framework in ("jax", "torch")
]


def ordered(round_number: int, worker: int = 0, seed: int = 0, cases: Sequence[Case] = CASES) -> list[list[Case]]:
    return order(cases, Settings(seed=seed), worker, round_number)


def flat(groups: list[list[Case]]) -> list[Case]:
    return list(itertools.chain.from_iterable(groups))


# the order


@pytest.mark.parametrize("round_number", [0, 2, 4])
def test_the_second_of_two_rounds_is_the_first_one_backwards(round_number: int):
    assert flat(ordered(round_number + 1)) == flat(ordered(round_number))[::-1]


def test_two_cases_alternate_as_a_b_b_a():
    pair = [case("jax", "vmap"), case("torch", "vmap")]
    first, second = (flat(ordered(number, cases=pair)) for number in (0, 1))
    assert sorted(first, key=lambda one: one.framework) == pair and second == first[::-1]


@pytest.mark.parametrize("round_number", range(4))
def test_cases_that_differ_in_the_framework_alone_stand_next_to_each_other(round_number: int):
    groups = ordered(round_number)
    assert all({one.framework for one in group} == {"jax", "torch"} for group in groups)
    assert all(len({one.match for one in group}) == 1 for group in groups)
    assert len({group[0].match for group in groups}) == len(groups) == 6


def test_the_two_sides_of_a_case_stand_next_to_each_other():
    sides = [case("jax", variant, side=side) for variant in ("vmap", "fused") for side in (1, 2)]
    assert all({one.side for one in group} == {1, 2} for group in ordered(0, cases=sides))


@pytest.mark.parametrize("round_number", range(4))
def test_every_round_has_every_case_once(round_number: int):
    found = flat(ordered(round_number))
    assert len(found) == len(CASES) and set(found) == set(CASES)


def test_the_order_is_the_same_for_the_same_seed():
    assert ordered(2, worker=1, seed=7) == ordered(2, worker=1, seed=7)


def test_seed_worker_and_every_second_round_shuffle_anew():
    orders = [flat(ordered(number, worker, seed)) for number in (0, 2) for worker in (0, 1) for seed in (0, 1)]
    assert len({tuple(found) for found in orders}) == len(orders)


def test_each_framework_is_the_first_of_its_group_about_as_often():
    first = [group[0].framework for worker in range(40) for group in ordered(0, worker)]
    assert 0.4 < first.count("jax") / len(first) < 0.6


def test_the_order_of_the_plan_is_not_the_order_of_the_rounds():
    assert any(flat(ordered(0, worker)) != CASES for worker in range(3))


def test_no_cases_have_an_order_too():
    assert ordered(0, cases=[]) == []


# blocks


@EXAMPLES
@given(seconds=SECONDS)
def test_a_block_has_at_least_one_call_and_not_too_many(seconds: float):
    calls = calls_in_block(seconds)
    assert 1 <= calls <= MOST_CALLS
    assert calls == 1 or calls * seconds <= BLOCK_SECONDS * (1 + 1e-9)
    # nor fewer than there is time for
    assert calls == MOST_CALLS or (calls + 1) * seconds > BLOCK_SECONDS * (1 - 1e-9)


def test_a_call_that_took_no_time_at_all_makes_a_block_too():
    assert calls_in_block(0.0) == MOST_CALLS


@pytest.mark.parametrize(
    ("seconds", "lead", "rehearsed", "in_all"),
    [
        (0.001, 4, True, 30 * 0.001),
        (0.002, 3, True, 16 * 0.002),
        (0.02, 1, True, 3 * 0.02),
        (0.025, 0, True, 2 * 0.025),
        (0.1, 0, False, 0.1),
        (9, 0, False, 9),
    ],
)
def test_a_short_block_begins_with_calls_that_are_not_timed(seconds: float, lead: int, rehearsed: bool, in_all: float):
    assert lead_calls(seconds) == lead
    assert is_rehearsed(seconds) == rehearsed
    assert block_seconds(seconds) == pytest.approx(in_all)


# how many rounds


def taken(costs: Sequence[float], counts: Sequence[int]) -> float:
    return sum(cost * count for cost, count in zip(costs, counts, strict=True))


costs_of_groups = st.lists(st.one_of(st.just(0.0), SECONDS), max_size=12)


@EXAMPLES
@given(costs=costs_of_groups, rounds=st.integers(2, 20), seconds=st.floats(-10, 1e4), least=st.integers(1, 2))
def test_rounds_fit_into_the_time_unless_the_least_already_takes_longer(
    costs: list[float], rounds: int, seconds: float, least: int
):
    counts = rounds_that_fit(costs, rounds, seconds, least)
    assert len(counts) == len(costs) and all(least <= count <= rounds for count in counts)
    fewest = [least if cost else rounds for cost in costs]
    assert taken(costs, counts) <= seconds or counts == fewest


@EXAMPLES
@given(costs=costs_of_groups, rounds=st.integers(2, 20), seconds=st.floats(0, 1e4))
def test_a_cheaper_group_gets_no_fewer_rounds(costs: list[float], rounds: int, seconds: float):
    counts = rounds_that_fit(costs, rounds, seconds, 1)
    by_cost = [count for _, count in sorted(zip(costs, counts, strict=True), key=lambda pair: (pair[0], -pair[1]))]
    assert by_cost == sorted(by_cost, reverse=True)


@EXAMPLES
@given(costs=costs_of_groups, rounds=st.integers(2, 20), seconds=st.floats(0, 1e4))
def test_hardly_any_time_is_left_that_one_more_round_of_all_dear_groups_would_fit_into(
    costs: list[float], rounds: int, seconds: float
):
    counts = rounds_that_fit(costs, rounds, seconds, 1)
    left = seconds - taken(costs, counts)
    fewer = [cost for cost, count in zip(costs, counts, strict=True) if count < rounds]
    assert not fewer or left < sum(fewer) * (1 + 1e-6)


def test_with_time_enough_every_group_has_all_rounds():
    assert rounds_that_fit([0.1, 1.0, 2.0], 5, 15.5, 1) == [5, 5, 5]
    assert rounds_that_fit([], 5, 0.0, 1) == []


def test_a_dear_group_has_fewer_rounds_and_the_cheap_ones_all_of_theirs():
    assert rounds_that_fit([0.1, 10.0, 0.2], 5, 32.0, 1) == [5, 3, 5]


def test_without_time_every_group_has_the_least():
    assert rounds_that_fit([0.1, 10.0], 5, -1.0, 2) == [2, 2]


# when it is enough


def precise(*results: Result, precision: float = 0.02) -> bool:
    wanted = Settings(passes=tuple(dict.fromkeys(one.case.pass_name for one in results)), precision=precision)
    return is_precise(deciding(record(*results, settings=wanted)), wanted)


NARROW = [steady(case(framework, "vmap"), seconds) for framework, seconds in (("jax", 0.25), ("torch", 0.5))]
# workers and rounds differ by far, but either framework by as much as the other, so that only the ratio is sure
TOGETHER = [
    Result(case(framework, "vmap"), blocks=[Block(w, r, (factor * (1 + w + r),)) for w in range(4) for r in (0, 1)])
    for framework, factor in (("jax", 1.0), ("torch", 2.0))
]
WIDE = [right(case("jax", "vmap"), 1.0, 2.0, 3.0), right(case("torch", "vmap"), 3.0, 2.0, 1.0)]
ONE_ROUND = [right(case("jax", "vmap"), 0.25), right(case("torch", "vmap"), 0.5)]


def test_narrow_intervals_of_the_ratio_are_precise_whatever_those_of_the_times_are():
    assert precise(*NARROW) and precise(*TOGETHER)
    assert not precise(*WIDE)


def test_one_wide_interval_among_narrow_ones_is_not_precise():
    wide = [Result(case(one.case.framework, "vmap", "marginals"), blocks=one.blocks) for one in WIDE]
    assert not precise(*NARROW, *wide)


def test_one_round_is_never_precise():
    assert math.isnan(ONE_ROUND[0].time.low)
    assert not precise(*ONE_ROUND, precision=1e9)


def test_with_one_framework_its_time_must_be_precise():
    assert precise(NARROW[0]) and not precise(TOGETHER[0])
    assert not precise(ONE_ROUND[0], precision=1e9)


def test_the_precision_asked_for_is_the_line():
    results = right(case("jax", "vmap"), 0.9, 0.9, 1.0, 1.0, 1.0, 1.1, 1.1)
    width = results.time.relative_half_width
    assert precise(results, precision=1.01 * width) and not precise(results, precision=0.99 * width)


def test_a_pass_without_any_case_asks_for_nothing():
    assert is_precise(deciding(record(settings=Settings())), Settings())
