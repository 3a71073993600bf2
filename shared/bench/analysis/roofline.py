"""The roofline: the machine's measured rates, and the work per second that they allow a case."""

from shared.bench.record import Record, Result
from shared.problems import problem_of

# names in a record's environment; None or absent where it was not measured
BANDWIDTH, EXPONENTIALS = "bandwidth_bytes_per_second", "exponentials_per_second"


def rate_limit(record: Record, result: Result) -> float | None:
    """Work per second at the measured memory bandwidth, if a call reads its input and writes its output once.

    On an accelerator also at the measured rate of exponentials, if it needs as many as `fused`: the lower of both.
    """
    bandwidth, exponentials = record.environment.get(BANDWIDTH), record.environment.get(EXPONENTIALS)
    moved = (result.input_bytes or 0) + (result.output_bytes or 0)
    needed = problem_of(result.case.problem).special_functions(result.case.pass_name, result.case.dtype)
    limits = []
    if bandwidth and moved and result.work:
        limits.append(result.work * bandwidth / moved)
    if exponentials and needed:
        limits.append(exponentials / needed)
    return min(limits, default=None)


def share_of_limit(record: Record, result: Result) -> float | None:
    """The part of the limit that a case reaches, by its time on the accelerator where that is known."""
    limit = rate_limit(record, result)
    if not limit or not result.rate or not result.work:
        return None
    return result.work / (result.device_time or result.time).value / limit
