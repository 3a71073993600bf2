"""Runs one case in a worker: its first call with empty caches, a new shape, the first call of a new process, and blocks
of timed calls."""

import contextlib
import os
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shared.backends import environment_of
from shared.bench.cases import BETWEEN, Case
from shared.bench.measure.clock import MOST_WARM_UP_SECONDS, timed, warm_up
from shared.bench.measure.memory import resident_peak
from shared.bench.record import FirstCall, Gate
from shared.bench.worker.parity_gate import ParityGate
from shared.problems import Inputs
from shared.variants import SAME_CODE

# Before each block the arguments are copied to other memory, behind this many spacers of up to so many bytes: a call's
# time depends on memory addresses, and a process that never moves its arguments would measure one sample of them.
_SPACERS, _SPACER_BYTES = 8, 2**20
# most calls, and seconds after which no further one begins: for device time, in each worker; for the provisional
# answer, right after the first call
_DEVICE_CALLS, _DEVICE_SECONDS = 3, 0.3
_EARLY_CALLS, _EARLY_SECONDS = 5, 0.5
_MOST_NEW_SHAPES = 10  # on which a function is called for the first time, one after the other


class _Call:
    """A case's function with its arguments on the device; calling it waits for the result."""

    def __init__(self, backend: Any, function: Callable[..., Any], case: Case, inputs: Inputs) -> None:
        self._backend, self._function, self._device = backend, function, case.device
        self._given, self._copies = inputs.arguments(case.pass_name), inputs.copies
        self._parameters: dict[str, Any] = dict(inputs.parameters)
        if self._device != "cpu":  # or every call would transfer them
            arrays = {name: np.asarray(value, case.dtype) for name, value in inputs.parameters.items()}
            self._parameters = {name: backend.to_device(array, self._device) for name, array in arrays.items()}
        self._random = np.random.default_rng()
        self.input_bytes = sum(array.nbytes for array in self._given if array is not None) * inputs.copies
        self.place()

    def place(self) -> None:
        """Copy the arguments to other memory."""
        self.release()
        spacers = [np.ones(int(self._random.integers(1, _SPACER_BYTES)), np.uint8) for _ in range(_SPACERS)]
        # in the memory where the arguments will be
        is_cpu = self._device == "cpu"
        self._spacers = spacers if is_cpu else [self._backend.to_device(spacer, self._device) for spacer in spacers]
        self._arguments = [None if array is None else self._placed(array) for array in self._given]
        self._backend.wait([argument for argument in self._arguments if argument is not None])

    def _placed(self, array: np.ndarray) -> Any:
        # a copy: a framework may share a NumPy array's memory
        value = self._backend.to_device(array.copy(), self._device)
        return value if self._copies == 1 else self._backend.repeated(value, self._copies)

    def release(self) -> None:
        """Free the arguments and cached memory of calls. `place` restores the arguments."""
        self._arguments, self._spacers = [], []
        self._backend.release(self._device)

    def peak_bytes(self) -> int | None:
        """Peak memory of a call above what was in use before; None where the system does not report it."""
        self._backend.release(self._device)  # so that memory kept for the next call counts too
        if self._device == "cpu":
            bounds = resident_peak(self)
            return bounds and max(0, bounds[1] - bounds[0])
        return self._backend.peak_bytes(self._function, self._arguments, self._parameters, self._device)

    def launch(self) -> Any:
        """Call it; on an accelerator the result may not be there yet."""
        return self._function(*self._arguments, **self._parameters)

    def __call__(self) -> Any:
        return self._backend.wait(self.launch())


