"""The question of learning to align: what it answers, refuses and keeps, whole runs without and with a framework."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.dom import minidom

import numpy as np
import pytest
import recorded
from command_line import without
from in_process import Ended, assert_refused, run_here, use_numpy_workers
from recorded import learned

from shared.bench.questions import QUESTIONS
from shared.bench.record import Record
from shared.bench.report.tables import Answer
from shared.bench.run.progress import Lines
from shared.learning.families import ALPHABET

LEARNING = QUESTIONS["learning"]


def answer(made: Record) -> Answer:
    return LEARNING.answer(made)


def rows(made: Record) -> dict[str, list[str]]:
    """Of the first table, by the first line of the first cell."""
    return {row[0].split("\n")[0] + row[0].split("\n")[-1][:5]: list(row[1:]) for row in answer(made).tables[0].rows}


def sentences(made: Record) -> dict[str, str]:
    return dict(answer(made).statements)


def changed(made: Record, *results: Any) -> Record:
    """With other trainings of both frameworks; what was measured once is kept."""
    results[0].details.update({k: v for k, v in made.results[0].details.items() if k not in results[0].details})
    return replace(made, results=list(results))


# what a record says


def test_it_says_which_framework_reaches_the_quality_first_and_by_what_factor():
    told = sentences(recorded.learning())
    assert told["Compiling on the way"] == (
        "the quality is reached by JAX in 10.1 s and by PyTorch in 7.07 s: PyTorch is 1.43 times as fast (1.43 … 1.43)."
    )
    assert told["Once everything is compiled"].endswith("JAX is 5.00 times as fast (5.00 … 5.00).")
    cells = rows(recorded.learning())
    assert cells["steps per secondsteps"] == ["50.0", "10.0", "JAX 5.00×\n(5.00 … 5.00)"]
    assert cells["the alignment's share of a stepthe a"][:2] == ["80%", "80%"]
    assert cells["compiling in allcompi"][:2] == ["3.00 s\n(5 shapes)", "nothing\n(5 shapes)"]


def test_two_seeds_decide_nothing_and_what_is_missing_is_named():
    made = changed(recorded.learning(), learned("jax", 10.0, 1.0, seeds=2), learned("torch", 7.0, 5.0, seeds=2))
    made.results[1].details["under way"] = {"seed": 2, "name": "cold", "history": [
        {"number": 1, "steps": 40, "loss": 1.0, "quality": 0.5, "seconds": 3.0}]}  # fmt: skip
    assert "which of them is faster is not decided: PyTorch 1.43 times" in sentences(made)["Compiling on the way"]
    below = answer(made).tables[0].below
    ended = "The cold training of another was ended at epoch 1, after 3.00 s, with a quality of 0.500."
    assert below[2:] == ("JAX fused: 2 of 3 seeds.", f"PyTorch fused: 2 of 3 seeds. {ended}")


def test_a_training_that_does_not_reach_the_quality_has_no_time():
    made = recorded.learning()
    for process in made.results[1].details["trainings"].values():
        process["cold"]["reached"] = None
    assert sentences(made)["Compiling on the way"].endswith("by JAX in 10.1 s; there is nothing to compare that with.")
    assert answer(made).tables[0].rows[0][2] == "not reached"
    assert (
        "PyTorch fused, cold: no time, as the quality was not reached: seed 0, 1, 2."
        in answer(made).tables[0].below[-1]
    )


def test_weights_that_are_far_apart_are_no_equal_steps():
    made = recorded.learning()
    assert "they take the same steps by construction" in sentences(made)["Equal steps"]
    made.results[0].details["apart"]["fused"]["1"]["weights"] = 0.1
    assert sentences(made)["Equal steps"].startswith("NOT SHOWN: after 80 steps of float32 their weights were at most")


def test_losses_are_those_that_are_furthest_apart_whichever_training_has_them():
    made = recorded.learning()
    made.results[0].details["apart"]["fused"]["1"]["losses"] = 7e-6
    told = sentences(made)["Equal steps"]
    assert "their weights were at most 1.0e-05 apart" in told and "the losses of an epoch at most 7.0e-06." in told


def test_it_says_plainly_where_learning_does_not_beat_blosum62():
    told = sentences(recorded.learning())["Families left out, exact (best alignments)"]
    assert told.startswith(
        f"the learned model is better than BLOSUM62 on {recorded.HOSTILE}, worse on Globin; no difference is shown on "
    )
    made = recorded.learning()
    made.results[0].details["folds"]["Kinase"]["gain"]["soft"]["f1"] = [0.1, -1.0, 1.0]  # of two sequences
    (table,) = [table for table in answer(made).tables if table.title == "Families that were left out"]
    assert table.rows[2] == ("Globin", *["70.0 / 60.0"] * 4, *["-0.030\n(-0.040 … -0.020)"] * 2)
    assert table.rows[1][-1] == "+0.100"


def test_nothing_is_answered_before_there_is_a_quality_to_reach():
    made = recorded.learning()
    del made.results[0].details["target"]
    assert not answer(made).tables and not answer(made).statements


def test_the_pictures_are_images_that_are_always_the_same():
    first, again = (list(LEARNING.plots(recorded.learning())) for _ in range(2))
    assert [plot.title.split(" ")[0] for plot in first] == ["Validation", "The", "A"]
    assert [plot.svg for plot in first] == [plot.svg for plot in again]
    assert all(minidom.parseString(plot.svg).documentElement for plot in first)


# what is refused


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--problem", "learn_alignment"), "learn_alignment goes with the question learning, not with speed"),
        (("growth", "--problem", "learn_alignment"), "goes with the question learning, not with growth"),
        (("learning", "--problem", "stencil"), "learning goes with learn_alignment, not with stencil"),
        (("--model", "encoder"), "--model goes with --problem learn_alignment, not with smith_waterman"),
        (("learning", "--gap", "-2"), "--gap goes with --problem"),
        (("learning", "--rounds", "9"), "--rounds goes with the question speed"),
        (("learning", "--model", "transformer"), "unknown model 'transformer'; known: matrix, encoder"),
        (("learning", "--variant", "vmap"), "unknown variant 'vmap' of learn_alignment; known: wavefront, fused, auto"),
        (("learning", "--families", "nowhere"), "nowhere"),
        (("learning", "--checkpoints", "one.sto/kept"), "one.sto/kept: Not a directory"),
        (("learning", "--families", "."), "one.sto': expected at least 2 sequences, got only 'a'"),
    ],
)
def test_what_it_cannot_measure_is_refused_in_one_line(
    arguments: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "one.sto").write_text("# STOCKHOLM 1.0\na ACDEF\n//\n")  # one sequence
    monkeypatch.chdir(tmp_path)
    assert_refused(run_here(*arguments), text)


# whole runs


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
    """A run with NumPy's trainers, and its record."""
    path = folder / "run.json"
    given = ("--families", str(folder / "families"), "--seeds", "2", "--json", str(path), "--force")
    ended = run_here("learning", *given, *arguments)
    return ended, Record.read(path)


