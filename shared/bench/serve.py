"""What a worker does with a case: first call, gate, steady state."""

import functools
import importlib
import json
import os
import queue
import sys
import threading
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from shared.bench import answers, files
from shared.bench.answers import Answer
from shared.bench.gate import judge
from shared.bench.measure import steady_state, timed
from shared.bench.memory import MemoryMeter
from shared.bench.plan import FRAMEWORKS, PASSES
from shared.problems import Inputs
from shared.variants import Abilities, absent_on, fastest_variant


def serve(channel: TextIO, framework: str, device: str, dtype: str, threads: int, folder: str) -> None:
    """Say hello, then run the cases that come on standard input until it is closed."""

    def send(**event: Any) -> None:
        channel.write(json.dumps(event) + "\n")
        channel.flush()

    try:
        backend = importlib.import_module(f"{framework}_impl.backend")
    except ImportError as error:
        send(event="unavailable", device_problem=False, reason=f"{FRAMEWORKS[framework]} is not installed ({error})")
        return
    problem = backend.device_problem(device)
    if problem:
        send(event="unavailable", device_problem=True, reason=problem)
        return
    used = backend.set_threads(threads)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    start, _ = timed(lambda: backend.start_compiler(device))
    absent = absent_on(device, backend.absent)
    abilities = Abilities(fastest_variant(absent), absent, backend.first_order, backend.uncompiled, backend.ready)
    send(
        event="hello",
        abilities=abilities._asdict(),
        environment=backend.environment(device) | {"threads": used, "cores": cores, "compiler_start_seconds": start},
    )
    runner = _Runner(backend, abilities.auto, device, dtype, Path(folder), send)
    for line in _lines():
        case = json.loads(line)
        try:
            with backend.empty_caches():
                runner.run(case)
        except Exception as error:  # a case that fails costs only itself
            print(traceback.format_exc(), file=sys.stderr)
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


class _Runner:
    """Runs cases on one framework; keeps the inputs and the proved answers."""

    def __init__(self, backend: Any, auto: str, device: str, dtype: str, folder: Path, send: Any) -> None:
        self.backend, self.auto, self.device, self.dtype, self.send = backend, auto, device, dtype, send
        self.folder = folder
        self.witnesses: dict[bool, Answer] = {}

    @functools.cache  # noqa: B019 - one runner lives as long as its process
    def inputs(self, single: bool) -> Inputs:
        return files.load_inputs(self.folder, single)

    @functools.cache  # noqa: B019
    def answer(self, single: bool) -> Answer:
        return answers.load(files.answer_path(self.folder, single))

    def run(self, case: dict[str, Any]) -> None:
        backend, inputs = self.backend, self.inputs(case["single"])
        with backend.precision(self.dtype):
            score = backend.function(case["problem"], case["variant"], inputs.options, case["unroll"])
            function = backend.pass_function(case["pass_name"], score, case["compiled"])
            # once for a machine, not for a process or a shape: shown by itself
            built, _ = timed(lambda: backend.build(case["variant"], self.dtype))
            call = self._call(function, case["pass_name"], inputs)
            first, result = timed(call)
            self.send(event="first_call", seconds=first)
            result = backend.to_numpy(result)
        answer, source = self._answer(case)
        temperature = inputs.parameters["temperature"]
        verdict = judge(case["pass_name"], result, answer, self.dtype, temperature, inputs.similarity.shape)
        gate = {"text": verdict.text, "error_of_allowed": verdict.error, "source": source, "pairs": len(answer.pairs)}
        if not verdict.passed:
            self.send(event="done", status="wrong", reason=verdict.text, gate=gate)
            return
        del result
        with backend.precision(self.dtype):
            # the ladder times two calls and no more: a call for memory's sake may take as long as they did
            memory = MemoryMeter(lambda: backend.peak_bytes(self.device)) if case["warm_up"] else None
            steady = steady_state(call, case["repeats"], case["warm_up"], memory)
        self.send(
            event="done",
            status="ok",
            gate=gate,
            build_seconds=built,
            first_seconds=first,
            steady_seconds=steady.seconds,
            peak_bytes=steady.peak_bytes,
            work=inputs.work,
        )

    def _call(self, function: Any, pass_name: str, inputs: Inputs) -> Any:
        """The timed call: arguments are on the device already, the result is waited for."""
        backend = self.backend
        given = [inputs.similarity, inputs.lengths, *([inputs.weights] if pass_name == "hvp" else [])]
        arguments = [None if array is None else backend.to_device(array, self.device) for array in given]
        return lambda: backend.wait(function(*arguments, **inputs.parameters))

    def _answer(self, case: dict[str, Any]) -> tuple[Answer, str]:
        """What to gate against: the NumPy reference, or a float64 run that agreed with it on the cut pairs."""
        single = case["single"]
        answer = self.answer(single)
        if not answer.is_cut:
            return answer, "NumPy"
        if single not in self.witnesses:
            self.witnesses[single] = self._witness(case["problem"], answer, self.inputs(single))
        return self.witnesses[single], f"float64 {self.auto}, itself gated by NumPy on cut pairs"

    def _witness(self, problem: str, answer: Answer, inputs: Inputs) -> Answer:
        batch = replace(inputs, similarity=answers.batched(inputs.similarity)[answer.pairs].astype(np.float64))
        passes = [name for name in PASSES if getattr(answer, name) is not None]
        weights = answers.batched(inputs.weights)[answer.pairs].astype(np.float64) if "hvp" in passes else None
        on_corners, full = (
            {name: self._float64(problem, name, replace(batch, lengths=lengths), weights) for name in passes}
            for lengths in (answer.lengths, inputs.pair_lengths[answer.pairs])
        )
        selected = answer._replace(pairs=np.arange(len(answer.pairs)))
        for name, result in on_corners.items():
            verdict = judge(name, result, selected, "float64", inputs.parameters["temperature"], batch.similarity.shape)
            if not verdict.passed:
                raise RuntimeError(f"the float64 run to gate against is itself wrong: {verdict.text}")
        # the corners' max|h| would be too strict for the full pairs; no score is larger than max|h| by much
        largest = np.maximum(answer.largest, np.abs(full["score"]))
        lengths = inputs.pair_lengths[answer.pairs]
        return answer._replace(lengths=lengths, is_cut=False, largest=largest, **full)

    def _float64(self, problem: str, pass_name: str, inputs: Inputs, weights: np.ndarray | None) -> np.ndarray:
        backend = self.backend
        with backend.precision("float64"):
            score = backend.function(problem, self.auto, inputs.options)
            function = backend.pass_function(pass_name, score, compiled=False)
            given = (inputs.similarity, inputs.lengths, *([weights] if pass_name == "hvp" else []))
            arguments = (backend.to_device(array, self.device) for array in given)
            return backend.to_numpy(backend.wait(function(*arguments, **inputs.parameters)))
