"""Progress while a run goes on: plain lines, or on a terminal a display of the answer that no thread draws."""

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest

from shared.bench.record import Record
from shared.bench.run import progress
from shared.bench.run.progress import Display, Lines, progress_for_here

pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RECORD = Record("python compare.py")


def answer(record: Record) -> str | None:
    return f"the answer of {record.command}"


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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time that passes as the test says: its `now`."""
    made = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


# plain lines


def test_without_a_terminal_steps_are_lines_on_standard_error_and_the_first_answer_is_output(
    capsys: pytest.CaptureFixture[str], clock: SimpleNamespace
):
    with progress_for_here(answer) as here:
        assert isinstance(here, Lines)
        here.say("starting JAX")
        here.begin("first calls", 2)
        here.ends_within(100.0)
        here.step("JAX vmap score")
        here.tick()
        here.step("[red]PyTorch[/red] {braces}")
        here.results(RECORD)
        clock.now += 41
        here.results(RECORD, is_first_answer=True)
        here.begin("worker 1, timing", 5)
        here.step("round 1")
    printed = capsys.readouterr()
    assert printed.out == "first table after 41 s (provisional)\n\nthe answer of python compare.py\n\n"
    assert printed.err.splitlines() == [
        "starting JAX",
        "first calls",
        "[1/2] JAX vmap score",
        "[2/2] [red]PyTorch[/red] {braces}",
        "worker 1, timing",
        "[1/5] round 1",
    ]


def test_a_run_does_not_depend_on_its_reader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with (tmp_path / "out").open("w") as closed:
        pass
    for gone in (closed, None):
        monkeypatch.setattr(sys, "stderr", gone)
        monkeypatch.setattr(sys, "stdout", gone)
        here = Lines(answer)
        here.say("starting JAX")
        here.results(RECORD, is_first_answer=True)


# the display


def test_the_display_shows_the_phase_and_which_of_its_steps_goes_on(terminal: Terminal):
    with terminal, progress_for_here(answer) as display:
        assert isinstance(display, Display)
        display.begin("first calls", 3)
        display.step("JAX vmap score")
        first = terminal.lines()[-1]
        display.step("PyTorch vmap score")
        second = terminal.lines()[-1]
        display.begin("worker 1, timing", 5)
        third = terminal.lines()[-1]
    assert first.startswith("first calls") and first.endswith("JAX vmap score") and "1/3" in first
    assert "2/3" in second and second.endswith("PyTorch vmap score") and "JAX" not in second
    assert third.startswith("worker 1, timing") and "0/5" in third and "PyTorch" not in third


def test_the_display_shows_the_time_that_has_passed_and_what_is_left(terminal: Terminal, clock: SimpleNamespace):
    with terminal, progress_for_here(answer) as display:
        display.begin("first calls", 2)
        assert "left" not in terminal.lines()[-1]
        clock.now += 61
        display.ends_within(90.0)
        display.step("JAX vmap score")
        assert "1:01, at most 1:30 left" in terminal.lines()[-1]
        clock.now += 120
        display.tick()
        assert "3:01, at most 0:00 left" in terminal.lines()[-1]


def test_the_answer_stays_above_the_bar_and_what_is_said_above_both(terminal: Terminal):
    with terminal, progress_for_here(answer) as display:
        display.begin("first calls", 1)
        display.results(RECORD)
        display.step("JAX vmap score")
        terminal.raw()
        display.say("NumPy reference: 1.0 s")
        lines = terminal.lines()
    bar = max(number for number, line in enumerate(lines) if line.endswith("JAX vmap score"))
    answered = len(lines) - 1 - lines[::-1].index("the answer of python compare.py")
    places = [lines.index("NumPy reference: 1.0 s"), answered, bar]
    assert places == sorted(places)


def test_the_display_is_drawn_by_calls_alone_and_starts_no_thread(terminal: Terminal):
    before = threading.enumerate()
    with terminal, progress_for_here(answer) as display:
        display.begin("first calls", 1)
        assert threading.enumerate() == before and terminal.raw()
        # nothing is drawn by itself
        threading.Event().wait(0.3)
        assert terminal.raw() == ""
        display.tick()
        assert terminal.raw()


@pytest.mark.parametrize("text", ["[red]mine[/red].fasta", "[bold {task.id} :bomb: 100 %s"])
def test_the_display_shows_text_as_it_is(terminal: Terminal, text: str):
    with terminal, progress_for_here(lambda _: text) as display:
        display.begin("first calls", 1)
        display.step(text)
        assert terminal.lines()[-1].endswith(text)
        display.say(text)
        assert text in terminal.lines()
        display.results(RECORD)
        assert text in terminal.lines()


def test_the_display_leaves_nothing_behind_even_after_an_error(terminal: Terminal):
    hide, show, clear = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"
    with terminal, contextlib.suppress(KeyboardInterrupt), progress_for_here(answer) as display:
        display.begin("first calls", 1)
        display.step("JAX vmap score")
        assert hide in terminal.raw()
        raise KeyboardInterrupt
    last = terminal.raw()
    # the cursor is back, and the line of the bar is empty
    assert show in last and last.rindex(clear) > last.rfind("JAX vmap score")


@pytest.mark.parametrize(("width", "whole"), [(80, True), (50, False)])
def test_the_display_fits_a_narrow_terminal(
    terminal: Terminal, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, width: int, whole: bool
):
    monkeypatch.setenv("COLUMNS", str(width))
    with terminal, progress_for_here(lambda _: "a row of the table " * 20) as display:
        display.begin("worker 1, preparing", 10)
        display.ends_within(100.0)
        display.results(RECORD)
        terminal.raw()
        display.step("PyTorch scan_select marginals, 512x512, not compiled")
        drawn = terminal.lines()
    assert max(map(len, drawn)) <= width and drawn[-1].startswith("worker 1, preparing")
    # the name of the step gives way to the rest
    assert not whole or ("1/10" in drawn[-1] and "0:00, at most 1:40 left" in drawn[-1] and "PyTorch s" in drawn[-1])
