"""Axis ticks and labels: round numbers that fit, with units."""

import math

from shared.bench.analysis.estimates import Estimate
from shared.bench.report.svg import FONT
from shared.bench.report.tables import printable


def label_width(text: str) -> float:
    """Pixels that a text takes at most, in any font that a page is likely to have."""
    return 0.57 * FONT * len(text)


def log_ticks(low: float, high: float, room: float, label: float = 44.0) -> list[float]:
    """Round numbers from low to high whose labels fit into the room. room, label: pixels."""
    most = max(2, int(room / label))
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(found) <= most:
            return found
    powers = [10.0**decade for decade in decades if low <= 10.0**decade <= high]
    return powers[:: math.ceil(len(powers) / most)]


def shown(text: str, most: int) -> str:
    """A name, cut to so many characters."""
    text = " ".join(printable(text).split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def span(estimate: Estimate) -> tuple[float, float, float]:
    """A value and its interval, which has no width where there is none."""
    value, low, high = estimate
    return (value, value, value) if math.isnan(low) else (value, min(low, value), max(high, value))


def percent(fraction: float) -> str:
    return f"{100 * fraction:.2g}%" if fraction < 1 else f"{fraction:.0%}"


def seconds_text(seconds: float) -> str:
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 999:
            return f"{seconds * factor:g} {unit}"
    return f"{seconds:,g} s"


def rate_text(rate: float) -> str:
    return f"{rate:g}"


def bytes_text(count: float) -> str:
    return f"{count / 2**20:g} MiB"


def count_text(count: float) -> str:
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= factor:
            return f"{count / factor:g} {unit}"
    return f"{count:g}"
