"""The commands of a worker: it reports what it is, then executes what its parent asks.

A command is its name, the case that it is about, and arguments. Answers are events: "hello" or "unavailable" at the
start; then for each command "done" with a status, which is "ok", "wrong", "failed", or "limit" for what cannot be
measured here, as for lack of memory. Before that may come "setup_starts" and "setup_ended" around what is done once and
has no part in the first call, such as the start of the compiler, "first_call" after the first call and each on a new
shape, and "step" after each of several calls that may compile.
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
from shared.bench.measure.clock import timed, warm_up
from shared.bench.measure.machine import best_rate, calibration_seconds, stream_bandwidth, usable_cores
from shared.bench.measure.variables import changed
from shared.bench.worker.case_runner import CaseRunner
from shared.bench.worker.parity_gate import Wrong
from shared.kernels.triton.programs import EXPONENTIALS_IN_A_ROUND, Kernel
from shared.problems import ANY_FILE, PROBLEMS
from shared.problems.own_file import in_one_line
from shared.problems.problem import NotMeasurable

_DEVICE_STREAM_BYTES = 2**29  # copied on an accelerator to measure its memory bandwidth
# length of an array, and rounds of 16 exponentials of each element: so many that memory takes a tenth of the time
_EXPONENTIALS_OF, _EXPONENTIAL_ROUNDS = 2**25, 8


def serve(
    connection: Connection, framework: str, device: str, threads: int, memory: float, folder: Path,
    make_commands: "Callable[..., Commands] | None" = None,
) -> None:  # fmt: skip
    """Execute commands until the parent closes the connection.

    memory: the share of an accelerator's memory that the framework may take. make_commands: in place of Commands.
    """

    def send(event: str, **details: Any) -> None:
        connection.send({"event": event, **details})

    try:
        backend = importlib.import_module(f"{framework}_impl.backend")
    except Exception as error:  # an import may fail in many ways, for want of memory too
        send("unavailable", device_problem=False, reason=f"{FRAMEWORKS[framework]} cannot be imported: {error}")
        return
    # before anything else: data-parallel processes join here
    commands = (make_commands or Commands)(backend, folder, send)
    backend.limit_memory(device, memory)
    if problem := backend.device_problem(device):
        send("unavailable", device_problem=True, reason=problem)
        return
    backend.set_threads(threads)
    # plain strings: the parent would have to import the framework to read another type
    versions = {name: str(value) for name, value in backend.environment(device).items()}
    names = [*(problem.name for problem in PROBLEMS.values() if problem.question is None), ANY_FILE]
    abilities = {name: backend.abilities(name, device).as_json() for name in names}
    available = None if device == "cpu" else backend.device_memory(device)
    facts = versions | {"threads": threads, "cores": usable_cores()}
    send("hello", memory=available and int(memory * available), abilities=abilities, environment=facts)
    before = backend.settings()
    for do, case, arguments in iter(connection.recv, None):
        send("done", **outcome(commands, do, case, arguments), settings=changed(before, backend.settings()))


def outcome(commands: "Commands", do: str, case: Case, arguments: dict[str, Any]) -> dict[str, Any]:
    """Execute a command; returns status, reason and details. A case that fails costs only itself."""
    try:
        commands.start_compiler_before(do, case)
        details = getattr(commands, do)(case, **arguments)
        if case.compiled and (switch := commands.backend.compiler_is_off()):  # by the function of a user
            raise ValueError(f"{switch} is set, which disables the compiler that is compared")
        return {"status": "ok", "reason": None, "details": details}
    except Wrong as error:
        return {"status": "wrong", "reason": str(error), "details": {"gate": error.gate}}
    except NotMeasurable as error:
        return {"status": "limit", "reason": str(error), "details": {}}
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        if commands.backend.is_out_of_memory(error):
            return {"status": "limit", "reason": "out of memory", "details": {}}
        return {"status": "failed", "reason": in_one_line(Path(case.problem).resolve(), error)[:300], "details": {}}


class Commands(CaseRunner):
    """A method for each command: those that run a case, and those that measure the machine for it."""

    _has_started_compiler = False

    def start_compiler_before(self, do: str, case: Case) -> None:
        """Start the framework's compiler if a command is the first that needs it: no measured call includes that."""
        needs_compiler = case.compiled or (do in ("bandwidth", "exponentials") and case.device != "cpu")
        if needs_compiler and not self._has_started_compiler:
            self._has_started_compiler, seconds = True, None
            self.send("setup_starts")
            with contextlib.suppress(Exception), self._start_cache(case):  # the cases will show what is wrong
                seconds, _ = timed(lambda: self.backend.start_compiler(case.device))
            self.send("setup_ended", compiler_start_seconds=seconds)

    def _start_cache(self, case: Case) -> contextlib.AbstractContextManager[None]:
        """The compiler's cache for what belongs to no case."""
        return self.backend.compiler_cache(self.cache("start", case.framework, case.label))

    def compile_kernels(self, case: Case, kernels: list[Kernel]) -> dict[str, Any]:
        """Compile kernels of a GPU on all cores."""
        return {"problems": self.backend.compile_kernels(kernels, case.device)}

    def calibration(self, case: Case) -> dict[str, Any]:
        """Seconds of the calibration loop."""
        return {"seconds": calibration_seconds()}

    def bandwidth(self, case: Case) -> dict[str, Any]:
        """Bytes per second that a copy of a large array moves."""
        if case.device == "cpu":
            return {"per_second": stream_bandwidth(len(usable_cores()))}
        array = self.backend.to_device(np.zeros(_DEVICE_STREAM_BYTES, np.uint8), case.device)
        return self._best_rate(case.device, lambda: self.backend.copy(array), 2 * _DEVICE_STREAM_BYTES)

    def exponentials(self, case: Case) -> dict[str, Any]:
        """Exponentials per second of an accelerator."""
        array = self.backend.to_device(np.zeros(_EXPONENTIALS_OF, np.float32), case.device)
        count = _EXPONENTIALS_OF * EXPONENTIALS_IN_A_ROUND * _EXPONENTIAL_ROUNDS
        with self._start_cache(case):
            return self._best_rate(case.device, lambda: self.backend.exponentials(array, _EXPONENTIAL_ROUNDS), count)

    def smallest_call(self, case: Case) -> dict[str, Any]:
        """Wall time of a call that launches one kernel on three numbers, until its result is there."""
        call = self.backend.smallest_call(case.device)
        return {"seconds": warm_up(lambda: self.backend.wait(call()))[1]}

    def _best_rate(self, device: str, launch: Callable[[], Any], count: int) -> dict[str, Any]:
        """Measure a rate by the accelerator's clock, or by wall time where the framework cannot read it."""
        self.backend.wait(launch())  # compiled

        def once() -> float:
            seconds = None
            with contextlib.suppress(Exception):
                seconds = self.backend.device_work(launch, device).seconds
            return seconds or timed(lambda: self.backend.wait(launch()))[0]

        return {"per_second": best_rate(once, count)}
