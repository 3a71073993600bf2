"""How do run time, compile time and memory grow with the size of the input?

Every case is measured at each size, as in `speed`; the exponent p of size^p is fitted to its times.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from shared.bench.cases import FRAMEWORKS, Case, Settings
from shared.bench.questions.in_words import statements
from shared.bench.questions.question import Question
from shared.bench.record import Record, Result
from shared.bench.report.tables import Answer, Plot, Statement, Table, left_then_right
from shared.bench.units import NOTHING
from shared.problems import Inputs, problem_of
from shared.problems.argument_types import size_text
from shared.problems.problem import UnusableInput
from shared.variants import Abilities

# sizes of a run, and of a fit in a run that has more
LEAST_SIZES, LEAST_FITTED = 2, 3
# largest deviation from a power law that is not mentioned
_STRAIGHT = 1.25
_MARKERS = "osD^vPXp<>"


class Power(NamedTuple):
    """quantity = factor * size^exponent, by least squares over logarithms."""

    exponent: float
    sizes: int
    largest_factor: float  # largest deviation of a point from the fit


class Scaling(NamedTuple):
    """Of a case over the sizes; None where too few are known."""

    case: Case  # on one of the inputs
    first_call: Power | None
    compiling: Power | None  # and tracing: the first call without the run
    call: Power | None
    memory: Power | None


class Growth(Question):
    """A run over several sizes."""

    name = "growth"
    asks = "how do run time, compile time and memory grow with the size of the input"
    default_input = "random"
    takes = ("sizes",)

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        problem = problem_of(settings.problem)
        sizes = settings.sizes or problem.sizes.growth
        if not sizes:
            raise UnusableInput(f"growth does not go with {problem.name}, which has one size")
        if len(sizes) < LEAST_SIZES:
            raise UnusableInput(f"growth needs at least {LEAST_SIZES} sizes, got {', '.join(map(size_text, sizes))}")
        return {size_text(size): problem.inputs_of_size(settings, size) for size in sizes}

    def modes(self, settings: Settings, variant: str, input_name: str, abilities: Abilities) -> Sequence[bool]:
        return problem_of(settings.problem).growth_modes(variant, abilities)

    def answer(self, record: Record) -> Answer:
        table = growth_table(record)
        return Answer([table] if table.rows else [], [*in_words(record), *statements(record)])

    def plots(self, record: Record) -> Iterator[Plot]:
        """Time, first call and memory over size, a line for each framework and variant."""
        from shared.bench.report.plots import BYTES, SECONDS  # here: matplotlib takes a second to import

        quantities: tuple[tuple[str, Callable[[Result], float | None], Any], ...] = (
            ("time of a call", lambda result: result.time.value, SECONDS),
            ("first call, caches empty", _first_call, SECONDS),
            ("peak memory of a call", lambda result: result.peak_bytes, BYTES),
        )
        for pass_name in record.settings.passes:
            lines = _by_case([result for result in record.results if result.case.pass_name == pass_name])
            for name, value, unit in quantities:
                if any(value(result) for results in lines.values() for result in results):
                    drawing = _lines(record, lines, value, unit)
                    yield Plot(f"{pass_name}: {name}", drawing, "Lower is better. Both scales are logarithmic.")


QUESTION = Growth()


def growth_table(record: Record) -> Table:
    """The fitted exponents."""
    rows = [
        (
            scaling.case.pass_name,
            FRAMEWORKS[scaling.case.framework],
            scaling.case.variant,
            "yes" if scaling.case.compiled else "no",
            *map(_power_text, (scaling.first_call, scaling.compiling, scaling.call, scaling.memory)),
        )
        for scaling in scalings(record)
    ]
    extents = [extent(record, name) for name in record.inputs] or [0]
    axis = problem_of(record.settings.problem).sizes.axis
    title = f"Growth: p of n^p for n {axis}, fitted from {min(extents):,} to {max(extents):,}"
    headers = (
        *("pass", "framework", "variant", "compiled"),
        *("first call,\ncaches empty", "tracing and\ncompiling", "time of\na call", "memory of\na call"),
    )
    below = (f"(…×): the largest deviation from the fit, where it is more than {_STRAIGHT:g}×.",)
    return Table(title, headers, rows, left_then_right(4, 4), below)


def _power_text(power: Power | None) -> str:
    """The exponent, and the largest deviation where the quantity does not follow a power law."""
    if power is None:
        return NOTHING
    return f"{_exponent(power)} ({power.largest_factor:.2g}×)" if power.largest_factor > _STRAIGHT else _exponent(power)


def _exponent(power: Power) -> str:
    return f"{round(power.exponent, 2) + 0.0:.2f}"  # never -0.00


def in_words(record: Record) -> list[Statement]:
    """A sentence for each framework and pass: how time, compile time and memory of each variant grow."""
    told: dict[str, list[str]] = {}
    for scaling in scalings(record):
        powers = {"time grows as": scaling.call, "compile time": scaling.compiling, "memory": scaling.memory}
        parts = [f"{name} n^{_exponent(power)}" for name, power in powers.items() if power is not None]
        about = f"{scaling.case.pass_name}, {FRAMEWORKS[scaling.case.framework]}"
        mode = "" if scaling.case.compiled else " (not compiled)"
        told.setdefault(about, []).append(f"{scaling.case.variant}{mode}: {', '.join(parts)}")
    return [Statement(about, f"{'; '.join(parts)}.") for about, parts in told.items()]


def scalings(record: Record) -> list[Scaling]:
    """One for each case that was measured at enough sizes."""
    found = []
    for results in _by_case(record.results).values():
        extents = [extent(record, result.case.input) for result in results]

        def power(
            value: Callable[[Result], float | None],
            results: list[Result] = results,
            extents: list[int] = extents,
        ) -> Power | None:
            points = [(n, y) for n, y in zip(extents, map(value, results), strict=True) if y and y > 0]
            return fitted(points, max(LEAST_SIZES, min(LEAST_FITTED, len(record.inputs))))

        compiling = power(_compiling) if results[0].case.compiled else None
        powers = power(_first_call), compiling, power(lambda r: r.time.value), power(lambda r: r.peak_bytes)
        if any(powers):
            found.append(Scaling(results[0].case, *powers))
    return found


def fitted(points: Sequence[tuple[float, float]], least: int = LEAST_FITTED) -> Power | None:
    """The fit through (size, time); None for fewer sizes than `least`."""
    if len({size for size, _ in points}) < least:
        return None
    x, y = (np.log([point[at] for point in points]) for at in (0, 1))
    exponent, constant = np.polyfit(x, y, 1)
    off = float(np.abs(y - (exponent * x + constant)).max())
    return Power(float(exponent), len(points), math.exp(off))


def extent(record: Record, name: str) -> int:
    """The size of an input, in the units of the problem's axis."""
    facts = record.inputs[name]
    return problem_of(record.settings.problem).extent(facts.shape, facts.work)


