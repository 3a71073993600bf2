"""Faults cost what they must and no more: a wrong case its time, a dead worker its case, Ctrl-C the rest of the run."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command_line import COMPARE, JAX, ROOT, SECONDS, TINY, environment, plant, rows, run_compare, verdicts

from shared.bench import workers
from shared.bench.plan import Settings
from shared.bench.record import Record
from shared.bench.workers import Worker

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
def die(runner):
    cold = runner.Runner.cold

    def cold_or_die(self, case, is_ladder):
        fate = case["pass_name"], case["variant"]
        if fate == ("score", "scan_select"):
            os.kill(os.getpid(), signal.SIGKILL)
        if fate == ("marginals", "scan_select"):
            print("the kernel gave up", file=sys.stderr, flush=True)
            os._exit(7)
        if fate == ("marginals", "vmap"):
            raise ValueError("no such thing\\nand more")
        return cold(self, case, is_ladder)

    runner.Runner.cold = cold_or_die


PATCHES = {"shared.bench.runner": die}
"""

# in its second block one case's worker is killed, as the system does
KILLED_WHILE_TIMED = """
def die(runner):
    sample, blocks = runner.Runner.sample, []

    def sample_or_die(self, case, **arguments):
        if case["variant"] == "scan_select":
            blocks.append(case)
            if len(blocks) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
        return sample(self, case, **arguments)

    runner.Runner.sample = sample_or_die


PATCHES = {"shared.bench.runner": die}
"""

# one case wants more memory than its process may have
OUT_OF_MEMORY = """
def want_more(runner):
    import resource

    cold = runner.Runner.cold

    def cold_with_much(self, case, is_ladder):
        if case["variant"] == "scan_select":
            before = resource.getrlimit(resource.RLIMIT_AS)
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, before[1]))
            try:
                runner.np.ones(2**30, runner.np.uint8)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, before)
        return cold(self, case, is_ladder)

    runner.Runner.cold = cold_with_much


PATCHES = {"shared.bench.runner": want_more}
"""

# one case hangs in its second block; the parent does not wait a minute, to keep the test short
HANGING = """
def hang(runner):
    sample, blocks = runner.Runner.sample, []

    def sample_or_hang(self, case, **arguments):
        if case["variant"] == "scan_select":
            blocks.append(case)
            if len(blocks) == 2:
                time.sleep(600)
        return sample(self, case, **arguments)

    runner.Runner.sample = sample_or_hang


def hurry(going):
    going.PATIENCE_SECONDS = 10.0


PATCHES = {"shared.bench.runner": hang, "shared.bench.going": hurry}
"""

# a worker that closes its end of the pipe after its first case, and is still there
DEAF = """
def close_standard_input(runner):
    cold = runner.Runner.cold

    def cold_and_close(self, case, is_ladder):
        found = cold(self, case, is_ladder)
        if case["variant"] == "scan_select":
            os.close(0)
        return found

    runner.Runner.cold = cold_and_close


def keep_going(serve):
    def one_line():
        while True:
            line = sys.stdin.readline()
            if not line:
                time.sleep(600)
            yield line

    serve._lines = one_line


PATCHES = {"shared.bench.runner": close_standard_input, "shared.bench.serve": keep_going}
"""

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


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a run makes its temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def stored(path: Path) -> dict[str, Any]:
    """A record's JSON; also that it can be read as one."""
    Record.read(path)
    return json.loads(path.read_text())


def test_a_wrong_kernel_has_no_time_and_the_other_framework_is_still_measured(tmp_path: Path):
    path = tmp_path / "run.json"
    folder = plant(tmp_path, WRONG_JAX)
    done = run_compare(*TINY, "--variant", "diagonal_loop", "--json", str(path), folders=(folder,))
    assert done.returncode == 1, done.stderr
    table = rows(done.stdout)
    for pass_name in ("score", "marginals"):
        assert table[pass_name, "JAX", "diagonal_loop"] == {"compiled": "no", "first call": "WRONG"}
        assert table[pass_name, "PyTorch", "diagonal_loop"]["median"].endswith("s")
        assert f"\nWRONG: JAX diagonal_loop {pass_name}, not compiled: {pass_name} off by " in done.stdout
    assert [line.split(" (")[0] for line in verdicts(done.stdout)] == ["score: only PyTorch", "marginals: only PyTorch"]
    wrong = [case for case in stored(path)["cases"] if case["status"] == "wrong"]
    assert len(wrong) == 2 and not any(name in case for case in wrong for name in ("cold", "warm", "blocks"))


def test_a_dead_worker_costs_its_case_only(tmp_path: Path, temporary: Path):
    folder = plant(tmp_path, DEADLY)
    done = run_compare(*TINY, "--framework", "jax", "--variant", "scan_select,vmap", folders=(folder,))
    assert done.returncode == 1, done.stderr
    table = rows(done.stdout)
    assert table.pop(("score", "JAX", "vmap"))["median"].endswith("s")
    assert list(table.values()) == [{"compiled": "yes", "first call": "FAILED"}] * 3
    failures = [line for line in done.stdout.splitlines() if line.startswith("FAILED: ")]
    assert failures == [
        "FAILED: JAX scan_select score: the worker was killed by SIGKILL",
        "FAILED: JAX scan_select marginals: the worker ended with exit code 7: the kernel gave up",
        "FAILED: JAX vmap marginals: ValueError: no such thing",
    ]
    assert verdicts(done.stdout)[1] == "marginals: no case was measured."
    assert not list(temporary.iterdir())


TWO = (*TINY, "--framework", "jax", "--variant", "scan_select,vmap", "--pass", "score")


