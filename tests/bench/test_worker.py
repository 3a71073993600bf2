"""The stage `worker`: its first words, when it starts a compiler, and settings that commands have changed."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hand_made import case
from numpy_worker import Backend

import jax_impl.backend
import torch_impl.backend
from shared.bench.worker.commands import serve

COMPILED, PLAIN = (("calibration", case("jax", "vmap", compiled=compiled), {}) for compiled in (True, False))


def said(monkeypatch: pytest.MonkeyPatch, backend: Any, *commands: Any, framework: str = "jax") -> list[dict[str, Any]]:
    """The events of a worker with this backend that gets these commands. None: there is no such module."""
    monkeypatch.setitem(sys.modules, f"{framework}_impl.backend", backend)
    events: list[dict[str, Any]] = []
    connection: Any = SimpleNamespace(recv=iter([*commands, None]).__next__, send=events.append)
    serve(connection, framework, "cpu" if commands else "cuda", 1, 0.9, Path())
    return events


def test_the_compiler_is_started_once_if_it_can_and_changed_settings_are_told(monkeypatch: pytest.MonkeyPatch):
    backend, values = Backend("jax"), iter(["a", "a", "/home/ann/b", "a"])
    monkeypatch.setattr(backend, "settings", lambda: {"jax_x": next(values)}, raising=False)
    events = said(monkeypatch, backend, PLAIN, COMPILED, COMPILED)
    start = ["setup_starts", "setup_ended"]
    assert [event["event"] for event in events] == ["hello", "done", *start, "done", "done"]
    assert [event["settings"] for event in events if event["event"] == "done"] == [{}, {"jax_x": "b"}, {}]
    monkeypatch.setattr(broken := Backend("jax"), "start_compiler", lambda device: 1 / 0, raising=False)
    _, _, started, done = said(monkeypatch, broken, COMPILED)  # it is left for the cases to show
    assert started["compiler_start_seconds"] is None and done["status"] == "ok"


def test_a_framework_that_is_missing_broken_or_without_the_device_says_so(monkeypatch: pytest.MonkeyPatch):
    def fail(_: str) -> None:
        raise MemoryError("no memory")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for backend, framework, name in ((jax_impl.backend, "jax", "JAX"), (torch_impl.backend, "torch", "PyTorch")):
        monkeypatch.setattr(backend, "limit_memory", lambda *_: None)
        (event,) = said(monkeypatch, backend, framework=framework)
        assert event["event"] == "unavailable" and event["device_problem"]
        assert event["reason"].startswith(f"{name} ") and "sees no cuda device (" in event["reason"]
    (event,) = said(monkeypatch, None)
    assert event["reason"].startswith("JAX cannot be imported: ") and not event["device_problem"]
    monkeypatch.setattr("importlib.import_module", fail)
    (event,) = said(monkeypatch, None)
    assert event["reason"] == "JAX cannot be imported: no memory" and not event["device_problem"]
