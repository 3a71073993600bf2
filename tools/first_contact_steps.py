"""What one framework does on a GPU for tools/first_contact.py: a process that takes steps from standard input.

    python -m tools.first_contact_steps jax|torch

JSON lines: {"do": name, ...} comes in, what became of it goes out. It asks nothing of the machine beside its framework,
Triton and NumPy.
"""

import contextlib
import functools
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from shared.alignments import ALIGNMENTS
from shared.bench.cases import Settings
from shared.bench.measure.clock import timed
from shared.problems import PROBLEMS
from shared.problems.alignment_gate import judge
from shared.problems.alignment_reference import ReferenceResults

DEVICE = "cuda"
FUNCTIONS = tuple(ALIGNMENTS)
WITH_GAPS = tuple(name for name, alignment in ALIGNMENTS.items() if alignment.gaps)
DTYPES = ("float32", "float64")
PASSES = ("score", "marginals", "hvp")
# pairs, rows, cols: one row; one strip; several strips of all layouts, and empty pairs; the README's small batch
SHAPES = ((3, 1, 7), (5, 63, 17), (2, 600, 130), (600, 150, 33), (64, 100, 150))
# those that compare.py gives a GPU
BATCHES = ("512x512", "100x150")
TIMED_CALLS = 5
# of work before times are taken: an idle GPU has turned its clocks down
AWAKE_SECONDS = 0.3


