"""How tools/first_contact.py does its steps: one after the other or beside each other, in processes of their own, each
within its seconds and noted as soon as it is done."""

import contextlib
import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Gpu(NamedTuple):
    """What the driver says of its first device."""

    name: str
    capability: int  # 90 for compute capability 9.0
    cuda: int  # the newest version that the driver knows, 13000 for 13.0
    devices: int


def first_gpu() -> Gpu | None:
    """Asked of the driver itself: no framework is needed to learn that there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count, major, minor, cuda = (ctypes.c_int() for _ in range(4))
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return None
    name = ctypes.create_string_buffer(100)
    driver.cuDeviceGetName(name, len(name), 0)
    driver.cuDeviceGetAttribute(ctypes.byref(major), 75, 0)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, 0)
    driver.cuDriverGetVersion(ctypes.byref(cuda))
    return Gpu(name.value.decode(), 10 * major.value + minor.value, cuda.value, count.value)


class Failed(Exception):
    """A step that did not do what it should; the text says how."""


class Step(NamedTuple):
    """A name, the most seconds that it may take, and what it does with so many: gives what is noted of it."""

    name: str
    seconds: float
    do: Callable[[float], dict[str, Any]]


Lane = Sequence[Step]  # one after the other


class Log:
    """What becomes of the steps: lines of JSON, and of text for whoever looks on."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._budget = seconds
        self._closed = False
        self.lost: list[str] = []
        self.done = 0

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._start

    def run(self, phase: Sequence[Lane]) -> None:
        """The lanes of a phase, all at the same time."""
        threads = [threading.Thread(target=lambda lane=lane: [*map(self._do, lane)], daemon=True) for lane in phase]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """Nothing more is begun or noted."""
        with self._lock:
            self._closed = True

    def _do(self, step: Step) -> None:
        if self._closed:
            return
        began, left = time.monotonic(), self._budget - self.seconds
        noted: dict[str, Any]
        if left <= 0:
            noted = {"status": "failed", "reason": "no time was left for it"}
        else:
            try:
                noted = {"status": "ok", **step.do(min(step.seconds, left))}
            except Exception as error:
                reason = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
                noted = {"status": "failed", "reason": reason.replace(f"{ROOT}/", "")}
        taken = time.monotonic() - began
        with self._lock:
            if self._closed:
                return
            self.done += 1
            if noted["status"] != "ok":
                self.lost.append(step.name)
            self._file.write(json.dumps({"step": step.name, "at": self.seconds, "seconds": taken, **noted}) + "\n")
            self._file.flush()
            print(f"{self.seconds:6.1f} s  {step.name}: {_told(noted)}", flush=True)


def _told(noted: dict[str, Any]) -> str:
    if noted["status"] != "ok":
        return f"FAILED: {noted['reason']}"
    if "gcups" in noted:
        best = min(noted["device_seconds"])
        return f"ok, {noted['gcups']:.4g} GCUPS, {best * 1e6:.4g} µs on the device at best"
    if "worst_of_what_is_allowed" in noted:
        return f"ok, {max(noted['worst_of_what_is_allowed'].values()):.2%} of what is allowed at worst"
    return "ok"


class Framework:
    """One framework's process. After a fault that the device does not survive, or a step without an end, a new one."""

    def __init__(self, name: str, environment: dict[str, str], folder: Path) -> None:
        self.name = name
        self._environment, self._folder = environment, folder
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()

    def begin(self) -> None:
        """Start the process; it can be asked at once."""
        self._answers = queue.Queue()
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tools.first_contact_steps", self.name], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, cwd=ROOT, env=self._environment, text=True, process_group=0,
            )  # fmt: skip
        threading.Thread(target=self._read, args=(self._process, self._answers), daemon=True).start()

    @staticmethod
    def _read(process: subprocess.Popen[str], answers: queue.Queue[str | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answers.put(line)
        answers.put(None)

    def ask(self, do: str, seconds: float, **arguments: Any) -> dict[str, Any]:
        """Have a step done. Raises Failed."""
        if self._process is None:
            self.begin()
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            process.stdin.flush()
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.end()
            raise Failed(f"not done within {seconds:.0f} s") from None
        except OSError:
            line = None
        if line is None:
            code = process.wait()
            self.end()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise Failed(f"its process ended with {how}; see {self.name}.log")
        answer = json.loads(line)
        if answer.pop("status") != "ok":
            if not answer["device_works"]:
                self.end()
            raise Failed(answer["reason"])
        return answer

    def end(self) -> None:
        """Stop the process and all that it started."""
        if self._process is not None:
            kill(self._process)
            self._process = None


def ran(command: Sequence[str], seconds: float, log: Path, environment: dict[str, str], running: set[Any]) -> str:
    """What a program prints, which is also in the log. Raises Failed.

    running: the programs that run, while it does.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=environment,
            process_group=0,
        )  # fmt: skip
        running.add(process)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"not done within {seconds:.0f} s; see {log.name}") from None
        finally:
            kill(process)
            running.discard(process)
    text = log.read_text(errors="replace").strip()
    if code:
        raise Failed(f"exit code {code}: {text.splitlines()[-1] if text else 'it said nothing'}; see {log.name}")
    return text


def kill(process: subprocess.Popen[Any]) -> None:
    """It and what it started; one that is stuck in the driver is left there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5.0)


def pack(path: Path, files: Sequence[Path]) -> None:
    """An archive of these files, in the place of an earlier one when it is complete."""
    with tarfile.open(part := path.with_suffix(".part"), "w:gz") as tar:
        for file in files:
            tar.add(file, f"first-contact/{file.name}")
    part.replace(path)
