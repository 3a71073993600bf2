"""The question of processes: its cases and shards, its answer, launchers, a process that is lost, and whole runs."""

import json
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from hand_made import case, ended, facts, plan_of, record, right
from in_process import assert_refused, run_here, settings_of  # noqa: F401 - a fixture
from rendered import html_report

from shared.bench.cases import Case, Settings
from shared.bench.estimates import Block
from shared.bench.measure.machine import usable_cores
from shared.bench.questions import QUESTIONS, processes_group
from shared.bench.questions.processes import counts_of
from shared.bench.questions.processes_group import Group, Place
from shared.bench.questions.processes_inputs import (
    ALONE,
    COUNT,
    STEP,
    copies_name,
    inputs_of,
    reference_of_rows,
    repeated,
    rows_of,
    shards,
    step_inputs,
    write_inputs,
)
from shared.bench.questions.processes_launch import launch_of
from shared.bench.questions.processes_rows import many_label, one_label
from shared.bench.questions.processes_run import measure_processes
from shared.bench.questions.processes_step import compared
from shared.bench.questions.processes_worker import command
from shared.bench.record import Generation, Record, Result
from shared.bench.report.tables import Answer
from shared.bench.run.context import Run
from shared.bench.run.progress import Lines
from shared.bench.run.worker_handle import Worker
from shared.bench.worker.parity_gate import Wrong
from shared.learning.batches import Batch
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.alignment_reference import reference_results
from shared.problems.problem import BATCH, UnusableInput
from shared.variants import Abilities

PROCESSES = QUESTIONS["processes"]
SMALL = Settings("processes", passes=("score", STEP), input="random", size=(6, 7), batch=5, threads=2)
ONE, ALL, TWO = one_label(1), one_label(2), many_label(2, 1)
needs_two_cores = pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")


@pytest.fixture(autouse=True)
def without_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "JAX_COORDINATOR_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


# the cases and their inputs


@pytest.mark.parametrize(("cores", "counts"), [(2, (1, 2)), (3, (1, 2, 3)), (4, (1, 2, 4)), (12, (1, 2, 4, 8, 12))])
def test_the_numbers_of_processes_double_up_to_the_cores(cores: int, counts: tuple[int, ...]):
    assert counts_of(replace(SMALL, threads=cores)) == counts
    assert counts_of(replace(SMALL, threads=cores, processes=(1, 2))) == (1, 2)


def test_several_processes_and_both_ways_to_use_one_have_the_same_work():
    able = {"jax": Abilities("fused"), "torch": Abilities("fused", absent={"fused": "it cannot"})}
    cases, absent = PROCESSES.cases(SMALL, able, ())
    of_score = [(BATCH, ALL), (BATCH, ONE), (BATCH, TWO), (COUNT, TWO), ("2 batches", TWO), ("2 batches", ALL)]
    assert [(c.input, c.label) for c in cases if c.pass_name == "score"] == of_score
    assert [(c.input, c.label) for c in cases if c.pass_name == STEP] == [
        (ALONE if name == COUNT else name, label) for name, label in of_score
    ]
    assert [row.case for row in absent] == ["PyTorch fused score", "PyTorch fused step"]
    starts = PROCESSES.starts(SMALL)
    assert {(name, label): start.threads for (name, label), start in starts.items()} == {
        (name, label): threads for name in ("jax", "torch") for label, threads in ((ALL, 2), (ONE, 1), (TWO, 1))
    }


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("--processes 1", "processes must have a number above 1, such as 2 or 1,2,4, got '1'"),
        ("--processes 2 --batch 1", "2 processes need a pair each, got 1"),
        ("--processes 1,0", "processes must be a whole number from 1"),
        ("--processes 1,99", f"--processes must be at most {len(usable_cores())}, the cores to use, got 99"),
        ("--threads 1", "processes needs at least 2 cores, got 1"),
        ("--device cuda", "processes goes with --device cpu, got cuda"),
        ("--pass path", "processes goes with passes that a training needs, not with path"),
        ("--problem stencil", "processes goes with alignments, not with stencil"),
    ],
)
def test_what_processes_cannot_answer_is_refused(arguments: str, text: str):
    assert_refused(run_here("processes", *arguments.split()), text)


