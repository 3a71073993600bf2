"""The workers of a run: one process for each framework, and a second one where a case is compared with itself."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from shared.bench.machine import process_seconds
from shared.bench.plan import FRAMEWORKS, Case, Settings
from shared.bench.workers import Unavailable, Worker
from shared.variants import Abilities

Seat = tuple[str, int]  # framework, side


class CannotMeasure(Exception):
    """A selected framework cannot use the device, or none starts; the text has a line for each."""


class Team:
    """Starts workers when they are needed, and stops them all."""

    def __init__(self, settings: Settings, folder: Path, tick: Callable[[], None]) -> None:
        self._settings, self._folder, self._tick = settings, folder, tick
        self.environment: Mapping[str, str] = {}  # of the workers that will be started, beside what all have
        self._workers: dict[Seat, Worker] = {}

    def worker(self, case: Case) -> Worker:
        """The case's worker; a new one if there is none, or if it has ended. Raises Unavailable."""
        seat = case.seat
        if seat not in self._workers or not self._workers[seat].alive:
            self._start(seat)
        return self._workers[seat]

    def _start(self, seat: Seat) -> None:
        self._workers[seat] = Worker(seat[0], self._settings, self._folder, self._tick, self.environment)

    def running(self, case: Case) -> Worker | None:
        """The case's worker if it is there and alive."""
        worker = self._workers.get(case.seat)
        return worker if worker is not None and worker.alive else None

    def any(self) -> Worker | None:
        """A worker that can be asked for something that is no case's."""
        return next((worker for worker in self._workers.values() if worker.alive), None)

    @property
    def seconds_used(self) -> float:
        """Of CPU, by this process and the workers that are alive."""
        numbers = [os.getpid(), *(worker.number for worker in self._workers.values() if worker.alive)]
        return sum(map(process_seconds, numbers))

    def stop(self, case: Case | None = None) -> None:
        """Stop the case's worker, or all of them."""
        seats = list(self._workers) if case is None else [case.seat]
        for seat in seats:
            if seat in self._workers:
                self._workers.pop(seat).stop()

    def start_all(self, say: Callable[[str], None]) -> tuple[dict[str, Worker], dict[str, str]]:
        """A worker for each framework of the run, and a line for each that does not start. Raises CannotMeasure."""
        missing: dict[str, str] = {}
        unfit: list[str] = []
        for framework in self._settings.frameworks:
            say(f"starting {FRAMEWORKS[framework]}")
            try:
                self._start((framework, 0))
            except Unavailable as error:
                if error.device_problem:
                    unfit.append(str(error))
                else:
                    missing[framework] = str(error)
        if unfit or not self._workers:
            raise CannotMeasure("\n".join([*unfit, *missing.values()]))
        return {framework: worker for (framework, _), worker in self._workers.items()}, missing


@contextlib.contextmanager
def team_of(settings: Settings, folder: Path, tick: Callable[[], None]) -> Iterator[Team]:
    """A team whose workers all end with the context."""
    team = Team(settings, folder, tick)
    try:
        yield team
    finally:
        team.stop()


def abilities_of(workers: dict[str, Worker], problem: str) -> dict[str, Abilities]:
    """What each framework says of itself for a problem."""
    return {framework: worker.abilities[problem] for framework, worker in workers.items()}
