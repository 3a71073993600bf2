"""The parity gate: a result is compared with the NumPy reference, or with a float64 run that agreed with it."""

import functools
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shared.bench.cases import Case
from shared.bench.record import Gate
from shared.problems import Inputs, problem_of


class Wrong(Exception):
    """A result that did not pass the parity gate."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(gate.text)
        self.gate = gate


class ParityGate:
    """Keeps the inputs and expected results of a run, each read or computed once."""

    def __init__(self, backend: Any, folder: Path) -> None:
        self.backend, self.folder = backend, folder
        self._expected_results: dict[str, tuple[Any, str]] = {}

    @functools.cache  # noqa: B019 - the gate lives as long as its process
    def inputs(self, name: str) -> Inputs:
        """An input of the run."""
        return self._stored(f"{name}.inputs")

    def _stored(self, name: str) -> Any:
        """A file of the run's folder."""
        return pickle.loads((self.folder / name).read_bytes())

    def check(self, case: Case, result: Any) -> Gate:
        """Check a result; returns what the record keeps of that. Raises Wrong.

        For a repeated input, the elementwise minimum and maximum over the copies are judged, each as one copy.
        """
        backend, inputs = self.backend, self.inputs(case.input)
        parts = (result,) if inputs.copies == 1 else backend.extremes(result, inputs.copies)
        expected, source = self._expected(case)
        problem = problem_of(case.problem)
        judge = functools.partial(problem.judge, expected=expected, inputs=inputs, dtype=case.dtype)
        verdicts = [judge(case.pass_name, backend.to_numpy(part)) for part in parts]
        verdict = max(verdicts, key=lambda one: (not one.passed, one.error is None, one.error))
        covered = problem.covered(expected)
        pairs = None if covered is None else covered * inputs.copies
        gate = Gate(verdict.text, verdict.error, source, pairs, verdict.summary)
        if not verdict.passed:
            raise Wrong(gate)
        return gate

    def _expected(self, case: Case) -> tuple[Any, str]:
        """The expected result, and its source in words."""
        auto = self.backend.abilities(case.problem, case.device).auto
        if case.input not in self._expected_results:
            problem, reference = problem_of(case.problem), self._stored(f"{case.input}.reference")
            run = functools.partial(self._float64, replace(case, variant=auto))
            self._expected_results[case.input] = problem.confirmed(reference, self.inputs(case.input), run)
        expected, source = self._expected_results[case.input]
        return expected, source.format(auto=auto)

    def _float64(self, case: Case, pass_name: str, inputs: Inputs, given: Sequence[np.ndarray | None]) -> np.ndarray:
        """A float64 result by the case's variant. given: a call's arguments by position."""
        backend = self.backend
        with backend.precision("float64"):
            function = backend.call_of(case.problem, case.variant, pass_name, inputs.options, compiled=False)
            arguments = (None if array is None else backend.to_device(array, case.device) for array in given)
            return backend.to_numpy(backend.wait(function(*arguments, **inputs.parameters)))