def test_shards_have_every_pair_once_with_its_weights_and_reference():
    inputs = inputs_of(SMALL, [2])
    given = inputs[BATCH]
    assert isinstance(given, AlignmentInputs)
    cells = given.pair_lengths.prod(1)
    assert (np.diff(cells) >= 0).all() and cells[0] < cells[-1] == 42  # ragged, in order
    passes = ("score", "hvp")
    whole = reference_results(SMALL.problem, given, passes)
    for name in (BATCH, COUNT):
        parts = [rows for shard, rows in shards(given, 2).items() if shard.startswith(f"{name} ")]
        assert sorted(np.concatenate(parts)) == list(range(5))
        for rows in parts:
            own = rows_of(given, rows)
            found = reference_of_rows(SMALL.problem, whole, own, rows, passes)
            assert sorted(rows[found.pairs]) == sorted(rows)
            again = reference_results(SMALL.problem, own, passes)
            assert found.hvp is not None and again.hvp is not None
            places = np.argsort(found.pairs), np.argsort(again.pairs)
            np.testing.assert_allclose(found.hvp[places[0]].sum((1, 2)), again.hvp[places[1]].sum((1, 2)))
    twice = inputs[copies_name(2)]
    np.testing.assert_array_equal(twice.arguments("hvp")[2], np.tile(given.weights, (2, 1, 1)))
    alone = reference_of_rows(SMALL.problem, whole._replace(pairs=whole.pairs + 5), rows_of(given, rows), rows, passes)
    assert len(alone.pairs)  # of a shard that the reference has nothing of


def test_a_step_has_the_pairs_of_a_batch_or_so_many_of_them_over_and_over():
    given, many = step_inputs(0), step_inputs(0, 50)
    own = np.count_nonzero(given.batch.weights)
    assert own < 50 and many.pairs == 50 and many.batch.weights.all()
    for expected, found in zip(given.batch, many.batch, strict=True):
        np.testing.assert_array_equal(found[own:], np.concatenate([expected[:own]] * 50)[own:50])
    assert f"{own} pairs of" in given.text and "50 pairs of" in many.text
    assert inputs_of(SMALL, [2])[ALONE].pairs == 5
    only = inputs_of(replace(SMALL, passes=(STEP,), batch=10_000), [2])
    assert {name: each.pairs for name, each in only.items()} == {BATCH: 10_000, "2 batches": 20_000, ALONE: 10_000}


def test_the_gate_of_a_step_compares_losses():
    assert compared([2.0, 1.9], [2.0, 1.9 * (1 + 5e-6)], "float32").error_of_allowed == pytest.approx(0.5, 1e-3)
    for wrong in ([2.0, 1.9001], [2.0, float("nan")]):
        with pytest.raises(Wrong, match="losses of 2 steps"):
            compared(wrong, [2.0, 1.9], "float32")
    batch = Batch._make(np.arange(3) for _ in Batch._fields)
    assert repeated(batch, 2).weights.tolist() == [0, 1, 2, 0, 1, 2]


# the answer


def answer(*results: Result, passes: tuple[str, ...] = ("score",)) -> Answer:
    inputs = {name: facts() for name in (BATCH, COUNT, ALONE, copies_name(2))}
    made = record(*results, settings=Settings("processes", passes=passes, threads=2), inputs=inputs)
    assert html_report([made])
    return PROCESSES.answer(made)


def timed(framework: str, pass_name: str = "score", workers: int = 3, **seconds: float) -> list[Result]:
    """seconds: by what is timed."""
    where = {
        "one": (BATCH, ONE), "every": (BATCH, ALL), "two": (BATCH, TWO), "count": (COUNT, TWO), "alone": (ALONE, TWO),
        "weak": (copies_name(2), TWO), "weak_every": (copies_name(2), ALL),
    }  # fmt: skip
    made = []
    for name, each in seconds.items():
        input_name, label = where[name]
        of = case(framework, "fused", pass_name, input=input_name, label=label)
        made.append(right(of, *[each] * 5, workers=workers))
    return made


