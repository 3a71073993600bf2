"""Predictions of `growth`: the cost model of each case of a record, and what it says of other sizes."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from shared.bench.cases import FRAMEWORKS, Case, Settings
from shared.bench.estimates import SAME, Estimate
from shared.bench.questions.cost_model import Fit, fitted
from shared.bench.record import Record, Result
from shared.bench.report.report import Report
from shared.bench.report.tables import Answer, Statement, Table
from shared.bench.units import NOTHING, between, duration, ratio_interval, ratio_text
from shared.bench.units import size as bytes_text
from shared.problems import problem_of
from shared.problems.alignment_inputs import batch_of_size
from shared.problems.alignments import AlignmentProblem
from shared.problems.argument_types import size as numbers_of
from shared.problems.argument_types import size_text
from shared.problems.problem import Loop, UnusableInput

Size = tuple[int, ...]
_OUTSIDE = " Extrapolated."
# from the lower end of an interval to the upper one, above which it says nothing
_MOST_WIDTH = 100.0


class Costs(NamedTuple):
    """What a case costs over the sizes; None where too few are known."""

    case: Case  # on one of the sizes
    settings: Settings
    measured: tuple[Size, ...]
    time: Fit  # columns: cells, steps, 1
    memory: Fit | None  # columns: 1, cells
    compiling: Fit | None  # and tracing; columns: 1, steps

    def seconds(self, size: Size) -> Estimate:
        """Of a call."""
        return self.time.at(_time_columns(self._loop(size)))

    def seconds_over(self, other: "Costs", size: Size) -> Estimate:
        """Over those of another case."""
        return self.time.over(other.time, *(_time_columns(costs._loop(size)) for costs in (self, other)))

    def peak_bytes(self, size: Size) -> Estimate | None:
        """Of a call."""
        return self.memory and self.memory.at(_memory_columns(self._loop(size)))

    def covers(self, size: Size) -> bool:
        """Whether steps, cells, and cells in a step lie between those that were measured."""
        known = zip(*(_extents(self._loop(other)) for other in self.measured), strict=True)
        return all(min(k) <= own <= max(k) for own, k in zip(_extents(self._loop(size)), known, strict=True))

    def _loop(self, size: Size) -> Loop:
        return problem_of(self.case.problem).loop(self.settings, self.case.variant, size)


def costs_of(record: Record) -> list[Costs]:
    """Of each case that was measured at enough sizes."""
    own: dict[tuple[Any, ...], list[Result]] = {}
    for result in record.results:
        case = result.case
        if result.measured:
            own.setdefault((case.pass_name, case.variant, case.framework, case.compiled, case.label), []).append(result)
    return [costs for results in own.values() if (costs := _costs(record.settings, results))]


def _costs(settings: Settings, results: Sequence[Result]) -> Costs | None:
    case = results[0].case
    sizes = {result.case.input: numbers_of(result.case.input) for result in results}
    loops = {name: problem_of(case.problem).loop(settings, case.variant, numbers) for name, numbers in sizes.items()}

    def fit(
        columns: Callable[[Loop], tuple[float, ...]], value: Callable[[Result], float | None], has_knee: bool = False
    ) -> Fit | None:
        known = {r.case.input: y for r in results if (y := value(r)) and y > 0}
        return fitted(tuple(known), tuple(columns(loops[name]) for name in known), tuple(known.values()), has_knee)

    time = fit(_time_columns, lambda result: result.time.value, has_knee=True)
    # a peak of 0 says that the framework had memory left from before, not that it needs none
    memory = fit(_memory_columns, lambda result: result.peak_bytes)
    compiling = fit(lambda loop: (1.0, loop.steps), _compiling) if case.compiled else None
    return time and Costs(case, settings, tuple(sizes.values()), time, memory, compiling)


def _time_columns(loop: Loop) -> tuple[float, ...]:
    return loop.cells, loop.steps, 1.0


def _memory_columns(loop: Loop) -> tuple[float, ...]:
    return 1.0, loop.cells / loop.repeats


def _extents(loop: Loop) -> tuple[float, ...]:
    return loop.steps, loop.cells, loop.cells / max(1, loop.steps)


def _compiling(result: Result) -> float | None:
    """Seconds of the first call without the run itself."""
    seconds = [
        start.tracing + start.compiling
        if start.tracing is not None and start.compiling
        else start.seconds - result.time.value
        for start in result.cold
    ]
    return median(seconds) if seconds else None


class Race(NamedTuple):
    """Each framework's fastest case at a size."""

    faster: Costs
    slower: Costs
    ratio: Estimate  # time of the slower one over that of the faster one

    @property
    def words(self) -> str | None:
        """The faster framework, in a few words; None where that is not decided."""
        if self.ratio.outcome == "same":
            return f"both are the same within ±{SAME - 1:.0%}"
        faster = f"{FRAMEWORKS[self.faster.case.framework]} is faster"
        return faster if self.ratio.outcome == "different" else None

    @property
    def sentence(self) -> str:
        """The same with the ratio and its interval."""
        texts = {"different": "", "same": f"the same within ±{SAME - 1:.0%}: ", "not decided": "not decided: "}
        names = [f"{FRAMEWORKS[costs.case.framework]} ({costs.case.variant})" for costs in (self.faster, self.slower)]
        return (
            f"{texts[self.ratio.outcome]}{names[0]} is {ratio_text(self.ratio.value)} times as fast as {names[1]}; 95% "
            f"interval {ratio_interval(self.ratio)}."
        )


