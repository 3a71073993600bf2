"""Faults cost what they must and no more: a wrong case its time, a dead worker its case, Ctrl-C the rest of the run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from command_line import COMPARE, JAX, ROOT, SECONDS, TINY, environment, plant, rows, run_compare, verdicts

# starting PyTorch's compiler takes long and nothing is compiled here
WRONG_JAX = """
def turn_gap(recurrences):
    right = recurrences.LocalLinear.step

    def step(self, parameters, *neighbours):
        return right(self, parameters | {"gap": -parameters["gap"]}, *neighbours)

    recurrences.LocalLinear.step = step


def skip_compiler(backend):
    backend.start_compiler = lambda device: None


PATCHES = {"jax_impl.recurrences": turn_gap, "torch_impl.backend": skip_compiler}
"""

# a worker that dies of a signal, one that ends by itself, and a case that raises
DEADLY = """
def die(serve):
    run = serve._Runner.run

    def run_or_die(self, case):
        fate = case["pass_name"], case["variant"]
        if fate == ("score", "scan_select"):
            os.kill(os.getpid(), signal.SIGKILL)
        if fate == ("marginals", "scan_select"):
            print("the kernel gave up", file=sys.stderr, flush=True)
            os._exit(7)
        if fate == ("marginals", "vmap"):
            raise ValueError("no such thing\\nand more")
        run(self, case)

    serve._Runner.run = run_or_die


PATCHES = {"shared.bench.serve": die}
"""

# a worker that closes its end of the pipe after its first case, and is still there
DEAF = """
def close_standard_input(serve):
    def one_line():
        yield sys.stdin.readline()
        os.close(0)
        time.sleep(600)

    serve._lines = one_line
    serve_cases = serve._Runner.run

    def run_and_close(self, case):
        send = self.send

        def send_deaf(**event):
            if event["event"] == "done":
                os.close(0)
            send(**event)

        self.send = send_deaf
        serve_cases(self, case)

    serve._Runner.run = run_and_close


PATCHES = {"shared.bench.serve": close_standard_input}
"""

# the second case never ends
ENDLESS = """
def never_end(serve):
    run = serve._Runner.run

    def run_or_wait(self, case):
        time.sleep(600 if case["pass_name"] == "marginals" else 0)
        run(self, case)

    serve._Runner.run = run_or_wait


PATCHES = {"shared.bench.serve": never_end}
"""

# a worker that does not get ready
SLOW = """
def wait(serve):
    serve.serve = lambda *_: time.sleep(600)


PATCHES = {"shared.bench.serve": wait}
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a run makes its temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_a_wrong_kernel_has_no_time_and_the_other_framework_is_still_measured(tmp_path: Path):
    path = tmp_path / "run.json"
    folder = plant(tmp_path, WRONG_JAX)
    done = run_compare(*TINY, "--variant", "diagonal_loop", "--json", str(path), folders=(folder,))
    assert done.returncode == 1, done.stderr
    table = rows(done.stdout)
    for pass_name in ("score", "marginals"):
        assert table[pass_name, "JAX", "diagonal_loop"] == ["no", "WRONG"]
        assert table[pass_name, "PyTorch", "diagonal_loop"][1].endswith("s")
        assert f"\nWRONG: JAX diagonal_loop {pass_name}, not compiled: {pass_name} off by " in done.stdout
    assert [line.split(" (")[0] for line in verdicts(done.stdout)] == ["score: only PyTorch", "marginals: only PyTorch"]
    wrong = [case for case in json.loads(path.read_text())["cases"] if case["status"] == "wrong"]
    assert len(wrong) == 2 and not any("seconds" in name for case in wrong for name in case)


def test_a_dead_worker_costs_its_case_only(tmp_path: Path, temporary: Path):
    folder = plant(tmp_path, DEADLY)
    done = run_compare(*TINY, "--framework", "jax", "--variant", "scan_select,vmap", folders=(folder,))
    assert done.returncode == 1, done.stderr
    table = rows(done.stdout)
    assert table.pop(("score", "JAX", "vmap"))[1].endswith("s")
    assert list(table.values()) == [["yes", "FAILED"]] * 3
    failures = [line for line in done.stdout.splitlines() if line.startswith("FAILED: ")]
    assert failures == [
        "FAILED: JAX scan_select score: the worker was killed by SIGKILL",
        "FAILED: JAX scan_select marginals: the worker ended with exit code 7: the kernel gave up",
        "FAILED: JAX vmap marginals: ValueError: no such thing",
    ]
    assert verdicts(done.stdout)[1] == "marginals: no case was measured."
    assert not list(temporary.iterdir())


def test_a_worker_that_stops_listening_costs_its_case_only(tmp_path: Path):
    done = run_compare(*JAX, "--variant", "scan_select,vmap", "--pass", "score", folders=(plant(tmp_path, DEAF),))
    assert done.returncode == 1, done.stderr
    assert rows(done.stdout)["score", "JAX", "scan_select"][1].endswith("s")
    assert rows(done.stdout)["score", "JAX", "vmap"] == ["yes", "FAILED"]


def test_a_case_that_passes_the_limit_is_no_failure_and_the_others_go_on():
    done = run_compare(*JAX, "--compile-limit", "0.001")
    assert done.returncode == 0, done.stderr
    assert rows(done.stdout) == {
        ("score", "JAX", "vmap"): ["yes", "> 0.001 s"],
        ("marginals", "JAX", "vmap"): ["yes", "> 0.001 s"],
    }
    assert verdicts(done.stdout) == ["score: no case was measured.", "marginals: no case was measured."]


# Ctrl-C


class Interrupted(NamedTuple):
    """A run that was interrupted when a line of progress came."""

    code: int
    out: str
    err: str
    seconds: float  # from the signal to the end
    survivors: list[int]  # processes that it had started and that are still there at its end


def interrupt_at(
    progress: str, *arguments: str, folders: tuple[Path, ...] = (), by: signal.Signals = signal.SIGINT
) -> Interrupted:
    process = subprocess.Popen(
        [sys.executable, COMPARE, *arguments],
        cwd=ROOT,
        env=environment(*folders),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # tests that run in the background of a shell ignore Ctrl-C, and their children with them
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
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
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_a_polite_kill_print_and_write_what_is_finished(tmp_path: Path, temporary: Path, by: signal.Signals):
    path = tmp_path / "run.json"
    run = interrupt_at("[2/2]", *JAX, "--json", str(path), folders=(plant(tmp_path, ENDLESS),), by=by)
    assert run.code == 130
    assert run.seconds < 30 and not run.survivors
    assert "interrupted; this is what was finished:" in run.err and "Traceback" not in run.err
    assert list(rows(run.out)) == [("score", "JAX", "vmap")]
    assert verdicts(run.out)[1] == "marginals: no case was measured."
    assert [case["pass_name"] for case in json.loads(path.read_text())["cases"]] == ["score"]
    assert not list(temporary.iterdir())


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
