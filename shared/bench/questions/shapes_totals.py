"""What the streams of `shapes` took in total: as measured, or extrapolated from the batches that were."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean
from typing import Any

from shared.bench.analysis.verdict import Comparison, compare
from shared.bench.cases import FRAMEWORKS
from shared.bench.estimates import Block, Estimate, median_time, time_ratio
from shared.bench.record import Result
from shared.bench.report.tables import Table, left_then_right
from shared.bench.units import duration, time_interval

# after so many batches totals are told
COUNTS = (5, 50, 500)
EXTRAPOLATED = "~"


def processes(result: Result) -> list[dict[str, Any]]:
    """The streams of a case, each of a fresh process; none of a case that is not right."""
    return result.details.get("processes", []) if result.status == "ok" else []


def totals(result: Result, count: int) -> list[float]:
    """Seconds that the first `count` batches took in each process."""
    return [_total(result, process, count) for process in processes(result)]


def is_extrapolated(result: Result, count: int) -> bool:
    """Whether a process ended before so many batches."""
    return any(len(process["seconds"]) < count for process in processes(result))


def _total(result: Result, process: Mapping[str, Sequence[float]], count: int) -> float:
    """Batches that were not measured take the mean of those that were: of a shape seen before, or of a new one.

    The first batch counts only if there is no other. Where no shape was seen twice, the batches that were called again
    stand for that.
    """
    seconds, is_new = process["seconds"], _new_shapes(result)
    measured = list(zip(seconds, is_new, strict=False))

    def mean(new: bool) -> float:
        own = [took for took, its in measured[1:] if its == new]
        return fmean(own or (seconds[:1] if new else process["again"]))

    missing = is_new[len(seconds) : count]
    later = max(0, count - len(is_new))
    share = result.details["later_new"] / result.details["later"] if result.case.compiled and later else 0.0
    new = sum(missing) + later * share
    return sum(seconds[:count]) + new * mean(True) + (len(missing) + later - new) * mean(False)


def _new_shapes(result: Result) -> list[bool]:
    """Of each batch of the stream: whether it is the first of its shape. Nothing is compiled for others, or at all."""
    if not result.case.compiled:
        return [False] * len(result.details["shapes"])
    shapes = [tuple(shape) for shape in result.details["shapes"]]
    return [shape not in shapes[:number] for number, shape in enumerate(shapes)]


def compilations(result: Result) -> tuple[int, int | None]:
    """How many the longest stream took; and in how many batches, if it did not reach its end."""
    counts = max((process["compilations"] for process in processes(result)), key=len)
    return sum(counts), len(counts) if len(counts) < len(result.details["shapes"]) else None


def total_estimate(result: Result, count: int) -> Estimate:
    """The total with its interval over processes."""
    return median_time(_as_result(result, count).blocks)


def total_text(result: Result, count: int) -> str:
    """Short, marked where it is extrapolated."""
    return (EXTRAPOLATED if is_extrapolated(result, count) else "") + duration(total_estimate(result, count).value)


def compare_totals(results: Iterable[Result], count: int) -> Comparison:
    """Each framework's fastest stream against the other's."""
    return compare(_as_result(result, count) for result in results if processes(result))


def ratio_of_totals(slower: Result, faster: Result, count: int) -> Estimate:
    """The total of one case over that of another, from processes of the same number."""
    return time_ratio(_as_result(slower, count).blocks, _as_result(faster, count).blocks)


def fastest(results: Iterable[Result], count: int) -> Result:
    """The one with the least total."""
    return min(results, key=lambda result: total_estimate(result, count).value)


def totals_table(results: Sequence[Result], title: str) -> Table:
    """Every case: its shapes, processes, and totals with their intervals."""
    rows = []
    for result in results:
        case, estimates = result.case, [total_estimate(result, count) for count in COUNTS]
        shapes = len({tuple(shape) for shape in result.details["shapes"]})
        intervals = [(total_text(result, count), time_interval(e)) for count, e in zip(COUNTS, estimates, strict=True)]
        names = FRAMEWORKS[case.framework], case.variant, case.label
        rows.append((*names, str(shapes), str(len(processes(result))), *chain.from_iterable(intervals)))
    after = chain.from_iterable((f"after {count}", "95% interval") for count in COUNTS)
    return Table(
        title, ("framework", "variant", "strategy", "shapes", "processes", *after), rows, left_then_right(3, 8)
    )


def _as_result(result: Result, count: int) -> Result:
    """Its totals as the times of calls, a process each, which the analysis of other questions then compares."""
    blocks = [Block(number, 0, (total,)) for number, total in enumerate(totals(result, count))]
    return replace(result, blocks=blocks)
