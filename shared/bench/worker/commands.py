"""The commands of a worker: it reports what it is, then executes what its parent asks.

A command is its name, the case that it is about, and arguments. Answers are events: "hello" or "unavailable" at the
start; then for each command "done" with a status, which is "ok", "wrong", "failed", or "limit" for what is too large.
Before that may come "compiler_starts" and "compiler_started", once, and "first_call" when the first call is done.
"""

import contextlib
import importlib
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from shared.bench.cases import FRAMEWORKS, Case
from shared.bench.measure.clock import timed
from shared.bench.measure.machine import best_rate, calibration_seconds, stream_bandwidth, usable_cores
from shared.bench.worker.case_runner import CaseRunner
from shared.bench.worker.parity_gate import Wrong
from shared.kernels.triton.programs import EXPONENTIALS_IN_A_ROUND
from shared.problems import PROBLEMS

# copied on an accelerator to measure its memory bandwidth
_DEVICE_STREAM_BYTES = 2**29
# numbers, and rounds of 16 exponentials of each, such that the memory takes a tenth of the time
_EXPONENTIALS_OF, _EXPONENTIAL_ROUNDS = 2**25, 8


def serve(connection: Connection, framework: str, device: str, threads: int, memory: float, folder: Path) -> None:
    """Execute commands until the parent closes the connection.

    memory: the share of an accelerator's memory that the framework may take.
    """

    def send(event: str, **details: Any) -> None:
        connection.send({"event": event, **details})

    title, cores = FRAMEWORKS[framework], usable_cores()
    try:
        backend = importlib.import_module(f"{framework}_impl.backend")
    except ImportError as error:
        send("unavailable", device_problem=False, reason=f"{title} is not installed ({error})")
        return
    backend.limit_memory(device, memory)
    problem = backend.device_problem(device)
    if problem:
        send("unavailable", device_problem=True, reason=problem)
        return
    placement = (backend.set_threads(threads), usable_cores())
    if placement != (threads, cores):
        reason = f"{title} has (threads, cores) {placement}, expected {(threads, cores)}"
        send("unavailable", device_problem=False, reason=reason)
        return
    send(
        "hello",
        abilities={name: backend.abilities(name, device).as_json() for name in PROBLEMS},
        environment=backend.environment(device) | {"threads": threads, "cores": cores},
    )
    runner = CaseRunner(backend, folder, send)
    cache = folder / "compiled" / f"start-{framework}"
    commands: dict[str, Callable[..., dict[str, Any]]] = {
        "bandwidth": lambda case: {"per_second": _bandwidth(backend, device, threads)},
        "exponentials": lambda case: {"per_second": _exponentials(backend, device, cache)},
        "calibration": lambda case: {"seconds": calibration_seconds()},
        "fits": runner.fits,
        "cold": runner.cold,
        "new_shape": runner.new_shape,
        "prepare": runner.prepare,
        "sample": runner.sample,
        "device_time": runner.device_time,
    }
    has_started_compiler = False
    for do, case, arguments in iter(connection.recv, None):
        if not has_started_compiler and _compiles(do, case):
            has_started_compiler = True
            send("compiler_starts")
            send("compiler_started", seconds=_compiler_start_seconds(backend, device, cache))
        send("done", **_outcome(backend, lambda: commands[do](case, **arguments)))  # noqa: B023 - called at once


def _compiles(do: str, case: Case) -> bool:
    """Whether a command needs the framework's compiler, so that its start must not be part of what is measured."""
    return case.compiled or (do in ("bandwidth", "exponentials") and case.device != "cpu")


def _compiler_start_seconds(backend: Any, device: str, cache: Path) -> float | None:
    """Start the framework's compiler, and return the seconds; None where that fails, which the cases will show."""
    try:
        with backend.compiler_cache(cache):
            return timed(lambda: backend.start_compiler(device))[0]
    except Exception:
        traceback.print_exc()
        return None


def _outcome(backend: Any, command: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Status, reason and details of a command. A case that fails costs only itself."""
    try:
        return {"status": "ok", "reason": None, "details": command()}
    except Wrong as error:
        return {"status": "wrong", "reason": str(error), "details": {"gate": error.gate}}
    except Exception as error:
        traceback.print_exc()
        if backend.is_out_of_memory(error):
            return {"status": "limit", "reason": "out of memory", "details": {}}
        first_line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        return {"status": "failed", "reason": f"{type(error).__name__}: {first_line}"[:300], "details": {}}


def _bandwidth(backend: Any, device: str, threads: int) -> float:
    """Bytes per second that a copy of a large array moves."""
    if device == "cpu":
        return stream_bandwidth(threads)
    array = backend.to_device(np.zeros(_DEVICE_STREAM_BYTES, np.uint8), device)
    return _best_rate_on_device(backend, device, lambda: backend.copy(array), 2 * _DEVICE_STREAM_BYTES)


def _exponentials(backend: Any, device: str, cache: Path) -> float:
    """Exponentials per second of an accelerator."""
    array = backend.to_device(np.zeros(_EXPONENTIALS_OF, np.float32), device)
    count = _EXPONENTIALS_OF * EXPONENTIALS_IN_A_ROUND * _EXPONENTIAL_ROUNDS
    with backend.compiler_cache(cache):
        return _best_rate_on_device(backend, device, lambda: backend.exponentials(array, _EXPONENTIAL_ROUNDS), count)


def _best_rate_on_device(backend: Any, device: str, launch: Callable[[], Any], count: int) -> float:
    """By the accelerator's clock, or wall time where the framework cannot read it."""
    backend.wait(launch())  # compiled

    def once() -> float:
        seconds = None
        with contextlib.suppress(Exception):
            seconds = backend.device_seconds(launch, device)
        return seconds or timed(lambda: backend.wait(launch()))[0]

    return best_rate(once, count)
