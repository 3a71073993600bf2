"""What a worker does with a case: the first call with empty caches, a new shape, the first call of a new process, and
blocks of timed calls."""

import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from shared.bench.measure import longer, timed, warm_up
from shared.bench.memory import ProcessMemory
from shared.bench.witness import Witness
from shared.problems import PROBLEMS, Inputs, Verdict

# Before each block the arguments move to other memory, with pieces of up to this many bytes in between: where memory
# happens to lie makes a call faster or slower, and a process that never moves would take its luck for a property.
_GAPS, _GAP_BYTES = 8, 2**20
# of which the time on an accelerator is taken
_DEVICE_CALLS = 3


class Wrong(Exception):
    """A result that did not pass its gate. The text is the gate's; `gate` is what the record keeps."""

    def __init__(self, text: str, gate: dict[str, Any]) -> None:
        super().__init__(text)
        self.gate = gate


class _Call:
    """A case's function with its arguments on the device; calling it waits for the result."""

    def __init__(self, backend: Any, function: Callable[..., Any], case: dict[str, Any], inputs: Inputs) -> None:
        self._backend, self._function, self._device = backend, function, case["device"]
        given = inputs.arguments(case["pass_name"])
        self._given, self._parameters = given, dict[str, Any](inputs.parameters)
        if self._device != "cpu":  # or every call would bring them there
            values = {name: np.asarray(value, case["dtype"]) for name, value in inputs.parameters.items()}
            self._parameters = {name: backend.to_device(value, self._device) for name, value in values.items()}
        self._random = np.random.default_rng()
        self._arguments: list[Any] = []
        self._between: list[Any] = []
        self._repeats = inputs.repeats
        self.input_bytes = sum(array.nbytes for array in given if array is not None) * inputs.repeats
        self.place()

    def place(self) -> None:
        """Put the arguments into memory that was not theirs before."""
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
        """Let go of the arguments, and of what calls left behind: others need the memory. `place` brings them back."""
        self._arguments, self._between = [], []
        self._backend.release(self._device)

    def peak_bytes(self) -> int | None:
        """Of memory that a call takes beside its arguments; None where the system does not tell."""
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


