"""The question of versions: which interpreters it takes and in which order, its answer, and whole runs in others."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hand_made import blocks, case, ended, record, steady
from in_process import assert_refused, run_here, use_numpy_workers
from rendered import html_report

from shared.bench.cases import Settings
from shared.bench.estimates import Block
from shared.bench.questions import QUESTIONS
from shared.bench.record import Compilation, Record, Result
from shared.bench.report.tables import Answer
from shared.bench.run import interpreters
from shared.bench.run.interpreters import every_version
from shared.problems.problem import UnusableInput

ASKED = Settings("versions", input="random", passes=("score",))
OWN = sys.executable


def measured(label: str, seconds: float, framework: str = "torch", variant: str = "vmap", **others: Any) -> Result:
    return steady(case(framework, variant, label=label), seconds, **others)


def unsteady(result: Result) -> Result:
    """Of four workers two are faster and two slower."""
    seconds = (0.09, 0.11, 0.11, 0.09)
    return replace(result, blocks=[Block.of(b.worker, b.round, [seconds[b.worker]]) for b in result.blocks])


def answer(*results: Result, **others: Any) -> Answer:
    return QUESTIONS["versions"].answer(record(*results, settings=ASKED, **others))


# the answer


def test_the_table_says_how_much_slower_or_faster_the_new_version_is():
    restless = unsteady(measured("2", 0.1, variant="fused"))
    results = [
        *(measured("1", 0.1), measured("2", 0.15)),
        *(measured("1", 0.1, variant="wavefront"), measured("2", 0.05, variant="wavefront")),
        *(measured("1", 0.1, variant="fused"), restless),
        *(measured("1", 0.1, "jax"), measured("2", 0.102, "jax")),
    ]
    (table,) = answer(*results).tables
    assert [row[:3] for row in table.rows] == [
        ("PyTorch 2\nover 1", "vmap\nscore", "slower 1.50×\n(1.50 … 1.50)"),
        ("PyTorch 2\nover 1", "wavefront\nscore", "faster 2.00×\n(2.00 … 2.00)"),
        ("PyTorch 2\nover 1", "fused\nscore", "not decided\n(0.83 … 1.20)"),
        ("JAX 2\nover 1", "vmap\nscore", "same\n(1.020 … 1.020)"),
    ]


def test_the_quotient_of_the_medians_has_the_direction_of_the_factor():
    # the new version had further rounds, slower ones, that the old one was not in
    old, new = measured("1", 0.1), measured("2", 0.05)
    old.blocks, new.blocks = blocks([0.1] * 2, 4), blocks([0.05] * 2 + [0.08] * 3, 4)
    assert answer(old, new).tables[0].rows[0][2] == "faster 2.00×\n(2.00 … 2.00; of the medians 1.25)"


def test_the_sentence_says_what_the_upgrade_costs():
    slower = [measured("1", 0.1), measured("2", 0.15)]
    faster = [measured("1", 0.1, variant="fused"), measured("2", 0.05, variant="fused")]
    told = dict(answer(*slower, *faster).statements)
    assert told == {
        "PyTorch 2 over 1": "the upgrade makes 1 of 2 calls slower: vmap score 1.50× (1.50 … 1.50), 150 ms against "
        "100 ms; faster: fused score 2.00× (2.00 … 2.00), 50.0 ms against 100 ms."
    }
    (only,) = answer(*faster).statements
    assert only.text.startswith("the upgrade makes none of 1 calls slower; faster: fused score 2.00×")


def test_fewer_than_three_processes_decide_nothing():
    once = [replace(measured(label, 0.1), blocks=blocks([took] * 5, 2)) for label, took in (("1", 0.1), ("2", 0.05))]
    made = answer(*once)
    assert made.tables[0].rows[0][2] == "not decided\n(faster 2.00×,\n< 3 processes)"
    assert made.statements[0].text.startswith("none of 1 calls is decided to be slower, 1 not decided; not decided: ")


def test_each_version_is_compared_with_the_one_before():
    made = answer(*(measured(label, took) for label, took in (("1", 0.1), ("2", 0.2), ("3", 0.1))))
    assert [row[0] + row[2] for row in made.tables[0].rows] == [
        "PyTorch 2\nover 1slower 2.00×\n(2.00 … 2.00)",
        "PyTorch 3\nover 2faster 2.00×\n(2.00 … 2.00)",
    ]


def test_first_calls_are_compared_process_by_process():
    old, new = measured("1", 0.1), measured("2", 0.1)
    old.cold, new.cold = [Compilation(2.0)] * 3, [Compilation(3.0)] * 3
    old.warm, new.warm = [1.0] * 2, [1.0] * 3
    old.new_shapes, new.new_shapes = [[0.5, 9.0]] * 3, [[]]
    made = answer(old, new)
    cells = ("slower 1.50×\n(1.50 … 1.50)", "not decided\n(slower 1.000×,\n< 3 processes)", "–")
    assert made.tables[0].rows[0][3:] == cells
    assert made.statements[1] == (
        "PyTorch 2 over 1, first calls",
        "vmap score, first call, caches empty, slower 1.50× (1.50 … 1.50).",
    )


def test_what_the_new_version_cannot_do_any_more_is_said():
    failed = ended(case("torch", "fused", label="2"), "failed", "TypeError: no such argument")
    no_room = ended(case("torch", "wavefront", label="2"), "limit", "the budget had no room for it")
    old = [measured("1", 0.1, variant="fused"), measured("1", 0.1, variant="wavefront")]
    made = answer(*old, failed, no_room)
    assert made.statements[0].text == (
        "no call was measured with both; without a result now: fused score (TypeError: no such argument)."
    )
    with_pair = answer(measured("1", 0.1), measured("2", 0.1), *old, failed, no_room)
    assert with_pair.tables[0].below[-2:] == (
        "No PyTorch fused score, 2: TypeError: no such argument.",
        "No PyTorch wavefront score, 2: the budget had no room for it.",
    )


def test_interpreters_that_differ_in_python_are_named_below_the_table():
    pair = measured("1", 0.1), measured("2", 0.1)
    made, lines = record(*pair, settings=ASKED), ["PyTorch 1: in Python 3.11", "PyTorch 2: in Python 3.12"]
    made.environment["interpreters"] = lines
    found = QUESTIONS["versions"].answer(made).tables[0].below[-1]
    assert found == f"Not only the frameworks differ. {'; '.join(lines)}."
    made.environment["interpreters"] = [lines[0], "PyTorch 2: in Python 3.11"]
    assert "Not only" not in QUESTIONS["versions"].answer(made).tables[0].below[-1]


def test_cases_are_timed_until_their_change_is_known():
    known = [measured("1", 0.1), measured("2", 0.2)]
    vague = [measured("1", 0.1, variant="fused"), unsteady(measured("2", 0.1, variant="fused"))]
    made = record(*known, *vague, settings=ASKED)
    assert QUESTIONS["versions"].contenders(made) == {result.case for result in vague}
    assert max(estimate.relative_half_width for estimate in QUESTIONS["versions"].deciding(made)) > 0.1


# the interpreters


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The version of the framework in each interpreter; it has none elsewhere."""
    versions: dict[str, str] = {}

    def asked(path: str, framework: str, device: str) -> dict[str, str]:
        if path not in versions:
            return {"problem": f"No module named {framework!r}"}
        return {"version": versions[path], "python": "3.11.7", "numpy": "2.4.6"}

    monkeypatch.setattr(interpreters, "_asked", asked)
    return versions


