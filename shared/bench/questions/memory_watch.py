"""The watch over the workers of `memory`: one that has more than the given memory is killed, whatever it is doing.

The parent reads a worker's resident memory a hundred times a second, so that no prediction can endanger the machine.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psutil

from shared.bench.cases import Case
from shared.bench.questions.memory_fit import memory_of

if TYPE_CHECKING:
    from shared.bench.run.context import Run

_LOOK_SECONDS = 0.01


class Watch:
    """Kills a process that has more resident memory than it may have."""

    has_stopped = False

    def __init__(self, pid: int, memory: int) -> None:
        self._pid, self._memory, self._ended = pid, memory, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        with contextlib.suppress(psutil.Error):  # it has ended
            process = psutil.Process(self._pid)
            while not self._ended.wait(_LOOK_SECONDS):
                if process.memory_info().rss > self._memory:
                    self.has_stopped = True
                    process.kill()
                    return

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()


@contextlib.contextmanager
def watched(run: "Run", case: Case) -> Iterator[Watch | None]:
    """Watch the case's worker, which is started if need be; not on an accelerator, nor if it does not start."""
    if run.running(case) is None:
        run.start_workers([case])
    worker = run.running(case)
    watch = Watch(worker.pid, memory_of(run.settings)) if worker and case.device == "cpu" else None
    try:
        yield watch
    finally:
        if watch:
            watch.end()
