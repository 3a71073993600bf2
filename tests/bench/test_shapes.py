"""The question of shapes that change: its stream, what totals follow from measured batches, and whole runs of it."""

import dataclasses
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hand_made import case, record
from in_process import finished, started_workers, use_numpy_workers
from numpy_worker import Backend

import jax_impl.backend
import torch_impl.backend
from shared.bench.cases import Settings
from shared.bench.estimates import Block
from shared.bench.questions import QUESTIONS, shapes
from shared.bench.questions.shapes import STRATEGIES, of_totals, padded_shapes, pairs_of, timed_stream
from shared.bench.record import Result
from shared.bench.run.plan import WorkerStart
from shared.bench.run.schedule import LEAST_ROUNDS
from shared.bench.worker.case_runner import CaseRunner
from shared.problems import PROBLEMS
from shared.problems.alignment_inputs import AlignmentInputs
from torch_impl.compiler import compiled as torch_compiled

SMALL = Settings("shapes", input="random", passes=("marginals",), size=(24, 33), batch=3)
QUESTION = QUESTIONS["shapes"]


def stream_of(settings: Settings) -> AlignmentInputs:
    (stream,) = QUESTION.inputs(settings).values()
    assert isinstance(stream, AlignmentInputs)
    return stream


def batches_of(stream: AlignmentInputs) -> list[AlignmentInputs]:
    return [pairs_of(stream, pairs) for pairs in np.arange(stream.pairs).reshape(shapes.BATCHES, -1)]


@pytest.fixture
def four_batches(monkeypatch: pytest.MonkeyPatch):
    """Streams of 4 batches instead of 50, counted on to 40."""
    monkeypatch.setattr(shapes, "BATCHES", 4)
    monkeypatch.setattr(shapes, "COUNTED", 40)
    monkeypatch.setattr(shapes, "COUNTS", (2, 4, 40))


def test_the_pairs_of_a_batch_fill_its_shape_and_the_seed_decides():
    stream = stream_of(SMALL)
    batches = batches_of(stream)
    assert [batch.shape[1:] for batch in batches] == list(map(tuple, padded_shapes(SMALL)["as is"][:50]))
    assert {len(batch.similarity) for batch in batches} == {3} and stream.pair_lengths.min() >= 24 // 9
    assert (stream_of(SMALL).similarity == stream.similarity).all()
    assert (padded_shapes(dataclasses.replace(SMALL, seed=1))["as is"] != padded_shapes(SMALL)["as is"]).any()


def streamed(label: str, seconds: list[float], new: int = 500, **others: Any) -> Result:
    """A case whose stream took so many seconds batch by batch; the shapes of the first `new` batches are new."""
    made = case("torch", "vmap", "marginals", label=label, **others)
    details = {"compiles_at": [*range(new)] if made.compiled else [], "seconds": [seconds], "compilations": [0]}
    return Result(made, blocks=[Block.of(0, 0, [0.01])], details=details)


def total(result: Result, count: int) -> Any:
    """The total of so many batches, to be compared."""
    return pytest.approx(of_totals(record(result), count).results[0].blocks[0].median)


def test_totals_sum_what_was_measured_and_extrapolate_by_new_and_seen_shapes():
    as_is = streamed("as is", [3.0, *[2.0] * 49])
    assert [total(as_is, count) for count in (5, 50, 500)] == [3 + 4 * 2, 3 + 49 * 2, 3 + 499 * 2]
    four = streamed("4 shapes", [3.0, *[2.0] * 3, *[0.1] * 46], new=4)
    assert [total(four, count) for count in (50, 500)] == [9 + 46 * 0.1, 9 + 496 * 0.1]
    # two more new shapes, then as long as a batch that was called again
    cut = streamed("4 shapes", [20.0, 10.0], new=4)
    assert [total(cut, count) for count in (5, 50)] == [30 + 2 * 10 + 0.01, 50 + 46 * 0.01]
    # the first batch of a case that is not compiled says nothing of the others
    assert total(streamed("eager", [0.9, 0.2, 0.4], compiled=False), 500) == 1.5 + 497 * 0.3
    assert total(streamed("eager", [0.9], compiled=False), 5) == 0.9 + 4 * 0.01


NUMPY = ("--size", "12x17", "--batch", "3", "--threads", "1", "--variant", "vmap")


