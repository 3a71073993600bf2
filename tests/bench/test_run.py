"""The stage `run`: the order of cases, rounds and processes that fit the budget, workers, and progress."""

import errno
import io
import itertools
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hand_made import case, facts, plan_of, record, right, steady
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.bench.cases import Case, Settings
from shared.bench.estimates import Block, Estimate
from shared.bench.questions import QUESTIONS
from shared.bench.record import Compilation, Generation, Record, Result
from shared.bench.run import context, progress, protocol, timed_calls
from shared.bench.run.context import Run
from shared.bench.run.first_calls import limit_exceeded_with_less_work, memory_exceeded, repeat_first_calls
from shared.bench.run.progress import Lines
from shared.bench.run.schedule import (
    BLOCK_SECONDS,
    MOST_CALLS,
    block_of,
    is_precise,
    is_settled,
    order,
    rounds_that_fit,
)
from shared.bench.run.timed_calls import _next_cases
from shared.bench.run.worker_handle import Reply, Unavailable
from tools.validate_protocol import Validation

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True)
SECONDS = st.floats(1e-7, 1e3)
SILENT: Any = SimpleNamespace(begin=lambda *_: None, step=lambda *_: None, tick=lambda: None)


def run_of(made: Record | None = None, question: Any = QUESTIONS["speed"], **others: Any) -> Run:
    made = made or record(settings=Settings())
    return Run(plan_of(question, made.settings), made, SILENT, lambda: None, Path(), **others)


# the order

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


def test_every_round_has_every_case_once_and_the_next_one_is_it_backwards():
    for round_number in (0, 2):
        found = flat(ordered(round_number))
        assert len(found) == len(CASES) and set(found) == set(CASES)
        assert flat(ordered(round_number + 1)) == found[::-1]
    orders = [flat(ordered(number, worker, seed)) for number in (0, 2) for worker in (0, 1) for seed in (0, 1)]
    assert len({tuple(found) for found in orders}) == len(orders) and orders[0] == flat(ordered(0))


def test_cases_that_differ_only_in_framework_or_label_are_adjacent():
    for group in ordered(0):
        assert {one.framework for one in group} == {"jax", "torch"} and len({one.group for one in group}) == 1
    labelled = [case("jax", variant, label=label) for variant in ("vmap", "fused") for label in "AB"]
    assert all([one.label for one in group] in (["A", "B"], ["B", "A"]) for group in ordered(0, cases=labelled))


# blocks and rounds


@EXAMPLES
@given(seconds=SECONDS)
def test_a_block_has_as_many_calls_as_there_is_time_for(seconds: float):
    block = block_of(seconds)
    calls = block.calls
    assert 1 <= calls <= MOST_CALLS == block_of(0.0).calls
    assert calls == 1 or calls * seconds <= BLOCK_SECONDS * (1 + 1e-9)
    assert calls == MOST_CALLS or (calls + 1) * seconds > BLOCK_SECONDS * (1 - 1e-9)
    assert block.seconds == seconds or seconds < 0.1  # slow calls have no untimed ones before them


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
    left = seconds - sum(cost * count for cost, count in zip(costs, counts, strict=True))
    assert left >= -1e-9 * abs(seconds) or counts == [least if cost else rounds for cost in costs]
    # not even one more round of each group that has fewer would fit
    fewer = [cost for cost, count in zip(costs, counts, strict=True) if count < rounds]
    assert not fewer or left < sum(fewer) * (1 + 1e-6)


def test_slow_calls_have_fewer_rounds_at_least():
    assert [block_of(seconds).rounds for seconds in (1e-6, 0.05, 0.06)] == [7, 7, 5]
    assert rounds_that_fit([1.0, 9.0], [7, 5], 12, 0.0) == [7, 5]


# when it is enough


@pytest.mark.parametrize(
    ("ratio", "is_enough"),
    [
        (Estimate(1.3, 1.2, 1.4), True),
        (Estimate(1.0, 0.98, 1.02), True),
        (Estimate(1.3, 1.2, 1.4, 1), False),  # of one process
        (Estimate(1.15, 1.05, 1.25), False),  # a winner, but who stops there finds too many
        (Estimate(1.0, 0.9, 1.1), False),
    ],
)
def test_a_cell_is_left_alone_when_it_is_clear(ratio: Estimate, is_enough: bool):
    assert is_settled(ratio) == is_settled(ratio.inverse) == is_enough


def precise(*results: Result, precision: float = 0.02) -> bool:
    wanted = Settings(passes=("score",), precision=precision)
    return is_precise(QUESTIONS["speed"].deciding(record(*results, settings=wanted)), wanted)


