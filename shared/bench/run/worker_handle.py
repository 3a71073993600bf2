"""The parent's handle of a worker process: start it, send it commands, stop it with everything it started."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shared.bench.cases import FRAMEWORKS, Case, Settings
from shared.bench.measure.machine import ROOT
from shared.kernels import cpp
from shared.variants import Abilities

# -P: what lies in the working folder is not imported
WORKER_COMMAND = (sys.executable, "-P", "-W", "ignore", "-m", "shared.bench.worker.main")
START_SECONDS = 300.0  # longest time to import a framework and find its device; and for what is set up once
PATIENCE_SECONDS = 60.0  # longest time for anything else but compiling, plus ten times the expected time of its calls
_TICK_SECONDS = 0.5  # how often the progress line is updated while a worker is waited for


class Unavailable(Exception):
    """The framework cannot be measured here; the text says why."""

    def __init__(self, text: str, device_problem: bool = False) -> None:
        super().__init__(text)
        self.device_problem = device_problem


class Reply(NamedTuple):
    """Outcome of a command."""

    status: str  # "ok", "wrong", "failed" or "limit"
    reason: str | None = None
    details: Mapping[str, Any] = {}


class Worker:
    """One framework's process. What it can do is known after `wait_until_ready`."""

    abilities: dict[str, Abilities]  # by problem
    environment: dict[str, Any]  # for the record
    memory: int | None  # bytes of accelerator memory that it may take
    compiler_start_seconds: float | None = None  # known after the first command that compiles
    settings: Mapping[str, str] = {}  # of the framework, that commands have changed

    def __init__(
        self, framework: str, command: Sequence[str], settings: Settings, folder: Path, tick: Callable[[], None],
        *, memory_share: float, environment: Mapping[str, str],
    ) -> None:  # fmt: skip
        self._title, self._tick, self._stopped = FRAMEWORKS[framework], tick, False
        self._compile_limit = settings.compile_limit
        self.prepared: set[Case] = set()  # those that it is ready to time
        self._log = folder / f"{framework}-{time.monotonic_ns()}.log"
        self._connection, child = multiprocessing.Pipe()
        arguments = [framework, settings.device, settings.threads, f"{memory_share:.6f}", folder, child.fileno()]
        with child, self._log.open("wb") as log:
            self._process = subprocess.Popen(  # Ctrl-C goes to the parent alone, and compilers stop with the worker
                [*command, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**_environment(settings, folder), **environment}, pass_fds=[child.fileno()],
                start_new_session=True,
            )  # fmt: skip

    def wait_until_ready(self) -> None:
        """Wait until the worker has found its framework and device. Raises Unavailable."""
        try:
            hello = self._next(START_SECONDS)
        except TimeoutError:
            raise Unavailable(f"{self._title} did not start within {START_SECONDS:g} s") from None
        except (EOFError, OSError):
            raise Unavailable(f"{self._title} did not start: {self._how_it_ended()}") from None
        if hello["event"] == "unavailable":
            raise Unavailable(hello["reason"], hello["device_problem"])
        self.abilities = {problem: Abilities(**able) for problem, able in hello["abilities"].items()}
        self.environment, self.memory = hello["environment"], hello["memory"]

    def ask(
        self, do: str, case: Case, expected: float | None = None, limit: float | None = None, **arguments: Any
    ) -> Reply:
        """Send a command and wait for its outcome; a worker that takes far too long is stopped.

        expected: seconds that the command's calls should take, if it does not compile. None: it compiles; its first
            call, or each of its steps, may take `limit` (default: the compile limit), and the status is "limit" if it
            takes longer. One-time setup (starting the compiler, building native kernels) does not count.
        """
        limit = limit or self._compile_limit if expected is None else PATIENCE_SECONDS + 10 * expected
        in_first_call, seconds = expected is None, limit
        try:
            self._connection.send((do, case, arguments))
            while (event := self._next(seconds))["event"] != "done":
                in_first_call = event["event"] in ("setup_ended", "step") and expected is None
                if event["event"] == "first_call":
                    seconds = PATIENCE_SECONDS + 10 * event["seconds"]
                else:
                    seconds = START_SECONDS if event["event"] == "setup_starts" else limit
                self.compiler_start_seconds = event.get("compiler_start_seconds", self.compiler_start_seconds)
        except TimeoutError:
            self.stop()
            if in_first_call:
                return Reply("limit", f"> {limit:.4g} s")
            return Reply("failed", f"the worker did not answer within {seconds:.3g} s and was stopped")
        except (EOFError, OSError):
            return Reply("failed", self._how_it_ended())
        reply, self.settings = Reply(event["status"], event["reason"], event["details"]), event["settings"]
        if do == "prepare" and reply.status == "ok":
            self.prepared.add(case)
        return reply

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can take another command."""
        return self._process.poll() is None

    def lost(self) -> str | None:
        """Return why the worker died unexpectedly, or None."""
        return None if self._stopped or self.alive else self._how_it_ended()

    def stop(self) -> None:
        """End the process and all that it started."""
        if self._stopped:  # its process id may have been reused
            return
        self._stopped = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _next(self, seconds: float) -> dict[str, Any]:
        """The next event. Raises TimeoutError; and EOFError or OSError if the worker has ended."""
        end = time.monotonic() + seconds
        while not self._connection.poll(max(0.0, min(end - time.monotonic(), _TICK_SECONDS))):
            if time.monotonic() >= end:
                raise TimeoutError
            self._tick()
        return self._connection.recv()

    def _how_it_ended(self) -> str:
        """Say how a worker that has closed its connection ended, and stop what is left of it."""
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(5.0)
        self.stop()
        if code is None:
            return "the worker closed its connection, and was stopped"
        if code < 0:
            perhaps = " (out of memory?)" if code == -signal.SIGKILL else ""
            return f"the worker was killed by {signal.Signals(-code).name}{perhaps}"
        printed = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return f"the worker ended with exit code {code}: {printed[-1][:300] if printed else 'it printed nothing'}"


def _environment(settings: Settings, folder: Path) -> dict[str, str]:
    """The user's environment, except for thread counts, precision, import path, JAX's platform, compiler caches and
    temporary files."""
    environment = os.environ | {
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(settings.threads)),
        "JAX_ENABLE_X64": "0",
        "NVIDIA_TF32_OVERRIDE": "0",
        "TMPDIR": str(folder),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    # one for all, or every process would compile the kernels again
    kernels = cpp.cache_folder() if cpp.cache_is_usable() else folder / "kernels"
    environment |= {"ALIGNMENT_CACHE": str(kernels), "TRITON_CACHE_DIR": str(kernels / "triton")}
    if settings.device == "cpu":
        environment["JAX_PLATFORMS"] = "cpu"
    return environment
