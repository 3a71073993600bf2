"""The stage `worker`: its first words, when it starts a compiler, and settings that commands have changed."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest
from hand_made import case
from numpy_worker import Backend

import jax_impl.backend
from shared.bench.worker.commands import Commands, outcome, serve

COMPILED, PLAIN = (("calibration", case("jax", "vmap", compiled=compiled), {}) for compiled in (True, False))


def said(monkeypatch: pytest.MonkeyPatch, backend: Backend, *commands: Any) -> list[dict[str, Any]]:
    """The events of a worker with this backend that gets these commands."""
    monkeypatch.setitem(sys.modules, "jax_impl.backend", backend)
    events: list[dict[str, Any]] = []
    connection: Any = SimpleNamespace(recv=iter([*commands, None]).__next__, send=events.append)
    serve(connection, "jax", "cpu", 1, 0.9, Path())
    return events


def test_the_compiler_is_started_once_and_changed_settings_are_told(monkeypatch: pytest.MonkeyPatch):
    backend, values = Backend("jax"), iter(["a", "a", "/home/ann/b", "a"])
    monkeypatch.setattr(backend, "settings", lambda: {"jax_x": next(values)}, raising=False)
    events = said(monkeypatch, backend, PLAIN, COMPILED, COMPILED)
    start = ["setup_starts", "setup_ended"]
    assert [event["event"] for event in events] == ["hello", "done", *start, "done", "done"]
    assert [event["settings"] for event in events if event["event"] == "done"] == [{}, {"jax_x": "b"}, {}]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModuleNotFoundError("No module named 'jax'"), "JAX is not installed (No module named 'jax')"),
        (MemoryError("no memory"), "JAX cannot be imported (no memory)"),
    ],
)
def test_a_framework_that_is_not_installed_is_told_from_a_broken_one(
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
    _, _, started, done = said(monkeypatch, backend, COMPILED)
    assert started["compiler_start_seconds"] is None and done["status"] == "ok"


def test_a_compiler_that_a_user_s_function_disables_is_a_failure(tmp_path: Path):
    commands, (do, asked, _) = Commands(jax_impl.backend, tmp_path, lambda *_, **__: None), COMPILED
    assert outcome(commands, do, asked, {})["status"] == "ok"
    with jax.disable_jit():
        failed = outcome(commands, do, asked, {})
    reason = "ValueError: jax_disable_jit is set, which disables the compiler that is compared"
    assert (failed["status"], failed["reason"]) == ("failed", reason)
