"""How large a batch fits into a given memory."""

import contextlib
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hand_made import case, ended, facts, record
from in_process import finished, run_here, use_numpy_workers

from shared.bench.cases import Settings
from shared.bench.questions import QUESTIONS
from shared.bench.questions.memory import _find_batches, _measure, peak_of
from shared.bench.record import Result
from shared.bench.report.case_table import case_tables
from shared.bench.report.tables import Answer
from shared.bench.run.worker_handle import Reply
from shared.problems.problem import DATA

MEBIBYTE = 2**20
SETTINGS = Settings("memory", input="random", passes=("marginals",), memory=1000 * MEBIBYTE, size=(100, 100))
INPUTS = {DATA: facts(shape=(1, 100, 100))}
PROCESS, CELL, LARGEST, MORE, TRIED = range(3, 8)  # columns


def fitting(framework: str, variant: str, *bases: float, cell: float = 10.0, trial: Any = None) -> Result:
    """A case each of whose processes needs so many MiB and so many bytes a cell; trial: the peak of 5,000 pairs in MiB,
    or why they failed."""
    peaks = [[round(base * MEBIBYTE + cell * pairs * 10_000) for pairs in (500, 4000)] for base in bases]
    details: dict[str, Any] = {"pairs": [500, 4000], "peaks": peaks}
    if trial:
        outcome = {"reason": trial} if isinstance(trial, str) else {"peak": trial * MEBIBYTE}
        details["trial"] = {"pairs": 5000} | outcome
    return Result(case(framework, variant, "marginals"), details=details)


def answer(*results: Result) -> Answer:
    return QUESTIONS["memory"].answer(record(*results, settings=SETTINGS, inputs=INPUTS))


JAX = fitting("jax", "vmap", 200, 201, 199, trial=920)
TORCH = fitting("torch", "vmap", 400, 402, 398, cell=15.0, trial=960)


def test_the_table_has_the_lines_the_largest_batch_and_how_far_the_trial_was_off():
    (table,) = answer(JAX, TORCH).tables
    assert table.title == "Pairs of 100 x 100 that fit into 1000.0 MiB"
    first, second = table.rows
    assert first[:PROCESS] == ("marginals", "vmap", "JAX") and first[CELL] == "10.0 B\n(9.89 … 10.1 B)"
    assert first[PROCESS].startswith("200.0 MiB\n(19") and first[LARGEST].startswith("8,388\n(8,2")
    assert first[MORE].startswith("JAX 2.00×\n(") and first[TRIED] == "920.0 MiB\n(+35.9%)"  # over 200 MiB + 5e8 B
    assert second[LARGEST].startswith("4,194\n(4,1") and second[MORE] == "–"
    (row,) = answer(fitting("jax", "vmap", 200, 201, trial="too much")).tables[0].rows
    assert row[TRIED] == "too much" and row[LARGEST].endswith("; 2 processes)")


def test_a_case_without_peaks_is_named_with_its_reason():
    lost = ended(case("torch", "vmap", "marginals"), "limit", "the budget had no room for it")
    assert answer(JAX, lost).tables[0].below[-1] == "No PyTorch vmap marginals: the budget had no room for it."
    assert case_tables(record(JAX, lost, settings=SETTINGS)) == []  # no table of first calls, which were not taken
    assert answer(lost).tables == [] and answer(lost).statements[0].text == "the budget had no room for it."


class FakeRun:
    """A run whose workers need the memory they are told to; one that would need too much is stopped."""

    def __init__(self, base: float, cell: float, settings: Settings = SETTINGS) -> None:
        self.settings, self.asked = settings, []
        self.record = record(settings=settings, inputs={DATA: facts(shape=(1, *(settings.size or (256, 256))))})
        self.result = self.record.result(case("jax", "vmap"))
        self.progress = SimpleNamespace(step=lambda name: None)
        self.base, self.cell = base * MEBIBYTE, cell

    def stop(self, of: Any) -> None:
        self.asked.append("stop")

    def running(self, of: Any) -> Any:
        return SimpleNamespace(pid=2**31 - 1)  # which no process has: there is nothing to watch

    def ask_for_result(self, do: str, of: Any, *, function: Any, pairs: int, is_first: bool) -> Reply:
        self.asked.append((pairs, is_first))
        peak = self.base + self.cell * pairs * math.prod(self.record.inputs[DATA].shape)
        result = self.record.result(of)
        fits = peak <= (self.settings.memory or 0)
        result.status, result.reason = ("ok", None) if fits else ("limit", "stopped")
        return Reply(result.status, result.reason, {"before": self.base * 0.8, "peak": peak} if fits else {})


@pytest.mark.parametrize(("base", "cell"), [(200, 4.0), (450, 30.0), (300, 120.0)])
def test_the_larger_batch_takes_about_half_of_the_memory_and_no_step_takes_all(base: float, cell: float):
    run: Any = FakeRun(base, cell, replace(SETTINGS, size=None))
    _find_batches(run, run.result)
    smaller, larger = run.result.details["pairs"]
    assert smaller == larger // 2 and run.result.status == "ok"
    assert 0.45 < (0.2 * base + cell * larger * 65536 / MEBIBYTE) / (1000 - 0.8 * base) < 0.62
    assert [is_first for _, is_first in run.asked] == [True] + [False] * (len(run.asked) - 1) and len(run.asked) < 8


