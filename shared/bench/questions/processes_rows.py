"""What n processes gain in a pass of a framework: ratios of times that were taken side by side."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from shared.bench.analysis.verdict import Comparison, known_comparison, known_ratio
from shared.bench.cases import FRAMEWORKS
from shared.bench.estimates import Estimate
from shared.bench.questions.processes_inputs import ALONE, COUNT, copies_name
from shared.bench.record import Record, Result
from shared.problems import problem_of
from shared.problems.problem import BATCH


def one_label(cores: int) -> str:
    """Of the cases that one process runs."""
    return f"1 process, {_cores(cores)}"


def many_label(count: int, cores: int) -> str:
    """Of the cases that several processes run, each on so many cores."""
    return f"{count} processes, {_cores(cores)} each"


def _cores(count: int) -> str:
    return f"{count} core{'s' if count > 1 else ''}"


class Row(NamedTuple):
    """A pass of a framework and variant by so many processes."""

    count: int
    cores: int  # of each process
    all_cores: int
    framework: str
    variant: str
    pass_name: str
    results: Mapping[tuple[str, str], Result]  # by input and label: those that have a time

    @property
    def speed_up(self) -> Estimate | None:
        """Of a batch that is divided, over one process on one process's cores."""
        return self._ratio((BATCH, one_label(self.cores)), (BATCH, self._together))

    @property
    def against_all(self) -> Estimate | None:
        """The same over one process on all cores."""
        return self.choice.ratio if self.choice else None

    @property
    def choice(self) -> Comparison | None:
        """All processes against one on all cores, which says whether that is decided; None where one has no time."""
        labels = self._together, one_label(self.all_cores)
        return known_comparison(*(self.results.get((BATCH, label)) for label in labels))

    @property
    def weak(self) -> Estimate | None:
        """The efficiency with a batch for each process: the time of one batch in one process over that."""
        return self._ratio((BATCH, one_label(self.cores)), (copies_name(self.count), self._together))

    @property
    def weak_against_all(self) -> Estimate | None:
        """With a batch for each process: the time of all in one process on all cores over that."""
        copies = copies_name(self.count)
        return self._ratio((copies, one_label(self.all_cores)), (copies, self._together))

    @property
    def by_count(self) -> Estimate | None:
        """The time with shards of as many pairs over that with shards of as many cells."""
        return self._ratio((COUNT, self._together), (BATCH, self._together))

    @property
    def communication(self) -> Estimate | None:
        """Its share of a step, waiting included."""
        ratio = self._ratio((ALONE, self._together), (BATCH, self._together))
        return None if ratio is None else Estimate(1 - ratio.value, 1 - ratio.high, 1 - ratio.low)

    @property
    def _together(self) -> str:
        return many_label(self.count, self.cores)

    def _ratio(self, slower: tuple[str, str], faster: tuple[str, str]) -> Estimate | None:
        return known_ratio(self.results.get(slower), self.results.get(faster))


def rows_of(record: Record) -> list[Row]:
    """Of every number of processes above one, in the order of numbers, frameworks, passes and the ladder."""
    all_cores, passes = record.settings.threads, record.settings.passes
    rungs = problem_of(record.settings.problem).variant_names
    sets = {found for result in record.results if (found := _set_of(result.case.label))}
    kinds = {(r.case.framework, r.case.variant, r.case.pass_name) for r in record.results if r.measured}
    ordered = sorted(
        kinds, key=lambda kind: (list(FRAMEWORKS).index(kind[0]), rungs.index(kind[1]), passes.index(kind[2]))
    )
    rows = []
    for count, cores in sorted(sets):
        for kind in ordered:
            own = [r for r in record.results if (r.case.framework, r.case.variant, r.case.pass_name) == kind]
            found = {(r.case.input, r.case.label): r for r in own if r.measured}
            row = Row(count, cores, all_cores, *kind, found)
            if any(_set_of(label) == (count, cores) for _, label in found):
                rows.append(row)
    return rows


def _set_of(label: str) -> tuple[int, int] | None:
    """Processes and the cores of each, by the label of several."""
    found = re.fullmatch(r"(\d+) processes, (\d+) cores? each", label)
    return (int(found[1]), int(found[2])) if found else None
