"""Comparisons of the two frameworks: each one's fastest case of a pass, over all variants or of one."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shared.bench.cases import FRAMEWORKS
from shared.bench.estimates import SAME, Block, Estimate, median_time, time_ratio
from shared.bench.record import Record, Result
from shared.bench.units import (
    NOTHING,
    duration,
    figures,
    processes_text,
    ratio_interval,
    ratio_text,
    rough_text,
)
from shared.problems import problem_of
from shared.variants import OWN_WRITTEN_FIRST, SAME_CODE, WRITTEN_FIRST

# the footnote of tables whose entries `cell` makes
READING = (
    "A cell names the faster framework, by what factor, and the factor's 95% interval. Same: the interval lies within "
    f'±{SAME - 1:.0%}. Where none is named, or "or same" is added, the factor in brackets bounds the difference'
)

# rows of what one would write first (of alignments, of an own loop), with their variants by framework
FIRST_ROW, OWN_FIRST_ROW = (" / ".join(variants.values()) for variants in (WRITTEN_FIRST, OWN_WRITTEN_FIRST))
FIRST_ROWS = {FIRST_ROW: WRITTEN_FIRST, OWN_FIRST_ROW: OWN_WRITTEN_FIRST}
HOW_WRITTEN = {**dict.fromkeys(FIRST_ROWS, "what you would write first"), "vmap": "the same loop, compiled",
               "wavefront": "tuned framework code", "fused": "one native kernel"}  # fmt: skip
# a difference below this factor is none in practice where both frameworks call the same kernel
_PRACTICAL, _NEGLIGIBLE = 1.1, "no practical difference"


class Comparison(NamedTuple):
    """The cases that are compared: by `compare` each framework's fastest, the faster first; none, one or two."""

    results: tuple[Result, ...]
    ratio: Estimate | None  # time of the second over the first; None where there are not two
    on_device: bool = False  # whether times are device time, not wall time

    def time(self, result: Result) -> Estimate:
        """The time of a call by which this compares."""
        return median_time(_blocks(result, self.on_device))

    @property
    def text(self) -> str:
        """Short, for a table cell. Further lines have the interval, or the time where there is nothing to compare."""
        if not self.results:
            return NOTHING
        names = self._names
        if self.ratio is None:
            (other,) = set(FRAMEWORKS.values()) - {*names}
            return f"{names[0]} {duration(self.time(self.results[0]).value)}\n({other} {NOTHING})"
        return cell(names, self.ratio, _NEGLIGIBLE if self.is_negligible else "")

    @property
    def outcome(self) -> str:
        """The faster framework, or in words that there is none; "" where there is nothing to compare."""
        if self.ratio is None:
            return ""
        return _NEGLIGIBLE if self.is_negligible else outcome_text(self.ratio, self._names)

    @property
    def _names(self) -> list[str]:
        return [FRAMEWORKS[result.case.framework] for result in self.results]

    @property
    def is_negligible(self) -> bool:
        """Whether both frameworks call the same kernel, and take nearly the same time."""
        is_shared = all(result.case.variant in SAME_CODE for result in self.results)
        return is_shared and self.ratio is not None and self.ratio.outcome != "same" and self.ratio.most < _PRACTICAL

    @property
    def sentence(self) -> str:
        """The comparison in words."""
        if not self.results:
            return "no case was measured."
        per_call = "of device time per call" if self.on_device else "per call"
        names = [f"{FRAMEWORKS[r.case.framework]} ({r.case.how}, {duration(self.time(r).value)} {per_call})"
                 for r in self.results]  # fmt: skip
        if self.ratio is None:
            return f"only {names[0]} was measured, so there is nothing to compare."
        return f"{' against '.join(names)}: {' '.join(self.text.split())}."


