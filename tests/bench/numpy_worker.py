"""A worker whose framework is the NumPy reference: it starts at once, compiles nothing, and fails as it is told.

    python numpy_worker.py OPTIONS FRAMEWORK DEVICE THREADS MEMORY FOLDER CONNECTION

OPTIONS is JSON. faults: dictionaries; where `do` is a command's name (or "start") and the other fields are those of its
case, `then` happens, every time or only the `nth` time in the run. wrong: the variant whose results are. copies: the
most copies of an input that an accelerator has memory for. memory: the bytes that it says it has. notes: a file that
gets a line of JSON for each call, and for what only concerns an accelerator.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy_trainer

from shared import reference
from shared.alignments import ALIGNMENTS
from shared.backends import CompileTimes, DeviceWork
from shared.bench.cases import Case
from shared.bench.worker import commands, main
from shared.bench.worker.case_runner import CaseRunner
from shared.variants import Abilities


class TooLittleMemory(Exception):
    """An accelerator has too little memory."""


def _meet(fate: str) -> None:
    match fate:
        case "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "ends":
            print("the kernel gave up", file=sys.stderr, flush=True)
            os._exit(7)
        case "raises":
            raise ValueError("no such thing\nand more")
        case "lacks memory":
            raise TooLittleMemory
        case _:
            time.sleep({"hangs": 600, "is slow": 2.2}[fate])


class Backend:
    """The functions of `jax_impl.backend` and `torch_impl.backend`."""

    wait = staticmethod(lambda value: value)
    to_numpy = staticmethod(np.asarray)
    to_device = staticmethod(lambda array, device: array)
    device_problem = build = start_compiler = release = compiler_is_off = staticmethod(lambda *_: None)
    forget_compiled = staticmethod(lambda: None)
    settings = staticmethod(dict)
    precision = compiler_cache = staticmethod(lambda _: contextlib.nullcontext())
    set_threads = staticmethod(lambda threads: threads)
    copy = staticmethod(np.copy)
    exponentials = staticmethod(lambda value, rounds: value)
    peak_bytes = staticmethod(lambda *_: 4096)

    def __init__(
        self, name: str, wrong: str | None = None, copies: int = 1, notes: str | None = None, memory: int = 2**30
    ) -> None:
        """wrong: the variant whose results are."""
        self._name, self._wrong, self._copies, self._notes = name, wrong, copies, notes
        self.device_memory = lambda device: memory

    def abilities(self, problem: str, device: str) -> Abilities:
        return Abilities("fused" if problem in ALIGNMENTS else None)

    def environment(self, device: str) -> dict[str, str]:
        return {self._name: np.__version__} | ({} if device == "cpu" else {"gpu": "Pretended 9000"})

    def call_of(
        self, problem: str, variant: str, pass_name: str, options: Mapping[str, Any], *, compiled: bool,
        dynamic: bool = False,
    ) -> Any:  # fmt: skip
        assert not dynamic or self._name == "torch"

        def call(similarity: np.ndarray, *arrays: Any, **parameters: Any) -> np.ndarray:
            self._note("call", variant, pass_name, len(similarity))
            arguments = {**parameters, **options}
            if pass_name == "score":
                result = getattr(reference, problem)(similarity, *arrays, **arguments)
            else:
                result = reference.gradients(problem, similarity, *arrays, **arguments)["similarity"]
            return (result + (variant == self._wrong)).astype(similarity.dtype)

        return call

    @contextlib.contextmanager
    def compile_times(self) -> Iterator[CompileTimes]:
        yield CompileTimes()

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, TooLittleMemory)

    def limit_memory(self, device: str, share: float) -> None:
        self._note("share", share)

    def compile_kernels(self, kernels: list[Any], device: str) -> list[str]:
        self._note("compile", *(kernel.name for kernel in kernels))
        return ["block_forward_kernel, float32: no such thing"] if self._name == "jax" else []

    def flush(self, device: str) -> None:
        self._note("flush")

    def multiply(self) -> None:
        self._note("multiply")

    def device_work(self, launch: Callable[[], Any], device: str) -> DeviceWork:
        start = time.perf_counter()
        launch()
        return DeviceWork((time.perf_counter() - start) / 2, 14)

    def smallest_call(self, device: str) -> Callable[[], Any]:
        return lambda: None

    def repeated(self, value: np.ndarray, times: int) -> np.ndarray:
        if times > self._copies:
            raise TooLittleMemory
        return np.concatenate([value] * times)

    def extremes(self, value: np.ndarray, times: int) -> tuple[np.ndarray, np.ndarray]:
        parts = value.reshape(times, -1, *value.shape[1:])
        return parts.min(0), parts.max(0)

    def _note(self, *what: Any) -> None:
        if self._notes:
            with open(self._notes, "a") as file:
                file.write(json.dumps([self._name, *what]) + "\n")


def _plant(faults: list[dict[str, Any]], folder: Path) -> None:
    """Have commands fail."""

    def fail(asked: dict[str, Any]) -> None:
        for number, fault in enumerate(faults):
            if all(asked.get(key) == value for key, value in fault.items() if key not in ("nth", "then")):
                count = folder / f"fault-{number}"  # in a file, because the nth time may be in another process
                with count.open("a") as file:
                    file.write(".")
                if fault.get("nth") in (None, count.stat().st_size):
                    _meet(fault["then"])

    def failing(do: str) -> Callable[..., Any]:
        real = getattr(CaseRunner, do)

        def command(self: CaseRunner, case: Case, **more: Any) -> Any:
            fail({**asdict(case), "do": do})
            return real(self, case, **more)

        return command

    Backend.build = staticmethod(lambda problem, options, variant, *_: fail({"variant": variant, "do": "build"}))
    for do in ("cold", "prepare", "sample"):
        setattr(CaseRunner, do, failing(do))
    fail({"do": "start"})


if __name__ == "__main__":
    options = json.loads(sys.argv.pop(1))
    _plant(options.pop("faults", []), Path(sys.argv[-2]))
    commands._DEVICE_STREAM_BYTES, commands._EXPONENTIALS_OF = 2**16, 2**10
    sys.modules[f"{sys.argv[1]}_impl.backend"] = Backend(sys.argv[1], **options)  # pyright: ignore[reportArgumentType]
    sys.modules[f"{sys.argv[1]}_impl.learning"] = numpy_trainer
    main.main()