def processes(ended: Ended) -> list[str]:
    return [line.removesuffix(", cold") for line in ended.err if line.endswith(", cold")]


def test_the_frameworks_take_turns_and_a_finished_run_is_not_repeated(folder: Path, monkeypatch: pytest.MonkeyPatch):
    use_numpy_workers(monkeypatch)
    ended, made = ask(folder, "--checkpoints", str(folder / "kept"))
    assert ended.code == 0, ended.err
    assert processes(ended) == [
        "JAX fused, seed 0", "PyTorch fused, seed 0", "PyTorch fused, seed 1", "JAX fused, seed 1"
    ]  # fmt: skip
    known = made.results[0].details
    assert known["target"]["quality"] == pytest.approx(2 / 3, abs=0.02)  # half of the true pairs, and no false one
    assert sorted(known["folds"]) == ["four", "one", "three", "two"]
    assert known["apart"]["fused"]["0"]["weights"] == 0
    for result in made.results:
        for process in result.details["trainings"].values():
            reached = process["cold"]["reached"]["epoch"]
            assert [e["quality"] >= known["target"]["quality"] for e in process["cold"]["history"]].index(
                True
            ) == reached - 1
            assert len(process["cold"]["history"]) == len(process["warm"]["history"]) == reached
        assert len(result.details["curve"]["history"]) > len(result.details["trainings"]["0"]["cold"]["history"])
    assert made.pictures["data"]["soft"]["learned"] != made.pictures["data"]["soft"]["BLOSUM62"]
    assert (folder / "kept" / "torch-fused-matrix-seed-1.checkpoint").exists()
    given = ("learning", "--families", str(folder / "families"), "--checkpoints", str(folder / "kept"), "--seed", "1")
    assert_refused(run_here(*given), "kept has checkpoints of another run (other seed): take another folder")
    again = run_here("--resume", str(folder / "run.json"))
    assert again.code == 0 and processes(again) == []
    assert Record.read(folder / "run.json").results == made.results


