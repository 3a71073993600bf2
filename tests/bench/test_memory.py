"""The question of what fits into a given memory: what follows from measured peaks, how sizes are found, whole runs."""

import dataclasses
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hand_made import case, ended, facts, record
from in_process import Ended, assert_refused, run_here, use_numpy_workers
from rendered import html_report

from shared.bench.cases import Settings
from shared.bench.questions import QUESTIONS
from shared.bench.questions.memory_fit import ABOVE, BELOW, Axis, cells_that_fit, memory_of, needs, predicted_peak
from shared.bench.questions.memory_run import _found_sizes, _measure_process
from shared.bench.questions.memory_watch import Watch
from shared.bench.record import Record, Result
from shared.bench.report.case_table import case_tables
from shared.bench.report.tables import Answer
from shared.bench.run.worker_handle import Reply
from shared.problems.problem import DATA

MEBIBYTE = 2**20
SETTINGS = Settings("memory", input="random", passes=("marginals",), memory=1000 * MEBIBYTE, size=(100, 100))


# what follows from peaks


def fitting(
    framework: str, variant: str, *bases: float, cell: float = 10.0, **trials: tuple[str, int | None]
) -> Result:
    """A case each of whose processes needs so many MiB and so many bytes a cell; trials: outcome and MiB."""
    sizes = [[number, 100, 100] for number in (500, 4000)]
    peaks = [[round(base * MEBIBYTE + cell * math.prod(size)) for size in sizes] for base in bases]
    tried = {
        share: {"size": [5000, 100, 100], "outcome": outcome, "peak": peak and peak * MEBIBYTE}
        for share, (outcome, peak) in zip((BELOW, ABOVE), trials.values(), strict=False)
    }
    details = {"sizes": sizes, "processes": [{"peaks": own} for own in peaks], "trials": tried}
    return Result(case(framework, variant, "marginals"), details=details)


def answer(*results: Result, settings: Settings = SETTINGS) -> Answer:
    return QUESTIONS["memory"].answer(record(*results, settings=settings))


JAX = fitting("jax", "vmap", 200, 201, 199, below=("fits", 920), above=("stopped", None))
TORCH = fitting("torch", "vmap", 400, 402, 398, cell=15.0, below=("fits", 960), above=("stopped", None))


def test_the_largest_size_is_where_the_line_reaches_the_memory():
    cells = cells_that_fit(JAX, 1000 * MEBIBYTE)
    assert cells.value == pytest.approx(80 * MEBIBYTE, rel=1e-4) and cells.low < cells.value < cells.high
    assert predicted_peak(JAX, (5000, 100, 100)).value == pytest.approx(200 * MEBIBYTE + 5e8, rel=1e-4)


def test_sizes_are_batches_of_pairs_or_square_pairs_in_a_batch():
    batches, squares = Axis.of(SETTINGS), Axis.of(Settings("memory", batch=3))
    assert (batches.size(7), squares.size(7)) == ((7, 100, 100), (3, 7, 7))
    assert (batches.number(79_999), squares.number(3 * 64.9)) == (7, 8)
    assert (batches.text(1234), squares.text(8)) == ("1,234 pairs of 100 x 100", "3 pairs of 8 x 8")


def test_the_table_has_both_frameworks_the_larger_one_and_what_was_tried():
    table, details = answer(JAX, TORCH).tables
    assert table.title == "What fits into 1000.0 MiB"
    (row,) = table.rows
    assert row[:4] == ("marginals", "vmap", "10.0 B / 15.0 B", "8,388 / 4,194")
    assert row[4].startswith("JAX 2.00×\n(") and row[5:] == ("920.0 MiB / 960.0 MiB", "stopped / stopped")
    assert details.rows[0][:4] == ("marginals", "JAX", "vmap", "3")
    assert details.rows[0][4].startswith("200.0 MiB\n(19") and details.rows[0][7] == "+35.9%"  # over 200 MiB + 5e8 B