def test_the_ratio_of_two_frameworks_and_the_time_of_one_must_be_precise():
    # workers and rounds differ by far, but either framework by as much as the other: only the ratio is precise
    places = [*itertools.product(range(4), range(5))]
    together = [Result(case(name, "vmap"), blocks=[Block.of(w, r, [factor * (1 + w + r)]) for w, r in places])
                for name, factor in (("jax", 1.0), ("torch", 2.0))]  # fmt: skip
    assert precise(*together) and not precise(together[0]) and precise(steady(case("jax", "vmap"), 0.25))
    assert not precise(right(case("jax", "vmap"), 1.0, 2.0, 3.0), right(case("torch", "vmap"), 3.0, 2.0, 1.0))
    alone = Result(case("jax", "vmap"), blocks=[Block.of(w, 0, [0.9 + 0.1 * w]) for w in range(3)])
    width = alone.time.relative_half_width
    assert precise(alone, precision=1.01 * width) and not precise(alone, precision=0.99 * width)


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


def test_a_case_that_needs_more_memory_than_a_worker_may_take_is_not_tried():
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
    # by another pass it is not known, and the small one was tried
    assert memory_exceeded(made, replace(large, pass_name="marginals"), {"jax": 1}) is None
    assert memory_exceeded(made, small.case, {"jax": 1}) is None


# which cases each fresh process times

FAST, SLOW, FAR_SLOWER = (case("jax", name) for name in ("fused", "wavefront", "vmap"))
OTHER, OTHERS_SLOW = case("torch", "fused"), case("torch", "wavefront")
TIMED = [FAST, SLOW, FAR_SLOWER, OTHER, OTHERS_SLOW]


def timed_by(number: int, **asked: Any) -> list[Case]:
    """The cases that worker `number` times where `vmap` was timed by the first one only, as it takes seconds."""
    seconds = {FAST: 0.01, SLOW: 0.03, FAR_SLOWER: 5.0, OTHER: 0.02, OTHERS_SLOW: 0.06}
    results = [
        right(each, *[value] * 5, workers=1 if each is FAR_SLOWER else number) for each, value in seconds.items()
    ]
    return _next_cases(run_of(record(*results, settings=Settings(**asked))), TIMED, number)[0]


def test_a_dominated_case_is_timed_once_unless_its_question_or_user_wants_more(monkeypatch: pytest.MonkeyPatch):
    without = [FAST, SLOW, OTHER, OTHERS_SLOW]
    assert timed_by(1) == timed_by(2) == timed_by(3) == timed_by(7) == without
    assert timed_by(8) == [FAST, OTHER]  # the cells of the others are settled, and eight processes have timed them
    with monkeypatch.context() as patch:
        patch.setattr(timed_calls, "CHEAP_CASE", 0.1)
        assert timed_by(3) == [FAST, OTHER]
    assert timed_by(3, workers=6) == TIMED
    monkeypatch.setattr(QUESTIONS["speed"], "drops_dominated", False)
    assert timed_by(2) == TIMED
    assert not QUESTIONS["versions"].drops_dominated and not QUESTIONS["bridge"].drops_dominated


def test_later_processes_repeat_the_first_calls_that_fit_the_cheapest_first(monkeypatch: pytest.MonkeyPatch):
    costs = {FAST: 0.5, SLOW: 0.25, FAR_SLOWER: 1000.0}
    run = run_of(record(*(right(each, 0.1, cold=seconds, new_shapes=[[seconds]]) for each, seconds in costs.items())))
    asked: list[tuple[str, Any]] = []

    def ask(do: str, case: Any, **arguments: Any) -> Reply:
        asked.append((do, case))
        if (do, case) == ("cold", FAST):
            return Reply("wrong", "score off", {"gate": None})
        return Reply("ok", None, {"cold": Compilation(0.75), "new_shapes": [0.5, 0.125]})

    monkeypatch.setattr(run, "ask", ask)
    repeat_first_calls(run, list(costs), 2, 100.0, 100.0)
    assert asked == [("cold", SLOW), ("new_shapes", SLOW), ("cold", FAST)]
    slow, fast = run.record.result(SLOW), run.record.result(FAST)
    assert [start.seconds for start in slow.cold] == [0.25, 0.75] and slow.new_shapes == [[0.25], [0.5, 0.125]]
    assert (fast.status, fast.reason, len(fast.cold)) == ("wrong", "score off", 1)


