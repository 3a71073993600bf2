"""The decision: for each input and pass, which framework was faster, by how much, how sure, and at what price."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shared.bench.plan import FRAMEWORKS, Case
from shared.bench.record import Record, Result
from shared.bench.statistics import Cost, Estimate, break_even, cheapest_by_calls, time_ratio
from shared.bench.text import duration, near_one, ratio_interval, size, without_winner
from shared.variants import SAME_CODE


@dataclass(frozen=True)
class Verdict:
    """What one pass on one input says. `best` holds each framework's fastest case, the faster framework first."""

    problem: str
    device: str
    input: str
    pass_name: str
    best: tuple[Result, ...]
    ratio: Estimate | None  # time of the second over that of the first, from the rounds that both were in
    others: tuple[Result, ...]  # every measured case of this pass and input, best ones included
    lost: tuple[Result, ...]  # those that were tried and are wrong, failed or over the limit

    @property
    def is_difference(self) -> bool:
        """Whether one framework was faster: two were measured, and the interval does not hold 1."""
        return self.is_sure and self.ratio is not None and not self.ratio.holds(1.0)

    @property
    def is_sure(self) -> bool:
        """Whether there were enough processes for an interval."""
        return self.ratio is not None and not math.isnan(self.ratio.low)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if not self.best:
            return "no case was measured."
        first = _described(self.best[0])
        if len(self.best) == 1:
            return f"only {first} was measured, so there is nothing to compare."
        second = _described(self.best[1])
        if self.ratio is None:
            return f"{first} and {second} were never measured in the same round, so they cannot be compared."
        if not self.is_sure:
            factor = f"{near_one(self.ratio.value)} times as fast as"
            return f"not decided: {first} was {factor} {second} in one process, and another may say otherwise."
        interval = f"95% interval {ratio_interval(self.ratio)}"
        if self.is_difference:
            return f"{first} was {near_one(self.ratio.value)} times as fast as {second}; {interval}."
        told, name = without_winner(self.ratio), FRAMEWORKS[self.best[0].case.framework]
        return f"{told} between {first} and {second}: {name} {near_one(self.ratio.value)} times as fast, {interval}."

    @property
    def price(self) -> list[str]:
        """What comes with it: the other variants, compiling, break-even and memory, a sentence each."""
        lines = (self._lost(), self._same_code(), self._on_device(), self._by_variant(), self._first_calls(),
                 self._break_even(), self._memory())  # fmt: skip
        return [line for line in lines if line]

    def _lost(self) -> str:
        """What might have been faster."""
        words = {"wrong": "was wrong", "failed": "failed", "limit": "was not done"}
        parts = [f"{_name(r)} {words[r.status]} ({r.reason})" for r in self.lost]
        return f"left out: {'; '.join(parts)}." if parts else ""

    def _same_code(self) -> str:
        variants = {result.case.variant for result in self.best}
        if len(self.best) < 2 or len(variants) > 1 or not variants <= set(SAME_CODE):
            return ""
        kernel = "native kernel" if self.device == "cpu" else "kernels"
        return f"same code: both ran the same {kernel}; what differs is what each framework does around it."

    def _on_device(self) -> str:
        """What is left of a call when the framework's own work is taken away."""
        parts = [
            f"{_name(result)} {duration(result.device_seconds)} of {duration(result.time.value)}"
            for result in self.best
            if result.device_seconds is not None
        ]
        return f"on the device itself: {'; '.join(parts)}; the rest of a call is the framework's." if parts else ""

    def _by_variant(self) -> str:
        """How the frameworks compare where both run the same variant."""
        own: dict[str, dict[str, Result]] = {}
        for result in self.others:
            own.setdefault(result.case.variant, {}).setdefault(result.case.framework, result)
        parts = []
        for variant, results in own.items():
            ranked = sorted(results.values(), key=lambda result: result.time.value)
            ratio = time_ratio(ranked[1].blocks, ranked[0].blocks) if len(ranked) == 2 else None
            if ratio is None or math.isnan(ratio.low):
                continue
            if ratio.value < 1:
                ranked, ratio = ranked[::-1], Estimate(1 / ratio.value, 1 / ratio.high, 1 / ratio.low)
            name, interval = FRAMEWORKS[ranked[0].case.framework], ratio_interval(ratio)
            faster = f"{name} {near_one(ratio.value)} times as fast"
            told = without_winner(ratio) if ratio.holds(1.0) else faster
            parts.append(f"{variant} {told} ({interval})")
        return f"variant by variant: {'; '.join(parts)}." if len(own) > 1 and parts else ""

    def _first_calls(self) -> str:
        parts = []
        for result in self.best:
            if result.cold is None:
                continue
            split = _split(result)
            known = [f"{duration(result.cold.seconds)} with empty caches{split}"]
            if result.warm_seconds is not None:
                known.append(f"{duration(result.warm_seconds)} in a new process with its caches on disk")
            if result.retrace is not None:
                known.append(f"{duration(result.retrace.seconds)} on a new shape")
            parts.append(f"{_name(result)} {', '.join(known)}")
        return f"first call: {'; '.join(parts)}." if parts else ""

    def _break_even(self) -> str:
        known = [result for result in self.others if result.cold is not None]
        if len(known) < 2:
            return ""
        order = [known[index] for _, index in cheapest_by_calls(_costs(known))]
        steps = [order[0]]
        overtakes: list[Estimate] = []  # of each step but the last, up to which call it takes the least
        for result in order[1:]:
            gain = time_ratio(steps[-1].blocks, result.blocks)
            if gain is not None and gain.low > 1:  # what is not sure makes no break-even
                calls = [_overtakes(result, steps[-1], factor) for factor in (gain.value, gain.high, gain.low)]
                steps.append(result)
                overtakes.append(Estimate(*calls))
        names = [_name(result) for result in steps]
        if len(steps) == 1:
            return (
                f"break-even: {names[0]} takes the least time in all from the first call on, with empty caches; "
                "nothing is surely faster later."
            )
        until = [
            f"{name} up to call {_rounded(calls.value)} ({_rounded(calls.low)} … {_rounded(calls.high)})"
            for name, calls in zip(names, overtakes, strict=False)
        ]
        return (
            f"break-even, first call with empty caches included: least time in all takes {', then '.join(until)}, "
            f"from then on {names[-1]}."
        )

    def _memory(self) -> str:
        known = [result for result in self.best if result.peak_bytes is not None]
        if not known:
            return ""
        peaks = ", ".join(f"{_name(r)} {size(r.peak_bytes)}" for r in known)
        sizes = f"; input {size(known[0].input_bytes)}, output {size(known[0].output_bytes)}"
        return f"peak memory of a call: {peaks}{sizes if known[0].input_bytes is not None else ''}."


