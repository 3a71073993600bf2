"""Clocks, power, temperature and throttling of a GPU during a run, sampled by nvidia-smi."""

import contextlib
import math
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

_NUMBERS = {"sm_mhz": "clocks.sm", "memory_mhz": "clocks.mem", "watts": "power.draw", "celsius": "temperature.gpu"}
_FIELDS = ",".join([*_NUMBERS.values(), "clocks_event_reasons.active"])
_PERIOD_MS = 500
# bits of the last field: the GPU is idle; reasons for lower clocks
_IDLE = 0x1
_REASONS = {"power": 0x4 | 0x80, "heat": 0x20 | 0x40, "a setting": 0x2 | 0x10 | 0x100}


@contextlib.contextmanager
def sampled(device: str) -> Iterator[list[str]]:
    """Sample the GPU in the meantime into a list of lines; it stays empty on a CPU, or without nvidia-smi."""
    lines: list[str] = []
    which = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0] or "0"
    query = f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits", f"--loop-ms={_PERIOD_MS}"
    process = None
    # through a pipe: nvidia-smi ends when nobody reads it any more; Ctrl-C is for the run alone
    with contextlib.suppress(OSError):
        if device != "cpu":
            process = subprocess.Popen(
                ["nvidia-smi", "--id", which, *query], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL, text=True, errors="replace", start_new_session=True,
            )  # fmt: skip
            threading.Thread(target=lines.extend, args=[process.stdout or ()], daemon=True).start()
    try:
        yield lines
    finally:
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # one that is stuck in the driver is left there
                process.wait(5.0)


def summary(lines: Sequence[str]) -> dict[str, Any]:
    """Lowest, median and highest of each number while the GPU worked, and the share of samples with low clocks, by
    reason; empty if there are no samples."""
    rows = list(_rows(lines))
    if not rows:
        return {}
    *columns, masks = zip(*rows, strict=True)
    state: dict[str, Any] = {"samples": len(rows)}
    for name, column in zip(_NUMBERS, columns, strict=True):
        if numbers := [value for value in column if not math.isnan(value)]:
            state[name] = [min(numbers), median(numbers), max(numbers)]
    throttled = {name: sum(bool(int(mask) & bits) for mask in masks) / len(rows) for name, bits in _REASONS.items()}
    return state | {"throttled": {name: share for name, share in throttled.items() if share}}


def _rows(lines: Sequence[str]) -> Iterator[tuple[float, ...]]:
    """The samples in which the GPU worked; a number that it does not tell is NaN, and a line may be incomplete."""
    for line in list(lines):
        *numbers, mask = line.split(",")
        with contextlib.suppress(ValueError):
            if len(numbers) == len(_NUMBERS) and not int(mask, 16) & _IDLE:
                yield *(math.nan if "[" in text else float(text) for text in numbers), int(mask, 16)


def in_words(state: dict[str, Any]) -> str:
    """A line for the head of a report."""
    units = {"sm_mhz": "MHz", "memory_mhz": "MHz of memory", "watts": "W", "celsius": "°C"}
    form = "{1:,.0f} {3} ({0:,.0f} … {2:,.0f})"
    parts = [form.format(*state[name], unit) for name, unit in units.items() if name in state]
    reasons = [f"by {name} in {share:.0%}" for name, share in state["throttled"].items()]
    slowed = f"slowed down {', '.join(reasons)} of {state['samples']} samples" if reasons else "never slowed down"
    return f"GPU at work: {', '.join(parts)}; {slowed}; compare.py locks no clocks"