def test_a_row_has_speed_up_and_efficiency_over_both_ways_to_use_one_process():
    results = timed("jax", one=0.4, every=0.22, two=0.25, count=0.3, weak=0.5, weak_every=0.45)
    results[0].details = {"count": 2, "largest_share": {BATCH: 1.0, COUNT: 1.25}, "hosts": 1}
    scaling, dividing = answer(*results).tables
    assert scaling.title == "Process scaling on one host: 2 processes, 1 core each"
    assert scaling.rows == [
        (
            *("JAX", "score", "1.60×, 80%\n(1.60 … 1.60)", "0.88×\n(0.88 … 0.88)"),
            *("80%\n(80% … 80%)", "0.90×\n(0.90 … 0.90)"),
        )
    ]
    assert dividing.rows == [("JAX", "score", "1.20×\n(1.20 … 1.20)", "–")]
    assert dividing.below[-1].endswith("1.25 times an equal share of the cells by count, 1.00 times by cells.")
    results[0].details |= {"hosts": 2, "share_cores": True}
    (on_hosts, _) = answer(*results).tables
    assert on_hosts.title.startswith("Process scaling on 2 hosts: ") and "had the same cores" in on_hosts.below[-1]
    assert "had the same cores" not in scaling.below[-1]


def test_the_sentences_say_what_to_take_and_what_communication_takes():
    told = dict(
        answer(
            *timed("jax", every=0.22, two=0.2),
            *timed("jax", "marginals", every=0.2, two=0.22),
            *timed("jax", "hvp", every=0.2, two=0.201),
            *timed("torch", STEP, workers=2, every=0.2, two=0.25, alone=0.2),
            passes=("score", "marginals", "hvp", STEP),
        ).statements
    )
    assert told == {
        "JAX on 2 cores": "take 2 processes for score (1.100×): so many times as fast as one process with 2 threads; "
        "take one process with 2 threads for marginals (1.100×): so many times as fast as 2 processes; "
        "one process with 2 threads or 2 processes, the same within ±3%, for hvp.",
        "PyTorch on 2 cores": "one process with 2 threads or 2 processes: not decided for step.",
        "PyTorch, a step by 2 processes": "20% (< 3 processes) of it is communication, waiting included.",
    }


def test_a_speed_up_that_drifts_decides_nothing():
    results = timed("jax", every=0.4, two=0.2)
    results[0].blocks = [
        Block.of(block.worker, block.round, (0.4 + 0.04 * block.worker,)) for block in results[0].blocks
    ]
    found = answer(*results)
    assert found.tables[0].rows[0][3] == "2.19×\n(1.75 … 2.75; drift +20%)"
    told = "one process with 2 threads or 2 processes: not decided for score."
    assert dict(found.statements) == {"JAX on 2 cores": told}


def test_a_case_without_a_time_is_named_below_the_table_and_decides_nothing():
    lost = ended(case("jax", "fused", label=TWO), "failed", "JAX process 1 of 2 was killed by SIGKILL")
    found = answer(*timed("jax", one=0.4, every=0.2, weak=0.5), lost)
    assert found.tables[0].below[-1].endswith("2 processes, 1 core each: JAX process 1 of 2 was killed by SIGKILL.")
    assert found.tables[0].rows[0][2:] == ("–", "–", "80%\n(80% … 80%)", "–") and not found.statements
    assert answer(lost) == Answer()


# launchers

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node", "MASTER_PORT": "29500"}
OF_JAX = {"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2", "JAX_COORDINATOR_ADDRESS": "node:1234"}


def of(framework: str, **others: Any) -> Settings:
    return replace(SMALL, frameworks=(framework,), **others)


