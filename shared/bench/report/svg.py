"""A matplotlib figure as an inline SVG that takes its colours from the page around it, so it serves light and dark.

It is drawn in stand-in colours, which then become CSS variables. Text stays text. The same figure gives the same SVG.
"""

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple
from xml.dom import minidom

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from shared.bench.report.rows import printable

# pixels; a phone shows this width unscaled
WIDTH = 344
FONT = 10.5
# stand-ins, none of which a figure uses by itself, and the CSS variables of the page
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
# the family is the page's; matplotlib writes it by itself or, before 3.10, at the end of the shorthand
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


class Plot(NamedTuple):
    """A plot and the words around it."""

    title: str
    svg: str
    reading: str  # how to read it


@contextlib.contextmanager
def own_style() -> Iterator[None]:
    """Within it matplotlib draws in our style, whatever the user's own settings are."""
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
    written = io.BytesIO()
    empty = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(written, format="svg", dpi=72, transparent=True, metadata=empty)
    root = minidom.parseString(written.getvalue()).documentElement
    assert root is not None
    _adapt(root, name)
    _, _, width, height = root.getAttribute("viewBox").split()
    for attribute in ("version", "xmlns:xlink", "id"):
        if root.hasAttribute(attribute):
            root.removeAttribute(attribute)
    # the page's style decides the size; these are for readers without it
    for attribute, value in (("width", width), ("height", height), ("role", "img"), ("aria-label", printable(label))):
        root.setAttribute(attribute, value)
    return root.toxml()


def _adapt(element: minidom.Element, name: str) -> None:
    """Colours become variables, fonts the page's, identifiers unique on the page; what nobody sees goes."""
    for attribute, value in list(element.attributes.items()):
        if attribute == "id":
            value = f"{name}-{value}"
        elif attribute == "xlink:href":
            element.removeAttribute(attribute)
            attribute, value = "href", value.replace("#", f"#{name}-", 1)
        value = value.replace("url(#", f"url(#{name}-")
        if attribute == "style":
            value = _FAMILY.sub("", value).replace("font: ", "font-size: ")
        if attribute in ("fill", "stroke") and value in _VARIABLES:  # of a hatch; only a style can hold a variable
            element.removeAttribute(attribute)
            attribute, value = "style", f"{attribute}: {value}"
        if attribute == "style":
            value = _STAND_INS.sub(lambda match: f"var(--{_VARIABLES[match[0]]})", value)
        element.setAttribute(attribute, value)
    for child in list(element.childNodes):
        # a style sheet in an inline SVG would be one for the whole page
        if not isinstance(child, minidom.Element):
            if isinstance(child, minidom.Comment):
                element.removeChild(child)
        elif child.tagName in ("metadata", "style"):
            element.removeChild(child)
        else:
            _adapt(child, name)
