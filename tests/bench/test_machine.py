"""Which code a run ran, and how fast memory streams."""

import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from shared.bench.measure import machine as machine_module
from shared.bench.measure.machine import best_rate, machine, stream_bandwidth


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_of_the_code_is_dirty_only_if_code_has_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    code, result = tmp_path / "code.py", tmp_path / "results" / "run.json"
    result.parent.mkdir()
    code.write_text("one\n")
    result.write_text("one\n")
    monkeypatch.setattr(machine_module, "__file__", str(code))
    git("init", "-q")
    git("add", "code.py", "results")
    git("commit", "-q", "-m", "one")
    clean = machine()["git_commit"]
    (tmp_path / "new.json").write_text("an untracked file\n")
    result.write_text("a recorded result\n")
    assert re.fullmatch(r"[0-9a-f]{40,64}", clean) and machine()["git_commit"] == clean
    code.write_text("two\n")
    assert machine()["git_commit"] == f"{clean}-dirty"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine()["git_commit"] is None  # without git


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_streams_at_a_plausible_rate(monkeypatch: pytest.MonkeyPatch, threads: int):
    monkeypatch.setattr(machine_module, "_STREAM_BYTES", 2**24)
    before = threading.active_count()
    assert 1e8 < stream_bandwidth(threads) < 1e13
    assert threading.active_count() == before


def test_the_best_of_a_few_rates_counts():
    seconds = iter([4.0, 2.0, 8.0, 0.5, 1.0])
    assert best_rate(lambda: next(seconds), 10.0) == 20.0
    assert next(seconds, None) is None
