"""The question of calls between other work: its answer, and a whole run of it."""

import json
from pathlib import Path

import pytest
from hand_made import case, record, steady
from in_process import assert_refused, run_here, use_numpy_workers

from shared.bench.cases import BETWEEN
from shared.bench.questions import QUESTIONS
from shared.bench.questions.between import LOOP
from shared.bench.record import Record


def test_a_gpu_is_refused_because_its_calls_are_all_such():
    assert_refused(run_here("between", "--device", "cuda"), "between goes with --device cpu, got cuda")


def test_the_answer_is_how_much_longer_a_call_takes_and_who_is_faster_then():
    seconds = {("jax", LOOP): 1e-3, ("jax", BETWEEN): 2e-3, ("torch", LOOP): 1e-3, ("torch", BETWEEN): 4e-3}
    results = [steady(case(framework, "vmap", label=label), time) for (framework, label), time in seconds.items()]
    answer = QUESTIONS["between"].answer(record(*results))
    assert [[cell.partition("\n")[0] for cell in row] for row in answer.tables[0].rows] == [
        ["vmap", "score", LOOP, "1.00 ms", "–", "1.00 ms", "–", "same"],
        ["vmap", "score", BETWEEN, "2.00 ms", "2.00×", "4.00 ms", "4.00×", "JAX 2.00×"],
    ]
    assert dict(answer.statements)["PyTorch, between matrix products against in a loop"] == "slower: vmap (4.00×)."


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
