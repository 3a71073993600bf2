"""The picture of a result: a soft alignment before and after learning."""

import io
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from shared.bench.record import Record
from shared.bench.report.svg import COLOURS, INK, inline, new_axes, own_style
from shared.bench.report.tables import Plot

_READING = (
    "Filled squares: the probability that two letters are matched, the darker the higher. Rings: letters that "
    "descend from the same one."
)
_LEAST = 0.02  # lower probabilities are not drawn
_WHEN = ("before", "after")


def pictures(record: Record, name: str) -> Iterator[Plot]:
    """The pictures of a record, as plots. name: unique on the page."""
    for number, (input_name, picture) in enumerate(record.pictures.items()):
        which = f", {input_name}" if len(record.inputs) > 1 else ""
        for when in _WHEN:
            title = f"one alignment {when} learning{which}"
            rows, cols = np.shape(picture[when])
            axes = new_axes(420, 60 + 360 * rows / cols)
            _draw(axes, picture, when)
            yield Plot(title, inline(axes, f"{name}-picture-{number}-{when}", title), f"{_READING} By {picture['by']}.")


def picture_file(records: Sequence[Record]) -> str:
    """The first picture of the records as an SVG file. Raises ValueError if there is none."""
    shown = next((picture for record in records for picture in record.pictures.values()), None)
    if shown is None:
        raise ValueError("no case with a picture passed its gate")
    with own_style():
        rows, cols = np.shape(shown["after"])
        figure = Figure(figsize=(9, 0.7 + 4.2 * rows / cols), facecolor="white", layout="constrained")
        FigureCanvasSVG(figure)
        for axes, when in zip(figure.subplots(1, 2), _WHEN, strict=True):
            _draw(axes, shown, when)
            axes.set_title(f"{when} learning")
        written = io.StringIO()
        with matplotlib.rc_context({"svg.hashsalt": "picture"}):
            figure.savefig(written, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return written.getvalue()


def _draw(axes: Axes, picture: dict[str, Any], when: str) -> None:
    """Squares for probabilities, rings for the truth; the first sequence downwards."""
    probable = np.array(picture[when], dtype=float)
    rows, cols = probable.shape
    for i, j in np.argwhere(probable >= _LEAST):
        x, y = [j - 0.5, j + 0.5, j + 0.5, j - 0.5], [i - 0.5, i - 0.5, i + 0.5, i + 0.5]
        axes.fill(x, y, color=COLOURS["jax"], alpha=min(1.0, float(probable[i, j])), linewidth=0)
    truth = np.reshape(np.array(picture["truth"], dtype=int), (-1, 2))
    axes.plot(truth[:, 1], truth[:, 0], "o", color=INK, markerfacecolor="none", markersize=4, markeredgewidth=0.9)
    axes.set_xlim(-0.5, cols - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.set_xlabel("letter of the second sequence")
    axes.set_ylabel("letter of the first")
