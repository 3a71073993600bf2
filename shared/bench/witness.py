"""What a worker gates its results against: the NumPy reference, or a float64 run that agreed with the reference."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shared.bench import files
from shared.problems import PROBLEMS, Inputs, Verdict


class Witness:
    """Keeps the inputs and the proved answers of a run, each read or computed once."""

    def __init__(self, backend: Any, autos: dict[str, str | None], device: str, folder: Path) -> None:
        """autos: what the framework picks by itself, by problem."""
        self.backend, self.autos, self.device, self.folder = backend, autos, device, folder
        self._proofs: dict[str, tuple[Any, str]] = {}

    @functools.cache  # noqa: B019 - one witness lives as long as its process
    def inputs(self, name: str) -> Inputs:
        """An input of the run."""
        return files.load_inputs(self.folder, name)

    def judge(self, case: dict[str, Any], result: np.ndarray) -> tuple[Verdict, dict[str, Any]]:
        """The verdict on a case's result, and what the record keeps of it. Of a repeated input, on one repeat."""
        problem, inputs = PROBLEMS[case["problem"]], self.inputs(case["input"])
        answer, source = self._proved(case["problem"], case["input"])
        covered = problem.covered(answer)
        verdict = problem.judge(case["pass_name"], result, answer, inputs, case["dtype"])
        kept = {
            "text": verdict.text,
            "error_of_allowed": verdict.error,
            "source": source,
            "pairs": None if covered is None else covered * inputs.repeats,
            "told": verdict.told,
        }
        return verdict, kept

    def _proved(self, name: str, input_name: str) -> tuple[Any, str]:
        """What to gate against, and its name for people."""
        if input_name not in self._proofs:
            answer = files.load_answer(name, self.folder, input_name)
            run = functools.partial(self._float64, name)
            self._proofs[input_name] = PROBLEMS[name].proved(answer, self.inputs(input_name), run)
        answer, source = self._proofs[input_name]
        return answer, source.format(auto=self.autos[name])

    def _float64(self, problem: str, pass_name: str, inputs: Inputs, given: Sequence[np.ndarray | None]) -> np.ndarray:
        """A result by the framework's own choice of a variant. given: a call's arguments by position."""
        backend = self.backend
        variant = self.autos[problem]
        with backend.precision("float64"):
            function = backend.call_of(problem, variant, pass_name, inputs.options, compiled=False)
            arguments = (None if array is None else backend.to_device(array, self.device) for array in given)
            return backend.to_numpy(backend.wait(function(*arguments, **inputs.parameters)))
