"""How times grow with the size of the input: the exponent p of size^p, fitted over the sizes of a sweep."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from shared.bench.plan import Case
from shared.bench.record import Record, Result
from shared.problems import PROBLEMS

# fewer sizes than this make no line
LEAST_SIZES = 3


@dataclass(frozen=True)
class Power:
    """time = factor * size^exponent, by least squares on logarithms."""

    exponent: float
    sizes: int
    largest_factor: float  # by which a time is off the line at most


@dataclass(frozen=True)
class Growth:
    """Of a case over the sizes; None where too few are known."""

    case: Case  # on one of the inputs
    first_call: Power | None
    compiling: Power | None  # and tracing: the first call without the run
    call: Power | None


def growths(record: Record) -> list[Growth]:
    """One for each case that a sweep has at enough sizes."""
    if record.settings is None or not record.settings.sweep:
        return []
    own: dict[tuple, list[Result]] = {}
    for result in record.results:
        if result.measured:
            case = result.case
            key = (case.pass_name, case.variant, case.framework, case.compiled, case.side)
            own.setdefault(key, []).append(result)
    found = [
        Growth(
            results[0].case,
            _power(record, results, lambda result: result.cold.seconds if result.cold else None),
            _power(record, results, _compiling) if results[0].case.compiled else None,
            _power(record, results, lambda result: result.time.value),
        )
        for results in own.values()
    ]
    return [growth for growth in found if growth.first_call or growth.call]


def sizes(record: Record) -> tuple[int, int]:
    """The smallest and the largest of the sweep, in the units of the problem's axis."""
    extents = [extent(record, name) for name in record.inputs]
    return min(extents), max(extents)


def hopeless(record: Record, case: Case) -> str | None:
    """The limit that this variant was over with less to do, as "> 120 s for score at 64x8"; None where there is none.

    Less is a smaller input, or on the same one a pass that comes before.
    """
    passes = PROBLEMS[case.problem].passes

    def to_do(of: Case) -> tuple[int, int]:
        return extent(record, of.input), passes.index(of.pass_name)

    for result in record.results:
        other = result.case
        is_same = replace(other, input=case.input, pass_name=case.pass_name) == case
        if not (is_same and result.status == "limit" and other != case):
            continue
        if all(own >= least for own, least in zip(to_do(case), to_do(other), strict=True)):
            if any(word in (result.reason or "") for word in (" for ", " at ")):
                return result.reason
            by_pass = f" for {other.pass_name}" if other.pass_name != case.pass_name else ""
            by_input = f" at {other.input}" if other.input != case.input else ""
            return f"{result.reason}{by_pass}{by_input}"
    return None


def fitted(points: list[tuple[float, float]]) -> Power | None:
    """Through (size, time), each size once."""
    if len({size for size, _ in points}) < LEAST_SIZES:
        return None
    x, y = (np.log([point[at] for point in points]) for at in (0, 1))
    exponent, constant = np.polyfit(x, y, 1)
    off = float(np.abs(y - (exponent * x + constant)).max())
    return Power(float(exponent), len(points), math.exp(off))


def _power(record: Record, results: list[Result], value: Callable[[Result], float | None]) -> Power | None:
    points = [(extent(record, result.case.input), value(result)) for result in results]
    return fitted([(size, seconds) for size, seconds in points if seconds is not None and seconds > 0])


def _compiling(result: Result) -> float | None:
    """Seconds of the first call that were no computing."""
    if result.cold is None:
        return None
    if result.cold.tracing is not None and result.cold.compiling:
        return result.cold.tracing + result.cold.compiling
    return result.cold.seconds - result.time.value


def extent(record: Record, name: str) -> int:
    """How large an input is, in the units of the problem's axis."""
    assert record.settings is not None
    facts = record.inputs[name]
    return PROBLEMS[record.settings.problem].extent(facts.shape, facts.work)