class CaseRunner:
    """Runs cases on one framework, and holds those that are ready to be timed."""

    def __init__(self, backend: Any, folder: Path, send: Callable[..., None]) -> None:
        self.backend, self.folder, self.send = backend, folder, send
        self.gate = ParityGate(backend, folder)
        self._prepared: dict[Case, _Call] = {}
        # function and process of the last cold case
        self._cold: tuple[Callable[..., Any], int] | None = None
        self._random = np.random.default_rng()

    def cold(self, case: Case, process: int, rounds_follow: bool) -> dict[str, Any]:
        """The first call with caches empty in memory and on disk. Raises Wrong.

        process: 0 in the first phase, which also measures what is recorded once per case (sizes, peak memory, early
        calls); later processes repeat only the first call, with a cache folder of their own. rounds_follow: whether
        fresh workers time rounds later; if not, the call is warmed up and kept for `sample`.
        """
        backend, inputs = self.backend, self.gate.inputs(case.input)
        self._cold = None
        self._prepared.clear()
        backend.forget_compiled()
        with self.context(case, process):
            built = self.build(case, inputs.options)
            function = self.function(case, inputs)
            call = _Call(backend, function, case, inputs)
            first, gate = self._first_call(case, call)
            self._cold = function, process
            if process:
                call.release()
                return {"cold": first}
            second, result = timed(call)
            output_bytes = result.nbytes
            del result
            early = [second]
            if rounds_follow:
                while len(early) < _EARLY_CALLS and sum(early) < _EARLY_SECONDS:
                    early.append(timed(call)[0])
                peak = call.peak_bytes()
            else:  # blocks follow at once
                if second < MOST_WARM_UP_SECONDS:
                    early = [warm_up(call)[1]]
                peak, self._prepared[case] = None, call
        call.release()
        return {
            "cold": first, "gate": gate, "build_seconds": built, "early_seconds": min(early),
            "input_bytes": call.input_bytes, "output_bytes": output_bytes, "peak_bytes": peak, "work": inputs.work,
        }  # fmt: skip

    def new_shapes(self, case: Case, seconds: float) -> dict[str, Any]:
        """Seconds of first calls on new shapes, by the last cold case's function: at most _MOST_NEW_SHAPES, in about
        `seconds`; at least one unless `seconds` is negative."""
        assert self._cold is not None, "a cold case goes before"
        function, process = self._cold
        taken: list[float] = []
        with self.context(case, process):
            while len(taken) < _MOST_NEW_SHAPES and sum(taken) + max(taken, default=0.0) <= seconds:
                inputs = self.gate.inputs(case.input).resized(len(taken) + 1)
                taken.append(timed(_Call(self.backend, function, case, inputs))[0])
                self.send("first_call", seconds=taken[-1])
        return {"new_shapes": taken}

    def prepare(self, case: Case) -> dict[str, Any]:
        """The first call of this process, with the caches on disk that an earlier one filled; then warm-up calls. Keeps
        the case for `sample`. Raises Wrong."""
        backend, inputs = self.backend, self.gate.inputs(case.input)
        with self.context(case):
            self.build(case, inputs.options)
            call = _Call(backend, self.function(case, inputs), case, inputs)
            first, gate = self._first_call(case, call)
            settled, call_seconds = warm_up(call)
        call.release()
        self._prepared[case] = call
        return {"warm": first.seconds, "gate": gate, "settled": settled, "call_seconds": call_seconds}

    def device_work(self, case: Case) -> dict[str, Any]:
        """Device seconds and kernel counts of some calls of a prepared case, caches flushed; or why the framework's
        profiler has none."""
        call, works, problem = self._prepared[case], list[Any](), "the profiler saw nothing"
        with self.backend.precision(case.dtype):
            call.place()
            try:
                call()
                end = time.monotonic() + _DEVICE_SECONDS
                while len(works) < _DEVICE_CALLS and (not works or time.monotonic() < end):
                    self.backend.flush(case.device)
                    works.append(self.backend.device_work(call.launch, case.device))
            except Exception as error:
                traceback.print_exc()
                problem = f"{type(error).__name__}: {error}"
            call.release()
        works = [work for work in works if work is not None]
        if not works:
            return {"problem": problem}
        return {"seconds": [work.seconds for work in works], "kernels": max(work.kernels for work in works)}

    def sample(self, case: Case, calls: int, lead: int, rehearse: bool) -> dict[str, Any]:
        """Time a block of calls, after untimed ones that bring the case's data back into the CPU's caches.

        lead: at most so many untimed calls; their results stay allocated, so that each block's results use other
        memory. rehearse: whether one more untimed call frees its result, so that the first timed call reuses it.
        """
        call = self._prepared[case]
        with self.backend.precision(case.dtype):
            call.place()
            unfreed = [call() for _ in range(int(self._random.integers(1, lead + 1)) if lead else 0)]
            if rehearse or case.device != "cpu":  # on a GPU `release` has dropped CUDA graphs too
                call()
            self.ready()
            seconds = []
            for _ in range(calls):
                self.backend.flush(case.device)  # as in a model, arguments are not in an accelerator's caches
                if case.label == BETWEEN:
                    self.backend.multiply()
                seconds.append(timed(call)[0])
            del unfreed
            call.release()
        return {"seconds": seconds}

    def ready(self) -> None:
        """Called before the timed calls of a block: nothing here."""

    def call(self, case: Case, function: Callable[..., dict[str, Any]], **arguments: Any) -> dict[str, Any]:
        """Call the function of a question that measures in its own way, with this runner and the case."""
        return function(self, case, **arguments)

    def cache(self, *parts: object) -> Path:
        """A folder for compilers, without spaces: inductor splits the command line of the C++ compiler at them."""
        return self.folder / "compiled" / "-".join(map(str, parts)).replace(" ", "_")

    def context(self, case: Case, process: object = 0) -> contextlib.AbstractContextManager[None]:
        """A context for all that may compile: `compilers`, with a folder that all processes of the run share unless
        they name one of their own."""
        which = (case.framework, case.variant, case.pass_name, case.compiled, case.input, case.label)
        return self.compilers(case, self.cache(*which, process))

    @contextlib.contextmanager
    def compilers(self, case: Case, folder: Path) -> Iterator[None]:
        """A context in the case's precision in which compilers cache in this folder; `fused` keeps the worker's
        TRITON_CACHE_DIR, where its kernels were compiled ahead."""
        kernels = os.environ.get("TRITON_CACHE_DIR") if case.variant in SAME_CODE else None
        ahead = environment_of(TRITON_CACHE_DIR=kernels) if kernels else contextlib.nullcontext()
        with self.backend.compiler_cache(folder), ahead, self.backend.precision(case.dtype):
            yield

    def build(self, case: Case, options: dict[str, Any]) -> float:
        """Seconds to build the case's native kernels: once per machine, so they are no part of a first call."""
        self.send("setup_starts")
        of = case.problem, options, case.variant, case.pass_name, case.dtype, case.device
        seconds, _ = timed(lambda: self.backend.build(*of))
        self.send("setup_ended")
        return seconds

    def function(self, case: Case, inputs: Inputs) -> Callable[..., Any]:
        """The function of the case, not yet compiled."""
        return self.backend.call_of(case.problem, case.variant, case.pass_name, inputs.options, compiled=case.compiled)

    def _first_call(self, case: Case, call: _Call) -> tuple[FirstCall, Gate]:
        """Time the call, report it to the parent at once, and check the result: times and gate. Raises Wrong."""
        with self.backend.compile_times() as split:
            seconds, result = timed(call)
        self.send("first_call", seconds=seconds)
        return FirstCall(seconds, split.tracing, split.compiling), self.gate.check(case, result)
