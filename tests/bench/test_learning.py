"""The question of learning to align: what it answers, refuses and keeps, whole runs without and with a framework."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recorded
from command_line import without
from in_process import Ended, resumed, run_here, use_numpy_workers

from shared.bench.questions import QUESTIONS
from shared.bench.record import Record
from shared.bench.run.context import Run
from shared.learning.families import ALPHABET

LEARNING = QUESTIONS["learning"]


def tables(made: Record) -> list[dict[str, list[str]]]:
    """The rows of each table by their names, which end with the pass and the caches in the first table."""
    first, second = LEARNING.answer(made).tables
    return [{" ".join(row[:3]): [*row[3:]] for row in first.rows}, {row[0]: [*row[1:]] for row in second.rows}]


def test_the_answer_compares_trainings_cold_and_warm_and_their_steps():
    compared, details = tables(recorded.learning())
    assert compared["fused train cold"] == ["10.1 s", "–", "7.07 s", "–", "PyTorch 1.43×\n(1.23 … 1.67)"]
    assert compared["fused step warm"][-1].startswith("JAX 5.00×\n(4.")
    assert details["steps per second"] == ["50.0", "10.0"]


def test_a_training_that_does_not_reach_the_quality_has_no_time():
    made = recorded.learning()
    cold = made.results[3]
    cold.blocks = cold.blocks[:1]
    for process in cold.details["processes"][1:]:
        process["reached"] = False
    compared, details = tables(made)
    assert compared["fused train cold"][-1] == "no clear winner\n(within 2.56×; 1 process)"
    assert details["epochs to the quality, by seed"] == ["2, 2, 2", "2, –, –"]
    for result in made.results:
        result.blocks, result.details["processes"] = [], []
    assert not LEARNING.answer(made).tables and not list(LEARNING.plots(made))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four made-up families: six descendants each of a random protein."""
    random = np.random.default_rng(0)
    (tmp_path / "families").mkdir()
    for name in ("one", "two", "three", "four"):
        ancestor = random.integers(20, size=30)
        lines = ["# STOCKHOLM 1.0", f"#=GF ID {name}"]
        for number in range(6):
            letters = np.where(random.random(30) < 0.3, random.integers(20, size=30), ancestor)
            row = np.where(random.random(30) < 0.1, "-", [ALPHABET[code] for code in letters])
            lines.append(f"{name}{number} {''.join(row)}")
        (tmp_path / "families" / f"{name}.sto").write_text("\n".join([*lines, "//", ""]))
    return tmp_path


def ask(folder: Path, *arguments: str) -> tuple[Ended, Record]:
    """A run of two seeds, and its record."""
    path = folder / "run.json"
    options = ("--families", str(folder / "families"), "--seeds", "2", "--json", str(path), "--force")
    ended = run_here("learning", *options, *arguments)
    return ended, Record.read(path)


def trained(ended: Ended) -> list[str]:
    return [line for line in ended.err if ", seed " in line]


def test_frameworks_take_turns_and_a_worker_that_dies_costs_its_training_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NUMPY_TRAINER", json.dumps(["torch", 1]))
    use_numpy_workers(monkeypatch)
    ended, made = ask(folder, "--checkpoints", str(folder / "kept"))
    assert ended.code == 0, ended.err
    turns = ["JAX fused, seed 0", "PyTorch fused, seed 0", "PyTorch fused, seed 1", "JAX fused, seed 1"]
    assert trained(ended) == turns
    assert len(list((folder / "kept").glob("jax-fused-matrix-float32-*-seed-1.checkpoint"))) == 1
    assert {r.case.name: len(r.details["processes"]) for r in made.results} == {"JAX fused": 2, "PyTorch fused": 1}
    assert any("PyTorch fused train, not compiled, cold: process 2: the worker ended" in note for note in made.notes)
    for result in made.results:
        processes, target = result.details["processes"], result.details["target"]
        assert target == pytest.approx(2 / 3, abs=0.02)  # half of the true pairs, and no false one
        for process, block in zip(processes, result.blocks, strict=False):
            if result.case.pass_name == "train":
                *before, last = [epoch["quality"] >= target for epoch in process["epochs"]]
                assert last and not any(before)
                assert block.median == pytest.approx(process["epochs"][-1]["seconds"])


def test_an_interrupted_run_goes_on_where_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch):
    use_numpy_workers(monkeypatch)
    real = Run.ask

    def ask_once(run: Run, do: str, case: Any, **arguments: Any) -> Any:
        if getattr(arguments.get("job"), "seed", 0) == 1:
            raise KeyboardInterrupt
        return real(run, do, case, **arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "ask", ask_once)
        ended, made = ask(folder, "--framework", "jax")
    assert ended.code == 130 and [len(result.details["processes"]) for result in made.results] == [1, 1, 1]
    again, whole = resumed(folder)
    assert trained(again) == ["JAX fused, seed 1"]
    assert whole.results[0].blocks[0] == made.results[0].blocks[0]
    again, same = resumed(folder)
    assert trained(again) == [] and same.results == whole.results


@pytest.mark.slow
def test_pytorch_trains_alone_where_equinox_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("three", "four"):
        (folder / "families" / f"{name}.sto").unlink()
    (tmp_path / "absent").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(without(tmp_path / "absent", "equinox")))  # of the workers
    ended, made = ask(folder, "--seeds", "1", "--epochs", "2")
    assert ended.code == 0, ended.err
    reason = "JAX was not measured: it cannot train here: ImportError: jax_impl.learning needs equinox and optax"
    assert reason in ended.out and {result.case.framework for result in made.results} == {"torch"}
    assert [len(result.details["processes"]) for result in made.results] == [1, 1, 1]
