"""Plots as SVG documents, drawn by matplotlib: the time of every case as bars."""

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from shared.bench.record import Record, Result
from shared.bench.report.tables import Plot
from shared.bench.units import duration

COLOURS = {"jax": "#0065a3", "torch": "#ad4400"}
SECONDS, BYTES = EngFormatter("s"), EngFormatter("B")
_INK = "#14181f"
_STYLE: dict[str, Any] = {
    "svg.hashsalt": "plot",  # the same figure gives the same SVG
    "font.size": 10,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#dce1e7",
    "legend.frameon": False,
}


def drawn(draw: Callable[..., None], width: float, height: float, columns: int = 1) -> str:
    """An SVG document of what `draw` does to its arguments: axes, side by side. In inches."""
    with matplotlib.style.context(["default", _STYLE]):  # whatever the user's settings are
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(*figure.subplots(1, columns, squeeze=False)[0])
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()


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
    ends = [max(result.time.value, result.time.high) for result in results]  # the value where the other one is NaN

    def draw(axes: Axes) -> None:
        for row, result in enumerate(results):
            value, low, high = result.time
            colour = COLOURS[result.case.framework]
            axes.barh(row, value, height=0.75, color=colour if result.case.compiled else "none", edgecolor=colour)
            if low < high:
                axes.plot([low, high], [row, row], color=_INK, linewidth=1.2, marker="|", markersize=5)
            place = (ends[row], row)
            axes.annotate(duration(value), place, (6, 0), textcoords="offset points", verticalalignment="center")
        axes.set_yticks(range(len(results)), [result.case.name for result in results])
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlim(right=4 * max(ends))  # room for the labels
        axes.xaxis.set_major_formatter(SECONDS)
        axes.grid(visible=False, axis="y")

    return drawn(draw, 7.2, 0.7 + 0.28 * len(results))
