"""What does a call cost between other work, as in a step of training?

Every case is timed in a loop of calls, as everywhere else, and right after a product of two matrices by the same
framework: that leaves other data and code in the caches, and the framework's threads where it leaves them. Both have
worker processes of their own, which take turns in the same rounds.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from shared.bench.analysis.estimates import SAME, Estimate
from shared.bench.analysis.verdict import Comparison, compare, known_ratio
from shared.bench.cases import BETWEEN, FRAMEWORKS, Case
from shared.bench.questions.question import Question, WorkerStart
from shared.bench.record import Record, Result
from shared.bench.report.tables import Answer, Statement, Table, left_then_right
from shared.bench.units import NOTHING, duration, ratio_interval, ratio_text

LOOP = "in a loop"

_BELOW = (
    "Between: right after a product of two matrices of 1024 x 1024 by the same framework; longer: that time over the "
    "one in a loop of calls, and the 95% interval.",
    f"The faster framework, by what factor, and the 95% interval; same: within ±{SAME - 1:.0%}.",
)


class Between(Question):
    """Every case in a loop, and between matrix products."""

    name = "between"
    asks = "what does a call cost between other work, as in a step of training"
    default_input = "random"
    only_on_cpus = "on others every call finds its caches flushed"
    labels: Mapping[str, WorkerStart] = {LOOP: WorkerStart(), BETWEEN: WorkerStart()}

    def deciding(self, record: Record) -> list[Estimate]:
        """How much longer each case takes, and the ratios of the frameworks between other work."""
        rows = _rows(record)
        found = [row.longer(framework) for row in rows for framework in FRAMEWORKS]
        found += [row.comparison(BETWEEN).ratio for row in rows]
        return [estimate for estimate in found if estimate is not None]

    def contenders(self, record: Record) -> set[Case]:
        return {result.case for result in record.results}

    def answer(self, record: Record) -> Answer:
        rows = _rows(record)
        return Answer([_table(rows)], list(_sentences(rows))) if rows else Answer()


QUESTION = Between()


class _Row(NamedTuple):
    """A variant in a pass, both ways in both frameworks."""

    variant: str
    pass_name: str
    results: dict[tuple[str, str], Result]  # by framework and label: those that were measured

    def longer(self, framework: str) -> Estimate | None:
        """The time between other work over that in a loop, from paired rounds; None where one is not known."""
        return known_ratio(*(self.results.get((framework, label)) for label in (BETWEEN, LOOP)))

    def comparison(self, label: str) -> Comparison:
        """Of the two frameworks."""
        return compare(result for (_, own), result in self.results.items() if own == label)


def _rows(record: Record) -> list[_Row]:
    """Of all that has a time, in the order of the results."""
    found: dict[tuple[str, str], _Row] = {}
    for result in record.results:
        case = result.case
        if result.measured:
            row = found.setdefault((case.variant, case.pass_name), _Row(case.variant, case.pass_name, {}))
            row.results[case.framework, case.label] = result
    return list(found.values())


def _table(rows: list[_Row]) -> Table:
    own = [f"{name}\n{what}" for name in FRAMEWORKS.values() for what in ("in a loop", "between", "longer")]
    headers = ("variant", "pass", *own, "faster\nin a loop", "faster\nbetween")
    cells = []
    for row in rows:
        cell = [row.variant, row.pass_name]
        for framework in FRAMEWORKS:
            for label in (LOOP, BETWEEN):
                result = row.results.get((framework, label))
                cell.append(duration(result.time.value) if result else NOTHING)
            ratio = row.longer(framework)
            cell.append(f"{ratio_text(ratio.value)}×\n({ratio_interval(ratio)})" if ratio else NOTHING)
        cells.append((*cell, *(row.comparison(label).text for label in (LOOP, BETWEEN))))
    return Table("In a loop, and between other work", headers, cells, left_then_right(len(headers), 0), _BELOW)


def _sentences(rows: list[_Row]) -> Iterator[Statement]:
    for framework, name in FRAMEWORKS.items():
        known = [(row, ratio) for row in rows if (ratio := row.longer(framework))]
        if known:
            each = ", ".join(
                f"{row.variant} {row.pass_name} {ratio_text(ratio.value)}× ({ratio_interval(ratio)})"
                for row, ratio in known
            )
            yield Statement(name, f"between matrix products a call takes, against a loop of calls: {each}.")
    for row in rows:
        comparison = row.comparison(BETWEEN)
        if comparison.ratio:
            yield Statement(f"{row.variant} {row.pass_name}, between", comparison.sentence)
