"""The stage `run`: the order of cases, rounds and processes that fit the budget, workers, and progress."""

import errno
import io
import itertools
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hand_made import case, ended, facts, plan_of, record, right, steady
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.bench.cases import Case, Settings
from shared.bench.estimates import Block, Estimate
from shared.bench.questions import QUESTIONS
from shared.bench.record import NO_ROOM, FirstCall, Record, Repeat, Result
from shared.bench.run import context, first_calls, fresh_processes, progress, schedule, timed_calls
from shared.bench.run.context import CannotMeasure, Run
from shared.bench.run.fresh_processes import Group, groups_of, measure_in_processes, time_in_processes
from shared.bench.run.progress import Progress
from shared.bench.run.schedule import block_of, is_precise, is_settled, order, rounds_that_fit
from shared.bench.run.timed_calls import _next_cases
from shared.bench.run.worker_handle import Reply, Unavailable

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True)
SECONDS = st.floats(1e-7, 1e3)


def run_of(made: Record, **others: Any) -> Run:
    return Run(plan_of(QUESTIONS[made.settings.question]), made, Progress(), lambda: None, Path(), **others)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time that passes as the test says: its `now`."""
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    for module in (timed_calls, fresh_processes, context, progress):
        monkeypatch.setattr(module, "time", clock)
    return clock


def simulate(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace, seconds: Callable[[Run, list[Case]], float],
    scatter: float = 1.0,
) -> list[tuple[list[Case], float]]:  # fmt: skip
    """Have fresh processes take simulated time; returns their cases, and the seconds that each one had.

    scatter: factor from one process of JAX with one thread to the next.
    """
    begun: list[tuple[list[Case], float]] = []

    def one_repeat(run: Run, cases: list[Case], number: int, end: float) -> list[Case]:
        begun.append((cases, end - clock.now))
        for one in cases:
            power = number % 3 if one.worker_key == ("jax", "1 thread") else 0
            run.record.result(one).blocks += [Block.of(number, at, [scatter**power]) for at in range(7)]
        run.record.repeats.append(Repeat(number, 1.0, None))
        clock.now += seconds(run, cases)
        run.cached.update(cases)
        return cases

    for module in (timed_calls, fresh_processes):
        monkeypatch.setattr(module, "one_repeat", one_repeat)
    return begun


def test_every_round_has_every_case_once_with_frameworks_side_by_side_and_the_next_is_it_backwards():
    names = itertools.product(("score", "marginals"), ("vmap", "wavefront", "fused"), ("jax", "torch"))
    cases = [case(framework, variant, pass_name) for pass_name, variant, framework in names]
    orders = []
    for number, worker, seed in itertools.product((0, 2), (0, 1), (0, 1)):
        groups, following = (order(cases, Settings(seed=seed), worker, at) for at in (number, number + 1))
        order_of_round = [*itertools.chain(*groups)]
        assert len(order_of_round) == len(cases) and set(order_of_round) == set(cases)
        assert [*itertools.chain(*following)] == order_of_round[::-1]
        for group in groups:
            assert {one.framework for one in group} == {"jax", "torch"} and len({one.group for one in group}) == 1
        orders.append(tuple(order_of_round))
    assert len(set(orders)) == len(orders)
    labelled = [case("jax", variant, label=label) for variant in ("vmap", "fused") for label in "AB"]
    assert all(sorted(one.label for one in group) == ["A", "B"] for group in order(labelled, Settings(), 0, 0))


@EXAMPLES
@given(seconds=SECONDS)
def test_a_block_has_as_many_calls_as_there_is_time_for(seconds: float):
    block = block_of(seconds, quick=False)
    calls = block.calls
    assert 1 <= calls <= schedule.MOST_CALLS == block_of(0.0, quick=False).calls
    assert calls == 1 or calls * seconds <= schedule.BLOCK_SECONDS * (1 + 1e-9)
    assert calls == schedule.MOST_CALLS or (calls + 1) * seconds > schedule.BLOCK_SECONDS * (1 - 1e-9)
    assert block.seconds == seconds or seconds < 0.1  # slow calls have no untimed ones before them
    assert (block.rounds, block_of(seconds, quick=True).rounds) == ((5, 2) if seconds > 0.05 else (7, 7))


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
    remaining = seconds - sum(cost * count for cost, count in zip(costs, counts, strict=True))
    assert remaining >= -1e-9 * abs(seconds) or counts == [least if cost else rounds for cost in costs]
    # not even one more round of each group that has fewer would fit
    fewer = [cost for cost, count in zip(costs, counts, strict=True) if count < rounds]
    assert not fewer or remaining < sum(fewer) * (1 + 1e-6)
    assert rounds_that_fit([1.0, 9.0], [7, 5], 12, 0.0) == [7, 5]


def test_a_cell_is_left_alone_when_it_is_clear():
    for ratio in (Estimate(1.3, 1.2, 1.4), Estimate(1.0, 0.98, 1.02)):
        assert is_settled(ratio) and is_settled(ratio.inverse)
    of_one_process, little = Estimate(1.3, 1.2, 1.4, 1), Estimate(1.15, 1.05, 1.25)  # who stops there finds too many
    for ratio in (of_one_process, little, Estimate(1.0, 0.9, 1.1)):
        assert not is_settled(ratio) and not is_settled(ratio.inverse)


def precise(*results: Result, precision: float = 0.02) -> bool:
    settings = Settings(passes=("score",), precision=precision)
    return is_precise(QUESTIONS["speed"].deciding(record(*results, settings=settings)), settings)


def test_the_ratio_of_two_frameworks_and_the_time_of_one_must_be_precise():
    # workers and rounds differ by far, but either framework by as much as the other: only the ratio is precise
    places = [*itertools.product(range(4), range(5))]
    together = [Result(case(name, "vmap"), blocks=[Block.of(w, r, [factor * (1 + w + r)]) for w, r in places])
                for name, factor in (("jax", 1.0), ("torch", 2.0))]  # fmt: skip
    assert precise(*together) and not precise(together[0]) and precise(steady(case("jax", "vmap"), 0.25))
    assert not precise(right(case("jax", "vmap"), 1.0, 2.0, 3.0), right(case("torch", "vmap"), 3.0, 2.0, 1.0))
    width = together[0].time.relative_half_width
    assert precise(together[0], precision=1.01 * width) and not precise(together[0], precision=0.99 * width)


def test_a_variant_over_the_limit_is_not_tried_with_more_work():
    sides = (10, 20, 40)
    made = record(*(right(case("jax", "vmap", input=f"{side}x{side}"), 1.0) for side in sides))
    made.inputs = {f"{side}x{side}": replace(facts(), shape=(1, side, side), work=side * side) for side in sides}
    smallest, middle, largest = made.results

    def reasons(pass_name: str) -> list[str | None]:
        cases = [replace(result.case, pass_name=pass_name) for result in made.results]
        return [first_calls.limit_exceeded_with_less_work(made, case) for case in cases]

    assert reasons("score") == [None] * 3
    middle.status, middle.reason = "limit", "> 120 s"
    assert reasons("score") == [None, None, "> 120 s with less work"]
    smallest.status, smallest.reason = "limit", "needs about 93.0 GiB, limit 34.0 GiB"  # every pass has its own need
    largest.status, largest.reason = "limit", "> 120 s with less work"
    assert reasons("marginals") == [None, "> 120 s with less work", "> 120 s with less work"]
    middle.case = replace(middle.case, pass_name="marginals")
    assert reasons("score")[1] is None


def test_a_case_that_needs_more_memory_than_a_worker_may_take_is_not_tried():
    shapes = {"10x15": (4, 10, 15), "20x30": (8, 20, 30), "40x60": (16, 40, 60)}
    small, middle = (right(case("jax", "vmap", input=name), 1.0, input_bytes=0) for name in ("10x15", "20x30"))
    small.peak_bytes, middle.peak_bytes = 96 * 2**20, 2**20  # what is little may be fixed costs
    made = record(small, middle, inputs={name: facts(shape=shape) for name, shape in shapes.items()})
    large = replace(small.case, input="40x60")  # 64 times as large
    assert first_calls.memory_exceeded(made, large, {"jax": 5 * 2**30}) == "needs about 6.00 GiB, limit 5.00 GiB"
    for memory in ({"jax": 7 * 2**30}, {"jax": None}, {"torch": 1}):
        assert first_calls.memory_exceeded(made, large, memory) is None
    middle.peak_bytes = 96 * 2**20  # with two smaller inputs by the larger of them
    assert first_calls.memory_exceeded(made, large, {"jax": 2**29}) == "needs about 768.0 MiB, limit 512.0 MiB"
    # by another pass it is not known, and the small one was tried
    for other in (replace(large, pass_name="marginals"), small.case):
        assert first_calls.memory_exceeded(made, other, {"jax": 1}) is None


FAST, SLOW, FAR_SLOWER = (case("jax", name) for name in ("fused", "wavefront", "vmap"))
OTHER, OTHERS_SLOW = case("torch", "fused"), case("torch", "wavefront")
TIMED = [FAST, SLOW, FAR_SLOWER, OTHER, OTHERS_SLOW]


def timed_by(number: int, **asked: Any) -> list[Case]:
    """The cases that worker `number` times where `vmap` was timed by the first one only, as it takes seconds."""
    seconds = {FAST: 0.01, SLOW: 0.03, FAR_SLOWER: 5.0, OTHER: 0.02, OTHERS_SLOW: 0.06}
    results = [
        right(case, *[value] * 5, workers=1 if case is FAR_SLOWER else number) for case, value in seconds.items()
    ]
    return _next_cases(run_of(record(*results, settings=Settings(**asked))), TIMED, number)[0]


def test_a_dominated_case_is_timed_once_unless_its_question_or_user_wants_more(monkeypatch: pytest.MonkeyPatch):
    assert timed_by(1) == timed_by(3) == timed_by(7) == [FAST, SLOW, OTHER, OTHERS_SLOW]
    assert timed_by(8) == [FAST, OTHER]  # the cells of the others are settled, and eight processes have timed them
    with monkeypatch.context() as patch:
        patch.setattr(timed_calls, "CHEAP_CASE", 0.1)
        assert timed_by(3) == [FAST, OTHER]
    assert timed_by(3, workers=6) == TIMED
    monkeypatch.setattr(QUESTIONS["speed"], "drops_dominated", False)
    assert timed_by(2) == TIMED


def test_what_takes_long_to_prepare_is_left_out_where_all_cases_have_no_room():
    warm, empty = {FAR_SLOWER: [40.0]}, {SLOW: 40.0}  # seconds to prepare, by the caches
    run = run_of(record(*(right(case, 0.1, warm=warm.get(case, [0.5]), cold=empty.get(case, 0.5)) for case in TIMED)))
    assert _next_cases(run, TIMED, 2)[:2] == [TIMED, [FAST, FAR_SLOWER, OTHER, OTHERS_SLOW]]  # as after --resume
    run.cached.update(TIMED)
    assert _next_cases(run, TIMED, 2)[:2] == [TIMED, [FAST, SLOW, OTHER, OTHERS_SLOW]]


def test_later_processes_repeat_the_first_calls_that_fit_the_cheapest_first(monkeypatch: pytest.MonkeyPatch):
    costs = {FAST: 0.5, SLOW: 0.25, FAR_SLOWER: 1000.0}
    run = run_of(record(*(right(case, 0.1, cold=seconds, new_shapes=[[seconds]]) for case, seconds in costs.items())))
    commands: list[tuple[str, Any]] = []

    def ask(do: str, case: Any, **_: Any) -> Reply:
        commands.append((do, case))
        if (do, case) == ("cold", FAST):
            return Reply("wrong", "score off", {"gate": None})
        return Reply("ok", None, {"cold": FirstCall(0.75), "new_shapes": [0.5, 0.125]})

    monkeypatch.setattr(run, "ask", ask)
    first_calls.repeat_first_calls(run, list(costs), 2, 100.0, 100.0)
    assert commands == [("cold", SLOW), ("new_shapes", SLOW), ("cold", FAST)]
    slow, fast = run.record.result(SLOW), run.record.result(FAST)
    assert [start.seconds for start in slow.cold] == [0.25, 0.75] and slow.new_shapes == [[0.25], [0.5, 0.125]]
    assert (fast.status, fast.reason, len(fast.cold)) == ("wrong", "score off", 1)


def test_a_failure_ends_the_blocks_of_a_first_call_and_a_resumed_run_makes_it_again(monkeypatch: pytest.MonkeyPatch):
    result, replies = Result(FAST, cold=[FirstCall(2.0)], early_seconds=0.01), iter([Reply("failed", "killed", {})])
    run = run_of(record(result, settings=Settings(question="ladder")))
    monkeypatch.setattr(run, "ask", lambda *_, **__: next(replies))
    first_calls._time_blocks(run, result)
    assert result.reason == "killed" and not result.blocks and first_calls._is_pending(run, result)


def test_building_native_kernels_spends_nothing_of_the_budget(monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace):
    run = run_of(record(ended(FAST, "failed", "not run")), start=0.0)

    def ask(do: str, *_: Any, **__: Any) -> Reply:
        clock.now += 42.0 if do == "cold" else 0.0
        return Reply("ok", None, {"cold": FirstCall(2.0), "build_seconds": 40.0, "new_shapes": [0.1]})

    monkeypatch.setattr(run, "ask", ask)
    first_calls.measure_first_calls(run, [FAST])
    assert run.seconds_left == run.settings.budget - 2.0


@pytest.mark.parametrize(
    ("quick", "left", "ends", "repeats"),
    [
        (True, 35.0, [35 / 3, 20 / 2, 5.0], []),
        (False, 35.0, [0.8 * 35 / 8, 0.8 * 20 / 7], []),  # three processes of all cases come first
        (False, 60.0, [0.8 * 60 / 8, 0.8 * 45 / 7, 0.8 * 30 / 6, 0.8 * 15 / 5], [0.2 * 15.0] * 3),
    ],
)
def test_a_quick_run_plans_three_processes_and_others_repeat_first_calls_after_three(
    monkeypatch: pytest.MonkeyPatch,
    clock: SimpleNamespace,
    quick: bool,
    left: float,
    ends: list[float],
    repeats: list[float],
):
    """A process takes 15 seconds."""
    clock.now = 25.0
    made = record(*(right(case, cold=0.5) for case in TIMED), settings=Settings(quick=quick, budget=25.0 + left))
    begun = simulate(monkeypatch, clock, lambda *_: 15.0)
    repeated: list[float] = []
    monkeypatch.setattr(timed_calls, "repeat_first_calls", lambda *given: repeated.append(given[-2]))
    timed_calls.measure_timed_calls(run_of(made, start=0.0), TIMED)
    assert [end for _, end in begun] == pytest.approx(ends)
    assert repeated == pytest.approx(repeats)


def test_a_spent_budget_leaves_out_what_takes_long_to_prepare(monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace):
    """An hour is over, and a first call takes 2 s."""
    clock.now = 3600.0
    warm = {FAST: 0.5, SLOW: 0.5, FAR_SLOWER: 40.0}
    made = record(*(right(case, 0.1, warm=[seconds]) for case, seconds in warm.items()))
    run = run_of(made, start=0.0, cached=set(warm))
    rounds: list[tuple[set[Case], float]] = []

    def prepare(*_: Any) -> float:
        clock.now += 2.0
        return 0.001

    def time_rounds(_: Run, plans: dict[Case, Any], number: int, end: float) -> None:
        rounds.append((set(plans), end - clock.now))

    monkeypatch.setattr(run, "start_workers", lambda cases: None)
    monkeypatch.setattr(timed_calls, "_prepare", prepare)
    monkeypatch.setattr(timed_calls, "_time_rounds", time_rounds)
    timed_calls.one_repeat(run, list(warm), 2, 3600.0)
    assert rounds == [({FAST, SLOW}, pytest.approx(0.2 * 4.0))]
    made.result(FAR_SLOWER).blocks.clear()  # as an interrupted run leaves it: it needs a time, whatever that takes
    timed_calls.one_repeat(run, list(warm), 3, 3600.0)
    assert FAR_SLOWER in rounds[-1][0]
    (note,) = made.notes
    assert note.startswith("the budget of 300 s had no room for ") and "takes 40 s" in note


BOTH = [case("jax", "vmap"), case("torch", "vmap")]


def test_groups_have_the_fast_variants_first_and_parts_by_field():
    both = [case(name, variant) for variant in ("vmap", "fused") for name in ("jax", "torch")]
    fused, vmap = groups_of(both, "variant", "framework", weight_ratio=2.0)
    assert [[c.name for c in part] for part in fused.parts] == [["JAX fused"], ["PyTorch fused"]]
    assert (fused.weight, vmap.weight) == (1.0, 2.0) and len(groups_of(both, "framework")[0].parts[0]) == 2


def measured(*results: Result, **asked: Any) -> tuple[list[tuple[int, float]], Record]:
    """Processes that were begun, by number, with the seconds that each had, and the record."""
    made = record(*results, settings=Settings("shapes", **asked))
    begun: list[tuple[int, float]] = []

    def measure(part: Sequence[Case], number: int, seconds: float) -> None:
        begun.append((number, seconds))
        for one in part:
            made.result(one).details["processes"] = [0] * (number + 1)

    measure_in_processes(run_of(made), [Group([BOTH])], measure, "processes")
    return begun, made


def test_processes_are_made_up_to_three_or_a_number_or_the_end_of_the_budget():
    over = ended(BOTH[1], "limit", "too large")
    over_and_done = Result(BOTH[0], details={"processes": [0] * 3}), over
    for results, options, numbers in (
        ((Result(BOTH[0]), over), {}, [0, 1, 2]),
        (over_and_done, {}, []),  # it does not repeat the processes of others
        ([ended(one, "limit", NO_ROOM) for one in BOTH], {}, [0, 1, 2]),  # as a run that is resumed finds it
        (map(Result, BOTH), {"workers": 4, "budget": 8.0}, [0, 1, 2, 3]),
    ):
        begun, made = measured(*results, **options)
        assert [number for number, _ in begun] == numbers and not made.notes
        assert {result.status for result in made.results if result is not over} == {"ok"}
    assert [seconds for _, seconds in begun] == pytest.approx([2.0] * 4)
    begun, made = measured(*map(Result, BOTH), budget=0.0)
    assert [number for number, _ in begun] == [0]
    assert made.notes == ["the budget of 0 s had room for 1 of 3 processes of JAX vmap"]


# those that time rounds: seconds that one takes, and what the first one takes beside that
ROUNDS, COMPILING = {"vmap": 60.0, "wavefront": 20.0, "fused": 10.0}, {"vmap": 30.0}
Timed = Callable[..., tuple[list[str], list[float], Record]]


def seconds_of(run: Run, cases: list[Case]) -> float:
    variant = cases[0].variant
    return ROUNDS[variant] + (0.0 if run.cached.issuperset(cases) else COMPILING.get(variant, 0.0))


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace) -> Timed:
    """Times a run; returns the variant of each process, the seconds that it had, and the record."""

    def time_all(budget: float, scatter: float = 1.0, **asked: Any) -> tuple[list[str], list[float], Record]:
        clock.now, begun = 0.0, simulate(monkeypatch, clock, seconds_of, scatter)
        made = record(settings=Settings("threads", passes=("score",), budget=budget, **asked))
        names = itertools.product(ROUNDS, ("jax", "torch"), ("1 thread", "2 threads"))
        cases = [case(framework, variant, label=label) for variant, framework, label in names]
        time_in_processes(run_of(made, start=0.0), groups_of(cases, "variant", weight_ratio=2.0))
        return [cases[0].variant for cases, _ in begun], [seconds for _, seconds in begun], made

    return time_all


def test_each_variant_has_three_processes_and_half_the_share_of_the_one_after_it(timed: Timed):
    variants, seconds, made = timed(301.0)
    assert variants == ["fused"] * 3 + ["wavefront"] * 3 + ["vmap"] * 3 and not made.notes
    shares = [301 / 7 / 3, (301 / 7 - 10) / 2, 271 / 3 / 3, 211 / 3]
    assert [seconds[at] for at in (0, 1, 3, 6)] == pytest.approx(shares)
    # after the first process of vmap 40 s are left: that it compiled does not tell how long the next one takes
    assert timed(220.0)[0][6:] == ["vmap"] * 2


def test_the_rest_of_the_budget_goes_to_parts_that_are_not_precise(timed: Timed):
    variants, _, made = timed(361.0, scatter=1.2)
    assert variants[9:] == ["fused", "wavefront"] * 2
    assert "the budget of 361 s was spent: the widest interval" in made.notes[0]


def test_a_short_run_times_the_fastest_rung_and_says_what_it_had_no_room_for(timed: Timed):
    variants, _, made = timed(45.0)
    assert variants == ["fused"] * 3 + ["wavefront"]
    assert {result.case.variant for result in made.results if result.reason == NO_ROOM} == {"vmap"}
    assert timed(0.1)[0] == ["fused"]
    assert timed(1.0, workers=2)[0] == ["fused"] * 2 + ["wavefront"] * 2 + ["vmap"] * 2


class FakeWorker:
    """Does at once what it is asked."""

    alive, stopped, commands = True, False, 0
    compiler_start_seconds, memory = None, None
    settings, environment = {"jax_x": "1"}, {"cores": [0, 1]}
    do_not_start: list[Unavailable]  # the reasons for the next ones

    def __init__(self, memory_share: float) -> None:
        self.memory_share = memory_share

    def wait_until_ready(self) -> None:
        if self.do_not_start:
            raise self.do_not_start.pop(0)

    def ask(self, *_: Any, **__: Any) -> Reply:
        self.commands += 1
        self.compiler_start_seconds = 0.5
        return Reply("ok")

    def lost(self) -> str | None:
        return None if self.alive or self.stopped else "the worker was killed by SIGKILL"

    def stop(self) -> None:
        self.alive, self.stopped = False, True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[FakeWorker]:
    """The workers that were started, in order."""
    made: list[FakeWorker] = []

    def start(*_: Any, memory_share: float, **__: Any) -> FakeWorker:
        made.append(FakeWorker(memory_share))
        return made[-1]

    monkeypatch.setattr(context, "Worker", start)
    monkeypatch.setattr(FakeWorker, "do_not_start", [], raising=False)
    return made


TORCH = case("torch", "vmap")


def test_a_worker_that_has_ended_is_replaced_and_noted_unless_it_was_stopped(started: list[FakeWorker]):
    run = run_of(record(environment={"frameworks": {"torch": {}}}))
    for _ in range(2):
        run.ask("cold", TORCH)
    run.stop()
    assert not run.record.notes
    for _ in range(2):
        run.ask("cold", TORCH)
        started[-1].alive = False
        assert run.running(TORCH) is None
    assert [worker.commands for worker in started] == [2, 1, 1]
    assert run.record.notes == ["PyTorch, between two cases: the worker was killed by SIGKILL"]
    run.record.notes.clear()
    run.stop()  # after its last case
    assert len(run.record.notes) == 1
    compilers = {"frameworks": {"torch": {"compiler_start_seconds": [0.5] * 3}}}
    assert run.record.environment == {**compilers, "settings": {"jax_x": "1"}}


def test_a_worker_that_cannot_start_fails_only_the_case(started: list[FakeWorker]):
    FakeWorker.do_not_start += map(Unavailable, ("no memory", "the port is in use", "it had ended"))
    run = run_of(record())
    reply = run.ask("cold", TORCH)
    assert (reply.status, reply.reason) == ("failed", "the worker could not be started again: no memory")
    assert not started[0].alive
    run.start_workers([TORCH])
    reply = run.ask("cold", TORCH)  # the first reason tells more
    assert reply.reason == "the worker could not be started again: the port is in use; then: it had ended"


@pytest.mark.usefixtures("started")
def test_a_framework_may_be_missing_but_not_all_of_them_nor_the_device():
    run, missing = run_of(record()), Unavailable("not installed")
    FakeWorker.do_not_start.append(missing)
    workers, reasons = run.start_frameworks()
    assert list(workers) == ["torch"] and reasons == {"jax": "not installed"}
    for why in ([missing, Unavailable("nor this")], [Unavailable("not installed\nnor this", device_problem=True)]):
        FakeWorker.do_not_start += why
        with pytest.raises(CannotMeasure, match=r"^not installed\nnor this$"):
            run.start_frameworks()


@pytest.mark.parametrize(("label", "status"), [("2 threads", "ok"), ("1 thread", "failed")])
def test_a_worker_with_other_cores_than_its_label_has_threads_is_not_used(
    started: list[FakeWorker], label: str, status: str
):
    run = run_of(record(settings=Settings("threads")))
    reply = run.ask("cold", case("torch", "vmap", label=label))
    assert reply.status == status and started[0].alive == (status == "ok")
    assert status == "ok" or (reply.reason or "").endswith("PyTorch can use 2 cores, expected 1")
    assert len(run.plan.starts) > 2 and started[0].memory_share == 0.9 / len(run.plan.starts)  # of an accelerator's


class Terminal(io.StringIO):
    """Takes the place of standard error."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """Return what was drawn line by line, without escape sequences."""
        return [line for line in re.split(r"[\r\n]+", self.getvalue().replace("\x1b[K", "")) if line]


def test_a_run_does_not_depend_on_its_reader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def fails(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with (tmp_path / "out").open("w") as closed:
        pass
    monkeypatch.setattr(gone := Terminal(), "write", fails)
    for stream in (closed, gone, None):
        monkeypatch.setattr(sys, "stderr", Terminal())
        lines = Progress(lambda _: "the answer")
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(sys, "stdout", stream)
        lines.begin("first calls", 3)
        lines.say("starting JAX")
        lines.first_answer(record())
        lines.close()


def test_a_terminal_shows_the_phase_its_step_and_the_time_left_in_one_line(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    lines = Progress()
    lines.begin("first calls", 3)
    clock.now += 61
    lines.ends_within(lambda: 151.0 - clock.now)
    lines.step("JAX vmap score")
    assert terminal.lines()[-1] == "first calls  1/3  1:01, at most 1:30 left  JAX vmap score"
    clock.now += 120
    lines.say("NumPy reference: 1.0 s")
    assert terminal.lines()[-2] == "NumPy reference: 1.0 s" and " 3:01, at most 0:00 left" in terminal.lines()[-1]
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((50, 24)))
    lines.step("PyTorch scan_select marginals, 512x512, not compiled")
    assert terminal.lines()[-1].startswith("first calls  2/3") and len(terminal.lines()[-1]) < 50
    lines.close()
    assert terminal.getvalue().endswith("\r\x1b[K")
