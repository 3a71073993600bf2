"""Runs one case in a worker: its first call with empty caches, a new shape, the first call of a new process, and blocks
of timed calls."""

import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from shared.bench.measure.clock import timed, upper_median, warm_up
from shared.bench.measure.memory import ProcessMemory
from shared.bench.worker.parity_gate import ParityGate
from shared.problems import PROBLEMS, Inputs, Verdict

# Before each block the arguments move to other memory, with up to this many bytes in between: a call's time depends on
# memory addresses, and a process that never moves its arguments would measure one sample of them.
_GAPS, _GAP_BYTES = 8, 2**20
# calls whose time on an accelerator is taken
_DEVICE_CALLS = 3
# calls right after the first, for the provisional answer: so many, or so many seconds of them
_EARLY_CALLS, _EARLY_SECONDS = 5, 0.5


class Wrong(Exception):
    """A result that did not pass the parity gate. The text is the gate's; `gate` is what the record keeps."""

    def __init__(self, text: str, gate: dict[str, Any]) -> None:
        super().__init__(text)
        self.gate = gate


class _Call:
    """A case's function with its arguments on the device; calling it waits for the result."""

    def __init__(self, backend: Any, function: Callable[..., Any], case: dict[str, Any], inputs: Inputs) -> None:
        self._backend, self._function, self._device = backend, function, case["device"]
        given = inputs.arguments(case["pass_name"])
        self._given, self._parameters = given, dict[str, Any](inputs.parameters)
        if self._device != "cpu":  # or every call would transfer them
            values = {name: np.asarray(value, case["dtype"]) for name, value in inputs.parameters.items()}
            self._parameters = {name: backend.to_device(value, self._device) for name, value in values.items()}
        self._random = np.random.default_rng()
        self._arguments: list[Any] = []
        self._between: list[Any] = []
        self._repeats = inputs.repeats
        self.input_bytes = sum(array.nbytes for array in given if array is not None) * inputs.repeats
        self.place()

    def place(self) -> None:
        """Copy the arguments to other memory."""
        self.release()
        gaps = [np.ones(int(self._random.integers(1, _GAP_BYTES)), np.uint8) for _ in range(_GAPS)]
        # in the memory where the arguments will be
        self._between = gaps if self._device == "cpu" else [self._backend.to_device(gap, self._device) for gap in gaps]
        self._arguments = [None if array is None else self._placed(array) for array in self._given]
        self._backend.wait([argument for argument in self._arguments if argument is not None])

    def _placed(self, array: np.ndarray) -> Any:
        # a copy: a framework may share a NumPy array's memory
        value = self._backend.to_device(array.copy(), self._device)
        return value if self._repeats == 1 else self._backend.repeated(value, self._repeats)

    def release(self) -> None:
        """Free the arguments and cached memory of calls. `place` restores the arguments."""
        self._arguments, self._between = [], []
        self._backend.release(self._device)

    def peak_bytes(self) -> int | None:
        """Peak memory of a call beside its arguments; None where the system does not report it."""
        if self._device != "cpu":
            return self._backend.peak_bytes(self._function, self._arguments, self._parameters, self._device)
        memory = ProcessMemory()
        memory.start()
        self()
        return memory.stop()

    def launch(self) -> Any:
        """Call it; on an accelerator the result may not be there yet."""
        return self._function(*self._arguments, **self._parameters)

    def __call__(self) -> Any:
        return self._backend.wait(self.launch())


