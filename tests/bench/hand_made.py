"""Cases, results and records made by hand, for the tests of what is printed, written and decided."""

import unittest.mock
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shared.bench.cases import Case, Settings
from shared.bench.estimates import Block
from shared.bench.measure.measured_code import hashes
from shared.bench.questions.question import Question
from shared.bench.record import FirstCall, Gate, InputFacts, Record, Result
from shared.bench.run.plan import Plan
from shared.problems.alignment_inputs import AlignmentInputs

WORK = 2_000_000  # cells that each case says it did


def case(framework: str, variant: str, pass_name: str = "score", compiled: bool = True, **others: Any) -> Case:
    """A case of the batch on the CPU; others: its other fields."""
    made = Case(framework, variant, pass_name, compiled, "batch", "smith_waterman", "cpu", "float32")
    return replace(made, **others)


def blocks(seconds: Sequence[float], workers: int = 1, calls: int = 1) -> list[Block]:
    """Blocks of calls: in each worker a round for each of these seconds, all calls of which take as long."""
    return [
        Block.of(worker, round_number, [value] * calls)
        for worker in range(workers)
        for round_number, value in enumerate(seconds)
    ]


def blocks_of_workers(*seconds: float, rounds: int = 5) -> list[Block]:
    """Rounds of workers of which each has a time of its own."""
    return [Block.of(worker, round_, [value]) for worker, value in enumerate(seconds) for round_ in range(rounds)]


def right(
    case: Case, *seconds: float, workers: int = 1, cold: float = 0.5, source: str = "NumPy", error: float = 0.25,
    **others: Any,
) -> Result:  # fmt: skip
    """A case that passed its gate, and took so many seconds in the rounds of each worker; others: its other fields."""
    made = Result(
        case,
        gate=Gate("", error, source, 2),
        cold=[FirstCall(cold)],
        settled=[True] * workers,
        peak_bytes=3 * 2**20,
        work=WORK,
        blocks=blocks(seconds, workers),
    )
    return replace(made, **others)


def steady(case: Case, seconds: float, **others: Any) -> Result:
    """A case that took as long in every round of four workers: its intervals are as narrow as can be."""
    return right(case, *[seconds] * 5, workers=4, **others)


def ended(case: Case, status: str, reason: str, **others: Any) -> Result:
    """A case that was wrong, failed or passed the limit."""
    return Result(case, status, reason, **others)


def facts(text: str = "three pairs", shape: tuple[int, ...] = (3, 6, 7)) -> InputFacts:
    """The facts of an input that is all zeros."""
    zeros = np.zeros(shape, np.float32)
    return InputFacts.of(AlignmentInputs(text, zeros, None, parameters={"gap": -1.0}, options={"end": "any"}))


def record(
    *results: Result, settings: Settings | None = None, frameworks: tuple[str, ...] = ("jax", "torch"), **others: Any
) -> Record:
    """A finished run of this code on a machine of two frameworks, with one input (two in a ladder).

    others: its other fields.
    """
    settings = settings or Settings(input="random")
    single = {"single": facts("one pair", (6, 7))} if settings.question == "ladder" else {}
    details = {"compiler_start_seconds": [0.05, 0.01], "threads": 1, "cores": [0]}
    environment = {
        "cpu": "Abacus 9",
        "cores": 1,
        "python": "3.11",
        "numpy": "2.4",
        "git_commit": "0123456789abcdef",
        "bandwidth_bytes_per_second": 1e10,
        "frameworks": {name: details | {name: "1.2.3"} for name in frameworks},
    }
    made = Record(
        "python compare.py",
        settings,
        "2026-05-04T10:00:00+00:00",
        "2026-05-04T10:05:12+00:00",
        single | {"batch": facts()},
        environment,
        auto=dict.fromkeys(frameworks, "vmap"),
        code=hashes(settings, [result.case for result in results]),
        results=list(results),
        seconds=312.0,
    )
    return replace(made, **others)


def plan_of(question: Question, settings: Settings | None = None) -> Plan:
    """The plan of a question without its inputs, whatever is asked."""
    with unittest.mock.patch.multiple(type(question), inputs=lambda *_: {}, check=lambda *_: None):
        return question.plan(settings or Settings())
