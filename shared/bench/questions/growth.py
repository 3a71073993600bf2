"""How do run time, compile time and memory grow with the size of the input?

Every case is measured at each size, as in `speed`; the exponent p of size^p is fitted to its times.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from shared.bench.cases import FRAMEWORKS, Case, Settings
from shared.bench.questions.question import Question
from shared.bench.questions.speed import statements
from shared.bench.record import Record, Result
from shared.bench.report.tables import NOTHING, Answer, Plot, Table, left_then_right
from shared.problems import PROBLEMS, Inputs
from shared.problems.argument_types import size_text
from shared.variants import Abilities

LEAST_SIZES = 3  # of a fit
# largest deviation from a power law that is not mentioned
_STRAIGHT = 1.25
_MARKERS = "osD^vPXp<>"


class Power(NamedTuple):
    """time = factor * size^exponent, by least squares over logarithms."""

    exponent: float
    sizes: int
    largest_factor: float  # largest deviation of a time from the fit


class Scaling(NamedTuple):
    """Of a case over the sizes; None where too few are known."""

    case: Case  # on one of the inputs
    first_call: Power | None
    compiling: Power | None  # and tracing: the first call without the run
    call: Power | None


class Growth(Question):
    """A run over several sizes."""

    name = "growth"
    asks = "how do run time, compile time and memory grow with the size of the input"
    default_input = "random"
    takes = ("sizes",)

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        problem = PROBLEMS[settings.problem]
        sizes = settings.sizes or problem.sizes.growth
        return {size_text(size): problem.inputs_of_size(settings, size) for size in sizes}

    def modes(self, settings: Settings, variant: str, input_name: str, abilities: Abilities) -> Sequence[bool]:
        return PROBLEMS[settings.problem].growth_modes(variant, abilities)

    def answer(self, record: Record) -> Answer:
        table = growth_table(record)
        return Answer([table] if table.rows else [], statements(record))

    def plots(self, record: Record, key: str) -> Iterator[Plot]:
        return _plots(record, key)


def growth_table(record: Record) -> Table:
    """The fitted exponents."""
    rows = [
        (
            scaling.case.pass_name,
            FRAMEWORKS[scaling.case.framework],
            scaling.case.variant,
            "yes" if scaling.case.compiled else "no",
            *(_power_text(power) for power in (scaling.first_call, scaling.compiling, scaling.call)),
        )
        for scaling in scalings(record)
    ]
    extents = [extent(record, name) for name in record.inputs] or [0]
    axis = PROBLEMS[record.settings.problem].sizes.axis if record.settings else "size"
    title = f"Growth: p of n^p for n {axis}, fitted from {min(extents):,} to {max(extents):,}"
    headers = ("pass", "framework", "variant", "compiled", "first call", "tracing and compiling", "a call")
    return Table(title, headers, rows, left_then_right(4, 3))


def _power_text(power: Power | None) -> str:
    """The exponent, and the largest deviation if times do not follow a power law."""
    if power is None:
        return NOTHING
    off = f" (off by up to {power.largest_factor:.2g} times)" if power.largest_factor > _STRAIGHT else ""
    return f"{round(power.exponent, 2) + 0.0:.2f}{off}"  # never -0.00


def scalings(record: Record) -> list[Scaling]:
    """One for each case that was measured at enough sizes."""
    found = []
    for results in _by_case(record, record.results).values():

        def power(value: Callable[[Result], float | None], results: list[Result] = results) -> Power | None:
            points = [(extent(record, result.case.input), value(result)) for result in results]
            return fitted([(size, seconds) for size, seconds in points if seconds is not None and seconds > 0])

        first, call = power(_first_call), power(lambda result: result.time.value)
        compiled = results[0].case.compiled
        if first or call:
            found.append(Scaling(results[0].case, first, power(_compiling) if compiled else None, call))
    return found


def fitted(points: list[tuple[float, float]]) -> Power | None:
    """The fit through (size, time)."""
    if len({size for size, _ in points}) < LEAST_SIZES:
        return None
    x, y = (np.log([point[at] for point in points]) for at in (0, 1))
    exponent, constant = np.polyfit(x, y, 1)
    off = float(np.abs(y - (exponent * x + constant)).max())
    return Power(float(exponent), len(points), math.exp(off))


def extent(record: Record, name: str) -> int:
    """The size of an input, in the units of the problem's axis."""
    assert record.settings is not None
    facts = record.inputs[name]
    return PROBLEMS[record.settings.problem].extent(facts.shape, facts.work)


def _by_case(record: Record, results: Sequence[Result]) -> dict[tuple[str, ...], list[Result]]:
    """The measured results that differ only in their size."""
    own: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        case = result.case
        if result.measured:
            mode = "" if case.compiled else "not compiled"
            own.setdefault((case.pass_name, case.framework, case.variant, mode, case.label), []).append(result)
    return own


def _first_call(result: Result) -> float | None:
    return result.cold.seconds if result.cold else None


def _compiling(result: Result) -> float | None:
    """Seconds of the first call without the run itself."""
    if result.cold is None:
        return None
    if result.cold.tracing is not None and result.cold.compiling:
        return result.cold.tracing + result.cold.compiling
    return result.cold.seconds - result.time.value


def _plots(record: Record, key: str) -> Iterator[Plot]:
    """Time, first call and memory over size, a line for each framework and variant."""
    from shared.bench.report.svg import BYTES, SECONDS  # here: matplotlib takes a second to import

    assert record.settings is not None
    quantities: tuple[tuple[str, Callable[[Result], float | None], Any], ...] = (
        ("time of a call", lambda result: result.time.value, SECONDS),
        ("first call, caches empty", _first_call, SECONDS),
        ("peak memory of a call", lambda result: result.peak_bytes, BYTES),
    )
    for number, pass_name in enumerate(record.settings.passes):
        lines = _by_case(record, [result for result in record.results if result.case.pass_name == pass_name])
        for at, (name, value, unit) in enumerate(quantities):
            if any(value(result) for results in lines.values() for result in results):
                title = f"{pass_name}: {name}"
                drawing = _lines(record, lines, value, unit, f"{key}-{number}-{at}", title)
                yield Plot(title, drawing, "Lower is better. Both scales are logarithmic.")


def _lines(
    record: Record,
    lines: dict[tuple[str, ...], list[Result]],
    value: Callable[[Result], float | None],
    unit: Any,
    name: str,
    title: str,
) -> str:
    from shared.bench.report.svg import COLOURS, inline, new_axes

    assert record.settings is not None
    axes = new_axes(520, 360)
    variants = list(dict.fromkeys(key[2] for key in lines))
    for (_, framework, variant, mode, label), results in lines.items():
        points = sorted((extent(record, result.case.input), value(result) or math.nan) for result in results)
        names = " ".join(filter(None, (FRAMEWORKS[framework], variant, mode, label)))
        marker, colour = _MARKERS[variants.index(variant) % len(_MARKERS)], COLOURS[framework]
        face = colour if framework == "jax" else "white"
        style = "-" if framework == "jax" else "--"
        axes.loglog(*zip(*points, strict=True), style, marker=marker, color=colour, markerfacecolor=face, label=names)
    axes.set_xlabel(PROBLEMS[record.settings.problem].sizes.axis)
    axes.yaxis.set_major_formatter(unit)
    axes.legend(fontsize=8)
    return inline(axes, name, title)