def clock_at(monkeypatch: pytest.MonkeyPatch, now: float) -> SimpleNamespace:
    """Simulated time of the second phase, which passes only as `now` is changed."""
    clock = SimpleNamespace(now=now)
    clock.monotonic = lambda: clock.now
    for module in (timed_calls, context):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("quick", "ends", "repeats"),
    [(True, [35 / 3, 20 / 2, 5.0], [0.0] * 3), (False, [0.8 * 35 / 8, 0.8 * 20 / 7], [0.2 * 15.0] * 2)],
)
def test_a_quick_run_plans_three_processes_without_repeats(
    monkeypatch: pytest.MonkeyPatch, quick: bool, ends: list[float], repeats: list[float]
):
    """35 of 60 seconds are left, and a process takes 15."""
    clock = clock_at(monkeypatch, 25.0)
    made = record(*(right(each, cold=0.5) for each in TIMED), settings=Settings(quick=quick, budget=60.0))
    found: list[tuple[set[Any], float]] = []
    repeated: list[float] = []

    def one_generation(run: Run, cases: list[Any], number: int, end: float) -> list[Any]:
        found.append((set(cases), end - clock.now))
        for each in cases:
            run.record.result(each).blocks.append(Block.of(number, 0, [0.1]))
        run.record.generations.append(Generation(number, 1.0, None))
        clock.now += 15.0
        return cases

    monkeypatch.setattr(timed_calls, "one_generation", one_generation)
    monkeypatch.setattr(timed_calls, "repeat_first_calls", lambda *given: repeated.append(given[-2]))
    timed_calls.measure_timed_calls(run_of(made, start=0.0), TIMED)
    assert [end for _, end in found] == pytest.approx(ends)
    assert repeated == pytest.approx(repeats)
    # a case that only JAX has is timed once in a quick run
    assert [FAR_SLOWER in cases for cases, _ in found] == [True] + [not quick] * (len(ends) - 1)


def test_a_spent_budget_leaves_out_what_takes_long_to_prepare(monkeypatch: pytest.MonkeyPatch):
    """An hour is over, and a first call takes 2 s."""
    clock = clock_at(monkeypatch, 3600.0)
    warm = {FAST: 0.5, SLOW: 0.5, FAR_SLOWER: 40.0}
    made = record(*(right(each, 0.1, warm=[seconds]) for each, seconds in warm.items()))
    run = run_of(made, start=0.0)
    rounds: list[tuple[list[Any], float]] = []

    def prepare(run: Run, case: Any) -> float:
        clock.now += 2.0
        return 0.001

    def time_rounds(run: Run, plans: dict[Any, Any], number: int, end: float) -> None:
        rounds.append((list(plans), end - clock.now))

    monkeypatch.setattr(run, "start_workers", lambda cases: None)
    monkeypatch.setattr(timed_calls, "_prepare", prepare)
    monkeypatch.setattr(timed_calls, "_time_rounds", time_rounds)
    timed_calls.one_generation(run, list(warm), 2, 3600.0)
    ((timed, seconds),) = rounds
    assert set(timed) == {FAST, SLOW} and seconds == pytest.approx(0.2 * 4.0)
    made.result(FAR_SLOWER).blocks.clear()  # as an interrupted run leaves it: it needs a time, whatever that takes
    timed_calls.one_generation(run, list(warm), 3, 3600.0)
    assert FAR_SLOWER in rounds[-1][0]
    (note,) = made.notes
    assert note.startswith("the budget of 300 s had no room for ") and "takes 40 s" in note


# workers


@dataclass
class FakeWorker:
    """Does at once what it is asked."""

    framework: str
    command: tuple[str, ...]
    memory_share: float
    alive: bool = True
    stopped: bool = False
    asked: list[str] = field(default_factory=list)
    compiler_start_seconds: float | None = None
    settings: dict[str, str] = field(default_factory=lambda: {"jax_x": "1"})
    environment: dict[str, Any] = field(default_factory=lambda: {"cores": [0, 1]})

    def wait_until_ready(self) -> None:
        if self.memory_share == 1.0:
            raise Unavailable("no memory")

    def ask(self, do: str, *_: Any, **__: Any) -> Reply:
        self.asked.append(do)
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

    def start(framework: str, command: tuple[str, ...], *_: Any, memory_share: float, **__: Any) -> FakeWorker:
        made.append(FakeWorker(framework, command, memory_share))
        return made[-1]

    monkeypatch.setattr(context, "Worker", start)
    return made


TORCH = case("torch", "vmap")


def test_a_worker_that_has_ended_is_replaced_and_noted_unless_it_was_stopped(started: list[FakeWorker]):
    run = run_of()
    for _ in range(2):
        run.ask("cold", TORCH)
    started[0].alive = False
    assert run.running(TORCH) is None
    run.ask("cold", TORCH)
    assert [worker.asked for worker in started] == [["cold", "cold"], ["cold"]]
    run.stop()
    assert run.record.notes == ["PyTorch, between two cases: the worker was killed by SIGKILL"]
    run.record.notes.clear()
    run.ask("cold", TORCH)
    run.stop()
    assert not run.record.notes
    run.ask("cold", TORCH)
    started[-1].alive = False  # after its last case
    run.stop()
    assert len(run.record.notes) == 1


