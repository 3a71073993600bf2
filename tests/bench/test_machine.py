"""Where a run ran, which code it ran, on which cores, and how fast its memory streams."""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.bench.cases import Settings
from shared.bench.measure import machine as machine_module
from shared.bench.measure.machine import best_rate, every_thread_is_on, machine, stream_bandwidth, usable_cores
from shared.bench.run.worker_handle import _placement_problem

with_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no threads")


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


@pytest.fixture
def waiting_thread() -> Iterator[int]:
    """Another thread of this process, by the number that the system gives it."""
    started, end = threading.Event(), threading.Event()
    numbers: list[int] = []

    def wait() -> None:
        numbers.append(threading.get_native_id())
        started.set()
        end.wait()

    helper = threading.Thread(target=wait)
    helper.start()
    started.wait()
    yield numbers[0]
    end.set()
    helper.join()


@with_affinity
@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")
def test_a_single_thread_on_other_cores_is_found(waiting_thread: int):
    cores = usable_cores()
    # some library may have pinned a thread of its own before
    pinned = [sorted(os.sched_getaffinity(int(task.name))) == cores for task in Path("/proc/self/task").iterdir()]
    assert every_thread_is_on(cores) == all(pinned)
    os.sched_setaffinity(waiting_thread, cores[:1])
    assert not every_thread_is_on(cores)
    assert usable_cores() == cores


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


@pytest.mark.parametrize(
    ("device", "own", "text"),
    [
        ("cpu", {}, None),
        pytest.param("cpu", {"threads_elsewhere": True}, "does not keep to the cores", marks=with_affinity),
        ("cuda", {"threads_elsewhere": True}, None),
        pytest.param("cuda", {"cores": []}, "does not keep to the cores", marks=with_affinity),
        ("cuda", {"threads": 7}, "was given 1 threads and uses 7"),
    ],
)
def test_a_worker_on_other_cores_or_threads_is_refused(device: str, own: dict, text: str | None):
    said = {"environment": {"cores": usable_cores()[:1], "threads": 1} | own}
    found = _placement_problem(said, Settings(device=device, threads=1))
    assert found is None if text is None else text in (found or "")
