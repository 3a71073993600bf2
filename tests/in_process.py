"""compare.py's main in this process, for what happens before anything is measured: fixtures of the tests of it."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from shared.bench.plan import Settings

import compare as command
from shared.bench import outputs, team
from shared.problems import PROBLEMS
from shared.variants import Abilities


class Ended(NamedTuple):
    """How a run of the command ended."""

    code: Any
    out: str
    err: list[str]


@pytest.fixture
def end_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run the command; its workers start at once and cannot run a case."""
    start_at_once(monkeypatch, Abilities("vmap", {}, {}, {}))

    def run(*arguments: str) -> Ended:
        try:
            code: Any = command.main(arguments)
        except SystemExit as error:
            code = error.code
        printed = capsys.readouterr()
        return Ended(code, printed.out, printed.err.splitlines())

    return run


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Settings]:
    """What the command makes of its arguments; nothing is measured."""
    asked: list[Settings] = []
    monkeypatch.setattr(command, "run", lambda settings, record, progress, keep: asked.append(settings))
    monkeypatch.setattr(outputs, "_page", lambda records: "page")
    monkeypatch.setattr(outputs, "_markdown", lambda records: "#")
    monkeypatch.chdir(tmp_path)

    def parse(*arguments: str) -> Settings:
        assert command.main(arguments) == 0
        return asked[-1]

    return parse


def start_at_once(monkeypatch: pytest.MonkeyPatch, able: Abilities) -> None:
    """Workers that are there at once, and that cannot run a case."""
    worker = SimpleNamespace(abilities=dict.fromkeys(PROBLEMS, able), environment={}, alive=True, stop=lambda: None)
    monkeypatch.setattr(team, "Worker", lambda *_: worker)


def assert_refused(ended: Ended, text: str) -> None:
    """One line with the text, exit code 2, and no case was begun."""
    assert ended.code == 2
    assert text in ended.err[-1] and ended.err[-1].startswith("compare.py: error: ")
    assert sum("error" in line for line in ended.err) == 1
    assert not ended.out and not any("[1/" in line for line in ended.err)
