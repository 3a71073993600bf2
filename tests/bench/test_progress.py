"""Progress while a run goes on: plain lines, on a terminal one line that is drawn over again."""

import errno
import io
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from shared.bench.cases import Settings
from shared.bench.record import Record
from shared.bench.run import progress
from shared.bench.run.progress import Lines

RECORD = Record("python compare.py", Settings())


def answer(record: Record) -> str | None:
    return f"the answer of {record.command}"


class Terminal(io.StringIO):
    """Takes the place of standard error."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """Return what was drawn line by line, without escape sequences."""
        return [line for line in re.split(r"[\r\n]+", self.getvalue().replace("\x1b[K", "")) if line]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time that passes as the test says: its `now`."""
    made = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def test_without_a_terminal_stages_are_lines_and_the_first_answer_is_output(
    capsys: pytest.CaptureFixture[str], clock: SimpleNamespace
):
    here = Lines(answer)
    here.say("starting JAX")
    here.ends_within(100.0)
    here.begin("first calls", 2)
    here.step("JAX vmap score")
    here.tick()
    here.step("[red]PyTorch[/red] {braces}")
    clock.now += 41
    here.first_answer(RECORD)
    here.begin("worker 1, timing", 5)
    here.step("round 1")
    here.close()
    printed = capsys.readouterr()
    assert printed.out == "first table after 41 s (provisional)\n\nthe answer of python compare.py\n\n"
    assert printed.err.splitlines() == [
        "starting JAX",
        "first calls",
        "worker 1, timing",
    ]


def test_a_run_does_not_depend_on_its_reader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with (tmp_path / "out").open("w") as closed:
        pass
    lines = Lines(answer)
    for gone in (closed, None):
        monkeypatch.setattr(sys, "stderr", gone)
        monkeypatch.setattr(sys, "stdout", gone)
        lines.say("starting JAX")
        lines.first_answer(RECORD)


def test_a_run_does_not_depend_on_its_terminal(monkeypatch: pytest.MonkeyPatch):
    def gone(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())  # not a fixture: pytest puts its own in place later
    lines = Lines(answer)
    monkeypatch.setattr(terminal, "write", gone)
    lines.begin("first calls", 3)
    lines.say("NumPy score")
    lines.close()


def test_a_terminal_shows_the_phase_its_step_the_time_that_has_passed_and_what_is_left(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())  # not a fixture: pytest puts its own in place later
    lines = Lines()
    lines.begin("first calls", 3)
    clock.now += 61
    lines.ends_within(90.0)
    lines.step("JAX vmap score")
    assert terminal.lines()[-1] == "first calls  1/3  1:01, at most 1:30 left  JAX vmap score"
    clock.now += 120
    lines.say("NumPy reference: 1.0 s")
    assert terminal.lines()[-2:] == [
        "NumPy reference: 1.0 s",
        "first calls  1/3  3:01, at most 0:00 left  JAX vmap score",
    ]
    lines.close()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_the_line_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((50, 24)))
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())  # not a fixture: pytest puts its own in place later
    lines = Lines()
    lines.begin("worker 1, preparing", 10)
    lines.step("PyTorch scan_select marginals, 512x512, not compiled")
    assert max(map(len, terminal.lines())) < 50
    assert terminal.lines()[-1].startswith("worker 1, preparing  1/10  0:00  PyTorch")  # the name of the step is cut
