"""The base class of questions along one axis: every case at several points, mostly with workers for each point.

A subclass declares the points, the first one the baseline: `labels`, or with `is_over_inputs` the inputs. All else
follows. By default workers of all points take turns in the same rounds: what slows one slows them all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, product
from typing import Any, NamedTuple

from shared.bench.analysis.verdict import READING, Comparison, compare, compare_in_order, outcome_text
from shared.bench.cases import FRAMEWORKS, Case
from shared.bench.estimates import Estimate
from shared.bench.questions.question import Question, unmeasured
from shared.bench.record import Record, Result
from shared.bench.report.plots import Line, line_plot, plots_of_cases
from shared.bench.report.tables import Answer, Plot, Statement, Table, left_then_right
from shared.bench.units import NOTHING, duration, ratio_interval, ratio_text
from shared.problems import problem_of

_UNCLEAR = "no clear change"
_PAIRED = "Changes and factors are computed round by round: they are not quotients of the times shown."


class Row(NamedTuple):
    """A variant in a pass on an input, at every point of both frameworks."""

    variant: str
    pass_name: str
    input: str  # "" if they need not be told apart
    points: tuple[str, ...]  # of the run, the first one the baseline
    results: Mapping[tuple[str, str], Result]  # by framework and point: those that were measured

    def comparison(self, point: str) -> Comparison:
        """Compare the two frameworks at a point."""
        return compare(result for (_, at), result in self.results.items() if at == point)


class AxisQuestion(Question):
    """Every case at several points."""

    axis: str  # what the points differ in
    change: str  # from the baseline: a header
    is_over_inputs = False  # the points are the inputs, not labels; times are scaled to the same work to be compared
    is_gain = True  # the change is baseline / point, a gain; or else point / baseline, a cost
    compares = "The faster framework"  # what the sentence on the two frameworks is about
    below: tuple[str, ...] = ()  # footnotes on the points and the change
    drops_dominated = False  # each variant is compared with itself

    def number_of(self, point: str) -> float | None:
        """Return the place of a point on the axis of a plot; None if points have no numbers."""
        return None

    def choices(self, points: Sequence[str]) -> Sequence[str]:
        """The points that a reader may choose instead of the baseline."""
        return points[1:]

    def changed(self, row: Row, framework: str, point: str) -> Comparison | None:
        """The change of a framework from the baseline to a point, from paired rounds; None where it is not known."""
        first, second = (row.results.get((framework, at)) for at in (point, row.points[0]))
        if not (first and second):
            return None
        if self.is_over_inputs:
            second = _for_the_work_of(first, second)
        return compare_in_order(first, second) if self.is_gain else compare_in_order(second, first)

    def change_text(self, row: Row, framework: str, point: str) -> str:
        """The change of a framework from the baseline to a point, for a table cell."""
        comparison = self.changed(row, framework, point)
        if comparison is None or comparison.ratio is None:
            return NOTHING
        return f"{ratio_text(comparison.ratio.value)}×\n({ratio_interval(comparison.ratio)})"

    def rows(self, record: Record) -> list[Row]:
        """All that has a time, in the order of the ladder, of the passes and of the inputs."""
        by_row: dict[tuple[str, str, str], dict[tuple[str, str], Result]] = {}
        for result in record.results:
            case = result.case
            if result.measured:
                key = (case.variant, case.pass_name, "" if self.is_over_inputs else case.input)
                by_row.setdefault(key, {})[case.framework, self._point(case)] = result
        orders = (problem_of(record.settings.problem).variant_names, record.settings.passes, ("", *record.inputs))
        points = tuple(dict.fromkeys(self._point(result.case) for result in record.results))
        if "" in points:
            raise ValueError(f"a case without its point of the axis: {self.axis}")
        ordered = sorted(by_row, key=lambda own: [o.index(name) for o, name in zip(orders, own, strict=True)])
        return [Row(*names, points, by_row[names]) for names in ordered]

    def _point(self, case: Case) -> str:
        return case.input if self.is_over_inputs else case.label

    def deciding(self, record: Record) -> list[Estimate]:
        """The change to the last point, and the frameworks' ratio at the first and at the last."""
        comparisons: list[Comparison | None] = []
        for row in self.rows(record):
            comparisons += [self.changed(row, framework, row.points[-1]) for framework in FRAMEWORKS]
            comparisons += [row.comparison(point) for point in (row.points[0], row.points[-1])]
        return [comparison.ratio for comparison in comparisons if comparison and comparison.ratio]

    def contenders(self, record: Record) -> set[Case]:
        return {result.case for result in record.results}

    def answer(self, record: Record) -> Answer:
        rows = self.rows(record)
        if not rows:
            return Answer()
        points = rows[0].points
        choices = self.choices(points)
        winners = list(_winners(rows, [points[0], *choices], self.compares))
        said = [*self._changes(rows, choices), *winners]
        return Answer([self._table(record, rows)], said, lead=next(iter(winners), None))

    def plots(self, record: Record) -> Iterator[Plot]:
        """The change over the points, or where they have no numbers the times."""
        rows = self.rows(record)
        if not rows or self.number_of(rows[0].points[0]) is None:
            yield from plots_of_cases(record)
            return
        for pass_name in record.settings.passes:
            panels: dict[str, list[Line]] = {}
            for row, framework in product(rows, FRAMEWORKS):
                measured = [(self.number_of(point) or 0.0, comparison.ratio.value) for point in row.points
                         if (comparison := self.changed(row, framework, point)) and comparison.ratio]  # fmt: skip
                if row.pass_name == pass_name and measured:
                    panels.setdefault(row.input, []).append(Line(framework, row.variant, measured))
            if panels:
                reading = f"{self.change} over {self.axis}. The dotted line: ideal scaling."
                yield Plot(f"{pass_name}: {self.change}", line_plot(panels, self.axis, "×", ideal=True), reading)

    def _table(self, record: Record, rows: Sequence[Row]) -> Table:
        """A row for each point of each case; without columns that nothing fills."""
        columns = [f"{name}\n{column}" for name in FRAMEWORKS.values() for column in ("time", self.change)]
        headers = ("variant", "pass", "input", self.axis, *columns, "faster")
        cells = []
        for row in rows:
            for point in row.points:
                texts: list[str] = []
                for name in FRAMEWORKS:
                    result, is_first = row.results.get((name, point)), point == row.points[0]
                    texts.append(duration(result.time.value) if result else NOTHING)
                    texts.append(NOTHING if is_first else self.change_text(row, name, point))
                comparison = row.comparison(point)
                if comparison.results:
                    cells.append((*row[:3], point, *texts, comparison.text if comparison.ratio else NOTHING))
        baseline, *later = rows[0].points
        title = f"{' and '.join(later)} against {baseline}" if later else baseline
        is_decided = any(cell[-1] != NOTHING for cell in cells)
        below = (*self.below, _PAIRED, *([f"{READING}."] if is_decided else []), *unmeasured(record.results))
        table = Table(title, headers, cells, left_then_right(len(headers), 0), below)
        return table.filled() if len(record.inputs) > 1 else table.filled("input")

    def _changes(self, rows: Sequence[Row], choices: Sequence[str]) -> Iterator[Statement]:
        """Say for each framework what becomes faster, stays the same or becomes slower at its best point."""
        names = [row[:3] for row in rows]
        for framework, title in FRAMEWORKS.items():
            kinds: dict[str, dict[tuple[str, ...], tuple[str, Estimate]]] = {}
            for row in rows:
                changes = {point: self.changed(row, framework, point) for point in choices}
                ratios = {point: change.ratio for point, change in changes.items() if change and change.ratio}
                if ratios:
                    best = (max if self.is_gain else min)(ratios, key=lambda point: ratios[point])
                    words = ("faster", "slower") if self.is_gain else ("slower", "faster")
                    kind = outcome_text(ratios[best], words, _UNCLEAR)
                    kinds.setdefault(kind, {})[row[:3]] = best, ratios[best]
            parts = []
            for kind in ("faster", "faster or same", "same", "slower or same", "slower", _UNCLEAR):
                ratios_of_kind = kinds.get(kind, {})
                texts = []
                for text, chosen in _named([*ratios_of_kind], names):
                    bests = [ratios_of_kind[name] for name in chosen if kind in ("faster", "slower")]
                    texts.append(text + _factors(bests, len(choices) > 1) if bests else text)
                parts += [f"{kind}: {', '.join(texts)}"] if texts else []
            if parts:
                which = choices[0] if len(choices) == 1 else f"the best {self.axis}"
                yield Statement(f"{title}, {which} against {rows[0].points[0]}", f"{'; '.join(parts)}.")


