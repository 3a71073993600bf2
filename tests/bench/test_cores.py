"""The questions of threads and of processes: their cases and inputs, their answers, and whole runs on several cores.

The golden rendering of these questions and of all others that have a record is docs/, see test_docs.py.
"""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hand_made import case, ended, facts, plan_of, record, right
from in_process import finished, resumed, run_here, started_workers, use_numpy_workers
from rendered import html_report

from shared.bench.cases import Case, Settings
from shared.bench.measure.machine import counts_up_to, usable_cores
from shared.bench.questions import QUESTIONS
from shared.bench.questions.processes import counts_of, write_inputs
from shared.bench.questions.processes_worker import ALONE, STEP, StepInputs, losses_gate
from shared.bench.questions.threads import label_of
from shared.bench.record import Record, Result
from shared.bench.report.tables import Answer
from shared.bench.run.context import Run
from shared.bench.run.plan import WorkerStart
from shared.bench.run.progress import Progress
from shared.bench.run.protocol import save_inputs
from shared.bench.run.worker_handle import Worker
from shared.bench.worker.case_runner import CaseRunner
from shared.bench.worker.parity_gate import Wrong
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.problem import BATCH
from shared.variants import Abilities

THREADS, PROCESSES = QUESTIONS["threads"], QUESTIONS["processes"]
DTYPES = ("float32", "float64")
SMALL = Settings("processes", passes=("score", STEP), input="random", size=(6, 7), batch=5, threads=2)
ALL, ONE, TWO = "1 process, 2 cores", "1 process, 1 core", "2 processes, 1 core each"
needs_two_cores = pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")


def test_every_case_has_each_dtype_and_number_of_threads_and_is_absent_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(THREADS, "labels", {label_of(count): WorkerStart(threads=count) for count in range(1, 9)})
    able = {"jax": Abilities("vmap"), "torch": Abilities("vmap", absent={"vmap": "it cannot"})}
    settings = Settings("threads", passes=("score",), variants=("vmap",), threads=3)
    cases, absent = THREADS.cases(settings, able, DTYPES)
    labels = [label_of(count) for count in (1, 2, 3)]
    assert [(c.framework, c.dtype, c.input, c.label) for c in cases] == [
        ("jax", dtype, dtype, label) for dtype in DTYPES for label in labels
    ]
    assert [row.title for row in absent] == ["PyTorch vmap score"]


def test_the_inputs_have_the_dtypes_that_are_asked_for():
    for dtypes in (DTYPES, DTYPES[1:]):
        inputs = THREADS.inputs(replace(SMALL, dtype=",".join(dtypes)))
        assert [(n, one.arrays["similarity"].dtype.name) for n, one in inputs.items()] == [(n, n) for n in dtypes]


def answer(*results: Result) -> Answer:
    settings = Settings("threads", passes=("score",))
    made = record(*results, settings=settings, inputs={dtype: facts(f"three pairs, {dtype}") for dtype in DTYPES})
    return THREADS.answer(made)


def timed(**seconds: tuple[float, ...]) -> list[Result]:
    """A case of each framework with 1, 2, 4 threads; seconds: by framework, of a call."""
    return [
        right(case(framework, "vmap", input="float32", label=label_of(2**power)), *[of_power] * 5, workers=3)
        for framework, of_framework in seconds.items()
        for power, of_power in enumerate(of_framework)
    ]


def test_a_row_has_both_speed_ups_and_the_faster_framework_at_each_point():
    (table,) = answer(*timed(jax=(0.4, 0.2, 0.16), torch=(0.4, 0.3, 0.5))).tables
    assert table.title == "2 threads and 4 threads against 1 thread"
    assert [[cell.split("\n")[0] for cell in row[3:]] for row in table.rows] == [
        ["1 thread", "400 ms", "–", "400 ms", "–", "same"],
        ["2 threads", "200 ms", "2.00×", "300 ms", "1.33×", "JAX 1.50×"],
        ["4 threads", "160 ms", "2.50×", "500 ms", "0.80×", "JAX 3.12×"],
    ]