def cell(names: Sequence[str], ratio: Estimate, instead: str = "") -> str:
    """Say in a table cell which of two is better, and the factor. ratio: above 1 if the first is; instead: words in
    place of the outcome."""
    outcome, few = instead or outcome_text(ratio, names), processes_text(ratio)
    ratio = ratio if ratio.value >= 1 else ratio.inverse
    if ratio.outcome != "different" or instead:
        at_most = ratio.outcome == "one-sided" and not instead
        limit = f"{'at most' if at_most else 'within'} {figures(ratio.most)}×"
        if ratio.outcome == "same":
            limit = f"within {ratio.most - 1:.1%}"
        return f"{outcome}\n({'; '.join(filter(None, [limit, few]))})"
    if not ratio.has_interval:
        return f"{outcome} about {rough_text(ratio.value)}×\n({few})"
    return f"{outcome} {ratio_text(ratio.value)}×\n({ratio_interval(ratio)})"


def outcome_text(ratio: Estimate, words: Sequence[str], unclear: str = "no clear winner") -> str:
    """The outcome of a ratio. words: for more than 1, and for less; unclear: where it may be either."""
    word = words[ratio.value < 1]
    return {"different": word, "same": "same", "one-sided": f"{word} or same", "open": unclear}[ratio.outcome]


def compare(results: Iterable[Result], on_device: bool = False) -> Comparison:
    """Compare the fastest measured case of each framework: by wall time, or by that of an accelerator."""
    timed = [result for result in results if result.measured and _blocks(result, on_device)]
    fastest: dict[str, Result] = {}
    for result in sorted(timed, key=lambda result: median_time(_blocks(result, on_device)).value):
        fastest.setdefault(result.case.framework, result)
    if len(fastest) < 2:
        return Comparison(tuple(fastest.values()), None, on_device)
    first, second = fastest.values()
    comparison = compare_in_order(first, second, on_device)
    # the ratio of paired rounds may contradict the order of medians
    is_reversed = comparison.ratio and comparison.ratio.value < 1
    return compare_in_order(second, first, on_device) if is_reversed else comparison


def compare_in_order(first: Result, second: Result, on_device: bool = False) -> Comparison:
    """Compare two measured cases, whichever is the faster one: the time of the second over that of the first."""
    return Comparison((first, second), time_over(second, first, on_device), on_device)


def time_over(numerator: Result, denominator: Result, on_device: bool = False) -> Estimate:
    """The time of one measured case over that of another."""
    return time_ratio(_blocks(numerator, on_device), _blocks(denominator, on_device))


def _blocks(result: Result, on_device: bool) -> list[Block]:
    return result.on_device if on_device else result.blocks


def decided_on_device(record: Record, input_name: str) -> bool:
    """Whether an input's cases are compared by the accelerator's time: their calls fill it, and all have that time."""
    timed = [result for result in record.results if result.measured and result.case.input == input_name]
    return record.inputs[input_name].by_device_time and bool(timed) and all(result.on_device for result in timed)


def verdicts(record: Record) -> dict[tuple[str, str], Comparison]:
    """Compare each framework's fastest case, by pass and input."""
    keys = [(pass_name, name) for pass_name in record.settings.passes for name in record.inputs]
    return {key: compare(record.results_of(*key), decided_on_device(record, key[1])) for key in keys}


def comparisons(record: Record, input_name: str, on_device: bool = False) -> dict[str, dict[str, Comparison]]:
    """Compare the frameworks by variant and pass, in the order of the ladder, without variants that nobody measured;
    the row of what one would write first has another variant in each framework, and both names."""
    rows = {name: dict.fromkeys(FRAMEWORKS, name) for name in problem_of(record.settings.problem).variant_names}
    measured = {(r.case.framework, r.case.variant) for r in record.results if r.case.input == input_name}
    for name, variants in FIRST_ROWS.items():
        if measured >= {*variants.items()}:
            if ("jax", variants["torch"]) not in measured:
                del rows[variants["torch"]]
            rows = {name: variants, **rows}
    of_pass = {name: record.results_of(name, input_name) for name in record.settings.passes}
    compared_passes = {
        row: {name: compare((r for r in results if variants[r.case.framework] == r.case.variant), on_device)
              for name, results in of_pass.items()}
        for row, variants in rows.items()
    }  # fmt: skip
    return {row: by_pass for row, by_pass in compared_passes.items() if any(c.results for c in by_pass.values())}
