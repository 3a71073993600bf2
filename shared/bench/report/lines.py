"""Plots over size: time, first call, memory and rate, a line for each framework and variant."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from shared.bench.analysis.roofline import meaning, rate_limit
from shared.bench.analysis.scaling import extent
from shared.bench.cases import FRAMEWORKS
from shared.bench.record import Record, Result
from shared.bench.report.scales import (
    bytes_text,
    count_text,
    label_width,
    log_ticks,
    rate_text,
    seconds_text,
    shown,
    span,
)
from shared.bench.report.svg import ACCENTS, MUTED, PAPER, WIDTH, inline, new_axes
from shared.bench.report.tables import Plot
from shared.problems import PROBLEMS

_VARIANT_SHAPES = "osD^vPXp<>"
_DASHES = {"jax": "-", "torch": (0, (4, 1.5))}


class _Quantity(NamedTuple):
    """Something to draw over size."""

    name: str
    title: str
    value: Callable[[Result], tuple[float, float, float] | None]  # with its interval
    text: Callable[[float], str]  # of a tick
    unit: float  # ticks are round in it
    bound: Callable[[Record, Result], float | None] | None
    reading: str


def _just(value: float | None) -> tuple[float, float, float] | None:
    return (value, value, value) if value and value > 0 else None


def _time(result: Result) -> tuple[float, float, float] | None:
    return span(result.time) if result.measured else None


def _first_call(result: Result) -> tuple[float, float, float] | None:
    return _just(result.cold.seconds if result.measured and result.cold else None)


def _moved(_: Record, result: Result) -> float | None:
    return ((result.input_bytes or 0) + (result.output_bytes or 0)) or None


_QUANTITIES = (
    _Quantity("time", "time of a call", _time, seconds_text, 1.0, None,
              "Lower is faster. Upright lines at the markers are 95% intervals."),
    _Quantity("compile", "first call, caches empty", _first_call, seconds_text, 1.0, None,
              "Lower is cheaper. The first call traces, compiles and runs once."),
    _Quantity("memory", "peak memory of a call", lambda r: _just(r.peak_bytes if r.measured else None), bytes_text,
              2.0**20, _moved, "Lower is less. The dotted line is the input and the output alone."),
)  # fmt: skip


def _quantities(record: Record) -> tuple[_Quantity, ...]:
    """With the rate, which is the problem's."""
    assert record.settings is not None
    rate = PROBLEMS[record.settings.problem].rate

    def limit(record: Record, result: Result) -> float | None:
        found = rate_limit(record, result)
        return found / rate.per if found else None

    return (*_QUANTITIES, _Quantity(
        "rate", f"{rate.work} per second ({rate.unit})", lambda r: _just(r.rate / rate.per if r.rate else None),
        rate_text, 1.0, limit,
        f"Higher is faster. {rate.meaning} The dotted line is what {meaning(record)}.",
    ))  # fmt: skip


def plots_over_size(record: Record, name: str) -> Iterator[Plot]:
    """For each pass. name: unique on the page."""
    assert record.settings is not None
    for pass_name in record.settings.passes:
        results = [r for r in record.results if r.case.pass_name == pass_name and r.case.input in record.inputs]
        for quantity in _quantities(record):
            if any(quantity.value(result) for result in results):
                title = f"{pass_name}: {quantity.title}"
                key = f"{name}-{quantity.name}-{record.settings.passes.index(pass_name)}"
                drawing = _lines(record, results, quantity, key, title)
                mark = "" if all(result.case.compiled for result in results) else " *: not compiled."
                yield Plot(title, drawing, f"{quantity.reading} Both scales are logarithmic.{mark}")