def test_a_worker_killed_while_it_is_timed_costs_its_case_only_and_its_samples_are_kept(tmp_path: Path):
    path = tmp_path / "run.json"
    done = run_compare(*TWO, "--json", str(path), folders=(plant(tmp_path, KILLED_WHILE_TIMED),))
    assert done.returncode == 1, done.stderr
    table = rows(done.stdout)
    assert table["score", "JAX", "scan_select"] == {"compiled": "yes", "first call": "FAILED"}
    assert table["score", "JAX", "vmap"]["median"].endswith("s")
    killed, other = stored(path)["cases"]
    assert (killed["status"], len(killed["blocks"])) == ("failed", 1)
    assert (other["status"], len(other["blocks"])) == ("ok", 2)
    kept = len(killed["blocks"][0]["seconds"])
    assert (
        "FAILED: JAX scan_select score: the worker was killed by SIGKILL "
        f"({kept} samples taken before are kept in the record)"
    ) in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="a process's memory is read from /proc")
def test_a_case_that_runs_out_of_memory_costs_itself_only(tmp_path: Path):
    done = run_compare(*TWO, folders=(plant(tmp_path, OUT_OF_MEMORY),))
    assert done.returncode == 1, done.stderr
    assert rows(done.stdout)["score", "JAX", "vmap"]["median"].endswith("s")
    (failed,) = (line for line in done.stdout.splitlines() if line.startswith("FAILED: "))
    assert failed.startswith("FAILED: JAX scan_select score: ") and "MemoryError: Unable to allocate 1.00 GiB" in failed


def test_a_kill_for_memory_is_told_as_such(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    # the system's own counter; a real one would take the machine's memory
    counts = iter([3, 4])
    monkeypatch.setattr(workers, "_out_of_memory_kills", lambda: next(counts))
    worker = Worker("jax", Settings(threads=1), tmp_path, lambda: None)
    killer = threading.Timer(0.5, lambda: os.kill(worker._process.pid, signal.SIGKILL))
    os.kill(worker._process.pid, signal.SIGSTOP)  # it cannot answer
    killer.start()
    reply = worker.ask("speed", 60.0)
    assert (reply.status, reply.reason) == ("failed", "the worker was killed by SIGKILL: the system ran out of memory")


def test_a_case_that_hangs_costs_itself_only(tmp_path: Path):
    done = run_compare(*TWO, folders=(plant(tmp_path, HANGING),))
    assert done.returncode == 1, done.stderr
    assert rows(done.stdout)["score", "JAX", "vmap"]["median"].endswith("s")
    (failed,) = (line for line in done.stdout.splitlines() if line.startswith("FAILED: "))
    assert failed.startswith("FAILED: JAX scan_select score: the worker did not answer within 10")


def test_a_worker_that_stops_listening_costs_its_case_only(tmp_path: Path):
    done = run_compare(*TWO, folders=(plant(tmp_path, DEAF),))
    assert done.returncode in (0, 1), done.stderr
    assert rows(done.stdout)["score", "JAX", "vmap"]["median"].endswith("s")


def test_a_case_that_passes_the_limit_is_no_failure_and_the_others_go_on():
    done = run_compare(*JAX, "--compile-limit", "0.001")
    assert done.returncode == 0, done.stderr
    assert rows(done.stdout) == {
        ("score", "JAX", "vmap"): {"compiled": "yes", "first call": "> 0.001 s"},
        ("marginals", "JAX", "vmap"): {"compiled": "yes", "first call": "> 0.001 s"},
    }
    assert verdicts(done.stdout) == ["score: no case was measured.", "marginals: no case was measured."]


# a disk that is full


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 9 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=9m", "none", str(folder)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


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
    run = interrupt_at("[2/2] round", *JAX, "--json", str(path), folders=(plant(tmp_path, ENDLESS_ROUND),), by=by)
    assert run.code == 130
    assert run.seconds < 30 and not run.survivors
    assert "interrupted; this is what was finished:" in run.err and "Traceback" not in run.err
    assert list(rows(run.out)) == [("score", "JAX", "vmap"), ("marginals", "JAX", "vmap")]
    assert "this run was not finished" in run.out.splitlines()
    assert [len(case["blocks"]) for case in stored(path)["cases"]] == [1, 1]
    assert not list(temporary.iterdir())


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
    assert "first calls" not in [line for line in done.stderr.splitlines() if line.startswith("[1/")]
    assert len(verdicts(done.stdout)) == 2 and "not finished" not in done.stdout


def test_a_case_that_failed_is_tried_again_when_a_run_is_gone_on_with(tmp_path: Path):
    path = tmp_path / "run.json"
    run_compare(*TWO, "--json", str(path), folders=(plant(tmp_path, KILLED_WHILE_TIMED),))
    done = run_compare("--resume", str(path))
    assert done.returncode == 0, done.stderr
    assert [case["status"] for case in stored(path)["cases"]] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda record: record["environment"].update(cpu="Abacus 9"), "cpu was Abacus 9, is "),
        (lambda record: record["inputs"]["batch"].update(sha256="0"), "the input batch differs"),
        (lambda record: record["environment"]["frameworks"]["jax"].update(jax="0.0.1"), "jax was 0.0.1, is "),
    ],
)
def test_a_run_is_not_gone_on_with_elsewhere(tmp_path: Path, change: Callable[[dict[str, Any]], None], told: str):
    path = tmp_path / "run.json"
    assert run_compare(*JAX, "--pass", "score", "--json", str(path)).returncode == 0
    record = stored(path)
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