def test_a_run_has_a_fresh_worker_for_each_stream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, four_batches: None):
    use_numpy_workers(monkeypatch)
    started = started_workers(monkeypatch)
    results = finished(tmp_path, "shapes", *NUMPY, "--framework", "jax", "--workers", "2")[1].results
    assert len(started) == 1 + 4 * 2  # at first one that says what it can
    assert [r.case.label for r in results] == [name for name in STRATEGIES if name not in ("dynamic", "eager")]
    assert all(list(map(len, result.details["seconds"])) == [4, 4] for result in results)
    assert {r.gate.pairs for r in results if r.gate} == {3}  # those of the first batch
    assert [len(result.blocks) for result in results] == [2 * LEAST_ROUNDS] * 4


def test_a_stream_ends_when_its_share_of_the_budget_is_spent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, four_batches: None
):
    use_numpy_workers(monkeypatch)
    results = finished(tmp_path, "shapes", *NUMPY, "--budget", "0.1")[1].results
    streams = [list(map(len, result.details.get("seconds", []))) for result in results]
    assert len(streams) == 4 + 6 and {*map(tuple, streams)} == {(1,), ()}
    assert {r.reason for r, one in zip(results, streams, strict=True) if not one} == {"the budget had no room for it"}


@pytest.mark.parametrize("label", ["dynamic", "as is"])
def test_a_stream_has_dynamic_shapes_where_its_strategy_says_so(tmp_path: Path, four_batches: None, label: str):
    dynamic_flags: list[bool] = []

    class Asked(Backend):
        def call_of(self, *given: Any, dynamic: bool = False, **options: Any) -> Any:
            dynamic_flags.append(dynamic)
            return super().call_of(*given, **options)

    batches = batches_of(stream_of(SMALL))
    for number, batch in enumerate(batches):
        (tmp_path / f"batch-{number}.inputs").write_bytes(pickle.dumps(batch))
    expected = PROBLEMS["smith_waterman"].reference_results(batches[0], SMALL.passes)
    (tmp_path / "batch-0.reference").write_bytes(pickle.dumps(expected))
    events: list[str] = []
    runner = CaseRunner(Asked("torch"), tmp_path, lambda event, **_: events.append(event))
    of = case("torch", "vmap", "marginals", label=label)
    measured = timed_stream(runner, of, [[*batch.shape[1:]] for batch in batches], 60.0)
    assert dynamic_flags == [label == "dynamic"]
    assert events == ["setup_starts", "setup_ended", *["step"] * 4]  # each batch may take as long as a compilation
    assert [len(again) for again in measured["again"]] == [4] * LEAST_ROUNDS and measured["gate"].pairs == 3


@pytest.mark.slow
def test_both_frameworks_compile_once_for_each_shape_that_they_get(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, four_batches: None
):
    labels = {"as is": WorkerStart(), "multiples of 16": WorkerStart()}
    monkeypatch.setattr(QUESTIONS["shapes"], "labels", labels)
    options = ("--size", "24x33", "--batch", "3", "--variant", "fused", "--workers", "1")
    results = finished(tmp_path, "shapes", *options)[1].results
    assert len(results) == 4
    for result in results:
        new = [number for number in result.details["compiles_at"] if number < 4]
        assert not result.case.compiled or (len(new) == 4) == (result.case.label == "as is")
        assert result.details["compilations"] == [len(new)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", [jax_impl.backend, torch_impl.backend], ids=["jax", "torch"])
def test_compilations_are_counted_the_same_way_and_dynamic_shapes_need_two(
    monkeypatch: pytest.MonkeyPatch, backend: Any, dynamic: bool
):
    monkeypatch.setattr(torch_impl.backend, "compile_function", partial(torch_compiled, backend="eager"))  # fast
    backend.forget_compiled()  # PyTorch remembers which sizes of a line of code have changed
    function, counts = backend.pass_function("score", lambda x: 2 * x, compiled=True, dynamic=dynamic), []
    for length in (3, 4, 3, 5):
        array = backend.to_device(np.ones(length, np.float32), "cpu")
        with backend.compile_times() as times:
            function(array)
        counts.append(times.compilations)
    assert counts == ([1, 1, 0, 0] if dynamic and backend is torch_impl.backend else [1, 1, 0, 1])
