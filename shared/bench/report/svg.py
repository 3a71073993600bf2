"""Matplotlib figures as inline SVG. Text stays text; the same figure gives the same SVG."""

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
from matplotlib.ticker import EngFormatter

from shared.bench.report.tables import printable

COLOURS = {"jax": "#0065a3", "torch": "#ad4400"}
INK = "#14181f"
SECONDS, BYTES = EngFormatter("s"), EngFormatter("B")
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a $ in a name is a $
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#dce1e7",
    "figure.dpi": 72,  # a point is a pixel
    "legend.frameon": False,
}
# a page has one style sheet, and no use for comments and metadata
_REMOVED = re.compile(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", re.DOTALL)
_IDENTIFIER = re.compile(r'(\bid="|href="#|url\(#)')


@contextlib.contextmanager
def own_style() -> Iterator[None]:
    """Inside, matplotlib draws in the page's style, whatever the user's settings are."""
    plain: Any = {name: value for name, value in matplotlib.rcParamsDefault.items() if not name.startswith("backend")}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the page's font has it
        warnings.filterwarnings("ignore", category=matplotlib.MatplotlibDeprecationWarning)
        with matplotlib.rc_context(plain | _STYLE):
            yield


def new_axes(width: float, height: float) -> Axes:
    """Axes in a figure of their own. Pixels."""
    figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
    FigureCanvasSVG(figure)
    return figure.add_subplot()


def inline(axes: Axes, name: str, label: str) -> str:
    """The figure of these axes as an SVG element. name: unique on the page; label: what it shows."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    written = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = _REMOVED.sub("", written.getvalue())
    svg = (
        svg[svg.index("<svg") :]
        .replace("xlink:href", "href")
        .replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    )
    return _IDENTIFIER.sub(rf"\g<1>{name}-", svg).replace(
        "<svg", f'<svg role="img" aria-label={quoteattr(printable(label))}', 1
    )