def test_the_sentence_says_what_to_take():
    fused = fitting("torch", "fused", 400, 401, 402, cell=4.0)
    (told,) = answer(JAX, TORCH, fused).statements
    assert told.text.startswith(
        "take PyTorch fused: into 1000.0 MiB fit 15,702 pairs of 100 x 100 in PyTorch fused (401.0 MiB for the process "
        "and 4.00 B a cell), against 8,388 pairs of 100 x 100 in JAX vmap (200.0 MiB for the process and 10.0 B a "
        "cell): PyTorch 1.87× ("
    )
    same = fitting("torch", "vmap", 200, 201, 200)
    assert answer(JAX, same).statements[0].text.startswith("take JAX vmap or PyTorch vmap: ")


def test_fewer_than_three_processes_decide_nothing():
    few = fitting("torch", "vmap", 400, 402, cell=15.0)
    assert answer(JAX, few).tables[0].rows[0][4:] == (
        "not decided\n(JAX 2.00×,\n< 3 processes)",
        "920.0 MiB / not tried",
        "stopped / not tried",
    )


def test_a_prediction_that_was_wrong_is_marked_and_one_that_was_too_large_told():
    wrong = fitting("jax", "vmap", 200, 201, 199, below=("stopped", None), above=("fits", 990))
    found = answer(wrong)
    assert found.tables[0].rows[0][5:] == ("stopped: not predicted / –", "990.0 MiB: not predicted / –")
    assert found.statements[1].text == "90% of the largest size that was predicted did not fit (stopped): take less."


def test_a_case_without_peaks_is_named_with_its_reason():
    lost = ended(case("torch", "vmap", "marginals"), "limit", "the budget had no room for it")
    assert answer(JAX, lost).tables[0].below[-1] == "No PyTorch vmap marginals: the budget had no room for it."
    assert case_tables(record(JAX, lost, settings=SETTINGS)) == []  # no table of first calls, which were not taken
    assert answer(lost).tables == [] and answer(lost).statements[0].text == "the budget had no room for it."
    shrinking = fitting("jax", "vmap", 200, cell=-1.0)
    assert answer(shrinking).tables == []


# how sizes are found


class FakeRun:
    """Its workers need what they are told to, and start with less; one that would need too much is stopped."""

    def __init__(self, base: float, cell: float, settings: Settings) -> None:
        self.settings, self.asked, self.stops = settings, [], 0
        axis = Axis.of(settings)
        self.record = record(settings=settings, inputs={DATA: facts(shape=(1, axis.rows, axis.cols))})
        self._base, self._cell = base * MEBIBYTE, cell

    def stop(self, of: Any) -> None:
        self.stops += 1

    def running(self, of: Any) -> None:
        return None

    def start_workers(self, cases: Any) -> None:
        pass

    def ask_for_result(self, do: str, of: Any, *, function: Any, size: Any, is_first: bool) -> Reply:
        self.asked.append((size, is_first))
        peak = self._base + self._cell * math.prod(size)
        result = self.record.result(of)
        fits = peak <= memory_of(self.settings)
        result.status, result.reason = ("ok", None) if fits else ("limit", "stopped")
        return Reply(result.status, result.reason, {"before": self._base * 0.8, "peak": peak} if fits else {})


@pytest.mark.parametrize("batch", [None, 1, 16])
@pytest.mark.parametrize(("base", "cell"), [(200, 4.0), (450, 30.0), (300, 120.0)])
def test_the_larger_of_two_sizes_takes_about_half_of_the_memory_and_none_takes_all(
    base: float, cell: float, batch: int | None
):
    run: Any = FakeRun(base, cell, dataclasses.replace(SETTINGS, size=None, batch=batch))
    (smaller, _), (larger, peak) = _found_sizes(run, run.record.result(case("jax", "vmap")))
    assert 2 * math.prod(smaller) <= math.prod(larger)
    assert 0.45 < (peak / MEBIBYTE - 0.8 * base) / (1000 - 0.8 * base) < 0.62
    assert [is_first for _, is_first in run.asked] == [True] + [False] * (len(run.asked) - 1) and len(run.asked) < 8
    assert run.asked[0][0][1:] == ((128, 128) if batch == 16 else (256, 256))  # whose reference is known


