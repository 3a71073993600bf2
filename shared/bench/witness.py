"""What a worker gates its results against: the NumPy reference, or a float64 run that agreed with the reference."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shared.bench import answers, files
from shared.bench.answers import Answer
from shared.bench.gate import Verdict, judge
from shared.bench.plan import PASSES
from shared.problems import Inputs


class Witness:
    """Keeps the inputs and the proved answers of a run, each read or computed once."""

    def __init__(self, backend: Any, auto: str, device: str, folder: Path) -> None:
        self.backend, self.auto, self.device, self.folder = backend, auto, device, folder
        self._witnesses: dict[str, Answer] = {}

    @functools.cache  # noqa: B019 - one witness lives as long as its process
    def inputs(self, name: str) -> Inputs:
        """An input of the run."""
        return files.load_inputs(self.folder, name)

    @functools.cache  # noqa: B019
    def _answer(self, name: str) -> Answer:
        return answers.load(files.answer_path(self.folder, name))

    def judge(self, case: dict[str, Any], result: np.ndarray) -> tuple[Verdict, dict[str, Any]]:
        """The verdict on a case's result, and what the record keeps of it."""
        inputs = self.inputs(case["input"])
        answer, source = self._proved(case)
        temperature = inputs.parameters["temperature"]
        verdict = judge(case["pass_name"], result, answer, case["dtype"], temperature, inputs.similarity.shape)
        kept = {"text": verdict.text, "error_of_allowed": verdict.error, "source": source, "pairs": len(answer.pairs)}
        return verdict, kept

    def _proved(self, case: dict[str, Any]) -> tuple[Answer, str]:
        """What to gate against, and its name for people."""
        name = case["input"]
        answer = self._answer(name)
        if not answer.is_cut:
            return answer, "NumPy"
        if name not in self._witnesses:
            self._witnesses[name] = self._float64_answer(case["problem"], answer, self.inputs(name))
        return self._witnesses[name], f"float64 {self.auto}, itself gated by NumPy on cut pairs"

    def _float64_answer(self, problem: str, answer: Answer, inputs: Inputs) -> Answer:
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
