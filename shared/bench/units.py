"""Numbers as text: durations, sizes, ratios, intervals; a dash for what is not known."""

from collections.abc import Callable
from typing import Any

from shared.bench.estimates import LEAST_PROCESSES, Estimate

NOTHING = "–"


def figures(value: float) -> str:
    """A positive number with at most three significant figures, at most two after the point."""
    value = float(f"{value:.3g}")  # rounded first: 9.996 is 10.0
    if value >= 1e5:
        return f"{value:.0e}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """Seconds with a fitting unit, and three significant figures below 1000 s."""
    if not seconds:
        return NOTHING
    for factor, unit in ((1e12, "ps"), (1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
        value = float(f"{seconds * factor:.3g}")  # rounded first: 999.9 µs are 1.00 ms
        if value < 1000:
            return f"{figures(value)} {unit}"
    return f"{seconds:.0f} s" if seconds >= 999.5 else f"{figures(seconds)} s"


def bytes_text(count: int | None) -> str:
    """Bytes."""
    units = ((2**30, ".2f", "GiB"), (2**20, ".1f", "MiB"), (2**10, ".0f", "KiB"), (1, ".0f", "B"))
    least, form, unit = next((unit for unit in units if (count or 0) >= unit[0]), units[-1])
    return NOTHING if count is None else f"{count / least:{form}} {unit}"


def ratio_text(value: float) -> str:
    """A ratio briefly: three decimals near 1, else at most three significant figures."""
    return f"{value:.3f}" if 0.9 < value < 1.1 else figures(value)


def range_text(low: float, high: float, text: Callable[[Any], str] = duration) -> str:
    """Two values as text; a unit that they share is written once."""
    first, last = text(low), text(high)
    _, space, unit = last.partition(" ")
    return f"{first.removesuffix(space + unit)} … {last}"


def rough_text(value: float) -> str:
    """A positive number with two significant figures."""
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2g}"


def processes_text(estimate: Estimate) -> str:
    """The number of processes where they are few."""
    count = estimate.processes
    return "" if count >= LEAST_PROCESSES else f"{count} process{'es' if count > 1 else ''}"


def interval_text(estimate: Estimate, text: Callable[[Any], str] = duration) -> str:
    """The interval, if there is one, and the number of processes where they are few."""
    few = processes_text(estimate)
    interval = range_text(estimate.low, estimate.high, text) if estimate.has_interval else ""
    return "; ".join(filter(None, [interval, few]))


def ratio_interval(estimate: Estimate) -> str:
    """The interval of a ratio."""
    return interval_text(estimate, ratio_text)


def minutes_text(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
