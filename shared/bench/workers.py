"""The parent's side of a worker process: start it, ask it, stop it with everything it started."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

from shared.bench.plan import FRAMEWORKS, Case, Settings
from shared.bench.worker import THREAD_VARIABLES
from shared.variants import Abilities

_ROOT = Path(__file__).resolve().parents[2]
# how long a worker may take to import its framework, look for its device and start its compiler
START_SECONDS = 300.0


class Unavailable(Exception):
    """The framework cannot be measured here; the text says why."""

    def __init__(self, text: str, device_problem: bool) -> None:
        super().__init__(text)
        self.device_problem = device_problem


class Outcome(NamedTuple):
    """What became of a case."""

    status: str  # "ok", "wrong", "failed" or "limit"
    reason: str | None
    details: dict[str, Any]


class Worker:
    """One framework's process."""

    def __init__(self, framework: str, settings: Settings, folder: Path) -> None:
        self.framework = framework
        self._log = (folder / f"{framework}-{os.urandom(3).hex()}.log").open("w+b")
        caches = folder / f"{framework}-caches-{os.urandom(3).hex()}"
        command = [sys.executable, "-W", "ignore", "-m", "shared.bench.worker", framework]
        command += [settings.device, settings.dtype, str(settings.threads), str(folder)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=_environment(settings, caches),
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is the parent's; and its compilers can be stopped with it
        )
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            hello = self._next(START_SECONDS)
        except BaseException as error:  # Ctrl-C too: no worker outlives the attempt to start it
            self.stop()
            if isinstance(error, queue.Empty):
                text = f"{FRAMEWORKS[framework]} did not start within {START_SECONDS:g} s"
                raise Unavailable(text, device_problem=False) from None
            raise
        if hello is None or hello["event"] != "hello":
            self.stop()
            if hello is None:
                raise Unavailable(f"{FRAMEWORKS[framework]} did not start: {self._last_words()}", device_problem=False)
            raise Unavailable(hello["reason"], hello["device_problem"])
        self.abilities = Abilities(**hello["abilities"])
        self.environment: dict[str, Any] = hello["environment"]

    def run(self, case: Case, limit: float) -> Outcome:
        """Run one case. limit: seconds for its first call, compilation included. Stops the worker if it is passed."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(case.as_json()) + "\n")
            self._process.stdin.flush()
        except OSError:
            return self._died()
        try:
            event = self._next(limit)
            if event is not None and event["event"] == "first_call":
                event = self._next(None)
        except queue.Empty:
            self.stop()
            return Outcome("limit", f"> {limit:g} s", {})
        if event is None:
            return self._died()
        details = {key: value for key, value in event.items() if key not in ("event", "status", "reason")}
        return Outcome(event["status"], event.get("reason"), details)

    @property
    def alive(self) -> bool:
        """Whether it can take another case."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _died(self) -> Outcome:
        self.stop()
        code = self._process.returncode
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        words = self._last_words()
        return Outcome("failed", f"the worker was {how}" if code < 0 else f"the worker {how}: {words}", {})

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._events.put(json.loads(line))
        finally:  # also after half a line
            self._events.put(None)

    def _next(self, seconds: float | None) -> dict[str, Any] | None:
        return self._events.get(timeout=seconds)

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it said nothing"


def _environment(settings: Settings, caches: Path) -> dict[str, str]:
    """Empty caches, one set of cores, no memory taken in advance; the rest is the user's."""
    environment = dict(os.environ)
    for name in ("JAX_ENABLE_X64", "JAX_COMPILATION_CACHE_DIR", "TORCH_LOGS", "TORCH_TRACE"):
        environment.pop(name, None)
    environment |= {name: str(settings.threads) for name in THREAD_VARIABLES}
    environment |= {
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])),
    }
    if settings.device == "cpu":
        environment["JAX_PLATFORMS"] = "cpu"
    return environment
