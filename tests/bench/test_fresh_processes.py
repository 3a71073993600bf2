"""Fresh processes of questions that measure in their own way: shares of the budget, what is resumed and left out."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hand_made import case, ended, facts, plan_of, record, right

from shared.bench.cases import Case, Settings
from shared.bench.questions import QUESTIONS
from shared.bench.record import NO_ROOM, Generation, Record, Result
from shared.bench.run import context, fresh_processes
from shared.bench.run.context import Run
from shared.bench.run.fresh_processes import Group, groups_of, measure_in_processes, time_in_processes
from shared.bench.run.progress import Lines

CASES = [case("jax", "vmap"), case("torch", "vmap")]


def run_of(question: str, made: Record, **options: Any) -> Run:
    return Run(plan_of(QUESTIONS[question]), made, Lines(lambda _: None), lambda: None, Path(), **options)


def test_groups_have_the_fast_variants_first_and_parts_by_field():
    both = [case(name, variant) for variant in ("vmap", "fused") for name in ("jax", "torch")]
    fused, vmap = groups_of(both, "variant", "framework", growth=2.0)
    assert [[c.name for c in part] for part in fused.parts] == [["JAX fused"], ["PyTorch fused"]]
    assert (fused.weight, vmap.weight) == (1.0, 2.0) and len(groups_of(both, "framework")[0].parts[0]) == 2


# processes that measure in their own way


def measured(made: Record, times: int = 1) -> list[tuple[int, float]]:
    """The numbers of the processes that were begun, and the seconds that each had."""
    begun: list[tuple[int, float]] = []

    def measure(part: Sequence[Case], number: int, seconds: float) -> None:
        begun.append((number, seconds))
        for each in part:
            made.result(each).details["processes"] = [0] * (number + 1)

    for _ in range(times):
        measure_in_processes(run_of("shapes", made), [Group([CASES])], measure, "processes")
    return begun


def test_a_case_over_a_limit_does_not_repeat_the_processes_of_others():
    made = record(Result(CASES[0]), ended(CASES[1], "limit", "too large"), settings=Settings("shapes"))
    assert [number for number, _ in measured(made, times=2)] == [0, 1, 2]
    assert not made.notes


def test_a_case_without_room_is_measured_when_the_run_is_resumed():
    made = record(*(ended(each, "limit", NO_ROOM) for each in CASES), settings=Settings("shapes"))
    assert [number for number, _ in measured(made)] == [0, 1, 2]
    assert {result.status for result in made.results} == {"ok"}


def test_processes_without_room_are_noted():
    made = record(*map(Result, CASES), settings=Settings("shapes", budget=0.0))
    assert [number for number, _ in measured(made)] == [0]
    assert made.notes == ["the budget of 0 s had room for 1 of 3 processes of JAX vmap"]


def test_a_number_of_processes_is_measured_whatever_the_budget():
    made = record(*map(Result, CASES), settings=Settings("shapes", budget=8.0, workers=4))
    assert measured(made) == [(number, pytest.approx(2.0)) for number in range(4)]


# processes that time rounds, in simulated time: seconds that one takes, and what the first one takes beside that

SECONDS, COMPILING = {"vmap": 60.0, "wavefront": 20.0, "fused": 10.0}, {"vmap": 30.0}


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch):
    """Times a run; returns the variant of each process with the seconds that it had, and the record."""

    def time_all(budget: float, scatter: float = 1.0, **settings: Any) -> tuple[list[tuple[str, float]], Record]:
        """scatter: factor from one process of JAX with one thread to the next."""
        clock, processes = SimpleNamespace(now=0.0), []
        clock.monotonic = lambda: clock.now
        monkeypatch.setattr(context, "time", clock)
        monkeypatch.setattr(fresh_processes, "time", clock)

        def one_generation(run: Run, cases: list[Case], number: int, end: float) -> None:
            processes.append((cases[0].variant, end - clock.now))
            for each in cases:
                power = number % 3 if each.worker_key == ("jax", "1 thread") else 0
                again = right(each, *[scatter**power] * 7)
                run.record.result(each).blocks += [block._replace(worker=number) for block in again.blocks]
            run.record.generations.append(Generation(number, 1.0, None))
            variant, compiles = cases[0].variant, not run.cached.issuperset(cases)
            clock.now += SECONDS[variant] + (COMPILING.get(variant, 0) if compiles else 0)
            run.cached.update(cases)

        monkeypatch.setattr(fresh_processes, "one_generation", one_generation)
        asked = Settings("threads", passes=("score",), budget=budget, **settings)
        made = record(settings=asked, inputs={"batch": facts()})
        cases = [case(framework, variant, label=label) for variant in SECONDS
                 for framework in ("jax", "torch") for label in ("1 thread", "2 threads")]  # fmt: skip
        time_in_processes(run_of("threads", made, start=0.0), groups_of(cases, "variant", growth=2.0))
        return processes, made

    return time_all


def names(processes: list[tuple[str, float]]) -> list[str]:
    return [variant for variant, _ in processes]


def test_each_variant_has_three_processes_and_half_the_share_of_the_one_after_it(timed: Any):
    processes, made = timed(301.0)
    assert names(processes) == ["fused"] * 3 + ["wavefront"] * 3 + ["vmap"] * 3
    shares = [301 / 7 / 3, (301 / 7 - 10) / 2, 271 / 3 / 3, 211 / 3]
    assert [processes[at][1] for at in (0, 1, 3, 6)] == pytest.approx(shares)
    assert made.notes == []


def test_the_rest_of_the_budget_goes_to_parts_that_are_not_precise(timed: Any):
    processes, made = timed(361.0, scatter=1.2)
    assert names(processes)[9:] == ["fused", "wavefront"] * 2
    assert "the budget of 361 s was spent: the widest interval" in made.notes[0]


def test_a_short_run_times_the_fastest_rung_and_says_what_it_had_no_room_for(timed: Any):
    processes, made = timed(45.0)
    assert names(processes) == ["fused"] * 3 + ["wavefront"]
    assert {result.case.variant for result in made.results if result.reason == NO_ROOM} == {"vmap"}
    assert names(timed(0.1)[0]) == ["fused"]
    assert names(timed(1.0, workers=2)[0]) == ["fused"] * 2 + ["wavefront"] * 2 + ["vmap"] * 2


def test_a_process_that_compiled_does_not_tell_how_long_the_next_one_takes(timed: Any):
    assert names(timed(220.0)[0])[6:] == ["vmap"] * 2  # after the first process of vmap 40 s are left
