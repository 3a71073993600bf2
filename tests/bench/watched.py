"""The workers that a run in this process starts."""

from typing import Any

import pytest

from shared.bench.run import context
from shared.bench.run.worker_handle import Worker


def started_workers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, Worker]]:
    """Return a list that gets the framework, the threads and the handle of each worker that is started."""
    started: list[tuple[str, int, Worker]] = []

    def start(framework: str, command: Any, settings: Any, *given: Any, **options: Any) -> Worker:
        started.append((framework, settings.threads, Worker(framework, command, settings, *given, **options)))
        return started[-1][2]

    monkeypatch.setattr(context, "Worker", start)
    return started
