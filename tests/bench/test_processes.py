"""The question of processes: its cases and shards, its answer, a process that is lost, and whole runs."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hand_made import case, facts, plan_of, record, right
from in_process import run_here

from shared.bench.cases import Case, Settings
from shared.bench.measure.machine import usable_cores
from shared.bench.questions import QUESTIONS
from shared.bench.questions.processes import counts_of, write_inputs
from shared.bench.questions.processes_worker import ALONE, STEP, StepInputs, compared
from shared.bench.record import Record, Result
from shared.bench.report.tables import Answer
from shared.bench.run.context import Run
from shared.bench.run.progress import Lines
from shared.bench.run.worker_handle import Worker
from shared.bench.worker.parity_gate import Wrong
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.problem import BATCH
from shared.variants import Abilities

PROCESSES = QUESTIONS["processes"]
SMALL = Settings("processes", passes=("score", STEP), input="random", size=(6, 7), batch=5, threads=2)
ALL, ONE, TWO = "1 process, 2 cores", "1 process, 1 core", "2 processes, 1 core each"
needs_two_cores = pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")


def run_of(settings: Settings, folder: Path) -> Run:
    return Run(plan_of(PROCESSES, settings), Record("", settings), Lines(lambda _: None), lambda: None, folder)


# the cases and their inputs


def test_several_processes_and_both_ways_to_use_one_have_the_same_work():
    assert counts_of(replace(SMALL, threads=12)) == (1, 2, 4, 8, 12)
    assert counts_of(replace(SMALL, threads=12, processes=(1, 2))) == (1, 2)
    able = {"jax": Abilities("fused"), "torch": Abilities("fused", absent={"fused": "it cannot"})}
    cases, absent = PROCESSES.cases(SMALL, able, ())
    both = [(BATCH, ALL), (BATCH, ONE), (BATCH, TWO)]
    assert [(c.input, c.label) for c in cases if c.pass_name == "score"] == both
    assert [(c.input, c.label) for c in cases if c.pass_name == STEP] == [*both, (ALONE, TWO)]
    assert [row.case for row in absent] == ["PyTorch fused score", "PyTorch fused step"]
    starts = PROCESSES.starts(SMALL)
    assert {(name, label): start.threads for (name, label), start in starts.items()} == {
        (name, label): threads for name in ("jax", "torch") for label, threads in ((ALL, 2), (ONE, 1), (TWO, 1))
    }


def test_shards_have_every_pair_once(tmp_path: Path):
    run, inputs = run_of(SMALL, tmp_path), PROCESSES.inputs(SMALL)
    given: Any = inputs[BATCH]
    cells = given.pair_lengths.prod(1)
    assert (np.diff(cells) >= 0).all() and cells[0] < cells[-1] == 42  # ragged, in order
    write_inputs(run, inputs)
    shards = [np.load(tmp_path / f"{BATCH} {index} of 2.inputs", allow_pickle=True) for index in (0, 1)]
    assert all(isinstance(shard, AlignmentInputs) for shard in shards)
    every = np.concatenate([shard.similarity for shard in shards])
    assert sorted(every.sum((1, 2))) == pytest.approx(sorted(given.similarity.sum((1, 2))))


def test_a_step_has_the_pairs_of_a_batch_or_repeats_them_up_to_a_number():
    few, many = (PROCESSES.inputs(replace(SMALL, passes=(STEP,), batch=batch))[BATCH] for batch in (None, 50))
    assert isinstance(few, StepInputs) and isinstance(many, StepInputs)
    count = np.count_nonzero(few.batch.weights)
    assert count < 50 and many.pairs == 50 and many.batch.weights.all()
    for expected, repeated in zip(few.batch, many.batch, strict=True):
        np.testing.assert_array_equal(repeated[count:], np.concatenate([expected[:count]] * 50)[count:50])
    assert f"{count} pairs of" in few.text and "50 pairs of" in many.text


def test_the_gate_of_a_step_compares_losses():
    assert compared([2.0, 1.9], [2.0, 1.9 * (1 + 5e-6)], "float32").error_of_allowed == pytest.approx(0.5, 1e-3)
    for wrong in ([2.0, 1.9001], [2.0, float("nan")]):
        with pytest.raises(Wrong, match="losses of 2 steps"):
            compared(wrong, [2.0, 1.9], "float32")


# the answer


def answer(*results: Result, passes: tuple[str, ...] = ("score",)) -> Answer:
    settings = Settings("processes", passes=passes, threads=2)
    return PROCESSES.answer(record(*results, settings=settings, inputs={BATCH: facts(), ALONE: facts()}))


def timed(framework: str, pass_name: str = "score", workers: int = 3, **seconds: float) -> list[Result]:
    """seconds: by what is timed."""
    where = {"every": (BATCH, ALL), "one": (BATCH, ONE), "two": (BATCH, TWO), "alone": (ALONE, TWO)}
    cases = [case(framework, "fused", pass_name, input=where[key][0], label=where[key][1]) for key in seconds]
    return [right(of, *[each] * 5, workers=workers) for of, each in zip(cases, seconds.values(), strict=True)]


def test_several_processes_stand_against_one_on_all_cores_and_communication_is_told():
    found = answer(
        *timed("jax", every=0.22, one=0.4, two=0.2),
        *timed("jax", STEP, every=0.2, one=0.3, two=0.25, alone=0.2),
        passes=("score", STEP),
    )
    (table,) = found.tables
    assert [row[1:3] for row in table.rows] == [
        (pass_name, label) for pass_name in ("score", STEP) for label in (ALL, ONE, TWO)
    ]  # not the steps without communication
    assert [row[3:] for row in table.rows[2::3]] == [
        ("200 ms", "1.100×\n(1.088 … 1.11)"), ("250 ms", "0.80×\n(0.79 … 0.81)")
    ]  # fmt: skip
    share = "20% of it is communication, waiting included; 95% interval 19% … 21%."
    assert dict(found.statements)[f"JAX, a step by {TWO}"] == share


# whole runs


@pytest.mark.slow
@needs_two_cores
def test_a_process_that_is_killed_ends_the_worker_with_its_name(tmp_path: Path):
    settings = replace(SMALL, passes=("score",), frameworks=("torch",))
    write_inputs(run_of(settings, tmp_path), PROCESSES.inputs(settings))
    command = PROCESSES.starts(settings)["torch", TWO].command
    assert command is not None
    own = replace(settings, threads=1)
    worker = Worker("torch", command, own, tmp_path, lambda: None, memory_share=0.5, environment={})
    try:
        worker.wait_until_ready()
        of = Case("torch", "fused", "score", False, BATCH, "smith_waterman", "cpu", "float32", TWO)
        assert worker.ask("prepare", of).status == "ok"
        (other,) = psutil.Process(worker.pid).children()
        assert other.cpu_affinity() == usable_cores()[1:2]
        other.send_signal(signal.SIGKILL)
        reply = worker.ask("sample", of, expected=0.01, calls=1, lead=1, rehearse=True)
        how = "process 1 of 2: the worker was killed by SIGKILL (out of memory?)"
        assert reply.reason == f"the worker ended with exit code 1: {how}"
    finally:
        worker.stop()


@needs_two_cores
@pytest.mark.parametrize("framework", ["jax", pytest.param("torch", marks=pytest.mark.slow)])
def test_two_processes_measure_their_shards_and_train_together(framework: str, tmp_path: Path):
    path = tmp_path / "run.json"
    asked = ("--size", "6x7", "--batch", "5", "--pass", f"score,{STEP}", "--workers", "1", "--rounds", "1")
    done = run_here("processes", "--framework", framework, *asked, "--json", str(path))
    assert done.code == 0, done.err
    made = Record.read(path)
    labels = [r.case.label for r in made.results if r.case.pass_name == "score" and r.measured]
    assert labels == [ALL, ONE, TWO]
    (step,) = (r for r in made.results if (r.case.pass_name, r.case.input, r.case.label) == (STEP, BATCH, TWO))
    assert step.gate and step.gate.source == "one process, the same batch" and "losses of 3 steps" in step.gate.text
    # those of both shards
    assert [r.gate.pairs for r in made.results if r.gate and r.case.pass_name == "score"] == [5, 5, 5]
    assert f"{TWO} against {ALL}" in done.out