def _winners(rows: Sequence[Row], points: Sequence[str], about: str) -> Iterator[Statement]:
    """Say which framework is faster at each point, and where that changes."""
    kinds: dict[str, list[tuple[str, ...]]] = {}
    for row in rows:
        by_point = [(point, outcome) for point in points if (outcome := row.comparison(point).outcome)]
        groups = groupby(by_point, key=lambda each: each[1])
        phrases = [f"{winner} ({' and '.join(point for point, _ in group)})" for winner, group in groups]
        if phrases:
            throughout = by_point[0][1] + " throughout" * (len(by_point) > 1)
            kind = throughout if len(phrases) == 1 else ", ".join(phrases)
            kinds.setdefault(kind, []).append(row[:3])
    every = [row[:3] for row in rows]
    parts = [f"{kind}: {', '.join(name for name, _ in _named(chosen, every))}" for kind, chosen in kinds.items()]
    if parts:
        yield Statement(about, f"{'; '.join(parts)}.")


def _for_the_work_of(first: Result, second: Result) -> Result:
    """The second result as if it had done as much work as the first, in proportion."""
    scale = (first.work or 1) / (second.work or 1)
    return replace(second, blocks=[block._replace(median=block.median * scale) for block in second.blocks])


def _factors(bests: Sequence[tuple[str, Estimate]], with_points: bool) -> str:
    """Return the range of the changes, as factors above 1, and their points: " (1.52 to 1.91×, 2 threads)"."""
    values = [max(ratio.value, 1 / ratio.value) for _, ratio in bests]
    factors = dict.fromkeys(ratio_text(value) for value in (min(values), max(values)))
    where = f", {' or '.join(dict.fromkeys(point for point, _ in bests))}" if with_points else ""
    return f" ({' to '.join(factors)}×{where})"


def _named(chosen: Sequence[tuple[str, ...]], every: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, list[Any]]]:
    """The chosen rows in few words: a variant that is chosen in every pass and input goes by its name alone."""
    unnamed = list(chosen)
    for depth in (1, 2, 3):
        for key in dict.fromkeys(row[:depth] for row in unnamed):
            rows_of_key = [row for row in unnamed if row[:depth] == key]
            if len(rows_of_key) == sum(row[:depth] == key for row in every):
                yield " ".join(key), rows_of_key
                unnamed = [row for row in unnamed if row not in rows_of_key]
