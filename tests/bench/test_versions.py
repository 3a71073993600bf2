"""The question of versions: which interpreters it takes and in which order, its answer, and whole runs in others."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hand_made import case, ended, record, steady
from in_process import assert_refused, run_here, use_numpy_workers

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


def cells_of(made: Answer, number: int = 0) -> list[dict[str, str]]:
    table = made.tables[number]
    return [dict(zip(table.headers, row, strict=True)) for row in table.rows]


def test_each_framework_has_a_table_of_its_last_version_against_its_first():
    torch = [measured("1", 0.1), measured("2", 0.15), measured("1", 0.1, variant="fused")]
    jax = [measured("0.1", 0.1, "jax"), measured("0.2", 0.05, "jax")]
    made = answer(*torch, *jax)
    assert [table.title for table in made.tables][::2] == ["0.2 against 0.1", "2 against 1"]
    assert [row["JAX\nnew / old"] for row in cells_of(made)] == ["–", "0.50×\n(0.50 … 0.50)"]
    rows = cells_of(made, 2)
    assert [row["PyTorch\nnew / old"] for row in rows] == ["–", "1.50×\n(1.49 … 1.51)", "–"]
    assert [*rows[0]] == ["variant", "pass", "versions", "PyTorch\ntime", "PyTorch\nnew / old"]
    assert dict(made.statements) == {
        "JAX, 0.2 against 0.1": "faster: vmap (0.50×).",
        "PyTorch, 2 against 1": "slower: vmap (1.50×).",
    }


def test_several_versions_are_compared_with_the_oldest():
    made = answer(*(measured(label, took) for label, took in (("1", 0.1), ("2", 0.2), ("3", 0.1))))
    assert [row["PyTorch\nnew / old"].partition("×")[0] for row in cells_of(made)] == ["–", "2.00", "1.000"]


def test_first_calls_are_compared_process_by_process():
    old, new = measured("1", 0.1), measured("2", 0.1)
    old.cold, new.cold = [Compilation(2.0)] * 3, [Compilation(3.0)] * 3
    old.warm, new.warm = [1.0] * 2, [1.0] * 3
    old.new_shapes, new.new_shapes = [[0.5, 9.0]] * 3, [[]]
    made = answer(old, new)
    assert made.tables[1].rows == [
        ("vmap score", "2", "1.50×\n(1.29 … 1.75)", "1.000×\n(0.78 … 1.28; 2 processes)", "–")
    ]
    assert made.statements[1] == (
        "PyTorch, first calls",
        "vmap score, first call, caches empty, 2: 1.50× (1.29 … 1.75).",
    )


def test_what_the_new_version_cannot_do_any_more_is_said():
    failed = ended(case("torch", "fused", label="2"), "failed", "TypeError: no such argument")
    made = answer(measured("1", 0.1, variant="fused"), failed)
    assert made.tables[0].below[-1] == "No PyTorch fused score, 2: TypeError: no such argument."


def test_the_change_of_each_framework_must_be_precise():
    restless = unsteady(measured("2", 0.1))
    made = record(
        measured("1", 0.1), restless, measured("0.1", 0.1, "jax"), measured("0.2", 0.1, "jax"), settings=ASKED
    )
    widths = [estimate.relative_half_width for estimate in QUESTIONS["versions"].deciding(made)]
    assert len(widths) == 2 and widths[0] < 0.01 and widths[1] > 0.1


# the interpreters


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The version of the framework in each interpreter; it has none elsewhere."""
    versions: dict[str, str] = {}

    def ask(path: str, framework: str, device: str) -> tuple[str, str, str]:
        if path not in versions:
            raise UnusableInput(f"No module named {framework!r}")
        return versions[path], "3.11.7", "2.4.6"

    monkeypatch.setattr(interpreters, "_ask", ask)
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
    with pytest.raises(UnusableInput, match="No module named 'torch'"):
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
        ("import sys; sys.version_info = (3, 10, 2)", "it needs Python 3.11 or newer, this is 3.10"),
        ("import sys; sys.modules['psutil'] = None", "ModuleNotFoundError: "),
        ("import jax; del jax.jit", "AttributeError: "),
    ],
    ids=["Python", "package", "version"],
)
def test_an_interpreter_in_which_no_worker_can_start_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, patch: str, problem: str
):
    (tmp_path / "sitecustomize.py").write_text(patch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(UnusableInput, match=f"--python jax={tmp_path}/python: no worker can start there: {problem}"):
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
    assert QUESTIONS["versions"].answer(made).tables[0].title == f"{own} against other"
    assert "JAX other, which is " in ended.out
    made.settings = replace(made.settings, workers=4)
    made.write(path)
    assert run_here("--resume", str(path)).code == 0
    assert {len(result.blocks) for result in Record.read(path).results} == {8}
    shutil.move(python, tmp_path / "moved")
    interpreters._ask.cache_clear()
    assert_refused(run_here("--resume", str(path)), f"--python jax={python}: no worker can start there: ")


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
