"""Comparisons of the two frameworks: each one's fastest case of a pass, over all variants or of one."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from shared.bench.analysis.estimates import SAME, Estimate, time_ratio
from shared.bench.cases import FRAMEWORKS
from shared.bench.record import Record, Result
from shared.bench.units import NOTHING, duration, ratio_interval, ratio_text
from shared.variants import SAME_CODE


class Comparison(NamedTuple):
    """Each framework's fastest case, the faster framework first: none, one or two."""

    results: tuple[Result, ...]
    ratio: Estimate | None  # time of the second over the first, from paired rounds; None where there are not two

    @property
    def text(self) -> str:
        """Short, for a table cell. A second line has the interval, or the time where there is nothing to compare."""
        if not self.results:
            return NOTHING
        name = FRAMEWORKS[self.results[0].case.framework]
        if self.ratio is None:
            return f"{name} only\n({duration(self.results[0].time.value)})"
        if math.isnan(self.ratio.low):
            return f"not decided\n({name} {ratio_text(self.ratio.value)}× in one process)"
        first = f"{name} {ratio_text(self.ratio.value)}×" if self.ratio.outcome == "different" else self.ratio.outcome
        return f"{first}\n({ratio_interval(self.ratio)})"

    @property
    def sentence(self) -> str:
        """The same in words."""
        if not self.results:
            return "no case was measured."
        cases = [(result.case, duration(result.time.value)) for result in self.results]
        names = [f"{FRAMEWORKS[case.framework]} ({case.variant}, {time} per call)" for case, time in cases]
        if self.ratio is None:
            return f"only {names[0]} was measured, so there is nothing to compare."
        texts = {"different": "", "same": f"the same within ±{SAME - 1:.0%}: ", "not decided": "not decided: "}
        faster = f"{texts[self.ratio.outcome]}{names[0]} was {ratio_text(self.ratio.value)} times as fast as {names[1]}"
        if math.isnan(self.ratio.low):
            return f"{faster} in one process; other processes may differ."
        return f"{faster}; 95% interval {ratio_interval(self.ratio)}."

    @property
    def same_code(self) -> str | None:
        """A sentence if both ran the same machine code."""
        if len(self.results) < 2 or any(result.case.variant not in SAME_CODE for result in self.results):
            return None
        code = "native kernel" if self.results[0].case.device == "cpu" else "kernels"
        return f"Both ran the same {code}; what differs is what each framework does around it."


def compare(results: Iterable[Result]) -> Comparison:
    """Compare the fastest measured case of each framework."""
    fastest: dict[str, Result] = {}
    for result in sorted((r for r in results if r.measured), key=lambda result: result.time.value):
        fastest.setdefault(result.case.framework, result)
    best = tuple(fastest.values())
    if len(best) < 2:
        return Comparison(best, None)
    ratio = time_ratio(best[1].blocks, best[0].blocks)
    if ratio.value < 1:  # paired rounds know better than the medians
        best = (best[1], best[0])
        ratio = time_ratio(best[1].blocks, best[0].blocks)
    return Comparison(best, ratio)


def verdicts(record: Record) -> dict[tuple[str, str], Comparison]:
    """By pass and input: each framework's fastest case."""
    keys = [(pass_name, name) for pass_name in record.settings.passes for name in record.inputs]
    return {key: compare(record.results_of(*key)) for key in keys}
