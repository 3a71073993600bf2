"""compare.py's main in this process, without the frameworks: what it makes of its arguments, and runs with NumPy."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

import compare
from shared.bench.cases import Settings
from shared.bench.questions.question import Question
from shared.bench.record import Record
from shared.bench.report import output_files
from shared.bench.run import context, worker_handle
from shared.bench.run.worker_handle import Worker
from shared.problems import ANY_FILE, PROBLEMS
from shared.variants import Abilities

_ALL = Abilities("vmap")


class Ended(NamedTuple):
    """The command's exit code and output."""

    code: Any
    out: str
    err: list[str]


def run_here(*arguments: str) -> Ended:
    """Run the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with patch.dict(os.environ, COLUMNS="1000"), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: Any = compare.main(arguments)
        except SystemExit as error:
            code = error.code
    return Ended(code, out.getvalue(), err.getvalue().splitlines())


def numpy_workers(*faults: dict[str, Any], **options: Any) -> tuple[str, ...]:
    """The command of workers that compute with NumPy; see numpy_worker.py."""
    path = Path(__file__).with_name("numpy_worker.py")
    return (sys.executable, str(path), json.dumps({"faults": faults, **options}))


def use_numpy_workers(monkeypatch: pytest.MonkeyPatch, *faults: dict[str, Any], **options: Any) -> None:
    """Have runs in this process start such workers."""
    monkeypatch.setattr(worker_handle, "WORKER_COMMAND", numpy_workers(*faults, **options))


def start_at_once(monkeypatch: pytest.MonkeyPatch, able: Abilities = _ALL) -> None:
    """Have runs in this process find workers of this ability, which are there at once and cannot run a case."""
    environment = {"jax": "1.2.3", "torch": "1.2.3"}
    worker = SimpleNamespace(
        abilities=dict.fromkeys((*PROBLEMS, ANY_FILE), able),
        environment=environment,
        memory=None,
        alive=True,
        wait_until_ready=lambda: None,
        lost=lambda: None,
        stop=lambda: None,
    )
    monkeypatch.setattr(context, "Worker", lambda *_, **__: worker)


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Settings]:
    """Return the settings that the command makes of its arguments; nothing is measured, and reports are short."""
    settings: list[Settings] = []
    monkeypatch.setattr(Question, "plan", lambda *_: None)
    monkeypatch.setattr(compare, "measure", lambda plan, record, *_: settings.append(record.settings))
    for name in ("html_report", "markdown_report"):
        monkeypatch.setattr(output_files, name, lambda reports, *_: f"{len(reports)} records")
    monkeypatch.chdir(tmp_path)

    def parse(*arguments: str) -> Settings:
        ended = run_here(*arguments)
        assert ended.code == 0, ended.err
        return settings[-1]

    return parse


@pytest.fixture
def no_biopython(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make Biopython unimportable in this process."""
    for name in [name for name in sys.modules if name.split(".")[0] == "Bio"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Bio", None)


def assert_refused(ended: Ended, text: str) -> None:
    """Exit code 2 and one line with the text, before any worker starts."""
    assert ended.code == 2 and not ended.out
    assert len(ended.err) == 1 and ended.err[0].startswith("compare.py: error: ") and text in ended.err[0]


def finished(folder: Path, *arguments: str) -> tuple[Ended, Record]:
    """A run with these arguments, and its record, which it writes into the folder."""
    path = folder / "run.json"
    ended = run_here(*arguments, "--json", str(path))
    assert ended.code == 0, ended.err
    return ended, Record.read(path)


def resumed(folder: Path, changed: Record | None = None) -> tuple[Ended, Record]:
    """The run resumed, of which the record is what it has written or a changed one."""
    path = folder / "run.json"
    if changed:
        changed.write(path)
    ended = run_here("--resume", str(path))
    assert ended.code == 0, ended.err
    return ended, Record.read(path)


def started_workers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, Worker]]:
    """Return a list that gets the framework, the threads and the handle of each worker that is started."""
    started: list[tuple[str, int, Worker]] = []

    def start(framework: str, command: Any, settings: Any, *given: Any, **options: Any) -> Worker:
        started.append((framework, settings.threads, Worker(framework, command, settings, *given, **options)))
        return started[-1][2]

    monkeypatch.setattr(context, "Worker", start)
    return started