def _costs(results: Sequence[Result]) -> list[Cost]:
    """What calls take, by their ratios to one of them, as the verdict has it: own medians may say otherwise."""
    base = min(results, key=lambda result: result.cost.each)
    ratios = [time_ratio(base.blocks, result.blocks) for result in results]
    return [
        result.cost if ratio is None else Cost(result.cost.first, base.cost.each / ratio.value)
        for result, ratio in zip(results, ratios, strict=True)
    ]


def _overtakes(dearer: Result, cheaper: Result, factor: float) -> float:
    """Up to which call the cheaper first call takes less time in all, if the dearer is `factor` times as fast later.

    The factor comes from blocks that lay next to each other in time; the two cases' own medians know less of it.
    """
    overtaken = Cost(cheaper.cost.first, dearer.cost.each * factor)
    return max(1, (break_even(dearer.cost, overtaken) or 1) - 1)


def _rounded(calls: float) -> str:
    """Two figures: no more are known."""
    return f"{float(f'{calls:.2g}'):,.0f}"


def _name(result: Result) -> str:
    return f"{FRAMEWORKS[result.case.framework]} {result.case.variant}"


def _split(result: Result) -> str:
    cold = result.cold
    if cold is None or cold.tracing is None or not cold.compiling:
        return ""
    return f" (tracing {duration(cold.tracing)}, compiling {duration(cold.compiling)})"


def _described(result: Result) -> str:
    name = FRAMEWORKS[result.case.framework]
    return f"{name} ({result.case.variant}, {duration(result.time.value)} per call)"


def deciding(record: Record) -> list[Estimate]:
    """What a run must know precisely: each verdict's ratio, or where only one framework was measured its time. Where
    every case runs against itself, the ratio of its two sides."""
    assert record.settings is not None, "a run that has begun has settings"
    if record.settings.sides == 1:
        return [verdict.ratio or verdict.best[0].time for verdict in verdicts(record) if verdict.best]
    ratios = [time_ratio(second.blocks, first.blocks) for first, second in sides(record)]
    return [ratio for ratio in ratios if ratio is not None]


def contenders(record: Record) -> set[Case]:
    """The cases that may still be their framework's fastest of a verdict: more times of the others decide nothing.

    Where every case runs against itself, all of them.
    """
    assert record.settings is not None, "a run that has begun has settings"
    if record.settings.sides > 1:
        return {result.case for result in record.results}
    kept: set[Case] = set()
    for verdict in verdicts(record):
        best = {result.case.framework: result for result in verdict.best}
        for result in verdict.others:
            ratio = time_ratio(result.blocks, best[result.case.framework].blocks)
            if ratio is None or not ratio.low > 1:
                kept.add(result.case)
    return kept


def sides(record: Record) -> list[tuple[Result, Result]]:
    """Each measured case and the same again."""
    seconds = {(r.case.framework, r.case.match): r for r in record.results if r.case.side == 2 and r.measured}
    firsts = [r for r in record.results if r.case.side == 1 and r.measured]
    pairs = [(first, seconds.get((first.case.framework, first.case.match))) for first in firsts]
    return [(first, second) for first, second in pairs if second is not None]


def verdicts(record: Record) -> list[Verdict]:
    """One for each input and pass of the run."""
    settings = record.settings
    assert settings is not None, "a run that has begun has settings"
    return [
        _verdict(record, name, pass_name)
        for name in record.inputs or {"": None}
        for pass_name in settings.passes
    ]  # fmt: skip


def _verdict(record: Record, name: str, pass_name: str) -> Verdict:
    assert record.settings is not None
    tried = [r for r in record.results if (r.case.input, r.case.pass_name) == (name, pass_name)]
    known, lost = [r for r in tried if r.measured], [r for r in tried if r.status != "ok"]
    fastest: dict[str, Result] = {}
    for result in known:
        best = fastest.get(result.case.framework)
        if best is None or result.time.value < best.time.value:
            fastest[result.case.framework] = result
    ranked = sorted(fastest.values(), key=lambda result: result.time.value)
    ratio = time_ratio(ranked[1].blocks, ranked[0].blocks) if len(ranked) > 1 else None
    if ratio is not None and ratio.value < 1:  # the rounds that both were in know better than the medians
        ranked = [ranked[1], ranked[0], *ranked[2:]]
        ratio = time_ratio(ranked[1].blocks, ranked[0].blocks)
    settings = record.settings
    return Verdict(settings.problem, settings.device, name, pass_name, tuple(ranked), ratio, tuple(known), tuple(lost))
