"""Clocks, power, temperature and throttling of a GPU during a run, sampled by nvidia-smi."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

_FIELDS = "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "clocks_event_reasons.active"
_PERIOD_MS = 500
# bits of the last field: no work; and why clocks are lower than they could be
_IDLE = 0x1
_REASONS = {"power": 0x4 | 0x80, "heat": 0x20 | 0x40, "hardware": 0x8, "a setting": 0x2 | 0x10 | 0x100}


@contextlib.contextmanager
def sampled(device: str, path: Path) -> Iterator[None]:
    """Append samples of the GPU to a file in the meantime; none on a CPU, or without nvidia-smi."""
    if device == "cpu":
        yield
        return
    which = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0] or "0"
    query = f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits", f"--loop-ms={_PERIOD_MS}"
    process = None
    with contextlib.suppress(OSError), path.open("wb") as file:
        process = subprocess.Popen(
            ["nvidia-smi", "--id", which, *query], stdout=file, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def summary(path: Path) -> dict[str, Any]:
    """Lowest, median and highest of each number while the GPU worked, and the share of samples with low clocks, by
    reason; empty if there are no samples."""
    rows = list(_rows(path))
    if not rows:
        return {}
    sm_mhz, memory_mhz, watts, celsius, masks = zip(*rows, strict=True)
    throttled = {name: sum(bool(mask & bits) for mask in masks) / len(rows) for name, bits in _REASONS.items()}
    return {
        "samples": len(rows),
        **{
            name: [min(values), median(values), max(values)]
            for name, values in (("sm_mhz", sm_mhz), ("memory_mhz", memory_mhz), ("watts", watts), ("celsius", celsius))
        },
        "throttled": {name: share for name, share in throttled.items() if share},
    }


def _rows(path: Path) -> Iterator[tuple[float, float, float, float, int]]:
    """The samples in which the GPU worked; a line may be incomplete, or have "[N/A]"."""
    with contextlib.suppress(OSError):
        for line in path.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                *numbers, mask = line.split(",")
                sm_mhz, memory_mhz, watts, celsius = map(float, numbers)
                if not int(mask, 16) & _IDLE:
                    yield sm_mhz, memory_mhz, watts, celsius, int(mask, 16)


def in_words(state: dict[str, Any]) -> str:
    """A line for the head of a report."""
    (slowest, clock, fastest), (_, watts, most) = state["sm_mhz"], state["watts"]
    reasons = [f"by {name} in {share:.0%}" for name, share in state["throttled"].items()]
    slowed = f"slowed down {', '.join(reasons)} of {state['samples']} samples" if reasons else "never slowed down"
    return (
        f"GPU at work: {clock:,.0f} MHz ({slowest:,.0f} … {fastest:,.0f}), memory {state['memory_mhz'][1]:,.0f} MHz, "
        f"{watts:.0f} W (at most {most:.0f}), at most {state['celsius'][2]:.0f} °C; {slowed}; clocks were not locked"
    )