def test_a_case_without_a_time_is_named_below_the_table():
    late = ended(case("torch", "vmap", input="float32", label="2 threads"), "limit", "> 120 s")
    (table,) = answer(*timed(jax=(0.4, 0.2), torch=(0.2,)), late).tables
    assert table.below[-1] == "No PyTorch vmap score, float32, 2 threads: > 120 s."
    assert [row[-2:] for row in table.rows] == [("200 ms", "PyTorch 2.00×\n(1.98 … 2.02)"), ("–", "–")]
    assert answer(late) == Answer()


NUMPY = ("--size", "6x7", "--batch", "3", "--variant", "vmap", "--pass", "score", "--threads", "2", "--rounds", "2")


@needs_two_cores
def test_a_run_times_both_dtypes_on_as_many_cores_as_threads_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    use_numpy_workers(monkeypatch)
    started = started_workers(monkeypatch)
    done, made = finished(tmp_path, "threads", *NUMPY, "--workers", "2", "--framework", "jax")
    assert all(worker.environment["cores"] == usable_cores()[:count] for _, count, worker in started)
    assert [count for _, count, _ in started] == [1] + [1, 2] * 2  # at first one that says what it can
    assert {(r.case.dtype, r.case.label, len(r.blocks)) for r in made.results} == {
        (dtype, label, 4) for dtype in DTYPES for label in ("1 thread", "2 threads")
    }
    assert "2 threads against 1 thread" in done.out and html_report([made]).count("<figure>") == 1
    made.repeats.pop()
    _, after = resumed(tmp_path, made)
    assert [repeat.number for repeat in after.repeats] == [0, 2]  # the interrupted one does not count


def pools(runner: CaseRunner, case: Case) -> dict[str, Any]:
    """Count the cores of a worker and the threads that its framework computes with."""
    runner.prepare(case)
    if case.framework == "torch":
        return {"cores": usable_cores(), "threads": sys.modules["torch"].get_num_threads()}
    names = [Path(f"/proc/self/task/{thread}/comm").read_text().strip() for thread in os.listdir("/proc/self/task")]
    return {"cores": usable_cores(), "threads": names.count("tf_XLAEigen")}


@pytest.mark.slow
@needs_two_cores
@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_both_frameworks_compute_with_as_many_threads_as_the_label_says(monkeypatch: pytest.MonkeyPatch):
    environments: dict[tuple[str, str], dict[str, Any]] = {}

    def measure(run: Run, cases: list[Case], inputs: Any) -> None:
        save_inputs(run, inputs)
        for one in cases:
            environments[one.worker_key] = dict(run.ask_for_result("call", one, function=pools).details)

    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # of the workers
    monkeypatch.setattr(THREADS, "measure", measure)
    done = run_here("threads", *NUMPY[:4], "--variant", "wavefront", "--pass", "score", "--dtype", "float32")
    assert done.code == 0, done.err
    assert environments == {
        (framework, label_of(count)): {"cores": usable_cores()[:count], "threads": count}
        for framework in ("jax", "torch")
        for count in counts_up_to(len(usable_cores()))
    }


def run_of(settings: Settings, folder: Path) -> Run:
    return Run(plan_of(PROCESSES, settings), Record("", settings), Progress(lambda _: None), lambda: None, folder)


def test_several_processes_and_both_ways_to_use_one_have_the_same_work():
    assert [counts_of(replace(SMALL, threads=count)) for count in (4, 12)] == [(1, 2, 4), (1, 2, 4, 8, 12)]
    assert counts_of(replace(SMALL, threads=12, processes=(1, 2))) == (1, 2)
    able = {"jax": Abilities("fused"), "torch": Abilities("fused", absent={"fused": "it cannot"})}
    cases, absent = PROCESSES.cases(SMALL, able, ())
    both = [(BATCH, ALL), (BATCH, ONE), (BATCH, TWO)]
    assert [(c.input, c.label) for c in cases if c.pass_name == "score"] == both
    assert [(c.input, c.label) for c in cases if c.pass_name == STEP] == [*both, (ALONE, TWO)]
    assert [row.title for row in absent] == ["PyTorch fused score", "PyTorch fused step"]
    starts = PROCESSES.starts(SMALL)
    assert {(name, label): start.threads for (name, label), start in starts.items()} == {
        (name, label): threads for name in ("jax", "torch") for label, threads in ((ALL, 2), (ONE, 1), (TWO, 1))
    }


