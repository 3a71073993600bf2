"""The question of threads: its cases, its shares of the budget, its answer, and a whole run of it."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hand_made import case, ended, facts, plan_of, record, right
from in_process import assert_refused, run_here, settings_of, use_numpy_workers  # noqa: F401 - a fixture
from numpy_worker import Backend
from rendered import html_report

from shared.bench.cases import Case, Settings
from shared.bench.estimates import Block
from shared.bench.measure.machine import usable_cores
from shared.bench.questions import QUESTIONS, threads
from shared.bench.questions.threads import counts_up_to, label_of
from shared.bench.record import NO_ROOM, Generation, Record, Result
from shared.bench.report.tables import Answer
from shared.bench.run import context, fresh_processes
from shared.bench.run.context import Run
from shared.bench.run.plan import WorkerStart
from shared.bench.run.progress import Lines
from shared.bench.run.protocol import save_inputs
from shared.bench.run.worker_handle import Worker
from shared.bench.worker.case_runner import CaseRunner
from shared.variants import Abilities

THREADS = QUESTIONS["threads"]
DTYPES = ("float32", "float64")
INPUTS = {dtype: facts(f"three pairs, {dtype}") for dtype in DTYPES}
needs_two_cores = pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")


# the cases


@pytest.mark.parametrize(("most", "counts"), [(2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]), (12, [1, 2, 4, 8, 12])])
def test_the_numbers_of_threads_double_up_to_all(most: int, counts: list[int]):
    assert counts_up_to(most) == counts


def test_every_case_has_each_dtype_and_number_of_threads_and_is_absent_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(THREADS, "labels", {label_of(count): WorkerStart(threads=count) for count in range(1, 9)})
    able = {"jax": Abilities("vmap"), "torch": Abilities("vmap", absent={"vmap": "it cannot"})}
    settings = Settings("threads", passes=("score",), variants=("vmap",), threads=3)
    cases, absent = THREADS.cases(settings, able, DTYPES)
    labels = [label_of(count) for count in (1, 2, 3)]
    assert [(c.framework, c.dtype, c.input, c.label) for c in cases] == [
        ("jax", dtype, dtype, label) for dtype in DTYPES for label in labels
    ]
    assert [row.case for row in absent] == [f"PyTorch vmap score, {dtype}" for dtype in DTYPES]


def test_both_dtypes_are_the_default_and_one_can_be_chosen(settings_of: Callable[..., Settings]):  # noqa: F811
    size = ("threads", "--size", "6x7", "--batch", "3")
    given = THREADS.inputs(replace(settings_of(*size), threads=2))
    assert [(name, each.arrays["similarity"].dtype.name) for name, each in given.items()] == [(n, n) for n in DTYPES]
    assert list(THREADS.inputs(replace(settings_of(*size, "--dtype", "float64"), threads=2))) == ["float64"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--device", "cuda"), "threads goes with --device cpu, got cuda"),
        (("--threads", "1"), "threads needs at least 2 threads to compare, got 1"),
    ],
)
def test_what_threads_cannot_answer_is_refused(arguments: tuple[str, ...], text: str):
    assert_refused(run_here("threads", *arguments), text)


# its shares of the budget

# that a process takes, and what the first one takes beside that
SECONDS, COMPILING = {"vmap": 60.0, "wavefront": 20.0, "fused": 10.0}, {"vmap": 30.0}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[tuple[str, float]], Record]]:
    """The processes of a run in simulated time: of which variant each was, and the seconds until its rounds end."""

    def measure(budget: float, seconds: float = 1.0, **settings: Any) -> tuple[list[tuple[str, float]], Record]:
        """seconds: factor from one process of JAX with one thread to the next."""
        clock, timed = SimpleNamespace(now=0.0), []
        clock.monotonic = lambda: clock.now
        monkeypatch.setattr(context, "time", clock)
        monkeypatch.setattr(fresh_processes, "time", clock)
        monkeypatch.setattr(threads, "save_inputs", lambda *_: None)

        def one_generation(run: Run, cases: list[Case], number: int, end: float) -> list[Case]:
            timed.append((cases[0].variant, end - clock.now))
            for each in cases:
                power = number % 3 if each.worker_key == ("jax", "1 thread") else 0
                again = right(each, *[seconds**power] * 7)
                run.record.result(each).blocks += [block._replace(worker=number) for block in again.blocks]
            run.record.generations.append(Generation(number, 1.0, None))
            variant, compiles = cases[0].variant, not run.cached.issuperset(cases)
            clock.now += SECONDS[variant] + (COMPILING.get(variant, 0) if compiles else 0)
            run.cached.update(cases)
            return cases

        monkeypatch.setattr(fresh_processes, "one_generation", one_generation)
        made = record(settings=Settings("threads", passes=("score",), budget=budget, **settings), inputs=INPUTS)
        run = Run(plan_of(THREADS), made, Lines(lambda _: None), lambda: None, Path(), start=0.0)
        THREADS.measure(run, cases_of("vmap", "wavefront", "fused"), {})
        return timed, made

    return measure


def cases_of(*variants: str) -> list[Case]:
    return [
        case(framework, variant, dtype=dtype, input=dtype, label=label)
        for dtype in DTYPES
        for variant in variants
        for framework in ("jax", "torch")
        for label in ("1 thread", "2 threads")
    ]


def names(timed: list[tuple[str, float]]) -> list[str]:
    return [variant for variant, _ in timed]


def test_each_variant_has_three_processes_and_half_the_share_of_the_one_after_it(measured: Any):
    timed, made = measured(301.0)
    assert names(timed) == ["fused"] * 3 + ["wavefront"] * 3 + ["vmap"] * 3
    assert timed[0][1] == pytest.approx(301 / 7 / 3) and timed[3][1] == pytest.approx(271 / 3 / 3)
    assert timed[6][1] == pytest.approx(211 / 3)
    assert made.notes == []


def test_what_is_left_of_the_budget_goes_to_what_is_not_precise(measured: Any):
    timed, made = measured(361.0, seconds=1.2)
    assert names(timed)[9:] == ["fused", "wavefront"] * 2
    (note,) = made.notes
    assert "the budget of 361 s was spent: the widest interval" in note


def test_a_short_run_times_the_fastest_rung_and_says_what_it_had_no_room_for(measured: Any):
    timed, made = measured(45.0)
    assert names(timed) == ["fused"] * 3 + ["wavefront"]
    lost = {result.case.variant for result in made.results if result.reason == NO_ROOM}
    assert lost == {"vmap"}
    assert names(measured(0.1)[0]) == ["fused"]


def test_a_process_that_compiled_does_not_tell_how_long_the_next_one_takes(measured: Any):
    timed, _ = measured(220.0)  # after the first process of vmap 40 are left
    assert names(timed)[6:] == ["vmap"] * 2


def test_a_number_of_processes_is_kept(measured: Any):
    timed, _ = measured(1.0, workers=2)
    assert names(timed) == ["fused"] * 2 + ["wavefront"] * 2 + ["vmap"] * 2


# the answer


def answer(*results: Result, passes: tuple[str, ...] = ("score",)) -> Answer:
    made = record(*results, settings=Settings("threads", passes=passes), inputs=INPUTS)
    assert html_report([made]).count("<figure>") == 1
    return THREADS.answer(made)


def timed(variant: str, dtype: str = "float32", workers: int = 3, **seconds: tuple[float, ...]) -> list[Result]:
    """A case of each framework with 1, 2, 4 threads; seconds: by framework, of a call."""
    return [
        right(
            case(framework, variant, dtype=dtype, input=dtype, label=label_of(2**power)), *[each] * 5, workers=workers
        )
        for framework, own in seconds.items()
        for power, each in enumerate(own)
    ]


def test_a_row_has_both_speed_ups_and_the_faster_framework_with_one_and_with_all_threads():
    (table,) = answer(*timed("vmap", jax=(0.4, 0.2), torch=(0.2, 0.25))).tables
    assert table.title == "2 threads against 1 thread"
    assert [row[3:] for row in table.rows] == [
        ("1 thread", "400 ms", "–", "200 ms", "–", "PyTorch 2.00×\n(1.98 … 2.02)"),
        (
            *("2 threads", "200 ms", "2.00×\n(1.98 … 2.02)", "250 ms", "0.80×\n(0.79 … 0.81)"),
            "JAX 1.25×\n(1.24 … 1.26)",
        ),
    ]


def test_every_point_has_a_row():
    (table,) = answer(*timed("vmap", jax=(0.4, 0.2, 0.16), torch=(0.4, 0.3, 0.5))).tables
    assert table.title == "2 threads and 4 threads against 1 thread"
    assert [[cell.split("\n")[0] for cell in row[3:]] for row in table.rows] == [
        ["1 thread", "400 ms", "–", "400 ms", "–", "same"],
        ["2 threads", "200 ms", "2.00×", "300 ms", "1.33×", "JAX 1.50×"],
        ["4 threads", "160 ms", "2.50×", "500 ms", "0.80×", "JAX 3.12×"],
    ]


def test_the_sentences_say_for_whom_more_threads_help_and_whether_the_winner_changes():
    told = dict(
        answer(
            *timed("fused", jax=(0.4, 0.25), torch=(0.4, 0.25)),
            *timed("fused", "float64", jax=(0.8, 0.4), torch=(0.8, 0.4)),
            *timed("wavefront", jax=(0.4, 0.4), torch=(0.5, 0.6)),
            *timed("wavefront", "float64", jax=(0.4, 0.3), torch=(0.5, 0.5)),
            *timed("vmap", jax=(0.4, 0.2), torch=(0.2, 0.25)),
        ).statements
    )
    assert told == {
        "JAX, 2 threads against 1 thread": "faster: vmap (2.00×), fused (1.60 to 2.00×), wavefront score float64 "
        "(1.33×); same: wavefront score float32.",
        "PyTorch, 2 threads against 1 thread": "faster: fused (1.60 to 2.00×); same: wavefront score float64; slower: "
        "vmap (0.80×), wavefront score float32 (0.83×).",
        "The faster framework": "PyTorch 1 thread, JAX 2 threads: vmap; JAX throughout: wavefront; same throughout: "
        "fused.",
    }


def test_the_sentence_tells_the_best_of_several_points():
    told = dict(answer(*timed("vmap", jax=(0.4, 0.2, 0.25))).statements)
    assert told == {"JAX, the best of threads": "faster: vmap (2.00×, 2 threads)."}


def test_fewer_than_three_processes_are_named():
    row = answer(*timed("vmap", workers=2, jax=(0.4, 0.2), torch=(0.2, 0.25))).tables[0].rows[1]
    assert row[5] == "2.00×\n(1.96 … 2.04; 2 processes)"


def test_a_speed_up_that_drifts_has_a_wide_interval():
    results = timed("vmap", jax=(0.4, 0.2))
    results[0].blocks = [
        Block.of(block.worker, block.round, (0.4 + 0.04 * block.worker,)) for block in results[0].blocks
    ]
    found = answer(*results)
    assert found.tables[0].rows[1][5] == "2.19×\n(1.90 … 2.54)"


def test_a_framework_that_is_not_faster_at_every_point_is_not_said_to_be():
    results = timed("vmap", jax=(0.1, 0.1), torch=(0.2, 0.1))
    results[-1].blocks = [
        Block.of(block.worker, block.round, (0.05 + 0.05 * block.worker,)) for block in results[-1].blocks
    ]
    told = dict(answer(*results).statements)
    assert told["The faster framework"] == "JAX 1 thread, no clear winner 2 threads: vmap."


def test_a_case_without_a_time_is_named_below_the_table():
    late = ended(case("torch", "vmap", dtype="float32", input="float32", label="2 threads"), "limit", "> 120 s")
    found = answer(*timed("vmap", jax=(0.4, 0.2), torch=(0.2,)), late)
    (table,) = found.tables
    assert table.below[-1] == "No PyTorch vmap score, float32, 2 threads: > 120 s."
    assert [row[-2:] for row in table.rows] == [("200 ms", "PyTorch 2.00×\n(1.98 … 2.02)"), ("–", "–")]
    assert THREADS.answer(record(late, settings=Settings("threads"), inputs=INPUTS)) == Answer()


# runs

NUMPY = ("--size", "6x7", "--batch", "3", "--variant", "vmap", "--pass", "score", "--threads", "2", "--rounds", "2")


@needs_two_cores
def test_a_run_times_both_dtypes_on_as_many_cores_as_threads_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    path = tmp_path / "run.json"
    use_numpy_workers(monkeypatch)
    started: list[tuple[int, Worker]] = []

    def start(framework: str, command: Any, settings: Settings, *given: Any, **options: Any) -> Worker:
        started.append((settings.threads, Worker(framework, command, settings, *given, **options)))
        return started[-1][1]

    monkeypatch.setattr(context, "Worker", start)
    done = run_here("threads", *NUMPY, "--workers", "3", "--json", str(path))
    assert done.code == 0, done.err
    for count, worker in started:
        assert worker.environment["cores"] == usable_cores()[:count]
    assert [count for count, _ in started] == [1, 1] + [1, 2] * 6  # at first those that say what they can
    made = Record.read(path)
    assert {(r.case.dtype, r.case.label, len(r.blocks)) for r in made.results} == {
        (dtype, label, 6) for dtype in DTYPES for label in ("1 thread", "2 threads")
    }
    assert "2 threads against 1 thread" in done.out and "; float32 and float64, gap -1" in done.out
    made.generations.pop()
    made.write(path)
    resumed = run_here("--resume", str(path))
    assert resumed.code == 0, resumed.err
    after = Record.read(path)
    assert [generation.worker for generation in after.generations] == [0, 1, 3]  # the interrupted one does not count
    assert "8 cases in the old run, 8 in the new one, 8 in both" in run_here("--against", *[str(path)] * 2).out


@needs_two_cores
def test_a_worker_that_dies_costs_its_case_only(monkeypatch: pytest.MonkeyPatch):
    fault = {"do": "sample", "label": "2 threads", "framework": "jax", "dtype": "float64", "then": "is killed"}
    use_numpy_workers(monkeypatch, fault)
    done = run_here("threads", *NUMPY, "--workers", "3")
    assert done.code == 1
    assert done.out.count("FAILED: ") == 1 and "FAILED: JAX vmap score, float64, 2 threads: the worker was" in done.out


def pools(runner: CaseRunner, case: Case) -> dict[str, Any]:
    """In a worker: its cores, and the threads that its framework computes with."""
    runner.prepare(case)
    if case.framework == "torch":
        return {"cores": usable_cores(), "threads": sys.modules["torch"].get_num_threads()}
    names = [Path(f"/proc/self/task/{thread}/comm").read_text().strip() for thread in os.listdir("/proc/self/task")]
    return {"cores": usable_cores(), "threads": names.count("tf_XLAEigen")}


@needs_two_cores
@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_both_frameworks_compute_with_as_many_threads_as_the_label_says(monkeypatch: pytest.MonkeyPatch):
    found: dict[tuple[str, str], dict[str, Any]] = {}

    def measure(run: Run, cases: list[Case], inputs: Any) -> None:
        save_inputs(run, inputs)
        for each in cases:
            found[each.worker_key] = dict(run.ask_for_result("call", each, function=pools).details)

    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # of the workers
    monkeypatch.setattr(THREADS, "measure", measure)
    done = run_here("threads", *NUMPY[:4], "--variant", "wavefront", "--pass", "score", "--dtype", "float32")
    assert done.code == 0, done.err
    assert found == {
        (framework, label_of(count)): {"cores": usable_cores()[:count], "threads": count}
        for framework in ("jax", "torch")
        for count in counts_up_to(len(usable_cores()))
    }


def test_no_compiler_has_a_cache_with_a_space_in_its_name(tmp_path: Path):
    folders: list[Path] = []

    class Asked(Backend):
        compiler_cache = staticmethod(lambda folder: folders.append(folder) or pytest.MonkeyPatch.context())

    runner = CaseRunner(Asked("torch"), tmp_path, lambda *_, **__: None)
    with runner.context(case("torch", "vmap", label="2 threads")):
        pass
    (folder,) = folders
    assert "2_threads" in folder.name and " " not in folder.name
