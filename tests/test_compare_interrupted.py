"""What is finished is kept: a disk that fills up, Ctrl-C and a kill lose nothing, and a run is gone on with."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import disks
import pytest
from command_line import (
    COMPARE,
    JAX,
    KILLED_WHILE_TIMED,
    ROOT,
    SECONDS,
    TWO,
    environment,
    plant,
    rows,
    run_compare,
    stored,
    verdicts,
)

# the first call of the second case never ends
ENDLESS = """
def never_end(runner):
    cold = runner.Runner.cold

    def cold_or_wait(self, case, is_ladder):
        time.sleep(600 if case["pass_name"] == "marginals" else 0)
        return cold(self, case, is_ladder)

    runner.Runner.cold = cold_or_wait


PATCHES = {"shared.bench.runner": never_end}
"""

# the run stands still in its second round
ENDLESS_ROUND = """
def never_end(runner):
    sample, blocks = runner.Runner.sample, []

    def sample_or_wait(self, case, **arguments):
        blocks.append(case)
        time.sleep(600 if len(blocks) > 2 else 0)
        return sample(self, case, **arguments)

    runner.Runner.sample = sample_or_wait


PATCHES = {"shared.bench.runner": never_end}
"""

# a worker that does not get ready
SLOW = """
def wait(serve):
    serve.serve = lambda *_: time.sleep(600)


PATCHES = {"shared.bench.serve": wait}
"""


# a disk that is full


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 9 MiB."""
    with disks.small_disk(tmp_path, "9m") as folder:
        yield folder


