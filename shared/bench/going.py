"""A run that is going on: what its phases share."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.bench.plan import Case, Settings
from shared.bench.progress import Progress
from shared.bench.record import Gate, Record
from shared.bench.team import Team
from shared.bench.workers import Reply, Unavailable, Worker

# how long a worker may take for anything but compiling, beside what its calls are expected to take
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Going:
    """The run's settings, what it has found, whom it tells, who works for it, and when it began."""

    settings: Settings
    record: Record
    progress: Progress
    keep: Callable[[], None]  # writes the record
    team: Team
    start: float
    cached: set[Case] = field(default_factory=set)  # of what was compiled for them, this run's folder has the caches

    @property
    def seconds_left(self) -> float:
        """Of the budget."""
        return self.settings.budget - (time.monotonic() - self.start)

    def start_compilers(self, cases: Sequence[Case]) -> dict[str, float | None]:
        """Have every worker that will compile start its framework's compiler, so that no case pays for that.

        The seconds that it took by framework; None where it failed, which the cases will tell.
        """
        taken: dict[str, float | None] = {}
        for case in {case.seat: case for case in cases if case.compiled}.values():
            with contextlib.suppress(Unavailable):  # the cases will tell
                taken[case.framework] = self._start_compiler(self.team.worker(case)).details.get("seconds")
        return taken

    def _start_compiler(self, worker: Worker) -> Reply:
        worker.has_started_compiler = True
        return worker.ask("start_compiler", self.settings.compile_limit + PATIENCE_SECONDS)

    def ask_worker(self, case: Case, do: str, limit: float, first: float | None = None, /, **more: Any) -> Reply:
        """Have the case's worker do something that is no verdict on the case; a worker that is gone is replaced first.

        The one in its place has its compiler started too. limit, first: as `Worker.ask` has them.
        """
        try:
            worker = self.team.worker(case)
            if case.compiled and not worker.has_started_compiler:
                self._start_compiler(worker)
            return self.team.worker(case).ask(do, limit, first, **more)
        except Unavailable as error:
            return Reply("failed", f"the worker could not be started again: {error}", {})

    def ask(self, case: Case, do: str, limit: float, first: float | None = None, **more: Any) -> Reply:
        """Have something done with a case, and note in its result what the gate says and what goes wrong."""
        result = self.record.result(case)
        reply = self.ask_worker(case, do, limit, first, case=case.as_json(), **more)
        if "gate" in reply.details:
            result.gate = Gate(**reply.details["gate"])
        result.status, result.reason = reply.status, reply.reason
        return reply

    def clock(self, case: Case) -> None:
        """Note how long the case keeps the accelerator busy, or why nobody knows."""
        result, reply = self.record.result(case), self.ask_worker(case, "clock", PATIENCE_SECONDS, case=case.as_json())
        result.on_device += reply.details.get("on_device", [])
        problem = reply.reason or reply.details.get("no_device_time")
        note = f"no device time: {case.title}: {problem}"
        if problem and note not in self.record.notes:
            self.record.notes.append(note)
