"""Which cases each fresh process times."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hand_made import case, record, right

from shared.bench.cases import Settings
from shared.bench.questions import QUESTIONS
from shared.bench.run.context import Run
from shared.bench.run.timed_calls import _next_cases

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