def test_a_full_disk_is_told_before_measuring(small_disk: Path):
    (small_disk / "large").write_bytes(bytes(8 * 2**20))
    done = run_compare(*JAX, "--json", str(small_disk / "run.json"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"compare.py: error: cannot write {small_disk / 'run.json'} (--json): No space left on device\n"
    )


def test_a_disk_that_fills_up_while_measuring_loses_nothing(small_disk: Path):
    path = small_disk / "run.json"
    fill = """
def fill(timed_calls):
    try:
        with open({large!r}, "wb") as file:
            while True:
                file.write(bytes(2**16))
    except OSError:
        pass


PATCHES = {{"shared.bench.timed_calls": fill}}
"""
    # the parent alone imports that module; it does so after the options are read, so the disk is full from then on
    with_fault = plant(small_disk.parent, fill.format(large=str(small_disk / "large")))
    path.write_text("old")
    done = run_compare(*JAX, "--pass", "score", "--json", str(path), folders=(with_fault,))
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert path.read_text() == "old"


# Ctrl-C


class Interrupted(NamedTuple):
    """A run that was interrupted when a line of progress came."""

    code: int
    out: str
    err: str
    seconds: float  # from the signal to the end
    survivors: list[int]  # processes that it had started and that are still there at its end


def interrupt_at(
    progress: str,
    *arguments: str,
    folders: tuple[Path, ...] = (),
    by: signal.Signals = signal.SIGINT,
    at_first: signal.Handlers = signal.SIG_DFL,
) -> Interrupted:
    """Run it, and send a signal when a line of progress begins so; at_first: how it finds this signal to be handled."""
    process = subprocess.Popen(
        [sys.executable, COMPARE, *arguments],
        cwd=ROOT,
        env=environment(*folders),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # tests that run in the background of a shell ignore Ctrl-C, and their children with them
        preexec_fn=None if by is signal.SIGKILL else lambda: signal.signal(by, at_first),
    )
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if line.startswith(progress):
            break
    workers = _children(process.pid)
    time.sleep(0.5)  # until it waits for them
    process.send_signal(by)
    start = time.monotonic()
    out, err = process.communicate(timeout=SECONDS)
    seconds = time.monotonic() - start
    survivors = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
    return Interrupted(process.returncode, out, seen + err, seconds, survivors)


def _children(pid: int) -> list[int]:
    """The processes that a process started; waits until there is one."""
    for _ in range(400):
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if found:
            return [int(child) for child in found]
        time.sleep(0.05)
    raise AssertionError("it started no process")


on_linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")


@on_linux
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_and_a_polite_kill_print_and_write_what_is_finished(tmp_path: Path, temporary: Path, by: signal.Signals):
    path = tmp_path / "run.json"
    run = interrupt_at("[2/2] round", *JAX, "--json", str(path), folders=(plant(tmp_path, ENDLESS_ROUND),), by=by)
    assert run.code == 130
    assert run.seconds < 30 and not run.survivors
    assert "interrupted; this is what was finished:" in run.err and "Traceback" not in run.err
    assert list(rows(run.out)) == [("score", "JAX", "vmap"), ("marginals", "JAX", "vmap")]
    assert "this run was not finished" in run.out.splitlines()
    assert [len(case["blocks"]) for case in stored(path)["cases"]] == [1, 1]
    assert not list(temporary.iterdir())


@on_linux
def test_a_terminal_that_is_closed_stops_nothing_under_nohup():
    run = interrupt_at("[2/2] round", *JAX, "--pass", "score", by=signal.SIGHUP, at_first=signal.SIG_IGN)
    assert run.code == 0 and len(verdicts(run.out)) == 1


@on_linux
def test_the_json_is_whole_after_every_case_whatever_happens_then(tmp_path: Path):
    path = tmp_path / "run.json"
    run = interrupt_at("[2/2]", *JAX, "--json", str(path), folders=(plant(tmp_path, ENDLESS),), by=signal.SIGKILL)
    assert run.code == -signal.SIGKILL
    first, *_ = stored(path)["cases"]
    assert (first["pass_name"], first["status"]) == ("score", "ok") and first["cold"]["seconds"] > 0


@on_linux
def test_a_run_that_was_killed_is_gone_on_with(tmp_path: Path):
    path = tmp_path / "run.json"
    interrupt_at("[2/2] round", *JAX, "--json", str(path), folders=(plant(tmp_path, ENDLESS_ROUND),), by=signal.SIGKILL)
    before = stored(path)
    done = run_compare("--resume", str(path))
    assert done.returncode == 0, done.stderr
    after = stored(path)
    assert after["command"] == before["command"] and after["resumed_by"] == [f"python compare.py --resume {path}"]
    assert before["finished"] is None and after["finished"] is not None
    for old, new in zip(before["cases"], after["cases"], strict=True):
        assert new["cold"] == old["cold"] and new["blocks"][: len(old["blocks"])] == old["blocks"]
        # what the process that was interrupted had compiled is gone: the next one found no caches
        assert len(old["warm"]) == len(new["warm"]) == 1
    # and it does not count as one
    assert [entry["worker"] for entry in after["generations"]] == [1]
    assert "first calls" not in [line for line in done.stderr.splitlines() if line.startswith("[1/")]
    assert len(verdicts(done.stdout)) == 2 and "not finished" not in done.stdout


def test_a_new_shape_that_had_no_room_is_tried_again_with_more(tmp_path: Path):
    path = tmp_path / "run.json"
    assert run_compare(*JAX, "--pass", "score", "--budget", "0.1", "--json", str(path)).returncode == 0
    (before,) = stored(path)["cases"]
    assert "retrace" not in before and before["retrace_note"] == "the budget had no room for it"
    done = run_compare("--resume", str(path), "--budget", "0.1")
    assert done.returncode == 0 and stored(path)["cases"] == [before]
    done = run_compare("--resume", str(path), "--budget", "200")
    assert done.returncode == 0, done.stderr
    (after,) = stored(path)["cases"]
    assert after["retrace"]["seconds"] > 0 and "retrace_note" not in after


def test_a_case_that_failed_is_tried_again_when_a_run_is_gone_on_with(tmp_path: Path):
    path = tmp_path / "run.json"
    run_compare(*TWO, "--json", str(path), folders=(plant(tmp_path, KILLED_WHILE_TIMED),))
    done = run_compare("--resume", str(path))
    assert done.returncode == 0, done.stderr
    assert [case["status"] for case in stored(path)["cases"]] == ["ok", "ok"]
    assert all(case["blocks"] for case in stored(path)["cases"])


def test_a_case_that_has_no_times_gets_some_though_its_run_has_all_its_workers(tmp_path: Path):
    path = tmp_path / "run.json"
    assert run_compare(*TWO, "--json", str(path)).returncode == 0
    record = stored(path)
    record["cases"][0].pop("blocks")
    path.write_text(json.dumps(record))
    assert run_compare("--resume", str(path)).returncode == 0
    assert all(case["blocks"] for case in stored(path)["cases"])


def test_a_run_is_not_gone_on_with_elsewhere(tmp_path: Path):
    path = tmp_path / "run.json"
    assert run_compare(*JAX, "--pass", "score", "--json", str(path)).returncode == 0
    measured = path.read_text()
    changes: list[tuple[Callable[[dict[str, Any]], None], str]] = [
        (lambda record: record["environment"].update(cpu="Abacus 9"), "cpu was Abacus 9, is "),
        (lambda record: record["inputs"]["batch"].update(sha256="0"), "the input batch differs"),
        (lambda record: record["environment"]["frameworks"]["jax"].update(jax="0.0.1"), "jax was 0.0.1, is "),
    ]
    for change, told in changes:
        record = json.loads(measured)
        change(record)
        path.write_text(json.dumps(record))
        done = run_compare("--resume", str(path))
        assert (done.returncode, done.stdout) == (2, "")
        assert f"compare.py: error: cannot go on with {path}: {told}" in done.stderr
        assert stored(path) == record


@on_linux
def test_ctrl_c_while_a_worker_starts_leaves_no_worker(tmp_path: Path):
    run = interrupt_at("starting JAX", *JAX, folders=(plant(tmp_path, SLOW),))
    assert run.code == 130 and "Traceback" not in run.err
    assert run.out == "nothing was measured\n"
    assert not run.survivors


@on_linux
def test_ctrl_c_ends_a_listing_without_a_traceback(tmp_path: Path):
    run = interrupt_at("starting JAX", "--list", "--framework", "jax", folders=(plant(tmp_path, SLOW),))
    assert run.code == 130 and "Traceback" not in run.err
    assert not run.survivors
