"""Faults cost what they must and no more: a wrong case its time, a dead worker its case."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from command_line import HANGING, JAX, KILLED_WHILE_TIMED, TINY, TWO, plant, rows, run_compare, stored, verdicts
from shared.bench.plan import Settings
from shared.bench.workers import Worker

from shared.bench import workers

# starting PyTorch's compiler takes long and nothing is compiled here
WRONG_JAX = """
def turn_gap(plain_loops):
    right = plain_loops.PLAIN_LOOPS["diagonal_loop"]

    def loop(recurrence, parameters, *arrays):
        return right(recurrence, parameters | {"gap": -parameters["gap"]}, *arrays)

    plain_loops.PLAIN_LOOPS["diagonal_loop"] = loop


def skip_compiler(backend):
    backend.start_compiler = lambda device: None


PATCHES = {"jax_impl.plain_loops": turn_gap, "torch_impl.backend": skip_compiler}
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

# the parent does not wait a minute, to keep the test short
HURRYING = """
def hurry(going):
    going.PATIENCE_SECONDS = 10.0


PATCHES["shared.bench.going"] = hurry
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
    done = run_compare(*TWO, folders=(plant(tmp_path, HANGING + HURRYING),))
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
        ("marginals", "JAX", "vmap"): {"compiled": "yes", "first call": "> 0.001 s for score"},  # not tried
    }
    assert verdicts(done.stdout) == ["score: no case was measured.", "marginals: no case was measured."]