def _by_case(results: Sequence[Result]) -> dict[tuple[str, ...], list[Result]]:
    """The measured results that differ only in their size."""
    own: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        case = result.case
        if result.measured:
            mode = "" if case.compiled else "not compiled"
            own.setdefault((case.pass_name, case.framework, case.variant, mode, case.label), []).append(result)
    return own


def _first_call(result: Result) -> float | None:
    return result.first_call.value if result.first_call else None


def _compiling(result: Result) -> float | None:
    """Seconds of the first call without the run itself."""
    if not result.cold:
        return None
    if result.cold[0].tracing is not None and result.cold[0].compiling:
        return result.cold[0].tracing + result.cold[0].compiling
    return result.cold[0].seconds - result.time.value


def _lines(
    record: Record,
    lines: dict[tuple[str, ...], list[Result]],
    value: Callable[[Result], float | None],
    unit: Any,
) -> str:
    from shared.bench.report.plots import COLOURS, drawn

    axis = problem_of(record.settings.problem).sizes.axis
    variants = list(dict.fromkeys(key[2] for key in lines))

    def draw(axes: Any) -> None:
        for (_, framework, variant, mode, label), results in lines.items():
            points = sorted((extent(record, result.case.input), value(result) or math.nan) for result in results)
            names = " ".join(filter(None, (FRAMEWORKS[framework], variant, mode, label)))
            marker, colour = _MARKERS[variants.index(variant) % len(_MARKERS)], COLOURS[framework]
            face, style = (colour, "-") if framework == "jax" else ("white", "--")
            look = {"marker": marker, "color": colour, "markerfacecolor": face}
            axes.loglog(*zip(*points, strict=True), style, label=names, **look)
        axes.set_xlabel(axis)
        axes.yaxis.set_major_formatter(unit)
        axes.legend(fontsize=8)

    return drawn(draw, 7.2, 5)
