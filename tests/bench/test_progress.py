"""Progress while a run goes on: plain lines, or on a terminal a display of the answer that no thread draws."""

import contextlib
import errno
import io
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from shared.bench.cases import Settings
from shared.bench.record import Record
from shared.bench.run import progress
from shared.bench.run.progress import Answer, Display, Lines, progress_for_here

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RECORD = Record("python compare.py", Settings())


def answer(record: Record) -> str | None:
    return f"the answer of {record.command}"


class Terminal(io.StringIO):
    """Takes the place of standard error, and says what was drawn on it."""

    def isatty(self) -> bool:
        return True

    def raw(self) -> str:
        """What has been written since the last time."""
        drawn = self.getvalue()
        self.seek(0)
        self.truncate()
        return drawn

    def lines(self) -> list[str]:
        """The same without escape sequences, line by line."""
        return [line.strip() for line in re.split(r"[\r\n]+", ESCAPES.sub("", self.raw())) if line.strip()]

    @contextlib.contextmanager
    def showing(self, answer: Answer = answer) -> Iterator[Display]:
        """A display on this terminal. Not a fixture: pytest puts its own standard error in place after those."""
        with contextlib.redirect_stderr(self), progress_for_here(answer) as display:
            assert isinstance(display, Display)
            yield display


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "160"), ("LINES", "24")):
        monkeypatch.setenv(name, value)
    return Terminal()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time that passes as the test says: its `now`."""
    made = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def test_without_a_terminal_steps_are_lines_on_standard_error_and_the_first_answer_is_output(
    capsys: pytest.CaptureFixture[str], clock: SimpleNamespace
):
    with progress_for_here(answer) as here:
        here.say("starting JAX")
        here.ends_within(100.0)
        here.begin("first calls", 2)
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
        Lines(answer).say("starting JAX")
        Lines(answer).results(RECORD, is_first_answer=True)


def test_a_run_does_not_depend_on_its_terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch):
    def gone(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with terminal.showing() as display:
        monkeypatch.setattr(terminal, "write", gone)
        display.begin("first calls", 3)
        display.say("NumPy score")
        display.results(RECORD)


def test_the_display_shows_the_phase_its_step_the_time_that_has_passed_and_what_is_left(
    terminal: Terminal, clock: SimpleNamespace
):
    with terminal.showing() as display:
        display.begin("first calls", 3)
        assert terminal.lines()[-1] == "first calls  0/3  0:00"
        clock.now += 61
        display.ends_within(90.0)
        display.step("JAX vmap score")
        assert terminal.lines()[-1] == "first calls  1/3  1:01, at most 1:30 left  JAX vmap score"
        clock.now += 120
        display.tick()
        assert terminal.lines()[-1] == "first calls  1/3  3:01, at most 0:00 left  JAX vmap score"
        display.begin("worker 1, timing", 5)
        assert terminal.lines()[-1] == "worker 1, timing  0/5  3:01, at most 0:00 left"


def test_the_answer_stays_above_the_step_and_what_is_said_above_both(terminal: Terminal):
    with terminal.showing() as display:
        display.begin("first calls", 1)
        display.results(RECORD)
        display.step("JAX vmap score")
        terminal.raw()
        display.say("NumPy reference: 1.0 s")
        lines = terminal.lines()
    said = lines.index("NumPy reference: 1.0 s")
    assert lines[said + 1] == "the answer of python compare.py" and lines[said + 2].endswith("JAX vmap score")


def test_the_display_is_drawn_by_calls_alone_and_starts_no_thread(terminal: Terminal):
    before = threading.enumerate()
    with terminal.showing() as display:
        display.begin("first calls", 1)
        assert threading.enumerate() == before and terminal.raw()


@pytest.mark.parametrize("text", ["[red]mine[/red].fasta", "[bold {task.id} :bomb: 100 %s"])
def test_the_display_shows_text_as_it_is(terminal: Terminal, text: str):
    with terminal.showing(lambda _: text) as display:
        display.begin("first calls", 1)
        display.step(text)
        assert terminal.lines()[-1].endswith(text)
        display.say(text)
        assert text in terminal.lines()
        display.results(RECORD)
        assert text in terminal.lines()


def test_the_display_leaves_nothing_behind_even_after_an_error(terminal: Terminal):
    hide, show, clear = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"
    with contextlib.suppress(KeyboardInterrupt), terminal.showing() as display:
        display.begin("first calls", 1)
        display.step("JAX vmap score")
        assert hide in terminal.raw()
        raise KeyboardInterrupt
    last = terminal.raw()
    # the cursor is back, and the line of the step is empty
    assert show in last and last.rindex(clear) > last.rfind("JAX vmap score")


def test_the_display_fits_a_narrow_terminal(
    terminal: Terminal, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "50")
    with terminal.showing(lambda _: "a row of the table " * 20) as display:
        display.begin("worker 1, preparing", 10)
        display.results(RECORD)
        terminal.raw()
        display.step("PyTorch scan_select marginals, 512x512, not compiled")
        drawn = terminal.lines()
    assert max(map(len, drawn)) <= 50
    assert drawn[-1].startswith("worker 1, preparing  1/10  0:00  PyTorch")  # the name of the step is cut
