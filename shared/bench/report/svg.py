"""A matplotlib figure as an inline SVG in the colours of the page, light or dark.

It is drawn in stand-in colours, which become CSS variables. Text stays text. The same figure gives the same SVG.
"""

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import quoteattr

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from shared.bench.report.tables import printable

# pixels; a phone shows this width unscaled
WIDTH = 344
FONT = 10.5
# stand-in colours, which no figure uses otherwise, and the page's CSS variables that replace them
INK, MUTED, GRID, PAPER, ACCENTS = "#fe0101", "#fe0102", "#fe0103", "#fe0104", {"jax": "#fe0105", "torch": "#fe0106"}
_VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    PAPER: "paper",
    ACCENTS["jax"]: "jax",
    ACCENTS["torch"]: "torch",
}
_STAND_INS = re.compile("|".join(_VARIABLES))
# no element of a figure that the page shows: comments, metadata, and a style sheet that would apply to the whole page
_REMOVED = re.compile(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", re.DOTALL)
_IDENTIFIER = re.compile(r'(\bid="|href="#|url\(#)')
# matplotlib writes the font's family by itself or, before 3.10, at the end of the shorthand
_FAMILY = re.compile(r"font-family: [^;]*(?:; )?|(?<=px) '[^;]*")

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a $ in a name is a $
    "font.size": FONT,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.labelsize": FONT,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": FONT,
    "ytick.labelsize": FONT,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "hatch.linewidth": 1.4,
    "figure.dpi": 72,  # a point is a pixel
    "legend.frameon": False,
}


@contextlib.contextmanager
def own_style() -> Iterator[None]:
    """Inside, matplotlib draws in the page's style, whatever the user's own settings are."""
    plain: Any = {name: value for name, value in matplotlib.rcParamsDefault.items() if not name.startswith("backend")}
    with warnings.catch_warnings():
        # the page's font has what matplotlib's lacks
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        warnings.filterwarnings("ignore", category=matplotlib.MatplotlibDeprecationWarning)
        with matplotlib.rc_context(plain | _STYLE):
            yield


def new_axes(height: float, left: float, right: float, top: float, bottom: float) -> Axes:
    """Axes in a figure of their own, with margins in pixels."""
    figure = Figure(figsize=(WIDTH / 72, height / 72))
    FigureCanvasSVG(figure)
    inside = (left / WIDTH, bottom / height, (WIDTH - left - right) / WIDTH, (height - top - bottom) / height)
    return figure.add_axes(inside)


def inline(axes: Axes, name: str, label: str) -> str:
    """The figure of these axes as an SVG element for a page. name: unique on the page; label: what it shows."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    written = io.StringIO()
    empty = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(written, format="svg", dpi=72, transparent=True, metadata=empty)
    svg = _REMOVED.sub("", written.getvalue())
    svg = svg[svg.index("<svg") :]
    _, _, width, height = re.findall(r'viewBox="(\S+) (\S+) (\S+) (\S+)"', svg)[0]
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
    start += f'role="img" aria-label={quoteattr(printable(label))}>'
    svg = start + svg[svg.index(">") + 1 :]
    # identifiers are unique on the page, fonts those of the page
    svg = _IDENTIFIER.sub(rf"\g<1>{name}-", svg).replace("xlink:href", "href")
    svg = _FAMILY.sub("", svg).replace("font: ", "font-size: ")
    svg = re.sub(r'\b(fill|stroke)="(#fe010\d)"', r'style="\1: \2"', svg)  # a hatch: only a style can hold a variable
    return _STAND_INS.sub(lambda match: f"var(--{_VARIABLES[match[0]]})", svg)
