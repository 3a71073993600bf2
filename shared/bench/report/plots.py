"""Plots as SVG documents, drawn by matplotlib: the time of every case as bars, and pictures of what was learned."""

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import matplotlib.style
import numpy as np
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
_LEAST_PROBABLE = 0.02  # lower probabilities are not drawn


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


def pictures(record: Record) -> Iterator[Plot]:
    """The soft alignment of each input before and after learning, where the problem has one."""
    for input_name, picture in record.pictures.items():
        where = f", {input_name}" if len(record.inputs) > 1 else ""
        yield Plot(
            f"one alignment before and after learning{where}",
            picture_svg(picture),
            "Filled squares: the probability that two letters are matched, the darker the higher. Rings: letters that "
            f"descend from the same one. By {picture['by']}.",
        )


def picture_svg(picture: dict[str, Any]) -> str:
    """Squares for probabilities, rings for the truth; the first sequence downwards."""
    rows, cols = np.shape(picture["after"])
    truth = np.reshape(np.array(picture["truth"], dtype=int), (-1, 2))
    ring = {"color": _INK, "markerfacecolor": "none", "markersize": 4, "markeredgewidth": 0.9}

    def draw(*both: Axes) -> None:
        for axes, when in zip(both, ("before", "after"), strict=True):
            probable = np.array(picture[when], dtype=float)
            for i, j in np.argwhere(probable >= _LEAST_PROBABLE):
                x, y = [j - 0.5, j + 0.5, j + 0.5, j - 0.5], [i - 0.5, i - 0.5, i + 0.5, i + 0.5]
                axes.fill(x, y, color=COLOURS["jax"], alpha=min(1.0, float(probable[i, j])), linewidth=0)
            axes.plot(truth[:, 1], truth[:, 0], "o", **ring)
            axes.set(xlim=(-0.5, cols - 0.5), ylim=(rows - 0.5, -0.5), aspect="equal", title=f"{when} learning")
            axes.set(xlabel="letter of the second sequence", ylabel="letter of the first")

    return drawn(draw, 9, 0.7 + 4.2 * rows / cols, columns=2)
