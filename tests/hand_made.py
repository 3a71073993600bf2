"""Cases, outcomes and records made by hand, for the tests of what is printed and written."""

from typing import Any

import numpy as np

from shared.bench.plan import Case, Settings
from shared.bench.record import Record, Result
from shared.bench.workers import Outcome
from shared.problems import Inputs

WORK = 2_000_000  # cells that each case says it did


def case(framework: str, variant: str, pass_name: str = "score", compiled: bool = True, single: bool = False) -> Case:
    return Case(framework, variant, pass_name, compiled, single, "smith_waterman", "cpu", "float32")


def right(
    case: Case, *steady_seconds: float, first_seconds: float = 0.5, source: str = "NumPy", error: float = 0.25
) -> Result:
    """A case that passed its gate."""
    details = {
        "gate": {"text": "", "error_of_allowed": error, "source": source, "pairs": 4},
        "first_seconds": first_seconds,
        "steady_seconds": list(steady_seconds),
        "peak_bytes": 3 * 2**20,
        "work": WORK,
    }
    return Result(case, Outcome("ok", None, details))


def ended(case: Case, status: str, reason: str, **details: Any) -> Result:
    """A case that was wrong, failed or passed the limit."""
    return Result(case, Outcome(status, reason, details))


def record(
    *results: Result, settings: Settings | None = None, frameworks: tuple[str, ...] = ("jax", "torch")
) -> Record:
    """A run on a machine of two frameworks, with one input (two in a ladder)."""
    settings = settings or Settings(input="random")
    batch = Inputs("three pairs", np.zeros((3, 6, 7), np.float32), None, {"gap": -1.0}, {"end": "any"})
    single = Inputs("one pair", np.zeros((6, 7), np.float32), None, {"gap": -1.0}, {"end": "any"})
    details = {"compiler_start_seconds": 0.05, "threads": 1, "cores": 1}
    environment = {
        "cpu": "Abacus 9",
        "python": "3.11",
        "numpy": "2.4",
        "frameworks": {name: details | {name: "1.2.3"} for name in frameworks},
    }
    return Record(
        "python compare.py",
        settings,
        {True: single, False: batch} if settings.ladder else {False: batch},
        environment,
        auto=dict.fromkeys(frameworks, "vmap"),
        results=list(results),
    )
