"""The protocol on trial: does it call a difference where there is none, and does it find one that is there?

    python -m shared.bench.trial [--runs N] [--planted-runs N] [--json FILE]

Both tests let whole runs of the protocol compare cases with themselves, each side in processes of its own.

A/A: an interval that does not hold 1 is a false alarm. With the default numbers there are 104 comparisons, of which at
most 10 may be one. How wide the intervals are does not matter, so each run has a short budget.

Planted: every call of one side works 5 % longer; an interval on the right side of 1 is a find. With the default numbers
there are 20 comparisons, of which at least 18 must be one. That takes intervals narrower than 5 %, so the cases are
those that verdicts name, each framework's fastest, and each run has a long one.

About an hour.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from shared.bench.machine import machine, usable_cores
from shared.bench.plan import Settings
from shared.bench.progress import progress_for_here
from shared.bench.record import Record, now, write_whole
from shared.bench.run import run
from shared.bench.statistics import Estimate, time_ratio
from shared.bench.text import ratio_interval
from shared.bench.verdict import sides


class _Test(NamedTuple):
    """What the runs of a kind compare, and for how many seconds each."""

    handicap: float
    variants: tuple[str, ...]
    budget: float


A_A = _Test(0.0, ("wavefront", "fused"), 100.0)
PLANTED = _Test(0.05, ("fused",), 450.0)
RUNS, PLANTED_RUNS = 13, 5
MOST_FALSE_ALARMS, LEAST_FOUND = 0.1, 0.9  # of all


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both tests; the exit code is 1 if one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m shared.bench.trial", description="The protocol on trial.")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of A/A, 8 comparisons each (default {RUNS})")
    parser.add_argument("--planted-runs", type=int, default=PLANTED_RUNS, help=f"4 each (default {PLANTED_RUNS})")
    parser.add_argument("--json", type=Path, help="where to write every comparison")
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {"started": now(), "environment": machine() | {"threads": len(usable_cores())}}
    found |= {"tests": {"a_a": A_A._asdict(), "planted": PLANTED._asdict()}, "a_a": [], "planted": []}
    runs = [("a_a", A_A, seed) for seed in range(options.runs)]
    runs += [("planted", PLANTED, seed) for seed in range(options.planted_runs)]
    for kind, test, seed in runs:
        found[kind] += _comparisons(test, seed)
        if options.json is not None:
            write_whole(options.json, json.dumps(found, indent=1) + "\n")
    alarms = [row for row in found["a_a"] if not row["low"] <= 1 <= row["high"]]
    missed = [row for row in found["planted"] if row["low"] <= 1]
    finds = len(found["planted"]) - len(missed)
    print(f"A/A: {len(alarms)} of {len(found['a_a'])} comparisons of a case with itself call a difference")
    _print(alarms)
    print(f"planted {PLANTED.handicap:.0%}: found in {finds} of {len(found['planted'])}; missed:")
    _print(missed)
    fine = len(alarms) <= MOST_FALSE_ALARMS * len(found["a_a"]) and finds >= LEAST_FOUND * len(found["planted"])
    return 0 if fine else 1


def _print(rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        interval = ratio_interval(Estimate(row["ratio"], row["low"], row["high"]))
        print(f"  {row['case']}, seed {row['seed']}: {row['ratio']:.4f}, 95% interval {interval}")


def _comparisons(test: _Test, seed: int) -> list[dict[str, Any]]:
    """One run in which every case is there twice; the ratio of the second side to the first, for each."""
    settings = Settings(
        input="random",
        variants=test.variants,
        budget=test.budget,
        threads=len(usable_cores()),
        seed=seed,
        sides=2,
        handicap=test.handicap,
    )
    record = Record("python -m shared.bench.trial")
    with progress_for_here() as progress:
        progress.say(f"{f'planted {test.handicap:.0%}' if test.handicap else 'A/A'}, seed {seed}")
        run(settings, record, progress, lambda: None)
    wrong = [f"{result.case.title}: {result.reason}" for result in record.results if not result.measured]
    if wrong:
        sys.exit("\n".join(wrong))
    rows = []
    for first, second in sides(record):
        ratio = time_ratio(second.blocks, first.blocks)
        assert ratio is not None
        about = {"case": replace(first.case, side=0).title, "seed": seed, "seconds": first.time.value}
        workers = len({block.worker for block in first.blocks})
        rows.append(about | {"workers": workers, "ratio": ratio.value, "low": ratio.low, "high": ratio.high})
    return rows


if __name__ == "__main__":
    sys.exit(main())
