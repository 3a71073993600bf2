"""Workers of a run: which are started, when, with how much memory; and when they start their compilers."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hand_made import case, record

from shared.bench.cases import Settings
from shared.bench.questions import QUESTIONS
from shared.bench.run import context
from shared.bench.run.context import Run
from shared.bench.run.worker_handle import Reply, Unavailable
from tools.validate_protocol import Validation

COMPILED, PLAIN = case("torch", "vmap"), case("torch", "fused", compiled=False)


@dataclass
class FakeWorker:
    """Does at once what it is asked."""

    framework: str
    options: dict[str, Any]
    has_started_compiler: bool = False
    alive: bool = True
    asked: list[str] = field(default_factory=list)

    def ask(self, do: str, *_: Any, **__: Any) -> Reply:
        self.asked.append(do)
        return Reply("ok", None, {"seconds": 0.5})


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[FakeWorker]:
    """The workers that were started, in order."""
    made: list[FakeWorker] = []

    def start(framework: str, *_: Any, **options: Any) -> FakeWorker:
        made.append(FakeWorker(framework, options))
        return made[-1]

    monkeypatch.setattr(context, "Worker", start)
    return made


def run_of(settings: Settings | None = None, question: Any = QUESTIONS["speed"]) -> Run:
    settings, progress = settings or Settings(), SimpleNamespace(tick=lambda: None)
    return Run(question, settings, record(settings=settings), progress, lambda: None, Path())  # pyright: ignore[reportArgumentType]


def test_each_new_worker_starts_its_compiler_once_before_its_first_compiled_case(started: list[FakeWorker]):
    run = run_of()
    for asked in (PLAIN, COMPILED, COMPILED):
        run.ask_worker(asked, "cold", 1.0)
    started[0].alive = False
    run.ask_worker(COMPILED, "cold", 1.0)
    assert [worker.asked for worker in started] == [
        ["cold", "start_compiler", "cold", "cold"],
        ["start_compiler", "cold"],
    ]


def test_compilers_that_were_started_up_front_are_not_started_again(started: list[FakeWorker]):
    run = run_of()
    assert run.start_compilers([COMPILED, PLAIN]) == {"torch": 0.5}
    run.ask_worker(COMPILED, "cold", 1.0)
    assert [worker.asked for worker in started] == [["start_compiler", "cold"]]


def test_a_worker_that_cannot_start_fails_only_the_case(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise Unavailable("no memory")

    monkeypatch.setattr(context, "Worker", refuse)
    run = run_of()
    assert run.start_compilers([COMPILED]) == {}
    reply = run.ask_worker(COMPILED, "cold", 1.0)
    assert (reply.status, reply.reason) == ("failed", "the worker could not be started again: no memory")


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
            run.worker(case(framework, "vmap", label=label))
    assert [worker.framework for worker in started] == [name for name in frameworks for _ in range(labels)]
    assert all(worker.options["memory_share"] == pytest.approx(share) for worker in started)
    slowed = ["tools.slowed_worker" in worker.options["command"] for worker in started]
    assert slowed == ([False, True] if labels == 2 else [False] * len(started))
