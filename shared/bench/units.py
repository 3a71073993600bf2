"""Numbers as text: durations, sizes, ratios, intervals."""

import math

from shared.bench.analysis.estimates import Estimate


def duration(seconds: float) -> str:
    """Seconds, with three significant figures and a fitting unit."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        value = float(f"{seconds * factor:.3g}")  # rounded first: 999.9 µs are 1.00 ms
        if value < 1000:
            return f"{figures(value)} {unit}"
    return f"{seconds:.0f} s" if seconds >= 999.5 else f"{figures(seconds)} s"


def figures(value: float) -> str:
    """A positive number with three significant figures."""
    value = float(f"{value:.3g}")  # rounded first: 9.996 is 10.0
    if value >= 1e5:
        return f"{value:.0e}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size(count: int | None) -> str:
    """Bytes."""
    if count is None:
        return "?"
    if count < 2**20:
        return f"{count / 2**10:.0f} KiB" if count >= 2**10 else f"{count} B"
    return f"{count / 2**20:.1f} MiB" if count < 2**30 else f"{count / 2**30:.2f} GiB"


def time_interval(time: Estimate) -> str:
    """The interval of a time; a dash if there is none."""
    return "–" if math.isnan(time.low) else f"{duration(time.low)} … {duration(time.high)}"


def ratio_interval(ratio: Estimate) -> str:
    """The interval of a ratio, with enough figures to show on which side of 1 its ends lie."""
    if ratio.low > 0.9 and ratio.high < 1.1 and 1.0 not in (round(ratio.low, 3), round(ratio.high, 3)):
        return f"{ratio.low:.3f} … {ratio.high:.3f}"
    return f"{near_one(ratio.low)} … {near_one(ratio.high)}"


def near_one(value: float) -> str:
    """A ratio with three significant figures, or as many as show on which side of 1 it lies."""
    text = figures(value)
    digits = 3
    while float(text) == 1.0 != value and digits < 16:
        digits += 1
        text = f"{value:.{digits}f}"
    return text


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
