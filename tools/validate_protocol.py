"""Validates the timing protocol: an A/A test (false positives) and a power test (an injected slowdown must be found).

    python -m tools.validate_protocol [--runs N] [--power-runs N] [--json FILE]

Whole runs of the protocol compare cases with themselves, each side in worker processes of its own. It takes an hour.

A/A test: an interval of the ratio that does not contain 1 is a false positive, as at most 10 of 104 may be.
Power test: every timed call of one side takes 5 % longer; an interval above 1 is a detection, as at least 18 of 20 must
be. This takes intervals narrower than 5 %, so the cases are each framework's fastest, and each run has a long budget.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from shared.bench.cases import Case, Settings
from shared.bench.estimates import Estimate, paired_ratios, time_ratio
from shared.bench.measure.machine import machine, usable_cores
from shared.bench.questions.question import Question
from shared.bench.record import Record, Result, now
from shared.bench.report.tables import Answer
from shared.bench.run.plan import WorkerStart
from shared.bench.run.progress import Progress
from shared.bench.run.protocol import measure
from shared.bench.units import ratio_interval
from shared.file_writing import write_atomically


class Validation(Question):
    """Every case against itself; the second side's calls may be slowed down."""

    name = "validation"
    asks = "does the protocol find the differences that exist, and no others"

    def __init__(self, slowdown: float) -> None:
        slowed = (sys.executable, "-W", "ignore", "-m", "tools.slowed_worker", str(slowdown))
        self.labels = {"A": WorkerStart(), "B": WorkerStart(command=slowed if slowdown else None)}

    def deciding(self, record: Record) -> list[Estimate]:
        return [time_ratio(second.blocks, first.blocks) for first, second in sides(record)]

    def contenders(self, record: Record) -> set[Case]:
        return {result.case for result in record.results}

    def answer(self, record: Record) -> Answer:
        return Answer()


class _Test(NamedTuple):
    """Slowdown, variants, and seconds of each run."""

    slowdown: float
    variants: tuple[str, ...]
    budget: float


A_A = _Test(0.0, ("wavefront", "fused"), 100.0)
POWER = _Test(0.05, ("fused",), 450.0)
RUNS, POWER_RUNS = 13, 5
MOST_FALSE_POSITIVES, LEAST_DETECTED = 0.1, 0.9  # of all


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both tests; the exit code is 1 if one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tools.validate_protocol", description="Validate the protocol.")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of the A/A test, 8 comparisons each (default {RUNS})")
    parser.add_argument("--power-runs", type=int, default=POWER_RUNS, help=f"4 comparisons each (default {POWER_RUNS})")
    parser.add_argument("--json", type=Path, help="where to write every comparison")
    options = parser.parse_args(arguments)
    report: dict[str, Any] = {"started": now(), "environment": machine() | {"threads": len(usable_cores())}}
    report |= {"tests": {"a_a": A_A._asdict(), "power": POWER._asdict()}, "a_a": [], "power": []}
    runs = [("a_a", A_A, seed) for seed in range(options.runs)]
    runs += [("power", POWER, seed) for seed in range(options.power_runs)]
    for kind, test, seed in runs:
        report[kind] += _comparisons(test, seed)
        if options.json is not None:
            write_atomically(options.json, json.dumps(report, indent=1) + "\n")
    false_positives = [row for row in report["a_a"] if not row["low"] <= 1 <= row["high"]]
    missed = [row for row in report["power"] if row["low"] <= 1]
    detected = len(report["power"]) - len(missed)
    print(f"A/A test: {len(false_positives)} false positives in {len(report['a_a'])} comparisons")
    _print(false_positives)
    print(f"power test, {POWER.slowdown:.0%}: {detected} of {len(report['power'])} detected; missed:")
    _print(missed)
    few = len(false_positives) <= MOST_FALSE_POSITIVES * len(report["a_a"])
    return 0 if few and detected >= LEAST_DETECTED * len(report["power"]) else 1


def _print(rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        interval = ratio_interval(Estimate(row["ratio"], row["low"], row["high"]))
        print(f"  {row['case']}, seed {row['seed']}: {row['ratio']:.4f}, 95% interval {interval}")


def sides(record: Record) -> list[tuple[Result, Result]]:
    """Each measured case of label A, and its twin of label B."""
    by_case = {result.case: result for result in record.results if result.measured}
    pairs = [(result, by_case.get(replace(case, label="B"))) for case, result in by_case.items() if case.label == "A"]
    return [(first, second) for first, second in pairs if second is not None]


def _comparisons(test: _Test, seed: int) -> list[dict[str, Any]]:
    """The ratio of the second side to the first, for each case of one run."""
    settings = Settings(
        input="random", variants=test.variants, budget=test.budget, threads=len(usable_cores()), seed=seed
    )
    record = Record("python -m tools.validate_protocol", settings)
    with contextlib.closing(Progress()) as progress:
        progress.say(f"{f'power test, {test.slowdown:.0%}' if test.slowdown else 'A/A test'}, seed {seed}")
        measure(Validation(test.slowdown).plan(settings), record, progress, lambda: None)
    wrong = [f"{result.case.title}: {result.reason}" for result in record.results if not result.measured]
    if wrong:
        sys.exit("\n".join(wrong))
    rows = []
    for first, second in sides(record):
        ratio = time_ratio(second.blocks, first.blocks)
        about = {"case": replace(first.case, label="").title, "seed": seed, "seconds": first.time.value}
        rounds = [[float(f"{ratio:.5g}") for ratio in worker] for worker in paired_ratios(second.blocks, first.blocks)]
        rows.append(about | {"rounds": rounds, "ratio": ratio.value, "low": ratio.low, "high": ratio.high})
    return rows


if __name__ == "__main__":
    sys.exit(main())
