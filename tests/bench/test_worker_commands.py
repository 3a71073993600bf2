"""What a worker says at its start, and when it starts its framework's compiler."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hand_made import case
from numpy_worker import Backend

from shared.bench.worker.commands import serve


def said(monkeypatch: pytest.MonkeyPatch, backend: Backend, *commands: Any, threads: int = 1) -> list[dict[str, Any]]:
    """The events of a worker with this backend that gets these commands."""
    monkeypatch.setitem(sys.modules, "jax_impl.backend", backend)
    events: list[dict[str, Any]] = []
    connection: Any = SimpleNamespace(recv=iter([*commands, None]).__next__, send=events.append)
    serve(connection, "jax", "cpu", threads, 0.9, Path())
    return events


def test_the_compiler_is_started_once_before_the_first_case_that_is_compiled(monkeypatch: pytest.MonkeyPatch):
    compiled, plain = (("calibration", case("jax", "vmap", compiled=compiled), {}) for compiled in (True, False))
    events = said(monkeypatch, Backend("jax"), plain, compiled, compiled)
    start = ["setup_starts", "setup_ended"]
    assert [event["event"] for event in events] == ["hello", "done", *start, "done", "done"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModuleNotFoundError("No module named 'jax'"), "JAX is not installed (No module named 'jax')"),
        (ImportError("failed to map segment from shared object"), "JAX cannot be imported (failed to map segment"),
        (MemoryError("no memory"), "JAX cannot be imported (no memory)"),
    ],
)
def test_a_framework_that_cannot_be_imported_is_told_apart_from_one_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
):
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    (event,) = said(monkeypatch, Backend("jax"))
    assert event["event"] == "unavailable" and event["reason"].startswith(reason) and not event["device_problem"]


def test_a_compiler_that_does_not_start_is_left_for_the_cases_to_show(monkeypatch: pytest.MonkeyPatch):
    backend = Backend("jax")
    monkeypatch.setattr(backend, "start_compiler", lambda device: 1 / 0, raising=False)
    _, _, started, done = said(monkeypatch, backend, ("calibration", case("jax", "vmap"), {}))
    assert started["compiler_start_seconds"] is None and done["status"] == "ok"
