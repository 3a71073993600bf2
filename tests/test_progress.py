"""What is seen while a run goes on: plain lines, or on a terminal one line that moves, drawn by no thread."""

import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest
from shared.bench.progress import Display, Lines, progress_for_here

from shared.bench import progress

pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A pseudo-terminal as standard error, and what was drawn on it."""

    def __init__(self) -> None:
        self._master, slave = pty.openpty()
        os.set_blocking(self._master, False)
        self.file = os.fdopen(slave, "w")

    def __enter__(self) -> Self:
        # in the test itself: pytest puts its own in place after the fixtures
        self._before, sys.stderr = sys.stderr, self.file
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr = self._before

    def raw(self) -> str:
        """What has been written since the last time."""
        self.file.flush()
        drawn = b""
        while True:
            try:
                drawn += os.read(self._master, 65536)
            except BlockingIOError:
                return drawn.decode()

    def lines(self) -> list[str]:
        """The same without escape sequences, line by line: one for each time that the bar was drawn."""
        return [line.strip() for line in re.split(r"[\r\n]+", ESCAPES.sub("", self.raw())) if line.strip()]

    def close(self) -> None:
        self.file.close()
        os.close(self._master)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    made = Terminal()
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "160"), ("LINES", "24")):
        monkeypatch.setenv(name, value)
    yield made
    made.close()


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


# plain lines


def test_without_a_terminal_there_are_plain_lines_on_standard_error(capsys: pytest.CaptureFixture[str]):
    with progress_for_here() as here:
        assert isinstance(here, Lines)
        here.say("starting JAX")
        here.begin("first calls", 2)
        here.left(100.0, "at most")
        here.step("JAX vmap score")
        here.tick()
        here.step("[red]PyTorch[/red] {braces}")
        here.begin("worker 1, timing", 5)
        here.step("round 1")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "starting JAX",
        "first calls",
        "[1/2] JAX vmap score",
        "[2/2] [red]PyTorch[/red] {braces}",
        "worker 1, timing",
        "[1/5] round 1",
    ]


def test_a_line_is_seen_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with (tmp_path / "err").open("w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        Lines().say("starting JAX")
        assert (tmp_path / "err").read_text() == "starting JAX\n"


def test_an_error_passes_through_both(terminal: Terminal):
    for made in (Lines(), Display()):
        with terminal, pytest.raises(KeyboardInterrupt), made:
            raise KeyboardInterrupt


# the display


def test_on_a_terminal_there_is_a_display(terminal: Terminal):
    with terminal:
        assert isinstance(progress_for_here(), Display)


def test_it_shows_the_phase_what_runs_and_what_is_done(terminal: Terminal):
    with terminal, Display() as display:
        display.begin("first calls", 3)
        display.step("JAX vmap score")
        first = terminal.lines()[-1]
        display.step("PyTorch vmap score")
        second = terminal.lines()[-1]
    assert first.startswith("first calls") and first.endswith("JAX vmap score") and "0/3" in first
    assert "1/3" in second and second.endswith("PyTorch vmap score") and "JAX" not in second


def test_a_new_phase_begins_anew(terminal: Terminal):
    with terminal, Display() as display:
        display.begin("first calls", 1)
        display.step("JAX vmap score")
        terminal.raw()
        display.begin("worker 1, timing", 5)
        display.step("round 1")
        last = terminal.lines()[-1]
    assert last.startswith("worker 1, timing") and last.endswith("round 1") and "0/5" in last
    assert "JAX" not in last


@pytest.mark.parametrize("steps", [0, 3])
def test_a_phase_that_has_no_step_yet_has_none_done(terminal: Terminal, steps: int):
    with terminal, Display() as display:
        terminal.raw()
        display.begin("first calls", steps)
        assert f" 0/{steps} " in terminal.lines()[-1]


def test_it_shows_the_time_that_has_passed_and_what_is_left(terminal: Terminal, clock: Clock):
    with terminal, Display() as display:
        display.begin("first calls", 2)
        assert "left" not in terminal.lines()[-1]
        clock.now += 61
        display.left(90.0, "at most")
        display.step("JAX vmap score")
        assert "1:01, at most 1:30 left" in terminal.lines()[-1]
        clock.now += 60
        display.tick()
        assert "2:01, at most 0:30 left" in terminal.lines()[-1]
        clock.now += 60
        display.tick()
        assert "3:01, at most 0:00 left" in terminal.lines()[-1]
        display.left(5.0, "about")
        display.tick()
        assert "3:01, about 0:05 left" in terminal.lines()[-1]


def test_it_is_drawn_anew_by_calls_alone_and_starts_no_thread(terminal: Terminal):
    before = threading.enumerate()
    with terminal, Display() as display:
        display.begin("first calls", 1)
        display.step("JAX vmap score")
        assert threading.enumerate() == before
        assert terminal.raw()
        # nothing is drawn by itself
        threading.Event().wait(0.3)
        assert terminal.raw() == ""
        display.tick()
        assert terminal.raw()
    assert threading.enumerate() == before


@pytest.mark.parametrize("text", ["[red]mine[/red].fasta", "[/]", "[bold", "{task.id} {0}", ":bomb: {{", "100 %s"])
def test_text_is_shown_as_it_is(terminal: Terminal, text: str):
    with terminal, Display() as display:
        display.begin("first calls", 1)
        terminal.raw()
        display.step(text)
        assert terminal.lines()[-1].endswith(text)
        display.say(text)
        assert text in terminal.lines()


def test_what_is_said_stays_above_the_line_that_moves(terminal: Terminal):
    with terminal, Display() as display:
        display.begin("first calls", 1)
        display.step("JAX vmap score")
        terminal.raw()
        display.say("NumPy reference on 8 of 120 pairs: 1.0 s")
        lines = terminal.lines()
        said = lines.index("NumPy reference on 8 of 120 pairs: 1.0 s")
        assert any("JAX vmap score" in line for line in lines[said + 1 :])


def test_it_leaves_nothing_behind(terminal: Terminal):
    hide, show, clear = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"
    with terminal, Display() as display:
        display.begin("first calls", 1)
        display.step("JAX vmap score")
        assert hide in terminal.raw()
    last = terminal.raw()
    # the cursor is back, and the line of the bar is empty
    assert show in last and last.rindex(clear) > last.rfind("JAX vmap score")


@pytest.mark.parametrize(("width", "whole"), [(80, True), (50, False)])
def test_it_fits_a_narrow_terminal(
    terminal: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch, width: int, whole: bool
):
    monkeypatch.setenv("COLUMNS", str(width))
    with terminal, Display() as display:
        display.begin("worker 1, preparing", 10)
        display.left(100.0, "about")
        terminal.raw()
        display.step("PyTorch scan_select marginals, 512x512, not compiled")
        (drawn,) = terminal.lines()
    assert len(drawn) <= width and drawn.startswith("worker 1, preparing")
    # what runs gives way to the rest
    assert not whole or ("0/10" in drawn and "0:00, about 1:40 left" in drawn and "PyTorch s" in drawn)