def test_settings_and_each_start_of_the_compiler_are_recorded(started: list[FakeWorker]):
    run = run_of()
    run.record.environment = {"frameworks": {"torch": {}}}
    for count in (2, 1):
        for _ in range(count):
            run.ask("cold", TORCH)
        run.stop()
    assert run.record.environment["frameworks"] == {"torch": {"compiler_start_seconds": [0.5, 0.5]}}
    assert run.record.environment["settings"] == {"jax_x": "1"}


def test_a_worker_that_cannot_start_fails_only_the_case(started: list[FakeWorker], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(context, "MEMORY_SHARE", 2.0)
    run = run_of()
    reply = run.ask("cold", TORCH)
    assert (reply.status, reply.reason) == ("failed", "the worker could not be started again: no memory")
    assert not started[0].alive
    why = iter(["the port is in use", "it had ended"])

    def fails(_: FakeWorker) -> None:
        raise Unavailable(next(why))

    monkeypatch.setattr(FakeWorker, "wait_until_ready", fails)
    run.start_workers([TORCH])
    reply = run.ask("cold", TORCH)  # the first reason tells more
    assert reply.reason == "the worker could not be started again: the port is in use; then: it had ended"


@pytest.mark.parametrize(("label", "status"), [("2 threads", "ok"), ("1 thread", "failed")])
def test_a_worker_with_other_cores_than_its_label_has_threads_is_not_used(
    started: list[FakeWorker], label: str, status: str
):
    reply = run_of(question=QUESTIONS["threads"]).ask("cold", case("torch", "vmap", label=label))
    assert reply.status == status and started[0].alive == (status == "ok")
    assert status == "ok" or (reply.reason or "").endswith("PyTorch can use 2 cores, expected 1")


@pytest.mark.parametrize(
    ("frameworks", "labels", "share"), [(("jax", "torch"), 1, 0.45), (("jax",), 1, 0.9), (("jax",), 2, 0.45)]
)
def test_workers_of_all_frameworks_and_labels_share_an_accelerators_memory(
    started: list[FakeWorker], frameworks: tuple[str, ...], labels: int, share: float
):
    question = Validation(0.05) if labels == 2 else QUESTIONS["speed"]
    run = run_of(record(settings=Settings(frameworks=frameworks)), question)
    for framework, label in itertools.product(frameworks, question.labels):
        run.ask("cold", case(framework, "vmap", label=label))
    assert [worker.framework for worker in started] == [name for name in frameworks for _ in range(labels)]
    assert all(worker.memory_share == pytest.approx(share) for worker in started)
    slowed = ["tools.slowed_worker" in worker.command for worker in started]
    assert slowed == ([False, True] if labels == 2 else [False] * len(started))


def test_folders_of_killed_runs_are_removed_and_those_of_living_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed, others = tmp_path / "compare-killed", tmp_path / "compare-mine"
    for folder in (killed, others):
        folder.mkdir()
    (killed / "run.lock").touch()
    (killed / "batch.inputs").touch()
    with protocol._folder() as living, protocol._folder() as own:
        assert sorted(tmp_path.iterdir()) == sorted([others, living, own])
    assert list(tmp_path.iterdir()) == [others]


# progress


class Terminal(io.StringIO):
    """Takes the place of standard error."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """Return what was drawn line by line, without escape sequences."""
        return [line for line in re.split(r"[\r\n]+", self.getvalue().replace("\x1b[K", "")) if line]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time that passes as the test says: its `now`."""
    made = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def answer(record: Record) -> str | None:
    return f"the answer of {record.command}"


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())  # in the test: pytest puts its own in place after setup
    return terminal


def test_without_a_terminal_stages_are_lines_and_the_first_answer_is_output(
    capsys: pytest.CaptureFixture[str], clock: SimpleNamespace
):
    here = Lines(answer)
    here.say("starting JAX")
    here.begin("first calls", 2)
    here.step("[red]PyTorch[/red] {braces}")
    clock.now += 41
    here.first_answer(record())
    here.close()
    printed = capsys.readouterr()
    assert printed.out == "first table after 41 s (provisional)\n\nthe answer of python compare.py\n\n"
    assert printed.err.splitlines() == ["starting JAX", "first calls"]


def test_a_run_does_not_depend_on_its_reader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def fails(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with (tmp_path / "out").open("w") as closed:
        pass
    monkeypatch.setattr(gone := Terminal(), "write", fails)
    for stream in (closed, gone, None):
        monkeypatch.setattr(sys, "stderr", Terminal())
        lines = Lines(answer)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(sys, "stdout", stream)
        lines.begin("first calls", 3)
        lines.say("starting JAX")
        lines.first_answer(record())
        lines.close()


def test_a_terminal_shows_the_phase_its_step_and_the_time_left_in_one_line(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    terminal, lines = terminal_of(monkeypatch), Lines()
    lines.begin("first calls", 3)
    clock.now += 61
    lines.ends_within(90.0)
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
