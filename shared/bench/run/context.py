"""The context of a run: its settings, its record, and its workers, one process for each framework and label."""

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shared.bench.cases import FRAMEWORKS, MEMORY_SHARE, Case, Settings
from shared.bench.measure.machine import process_seconds
from shared.bench.questions.question import Question
from shared.bench.record import Gate, Record
from shared.bench.run import worker_handle
from shared.bench.run.progress import Lines
from shared.bench.run.worker_handle import Reply, Unavailable, Worker

# longest time for anything but compiling, beside the expected time of its calls
PATIENCE_SECONDS = 60.0


class CannotMeasure(Exception):
    """A selected framework cannot use the device, or none starts; the text has a line for each."""


@dataclass
class Run:
    """What the phases of a run share. Workers are started when they are needed; `stop` ends them."""

    question: Question
    settings: Settings
    record: Record
    progress: Lines
    keep: Callable[[], None]  # writes the record
    folder: Path  # through which workers get their inputs, and where compilers keep their caches
    start: float = field(default_factory=time.monotonic)
    environment: Mapping[str, str] = field(default_factory=dict)  # of workers to be started, beside the usual one
    cached: set[Case] = field(default_factory=set)  # those whose compiled code is in the folder
    _workers: dict[tuple[str, str], Worker] = field(default_factory=dict)

    @property
    def seconds_left(self) -> float:
        """Of the budget."""
        return self.settings.budget - (time.monotonic() - self.start)

    @property
    def memory_share(self) -> float:
        """Of an accelerator's memory, for each worker."""
        return MEMORY_SHARE / (len(self.settings.frameworks) * len(self.question.labels))

    def start_frameworks(self) -> tuple[dict[str, Worker], dict[str, str]]:
        """A worker of each framework, and why others do not start. Raises CannotMeasure."""
        missing: dict[str, str] = {}
        unfit: list[str] = []
        workers: dict[str, Worker] = {}
        for framework in self.settings.frameworks:
            self.progress.say(f"starting {FRAMEWORKS[framework]}")
            try:
                workers[framework] = self._start((framework, next(iter(self.question.labels))))
            except Unavailable as error:
                if error.device_problem:
                    unfit.append(str(error))
                else:
                    missing[framework] = str(error)
        if unfit or not workers:
            raise CannotMeasure("\n".join([*unfit, *missing.values()]))
        return workers, missing

    def worker(self, case: Case) -> Worker:
        """The case's worker; a new one if there is none, or if it has ended. Raises Unavailable."""
        return self.running(case) or self._start(case.worker_key)

    def _start(self, key: tuple[str, str]) -> Worker:
        framework, label = key
        start = self.question.labels[label]
        self._workers[key] = Worker(
            framework,
            replace(self.settings, threads=start.threads or self.settings.threads),
            self.folder,
            self.progress.tick,
            memory_share=self.memory_share,
            environment=self.environment,
            command=start.command or worker_handle.WORKER_COMMAND,
        )
        return self._workers[key]

    def running(self, case: Case) -> Worker | None:
        """The case's worker if it is alive."""
        worker = self._workers.get(case.worker_key)
        return worker if worker is not None and worker.alive else None

    def any_worker(self) -> Worker | None:
        """A worker for what belongs to no case."""
        return next((worker for worker in self._workers.values() if worker.alive), None)

    @property
    def cpu_seconds(self) -> float:
        """Used by this process and the workers that are alive."""
        numbers = [os.getpid(), *(worker.process_id for worker in self._workers.values() if worker.alive)]
        return sum(map(process_seconds, numbers))

    def stop(self, case: Case | None = None) -> None:
        """Stop the case's worker, or all of them."""
        for key in list(self._workers) if case is None else [case.worker_key]:
            if key in self._workers:
                self._workers.pop(key).stop()

    def start_compilers(self, cases: Sequence[Case]) -> dict[str, float | None]:
        """Have every worker that will compile start its framework's compiler, so that no case pays for that.

        Returns the seconds by framework; None where it failed, which the cases will show.
        """
        taken: dict[str, float | None] = {}
        for case in {case.worker_key: case for case in cases if case.compiled}.values():
            with contextlib.suppress(Unavailable):
                taken[case.framework] = self._start_compiler(self.worker(case)).details.get("seconds")
        return taken

    def _start_compiler(self, worker: Worker) -> Reply:
        worker.has_started_compiler = True
        return worker.ask("start_compiler", self.settings.compile_limit + PATIENCE_SECONDS)

    def ask_worker(self, case: Case, do: str, limit: float, first: float | None = None, /, **more: Any) -> Reply:
        """Send the case's worker a command that says nothing about the case; a worker that has ended is replaced.

        limit, first: as for `Worker.ask`.
        """
        try:
            worker = self.worker(case)
            if case.compiled and not worker.has_started_compiler:
                self._start_compiler(worker)
            return self.worker(case).ask(do, limit, first, **more)
        except Unavailable as error:
            return Reply("failed", f"the worker could not be started again: {error}", {})

    def ask(self, case: Case, do: str, limit: float, first: float | None = None, **more: Any) -> Reply:
        """Send the case's worker a command; its gate, status and reason go into the case's result."""
        result = self.record.result(case)
        reply = self.ask_worker(case, do, limit, first, case=case.as_json(), **more)
        if "gate" in reply.details:
            result.gate = Gate(**reply.details["gate"])
        result.status, result.reason = reply.status, reply.reason
        return reply

    def measure_device_time(self, case: Case) -> None:
        """Record how long the case keeps the accelerator busy, or why that is not known."""
        result = self.record.result(case)
        reply = self.ask_worker(case, "device_time", PATIENCE_SECONDS, case=case.as_json())
        result.on_device += reply.details.get("on_device", [])
        problem = reply.reason or reply.details.get("no_device_time")
        note = f"no device time: {case.title}: {problem}"
        if problem and note not in self.record.notes:
            self.record.notes.append(note)