def test_a_process_knows_its_place_among_those_of_its_launcher():
    assert launch_of(SMALL, {"MASTER_ADDR": "node"}) is None
    local = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    launch = launch_of(of("torch", threads=4), TORCHRUN | local)
    assert launch == (1, 2, "node:29500", 1, 2)
    assert launch is not None
    place = launch.place(of("torch", threads=4), "group 3")
    assert place == Place("torch", 1, 2, "node:29500", "group 3", first_core=2, is_launched=True, given=place.given)
    assert launch_of(of("jax"), OF_JAX) == (1, 2, "node:1234", 0, 1)
    assert launch_of(of("torch"), TORCHRUN | {"WORLD_SIZE": "1"}) is None


@pytest.mark.parametrize(
    ("settings", "environment", "text"),
    [
        (SMALL, TORCHRUN, "started this process: expected --framework torch, got JAX and PyTorch"),
        (of("jax"), TORCHRUN, "expected --framework torch, got JAX"),
        (of("jax"), {"JAX_COORDINATOR_ADDRESS": "a:1"}, "goes with JAX_PROCESS_ID, JAX_NUM_PROCESSES"),
        (of("torch", processes=(1, 2)), TORCHRUN, "--processes goes without a launcher, which has started 2 processes"),
        (
            of("jax"),
            OF_JAX | {"JAX_COORDINATOR_ADDRESS": "node"},
            "^JAX_COORDINATOR_ADDRESS must be HOST:PORT, got 'node",
        ),
        (of("torch"), TORCHRUN | {"LOCAL_WORLD_SIZE": "3"}, "3 processes on this host need a core each, got 2"),
        (of("torch"), {"RANK": "0", "WORLD_SIZE": "2"}, "RANK, WORLD_SIZE in the env.* goes with MASTER_ADDR, MASTER_"),
        (of("torch"), TORCHRUN | {"RANK": "one"}, "^RANK in the environment must be a whole number, got 'one'"),
        (of("torch"), TORCHRUN | {"LOCAL_RANK": "1"}, "^LOCAL_RANK .* must be below 1, the number of processes, got 1"),
        (of("jax"), OF_JAX | {"JAX_PROCESS_ID": "5"}, "^JAX_PROCESS_ID .* must be below 2, the number of proc.* got 5"),
    ],
)
def test_a_launcher_that_cannot_be_measured_is_refused(settings: Settings, environment: dict[str, str], text: str):
    with pytest.raises(UnusableInput, match=text):
        launch_of(settings, environment)


# a process that is lost


class Store(dict):
    """A backend of processes that are threads of this one."""

    def join(self, *_: Any) -> None:
        """Nothing."""

    leave = join
    put = dict.__setitem__

    def get(self, key: str, seconds: float) -> str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return dict.get(self, key)


@pytest.mark.parametrize("does_the_other_live", [True, False])
def test_a_process_that_falls_silent_ends_the_others(monkeypatch: pytest.MonkeyPatch, does_the_other_live: bool):
    told: list[str] = []
    monkeypatch.setattr(processes_group, "SIGN_SECONDS", 0.02)
    monkeypatch.setattr(processes_group, "SILENT_SECONDS", 0.2)
    store = Store()
    group = Group(store, Place("torch", 0, 2))
    monkeypatch.setattr(group, "end", lambda text: (told.append(text), group._left.set()))
    for beat in range(20):
        if does_the_other_live or beat < 3:
            store.put("alive 1", str(beat))
        group._left.wait(0.02)
    group._left.set()
    assert told == ([] if does_the_other_live else ["PyTorch process 1 of 2 was silent for 0.2 s"])


def test_a_launched_process_with_other_options_ends(monkeypatch: pytest.MonkeyPatch):
    told: list[str] = []
    monkeypatch.setattr(Group, "end", lambda self, text: told.append(text))
    store = Store()
    for index, batch in ((0, 5), (1, 5), (1, 7)):
        launch = launch_of(of("jax"), OF_JAX | {"JAX_PROCESS_ID": str(index)})
        assert launch is not None
        sent = json.loads(command(launch.place(of("jax", batch=batch), "group"))[-1])
        Group(store, Place(**sent)).leave()
    assert told == ["JAX process 1 of 2 has other options than process 0: batch 7, expected 5"]