def _lines(record: Record, results: Sequence[Result], quantity: _Quantity, name: str, title: str) -> str:
    """A line for each framework, variant and whether it is compiled."""
    assert record.settings is not None
    square = all(len(set(facts.shape[-2:])) == 1 < len(facts.shape) for facts in record.inputs.values())
    sizes = {key: facts.shape[-1] if square else extent(record, key) for key, facts in record.inputs.items()}
    across = "rows = columns of a matrix" if square else PROBLEMS[record.settings.problem].sizes.axis
    points = [(result, found) for result in results if (found := quantity.value(result))]
    variants = list(dict.fromkeys(result.case.variant for result, _ in points))
    series: dict[tuple[str, str, bool, str], list[tuple[float, ...]]] = {}
    for result, found in points:
        case = result.case
        key = (case.framework, case.variant, case.compiled, case.label)
        series.setdefault(key, []).append((sizes[case.input], *found))
    columns = [[key for key in series if key[0] == framework] for framework in FRAMEWORKS]
    deepest = max(map(len, columns))
    legend = 16 * deepest + 8
    axes = new_axes(205 + legend, 54, 10, 8, 36 + legend)
    axes.set_xscale("log")
    axes.set_yscale("log")
    bounds = {}
    if quantity.bound:
        found = ((sizes[result.case.input], quantity.bound(record, result)) for result, _ in points)
        bounds = {x: bound for x, bound in found if bound}
        axes.plot(sorted(bounds), [bounds[x] for x in sorted(bounds)], color=MUTED, linewidth=1.4, linestyle=":")
    for key, line in series.items():
        x, y, low, high = zip(*sorted(line), strict=True)
        axes.vlines(x, low, high, color=ACCENTS[key[0]], linewidth=1.2)
        axes.plot(x, y, **_look(key, variants))
    values = [value for _, found in points for value in found] + list(bounds.values())
    _ticks(axes, quantity, (min(values), max(values)), sorted(set(sizes.values())), square, across)
    _legend(axes, columns, variants)
    return inline(axes, name, title)


def _look(key: tuple[str, str, bool, str], variants: Sequence[str]) -> dict[str, Any]:
    """Framework: colour, dashes and whether markers are filled. Variant: shape of the markers."""
    framework, variant, _, _ = key
    return {
        "color": ACCENTS[framework],
        "linestyle": _DASHES[framework],
        "linewidth": 1.6,
        "marker": _VARIANT_SHAPES[variants.index(variant) % len(_VARIANT_SHAPES)],
        "markersize": 5.5,
        "markeredgewidth": 1.3,
        "markerfacecolor": ACCENTS[framework] if framework == "jax" else PAPER,
    }


def _ticks(
    axes: Axes, quantity: _Quantity, span: tuple[float, float], sizes: Sequence[int], square: bool, across: str
) -> None:
    low, high = span[0] / 1.5 / quantity.unit, span[1] * 1.5 / quantity.unit
    axes.set_ylim(low * quantity.unit, high * quantity.unit)
    ticks = [tick * quantity.unit for tick in log_ticks(low, high, 150, 26)]
    axes.set_yticks(ticks, [quantity.text(tick) for tick in ticks])
    first, last = sizes[0] / 1.25, sizes[-1] * 1.25
    axes.set_xlim(first, last)
    ticks = _fitting(sizes, math.log(last / first)) if square else log_ticks(first, last, 280)
    axes.set_xticks(ticks, [count_text(tick) if not square else f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(across, labelpad=2)
    axes.tick_params(length=0, pad=4)
    axes.grid()


def _fitting(sizes: Sequence[int], span: float) -> list[int]:
    """Of the sizes those whose labels do not touch. span: of the axis, in logarithms."""
    kept = [sizes[0]]
    for value in sizes[1:]:
        if math.log(value / kept[-1]) / span * 280 > label_width(f"{value:,}") + 6:
            kept.append(value)
    return kept


def _legend(axes: Axes, columns: Sequence[Sequence[tuple[str, str, bool, str]]], variants: Sequence[str]) -> None:
    """Below the axes, a column for each framework."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    height = figure.get_size_inches()[1] * 72
    for across, column in enumerate(column for column in columns if column):
        for down, key in enumerate(column):
            x, y = 4 + across * WIDTH / 2, 16 * len(max(columns, key=len)) - 16 * down - 4
            line = Line2D([x / WIDTH, (x + 26) / WIDTH], [y / height] * 2, transform=figure.transFigure)
            line.set(**_look(key, variants) | {"markevery": [0]})
            figure.add_artist(line)
            framework, variant, compiled, label = key
            text = f"{FRAMEWORKS[framework]} {shown(variant, 18)}{'' if compiled else ' *'} {label}"
            figure.text((x + 32) / WIDTH, y / height, text, va="center")
