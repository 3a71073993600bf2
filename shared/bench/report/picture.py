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
from shared.bench.report.svg import ACCENTS, INK, WIDTH, inline, new_axes, own_style
from shared.bench.report.tables import Plot

_READING = (
    "Filled squares: how probable it is that two letters are matched, the darker the more. Rings: the letters that "
    "descend from the same one."
)
# what is less probable is not drawn
_LEAST = 0.02
_WHEN = ("before", "after")


def pictures(record: Record, name: str) -> Iterator[Plot]:
    """The pictures of a record, as plots. name: unique on the page."""
    for number, (input_name, picture) in enumerate(record.pictures.items()):
        which = f", {input_name}" if len(record.inputs) > 1 else ""
        for when in _WHEN:
            title = f"one alignment {when} learning{which}"
            rows, cols = np.shape(picture[when])
            height = (WIDTH - 40) * rows / cols + 42
            axes = new_axes(height, 34, 6, 6, 36)
            _draw(axes, picture, when, ACCENTS["jax"], INK)
            yield Plot(title, inline(axes, f"{name}-picture-{number}-{when}", title), f"{_READING} By {picture['by']}.")


def picture_file(records: Sequence[Record]) -> str:
    """The first picture of the records as an SVG file. Raises ValueError if there is none."""
    shown = next((picture for record in records for picture in record.pictures.values()), None)
    if shown is None:
        raise ValueError("no case with a picture passed its gate")
    with own_style():
        rows, cols = np.shape(shown["after"])
        figure = Figure(figsize=(9, 0.7 + 4.2 * rows / cols), facecolor="white")
        FigureCanvasSVG(figure)
        for axes, when in zip(figure.subplots(1, 2), _WHEN, strict=True):
            _draw(axes, shown, when, "#2563eb", "#111827")
            axes.set_title(f"{when} learning", color="#111827")
            axes.tick_params(labelcolor="#4b5563", color="#9ca3af")
            for spine in axes.spines.values():  # the style's colours stand in for those of a page
                spine.set_color("#9ca3af")
            axes.xaxis.label.set_color("#4b5563")
            axes.yaxis.label.set_color("#4b5563")
        figure.tight_layout()
        written = io.StringIO()
        with matplotlib.rc_context({"svg.hashsalt": "picture"}):
            figure.savefig(written, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return written.getvalue()


def _draw(axes: Axes, picture: dict[str, Any], when: str, colour: str, ink: str) -> None:
    """Squares for probabilities, rings for the truth; the first sequence downwards."""
    probable = np.array(picture[when], dtype=float)
    rows, cols = probable.shape
    for i, j in np.argwhere(probable >= _LEAST):
        axes.fill(
            [j - 0.5, j + 0.5, j + 0.5, j - 0.5],
            [i - 0.5, i - 0.5, i + 0.5, i + 0.5],
            color=colour,
            alpha=min(1.0, float(probable[i, j])),
            linewidth=0,
        )
    truth = np.reshape(np.array(picture["truth"], dtype=int), (-1, 2))
    axes.plot(truth[:, 1], truth[:, 0], "o", color=ink, markerfacecolor="none", markersize=4, markeredgewidth=0.9)
    axes.set_xlim(-0.5, cols - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.set_xlabel("letter of the second sequence", labelpad=2)
    axes.set_ylabel("letter of the first", labelpad=2)
