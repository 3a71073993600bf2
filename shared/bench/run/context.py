"""The context of a run: its settings, its record, and its workers, by framework and label."""

import pickle
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shared.bench.cases import FRAMEWORKS, MEMORY_SHARE, Case, Settings
from shared.bench.estimates import Block
from shared.bench.measure.machine import seconds_of_others, usable_cores
from shared.bench.record import Record, Repeat
from shared.bench.run import worker_handle
from shared.bench.run.plan import Plan
from shared.bench.run.progress import Progress
from shared.bench.run.schedule import BlockPlan
from shared.bench.run.worker_handle import Reply, Unavailable, Worker

# prefix of the notes that are removed when a run is resumed
BUDGET_SPENT = "the budget of"


class CannotMeasure(Exception):
    """A selected framework cannot use the device, or none starts; the text has a line for each."""


@dataclass
class Run:
    """Shared by the phases of a run. Workers are started when they are needed; `stop` ends them."""

    plan: Plan
    record: Record
    progress: Progress
    keep: Callable[[], None]  # writes the record
    folder: Path  # through which workers get their inputs, and where compilers keep their caches
    start: float = field(default_factory=time.monotonic)
    environment: Mapping[str, str] = field(default_factory=dict)  # variables for new workers, besides the usual ones
    memory_share: float | None = None  # of accelerator memory, per new worker; None: equal parts of MEMORY_SHARE
    memory: dict[str, int | None] = field(default_factory=dict)  # framework -> bytes of accelerator memory per worker
    slow_compilers: set[str] = field(default_factory=set)  # the frameworks that take long to compile anything
    cached: set[Case] = field(default_factory=set)  # those whose compiled code is in the folder
    _workers: dict[tuple[str, str], Worker] = field(default_factory=dict)
    _not_started: dict[tuple[str, str], str] = field(default_factory=dict)  # why a worker did not start the first time

    @property
    def settings(self) -> Settings:
        """The record's settings."""
        return self.record.settings

    @property
    def seconds_left(self) -> float:
        """Seconds of the budget that are left."""
        return self.settings.budget - (time.monotonic() - self.start)

    def is_slow(self, case: Case) -> bool:
        """Whether a case goes through a compiler that takes long."""
        return case.compiled and case.framework in self.slow_compilers

    def watch_other_programs(self, number: int) -> Callable[[], Repeat]:
        """Watch what else uses the cores. The returned function ends that and returns the Repeat."""
        cores = usable_cores()[: self.settings.threads]
        began, before = time.monotonic(), seconds_of_others(cores)

        def end() -> Repeat:
            seconds, after = time.monotonic() - began, seconds_of_others(cores)
            return Repeat(number, seconds, None if before is None or after is None else max(0.0, after - before))

        return end

    def write(self, name: str, value: Any) -> None:
        """Pickle a value into the folder, for the workers."""
        (self.folder / name).write_bytes(pickle.dumps(value))

    def start_frameworks(self) -> tuple[dict[str, Worker], dict[str, str]]:
        """A worker of each framework, and why others do not start. Raises CannotMeasure."""
        workers: dict[str, Worker] = {}
        missing: dict[str, Unavailable] = {}
        keys: dict[str, tuple[str, str]] = {}  # the first of each framework
        for key in self.plan.starts:
            keys.setdefault(key[0], key)
        self.progress.say(f"starting {' and '.join(FRAMEWORKS[name] for name in keys)}")
        for key in keys.values():
            self._spawn(key)
        for framework, key in keys.items():
            try:
                workers[framework] = self._ready(key)
                self.memory[framework] = workers[framework].memory
            except Unavailable as error:
                missing[framework] = error
        if not workers or any(error.device_problem for error in missing.values()):
            raise CannotMeasure("\n".join(map(str, missing.values())))
        for framework, error in missing.items():
            self.progress.say(f"{FRAMEWORKS[framework]} is not measured: {error}")
        return workers, {framework: str(error) for framework, error in missing.items()}

    def start_workers(self, cases: Iterable[Case]) -> None:
        """Start the workers of these cases at once; one that does not start is tried again at its first case."""
        for key in (keys := dict.fromkeys(case.worker_key for case in cases)):
            self._spawn(key)
        for key in keys:
            try:
                self._ready(key)
            except Unavailable as error:
                self._not_started[key] = str(error)

    def _spawn(self, key: tuple[str, str]) -> None:
        self._end(key)
        start = self.plan.starts[key]
        # stored before it is waited for, so that `stop` ends it after Ctrl-C, too
        self._workers[key] = Worker(
            key[0], start.command or worker_handle.WORKER_COMMAND,
            replace(self.settings, threads=start.threads or self.settings.threads), self.folder, self.progress.tick,
            memory_share=self.memory_share or MEMORY_SHARE / len(self.plan.starts),
            environment={**self.environment, **start.environment},
        )  # fmt: skip

    def _ready(self, key: tuple[str, str]) -> Worker:
        """The worker that was spawned, when it can take commands. Raises Unavailable."""
        try:
            self._workers[key].wait_until_ready()
            threads = self.plan.starts[key].threads
            if threads and len(cores := self._workers[key].environment["cores"]) != threads:
                raise Unavailable(f"{FRAMEWORKS[key[0]]} can use {len(cores)} cores, expected {threads}")
        except Unavailable:
            self._workers[key].stop()
            raise
        return self._workers[key]

    def running(self, case: Case) -> Worker | None:
        """The case's worker if it is alive."""
        worker = self._workers.get(case.worker_key)
        return worker if worker is not None and worker.alive else None

    def ask(self, do: str, case: Case, **arguments: Any) -> Reply:
        """Send the case's worker a command. There is a new worker if there was none, or if it has ended.

        arguments: of `Worker.ask`, and of the command.
        """
        first = self._not_started.pop(case.worker_key, None)
        try:
            if (worker := self.running(case)) is None:
                self._spawn(case.worker_key)
                worker = self._ready(case.worker_key)
        except Unavailable as error:
            reasons = dict.fromkeys([first or str(error), str(error)])
            return Reply("failed", f"the worker could not be started again: {'; then: '.join(reasons)}")
        before = worker.compiler_start_seconds
        reply = worker.ask(do, case, **arguments)
        self.record.environment.setdefault("settings", {}).update(worker.settings)
        # the record describes a framework's first worker: others may have another compiler
        environment = self.record.environment.get("frameworks", {}).get(case.framework, worker.environment)
        is_first = case.worker_key == next(key for key in self.plan.starts if key[0] == case.framework)
        if is_first and before is None and worker.compiler_start_seconds is not None:
            environment.setdefault("compiler_start_seconds", []).append(worker.compiler_start_seconds)
        return reply

    def ask_for_result(self, do: str, case: Case, **arguments: Any) -> Reply:
        """Send a command that judges or times the case: gate, status and reason go into its result."""
        result = self.record.result(case)
        reply = self.ask(do, case, **arguments)
        result.gate = reply.details.get("gate", result.gate)
        result.status, result.reason = reply.status, reply.reason
        return reply

    def time_block(self, case: Case, number: int, round_number: int, plan: BlockPlan) -> None:
        """Time a block of a case that its worker has prepared."""
        arguments = {"calls": plan.calls, "lead": plan.lead, "rehearse": plan.rehearse}
        reply = self.ask_for_result("sample", case, expected=plan.seconds, **arguments)
        if reply.status == "ok":
            self.record.result(case).blocks.append(Block.of(number, round_number, reply.details["seconds"]))

    def stop(self, case: Case | None = None) -> None:
        """Stop the case's worker, or all of them."""
        for key in list(self._workers) if case is None else [case.worker_key]:
            self._end(key)

    def _end(self, key: tuple[str, str]) -> None:
        """Stop a worker, if there is one, and note it if it had already died between two commands."""
        if worker := self._workers.pop(key, None):
            if how := worker.lost():
                self.record.note(f"{FRAMEWORKS[key[0]]}, between two cases: {how}")
            worker.stop()
