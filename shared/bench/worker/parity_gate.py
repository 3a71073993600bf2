"""The parity gate: a result is compared with the NumPy reference, or with a float64 run that agreed with it."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shared.bench.run import exchange
from shared.problems import PROBLEMS, Inputs, Verdict


class ParityGate:
    """Keeps the inputs and expected results of a run, each read or computed once."""

    def __init__(self, backend: Any, autos: dict[str, str | None], device: str, folder: Path) -> None:
        """autos: the variant that "auto" picks, by problem."""
        self.backend, self.autos, self.device, self.folder = backend, autos, device, folder
        self._expected_results: dict[str, tuple[Any, str]] = {}

    @functools.cache  # noqa: B019 - the gate lives as long as its process
    def inputs(self, name: str) -> Inputs:
        """An input of the run."""
        return exchange.load_inputs(self.folder, name)

    def judge(self, case: dict[str, Any], result: np.ndarray) -> tuple[Verdict, dict[str, Any]]:
        """The verdict on a case's result, and what the record keeps of it. A repeated input is judged on one repeat."""
        problem, inputs = PROBLEMS[case["problem"]], self.inputs(case["input"])
        answer, source = self._expected(case["problem"], case["input"])
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

    def _expected(self, name: str, input_name: str) -> tuple[Any, str]:
        """The expected result, and its source in words."""
        if input_name not in self._expected_results:
            reference = exchange.load_reference(name, self.folder, input_name)
            run = functools.partial(self._float64, name)
            self._expected_results[input_name] = PROBLEMS[name].proved(reference, self.inputs(input_name), run)
        answer, source = self._expected_results[input_name]
        return answer, source.format(auto=self.autos[name])

    def _float64(self, problem: str, pass_name: str, inputs: Inputs, given: Sequence[np.ndarray | None]) -> np.ndarray:
        """A float64 result by the variant that "auto" picks. given: a call's arguments by position."""
        backend = self.backend
        variant = self.autos[problem]
        with backend.precision("float64"):
            function = backend.call_of(problem, variant, pass_name, inputs.options, compiled=False)
            arguments = (None if array is None else backend.to_device(array, self.device) for array in given)
            return backend.to_numpy(backend.wait(function(*arguments, **inputs.parameters)))
