"""Fresh processes of questions that measure in their own way: what is resumed, and what a budget has no room for."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hand_made import case, ended, plan_of, record

from shared.bench.cases import Case, Settings
from shared.bench.questions import QUESTIONS
from shared.bench.record import Record, Result
from shared.bench.run.context import Run
from shared.bench.run.fresh_processes import Group, measure_in_processes
from shared.bench.run.progress import Lines

CASES = [case("jax", "vmap"), case("torch", "vmap")]


def measured(made: Record, times: int = 1) -> list[tuple[int, float]]:
    """The numbers of the processes that were begun, and the seconds that each had."""
    begun: list[tuple[int, float]] = []

    def measure(part: Sequence[Case], number: int, seconds: float) -> None:
        begun.append((number, seconds))
        for each in part:
            made.result(each).details["processes"] = number + 1

    def finished(made: Record, of: Case) -> int:
        return made.result(of).details.get("processes", 0)

    run = Run(plan_of(QUESTIONS["shapes"]), made, Lines(), lambda: None, Path())
    for _ in range(times):
        measure_in_processes(run, [Group([CASES])], measure, finished)
    return begun


def test_a_case_over_a_limit_does_not_repeat_the_processes_of_others():
    made = record(Result(CASES[0]), ended(CASES[1], "limit", "too large"), settings=Settings("shapes"))
    assert [number for number, _ in measured(made, times=2)] == [0, 1, 2]
    assert not made.notes


def test_processes_without_room_are_noted():
    made = record(*map(Result, CASES), settings=Settings("shapes", budget=0.0))
    assert [number for number, _ in measured(made)] == [0]
    assert made.notes == ["the budget of 0 s had room for 1 of 3 processes of JAX vmap"]


def test_a_number_of_processes_is_measured_whatever_the_budget():
    made = record(*map(Result, CASES), settings=Settings("shapes", budget=8.0, workers=4))
    begun = measured(made)
    assert [number for number, _ in begun] == [0, 1, 2, 3]
    assert [seconds for _, seconds in begun] == pytest.approx([2.0] * 4)