class Steps:
    """The steps of one framework; each gives what is noted of it, or raises."""

    def __init__(self, framework: str) -> None:
        self.framework = framework
        self.backend = importlib.import_module(f"{framework}_impl.backend")

    def start(self) -> dict[str, Any]:
        """Versions, and the first number on the device."""
        problem = self.backend.device_problem(DEVICE)
        if problem:
            raise RuntimeError(problem)
        self.check()
        return self.backend.environment(DEVICE)

    def check(self) -> None:
        """Raises if the device does not work, which after a fault in a kernel it does no more in this process."""
        array = self.backend.to_device(np.arange(4, dtype=np.float32), DEVICE)
        assert self.backend.to_numpy(self.backend.wait(array + 1)).tolist() == [1, 2, 3, 4]

    def smallest_kernel(self) -> dict[str, Any]:
        """1024 numbers, one exponential of each."""
        values = np.linspace(-2, 2, 1024, dtype=np.float32)
        error = float(np.abs(self._exponentials(values) / 2.0 ** -values.astype(np.float64) - 1).max())
        if error > 1e-6:
            raise AssertionError(f"2 ** -x is off by {error:.1e} of its value")
        return {"worst_error": error}

    def ex2(self) -> dict[str, Any]:
        """Of whole numbers powers of 2 have to be exact: the kernels scale by them, in long chains.

        Noted is what becomes of the smallest numbers, which may be flushed to 0.
        """
        noted: dict[str, Any] = {}
        for dtype in DTYPES:
            limits = np.finfo(dtype)
            whole = np.arange(limits.minexp - limits.nmant - 1, limits.maxexp + 1)
            with np.errstate(over="ignore"):
                wanted = np.ldexp(np.ones((), dtype), whole)
            padded = np.zeros(-(-len(whole) // 1024) * 1024, dtype)
            padded[: len(whole)] = -whole
            got = self._exponentials(padded)[: len(whole)]
            wrong = got != wanted
            noted[dtype] = {
                "subnormal_exact": not wrong[whole < limits.minexp].any(),
                "subnormal_flushed": not got[whole < limits.minexp].any(),
                "largest_is_inf": bool(np.isinf(got[-1])),
            }
            inside = wrong & (whole >= limits.minexp)
            if inside.any():
                at = int(inside.argmax())
                raise AssertionError(f"{dtype}: 2 ** {whole[at]} is {got[at]!r}, {int(inside.sum())} are not exact")
        return noted

    def _exponentials(self, values: np.ndarray) -> np.ndarray:
        calls = importlib.import_module(f"{self.framework}_impl.kernels.triton_binding")
        with self.backend.precision(str(values.dtype)):
            result = calls.exponentials(self.backend.to_device(values, DEVICE), 1, each=1)
            return self.backend.to_numpy(self.backend.wait(result))

    def right(
        self,
        problem: str,
        variant: str,
        pass_name: str,
        dtype: str,
        shapes: list[list[int]],
        by_position: bool = False,
    ) -> dict[str, Any]:
        """Whether a pass on the device is what the CPU's float64 gives, by the tolerances of all tests.

        by_position: with all gaps by position.
        """
        errors = {}
        for shape in shapes:
            arrays = ragged(problem, *shape)
            wanted = {name: self._wanted(problem, name, by_position, *shape) for name in {"score", pass_name}}
            got = self._computed(DEVICE, problem, variant, pass_name, dtype, *arrays, by_position=by_position)
            errors["x".join(map(str, shape))] = worst_error(problem, pass_name, dtype, got, wanted, arrays)
        return {"worst_of_what_is_allowed": errors}

    def best(self, problem: str, dtype: str, shapes: list[list[int]]) -> dict[str, Any]:
        """Whether the best alignments on the device are the CPU's, cell by cell: whole numbers are not rounded."""
        for shape in shapes:
            similarity, lengths, _ = ragged(problem, *shape)
            whole = np.rint(similarity).astype(dtype)
            found, wanted = (self._best(device, problem, whole, lengths) for device in (DEVICE, "cpu"))
            for name, own, other in zip(("scores", "matches"), found, wanted, strict=True):
                wrong = (own != other).reshape(len(whole), -1).any(axis=1)
                if wrong.any():
                    raise AssertionError(
                        f"{name} of {int(wrong.sum())} pairs of {len(whole)} are not the CPU's, {shape}"
                    )
        return {}

    def _best(self, device: str, problem: str, similarity: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
        package = importlib.import_module(f"{self.framework}_impl")
        with self.backend.precision(str(similarity.dtype)):
            given = self.backend.to_device(similarity, device)
            results = package.best_alignment(getattr(package, problem), given, lengths)
            return [self.backend.to_numpy(self.backend.wait(result)) for result in results]

    @functools.cache  # noqa: B019 - there is one of these objects in a process
    def _wanted(self, problem: str, pass_name: str, by_position: bool, *shape: int) -> np.ndarray:
        arrays = ragged(problem, *shape)
        with self._on_cpu():
            return self._computed("cpu", problem, "fused", pass_name, "float64", *arrays, by_position=by_position)

    def time(self, problem: str, variant: str, pass_name: str, batch: str) -> dict[str, Any]:
        """Seconds of a call, by the device's clock and by the wall's, with caches flushed; and cells per second.

        batch: one of BATCHES.
        """
        inputs = inputs_of(problem)[batch]
        noted = self._timed(inputs, problem, variant, pass_name)
        self.backend.release(DEVICE)
        if self.framework == "torch":  # what it keeps for later calls, the other framework needs: most of the GPU's
            sys.modules["torch"].cuda.empty_cache()
        if None in noted["device_seconds"]:
            raise RuntimeError(f"no device time; by the wall's clock {min(noted['wall_seconds']):.3g} s")
        return noted | {"gcups": inputs.work / float(np.median(noted["device_seconds"])) / 1e9}

    def _timed(self, inputs: Any, problem: str, variant: str, pass_name: str) -> dict[str, Any]:
        """The seconds. What they took memory for is free when they are known."""
        arguments = [
            self.backend.wait(self.backend.repeated(self.backend.to_device(array, DEVICE), inputs.repeats))
            for array in inputs.arguments(pass_name)
        ]
        values = {name: np.asarray(value, np.float32) for name, value in inputs.parameters.items()}
        given = {name: self.backend.to_device(value, DEVICE) for name, value in values.items()}  # not in every call
        launch = functools.partial(self._function(problem, variant, pass_name), *arguments, **given)

        def wall_seconds() -> float:
            return timed(lambda: self.backend.wait(launch()))[0]

        noted: dict[str, Any] = {"first_call_seconds": wall_seconds(), "wall_seconds": [], "device_seconds": []}
        end = time.monotonic() + AWAKE_SECONDS
        while time.monotonic() < end:
            wall_seconds()
        for _ in range(TIMED_CALLS):
            self.backend.flush(DEVICE)
            noted["wall_seconds"].append(wall_seconds())
        for _ in range(TIMED_CALLS):  # after the others: to look may slow what comes then
            self.backend.flush(DEVICE)
            noted["device_seconds"].append(self.backend.device_seconds(launch, DEVICE))
        return noted

    def _function(self, problem: str, variant: str, pass_name: str) -> Callable[..., Any]:
        score = self.backend.function(problem, variant, dict(ALIGNMENTS[problem].options))
        return self.backend.pass_function(pass_name, score, compiled=variant not in self.backend.uncompiled_variants)

    def _computed(
        self,
        device: str,
        problem: str,
        variant: str,
        pass_name: str,
        dtype: str,
        *arrays: np.ndarray,
        by_position: bool = False,
    ) -> np.ndarray:
        similarity, lengths, vector = arrays
        parameters: dict[str, Any] = dict(ALIGNMENTS[problem].parameters)
        with self.backend.precision(dtype):
            given = [self.backend.to_device(similarity.astype(dtype), device), lengths]
            if pass_name == "hvp":
                given.append(self.backend.to_device(vector.astype(dtype), device))
            for name, costs in (costs_of(problem, similarity) if by_position else {}).items():
                parameters[name] = self.backend.to_device(costs.astype(dtype), device)
            function = self._function(problem, variant, pass_name)
            return self.backend.to_numpy(self.backend.wait(function(*given, **parameters)))

    @contextlib.contextmanager
    def _on_cpu(self) -> Iterator[None]:
        """JAX chooses kernels for what is traced by the default device."""
        if self.framework != "jax":
            yield
            return
        import jax

        with jax.default_device(jax.devices("cpu")[0]):
            yield


@functools.cache
def inputs_of(problem: str) -> dict[str, Any]:
    """Those that compare.py gives a GPU, by name; drawn once, for all rows that are timed."""
    return PROBLEMS[problem].inputs(Settings(problem=problem, device=DEVICE, input="random"))


def ragged(problem: str, pairs: int, rows: int, cols: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Similarities with NaN and infinities in the padding, lengths (one pair is full, one empty), and a vector."""
    random = np.random.default_rng([pairs, rows, cols, len(problem)])
    similarity = (2 * random.normal(size=(pairs, rows, cols))).astype(np.float32)
    lengths = random.integers(0, (rows + 1, cols + 1), size=(pairs, 2)).astype(np.int32)
    lengths[0], lengths[-1] = (rows, cols), (0, cols)
    i, j = np.indices((rows, cols))
    outside = (i >= lengths[:, :1, None]) | (j >= lengths[:, 1:, None])
    poison = np.array([np.nan, np.inf, -np.inf], np.float32)[(i + j) % 3]
    vector = random.normal(size=similarity.shape).astype(np.float32)
    return np.where(outside, poison, similarity), lengths, np.where(outside, poison, vector)


def costs_of(problem: str, similarity: np.ndarray) -> dict[str, np.ndarray]:
    """Gaps by position, around what they usually are, with NaN in the padding."""
    random = np.random.default_rng(similarity.shape)
    usual = {name: ALIGNMENTS[problem].parameters[name] for name in ALIGNMENTS[problem].gaps}
    drawn = {name: (value + random.normal(size=similarity.shape)).astype(np.float32) for name, value in usual.items()}
    return {name: np.where(np.isfinite(similarity), own, np.nan).astype(np.float32) for name, own in drawn.items()}


def worst_error(
    problem: str,
    pass_name: str,
    dtype: str,
    got: np.ndarray,
    wanted: dict[str, np.ndarray],
    arrays: tuple[np.ndarray, ...],
) -> float:
    """As a part of what the gate of the comparison allows; raises AssertionError with its words."""
    scores, (similarity, lengths, _) = wanted["score"], arrays
    # what a cell holds is hardly ever more than the score; all gaps, in a global alignment, are
    largest = np.maximum(np.abs(scores), lengths.sum(1) if problem == "needleman_wunsch" else 1.0)
    matrices: dict[str, Any] = {name: wanted.get(name) for name in ("marginals", "hvp", "path")}
    expected = ReferenceResults(np.arange(len(scores)), lengths, False, largest, scores, **matrices)
    temperature = ALIGNMENTS[problem].parameters["temperature"]
    verdict = judge(pass_name, got, expected, dtype, temperature, similarity.shape)
    if not verdict.passed:
        raise AssertionError(verdict.text)
    return round(verdict.error or 0.0, 6)


def serve(framework: str) -> None:
    """Do the steps that come on standard input until it is closed."""
    # the answers keep the real standard output; whatever a library prints goes to standard error
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    steps: Steps | None = None
    with contextlib.suppress(Exception):  # while kernels are compiled; what is wrong the first step says
        steps = Steps(framework)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            steps = steps or Steps(framework)
            answer = {"status": "ok"} | (getattr(steps, command.pop("do"))(**command) or {})
        except Exception as error:
            traceback.print_exc()
            answer = {"status": "failed", "reason": f"{type(error).__name__}: {error}", "device_works": _works(steps)}
        channel.write(json.dumps(answer) + "\n")
        channel.flush()


def _works(steps: Steps | None) -> bool:
    try:
        assert steps is not None
        steps.check()
    except Exception:
        return False
    return True


if __name__ == "__main__":
    serve(sys.argv[1])
