"""Which cases each fresh process times."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hand_made import case, plan_of, record, right
from in_process import run_here, use_numpy_workers

from shared.bench.cases import Settings
from shared.bench.estimates import Block
from shared.bench.questions import QUESTIONS
from shared.bench.record import Compilation, Generation, Record
from shared.bench.run import context, timed_calls
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
    return _next_cases(Run(plan_of(QUESTIONS["speed"]), made, progress, lambda: None, Path()), CASES, number)[0]


def test_a_case_is_timed_further_where_it_is_compared_with_its_like(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(QUESTIONS["speed"], "drops_dominated", False)
    assert timed_by(2) == CASES
    assert not QUESTIONS["versions"].drops_dominated and not QUESTIONS["bridge"].drops_dominated


def test_a_dominated_case_is_timed_once():
    assert timed_by(1) == timed_by(2) == [FAST, SLOW, OTHER, OTHERS_SLOW]


def test_once_its_cell_is_settled_a_case_is_timed_by_eight_processes_if_it_is_cheap(monkeypatch: pytest.MonkeyPatch):
    assert timed_by(3) == timed_by(7) == [FAST, SLOW, OTHER, OTHERS_SLOW]
    assert timed_by(8) == [FAST, OTHER]
    monkeypatch.setattr(timed_calls, "CHEAP_CASE", 0.1)
    assert timed_by(3) == [FAST, OTHER]


def test_a_number_of_processes_is_kept_for_every_case():
    assert timed_by(3, workers=6) == CASES


def test_later_processes_repeat_the_first_calls_that_fit_the_cheapest_first(monkeypatch: pytest.MonkeyPatch):
    costs = {FAST: 0.5, SLOW: 0.25, FAR_SLOWER: 1000.0}
    made = record(*(right(each, 0.1, cold=seconds, new_shapes=[[seconds]]) for each, seconds in costs.items()))
    progress: Any = SimpleNamespace(begin=lambda *_: None, step=lambda *_: None)
    run = Run(plan_of(QUESTIONS["speed"]), made, progress, lambda: None, Path())
    asked: list[tuple[str, Any]] = []

    def ask(do: str, case: Any, **arguments: Any) -> Reply:
        asked.append((do, case))
        if (do, case) == ("cold", FAST):
            return Reply("wrong", "score off", {"gate": None})
        return Reply("ok", None, {"cold": Compilation(0.75), "new_shapes": [0.5, 0.125]})

    monkeypatch.setattr(run, "ask", ask)
    repeat_first_calls(run, list(costs), 2, 100.0, 100.0)
    assert asked == [("cold", SLOW), ("new_shapes", SLOW), ("cold", FAST)]
    slow, fast = made.result(SLOW), made.result(FAST)
    assert [start.seconds for start in slow.cold] == [0.25, 0.75] and slow.new_shapes == [[0.25], [0.5, 0.125]]
    assert (fast.status, fast.reason, len(fast.cold)) == ("wrong", "score off", 1)


@pytest.mark.parametrize(
    ("quick", "ends", "repeats"),
    [(True, [35 / 3, 20 / 2, 5.0], [0.0] * 3), (False, [0.8 * 35 / 8, 0.8 * 20 / 7], [0.2 * 15.0] * 2)],
)
def test_a_quick_run_plans_three_processes_without_repeats(
    monkeypatch: pytest.MonkeyPatch, quick: bool, ends: list[float], repeats: list[float]
):
    """In simulated time: 35 of 60 seconds are left, and a process takes 15."""
    clock = SimpleNamespace(now=25.0)
    clock.monotonic = lambda: clock.now
    made = record(*(right(each, cold=0.5) for each in CASES), settings=Settings(quick=quick, budget=60.0))
    progress: Any = SimpleNamespace(results=lambda *_: None)
    run = Run(plan_of(QUESTIONS["speed"]), made, progress, lambda: None, Path(), start=0.0)
    found: list[tuple[set[Any], float]] = []
    repeated: list[float] = []

    def one_generation(run: Run, cases: list[Any], number: int, end: float) -> list[Any]:
        found.append((set(cases), end - clock.now))
        for each in cases:
            run.record.result(each).blocks.append(Block.of(number, 0, [0.1]))
        run.record.generations.append(Generation(number, 1.0, None))
        clock.now += 15.0
        return cases

    for module in (timed_calls, context):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(timed_calls, "one_generation", one_generation)
    monkeypatch.setattr(timed_calls, "repeat_first_calls", lambda *given: repeated.append(given[-2]))
    timed_calls.measure_timed_calls(run, CASES)
    assert [end for _, end in found] == pytest.approx(ends)
    assert repeated == pytest.approx(repeats)
    # what PyTorch has no case of is timed once in a quick run
    assert [FAR_SLOWER in cases for cases, _ in found] == [True] + [not quick] * (len(ends) - 1)


@pytest.mark.parametrize("quick", [True, False])
def test_a_quick_run_calls_no_new_shape(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quick: bool):
    use_numpy_workers(monkeypatch)
    what = ("--size", "6x7", "--batch", "3", "--variant", "vmap", "--pass", "score", "--framework", "jax")
    how = ("--workers", "1", "--rounds", "1", "--json", str(tmp_path / "run.json"), *(["--quick"] if quick else []))
    assert run_here(*what, *how).code == 0
    (result,) = Record.read(tmp_path / "run.json").results
    assert result.measured and bool(result.new_shapes) != quick


@pytest.mark.parametrize(("workers", "width"), [(2, "±1.8%"), (4, "±0.8%")])
def test_the_width_that_the_budget_reached_is_told(workers: int, width: str):
    made = record(
        *(right(each, *[0.1] * 5, workers=workers) for each in (FAST, OTHER)), settings=Settings(precision=-1.0)
    )
    note_precision(Run(plan_of(QUESTIONS["speed"]), made, SimpleNamespace(), lambda: None, Path()))  # pyright: ignore[reportArgumentType]
    assert [f"the widest interval of a verdict is {width}, asked" in note for note in made.notes] == [True]


def test_once_the_budget_is_spent_what_takes_long_to_prepare_is_left_out_and_rounds_have_their_time(
    monkeypatch: pytest.MonkeyPatch,
):
    """An hour of simulated time is over, and a first call takes 2 s."""
    clock = SimpleNamespace(now=3600.0)
    clock.monotonic = lambda: clock.now
    warm = {FAST: 0.5, SLOW: 0.5, FAR_SLOWER: 40.0}
    made = record(*(right(each, 0.1, warm=[seconds]) for each, seconds in warm.items()))
    progress: Any = SimpleNamespace(begin=lambda *_: None, step=lambda *_: None)
    run = Run(plan_of(QUESTIONS["speed"]), made, progress, lambda: None, Path(), start=0.0)
    rounds: list[tuple[list[Any], float]] = []

    def prepare(run: Run, case: Any) -> float:
        clock.now += 2.0
        return 0.001

    def time_rounds(run: Run, plans: dict[Any, Any], number: int, end: float) -> None:
        rounds.append((list(plans), end - clock.now))

    for module in (timed_calls, context):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(run, "start_workers", lambda cases: None)
    monkeypatch.setattr(timed_calls, "_prepare", prepare)
    monkeypatch.setattr(timed_calls, "_time_rounds", time_rounds)
    timed_calls.one_generation(run, list(warm), 2, 3600.0)
    ((timed, seconds),) = rounds
    assert set(timed) == {FAST, SLOW} and seconds == pytest.approx(0.2 * 4.0)
    made.result(FAR_SLOWER).blocks.clear()  # as an interrupted run leaves it: it needs a time, whatever that takes
    timed_calls.one_generation(run, list(warm), 3, 3600.0)
    assert FAR_SLOWER in rounds[-1][0]
    note = "the budget of 300 s had no room for JAX vmap score in worker 3, which takes 40 s to prepare"
    assert made.notes == [note]