def race(cases: Iterable[Costs], size: Size) -> Race | None:
    """The frameworks' fastest of some cases; None unless both have one."""
    fastest: dict[str, Costs] = {}
    for costs in sorted(cases, key=lambda costs: costs.seconds(size).value):
        fastest.setdefault(costs.case.framework, costs)
    if len(fastest) < 2:
        return None
    faster, slower = fastest.values()
    return Race(faster, slower, slower.seconds_over(faster, size))


def _interval(estimate: Estimate | None, text: Callable[[Any], str]) -> str:
    """Of an estimate that says anything."""
    if estimate is None or not estimate.high <= _MOST_WIDTH * estimate.low:
        return NOTHING
    return between(estimate.low, estimate.high, text)


def prediction(record: Record, size: Size) -> Report:
    """Time and memory of every case at a size, and the faster framework. Raises UnusableInput."""
    question, problem = record.settings.question, problem_of(record.settings.problem)
    if question != "growth":
        raise UnusableInput(f"a prediction takes a record of growth, got one of {question}")
    problem.check_size(size, in_growth=True)
    cases = costs_of(record)
    if not cases:
        raise UnusableInput("a prediction takes cases that were measured at several sizes, got none")
    rows = []
    for costs in cases:
        time, memory = costs.seconds(size), costs.peak_bytes(size)
        rows.append((
            costs.case.pass_name,
            FRAMEWORKS[costs.case.framework],
            costs.case.variant,
            duration(time.value),
            _interval(time, duration),
            bytes_text(memory and round(memory.value)),
            _interval(memory, lambda value: bytes_text(round(value))),
            "" if costs.covers(size) else "extrapolated",
        ))  # fmt: skip
    headers = ("pass", "framework", "variant", "time", "95% interval", "memory", "95% interval", "")
    below = (
        f"95% intervals are over sizes; {NOTHING}: wider than a factor of {_MOST_WIDTH:g}, so nothing is known. "
        "Extrapolated: steps, cells or cells in a step are outside what was measured, and may cost more than intervals "
        "say.",
    )
    whole = batch_of_size(record.settings, size) if isinstance(problem, AlignmentProblem) else size
    title = f"Predicted for {size_text(whole)}, from {len(record.inputs)} sizes; nothing was measured"
    races = {name: race([c for c in cases if c.case.pass_name == name], size) for name in record.settings.passes}
    told = [
        Statement(
            name, f"{found.sentence}{'' if found.faster.covers(size) and found.slower.covers(size) else _OUTSIDE}"
        )
        for name, found in races.items()
        if found
    ]
    table = Table(title, headers, rows, ("left",) * 3 + ("right",) * 4 + ("left",), below)
    return Report(Answer([table], told))
