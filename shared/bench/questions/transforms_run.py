"""How `transforms` is measured: its batch, and one transform after the other, each framework in its own worker."""

import importlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, cast

import numpy as np

from shared.bench.cases import Case, Settings
from shared.bench.record import Result
from shared.bench.run.context import Run
from shared.bench.worker.case_runner import CaseRunner
from shared.checks import CannotDifferentiate
from shared.problems import problem_of
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.alignments import AlignmentProblem
from shared.problems.own_file import first_line
from shared.problems.problem import UnusableInput
from shared.transforms import TRANSFORMS, Given, fault, on_device, wanted
from shared.variants import FASTEST, variant_names

SIZE, PAIRS = (2, 3), 4  # what composes does not depend on them; the loops that are written out compile faster
# what becomes of a transform on a rung
RIGHT, WRONG, RAISES, LIMIT, FAILED = "right", "wrong", "raises", "limit", "failed"


def ragged_batch(settings: Settings, name: str) -> AlignmentInputs:
    """A problem's batch: a full pair, one without rows, a single cell, random lengths; NaN outside. UnusableInput."""
    problem = problem_of(name)
    if not isinstance(problem, AlignmentProblem):
        raise UnusableInput(f"transforms goes with alignments, not with {problem.name}")
    if settings.input != "random":
        raise UnusableInput(f"transforms goes with --input random, got {settings.input!r}")
    if settings.passes != ("score",):
        raise UnusableInput(f"transforms goes with --pass score, got {', '.join(settings.passes)}")
    count, (rows, cols) = settings.batch or PAIRS, settings.size or SIZE
    full = problem.inputs_of_size(replace(settings, batch=count), (rows, cols))
    drawn = np.random.default_rng(settings.seed).integers(1, (rows + 1, cols + 1), size=(count, 2))
    lengths = np.array([(rows, cols), (0, cols), (1, 1), *drawn], dtype=np.int32)[:count]
    row, col = np.indices((rows, cols))
    outside = (row >= lengths[:, 0, None, None]) | (col >= lengths[:, 1, None, None])
    # -2 to 2 in steps of 1/16, which bfloat16 holds exactly
    similarity = np.where(outside, np.nan, np.round(64 * full.similarity - 32) / 16).astype(full.similarity.dtype)
    text = f"{name}, {count} random pairs of up to {rows} x {cols}, NaN in the padding, seed {settings.seed}"
    return replace(full, text=text, similarity=similarity, lengths=lengths)


def given_of(inputs: AlignmentInputs) -> Given:
    """The arrays of a batch: each parameter its value for the first pair, half as much again for the last.

    Gaps by position are as they are.
    """
    dtype, random = inputs.similarity.dtype, np.random.default_rng(inputs.seed)
    factors = np.linspace(1.0, 1.5, inputs.pairs)
    parameters = {name: (value * factors).astype(dtype) for name, value in inputs.parameters.items()}
    cotangent = random.uniform(0.5, 1.5, inputs.pairs).astype(dtype)
    return Given(inputs.similarity, inputs.lengths, parameters | inputs.gaps, cotangent, inputs.weights)


def transforms_of(framework: str) -> list[str]:
    """The names of those that a framework has."""
    return [name for name, transform in TRANSFORMS.items() if getattr(transform, framework) is not None]


def measure_transforms(run: Run, cases: Sequence[Case], inputs: dict[str, AlignmentInputs]) -> None:
    """Every transform of every case that has no outcome yet, both frameworks at once, until the budget is spent."""
    right = {name: wanted(name, given_of(own), **own.own_options) for name, own in inputs.items()}
    for name, own in inputs.items():
        run.write(f"{name}.inputs", own)
    rungs, problems = variant_names(run.settings.problem), list(inputs)

    def place(case: Case) -> tuple[bool, int, int]:
        # what "auto" may be takes little of the time, the scans of PyTorch most
        return case.variant not in FASTEST, problems.index(case.input), rungs.index(case.variant)

    for case in cases:
        run.record.result(case)  # in the order of the plan
    lock, stopped = threading.Lock(), threading.Event()
    run.progress.ends_within(run.seconds_left)
    run.progress.begin("transforms", len(cases))
    frameworks = dict.fromkeys(case.framework for case in cases)
    with ThreadPoolExecutor(len(frameworks)) as pool:
        own = [sorted((case for case in cases if case.framework == name), key=place) for name in frameworks]
        tried = [pool.submit(_try_cases, run, each, right, lock, stopped) for each in own]
        try:
            for each in tried:
                each.result()
        except BaseException:
            stopped.set()
            while wait(tried, timeout=0.1).not_done:  # what is being tried ends at once
                run.stop()
            raise


def _try_cases(run: Run, cases: Sequence[Case], right: Any, lock: threading.Lock, stopped: threading.Event) -> None:
    """Those of one framework. right: by problem and by what a transform gives."""
    for case in cases:
        with lock:
            run.progress.step(case.title)
        result = run.record.result(case)
        outcomes = _outcomes(result)
        for name in transforms_of(case.framework):
            if outcomes.get(name, {}).get("outcome", FAILED) != FAILED:  # what failed may not fail again
                continue
            limit = min(run.settings.compile_limit, run.seconds_left)
            if limit <= 0 or stopped.is_set():
                return
            expected = right[case.input][TRANSFORMS[name].gives]
            reply = run.ask("call", case, limit=limit, function=attempt, transform=name, expected_result=expected)
            if stopped.is_set() or (reply.status == "limit" and limit < run.settings.compile_limit):
                return
            found = dict(reply.details) or {"outcome": reply.status, "text": reply.reason}
            # an error of the framework's own may leave it in a state in which the next transform fails too
            if found["outcome"] == RAISES and not found["text"].startswith(CannotDifferentiate.__name__):
                run.stop(case)
            with lock:
                outcomes[name] = found
                result.details["outcomes"] = outcomes
                _judge(result)
                run.keep()
        with lock:
            run.progress.results(run.record)


def _judge(result: "Result") -> None:
    """A case is wrong if a result of it was, and failed if a worker ended."""
    for status in (FAILED, WRONG):
        faults = [f"{name}: {own['text']}" for name, own in _outcomes(result).items() if own["outcome"] == status]
        if faults:
            result.status, result.reason = status, "; ".join(faults)


def _outcomes(result: "Result") -> dict[str, dict[str, Any]]:
    """By transform, as far as it was tried."""
    return result.details.get("outcomes", {})


def attempt(runner: CaseRunner, case: Case, transform: str, expected_result: np.ndarray) -> dict[str, Any]:
    """In a worker: what becomes of a transform, and the fault or the error."""
    backend, inputs = runner.backend, cast(AlignmentInputs, runner.gate.inputs(case.input))
    package = importlib.import_module(f"{case.framework}_impl.transformed")
    runner.build(case, inputs.options)
    backend.forget_compiled()

    def run() -> np.ndarray:
        function = backend.function(case.problem, case.variant, inputs.own_options)
        given = on_device(given_of(inputs), lambda array: backend.to_device(array, case.device))
        return backend.to_numpy(backend.wait(package.transformed(transform, function, given)))

    with runner.compilers(case, runner.folder / "compiled"):
        try:
            result = run()
        except Exception as error:
            return {"outcome": RAISES, "text": f"{type(error).__name__}: {first_line(str(error))}"[:300]}
    found = fault(TRANSFORMS[transform].gives, result, expected_result)
    return {"outcome": WRONG if found else RIGHT, "text": found}