def test_a_batch_that_was_stopped_costs_only_itself():
    run: Any = FakeRun(900, 102.0)  # 102 pairs take 999.2 MiB, 103 too much
    _find_batches(run, run.result)
    assert [pairs for pairs, _ in run.asked] == [102, 103]
    assert (run.result.status, run.result.reason, run.result.details["pairs"]) == ("ok", None, [51, 102])
    run = FakeRun(200, 40.0, replace(SETTINGS, size=(4096, 4096)))
    _find_batches(run, run.result)  # one pair fits, two do not
    assert (run.result.status, run.result.reason, run.result.details) == ("limit", "stopped", {})


def test_every_process_is_fresh_and_the_last_one_tries_the_largest_batch():
    run: Any = FakeRun(200, 4.0)
    _measure(run, run.result.case, is_last=False)
    smaller, larger = run.result.details["pairs"]
    assert run.asked[-4:] == ["stop", (smaller, True), (larger, False), "stop"] and "trial" not in run.result.details
    run.asked.clear()
    _measure(run, run.result.case, is_last=True)
    tried = int(0.9 * 800 * MEBIBYTE / 4 / 10_000)
    assert run.asked == ["stop", (smaller, True), (larger, False), "stop", (tried, False), "stop"]
    assert len(run.result.details["peaks"]) == 2 and run.result.details["trial"]["pairs"] == tried


@pytest.mark.parametrize(
    ("base", "cell", "reason"),
    [(2000, 4.0, "stopped"), (600, 0.0, "its memory does not grow with the batch: take more --memory")],
)
def test_a_process_without_a_line_leaves_what_earlier_ones_measured(base: float, cell: float, reason: str):
    run: Any = FakeRun(base, cell)
    run.result.details = {"pairs": [1, 2], "peaks": [[3, 4]]}
    _measure(run, run.result.case, is_last=True)
    assert (run.result.status, run.result.reason, run.result.details["peaks"]) == ("limit", reason, [[3, 4]])


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds 150 MiB."""
    program = "import sys\nheld = bytearray(b'1' * 150 * 2**20)\nprint(flush=True)\nsys.stdin.read()"
    command, pipe = [sys.executable, "-c", program], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout and process.stdout.readline()  # it has them now
        yield process
        process.kill()


@pytest.mark.parametrize("allowed", [100, 400])
def test_a_process_is_stopped_only_if_it_has_more_than_it_may(holder: subprocess.Popen[bytes], allowed: int):
    run: Any = FakeRun(1, 0.0, replace(SETTINGS, memory=allowed * MEBIBYTE))
    run.running = lambda of: SimpleNamespace(pid=holder.pid)
    answered = run.ask_for_result

    def slow(*arguments: Any, **options: Any) -> Reply:
        with contextlib.suppress(subprocess.TimeoutExpired):
            holder.wait(60 if allowed == 100 else 0.3)
        return answered(*arguments, **options)

    run.ask_for_result = slow
    peak_of(run, run.result, 7, is_first=False)
    assert (holder.poll() is not None) == (allowed == 100)
    assert run.result.reason == (None if allowed == 400 else "the process and 7 pairs take more than 100.0 MiB")


FUSED = ("--framework", "jax", "--variant", "fused", "--pass", "score", "--workers", "1", "--threads", "1")


@pytest.mark.slow
def test_a_run_finds_batches_and_tries_the_largest(tmp_path: Path):
    ended, made = finished(tmp_path, "memory", *FUSED, "--memory", "500MiB")
    assert "memory of a process: 500.0 MiB; --memory SIZE changes that" in ended.err
    assert "that fit into 500.0 MiB" in ended.out and "All cases" not in ended.out
    (result,) = made.results
    assert 400 * MEBIBYTE < result.details["trial"]["peak"] < 500 * MEBIBYTE
    of_a_cell = float(QUESTIONS["memory"].answer(made).tables[0].rows[0][CELL].split(" ")[0])
    assert 3.9 <= of_a_cell < 5.0  # four bytes, give or take what the C library has kept of a smaller size
    assert result.gate and result.gate.pairs == 1


def test_the_framework_of_an_accelerator_is_limited_to_the_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    notes = tmp_path / "notes"
    # a pair takes 6 * 7 * 4 bytes, and 8 for its lengths: 5,658 fit beside 4 KiB; and the worker has room for some more
    use_numpy_workers(monkeypatch, copies=6_000, notes=str(notes))
    small = ("memory", *FUSED, "--device", "cuda", "--size", "6x7")
    ended, made = finished(tmp_path, *small, "--memory", "1MB")
    trial = made.results[0].details["trial"]
    assert trial["pairs"] == 5092 and trial["peak"] < 10**6
    assert "into 977 KiB fit 5,658 pairs in JAX fused" in ended.out
    calls = [json.loads(line) for line in notes.read_text().splitlines()]
    assert [share for _, call, share, *_ in calls if call == "share"][-1] == pytest.approx(1e6 / 2**30, abs=1e-6)
    assert run_here(*small, "--memory", "1GiB").err[-1].endswith("--memory must be below 921.6 MiB, got 1.00 GiB")
