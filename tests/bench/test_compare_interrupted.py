"""Ctrl-C and a kill lose nothing of what is finished, leave no process behind, and the run can be resumed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from command_line import COMPARE, ROOT, SECONDS, TINY, environment, plant, rows
from in_process import numpy_workers, run_here, use_numpy_workers

from shared.bench.record import Record
from shared.bench.run import protocol

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers may outlive a killed run")

ARGUMENTS = (*TINY, "--framework", "jax", "--variant", "vmap")
# the second round does not end
ENDLESS_ROUND = {"do": "sample", "nth": 3, "then": "hangs"}


class Interrupted(NamedTuple):
    """A run that was interrupted when a line of progress came."""

    code: int
    out: str
    err: str
    survivors: list[int]  # processes that it had started and that are there after its end


def interrupt_at(
    progress: str, *arguments: str, folder: Path, by: signal.Signals, fault: dict[str, Any], ignored: bool = False
) -> Interrupted:
    """Run it with NumPy workers that have a fault, and send a signal when a line of progress begins so.

    ignored: it starts with the hangup signal ignored, gets one first, and lives on.
    """
    command = numpy_workers(fault)
    plant(
        folder,
        f"""
def use_numpy_workers(worker_handle):
    worker_handle.WORKER_COMMAND = {command!r}


PATCHES = {{"shared.bench.run.worker_handle": use_numpy_workers}}
""",
    )

    def handlers() -> None:
        # tests that run in the background of a shell ignore Ctrl-C, and their children with them
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)

    process = subprocess.Popen(
        [sys.executable, COMPARE, *arguments], cwd=ROOT, env=environment(folder), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=handlers,
    )  # fmt: skip
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if line.startswith(progress):
            break
    time.sleep(1.0)  # until it waits for its worker
    workers = psutil.Process(process.pid).children()
    assert workers
    if ignored:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        assert process.poll() is None
    process.send_signal(by)
    out, err = process.communicate(timeout=SECONDS)
    _, alive = psutil.wait_procs(workers, timeout=0.5)  # the system ends those of a killed process
    survivors = [worker.pid for worker in alive if worker.status() != psutil.STATUS_ZOMBIE]
    for number in survivors:
        os.kill(number, signal.SIGKILL)
    return Interrupted(process.returncode, out, seen + err, survivors)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_a_polite_kill_print_and_write_what_is_finished(tmp_path: Path, temporary: Path, by: signal.Signals):
    path = tmp_path / "run.json"
    run = interrupt_at("worker 1, timing", *ARGUMENTS, "--json", str(path), folder=tmp_path, by=by, fault=ENDLESS_ROUND)
    assert run.code == 130 and not run.survivors and not list(temporary.iterdir())
    assert "interrupted; this is what was finished:" in run.err and "Traceback" not in run.err
    assert list(rows(run.out)) == [("score", "JAX", "vmap"), ("marginals", "JAX", "vmap")]
    assert "WARNING: This run was not finished." in run.out
    assert [len(result.blocks) for result in Record.read(path).results] == [1, 1]


def test_a_run_under_nohup_survives_a_hangup_and_after_a_kill_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "run.json"
    arguments = (*ARGUMENTS, "--json", str(path))
    run = interrupt_at(
        "worker 1, timing", *arguments, folder=tmp_path, by=signal.SIGKILL, fault=ENDLESS_ROUND, ignored=True
    )
    assert run.code == -signal.SIGKILL and not run.survivors
    before = Record.read(path)
    assert before.finished is None and [len(result.blocks) for result in before.results] == [1, 1]
    use_numpy_workers(monkeypatch)
    ended = run_here("--resume", str(path))
    assert ended.code == 0 and "not finished" not in ended.out
    after = Record.read(path)
    assert after.finished and after.command == before.command
    assert after.resumed_by == [f"python compare.py --resume {path}"]
    for old, new in zip(before.results, after.results, strict=True):
        assert new.cold[:1] == old.cold and new.blocks[0] == old.blocks[0] and len(new.blocks) == 3
        # what the interrupted process had compiled is gone: the next one found no caches
        assert len(old.warm) == len(new.warm) == 1
    assert [entry.worker for entry in after.generations] == [1]  # the interrupted one does not count


def test_ctrl_c_while_a_worker_starts_leaves_no_worker(tmp_path: Path):
    run = interrupt_at(
        "starting JAX", *ARGUMENTS, folder=tmp_path, by=signal.SIGINT, fault={"do": "start", "then": "hangs"}
    )
    assert run.code == 130 and "Traceback" not in run.err and not run.survivors
    assert not run.out


def test_the_folders_of_killed_runs_are_removed_by_the_next_run_and_those_of_living_runs_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed, others = tmp_path / "compare-killed", tmp_path / "compare-mine"
    for folder in (killed, others):
        folder.mkdir()
    (killed / "run.lock").touch()
    (killed / "batch.inputs").touch()
    with protocol._folder() as living, protocol._folder() as own:
        assert sorted(tmp_path.iterdir()) == sorted([others, living, own])
    assert list(tmp_path.iterdir()) == [others]
