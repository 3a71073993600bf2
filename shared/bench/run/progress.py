"""The progress of a run: on a terminal a live display in which the answer fills, elsewhere plain lines."""

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any, Self

from shared.bench.record import Record
from shared.bench.units import clock

# the answer so far as text; None if there is nothing to show yet
Answer = Callable[[Record], str | None]


class Lines:
    """Each step is a line on standard error; the first answer goes to standard output. `Display` overrides it all."""

    def __init__(self, answer: Answer) -> None:
        self._answer, self._start = answer, time.monotonic()
        self._steps, self._done = 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, line: str) -> None:
        """Print it; a run does not depend on its reader."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            print(line, file=sys.stderr, flush=True)

    def begin(self, phase: str, steps: int) -> None:
        """A phase of so many steps begins."""
        self._steps, self._done = steps, 0
        self.say(phase)

    def step(self, name: str) -> None:
        """The next step of the phase begins."""
        self._done += 1
        self.say(f"[{self._done}/{self._steps}] {name}")

    def left(self, seconds: float, bound: str) -> None:
        """The time that the run will still take, "about" or "at most": not shown, a line cannot be taken back."""

    def results(self, record: Record, is_first_answer: bool = False) -> None:
        """The record has new results; is_first_answer: the first calls are done."""
        text = self._answer(record) if is_first_answer else None
        if text:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                print(f"first table after {time.monotonic() - self._start:.0f} s (provisional)\n\n{text}\n", flush=True)

    def tick(self) -> None:
        """Called about twice a second while nothing but a first call is timed."""


class Display(Lines):
    """The answer as it fills, and below it a progress bar.

    It is drawn by this process's own calls, never by a thread, which would take a core from what is being timed.
    """

    def __init__(self, answer: Answer) -> None:
        from rich.console import Console  # here: a run without a terminal does not need it
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        # the one column that is cut where the terminal is narrow
        name = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        self._bar = RichProgress(
            TextColumn("{task.fields[phase]}"), BarColumn(bar_width=20), MofNCompleteColumn(),
            TextColumn("{task.fields[times]}"), TextColumn("{task.description}", markup=False, table_column=name),
            expand=True,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=None, phase="starting", times="")
        self._live = Live(self._bar, console=Console(stderr=True), auto_refresh=False, transient=True)
        super().__init__(answer)
        self._end: float | None = None
        self._bound, self._is_first_step = "", True

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        self._live.console.print(line, markup=False, highlight=False, emoji=False)
        self.tick()

    def begin(self, phase: str, steps: int) -> None:
        self._is_first_step = True
        self._bar.update(self._task, phase=phase, total=steps, completed=0, description="")
        self.tick()

    def step(self, name: str) -> None:
        done = self._bar.tasks[0].completed + (0 if self._is_first_step else 1)
        self._is_first_step = False
        self._bar.update(self._task, completed=done, description=name)
        self.tick()

    def left(self, seconds: float, bound: str) -> None:
        self._end, self._bound = time.monotonic() + seconds, bound

    def results(self, record: Record, is_first_answer: bool = False) -> None:
        from rich.console import Group
        from rich.text import Text

        text = self._answer(record)
        shown: list[Any] = [Text(text, no_wrap=True, overflow="crop"), Text("")] if text else []
        self._live.update(Group(*shown, self._bar))
        self.tick()

    def tick(self) -> None:
        now = time.monotonic()
        times = clock(now - self._start)
        if self._end is not None:
            times += f", {self._bound} {clock(max(0.0, self._end - now))} left"
        self._bar.update(self._task, times=times)
        self._live.refresh()


def progress_for_here(answer: Answer) -> Lines:
    """A display if standard error is a terminal. answer: the text of what a record says so far."""
    return (Display if sys.stderr is not None and sys.stderr.isatty() else Lines)(answer)
