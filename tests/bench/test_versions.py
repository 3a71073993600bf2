"""The question of versions: which interpreters it takes and in which order, its answer, and a whole run in another."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hand_made import blocks_of_workers, case, record, steady
from in_process import assert_refused, finished, resumed, run_here, use_numpy_workers

from shared.bench.cases import Settings
from shared.bench.questions import QUESTIONS
from shared.bench.record import Result
from shared.bench.report.tables import Answer
from shared.bench.run import interpreters
from shared.bench.run.interpreters import every_version
from shared.problems.problem import UnusableInput

ASKED = Settings("versions", input="random", passes=("score",))
VERSIONS = QUESTIONS["versions"]


def measured(label: str, seconds: float, framework: str = "torch", variant: str = "vmap", **others: Any) -> Result:
    return steady(case(framework, variant, label=label), seconds, **others)


def answer(*results: Result) -> Answer:
    return VERSIONS.answer(record(*results, settings=ASKED))


def changes(made: Answer, header: str, table: int = 0) -> list[str]:
    shown = made.tables[table]
    return [row[shown.headers.index(f"{header}\nnew / old")].partition("\n")[0] for row in shown.rows]


def test_each_framework_has_a_table_of_its_versions_against_its_oldest():
    torch = [measured("1", 0.1), measured("2", 0.15), measured("3", 0.1), measured("1", 0.1, variant="fused")]
    jax = [measured("0.1", 0.1, "jax"), measured("0.2", 0.05, "jax")]
    made = answer(*torch, *jax)
    assert [table.title for table in made.tables][::2] == ["0.2 against 0.1", "2 and 3 against 1"]
    assert changes(made, "JAX") == ["–", "0.50×"] and changes(made, "PyTorch", 2) == ["–", "1.50×", "1.000×", "–"]
    assert dict(made.statements)["JAX, 0.2 against 0.1"] == "faster: vmap (2.00×)."


def test_the_change_of_each_framework_must_be_precise():
    restless = measured("2", 0.1, blocks=blocks_of_workers(0.09, 0.11, 0.11, 0.09))
    jax = [measured(label, 0.1, "jax") for label in ("0.1", "0.2")]
    made = record(measured("1", 0.1), restless, *jax, settings=ASKED)
    widths = [estimate.relative_half_width for estimate in VERSIONS.deciding(made)]
    assert len(widths) == 2 and widths[0] < 0.01 and widths[1] > 0.1


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
    return [f"{one.framework} {one.label}" for one in every_version(replace(ASKED, pythons=pythons))]


def test_this_interpreter_is_compared_with_the_only_one_named_or_several_are(installed: dict[str, str]):
    installed |= {sys.executable: "2.10.0+cpu", "/old": "2.9.1", "/new": "2.11.0.dev1", "/same": "2.10.0+cpu"}
    assert labels("torch=/old") == ["torch 2.9.1", "torch 2.10.0+cpu"]
    assert labels("torch=/new", "torch=/old") == ["torch 2.9.1", "torch 2.11.0.dev1"]
    with pytest.raises(UnusableInput, match=r"two interpreters are called PyTorch 2\.10\.0\+cpu: .*NAME:torch=PATH"):
        labels("torch=/same")
    assert labels("mine:torch=/same") == ["torch mine", "torch 2.10.0+cpu"]
    other, this = every_version(replace(ASKED, pythons=("mine:torch=/same",)))
    assert this.command is None and other.command is not None and other.command[0] == "/same"
    assert other.about == "PyTorch mine, which is 2.10.0+cpu: in Python 3.11.7 with NumPy 2.4.6"
    del installed[sys.executable]
    with pytest.raises(UnusableInput, match="No module named 'torch'"):
        labels("torch=/new")


def test_other_questions_take_one_interpreter_for_a_framework(installed: dict[str, str]):
    installed |= {"/old": "2.9.1", "/new": "2.11.0"}
    starts = QUESTIONS["ladder"].starts(Settings("ladder", pythons=("torch=/new",)))
    commands = {key: start.command and start.command[0] for key, start in starts.items()}
    assert commands == {("jax", ""): None, ("torch", ""): "/new"}
    with pytest.raises(UnusableInput, match="ladder takes one --python for PyTorch, got several"):
        QUESTIONS["ladder"].starts(Settings("ladder", pythons=("torch=/new", "torch=/old")))


def other_python(folder: Path) -> Path:
    """A program that runs this interpreter, and notes its arguments."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ("import sys; sys.version_info = (3, 10, 2)", "it needs Python 3.11 or newer, this is 3.10"),
        ("import sys; sys.modules['psutil'] = None", "ModuleNotFoundError: "),
    ],
)
def test_an_interpreter_in_which_no_worker_can_start_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, patch: str, problem: str
):
    (tmp_path / "sitecustomize.py").write_text(patch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(UnusableInput, match=f"--python jax={tmp_path}/python: no worker can start there: {problem}"):
        every_version(replace(ASKED, pythons=(f"jax={other_python(tmp_path)}",)))


FEW = ("--framework", "jax", "--variant", "vmap", "--pass", "score", "--size", "6x7", "--batch", "3", "--threads", "1")


def test_a_run_starts_workers_in_both_interpreters_and_can_be_resumed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    use_numpy_workers(monkeypatch)
    python = other_python(tmp_path)
    options = (*FEW, "--workers", "1", "--rounds", "2", "--python", f"other:jax={python}")
    ended, made = finished(tmp_path, "versions", *options)
    other, this = (result.case.label for result in made.results)
    assert other == "other" and all(len(result.blocks) == 2 for result in made.results)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sum("numpy_worker.py" in line for line in calls) == 2  # first calls, and rounds
    assert VERSIONS.answer(made).tables[0].title == f"{this} against other"
    line = made.environment["interpreters"][0]
    assert line.startswith("JAX other, which is ") and line in ended.out
    made.settings = replace(made.settings, workers=2)
    assert {len(result.blocks) for result in resumed(tmp_path, made)[1].results} == {4}
    shutil.move(python, tmp_path / "moved")
    interpreters._ask.cache_clear()
    assert_refused(
        run_here("--resume", str(tmp_path / "run.json")), f"--python jax={python}: no worker can start there: "
    )