class CaseRunner:
    """Runs cases on one framework, and holds those that are ready to be timed."""

    def __init__(
        self, backend: Any, autos: dict[str, str | None], device: str, folder: Path, send: Callable[..., None]
    ) -> None:
        """autos: the variant that "auto" picks, by problem."""
        self.backend, self.device, self.folder, self.send = backend, device, folder, send
        self.gate = ParityGate(backend, autos, device, folder)
        self._held: dict[str, _Call] = {}
        self._function: Callable[..., Any] | None = None  # of the last cold case
        self._first: _Call | None = None  # its call, for `device_time`
        self._random = np.random.default_rng()

    def cold(self, case: dict[str, Any], measure_memory: bool, early_calls: bool) -> dict[str, Any]:
        """The first call with caches empty in memory and on disk. Raises Wrong."""
        backend, inputs = self.backend, self.gate.inputs(case["input"])
        self._function = self._first = None
        backend.forget_compiled()
        with backend.compiler_cache(self._cache(case)), backend.precision(case["dtype"]):
            # once per machine, not per process or shape, so it is shown separately
            built, _ = timed(lambda: backend.build(case["variant"], case["dtype"], self.device))
            self._function = self._made(case, inputs)
            call = _Call(backend, self._function, case, inputs)
            facts = self._first_call(case, call, draw=True)
            facts["cold"] = facts.pop("first")
            second, result = timed(call)
            facts["output_bytes"] = result.nbytes
            del result
            early = [second]
            while early_calls and len(early) < _EARLY_CALLS and sum(early) < _EARLY_SECONDS:
                early.append(timed(call)[0])
            if measure_memory:
                backend.release(self.device)  # so that memory kept for the next call counts too
                facts["peak_bytes"] = call.peak_bytes()
        if self.device != "cpu":
            call.release()
            self._first = call
        return facts | {
            "build_seconds": built, "early_seconds": upper_median(early), "input_bytes": call.input_bytes,
            "work": inputs.work,
        }  # fmt: skip

    def new_shape(self, case: dict[str, Any]) -> dict[str, Any]:
        """Call the function of the last cold case on a shape that it has not seen."""
        assert self._function is not None, "a cold case goes before"
        backend = self.backend
        with backend.compiler_cache(self._cache(case)), backend.precision(case["dtype"]):
            call = _Call(backend, self._function, case, self.gate.inputs(case["input"]).resized)
            with backend.compile_times() as split:
                seconds, _ = timed(call)
        return {"new_shape": {"seconds": seconds, **asdict(split)}}

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        """The first call of this process, with the caches on disk that an earlier one filled; then warm-up calls. Keeps
        the case for `sample`. Raises Wrong."""
        backend, inputs = self.backend, self.gate.inputs(case["input"])
        with backend.compiler_cache(self._cache(case)), backend.precision(case["dtype"]):
            backend.build(case["variant"], case["dtype"], self.device)
            call = _Call(backend, self._made(case, inputs), case, inputs)
            facts = self._first_call(case, call)
            settled = warm_up(call)
        call.release()
        self._held[_key(case)] = call
        return {
            "warm": facts["first"],
            "warm_up": {"calls": settled.calls, "stable": settled.stable},
            "call_seconds": settled.seconds,
        }

    def fits(self, case: dict[str, Any], repeats: int) -> dict[str, Any]:
        """Whether an accelerator has memory for a case with so many repeats of its input."""
        backend, inputs = self.backend, replace(self.gate.inputs(case["input"]), repeats=repeats)
        try:
            with backend.compiler_cache(self.folder / "compiled" / "fits"), backend.precision(case["dtype"]):
                backend.build(case["variant"], case["dtype"], self.device)
                _Call(backend, self._made(case, inputs), case, inputs)()
        except Exception as error:
            if not backend.is_out_of_memory(error):
                raise
            return {"fits": False}
        return {"fits": True}

    def device_time(self, case: dict[str, Any]) -> dict[str, Any]:
        """Seconds on an accelerator, caches flushed, of some calls of a case that is held or was the last cold one.

        Where the framework's profiler does not work, the reason. Profiling may slow what follows.
        """
        call = self._held.get(_key(case), self._first)
        assert call is not None, "a cold case goes before"
        known, problem = [], "the profiler saw nothing"
        with self.backend.precision(case["dtype"]):
            call.place()
            try:
                call()
                for _ in range(_DEVICE_CALLS):
                    self.backend.flush(self.device)
                    seconds = self.backend.device_seconds(call.launch, self.device)
                    known += [] if seconds is None else [seconds]
            except Exception as error:
                print(traceback.format_exc(), file=sys.stderr)
                problem = f"{type(error).__name__}: {error}"
            call.release()
        return {"on_device": known} | ({} if known else {"no_device_time": problem})

    def sample(self, case: dict[str, Any], calls: int, lead: int, rehearse: bool) -> dict[str, Any]:
        """A block of timed calls, after untimed ones that bring the case back into the caches of the CPU.

        The results of up to `lead` untimed calls are kept during the block, so that its own results use other memory
        than those of the block before. The result of one more, if `rehearse`, is freed, so that the timed calls can
        reuse its memory.
        """
        call = self._held[_key(case)]
        with self.backend.precision(case["dtype"]):
            call.place()
            kept = [call() for _ in range(int(self._random.integers(1, lead + 1)) if lead else 0)]
            if rehearse or self.device != "cpu":  # where `release` freed more than arguments
                call()
            seconds = [self._timed(call) for _ in range(calls)]
            del kept
            call.release()
        return {"seconds": seconds}

    def _timed(self, call: Callable[[], Any]) -> float:
        """Wall time of a call with an accelerator's caches flushed: a model would not leave arguments there either."""
        self.backend.flush(self.device)
        return timed(call)[0]

    def _made(self, case: dict[str, Any], inputs: Inputs) -> Callable[..., Any]:
        chosen = [case[name] for name in ("problem", "variant", "pass_name")]
        return self.backend.call_of(*chosen, inputs.options, compiled=case["compiled"])

    def _first_call(self, case: dict[str, Any], call: _Call, draw: bool = False) -> dict[str, Any]:
        """Time the call, report it to the parent at once, and judge the result."""
        with self.backend.compile_times() as split:
            seconds, result = timed(call)
        found: dict[str, Any] = {}
        self.send(event="first_call", seconds=seconds)
        on_host, verdict, gate = self._judged(case, result)
        if not verdict.passed:
            raise Wrong(verdict.text, gate)
        if draw:
            found["picture"] = PROBLEMS[case["problem"]].picture(on_host, self.gate.inputs(case["input"]))
        return {"first": {"seconds": seconds, **asdict(split)}, "gate": gate, **found}

    def _judged(self, case: dict[str, Any], result: Any) -> tuple[np.ndarray, Verdict, dict[str, Any]]:
        """The result on the host, the verdict, and what the record keeps of it.

        Where pairs are repeated, the smallest and the largest of the repeated numbers are judged.
        """
        backend, repeats = self.backend, self.gate.inputs(case["input"]).repeats
        parts = (result,) if repeats == 1 else backend.extremes(result, repeats)
        judged = [(on_host := backend.to_numpy(part), *self.gate.judge(case, on_host)) for part in parts]
        return max(judged, key=lambda one: (not one[1].passed, one[1].error is None, one[1].error))

    def _cache(self, case: dict[str, Any]) -> Path:
        """The compilers' cache for this case, shared by all processes of the run."""
        return self.folder / "compiled" / _key(case)


def _key(case: dict[str, Any]) -> str:
    fields = ("framework", "variant", "pass_name", "compiled", "input", "label")
    return "-".join(str(case[name]) for name in fields)
