"""Comparisons of the two frameworks: each one's fastest case of a pass, over all variants or of one."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shared.bench.cases import FRAMEWORKS
from shared.bench.estimates import LEAST_PROCESSES, SAME, Block, Estimate, median_time, ratio_drift, time_ratio
from shared.bench.record import Record, Result
from shared.bench.units import NOTHING, duration, ratio_interval, ratio_text
from shared.problems import problem_of

# change of a ratio from the first rounds to the last, as a factor, with which nothing is decided
_LARGE_DRIFT = 1.1


class Comparison(NamedTuple):
    """Each framework's fastest case, the faster framework first: none, one or two."""

    results: tuple[Result, ...]
    ratio: Estimate | None  # time of the second over the first, from paired rounds; None where there are not two
    drift: float | None = None  # of the ratio, from the first rounds to the last; None for too few rounds
    on_device: bool = False  # whether times are an accelerator's, or else wall time

    @property
    def outcome(self) -> str:
        """As of an Estimate; "not decided" also where the ratio drifted by more than 10 %, or half of what it says."""
        assert self.ratio is not None, "there is nothing to compare"
        allowed = math.log(_LARGE_DRIFT)
        if self.ratio.outcome == "different":
            allowed = min(allowed, abs(math.log(self.ratio.value)) / 2)
        is_adrift = self.drift is not None and abs(math.log1p(self.drift)) > allowed
        return "not decided" if is_adrift else self.ratio.outcome

    @property
    def doubts(self) -> list[str]:
        """What a reader must know about the ratio beside its interval."""
        if self.ratio is None or math.isnan(self.ratio.low):
            return []
        first, second = (self.time(result).value for result in self.results)
        doubts, quotient = [], second / first
        if self.drift is not None and (abs(self.drift) > _LARGE_DRIFT - 1 or self.outcome != self.ratio.outcome):
            doubts.append(f"drift {self.drift:+.0%}")
        if not self.ratio.low / SAME <= quotient <= self.ratio.high * SAME:
            doubts.append(f"of the medians {ratio_text(quotient)}")
        return doubts

    def time(self, result: Result) -> Estimate:
        """The time of a call by which this compares."""
        return median_time(_blocks(result, self.on_device))

    @property
    def text(self) -> str:
        """Short, for a table cell. Further lines have the interval, or the time where there is nothing to compare."""
        if not self.results:
            return NOTHING
        name = FRAMEWORKS[self.results[0].case.framework]
        if self.ratio is None:
            return f"{name} only\n({duration(self.time(self.results[0]).value)})"
        return cell(name, self.ratio, self.outcome, self.doubts)

    @property
    def sentence(self) -> str:
        """The same in words."""
        if not self.results:
            return "no case was measured."
        per_call = "of device time per call" if self.on_device else "per call"
        names = [
            f"{FRAMEWORKS[r.case.framework]} ({r.case.how}, {duration(self.time(r).value)} {per_call})"
            for r in self.results
        ]
        if self.ratio is None:
            return f"only {names[0]} was measured, so there is nothing to compare."
        texts = {"different": "", "same": f"the same within ±{SAME - 1:.0%}: ", "not decided": "not decided: "}
        faster = f"{texts[self.outcome]}{names[0]} was {ratio_text(self.ratio.value)} times as fast as {names[1]}"
        if math.isnan(self.ratio.low):
            return f"{faster} in fewer than {LEAST_PROCESSES} processes; others may differ."
        return f"{'; '.join([f'{faster}; 95% interval {ratio_interval(self.ratio)}', *self.doubts])}."


def cell(name: str, ratio: Estimate, outcome: str, doubts: Sequence[str] = ()) -> str:
    """Lines: which is faster, and the interval; where none is, that of the one with this name."""
    factor = f"{name} {ratio_text(ratio.value)}×"
    if math.isnan(ratio.low):
        return f"not decided\n({factor},\n< {LEAST_PROCESSES} processes)"
    interval = "; ".join([ratio_interval(ratio), *doubts])
    return f"{factor}\n({interval})" if outcome == "different" else f"{outcome}\n({f'{name} {interval}'.strip()})"


def known_ratio(slower: Result | None, faster: Result | None) -> Estimate | None:
    """The time of one over that of the other, from paired rounds; None where one is missing or no round is paired."""
    ratio = time_ratio(slower.blocks, faster.blocks) if slower and faster else None
    return None if ratio is None or math.isnan(ratio.value) else ratio


def compare(results: Iterable[Result], on_device: bool = False) -> Comparison:
    """Compare the fastest measured case of each framework: by wall time, or by that of an accelerator."""
    timed = [result for result in results if result.measured and _blocks(result, on_device)]
    fastest: dict[str, Result] = {}
    for result in sorted(timed, key=lambda result: median_time(_blocks(result, on_device)).value):
        fastest.setdefault(result.case.framework, result)
    best = tuple(fastest.values())
    if len(best) < 2:
        return Comparison(best, None, on_device=on_device)
    first, second = best
    comparison = compared(first, second, on_device)  # paired rounds know better than the medians
    is_reversed = comparison.ratio and comparison.ratio.value < 1
    return compared(second, first, on_device) if is_reversed else comparison


def compared(first: Result, second: Result, on_device: bool = False) -> Comparison:
    """Compare two cases, whichever is the faster one: the time of the second over that of the first."""
    drift = ratio_drift(_blocks(second, on_device), _blocks(first, on_device))
    return Comparison((first, second), time_over(second, first, on_device), drift, on_device)


def time_over(slower: Result, faster: Result, on_device: bool = False) -> Estimate:
    """The time of one case over that of another, from the rounds that both were in."""
    return time_ratio(_blocks(slower, on_device), _blocks(faster, on_device))


def _blocks(result: Result, on_device: bool) -> list[Block]:
    return result.on_device if on_device else result.blocks


def decided_on_device(record: Record, input_name: str) -> bool:
    """Whether frameworks are compared by the accelerator's time on an input: one that keeps it busy, if all have it."""
    timed = [result for result in record.results if result.measured and result.case.input == input_name]
    return record.inputs[input_name].by_device_time and bool(timed) and all(result.on_device for result in timed)


def verdicts(record: Record) -> dict[tuple[str, str], Comparison]:
    """By pass and input: each framework's fastest case."""
    keys = [(pass_name, name) for pass_name in record.settings.passes for name in record.inputs]
    return {key: compare(record.results_of(*key), decided_on_device(record, key[1])) for key in keys}


def comparisons(record: Record, input_name: str, on_device: bool = False) -> dict[str, dict[str, Comparison]]:
    """Compare the frameworks by variant and pass, in the order of the ladder, without variants that nobody measured."""
    found: dict[str, dict[str, Comparison]] = {}
    for variant in problem_of(record.settings.problem).variant_names:
        by_pass = found[variant] = {}
        for name in record.settings.passes:
            results = (result for result in record.results_of(name, input_name) if result.case.variant == variant)
            by_pass[name] = compare(results, on_device)
    return {variant: by_pass for variant, by_pass in found.items() if any(c.results for c in by_pass.values())}
