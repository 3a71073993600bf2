"""The roofline: the machine's measured rates, and the work per second that they allow a case."""

from collections.abc import Iterable

from shared.bench.record import Record, Result
from shared.bench.units import figures
from shared.problems import PROBLEMS

# names in a record's environment
BANDWIDTH, EXPONENTIALS = "bandwidth_bytes_per_second", "exponentials_per_second"


def rate_limit(record: Record, result: Result) -> float | None:
    """Work per second at the measured memory bandwidth, if a call reads its input and writes its output once.

    On an accelerator also at the measured rate of exponentials, if it takes as many as the kernels; the lower of both.
    """
    limits = [limit for limit in (_by_bandwidth(record, result), _by_exponentials(record, result)) if limit]
    return min(limits, default=None)


def share_of_limit(record: Record, result: Result) -> float | None:
    """The part of the limit that a case reaches, by its time on the accelerator where that is known."""
    rate, limit = result.rate, rate_limit(record, result)
    if not rate or not limit:
        return None
    on_device = result.device_seconds
    return (result.work or 0) / on_device / limit if on_device else rate / limit


def limits(record: Record) -> Iterable[str]:
    """A line on the measured limits of an accelerator."""
    bandwidth, exponentials = _rate(record, BANDWIDTH), _rate(record, EXPONENTIALS)
    if bandwidth and exponentials:
        yield (
            f"measured limits: copying {figures(bandwidth / 1e9)} GB/s, {figures(exponentials / 1e9)} billion "
            "exponentials per second; the limit is the lower of what both allow, if a call reads its input and writes "
            "its output once and takes as many exponentials as the GPU kernels"
        )


def _by_bandwidth(record: Record, result: Result) -> float | None:
    bandwidth, moved = _rate(record, BANDWIDTH), (result.input_bytes or 0) + (result.output_bytes or 0)
    return result.work * bandwidth / moved if bandwidth and moved and result.work else None


def _by_exponentials(record: Record, result: Result) -> float | None:
    rate = _rate(record, EXPONENTIALS)
    needed = PROBLEMS[result.case.problem].special_functions(result.case.pass_name, result.case.dtype)
    return rate / needed if rate and needed else None


def _rate(record: Record, name: str) -> float | None:
    rate = record.environment.get(name)
    return rate if isinstance(rate, int | float) and rate > 0 else None