def test_a_process_that_waits_in_vain_for_the_others_to_join_says_so(monkeypatch: pytest.MonkeyPatch):
    told: list[str] = []
    monkeypatch.setattr(processes_group, "JOIN_SECONDS", 0.05)
    monkeypatch.setattr(Group, "end", lambda self, text: told.append(text))
    for seconds in (0.2, 0.0):  # the second joins at once
        own = SimpleNamespace(join=lambda *_, seconds=seconds: time.sleep(seconds), leave=lambda: None)
        Group(own, Place("jax", 1, 2)).leave()
    time.sleep(0.1)
    assert told == ["JAX process 1 of 2 waited 0.05 s for the others to join"]


def test_what_a_launcher_s_processes_have_measured_is_not_resumed(monkeypatch: pytest.MonkeyPatch):
    first = timed("jax", two=0.2)[0]
    first.details = {"is_launched": True}
    made = record(first, settings=of("jax"), generations=[Generation(0, 1.0, 0.0)])
    run: Any = Run(plan_of(PROCESSES), made, Lines(lambda _: None), lambda: None, Path())
    with pytest.raises(UnusableInput, match="cannot be resumed"):
        measure_processes(run, [], {})


def test_the_store_that_is_gone_ends_a_process(monkeypatch: pytest.MonkeyPatch):
    told: list[str] = []
    monkeypatch.setattr(processes_group, "SIGN_SECONDS", 0.02)
    group = Group(SimpleNamespace(join=lambda *_: None), Place("jax", 1, 2))
    monkeypatch.setattr(group, "end", lambda text: (told.append(text), group._left.set()))
    group._watcher.join(5.0)
    assert told == ["JAX process 0 of 2 has ended"]


@needs_two_cores
def test_a_process_that_is_killed_ends_the_worker_with_its_name(tmp_path: Path):
    asked = of("torch", threads=1)
    write_inputs(tmp_path, asked, inputs_of(asked, [2]), [2])
    place = command(Place("torch", count=2))
    worker = Worker("torch", place, asked, tmp_path, lambda: None, memory_share=0.5, environment={})
    try:
        worker.wait_until_ready()
        own = Case("torch", "fused", "score", False, BATCH, "smith_waterman", "cpu", "float32", TWO)
        assert worker.ask("prepare", own).status == "ok"
        (other,) = psutil.Process(worker.pid).children()
        assert other.cpu_affinity() == usable_cores()[1:2]
        other.send_signal(signal.SIGKILL)
        reply = worker.ask("sample", own, expected=0.01, calls=1, lead=1, rehearse=True)
        assert reply.reason == "the worker ended with exit code 1: PyTorch process 1 of 2 was killed by SIGKILL"
    finally:
        worker.stop()


# whole runs


@needs_two_cores
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_two_processes_measure_their_shards_and_train_together(framework: str, tmp_path: Path):
    path = tmp_path / "run.json"
    quick = ("--quick", "--budget", "600") if framework == "jax" else ()  # fewer cases to compile
    asked = (*quick, "--size", "6x7", "--batch", "5", "--pass", f"score,{STEP}", "--workers", "1", "--rounds", "1")
    done = run_here("processes", "--framework", framework, *asked, "--json", str(path))
    assert done.code == 0, done.err
    made = Record.read(path)
    names = [(r.case.input, r.case.label) for r in made.results if r.case.pass_name == "score" and r.measured]
    several = [] if quick else [(COUNT, TWO), ("2 batches", TWO), ("2 batches", ALL)]
    assert names == [(BATCH, ALL), (BATCH, ONE), (BATCH, TWO), *several]
    (step,) = (r for r in made.results if (r.case.pass_name, r.case.input, r.case.label) == (STEP, BATCH, TWO))
    assert step.gate and step.gate.source == "one process, the same batch" and "losses of 3 steps" in step.gate.text
    of_all = [r.gate.pairs for r in made.results if r.gate and r.case.pass_name == "score" and r.case.input == BATCH]
    assert of_all == [5, 5, 5]  # those of both shards
    assert "Process scaling on one host: 2 processes, 1 core each" in done.out
