"""The question of threads: its cases, the answer of a question along an axis, and whole runs.

The golden rendering of this question and of all others that have a record is docs/, see test_docs.py.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hand_made import case, ended, facts, record, right
from in_process import assert_refused, run_here, settings_of, use_numpy_workers  # noqa: F401 - a fixture
from numpy_worker import Backend
from rendered import html_report
from watched import started_workers

from shared.bench.cases import Case, Settings
from shared.bench.measure.machine import usable_cores
from shared.bench.questions import QUESTIONS
from shared.bench.questions.threads import counts_up_to, label_of
from shared.bench.record import Record, Result
from shared.bench.report.tables import Answer
from shared.bench.run.context import Run
from shared.bench.run.plan import WorkerStart
from shared.bench.run.protocol import save_inputs
from shared.bench.worker.case_runner import CaseRunner
from shared.variants import Abilities

THREADS = QUESTIONS["threads"]
DTYPES = ("float32", "float64")
needs_two_cores = pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")


@pytest.mark.parametrize(("most", "counts"), [(2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]), (12, [1, 2, 4, 8, 12])])
def test_numbers_of_threads_double_up_to_all(most: int, counts: list[int]):
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
    assert [row.case for row in absent] == ["PyTorch vmap score"]


def test_both_dtypes_are_the_default_and_one_can_be_chosen(settings_of: Callable[..., Settings]):  # noqa: F811
    size = ("threads", "--size", "6x7", "--batch", "3")
    given = THREADS.inputs(replace(settings_of(*size), threads=2))
    assert [(name, each.arrays["similarity"].dtype.name) for name, each in given.items()] == [(n, n) for n in DTYPES]
    assert list(THREADS.inputs(replace(settings_of(*size, "--dtype", "float64"), threads=2))) == ["float64"]


# the answer


def answer(*results: Result) -> Answer:
    settings = Settings("threads", passes=("score",))
    made = record(*results, settings=settings, inputs={dtype: facts(f"three pairs, {dtype}") for dtype in DTYPES})
    return THREADS.answer(made)


def timed(variant: str, dtype: str = "float32", workers: int = 3, **seconds: tuple[float, ...]) -> list[Result]:
    """A case of each framework with 1, 2, 4 threads; seconds: by framework, of a call."""
    cases = [
        (case(framework, variant, dtype=dtype, input=dtype, label=label_of(2**power)), each)
        for framework, of_framework in seconds.items()
        for power, each in enumerate(of_framework)
    ]
    return [right(of, *[each] * 5, workers=workers) for of, each in cases]


def test_a_row_has_both_speed_ups_and_the_faster_framework_at_each_point():
    (table,) = answer(*timed("vmap", jax=(0.4, 0.2, 0.16), torch=(0.4, 0.3, 0.5))).tables
    assert table.title == "2 threads and 4 threads against 1 thread"
    assert [[cell.split("\n")[0] for cell in row[3:]] for row in table.rows] == [
        ["1 thread", "400 ms", "–", "400 ms", "–", "same"],
        ["2 threads", "200 ms", "2.00×", "300 ms", "1.33×", "JAX 1.50×"],
        ["4 threads", "160 ms", "2.50×", "500 ms", "0.80×", "JAX 3.12×"],
    ]
    row = answer(*timed("vmap", workers=2, jax=(0.4, 0.2), torch=(0.2, 0.25))).tables[0].rows[1]
    assert row[5] == "2.00×\n(1.96 … 2.04; 2 processes)"


def test_a_case_without_a_time_is_named_below_the_table():
    late = ended(case("torch", "vmap", dtype="float32", input="float32", label="2 threads"), "limit", "> 120 s")
    (table,) = answer(*timed("vmap", jax=(0.4, 0.2), torch=(0.2,)), late).tables
    assert table.below[-1] == "No PyTorch vmap score, float32, 2 threads: > 120 s."
    assert [row[-2:] for row in table.rows] == [("200 ms", "PyTorch 2.00×\n(1.98 … 2.02)"), ("–", "–")]
    assert answer(late) == Answer()


# runs

NUMPY = ("--size", "6x7", "--batch", "3", "--variant", "vmap", "--pass", "score", "--threads", "2", "--rounds", "2")


@needs_two_cores
def test_a_run_times_both_dtypes_on_as_many_cores_as_threads_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    path = tmp_path / "run.json"
    use_numpy_workers(monkeypatch)
    started = started_workers(monkeypatch)
    done = run_here("threads", *NUMPY, "--workers", "2", "--framework", "jax", "--json", str(path))
    assert done.code == 0, done.err
    assert all(worker.environment["cores"] == usable_cores()[:count] for _, count, worker in started)
    assert [count for _, count, _ in started] == [1] + [1, 2] * 2  # at first one that says what it can
    made = Record.read(path)
    assert {(r.case.dtype, r.case.label, len(r.blocks)) for r in made.results} == {
        (dtype, label, 4) for dtype in DTYPES for label in ("1 thread", "2 threads")
    }
    assert "2 threads against 1 thread" in done.out and html_report([made]).count("<figure>") == 1
    made.generations.pop()
    made.write(path)
    assert run_here("--resume", str(path)).code == 0
    after = Record.read(path)
    assert [generation.worker for generation in after.generations] == [0, 2]  # the interrupted one does not count


def pools(runner: CaseRunner, case: Case) -> dict[str, Any]:
    """In a worker: its cores, and the threads that its framework computes with."""
    runner.prepare(case)
    if case.framework == "torch":
        return {"cores": usable_cores(), "threads": sys.modules["torch"].get_num_threads()}
    names = [Path(f"/proc/self/task/{thread}/comm").read_text().strip() for thread in os.listdir("/proc/self/task")]
    return {"cores": usable_cores(), "threads": names.count("tf_XLAEigen")}


@pytest.mark.slow
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
    assert "2_threads" in folders[0].name and " " not in folders[0].name
