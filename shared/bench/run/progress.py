"""The progress of a run on standard error: a line for each phase; on a terminal one line that tells the step."""

import contextlib
import shutil
import sys
import time
from collections.abc import Callable

from shared.bench.record import Record
from shared.bench.units import minutes_text


def print_error(line: str) -> None:
    """Print a line on standard error if anybody reads it: a terminal may have gone."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(line, file=sys.stderr, flush=True)


class Progress:
    """Phases are lines on standard error; on a terminal steps share that line. The first answer goes to stdout."""

    def __init__(self, answer: Callable[[Record], str | None] = lambda _: None) -> None:
        self._answer, self._start, self._seconds_left = answer, time.monotonic(), None
        self._phase, self._steps, self._done, self._step = "starting", 0, 0, ""
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()

    def say(self, line: str) -> None:
        """Print a line, whether or not anybody can read it."""
        self.close()
        print_error(line)
        self.tick()

    def begin(self, phase: str, steps: int) -> None:
        """A phase of so many steps begins."""
        self._phase, self._steps, self._done, self._step = phase, steps, 0, ""
        self.tick() if self._is_terminal else self.say(phase)

    def skip(self, steps: int) -> None:
        """Count steps of the phase that were done before."""
        self._done += steps

    def step(self, name: str) -> None:
        """The next step of the phase begins."""
        self._done, self._step = self._done + 1, name
        self.tick()

    def ends_within(self, seconds_left: Callable[[], float]) -> None:
        """The run will take at most as long as this returns."""
        self._seconds_left = seconds_left

    def first_answer(self, record: Record) -> None:
        """The first calls are done: print the answer so far."""
        if text := self._answer(record):
            self.close()
            with contextlib.suppress(OSError, ValueError, AttributeError):
                print(f"first table after {time.monotonic() - self._start:.0f} s (provisional)\n\n{text}\n", flush=True)

    def tick(self) -> None:
        """Update the line of a terminal: about twice a second while a worker is waited for; it has no thread."""
        remaining = f", at most {minutes_text(max(0.0, self._seconds_left()))} left" if self._seconds_left else ""
        spent = minutes_text(time.monotonic() - self._start)
        line = f"{self._phase}  {self._done}/{self._steps}  {spent}{remaining}  {self._step}"
        self.close(line[: shutil.get_terminal_size().columns - 1])

    def close(self, line: str = "") -> None:
        """Clear the line of a terminal, or draw another one in its place."""
        if self._is_terminal:
            with contextlib.suppress(OSError, ValueError):  # a terminal that has gone
                print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