def labels(*pythons: str) -> list[str]:
    return [f"{each.framework} {each.label}" for each in every_version(replace(ASKED, pythons=pythons))]


def test_this_interpreter_is_compared_with_the_only_one_named_and_several_with_each_other(installed: dict[str, str]):
    installed |= {OWN: "2.10.0+cpu", "/old": "2.9.1", "/new": "2.11.0.dev1"}
    assert labels("torch=/old") == ["torch 2.9.1", "torch 2.10.0+cpu"]
    assert labels("torch=/new") == ["torch 2.10.0+cpu", "torch 2.11.0.dev1"]
    assert labels("torch=/new", "torch=/old") == ["torch 2.9.1", "torch 2.11.0.dev1"]
    del installed[OWN]
    assert labels("torch=/new", "torch=/old") == ["torch 2.9.1", "torch 2.11.0.dev1"]
    with pytest.raises(UnusableInput, match="two interpreters with PyTorch, got one --python; in this one: No module"):
        labels("torch=/new")


def test_two_interpreters_with_one_version_need_names(installed: dict[str, str]):
    installed |= {OWN: "0.10.2", "/other": "0.10.2"}
    with pytest.raises(UnusableInput, match=r"two interpreters are called JAX 0\.10\.2: .*NAME:jax=PATH"):
        labels("jax=/other")
    assert labels("mine:jax=/other") == ["jax mine", "jax 0.10.2"]
    other, own = every_version(replace(ASKED, pythons=("mine:jax=/other",)))
    assert own.command is None and other.command is not None and other.command[0] == "/other"
    assert other.about == "JAX mine, which is 0.10.2: in Python 3.11.7 with NumPy 2.4.6"


