"""The parent's handle of a worker process: start it, send it commands, stop it with everything it started."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shared.bench.cases import FRAMEWORKS, Case, Settings
from shared.bench.measure.machine import usable_cores
from shared.bench.worker.main import THREAD_VARIABLES
from shared.kernels import cpp
from shared.variants import Abilities

_ROOT = Path(__file__).resolve().parents[3]
WORKER_COMMAND = (sys.executable, "-W", "ignore", "-m", "shared.bench.worker.main")
# longest time for a worker to import its framework, find its device and start its compiler
START_SECONDS = 300.0
# how often the display is updated while a worker is waited for
_TICK_SECONDS = 0.5


class Unavailable(Exception):
    """The framework cannot be measured here; the text says why."""

    def __init__(self, text: str, device_problem: bool = False) -> None:
        super().__init__(text)
        self.device_problem = device_problem


class Reply(NamedTuple):
    """Outcome of a command."""

    status: str  # "ok", "wrong", "failed" or "limit"
    reason: str | None
    details: dict[str, Any]


class Worker:
    """One framework's process."""

    def __init__(
        self,
        framework: str,
        settings: Settings,
        folder: Path,
        tick: Callable[[], None],
        *,
        memory_share: float,
        environment: Mapping[str, str],
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        self._tick, self._stopped = tick, False
        self._log = (folder / f"{framework}-{os.urandom(3).hex()}.log").open("w+b")
        arguments = [framework, settings.device, str(settings.threads), f"{memory_share:.3f}", str(folder)]
        self._process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**_environment(settings, folder), **environment},
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C goes to the parent alone; and the worker's compilers stop with it
        )
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            hello = self._next(START_SECONDS)
        except BaseException as error:  # Ctrl-C included: no worker outlives the attempt to start it
            self.stop()
            if isinstance(error, queue.Empty):
                raise Unavailable(f"{FRAMEWORKS[framework]} did not start within {START_SECONDS:g} s") from None
            raise
        if hello is None or hello["event"] != "hello":
            with contextlib.suppress(subprocess.TimeoutExpired):  # it has closed its output, so it is about to end
                self._process.wait(1.0)
            code = self._process.returncode
            self.stop()
            if hello is None:
                how = f"it was killed by {signal.Signals(-code).name}" if code and code < 0 else self._last_line()
                raise Unavailable(f"{FRAMEWORKS[framework]} did not start: {how}")
            raise Unavailable(hello["reason"], hello["device_problem"])
        self.abilities = {problem: Abilities(**able) for problem, able in hello["abilities"].items()}
        self.environment: dict[str, Any] = hello["environment"]
        self.prepared: set[Case] = set()
        self.has_started_compiler = False
        problem = _placement_problem(hello, settings)
        if problem:
            self.stop()
            raise Unavailable(f"{FRAMEWORKS[framework]} {problem}")

    def ask(self, do: str, limit: float, first_call_limit: float | None = None, **arguments: Any) -> Reply:
        """Send a command and wait for its outcome; a worker that takes longer than `limit` seconds is stopped.

        first_call_limit: for a command that compiles: seconds until its first call must be done; past that, the worker
        is stopped and the status is "limit". The limit counts from there.
        """
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except OSError:
            return self._died()
        kills = _out_of_memory_kills()
        in_first_call = first_call_limit is not None
        try:
            event = self._next(first_call_limit if first_call_limit is not None else limit)
            if event is not None and event["event"] == "first_call":
                in_first_call = False
                event = self._next(limit + 10 * event["seconds"])
        except queue.Empty:
            self.stop()
            if in_first_call:
                return Reply("limit", f"> {first_call_limit:g} s", {})
            return Reply("failed", f"the worker did not answer within {limit:g} s and was stopped", {})
        if event is None:
            return self._died(kills)
        details = {key: value for key, value in event.items() if key not in ("event", "status", "reason")}
        return Reply(event["status"], event.get("reason"), details)

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can take another command."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process and all that it started."""
        if self._stopped:  # its process id may have been reused
            return
        self._stopped = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _died(self, kills_before: int | None = None) -> Reply:
        self.stop()
        code = self._process.returncode
        if code >= 0:
            return Reply("failed", f"the worker ended with exit code {code}: {self._last_line()}", {})
        text = f"the worker was killed by {signal.Signals(-code).name}"
        kills = _out_of_memory_kills()
        if -code == signal.SIGKILL and kills is not None and kills_before is not None and kills > kills_before:
            text += ": the system ran out of memory"
        return Reply("failed", text, {})

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._events.put(json.loads(line))
        finally:  # also after half a line
            self._events.put(None)

    def _next(self, seconds: float) -> dict[str, Any] | None:
        """The next event; None if the worker has ended. Raises queue.Empty."""
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            try:
                return self._events.get(timeout=max(0.0, min(left, _TICK_SECONDS)))
            except queue.Empty:
                if left <= _TICK_SECONDS:
                    raise
                self._tick()

    def _last_line(self) -> str:
        """Of what the worker wrote to standard error."""
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it wrote nothing to standard error"


def _placement_problem(hello: dict[str, Any], settings: Settings) -> str | None:
    """What is wrong with the worker's cores and threads, as it reports them after importing the framework."""
    own, wanted = hello["environment"], usable_cores()[: settings.threads]
    cores, used = own["cores"], own["threads"]
    # for a GPU a framework may bind idle host threads to all cores
    stray = own.get("threads_elsewhere") and settings.device == "cpu"
    if hasattr(os, "sched_setaffinity") and (cores != wanted or stray):
        return f"does not keep to the cores {wanted}: its process has {cores}, or some of its threads have others"
    return None if used == settings.threads else f"was given {settings.threads} threads and uses {used}"


def _out_of_memory_kills() -> int | None:
    """Processes that the system has killed for memory so far; None where it does not tell."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def _environment(settings: Settings, folder: Path) -> dict[str, str]:
    """The user's environment, but for thread counts, reduced precision, compiler caches and temporary files."""
    environment = dict(os.environ)
    for name in ("JAX_ENABLE_X64", "JAX_COMPILATION_CACHE_DIR", "TORCH_LOGS", "TORCH_TRACE"):
        environment.pop(name, None)
    environment |= {name: str(settings.threads) for name in THREAD_VARIABLES}
    environment["NVIDIA_TF32_OVERRIDE"] = "0"
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    environment |= {
        "TMPDIR": str(temporary),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])),
    }
    if not cpp.keeps():  # or every process would compile the kernels again
        environment["ALIGNMENT_CACHE"] = str(folder / "kernels")
    if settings.device == "cpu":
        environment["JAX_PLATFORMS"] = "cpu"
    return environment
