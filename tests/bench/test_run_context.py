"""Workers of a run: which are started, when, and with how much memory."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hand_made import case, plan_of, record

from shared.bench.cases import Settings
from shared.bench.questions import QUESTIONS
from shared.bench.run import context
from shared.bench.run.context import Run
from shared.bench.run.worker_handle import Reply, Unavailable
from tools.validate_protocol import Validation

CASE = case("torch", "vmap")


@dataclass
class FakeWorker:
    """Does at once what it is asked."""

    framework: str
    command: tuple[str, ...]
    memory_share: float
    alive: bool = True
    stopped: bool = False
    asked: list[str] = field(default_factory=list)
    compiler_start_seconds: float | None = None
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=lambda: {"cores": [0, 1]})

    def wait_until_ready(self) -> None:
        if self.memory_share == 1.0:
            raise Unavailable("no memory")

    def ask(self, do: str, *_: Any, **__: Any) -> Reply:
        self.asked.append(do)
        self.compiler_start_seconds = 0.5
        return Reply("ok")

    def lost(self) -> str | None:
        return None if self.alive or self.stopped else "the worker was killed by SIGKILL"

    def stop(self) -> None:
        self.alive, self.stopped = False, True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[FakeWorker]:
    """The workers that were started, in order."""
    made: list[FakeWorker] = []

    def start(framework: str, command: tuple[str, ...], *_: Any, memory_share: float, **__: Any) -> FakeWorker:
        made.append(FakeWorker(framework, command, memory_share))
        return made[-1]

    monkeypatch.setattr(context, "Worker", start)
    return made


def run_of(settings: Settings | None = None, question: Any = QUESTIONS["speed"]) -> Run:
    settings, progress = settings or Settings(), SimpleNamespace(tick=lambda: None)
    return Run(plan_of(question, settings), record(settings=settings), progress, lambda: None, Path())  # pyright: ignore[reportArgumentType]


def test_a_worker_that_has_ended_is_replaced_and_noted(started: list[FakeWorker]):
    run = run_of()
    for _ in range(2):
        run.ask("cold", CASE)
    started[0].alive = False
    assert run.running(CASE) is None
    run.ask("cold", CASE)
    assert [worker.asked for worker in started] == [["cold", "cold"], ["cold"]]
    run.stop()
    assert run.record.notes == ["PyTorch, between two cases: the worker was killed by SIGKILL"]
    run.record.notes.clear()
    run.ask("cold", CASE)
    started[2].alive = False  # after its last case
    run.stop()
    assert run.record.notes == ["PyTorch, between two cases: the worker was killed by SIGKILL"]


def test_a_worker_that_was_stopped_is_not_noted(started: list[FakeWorker]):
    run = run_of()
    for _ in range(2):
        run.ask("cold", CASE)
        run.stop()
    assert not run.record.notes and len(started) == 2


def test_the_start_of_the_compiler_is_recorded_once_for_each_process(started: list[FakeWorker]):
    run = run_of()
    run.record.environment = {"frameworks": {"torch": {}}}
    for count in (2, 1):
        for _ in range(count):
            run.ask("cold", CASE)
        run.stop()
    assert run.record.environment["frameworks"] == {"torch": {"compiler_start_seconds": [0.5, 0.5]}}


def test_workers_are_started_together_and_one_that_does_not_start_fails_its_first_case(
    started: list[FakeWorker], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(FakeWorker, "wait_until_ready", lambda self: events.append(("ready", self.framework)))
    events: list[tuple[str, str]] = []
    run = run_of()
    run.start_workers([CASE, case("jax", "vmap"), CASE])
    assert [worker.framework for worker in started] == ["torch", "jax"]
    assert events == [("ready", "torch"), ("ready", "jax")]
    monkeypatch.undo()


def test_a_worker_that_cannot_start_fails_only_the_case(started: list[FakeWorker], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(context, "MEMORY_SHARE", 2.0)
    run = run_of()
    reply = run.ask("cold", CASE)
    assert (reply.status, reply.reason) == ("failed", "the worker could not be started again: no memory")
    assert not started[0].alive
    why = iter(["the port is in use", "it had ended"])

    def fails(_: FakeWorker) -> None:
        raise Unavailable(next(why))

    monkeypatch.setattr(FakeWorker, "wait_until_ready", fails)
    run.start_workers([CASE])
    reply = run.ask("cold", CASE)  # the first reason tells more
    assert reply.reason == "the worker could not be started again: the port is in use; then: it had ended"


@pytest.mark.parametrize(("label", "status"), [("2 threads", "ok"), ("1 thread", "failed")])
def test_a_worker_with_another_number_of_cores_than_its_label_has_threads_is_not_used(
    started: list[FakeWorker], label: str, status: str
):
    reply = run_of(question=QUESTIONS["threads"]).ask("cold", case("torch", "vmap", label=label))
    assert reply.status == status and started[0].alive == (status == "ok")
    assert status == "ok" or (reply.reason or "").endswith("PyTorch can use 2 cores, expected 1")


@pytest.mark.parametrize(
    ("frameworks", "labels", "share"), [(("jax", "torch"), 1, 0.45), (("jax",), 1, 0.9), (("jax",), 2, 0.45)]
)
def test_workers_of_all_frameworks_and_labels_share_an_accelerators_memory(
    started: list[FakeWorker], frameworks: tuple[str, ...], labels: int, share: float
):
    question = Validation(0.05) if labels == 2 else QUESTIONS["speed"]
    run = run_of(Settings(frameworks=frameworks), question)
    for framework in frameworks:
        for label in question.labels:
            run.ask("cold", case(framework, "vmap", label=label))
    assert [worker.framework for worker in started] == [name for name in frameworks for _ in range(labels)]
    assert all(worker.memory_share == pytest.approx(share) for worker in started)
    slowed = ["tools.slowed_worker" in worker.command for worker in started]
    assert slowed == ([False, True] if labels == 2 else [False] * len(started))
