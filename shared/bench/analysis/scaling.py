"""How times grow with the size of the input: the exponent p of size^p, fitted over several sizes."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shared.bench.cases import Case
from shared.bench.record import Record, Result
from shared.problems import PROBLEMS

# fewer sizes than this make no line
LEAST_SIZES = 3


@dataclass(frozen=True)
class Power:
    """time = factor * size^exponent, by least squares over logarithms."""

    exponent: float
    sizes: int
    largest_factor: float  # largest deviation of a time from the fit


@dataclass(frozen=True)
class Scaling:
    """Of a case over the sizes; None where too few are known."""

    case: Case  # on one of the inputs
    first_call: Power | None
    compiling: Power | None  # and tracing: the first call without the run
    call: Power | None


def scalings(record: Record) -> list[Scaling]:
    """One for each case that was measured at enough sizes."""
    own: dict[tuple, list[Result]] = {}
    for result in record.results:
        if result.measured:
            case = result.case
            key = (case.pass_name, case.variant, case.framework, case.compiled, case.label)
            own.setdefault(key, []).append(result)
    found = [
        Scaling(
            results[0].case,
            _power(record, results, lambda result: result.cold.seconds if result.cold else None),
            _power(record, results, _compiling) if results[0].case.compiled else None,
            _power(record, results, lambda result: result.time.value),
        )
        for results in own.values()
    ]
    return [scaling for scaling in found if scaling.first_call or scaling.call]


def sizes(record: Record) -> tuple[int, int]:
    """The smallest and the largest size, in the units of the problem's axis."""
    extents = [extent(record, name) for name in record.inputs]
    return min(extents), max(extents)


def fitted(points: list[tuple[float, float]]) -> Power | None:
    """The fit through (size, time)."""
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
    """Seconds of the first call without the run itself."""
    if result.cold is None:
        return None
    if result.cold.tracing is not None and result.cold.compiling:
        return result.cold.tracing + result.cold.compiling
    return result.cold.seconds - result.time.value


def extent(record: Record, name: str) -> int:
    """The size of an input, in the units of the problem's axis."""
    assert record.settings is not None
    facts = record.inputs[name]
    return PROBLEMS[record.settings.problem].extent(facts.shape, facts.work)