class Runner:
    """Runs cases on one framework, and holds those that are ready to be timed."""

    def __init__(
        self, backend: Any, autos: dict[str, str | None], device: str, folder: Path, send: Callable[..., None]
    ) -> None:
        """autos: what the framework picks by itself, by problem."""
        self.backend, self.device, self.folder, self.send = backend, device, folder, send
        self.witness = Witness(backend, autos, device, folder)
        self._held: dict[str, tuple[_Call, Callable[[], Any]]] = {}
        self._function: Callable[..., Any] | None = None  # of the last cold case
        self._first: _Call | None = None  # its call, for an accelerator's clock
        self._random = np.random.default_rng()

    def cold(self, case: dict[str, Any], is_ladder: bool) -> dict[str, Any]:
        """Everything from nothing: caches empty in memory and on disk. Raises Wrong."""
        backend, inputs = self.backend, self.witness.inputs(case["input"])
        self._function = self._first = None
        backend.forget_compiled()
        with backend.compiler_cache(self._cache(case)), backend.precision(case["dtype"]):
            # once for a machine, not for a process or a shape: shown by itself
            built, _ = timed(lambda: backend.build(case["variant"], case["dtype"], self.device))
            self._function = self._made(case, inputs)
            call = _Call(backend, self._function, case, inputs)
            facts = self._first_call(case, call, draw=True)
            facts["cold"] = facts.pop("first")
            second, result = timed(call)
            facts["output_bytes"] = result.nbytes
            del result
            # the ladder times two calls and no more: a call for memory's sake may take as long as they did
            if not is_ladder:
                backend.release(self.device)  # a call with all that it needs, also what it would keep for the next
                facts["peak_bytes"] = call.peak_bytes()
        if self.device != "cpu":
            call.release()
            self._first = call
        return facts | {
            "build_seconds": built, "second_seconds": second, "input_bytes": call.input_bytes, "work": inputs.work,
        }  # fmt: skip

    def retrace(self, case: dict[str, Any]) -> dict[str, Any]:
        """Call the function of the last cold case on a shape that it has not seen."""
        assert self._function is not None, "a cold case goes before"
        backend = self.backend
        with backend.compiler_cache(self._cache(case)), backend.precision(case["dtype"]):
            call = _Call(backend, self._function, case, self.witness.inputs(case["input"]).resized)
            with backend.compile_times() as split:
                seconds, _ = timed(call)
        return {"retrace": {"seconds": seconds, **asdict(split)}}

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        """The first call of this process with what an earlier one left in the caches on disk; then warm up, and hold
        the case for `sample`. Raises Wrong."""
        backend, inputs = self.backend, self.witness.inputs(case["input"])
        with backend.compiler_cache(self._cache(case)), backend.precision(case["dtype"]):
            backend.build(case["variant"], case["dtype"], self.device)
            call = _Call(backend, self._made(case, inputs), case, inputs)
            facts = self._first_call(case, call)
            settled = warm_up(call)
        call.release()
        self._held[_key(case)] = call, longer(call, case["handicap"]) if case["handicap"] else call
        return {
            "warm": facts["first"],
            "warm_up": {"calls": settled.calls, "stable": settled.stable},
            "call_seconds": settled.seconds,
        }

    def fits(self, case: dict[str, Any], repeats: int) -> dict[str, Any]:
        """Whether an accelerator has the memory for a case whose input is repeated so often."""
        backend, inputs = self.backend, replace(self.witness.inputs(case["input"]), repeats=repeats)
        try:
            with backend.compiler_cache(self.folder / "compiled" / "fits"), backend.precision(case["dtype"]):
                backend.build(case["variant"], case["dtype"], self.device)
                _Call(backend, self._made(case, inputs), case, inputs)()
        except Exception as error:
            if not backend.is_out_of_memory(error):
                raise
            return {"fits": False}
        return {"fits": True}

    def clock(self, case: dict[str, Any]) -> dict[str, Any]:
        """Seconds on an accelerator, of some calls of a case that is held, or of the last cold one; they find its
        caches cold.

        Where the framework's profiler does not work, why: that costs no case. To look may slow what comes after it.
        """
        call = self._held[_key(case)][0] if _key(case) in self._held else self._first
        assert call is not None, "a cold case goes before"
        known, problem = [], "nothing was seen of it"
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
        """A block of timed calls, after calls that bring the case back into the caches of the CPU.

        The results of up to `lead` of those are kept during the block, so that its own go to other memory than those of
        the block before; the result of one more, if they rehearse, is dropped, as those of timed calls are: they find
        its memory.
        """
        call, timed_call = self._held[_key(case)]
        with self.backend.precision(case["dtype"]):
            call.place()
            kept = [call() for _ in range(int(self._random.integers(1, lead + 1)) if lead else 0)]
            if rehearse or self.device != "cpu":  # what was released there is made again
                call()
            seconds = [self._timed(timed_call) for _ in range(calls)]
            del kept
            call.release()
        return {"seconds": seconds}

    def _timed(self, call: Callable[[], Any]) -> float:
        """Of a call that finds no argument in an accelerator's caches: a model would not leave them there either."""
        self.backend.flush(self.device)
        return timed(call)[0]

    def _made(self, case: dict[str, Any], inputs: Inputs) -> Callable[..., Any]:
        names = ("problem", "variant", "pass_name")
        chosen = [case[name] for name in names]
        return self.backend.call_of(*chosen, inputs.options, compiled=case["compiled"], unroll=case["unroll"])

    def _first_call(self, case: dict[str, Any], call: _Call, draw: bool = False) -> dict[str, Any]:
        """Time it, split it, tell the parent at once, and gate the result."""
        with self.backend.compile_times() as split:
            seconds, result = timed(call)
        found: dict[str, Any] = {}
        self.send(event="first_call", seconds=seconds)
        on_host, verdict, gate = self._judged(case, result)
        if not verdict.passed:
            raise Wrong(verdict.text, gate)
        if draw:
            found["picture"] = PROBLEMS[case["problem"]].picture(on_host, self.witness.inputs(case["input"]))
        return {"first": {"seconds": seconds, **asdict(split)}, "gate": gate, **found}

    def _judged(self, case: dict[str, Any], result: Any) -> tuple[np.ndarray, Verdict, dict[str, Any]]:
        """The result on the host, the verdict on it, and what the record keeps of that.

        Where pairs are repeated, the smallest and the largest of the numbers that should be the same are judged.
        """
        backend, repeats = self.backend, self.witness.inputs(case["input"]).repeats
        parts = (result,) if repeats == 1 else backend.extremes(result, repeats)
        judged = [(on_host := backend.to_numpy(part), *self.witness.judge(case, on_host)) for part in parts]
        return max(judged, key=lambda one: (not one[1].passed, one[1].error is None, one[1].error))

    def _cache(self, case: dict[str, Any]) -> Path:
        """Where the compilers keep what they make for this case, for every process of the run."""
        return self.folder / "compiled" / _key(case)


def _key(case: dict[str, Any]) -> str:
    fields = ("framework", "variant", "pass_name", "compiled", "input", "side")
    return "-".join(str(case[name]) for name in fields)
