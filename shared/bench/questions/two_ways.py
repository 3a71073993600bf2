"""The base class of questions that time every case in two ways, each in worker processes of its own, in turns."""

from collections.abc import Iterator
from typing import NamedTuple

from shared.bench.analysis.estimates import SAME, Estimate
from shared.bench.analysis.verdict import Comparison, compare, known_ratio
from shared.bench.cases import FRAMEWORKS, Case
from shared.bench.questions.question import Question
from shared.bench.record import Record, Result
from shared.bench.report.tables import Answer, Statement, Table, left_then_right
from shared.bench.units import NOTHING, duration, ratio_interval, ratio_text


class Wording(NamedTuple):
    """Headers and sentences of the answer."""

    title: str
    columns: tuple[str, str, str]  # the headers of both times of a framework, and of their ratio
    of_ratio: str  # what that ratio is
    sentence: str  # the start of the sentence on a framework, before its ratios


class TwoWays(Question):
    """Every case in a usual way and in another one: the frameworks in each, and what the other way changes."""

    usual: str  # labels
    other: str
    is_gain: bool  # True: the ratio is usual / other, a gain; False: other / usual, a cost
    wording: Wording

    def deciding(self, record: Record) -> list[Estimate]:
        """The ratio of the two ways for each case, and the ratio of the frameworks in the other way."""
        rows = _rows(record)
        ratios = [self._change(row, framework) for row in rows for framework in FRAMEWORKS]
        ratios += [row.comparison(self.other).ratio for row in rows]
        return [ratio for ratio in ratios if ratio is not None]

    def contenders(self, record: Record) -> set[Case]:
        return {result.case for result in record.results}

    def answer(self, record: Record) -> Answer:
        rows = _rows(record)
        return Answer([self._table(rows)], list(self._sentences(rows))) if rows else Answer()

    def _change(self, row: "_Row", framework: str) -> Estimate | None:
        """The ratio of the two times, from paired rounds; None where one is not known."""
        labels = (self.usual, self.other) if self.is_gain else (self.other, self.usual)
        return known_ratio(*(row.results.get((framework, label)) for label in labels))

    def _table(self, rows: "list[_Row]") -> Table:
        usual, other, change = self.wording.columns
        columns = [f"{name}\n{column}" for name in FRAMEWORKS.values() for column in (usual, other, change)]
        headers = ("variant", "pass", *columns, f"faster\n{usual}", f"faster\n{other}")
        cells = []
        for row in rows:
            cell = [row.variant, row.pass_name]
            for framework in FRAMEWORKS:
                for label in (self.usual, self.other):
                    result = row.results.get((framework, label))
                    cell.append(duration(result.time.value) if result else NOTHING)
                ratio = self._change(row, framework)
                cell.append(f"{ratio_text(ratio.value)}×\n({ratio_interval(ratio)})" if ratio else NOTHING)
            cells.append((*cell, *(row.comparison(label).text for label in (self.usual, self.other))))
        below = (
            f"{self.wording.of_ratio}, and the 95% interval.",
            f"The faster framework, by what factor, and the 95% interval; same: within ±{SAME - 1:.0%}.",
        )
        return Table(self.wording.title, headers, cells, left_then_right(len(headers), 0), below)

    def _sentences(self, rows: "list[_Row]") -> Iterator[Statement]:
        for framework, name in FRAMEWORKS.items():
            ratios = [
                f"{row.variant} {row.pass_name} {ratio_text(ratio.value)}× ({ratio_interval(ratio)})"
                for row in rows
                if (ratio := self._change(row, framework))
            ]
            if ratios:
                yield Statement(name, f"{self.wording.sentence}: {', '.join(ratios)}.")
        for row in rows:
            comparison = row.comparison(self.other)
            if comparison.ratio:
                yield Statement(f"{row.variant} {row.pass_name}, {self.wording.columns[1]}", comparison.sentence)


class _Row(NamedTuple):
    """A variant in a pass, both ways in both frameworks."""

    variant: str
    pass_name: str
    results: dict[tuple[str, str], Result]  # by framework and label: those that were measured

    def comparison(self, label: str) -> Comparison:
        """Compare the two frameworks in one way."""
        return compare(result for (_, way), result in self.results.items() if way == label)


def _rows(record: Record) -> list[_Row]:
    """A row for each variant, pass and input that has a time, in the order of the results."""
    rows: dict[tuple[str, str, str], _Row] = {}
    for result in record.results:
        case = result.case
        if result.measured:
            where = f", {case.input}" if len(record.inputs) > 1 else ""
            row = _Row(case.variant, case.pass_name + where, {})
            row = rows.setdefault((case.variant, case.pass_name, case.input), row)
            row.results[case.framework, case.label] = result
    return list(rows.values())
