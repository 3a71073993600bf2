"""What a run shows while it goes on, on standard error: a display that moves on a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from types import TracebackType
from typing import Protocol, Self

from shared.bench.text import clock


class Progress(Protocol):
    """What the run tells whoever shows it."""

    def say(self, line: str) -> None:
        """Something that stays to be read."""

    def begin(self, what: str, steps: int) -> None:
        """A phase begins, of so many steps."""

    def step(self, what: str) -> None:
        """The next step of the phase begins."""

    def left(self, seconds: float, about: str) -> None:
        """How long the run will still take, "about" or "at most"."""

    def tick(self) -> None:
        """Time passes; called about twice a second while nothing is timed but a first call."""


class Lines:
    """Each step is a line."""

    def __init__(self) -> None:
        self._steps, self._done = 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, line: str) -> None:
        """Print it, if there is somebody to read it: what is measured does not hang on that."""
        if sys.stderr is None:  # closed from the start; print would take standard output instead
            return
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)

    def begin(self, what: str, steps: int) -> None:
        """A heading."""
        self._steps, self._done = steps, 0
        self.say(what)

    def step(self, what: str) -> None:
        """Numbered in its phase."""
        self._done += 1
        self.say(f"[{self._done}/{self._steps}] {what}")

    def left(self, seconds: float, about: str) -> None:
        """Not shown: a line cannot be taken back."""

    def tick(self) -> None:
        """Not shown."""


class Display:
    """One line that moves: what runs, what is done, the time left. It is drawn anew by this process's own calls, never
    by a thread: that would take a core from what is being timed."""

    def __init__(self) -> None:
        from rich.console import Console  # here: a run without a terminal has no use for it
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        self._bar = RichProgress(
            TextColumn("{task.fields[phase]}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[times]}"),
            # the one column that gives way where the terminal is narrow
            TextColumn(
                "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
            ),
            console=Console(stderr=True),
            expand=True,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, phase="starting", times="")
        self._start = time.monotonic()
        self._end: float | None = None
        self._about = ""
        self._is_first = True

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        """Above the bar."""
        self._bar.console.print(line, markup=False, highlight=False, emoji=False)
        self.tick()

    def begin(self, what: str, steps: int) -> None:
        """A bar of so many steps."""
        self._is_first = True
        self._bar.update(self._task, phase=what, total=steps, completed=0, description="")
        self.tick()

    def step(self, what: str) -> None:
        """The one before is done."""
        done = self._bar.tasks[0].completed + (0 if self._is_first else 1)
        self._is_first = False
        self._bar.update(self._task, completed=done, description=what)
        self.tick()

    def left(self, seconds: float, about: str) -> None:
        """Counted down from here on."""
        self._end, self._about = time.monotonic() + seconds, about

    def tick(self) -> None:
        """Draw."""
        now = time.monotonic()
        times = clock(now - self._start)
        if self._end is not None:
            times += f", {self._about} {clock(max(0.0, self._end - now))} left"
        self._bar.update(self._task, times=times)
        self._bar.refresh()


def progress_for_here() -> Lines | Display:
    """A display if standard error is a terminal."""
    return Display() if sys.stderr is not None and sys.stderr.isatty() else Lines()
