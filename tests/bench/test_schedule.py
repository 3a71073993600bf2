"""The order of cases is balanced, rounds fit into the budget, and a run ends when its answer is precise."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hand_made import case, facts, record, right, steady
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.bench.cases import Case, Settings
from shared.bench.estimates import Block, Estimate
from shared.bench.questions import QUESTIONS
from shared.bench.record import Result
from shared.bench.run.first_calls import limit_exceeded_with_less_work, memory_exceeded
from shared.bench.run.schedule import (
    BLOCK_SECONDS,
    MOST_CALLS,
    block_of,
    is_precise,
    is_settled,
    order,
    rounds_that_fit,
)

EXAMPLES = settings(max_examples=100, deadline=None, derandomize=True)
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


@pytest.mark.parametrize("round_number", [0, 2])
def test_every_round_has_every_case_once_and_the_next_one_is_it_backwards(round_number: int):
    found = flat(ordered(round_number))
    assert len(found) == len(CASES) and set(found) == set(CASES)
    assert flat(ordered(round_number + 1)) == found[::-1]


def test_cases_that_differ_only_in_framework_or_label_are_adjacent():
    groups = ordered(0)
    assert all({one.framework for one in group} == {"jax", "torch"} for group in groups)
    assert all(len({(one.pass_name, one.variant) for one in group}) == 1 for group in groups)
    labelled = [case("jax", variant, label=label) for variant in ("vmap", "fused") for label in "AB"]
    assert all([one.label for one in group] in (["A", "B"], ["B", "A"]) for group in ordered(0, cases=labelled))


def test_seed_worker_and_every_second_round_shuffle_anew():
    orders = [flat(ordered(number, worker, seed)) for number in (0, 2) for worker in (0, 1) for seed in (0, 1)]
    assert len({tuple(found) for found in orders}) == len(orders)
    assert orders[0] == flat(ordered(0))


# blocks


@EXAMPLES
@given(seconds=SECONDS)
def test_a_block_has_as_many_calls_as_there_is_time_for(seconds: float):
    block = block_of(seconds)
    calls = block.calls
    assert 1 <= calls <= MOST_CALLS == block_of(0.0).calls
    assert calls == 1 or calls * seconds <= BLOCK_SECONDS * (1 + 1e-9)
    assert calls == MOST_CALLS or (calls + 1) * seconds > BLOCK_SECONDS * (1 - 1e-9)
    # slow calls have no untimed ones before them
    assert block.seconds == seconds or seconds < 0.1


# how many rounds


def taken(costs: Sequence[float], counts: Sequence[int]) -> float:
    return sum(cost * count for cost, count in zip(costs, counts, strict=True))


@EXAMPLES
@given(
    costs=st.lists(st.one_of(st.just(0.0), SECONDS), max_size=12),
    rounds=st.integers(2, 20),
    least=st.integers(1, 7),
    seconds=st.floats(-10, 1e4),
)
def test_rounds_fill_the_time_and_cheaper_groups_get_no_fewer(
    costs: list[float], rounds: int, least: int, seconds: float
):
    counts = rounds_that_fit(costs, [least] * len(costs), rounds, seconds)
    least = min(least, rounds)
    assert len(counts) == len(costs) and all(least <= count <= rounds for count in counts)
    by_cost = [count for _, count in sorted(zip(costs, counts, strict=True), key=lambda pair: (pair[0], -pair[1]))]
    assert by_cost == sorted(by_cost, reverse=True)
    left = seconds - taken(costs, counts)
    assert left >= -1e-9 * abs(seconds) or counts == [least if cost else rounds for cost in costs]
    # not even one more round of each group that has fewer would fit
    fewer = [cost for cost, count in zip(costs, counts, strict=True) if count < rounds]
    assert not fewer or left < sum(fewer) * (1 + 1e-6)


def test_slow_calls_have_fewer_rounds_at_least():
    assert [block_of(seconds).rounds for seconds in (1e-6, 0.05, 0.06)] == [7, 7, 5]
    assert rounds_that_fit([1.0, 9.0], [7, 5], 12, 0.0) == [7, 5]


@pytest.mark.parametrize(
    ("ratio", "is_enough"),
    [
        (Estimate(1.3, 1.2, 1.4), True),
        (Estimate(0.8, 0.7, 0.9), True),
        (Estimate(1.0, 0.98, 1.02), True),
        (Estimate(1.3, 1.2, 1.4, 1), False),  # of one process
        (Estimate(1.15, 1.05, 1.25), False),  # a winner, but who stops there finds too many
        (Estimate(1.0, 0.9, 1.1), False),
    ],
)
def test_a_cell_is_left_alone_when_it_is_clear(ratio: Estimate, is_enough: bool):
    assert is_settled(ratio) == is_settled(ratio.inverse) == is_enough


# what is left out


def test_a_variant_over_the_limit_is_not_tried_with_more_work():
    sides = (10, 20, 40)
    made = record(*(right(case("jax", "vmap", input=f"{side}x{side}"), 1.0) for side in sides))
    for side in sides:
        made.inputs[f"{side}x{side}"] = replace(facts(), shape=(1, side, side), work=side * side)
    smallest, middle, largest = made.results
    assert limit_exceeded_with_less_work(made, largest.case) is None
    middle.status, middle.reason = "limit", "> 120 s"
    found = [limit_exceeded_with_less_work(made, result.case) for result in made.results]
    assert found == [None, None, "> 120 s with less work"]
    smallest.status, smallest.reason = "limit", "needs about 93.0 GiB, may take 34.0 GiB"  # every pass has its own need
    assert limit_exceeded_with_less_work(made, largest.case) == "> 120 s with less work"
    smallest.status = "ok"
    largest.status, largest.reason = "limit", found[-1]
    by_marginals = [replace(one.case, pass_name="marginals") for one in (smallest, middle, largest)]
    found = [limit_exceeded_with_less_work(made, case) for case in by_marginals]
    assert found == [None, "> 120 s with less work", "> 120 s with less work"]
    middle.case = by_marginals[1]
    assert limit_exceeded_with_less_work(made, replace(middle.case, pass_name="score")) is None


def test_what_needs_more_memory_than_a_worker_may_take_is_not_tried():
    made = record(right(case("jax", "vmap", input="10x15"), 1.0, peak_bytes=90 * 2**20, input_bytes=6 * 2**20))
    made.inputs = {"10x15": facts(shape=(4, 10, 15)), "40x60": facts(shape=(16, 40, 60))}  # 64 times as large
    (small,) = made.results
    large = replace(small.case, input="40x60")
    assert memory_exceeded(made, large, {"jax": 5 * 2**30}) == "needs about 6.00 GiB, may take 5.00 GiB"
    for memory in ({"jax": 7 * 2**30}, {"jax": None}, {"torch": 1}):
        assert memory_exceeded(made, large, memory) is None
    # with two smaller inputs by the larger of them; and what is little may be fixed costs
    made.inputs["20x30"] = facts(shape=(8, 20, 30))
    made.results.append(right(case("jax", "vmap", input="20x30"), 1.0, peak_bytes=96 * 2**20, input_bytes=0))
    assert memory_exceeded(made, large, {"jax": 2**29}) == "needs about 768.0 MiB, may take 512.0 MiB"
    made.results[1].peak_bytes, small.peak_bytes = 2**20, 2**20
    assert memory_exceeded(made, large, {"jax": 1}) is None
    # by another pass it is not known, nor is it of the small one, which was tried
    assert memory_exceeded(made, replace(large, pass_name="marginals"), {"jax": 1}) is None
    assert memory_exceeded(made, small.case, {"jax": 1}) is None


# when it is enough


def precise(*results: Result, precision: float = 0.02) -> bool:
    wanted = Settings(passes=tuple(dict.fromkeys(one.case.pass_name for one in results)), precision=precision)
    return is_precise(QUESTIONS["speed"].deciding(record(*results, settings=wanted)), wanted)


NARROW = [steady(case(framework, "vmap"), seconds) for framework, seconds in (("jax", 0.25), ("torch", 0.5))]
# workers and rounds differ by far, but either framework by as much as the other, so that only the ratio is precise
TOGETHER = [
    Result(case(framework, "vmap"), blocks=[Block.of(w, r, [factor * (1 + w + r)]) for w in range(4) for r in range(5)])
    for framework, factor in (("jax", 1.0), ("torch", 2.0))
]
WIDE = [right(case("jax", "vmap"), 1.0, 2.0, 3.0), right(case("torch", "vmap"), 3.0, 2.0, 1.0)]


def test_the_ratio_of_two_frameworks_and_the_time_of_one_must_be_precise():
    assert precise(*NARROW) and precise(*TOGETHER) and precise(NARROW[0])
    assert not precise(*WIDE) and not precise(TOGETHER[0])
    wide = [Result(case(one.case.framework, "vmap", "marginals"), blocks=one.blocks) for one in WIDE]
    assert not precise(*NARROW, *wide)


def test_the_precision_asked_for_is_the_limit():
    results = Result(case("jax", "vmap"), blocks=[Block.of(w, 0, [0.9 + 0.1 * w]) for w in range(3)])
    width = results.time.relative_half_width
    assert precise(results, precision=1.01 * width) and not precise(results, precision=0.99 * width)