def test_a_size_that_was_stopped_costs_only_itself():
    run: Any = FakeRun(900, 102.0, SETTINGS)  # 102 pairs take 999.2 MiB, 103 too much
    result = run.record.result(case("jax", "vmap"))
    assert [size for size, _ in _found_sizes(run, result)] == [(51, 100, 100), (102, 100, 100)]
    assert [size[0] for size, _ in run.asked] == [102, 103, 51, 102]
    assert (result.status, result.reason) == ("ok", None)
    run = FakeRun(200, 40.0, dataclasses.replace(SETTINGS, size=(4096, 4096)))
    result = run.record.result(case("jax", "vmap"))
    assert _found_sizes(run, result) == [] and result.status == "limit"
    assert result.reason == "only 1 pair of 4096 x 4096 could be measured, two sizes are needed: stopped"


def test_a_process_that_fails_after_others_leaves_what_they_have_found():
    run: Any = FakeRun(200, 4.0, SETTINGS)
    result = run.record.result(case("jax", "vmap"))
    result.details = {"processes": [], "trials": {}}
    _measure_process(run, result)
    assert len(result.details["processes"]) == 1
    run._base = 2000 * MEBIBYTE
    _measure_process(run, result)
    assert (result.status, result.reason) == ("ok", None) and len(needs(result)) == 1
    assert run.record.notes == ["JAX vmap score: process 2: stopped"]


def test_sizes_that_differ_by_a_pair_are_not_compared():
    run: Any = FakeRun(900, 4.0, SETTINGS)
    (smaller, _), (larger, _) = _found_sizes(run, run.record.result(case("jax", "vmap")))
    assert (smaller, larger) == ((51, 100, 100), (103, 100, 100))
    assert run.stops == 1 and [size for size, _ in run.asked[-2:]] == [smaller, larger]


# workers that have too much


@pytest.mark.parametrize("allowed", [100, 400])
def test_a_process_is_stopped_only_if_it_has_more_than_it_may(allowed: int):
    program = "import sys\nheld = bytearray(b'1' * 150 * 2**20)\nprint('held', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        watch = Watch(process.pid, allowed * MEBIBYTE)
        assert process.stdout and process.stdin
        line = process.stdout.readline()
        time.sleep(0.1)
        watch.end()
        assert watch.has_stopped == (allowed == 100) == (process.poll() is not None)
        assert line == b"held\n" or watch.has_stopped
        process.stdin.close()


# runs


def run_memory(*arguments: str) -> Ended:
    return run_here("memory", "--threads", "1", *arguments)


def test_a_run_finds_sizes_tries_them_and_goes_on_after_an_interruption(tmp_path: Path):
    path = tmp_path / "run.json"
    fused = ("--framework", "jax", "--variant", "fused", "--pass", "score")
    ended = run_memory(*fused, "--memory", "500MiB", "--workers", "1", "--json", str(path))
    assert ended.code == 0, ended.err
    assert "memory of a process: 500.0 MiB; --memory SIZE changes that" in ended.err
    assert "What fits into 500.0 MiB" in ended.out and "All cases" not in ended.out
    made = Record.read(path)
    (result,) = made.results
    tried = result.details["trials"]
    assert {share: trial["outcome"] for share, trial in tried.items()} == {BELOW: "fits", ABOVE: "stopped"}
    assert 400 * MEBIBYTE < tried[BELOW]["peak"] < 500 * MEBIBYTE
    of_a_cell = float(QUESTIONS["memory"].answer(made).tables[0].rows[0][2].split(" ")[0])
    assert 3.9 <= of_a_cell < 5.0  # four bytes, give or take what the C library has kept of a smaller size
    assert result.gate and result.gate.pairs == 1
    made.settings = dataclasses.replace(made.settings, workers=2)
    del tried[ABOVE]
    made.write(path)
    resumed = run_here("--resume", str(path))
    assert resumed.code == 0, resumed.err
    (after,) = Record.read(path).results
    assert len(after.details["processes"]) == 2 and after.details["processes"][0] == result.details["processes"][0]
    assert after.details["trials"][BELOW] == tried[BELOW] and after.details["trials"][ABOVE]["outcome"] == "stopped"
    assert html_report([Record.read(path)]).count("<figure>") == 1


