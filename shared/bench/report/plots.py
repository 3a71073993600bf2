"""Plots as SVG documents, drawn by matplotlib, which is imported late: it takes a second."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, product
from typing import Any, NamedTuple

from shared.bench.cases import FRAMEWORKS
from shared.bench.estimates import SAME
from shared.bench.record import Record
from shared.bench.report.tables import Plot, Point, winner
from shared.bench.units import duration

COLOURS = {"jax": "#0065a3", "torch": "#ad4400"}
_GREY, _GRID = "#5f6873", "#dce1e7"
# ticks of an axis of ratios, the narrowest axis first
_FACTORS = ((1.1, 1.2), (1.2, 1.5, 2), (2, 3, 5), (2, 5, 20), (10, 100), (100, 10000))
_MARKERS = "os^Dv*PXp<>"
# a fixed salt makes the SVG reproducible
_STYLE: dict[str, Any] = {
    "svg.hashsalt": "plot", "font.size": 10, "axes.axisbelow": True, "axes.grid": True, "axes.spines.top": False,
    "axes.spines.right": False, "grid.color": _GRID, "legend.frameon": False,
}  # fmt: skip


def drawn(draw: Callable[..., None], width: float, height: float, columns: int = 1) -> str:
    """The SVG that `draw(*axes)` draws on axes side by side; width and height in inches."""
    import matplotlib.style
    from matplotlib.figure import Figure

    with matplotlib.style.context(["default", _STYLE]):  # whatever the user's settings are
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(*figure.subplots(1, columns, squeeze=False)[0])
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()


def formatter(unit: str) -> Any:
    """The format of an axis: "s", "B" or "×"."""
    from matplotlib.ticker import EngFormatter, FuncFormatter

    return FuncFormatter(lambda value, _: f"{value:g}×") if unit == "×" else EngFormatter(unit)


class Line(NamedTuple):
    """Points of a framework: JAX's are filled and joined by a solid line, PyTorch's hollow and dashed."""

    framework: str
    name: str  # lines of one name have the same marker
    points: Sequence[tuple[float, float]]


def line_plot(panels: Mapping[str, Sequence[Line]], x_label: str, unit: str, ideal: bool = False) -> str:
    """An SVG document, a panel for each title. ideal: with the line value = x, on axes of base 2."""
    every = [line for lines in panels.values() for line in lines]
    names = list(dict.fromkeys(line.name for line in every))
    ticks = sorted({x for line in every for x, _ in line.points})
    base = 2 if ideal else 10

    def draw(*axes: Any) -> None:
        for panel_axes, (title, lines) in zip(axes, panels.items(), strict=True):
            for line in lines:
                is_jax, colour = line.framework == "jax", COLOURS[line.framework]
                panel_axes.plot(
                    *zip(*line.points, strict=True), color=colour, linewidth=1, linestyle="-" if is_jax else "--",
                    marker=_MARKERS[names.index(line.name) % len(_MARKERS)], markersize=5,
                    markerfacecolor=colour if is_jax else "white", label=f"{FRAMEWORKS[line.framework]} {line.name}",
                )  # fmt: skip
            if ideal:
                panel_axes.plot(ticks, ticks, ":", color=_GREY)
            panel_axes.set_yscale("log", base=base)
            panel_axes.set_xscale("log", base=base)
            if ideal:
                panel_axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
                panel_axes.minorticks_off()
            panel_axes.yaxis.set_major_formatter(formatter(unit))
            panel_axes.set(xlabel=x_label, title=title)
        axes[0].legend(fontsize=8)

    return drawn(draw, 7.2 if len(panels) == 1 else 4.2 * len(panels), 5 if len(panels) == 1 else 4, len(panels))


def point_plot(points: Sequence[Point], looks: Sequence[tuple[str, bool]], dress: Callable[[Any], None]) -> str:
    """An SVG document with a row for each point, under its label. looks: colours, and whether they are filled."""
    rows = [row for about, of_group in groupby(zip(points, looks, strict=True), lambda row: row[0].about)
            for row in ([about] * bool(about) + [*of_group])]  # fmt: skip

    def draw(axes: Any) -> None:
        across = axes.get_yaxis_transform()
        for y, row in enumerate(rows):
            if isinstance(row, str):
                axes.text(0, y, row, transform=across, weight="bold")
                continue
            (_, label, text, value), (colour, is_filled) = row
            if value.has_interval:
                axes.plot([value.low, value.high], [y, y], color=colour, marker="|")
            axes.plot(value.value, y, "o", color=colour, markerfacecolor=colour if is_filled else "white")
            axes.text(0.01, y - 0.25, label, transform=across)
            axes.text(0.99, y - 0.25, text, transform=across, color=colour, horizontalalignment="right")
        axes.set(xscale="log", ylim=(len(rows) - 0.6, -0.6), yticks=[])
        axes.spines["left"].set_visible(False)
        dress(axes)

    return drawn(draw, 4.4, 0.7 + 0.4 * len(rows))


def ratio_plot(ratios: Sequence[Point]) -> Plot:
    """The picture of the answer: who is faster, and by what factor. ratios: times of PyTorch over those of JAX."""

    def dress(axes: Any) -> None:
        axes.axvspan(1 / SAME, SAME, color=_GRID, linewidth=0)
        axes.axvspan(1 / 1.1, 1.1, visible=False)  # the smallest range that is shown
        low, high = axes.get_xlim()
        most = max(high, 1 / low)  # the middle is 1
        factors = next((candidates for candidates in _FACTORS if candidates[-1] ** 1.5 > most), _FACTORS[-1])
        axes.set_xticks([1, *(x for factor in factors if factor < most for x in (factor, 1 / factor))])
        axes.set_xlim(1 / most, most)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(lambda x, _: f"{max(x, 1 / x):g}×")
        axes.xaxis.set_label_position("top")
        axes.set_xlabel("← {1} faster{2:24}{0} faster →".format(*FRAMEWORKS.values(), ""))

    looks = [(COLOURS.get(winner(ratio.text).partition(" ")[0], _GREY), ratio.value.has_interval) for ratio in ratios]
    reading = f"Line: 95% interval. Band: same, within ±{SAME - 1:.0%}. Grey: no winner. Hollow: no interval."
    return Plot("How many times as fast the faster framework is", point_plot(ratios, looks, dress), reading)


def plots_of_cases(record: Record) -> Iterator[Plot]:
    """The times of a call, for each input and pass."""
    reading = ("Further left is faster; the scale is logarithmic. A line is the 95% interval, where there is one. "
               "Hollow points were not compiled.")  # fmt: skip
    for input_name, pass_name in product(record.inputs, record.settings.passes):
        results = [result for result in record.results_of(pass_name, input_name) if result.measured]
        where = f", {input_name}" if len(record.inputs) > 1 else ""
        names = [f"{r.case.name}{', ' * bool(r.case.label)}{r.case.label}" for r in results]
        times = [Point("", n, duration(r.time.value), r.time) for n, r in zip(names, results, strict=True)]
        looks = [(COLOURS[r.case.framework], r.case.compiled) for r in results]
        if results:
            drawing = point_plot(times, looks, lambda axes: axes.xaxis.set_major_formatter(formatter("s")))
            yield Plot(f"{pass_name}{where}: time of a call", drawing, reading)
