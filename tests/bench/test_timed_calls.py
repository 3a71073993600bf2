"""Which cases each fresh process times."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hand_made import case, record, right

from shared.bench.cases import Settings
from shared.bench.questions import QUESTIONS
from shared.bench.record import Compilation
from shared.bench.run.context import Run
from shared.bench.run.first_calls import repeat_first_calls
from shared.bench.run.timed_calls import _next_cases, note_precision
from shared.bench.run.worker_handle import Reply

FAST, SLOW, FAR_SLOWER = (case("jax", name) for name in ("fused", "wavefront", "vmap"))
OTHER, OTHERS_SLOW = case("torch", "fused"), case("torch", "wavefront")
CASES = [FAST, SLOW, FAR_SLOWER, OTHER, OTHERS_SLOW]


def timed_by(number: int, **settings: Any) -> list[Any]:
    """What worker `number` times where `vmap` was timed by the first one only, as it takes seconds."""
    seconds = {FAST: 0.01, SLOW: 0.03, FAR_SLOWER: 5.0, OTHER: 0.02, OTHERS_SLOW: 0.06}
    results = [
        right(each, *[value] * 5, workers=1 if each is FAR_SLOWER else number) for each, value in seconds.items()
    ]
    made = record(*results, settings=Settings(**settings))
    progress: Any = SimpleNamespace()
    return _next_cases(Run(QUESTIONS["speed"], made, progress, lambda: None, Path()), CASES, number)


def test_a_dominated_case_is_timed_once():
    assert timed_by(1) == timed_by(2) == [FAST, SLOW, OTHER, OTHERS_SLOW]


def test_once_a_cell_is_decided_only_the_fastest_cases_are_timed():
    assert timed_by(3) == timed_by(4) == [FAST, OTHER]


def test_a_number_of_processes_is_kept_for_every_case():
    assert timed_by(3, workers=6) == CASES


def test_later_processes_repeat_the_first_calls_that_fit_the_cheapest_first(monkeypatch: pytest.MonkeyPatch):
    costs = {FAST: 0.5, SLOW: 0.25, FAR_SLOWER: 1000.0}
    made = record(*(right(each, 0.1, cold=seconds, new_shapes=[[seconds]]) for each, seconds in costs.items()))
    progress: Any = SimpleNamespace(begin=lambda *_: None, step=lambda *_: None)
    run = Run(QUESTIONS["speed"], made, progress, lambda: None, Path())
    asked: list[tuple[str, Any]] = []

    def ask(do: str, case: Any, **arguments: Any) -> Reply:
        asked.append((do, case))
        if (do, case) == ("cold", FAST):
            return Reply("wrong", "score off", {"gate": None})
        return Reply("ok", None, {"cold": Compilation(0.75), "new_shapes": [0.5, 0.125]})

    monkeypatch.setattr(run, "ask", ask)
    repeat_first_calls(run, list(costs), 2, 100.0)
    assert asked == [("cold", SLOW), ("new_shapes", SLOW), ("cold", FAST)]
    slow, fast = made.result(SLOW), made.result(FAST)
    assert [start.seconds for start in slow.cold] == [0.25, 0.75] and slow.new_shapes == [[0.25], [0.5, 0.125]]
    assert (fast.status, fast.reason, len(fast.cold)) == ("wrong", "score off", 1)


@pytest.mark.parametrize(("workers", "width"), [(2, "unknown with fewer than 3 processes"), (4, "±0.0%")])
def test_the_width_that_the_budget_reached_is_told_where_there_is_an_interval(workers: int, width: str):
    made = record(
        *(right(each, *[0.1] * 5, workers=workers) for each in (FAST, OTHER)), settings=Settings(precision=-1.0)
    )
    note_precision(Run(QUESTIONS["speed"], made, SimpleNamespace(), lambda: None, Path()))  # pyright: ignore[reportArgumentType]
    assert [f"the widest interval of a verdict is {width}, asked" in note for note in made.notes] == [True]
