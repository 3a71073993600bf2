"""The progress of a run: on a terminal a live display in which the answer fills, elsewhere plain lines."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from shared.bench.record import Record
from shared.bench.report.console import print_error
from shared.bench.units import clock

if TYPE_CHECKING:
    from rich.live import Live

# the answer so far as text; None if there is nothing to show yet
Answer = Callable[[Record], str | None]


class Lines:
    """Each step is a line on standard error; the first answer goes to standard output."""

    def __init__(self, answer: Answer) -> None:
        self._answer, self._start = answer, time.monotonic()
        self._phase, self._steps, self._done = "starting", 0, 0

    def say(self, line: str) -> None:
        """Print it; a run does not depend on its reader."""
        print_error(line)

    def begin(self, phase: str, steps: int) -> None:
        """A phase of so many steps begins."""
        self._phase, self._steps, self._done = phase, steps, 0
        self._show(phase, "")

    def skip(self, steps: int) -> None:
        """So many steps of the phase were done before."""
        self._done += steps

    def step(self, name: str) -> None:
        """The next step of the phase begins."""
        self._done += 1
        self._show(f"[{self._done}/{self._steps}] {name}", name)

    def _show(self, line: str, step: str) -> None:
        """A phase or a step has begun. line: its whole line; step: the name alone."""
        self.say(line)

    def ends_within(self, seconds: float) -> None:
        """The run will take at most this time: not shown, a line cannot be taken back."""

    def results(self, record: Record, is_first_answer: bool = False) -> None:
        """The record has new results; is_first_answer: the first calls are done."""
        text = self._answer(record) if is_first_answer else None
        if text:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                print(f"first table after {time.monotonic() - self._start:.0f} s (provisional)\n\n{text}\n", flush=True)

    def tick(self) -> None:
        """Called about twice a second while a worker is waited for."""


class Display(Lines):
    """The answer as it fills, and below it a line: the phase, how much of it is done, the time, and the step.

    It is drawn by this process's own calls, never by a thread, which would take a core from what is being timed.
    """

    def __init__(self, answer: Answer, live: "Live") -> None:
        super().__init__(answer)
        self._live, self._text, self._step = live, "", ""
        self._end: float | None = None

    def say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a terminal that has gone
            self._live.console.print(line, markup=False, highlight=False, emoji=False)
        self.tick()

    def _show(self, line: str, step: str) -> None:
        self._step = step
        self.tick()

    def ends_within(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def results(self, record: Record, is_first_answer: bool = False) -> None:
        text = self._answer(record)
        self._text = f"{text}\n\n" if text else ""
        self.tick()

    def tick(self) -> None:
        from rich.text import Text

        now = time.monotonic()
        left = "" if self._end is None else f", at most {clock(max(0.0, self._end - now))} left"
        line = f"{self._phase}  {self._done}/{self._steps}  {clock(now - self._start)}{left}  {self._step}"
        with contextlib.suppress(OSError):
            self._live.update(Text(self._text + line, no_wrap=True, overflow="ellipsis"), refresh=True)


@contextlib.contextmanager
def progress_for_here(answer: Answer) -> Iterator[Lines]:
    """A display if standard error is a terminal. answer: the text of what a record says so far."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield Lines(answer)
        return
    from rich.console import Console  # here: a run without a terminal does not need it
    from rich.live import Live

    live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
    live.start()
    try:
        yield Display(answer, live)
    finally:
        with contextlib.suppress(OSError):
            live.stop()
