"""What the peaks that `memory` has measured say: memory of the process itself, bytes of a cell, the largest that fits.

    peak bytes of a process = base + cell * cells

is the line through the peaks of a process at two sizes. Each process has its own, so that intervals are over processes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shared.bench.analysis.verdict import Comparison, compare
from shared.bench.cases import FRAMEWORKS, Settings
from shared.bench.estimates import LEAST_PROCESSES, Block, Estimate, of_processes
from shared.bench.record import Record, Result
from shared.bench.report.tables import Table, left_then_right
from shared.bench.units import NOTHING, between, figures
from shared.bench.units import size as bytes_text

Size = tuple[int, int, int]  # pairs, rows, columns
LENGTHS = (256, 256)
# The first size has one cell for so many bytes of the memory: many times what any variant has needed.
FIRST_BYTES = 1024
# what is tried, as parts of the largest size that is predicted to fit, and what may become of it
BELOW, ABOVE = "90%", "120%"
TRIALS = {BELOW: 0.9, ABOVE: 1.2}
FITS, STOPPED = "fits", "stopped"


class Axis(NamedTuple):
    """The sizes among which the largest is sought: batches of pairs of given lengths, or square pairs in a batch."""

    batch: int | None  # None: it is sought
    rows: int
    cols: int

    @classmethod
    def of(cls, settings: Settings) -> "Axis":
        """That of a run: --batch seeks a length."""
        rows, cols = settings.size or LENGTHS
        # where pairs that long are too many, the first are shorter
        if settings.device == "cpu" and settings.batch and settings.memory:
            most = max(1, math.isqrt(settings.memory // FIRST_BYTES // settings.batch))
            rows = cols = min(rows, 1 << (most.bit_length() - 1))  # a power of 2
        return cls(settings.batch, rows, cols)

    def size(self, number: int) -> Size:
        """The size with so many pairs, or of that length."""
        return (number, self.rows, self.cols) if self.batch is None else (self.batch, number, number)

    def number(self, cells: float) -> int:
        """The largest number whose size has at most so many cells."""
        return int(cells / (self.rows * self.cols)) if self.batch is None else math.isqrt(int(cells / self.batch))

    def text(self, number: int) -> str:
        """The size in words."""
        if self.batch is None:
            return f"{number:,} pair{'' if number == 1 else 's'} of {self.rows} x {self.cols}"
        return f"{'a pair' if self.batch == 1 else f'{self.batch:,} pairs'} of {number:,} x {number:,}"


def memory_of(settings: Settings) -> int:
    """The memory of a run that has begun."""
    assert settings.memory is not None, "it is fixed before anything is measured"
    return settings.memory


class Need(NamedTuple):
    """What a process needs, in bytes."""

    base: float  # whatever the size: the framework, its compiler, compiled code
    cell: float

    def at(self, size: Sequence[int]) -> float:
        """The peak at a size."""
        return self.base + self.cell * math.prod(size)


def needs(result: Result) -> list[Need]:
    """Of each process of a case, if its memory grows with the size; none of a case that is not right."""
    if result.status != "ok" or not result.details.get("processes"):
        return []
    fewer, more = map(math.prod, result.details["sizes"])
    found = []
    for less, peak in (process["peaks"] for process in result.details["processes"]):
        cell = (peak - less) / (more - fewer)
        found.append(Need(less - cell * fewer, cell))
    return found if all(need.cell > 0 for need in found) else []


def estimate(result: Result, name: str) -> Estimate:
    """The base, or the bytes of a cell, over processes."""
    return of_processes([max(1.0, getattr(need, name)) for need in needs(result)])


def cells_that_fit(result: Result, memory: int) -> Estimate:
    """The cells of the largest call in a process of so many bytes, over processes."""
    return of_processes(_cells(result, memory))


def _cells(result: Result, memory: int) -> list[float]:
    return [max(1.0, (memory - need.base) / need.cell) for need in needs(result)]


def predicted_peak(result: Result, size: Sequence[int]) -> Estimate:
    """Bytes of a process at a size, over processes."""
    return of_processes([need.at(size) for need in needs(result)])


def compare_sizes(results: Iterable[Result], memory: int) -> Comparison:
    """Each framework's case with the largest size; the ratio is that of their cells."""
    return compare(_as_result(result, memory) for result in results if needs(result))


def _as_result(result: Result, memory: int) -> Result:
    """The reciprocals of its cells as the times of calls, a process each, which the analysis of other questions then
    compares: the less, the better."""
    return replace(result, blocks=[Block(n, 0, (1 / cells,)) for n, cells in enumerate(_cells(result, memory))])


def trials(result: Result) -> dict[str, dict[str, Any]]:
    """What was tried near the limit, by its share of the largest size."""
    return result.details.get("trials", {}) if result.status == "ok" else {}


def details_table(record: Record, results: Sequence[Result]) -> Table:
    """Every case with its intervals, and how far the prediction was off."""
    memory, axis, rows = record.settings.memory or 0, Axis.of(record.settings), []
    for result in results:
        fitting = cells_that_fit(result, memory)
        tried = trials(result).get(BELOW) or {}
        off = NOTHING
        if tried.get("peak"):
            off = f"{tried['peak'] / predicted_peak(result, tried['size']).value - 1:+.1%}"
        rows.append((
            result.case.pass_name,
            FRAMEWORKS[result.case.framework],
            result.case.variant,
            str(len(result.details["processes"])),
            _interval(estimate(result, "base"), lambda value: bytes_text(round(value))),
            _interval(estimate(result, "cell"), lambda value: f"{figures(value)} B"),
            _interval(fitting, lambda cells: f"{axis.number(cells):,}"),
            off,
        ))  # fmt: skip
    headers = (
        *("pass", "framework", "variant", "processes", "process\nitself", "a cell", "largest size"),
        f"peak at {BELOW},\nover predicted",
    )
    below = (f"With 95% intervals where at least {LEAST_PROCESSES} processes were measured.",)
    return Table("Memory of each case", headers, rows, left_then_right(3, len(headers) - 3), below)


def _interval(estimate: Estimate, text: Any) -> str:
    if math.isnan(estimate.low):
        return text(estimate.value)
    return f"{text(estimate.value)}\n({between(estimate.low, estimate.high, text)})"
