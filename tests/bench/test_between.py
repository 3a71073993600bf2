"""The question of calls between other work: its answer, and a whole run of it."""

import json
from pathlib import Path

import pytest
from in_process import assert_refused, run_here, use_numpy_workers

from shared.bench.cases import BETWEEN
from shared.bench.questions.between import LOOP
from shared.bench.record import Record


def test_a_gpu_is_refused_because_its_calls_are_all_such():
    assert_refused(run_here("between", "--device", "cuda"), "between goes with --device cpu, got cuda")


def test_a_run_multiplies_before_every_timed_call_of_one_label_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    notes = tmp_path / "notes"
    use_numpy_workers(monkeypatch, notes=str(notes))
    asked = ("--framework", "jax", "--variant", "vmap", "--pass", "score", "--size", "6x7", "--batch", "3")
    ended = run_here("between", *asked, "--workers", "2", "--rounds", "2", "--json", str(tmp_path / "run.json"))
    assert ended.code == 0, ended.err
    made = Record.read(tmp_path / "run.json")
    assert [result.case.label for result in made.results if result.measured] == [LOOP, BETWEEN]
    done = [json.loads(line)[1] for line in notes.read_text().splitlines()]
    timed = sum(block.calls for result in made.results for block in result.blocks if result.case.label == BETWEEN)
    assert done.count("multiply") == timed > 0
    assert all(done[at + 1] == "call" for at, what in enumerate(done) if what == "multiply")