def test_a_process_that_is_too_large_by_itself_is_stopped():
    ended = run_memory("--framework", "jax", "--variant", "fused", "--pass", "score", "--memory", "150MiB")
    assert ended.code == 0, ended.err
    assert "JAX fused score: the process and 2x256x256 take more than 150.0 MiB." in ended.out.splitlines()


def test_a_longest_pair_is_found_for_a_batch():
    fused = ("--framework", "jax", "--variant", "fused", "--pass", "score", "--memory", "500MiB", "--batch", "1")
    ended = run_memory(*fused, "--workers", "2")
    assert ended.code == 0, ended.err
    assert "take JAX fused: into 500.0 MiB fit a pair of " in ended.out


def test_an_accelerators_framework_is_limited_to_the_memory_and_says_itself_what_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    path, notes = tmp_path / "run.json", tmp_path / "notes"
    # a pair takes 6 * 7 * 4 bytes, and 8 for its lengths: 5,658 fit beside 4 KiB; and the worker has room for some more
    use_numpy_workers(monkeypatch, repeats=6_000, notes=str(notes))
    small = ("--device", "cuda", "--size", "6x7", "--memory", "1MB", "--framework", "jax", "--workers", "1")
    ended = run_memory(*small, "--variant", "fused", "--pass", "score", "--json", str(path))
    assert ended.code == 0, ended.err
    (result,) = Record.read(path).results
    assert {share: trial["outcome"] for share, trial in result.details["trials"].items()} == {
        BELOW: "fits",
        ABOVE: "stopped",
    }
    assert "take JAX fused: into 977 KiB fit 5,658 pairs of 6 x 7" in ended.out
    asked = [json.loads(line) for line in notes.read_text().splitlines()]
    assert [share for _, what, share, *_ in asked if what == "share"][-1] == pytest.approx(1e6 / 2**30, abs=1e-6)
    ended = run_memory(*small, "--memory", "1GiB")
    assert ended.code == 2
    assert ended.err[-1].endswith("--memory must be at most 921.6 MiB, 90% of the accelerator's memory, got 1.00 GiB")


def test_a_wrong_result_has_no_memory(monkeypatch: pytest.MonkeyPatch):
    use_numpy_workers(monkeypatch, wrong="vmap", repeats=10**9)
    small = ("--size", "6x7", "--memory", "400MB", "--framework", "torch", "--variant", "vmap", "--pass", "score")
    ended = run_memory(*small)
    assert ended.code == 1 and "WRONG: PyTorch vmap score: score off by 1.0e+00" in ended.out
    assert "What fits" not in ended.out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("--problem stencil", "memory goes with alignments, not with stencil"),
        ("--input globins", "memory goes with --input random, got 'globins'"),
        ("--size 6x7 --batch 3", "memory seeks the batch for a --size, or the length for a --batch: it takes one"),
        ("--memory 2", "memory must be a number with MB, GB, TB, MiB, GiB or TiB, such as 2GB, got '2'"),
        ("--memory nanGB", "memory must be a number with MB, GB, TB, MiB, GiB or TiB, such as 2GB, got 'nanGB'"),
        ("--memory 900TB", " that are free, got "),
    ],
)
def test_what_memory_cannot_answer_is_refused(arguments: str, text: str):
    assert_refused(run_memory(*arguments.split()), text)
