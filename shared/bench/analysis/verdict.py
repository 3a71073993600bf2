"""Comparisons of the two frameworks: variant by variant, and each framework's fastest case against the other's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shared.bench.analysis.estimates import Cost, Estimate, break_even, time_ratio
from shared.bench.cases import FRAMEWORKS, Case
from shared.bench.record import Record, Result
from shared.bench.units import duration, near_one, ratio_interval
from shared.variants import SAME_CODE

# a ratio whose interval is within this factor of 1 is called "same", whatever side of 1 it is on
SAME = 1.03


@dataclass(frozen=True)
class Comparison:
    """Two cases, the faster one first."""

    faster: Result
    slower: Result
    ratio: Estimate | None  # time of the slower over the faster, from paired rounds; None if they share none

    @classmethod
    def of(cls, one: Result, other: Result) -> "Comparison":
        """Compare two measured cases."""
        first, second = sorted((one, other), key=lambda result: result.time.value)
        ratio = time_ratio(second.blocks, first.blocks)
        if ratio is not None and ratio.value < 1:  # paired rounds know better than the medians
            first, second = second, first
            ratio = time_ratio(second.blocks, first.blocks)
        return cls(first, second, ratio)

    @property
    def outcome(self) -> str:
        """One of "faster", "same" and "not decided"."""
        ratio = self.ratio
        if ratio is None or math.isnan(ratio.low):
            return "not decided"
        if ratio.low >= 1 / SAME and ratio.high <= SAME:
            return "same"
        return "not decided" if ratio.holds(1.0) else "faster"

    @property
    def text(self) -> str:
        """Short, for a table cell."""
        if self.ratio is None:
            return "never in the same round"
        name = FRAMEWORKS[self.faster.case.framework]
        if math.isnan(self.ratio.low):
            return f"{name} {near_one(self.ratio.value)}× in one process"
        told = {"faster": f"{name} {near_one(self.ratio.value)}×"}.get(self.outcome, self.outcome)
        return f"{told} ({ratio_interval(self.ratio)})"


@dataclass(frozen=True)
class Verdict:
    """A pass on an input. `best` has each framework's fastest case, the faster framework first."""

    device: str
    input: str
    pass_name: str
    best: tuple[Result, ...]
    comparison: Comparison | None  # of the two best
    others: tuple[Result, ...]  # every measured case, the best included
    lost: tuple[Result, ...]  # those that are wrong, failed or over a limit

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if not self.best:
            return "no case was measured."
        first = _described(self.best[0])
        if self.comparison is None:
            return f"only {first} was measured, so there is nothing to compare."
        second, ratio = _described(self.best[1]), self.comparison.ratio
        if ratio is None:
            return f"{first} and {second} were never timed in the same round, so they cannot be compared."
        factor = f"{near_one(ratio.value)} times as fast"
        if math.isnan(ratio.low):
            return f"not decided: {first} was {factor} as {second} in one process; other processes may differ."
        interval = f"95% interval {ratio_interval(ratio)}"
        if self.comparison.outcome == "faster":
            return f"{first} was {factor} as {second}; {interval}."
        outcome = {"same": f"the same within ±{SAME - 1:.0%}"}.get(self.comparison.outcome, "not decided")
        name = FRAMEWORKS[self.best[0].case.framework]
        return f"{outcome}: {first} and {second}; {name} {factor}, {interval}."

    @property
    def details(self) -> list[str]:
        """What a reader must know about it, a sentence each."""
        words = {"wrong": "was wrong", "failed": "failed", "limit": "was not completed"}
        found = [f"Left out: {r.case.name} {words[r.status]} ({r.reason})." for r in self.lost]
        variants = {result.case.variant for result in self.best}
        if len(self.best) == 2 and len(variants) == 1 and variants <= set(SAME_CODE):
            code = "native kernel" if self.device == "cpu" else "kernels"
            found.append(f"Both ran the same {code}; what differs is what each framework does around it.")
        return found


def by_variant(results: Sequence[Result]) -> dict[str, Comparison]:
    """The variants that both frameworks have measured, compared."""
    own: dict[str, dict[str, Result]] = {}
    for result in results:
        if result.measured:
            own.setdefault(result.case.variant, {}).setdefault(result.case.framework, result)
    return {variant: Comparison.of(*pair.values()) for variant, pair in own.items() if len(pair) == 2}


def break_even_text(comparison: Comparison, first_seconds: Sequence[float | None]) -> str:
    """Which of two cases takes the least total time up to which call. first_seconds: of the faster, of the slower."""
    fast, slow = first_seconds
    if fast is None or slow is None:
        return "–"
    faster, slower = (FRAMEWORKS[r.case.framework] for r in (comparison.faster, comparison.slower))
    if comparison.outcome == "not decided" or comparison.ratio is None:
        return "not decided"
    if comparison.outcome == "same":
        return f"{faster if fast <= slow else slower} from call 1"
    each = comparison.faster.time.value
    calls = break_even(Cost(fast, each), Cost(slow, each * comparison.ratio.value))
    return f"{faster} from call {float(f'{calls or 1:.2g}'):,.0f}"  # two significant figures: no more are known


def _described(result: Result) -> str:
    return f"{FRAMEWORKS[result.case.framework]} ({result.case.variant}, {duration(result.time.value)} per call)"


def deciding(record: Record) -> list[Estimate]:
    """What must be known precisely: each verdict's ratio, or with one framework its fastest time."""
    found = []
    for verdict in verdicts(record):
        ratio = verdict.comparison.ratio if verdict.comparison else None
        if verdict.best:
            found.append(ratio or verdict.best[0].time)
    return found


def contenders(record: Record) -> set[Case]:
    """The cases that may still be their framework's fastest of a verdict: more times of others decide nothing."""
    kept: set[Case] = set()
    for verdict in verdicts(record):
        best = {result.case.framework: result for result in verdict.best}
        for result in verdict.others:
            ratio = time_ratio(result.blocks, best[result.case.framework].blocks)
            if ratio is None or not ratio.low > 1:
                kept.add(result.case)
    return kept


def verdicts(record: Record) -> list[Verdict]:
    """One for each pass and input of the run."""
    settings = record.settings
    if settings is None:
        return []
    return [
        _verdict(record, settings.device, name, pass_name) for pass_name in settings.passes for name in record.inputs
    ]


def _verdict(record: Record, device: str, name: str, pass_name: str) -> Verdict:
    tried = [r for r in record.results if (r.case.input, r.case.pass_name) == (name, pass_name)]
    known, lost = [r for r in tried if r.measured], [r for r in tried if r.status != "ok"]
    fastest: dict[str, Result] = {}
    for result in known:
        best = fastest.setdefault(result.case.framework, result)
        if result.time.value < best.time.value:
            fastest[result.case.framework] = result
    best, comparison = tuple(fastest.values()), None
    if len(best) == 2:
        comparison = Comparison.of(*best)
        best = (comparison.faster, comparison.slower)
    return Verdict(device, name, pass_name, best, comparison, tuple(known), tuple(lost))
