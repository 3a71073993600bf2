"""Plots as SVG documents, drawn by matplotlib, which is imported late: it takes a second."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shared.bench.cases import FRAMEWORKS
from shared.bench.record import Record, Result
from shared.bench.report.tables import Plot
from shared.bench.units import duration

COLOURS = {"jax": "#0065a3", "torch": "#ad4400"}
_INK, _GRID = "#14181f", "#dce1e7"
_MARKERS = "os^Dv*PXp<>"
_STYLE: dict[str, Any] = {
    "svg.hashsalt": "plot",  # the same figure gives the same SVG
    "font.size": 10,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _GRID,
    "legend.frameon": False,
}


def drawn(draw: Callable[..., None], width: float, height: float, columns: int = 1) -> str:
    """An SVG document of what `draw` does to its arguments: axes, side by side. In inches."""
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
    look: str = "o-"  # "o": not joined; "-": without markers, and not in the legend


def line_plot(
    panels: Mapping[str, Sequence[Line]], x_label: str, unit: str, x_base: int | None = 10, ideal: bool = False
) -> str:
    """An SVG document, a panel for each title. x_base None: that axis is linear; ideal: with the line value = x."""
    every = [line for lines in panels.values() for line in lines]
    names = list(dict.fromkeys(line.name for line in every))
    ticks = sorted({x for line in every for x, _ in line.points})

    def draw(*axes: Any) -> None:
        for own, (title, lines) in zip(axes, panels.items(), strict=True):
            for line in lines:
                is_jax, colour = line.framework == "jax", COLOURS[line.framework]
                style = ("-" if is_jax else "--") if "-" in line.look else ""
                look = {"color": colour, "markerfacecolor": colour if is_jax else "white", "linewidth": 1}
                if "o" in line.look:
                    look |= {"marker": _MARKERS[names.index(line.name) % len(_MARKERS)], "markersize": 5}
                    look |= {"label": f"{FRAMEWORKS[line.framework]} {line.name}"}
                own.plot(*zip(*line.points, strict=True), linestyle=style, **look)
            if ideal:
                own.plot(ticks, ticks, ":", color="#6b7480")
            own.set_yscale("log", base=x_base if ideal else 10)
            if x_base:
                own.set_xscale("log", base=x_base)
            if x_base == 2:
                own.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
                own.minorticks_off()
            own.yaxis.set_major_formatter(formatter(unit))
            own.set(xlabel=x_label, title=title)
        axes[0].legend(fontsize=8)

    return drawn(draw, 7.2 if len(panels) == 1 else 4.2 * len(panels), 5 if len(panels) == 1 else 4, len(panels))


def plots_of_cases(record: Record) -> Iterator[Plot]:
    """The times of a call as bars, for each input and pass."""
    for input_name in record.inputs:
        for pass_name in record.settings.passes:
            results = [result for result in record.results_of(pass_name, input_name) if result.measured]
            if results:
                where = f", {input_name}" if len(record.inputs) > 1 else ""
                yield Plot(
                    f"{pass_name}{where}: time of a call",
                    _bars(results),
                    "Shorter is faster; the scale is logarithmic. A thin line is the 95% interval, where there is one. "
                    "Unfilled bars were not compiled.",
                )


def _bars(results: Sequence[Result]) -> str:
    def draw(axes: Any) -> None:
        for row, result in enumerate(results):
            time = result.time
            colour = COLOURS[result.case.framework]
            axes.barh(row, time.value, height=0.75, color=colour if result.case.compiled else "none", edgecolor=colour)
            if time.is_measured:
                axes.plot([time.low, time.high], [row, row], color=_INK, linewidth=1.2, marker="|", markersize=5)
            place = (time.high if time.is_measured else time.value, row)
            axes.annotate(duration(time.value), place, (6, 0), textcoords="offset points", verticalalignment="center")
        labels = [f"{r.case.name}{f', {r.case.label}' if r.case.label else ''}" for r in results]
        axes.set_yticks(range(len(results)), labels)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlim(right=4 * max(result.time.high for result in results))  # room for the labels
        axes.xaxis.set_major_formatter(formatter("s"))
        axes.grid(visible=False, axis="y")

    return drawn(draw, 7.2, 0.7 + 0.28 * len(results))