def test_a_worker_that_dies_costs_its_training_only(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NUMPY_TRAINER", json.dumps(["torch", 1]))
    use_numpy_workers(monkeypatch)
    ended, made = ask(folder)
    assert ended.code == 0, ended.err
    assert [sorted(result.details["trainings"]) for result in made.results] == [["0", "1"], ["0"]]
    assert any("PyTorch fused train, not compiled: process 2: the worker ended" in note for note in made.notes)
    assert len(made.results[0].details["folds"]) == 4


def test_an_interrupted_run_keeps_its_epochs_and_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch):
    use_numpy_workers(monkeypatch)
    real = Lines.step

    def step(self: Lines, name: str) -> None:
        real(self, name)
        if name.startswith("warm: quality 0.") and not name.startswith("warm: quality 0.000"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Lines, "step", step)
        ended, made = ask(folder, "--framework", "jax")
    assert ended.code == 130
    left = made.results[0].details["under way"]
    assert left["name"] == "warm" and len(left["history"]) == 1 and made.results[0].details["trainings"] == {}
    again = run_here("--resume", str(folder / "run.json"))
    assert again.code == 0 and len(processes(again)) == 2
    assert "under way" not in Record.read(folder / "run.json").results[0].details


def test_what_the_budget_leaves_out_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch):
    use_numpy_workers(monkeypatch)
    ended, made = ask(folder, "--budget", "0.01", "--framework", "jax")
    assert ended.code == 0 and "no room for the quality to reach: BLOSUM62 was tried on 0 of 4 families" in ended.out
    made.results[0].details |= {
        "target": {"quality": 0.6, "gap_open": -12.0, "gap_extend": -1.0, "temperature": 2.5, "at_edge": False}
    }
    made.write(folder / "run.json")
    again = run_here("--resume", str(folder / "run.json"), "--budget", "0.01")
    assert again.code == 0 and "no training has reached" not in again.out
    assert "the budget of 0.01 s had no room for seed 0 of JAX fused, seed 1 of JAX fused" in again.out
    assert "no room for all families left out: four, one, three, two are missing" in again.out


def test_without_equinox_pytorch_trains_alone(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("three", "four"):  # of two families none is left out
        (folder / "families" / f"{name}.sto").unlink()
    (tmp_path / "absent").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(without(tmp_path / "absent", "equinox")))  # of the workers
    ended, made = ask(folder, "--seeds", "1", "--epochs", "2")
    assert ended.code == 0, ended.err
    assert (
        "JAX was not measured: JAX cannot train here: jax_impl.learning needs equinox and optax: pip install"
        in ended.out
    )
    (result,) = made.results
    assert result.case.framework == "torch" and result.measured
    assert list(result.details["trainings"]) == ["0"] and not result.details["folds"]
    assert "no family was left out: of two none would be left to train on" in ended.out
