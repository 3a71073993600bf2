"""Where a run ran, which code it ran, on which cores, and how fast its memory streams."""

import os
import platform
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from shared.bench.machine import best_rate, every_thread_is_on, machine, speed_check, stream_bandwidth, usable_cores
from shared.bench.plan import Settings
from shared.bench.workers import _placement_problem

from shared.bench import machine as machine_module

ROOT = Path(__file__).parents[1]
with_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system keeps no thread to cores")
with_two_cores = pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")


def test_the_environment_says_where_it_ran():
    found = machine()
    assert found["cpu"] and found["system"] == platform.platform() and found["cores"] == len(usable_cores()) >= 1
    assert re.fullmatch(r"3\.\d+\.\d+.*", found["python"]) and found["numpy"] == np.__version__


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_the_environment_says_which_code_ran():
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert machine()["git_commit"].removesuffix("-dirty") == head.strip()


def test_without_git_there_is_no_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine()["git_commit"] is None


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_code_that_differs_from_its_commit_is_dirty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    code = tmp_path / "code.py"
    code.write_text("one\n")
    git("init", "-q")
    git("add", "code.py")
    git("commit", "-q", "-m", "one")
    monkeypatch.setattr(machine_module, "__file__", str(code))
    clean = machine()["git_commit"]
    (tmp_path / "result.json").write_text("what a run writes is no change of the code\n")
    assert re.fullmatch(r"[0-9a-f]{40,64}", clean) and machine()["git_commit"] == clean
    code.write_text("two\n")
    assert machine()["git_commit"] == f"{clean}-dirty"


# the cores


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
def test_every_thread_of_a_process_that_was_left_alone_is_on_all_its_cores(waiting_thread: int):
    assert usable_cores() == sorted(os.sched_getaffinity(0)) == sorted(os.sched_getaffinity(waiting_thread))
    # some library may have kept a thread of its own to one core; then there is nothing to see here
    threads = [int(task.name) for task in Path("/proc/self/task").iterdir()]
    assert every_thread_is_on(usable_cores()) == all(
        sorted(os.sched_getaffinity(thread)) == usable_cores() for thread in threads
    )


@with_affinity
@with_two_cores
def test_one_thread_elsewhere_is_seen(waiting_thread: int):
    cores = usable_cores()
    os.sched_setaffinity(waiting_thread, cores[:1])
    assert not every_thread_is_on(cores)
    assert usable_cores() == cores  # the process is not looked at by its first thread alone


@with_affinity
@with_two_cores
def test_other_cores_than_those_wanted_are_seen():
    assert not every_thread_is_on(usable_cores()[1:])
    assert not every_thread_is_on([])


# how fast it is


def test_the_speed_check_takes_a_moment_and_each_time_about_as_long():
    seconds = sorted(speed_check() for _ in range(9))
    assert 1e-4 < seconds[0] < 1.0
    assert seconds[4] < 3 * seconds[0]


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_streams_at_a_rate_that_a_computer_can_have(monkeypatch: pytest.MonkeyPatch, threads: int):
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
        ("cpu", {"threads_elsewhere": True}, "does not keep to the cores"),
        ("cuda", {"threads_elsewhere": True}, None),
        ("cuda", {"cores": [], "threads_elsewhere": True}, "does not keep to the cores"),
        ("cuda", {"threads": 7}, "was given 1 threads and uses 7"),
    ],
)
def test_where_a_worker_runs_is_asked_of_its_threads_on_a_cpu_alone(device: str, own: dict, text: str | None):
    said = {"environment": {"cores": usable_cores()[:1], "threads": 1} | own}
    found = _placement_problem(said, Settings(problem="smith_waterman", device=device, threads=1))
    assert found is None if text is None else text in (found or "")