def test_shards_have_every_pair_once(tmp_path: Path):
    run, inputs = run_of(SMALL, tmp_path), PROCESSES.inputs(SMALL)
    batch: Any = inputs[BATCH]
    cells = batch.pair_lengths.prod(1)
    assert (np.diff(cells) >= 0).all() and cells[0] < cells[-1] == 42  # ragged, in order
    write_inputs(run, inputs)
    shards = [np.load(tmp_path / f"{BATCH} {index} of 2.inputs", allow_pickle=True) for index in (0, 1)]
    assert all(isinstance(shard, AlignmentInputs) for shard in shards)
    every = np.concatenate([shard.similarity for shard in shards])
    assert sorted(every.sum((1, 2))) == pytest.approx(sorted(batch.similarity.sum((1, 2))))


def test_a_step_has_the_pairs_of_a_batch_or_repeats_them_up_to_a_number():
    few, many = (PROCESSES.inputs(replace(SMALL, passes=(STEP,), batch=batch))[BATCH] for batch in (None, 50))
    assert isinstance(few, StepInputs) and isinstance(many, StepInputs)
    count = np.count_nonzero(few.batch.weights)
    assert count < 50 and many.pairs == 50 and many.batch.weights.all()
    for expected, repeated in zip(few.batch, many.batch, strict=True):
        np.testing.assert_array_equal(repeated[count:], np.concatenate([expected[:count]] * 50)[count:50])
    assert f"{count} pairs of" in few.text and "50 pairs of" in many.text


def test_the_gate_of_a_step_compares_losses():
    assert losses_gate([2.0, 1.9], [2.0, 1.9 * (1 + 5e-6)], "float32").error_of_allowed == pytest.approx(0.5, 1e-3)
    for wrong in ([2.0, 1.9001], [2.0, float("nan")]):
        with pytest.raises(Wrong, match="losses of 2 steps"):
            losses_gate(wrong, [2.0, 1.9], "float32")


@pytest.mark.slow
@needs_two_cores
def test_a_process_that_is_killed_ends_the_worker_with_its_name(tmp_path: Path):
    settings = replace(SMALL, passes=("score",), frameworks=("torch",))
    write_inputs(run_of(settings, tmp_path), PROCESSES.inputs(settings))
    command = PROCESSES.starts(settings)["torch", TWO].command
    assert command is not None
    one_thread = replace(settings, threads=1)
    worker = Worker("torch", command, one_thread, tmp_path, lambda: None, memory_share=0.5, environment={})
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


@pytest.mark.slow
@needs_two_cores
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_two_processes_measure_their_shards_and_train_together(framework: str, tmp_path: Path):
    options = ("--size", "6x7", "--batch", "5", "--pass", f"score,{STEP}", "--workers", "1", "--rounds", "1")
    done, made = finished(tmp_path, "processes", "--framework", framework, *options)
    labels = [r.case.label for r in made.results if r.case.pass_name == "score" and r.measured]
    assert labels == [ALL, ONE, TWO]
    (step,) = (r for r in made.results if (r.case.pass_name, r.case.input, r.case.label) == (STEP, BATCH, TWO))
    assert step.gate and step.gate.source == "one process, the same batch" and "losses of 3 steps" in step.gate.text
    # those of both shards
    assert [r.gate.pairs for r in made.results if r.gate and r.case.pass_name == "score"] == [5, 5, 5]
    assert f"{TWO} against {ALL}" in done.out
