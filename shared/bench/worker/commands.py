"""The commands of a worker: it reports what it is, then executes what standard input asks until that is closed."""

import contextlib
import importlib
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from shared.bench.cases import FRAMEWORKS
from shared.bench.measure.clock import timed
from shared.bench.measure.machine import (
    best_rate,
    calibration_seconds,
    every_thread_is_on,
    stream_bandwidth,
    usable_cores,
)
from shared.bench.worker.case_runner import CaseRunner, Wrong
from shared.kernels.triton.programs import EXPONENTIALS_IN_A_ROUND
from shared.problems import PROBLEMS

# copied on an accelerator to measure its memory bandwidth
_DEVICE_STREAM_BYTES = 2**29
# numbers, and rounds of 16 exponentials of each, such that the memory takes a tenth of the time
_EXPONENTIALS_OF, _EXPONENTIAL_ROUNDS = 2**25, 8


def serve(channel: TextIO, framework: str, device: str, threads: int, memory: float, folder: str) -> None:
    """Execute JSON commands from the parent, and send events.

    memory: the share of an accelerator's memory that the framework may take.
    """

    def send(**event: Any) -> None:
        channel.write(json.dumps(event) + "\n")
        channel.flush()

    try:
        backend = importlib.import_module(f"{framework}_impl.backend")
    except ImportError as error:
        send(event="unavailable", device_problem=False, reason=f"{FRAMEWORKS[framework]} is not installed ({error})")
        return
    backend.limit_memory(device, memory)
    problem = backend.device_problem(device)
    if problem:
        send(event="unavailable", device_problem=True, reason=problem)
        return
    used = backend.set_threads(threads)
    abilities = {name: backend.abilities(name, device) for name in PROBLEMS}
    cores = usable_cores()
    # some work, so that the framework starts its threads before their affinity is checked
    backend.wait(backend.to_device(np.zeros(2**16, np.float32), device) + 1)
    elsewhere = {} if every_thread_is_on(cores) else {"threads_elsewhere": True}
    send(
        event="hello",
        abilities={name: able.as_json() for name, able in abilities.items()},
        environment=backend.environment(device) | {"threads": used, "cores": cores} | elsewhere,
    )
    autos = {name: able.auto for name, able in abilities.items()}
    runner = CaseRunner(backend, autos, device, Path(folder), send)

    def start_compiler() -> dict[str, Any]:
        with backend.compiler_cache(Path(folder) / "compiled" / f"start-{framework}"):
            return {"seconds": timed(lambda: backend.start_compiler(device))[0]}

    def seconds_of(launch: Callable[[], Any]) -> Callable[[], float]:
        """By the accelerator's clock, or wall time where the framework cannot read it."""
        backend.wait(launch())  # compiled

        def once() -> float:
            seconds = None
            with contextlib.suppress(Exception):
                seconds = backend.device_seconds(launch, device)
            return seconds or timed(lambda: backend.wait(launch()))[0]

        return once

    def bandwidth() -> dict[str, Any]:
        if device == "cpu":
            return {"per_second": stream_bandwidth(threads)}
        array = backend.to_device(np.zeros(_DEVICE_STREAM_BYTES, np.uint8), device)
        return {"per_second": best_rate(seconds_of(lambda: backend.copy(array)), 2 * _DEVICE_STREAM_BYTES)}

    def exponentials() -> dict[str, Any]:
        array = backend.to_device(np.zeros(_EXPONENTIALS_OF, np.float32), device)
        with backend.compiler_cache(Path(folder) / "compiled" / f"start-{framework}"):
            once = seconds_of(lambda: backend.exponentials(array, _EXPONENTIAL_ROUNDS))
            return {"per_second": best_rate(once, _EXPONENTIALS_OF * EXPONENTIALS_IN_A_ROUND * _EXPONENTIAL_ROUNDS)}

    commands = {
        "start_compiler": start_compiler,
        "bandwidth": bandwidth,
        "exponentials": exponentials,
        "fits": runner.fits,
        "calibration": lambda: {"seconds": calibration_seconds()},
        "cold": runner.cold,
        "new_shape": runner.new_shape,
        "prepare": runner.prepare,
        "sample": runner.sample,
        "device_time": runner.device_time,
    }
    for line in _lines():
        command = json.loads(line)
        try:
            send(event="done", status="ok", **commands[command.pop("do")](**command))
        except Wrong as error:
            send(event="done", status="wrong", reason=str(error), gate=error.gate)
        except Exception as error:  # a case that fails costs only itself
            print(traceback.format_exc(), file=sys.stderr)
            if backend.is_out_of_memory(error):
                send(event="done", status="limit", reason="out of memory")
            else:
                send(event="done", status="failed", reason=_one_line(error))


def _lines() -> Any:
    """Lines of standard input; the process ends when the parent is gone, even in the middle of a case."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield lines.get()


def _one_line(error: BaseException) -> str:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}"[:300]
