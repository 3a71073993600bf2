"""What the peaks that `memory` has measured say: memory of the process itself, bytes of a cell, the largest that fits.

    peak bytes of a process = base + cell * cells

is fitted to the peaks of each process by itself (the fit of `cost_model`), so that intervals are over processes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shared.bench.analysis.estimates import Block, Estimate, of_processes
from shared.bench.analysis.verdict import Comparison, compare
from shared.bench.cases import Settings
from shared.bench.questions.cost_model import fitted
from shared.bench.record import Result
from shared.problems.argument_types import size_text

Size = tuple[int, int, int]  # pairs, rows, columns
LENGTHS = (256, 256)


class Axis(NamedTuple):
    """The sizes among which the largest is sought: batches of pairs of given lengths, or square pairs in a batch."""

    batch: int | None  # None: it is sought
    rows: int
    cols: int

    @classmethod
    def of(cls, settings: Settings) -> "Axis":
        """That of a run: --batch seeks a length."""
        rows, cols = settings.size or LENGTHS
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


class Need(NamedTuple):
    """What a process needs, in bytes."""

    base: float  # whatever the size: the framework, its compiler, compiled code
    cell: float

    def at(self, size: Sequence[int]) -> float:
        """The peak at a size."""
        return self.base + self.cell * math.prod(size)


def needs(result: Result) -> list[Need]:
    """Of each process of a case, as far as its memory grows with the size; none of a case that is not right."""
    sizes = tuple(tuple(size) for size in result.details.get("sizes", ()))
    columns = tuple((1.0, float(math.prod(size))) for size in sizes)
    found = []
    for process in result.details.get("processes", ()) if result.status == "ok" else ():
        fit = fitted(tuple(map(size_text, sizes)), columns, tuple(map(float, process["peaks"])))
        if fit is not None and fit.sum.coefficients[1] > 0:
            found.append(Need(*map(float, fit.sum.coefficients)))
    return found


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