def test_other_questions_take_one_interpreter_for_a_framework(installed: dict[str, str]):
    installed |= {"/old": "2.9.1", "/new": "2.11.0"}
    starts = QUESTIONS["ladder"].starts(Settings("ladder", pythons=("torch=/new",)))
    commands = {key: start.command and start.command[0] for key, start in starts.items()}
    assert commands == {("jax", ""): None, ("torch", ""): "/new"}
    with pytest.raises(UnusableInput, match="ladder takes one --python for PyTorch, got several"):
        QUESTIONS["ladder"].starts(Settings("ladder", pythons=("torch=/new", "torch=/old")))


def other_python(folder: Path, first: str = "") -> Path:
    """A program that runs this interpreter, after a line of the shell."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{first}\nexec {OWN} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ("import sys; sys.version_info = (3, 10, 2)", "a worker needs Python 3.11 or newer, this is 3.10.2"),
        ("import sys; sys.modules['psutil'] = None", "a worker cannot start there: "),
        ("import jax; del jax.jit", r"jax [\d.]+ cannot run this code: \w+Error: "),
    ],
    ids=["Python", "package", "version"],
)
def test_an_interpreter_in_which_no_worker_can_start_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, patch: str, problem: str
):
    (tmp_path / "sitecustomize.py").write_text(patch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(UnusableInput, match=f"--python jax={tmp_path}/python: {problem}"):
        every_version(replace(ASKED, pythons=(f"jax={other_python(tmp_path)}",)))


# runs

FEW = ("--framework", "jax", "--variant", "vmap", "--pass", "score", "--size", "6x7", "--batch", "3", "--threads", "1")
TIMED = ("--workers", "3", "--rounds", "2")


def test_a_run_starts_workers_in_both_interpreters_and_can_be_resumed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    use_numpy_workers(monkeypatch)
    path, python = tmp_path / "run.json", other_python(tmp_path)
    ended = run_here("versions", *FEW, *TIMED, "--python", f"other:jax={python}", "--json", str(path))
    assert ended.code == 0, ended.err
    made = Record.read(path)
    other, own = (result.case.label for result in made.results)
    assert other == "other" and all(len(result.blocks) == 6 for result in made.results)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sum("numpy_worker.py" in line for line in calls) == 4  # first calls, and three times rounds
    assert f"JAX {own}\nover other" == QUESTIONS["versions"].answer(made).tables[0].rows[0][0]
    assert "JAX other, which is " in ended.out
    assert html_report([made]).count("<figure>") == 1
    made.settings = replace(made.settings, workers=4)
    made.write(path)
    assert run_here("--resume", str(path)).code == 0
    assert {len(result.blocks) for result in Record.read(path).results} == {8}
    shutil.move(python, tmp_path / "moved")
    interpreters._asked.cache_clear()
    assert_refused(run_here("--resume", str(path)), f"--python jax={python}: expected a Python interpreter")


def test_the_default_question_measures_a_framework_in_another_interpreter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    use_numpy_workers(monkeypatch)
    ended = run_here(*FEW, *TIMED, "--python", f"jax={other_python(tmp_path)}", "--json", str(tmp_path / "run.json"))
    assert ended.code == 0, ended.err
    (line,) = Record.read(tmp_path / "run.json").environment["interpreters"]
    assert line.startswith("JAX ") and line in ended.out
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sum("numpy_worker.py" in call for call in calls) == 4
