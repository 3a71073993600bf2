"""What do a call, a step of its loop and a cell cost? How do run time, memory and compile time grow with the size?

Every case is measured at each size, as in `speed`. A cost model is fitted to that; it tells from which size on which
framework is faster, and predicts sizes that were not measured (`prediction`).
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np

from shared.bench.analysis.cost_model import Fit, fitted
from shared.bench.analysis.verdict import cell, outcome_text
from shared.bench.cases import FRAMEWORKS, Case, Settings
from shared.bench.estimates import Estimate
from shared.bench.questions.question import TIMING, Question
from shared.bench.record import Record, Result
from shared.bench.report.plots import Line, line_plot
from shared.bench.report.report import Report
from shared.bench.report.tables import Answer, Plot, Statement, Table, left_then_right
from shared.bench.units import NOTHING, bytes_text, duration, figures, range_text, rough_text
from shared.problems import Inputs, problem_of
from shared.problems.alignment_inputs import batch_of_size
from shared.problems.alignments import AlignmentProblem
from shared.problems.argument_types import size as numbers_of
from shared.problems.argument_types import size_text
from shared.problems.problem import Loop, UnusableInput
from shared.variants import Abilities

Size = tuple[int, ...]
# a fit takes one size more than it has coefficients: those of a time, without a knee, are three
LEAST_SIZES = 4
# arguments of `Problem.growing_size`: the sizes at which the frameworks are compared
_NUMBERS = np.unique(np.geomspace(1, 1e6, 200).round().astype(int)).tolist()
# an interval whose upper end is more than so many times its lower end says nothing
_MOST_WIDTH = 100.0
_NAMES = ("pass", "framework", "variant")


class Growth(Question):
    """A run over several sizes."""

    name = "growth"
    asks = "what do a call, a step of its loop and a cell cost; from which size on is which framework faster"
    default_input = "random"
    takes = ("sizes", *TIMING)

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        problem = problem_of(settings.problem)
        sizes = settings.sizes or problem.sizes.growth
        if not sizes:
            raise UnusableInput(f"growth does not go with {problem.name}, which has one size")
        if len(sizes) < LEAST_SIZES:
            raise UnusableInput(f"growth needs at least {LEAST_SIZES} sizes, got {', '.join(map(size_text, sizes))}")
        return {size_text(size): problem.inputs_of_size(settings, size) for size in sizes}

    def modes(self, settings: Settings, variant: str, input_name: str, abilities: Abilities) -> Sequence[bool]:
        return problem_of(settings.problem).growth_modes(variant, abilities)

    def answer(self, record: Record) -> Answer:
        tables = [table for table in (cost_table(record), first_call_table(record)) if table.rows]
        return Answer(tables, list(crossovers(record)))

    def plots(self, record: Record) -> Iterator[Plot]:
        """Time, first call and memory over the size."""
        quantities: tuple[tuple[str, Callable[[Result], float | None], str], ...] = (
            ("time of a call", lambda result: result.time.value, "s"),
            ("first call, caches empty", lambda result: result.first_call and result.first_call.value, "s"),
            ("peak memory of a call", lambda result: result.peak_bytes, "B"),
        )
        problem, settings = problem_of(record.settings.problem), record.settings
        for pass_name, (name, value, unit) in itertools.product(settings.passes, quantities):
            points: dict[tuple[str, str], list[tuple[float, float]]] = {}
            for result in record.results:
                if result.measured and result.case.pass_name == pass_name and (number := value(result)):
                    extent = problem.extent_of_size(settings, numbers_of(result.case.input))
                    points.setdefault((result.case.framework, result.case.variant), []).append((extent, number))
            if points:
                lines = [Line(*key, sorted(points_of_line)) for key, points_of_line in points.items()]
                drawing = line_plot({"": lines}, problem.sizes.axis, unit)
                yield Plot(f"{pass_name}: {name}", drawing, "Lower is better. Both scales are logarithmic.")


QUESTION = Growth()


class Costs(NamedTuple):
    """The cost models of a case; None where too few sizes are known."""

    case: Case  # on one of the sizes
    loop: Callable[[Size], Loop]
    measured: tuple[Loop, ...]
    time: Fit
    memory: Fit | None
    compiling: Fit | None  # and tracing

    @property
    def names(self) -> tuple[str, str, str]:
        """The cells that name the case in a table."""
        return self.case.pass_name, FRAMEWORKS[self.case.framework], self.case.variant

    def seconds(self, size: Size) -> Estimate:
        """Predicted seconds per call."""
        return self.time.at(_time_columns(self.loop(size)))

    def peak_bytes(self, size: Size) -> Estimate | None:
        """Predicted peak memory of a call."""
        return self.memory and self.memory.at(_memory_columns(self.loop(size)))

    def covers(self, size: Size) -> bool:
        """Whether steps, cells, and cells in a step lie between those that were measured."""
        loops = (self.loop(size), *self.measured)
        extents = [(loop.steps, loop.cells, loop.cells / max(1, loop.steps)) for loop in loops]
        return all(min(measured) <= extent <= max(measured) for extent, *measured in zip(*extents, strict=True))


def costs_of(record: Record) -> list[Costs]:
    """The costs of each case that was measured at enough sizes."""
    by_case: dict[Case, list[Result]] = {}
    for result in record.results:
        if result.measured:
            by_case.setdefault(replace(result.case, input=""), []).append(result)
    return [costs for results in by_case.values() if (costs := _costs(record.settings, results))]


def _costs(settings: Settings, results: Sequence[Result]) -> Costs | None:
    case = results[0].case
    loop = partial(problem_of(case.problem).loop, settings, case.variant)
    loops = {result.case.input: loop(numbers_of(result.case.input)) for result in results}

    def fit(columns: Callable[[Loop], tuple[float, ...]], value: Callable[[Result], float | None]) -> Fit | None:
        values = {r.case.input: y for r in results if (y := value(r)) and y > 0}
        rows = tuple(columns(loops[name]) for name in values)
        return fitted(tuple(values), rows, tuple(values.values()), has_knee=columns is _time_columns)

    time = fit(_time_columns, lambda result: result.time.value)
    # a peak of 0 says that the framework had memory left from before, not that it needs none
    memory = fit(_memory_columns, lambda result: result.peak_bytes)
    compiling = fit(lambda loop: (1.0, loop.steps), _compiling) if case.compiled else None
    return time and Costs(case, loop, tuple(loops.values()), time, memory, compiling)


def _time_columns(loop: Loop) -> tuple[float, ...]:
    return loop.cells, loop.steps, 1.0


def _memory_columns(loop: Loop) -> tuple[float, ...]:
    return 1.0, loop.cells / loop.repeats


def _compiling(result: Result) -> float | None:
    """Seconds of the first call without the run itself."""
    seconds = [call.tracing + call.compiling if call.tracing is not None and call.compiling
             else call.seconds - result.time.value for call in result.cold]  # fmt: skip
    return median(seconds) if seconds else None


def race(cases: Iterable[Costs], size: Size) -> tuple[Costs, Costs, Estimate] | None:
    """Each framework's fastest of some cases, the faster one first, and the ratio; None unless both have one."""
    fastest: dict[str, Costs] = {}
    for costs in sorted(cases, key=lambda costs: costs.seconds(size).value):
        fastest.setdefault(costs.case.framework, costs)
    if len(fastest) < 2:
        return None
    faster, slower = fastest.values()
    columns = (_time_columns(costs.loop(size)) for costs in (slower, faster))
    ratio = slower.time.over(faster.time, *columns)
    return ratio and (faster, slower, ratio)


def cost_table(record: Record) -> Table:
    """The coefficients of a call's time for each case, and how well they predict sizes that were not seen."""
    rows = []
    for costs in costs_of(record):
        off, largest = costs.time.factors
        coefficients = [_text(costs.time.coefficient(column), duration) for column in (2, 1, 0)]
        error = f"{off - 1:.0%}\n({largest - 1:.0%} at {costs.time.worst})"
        rows.append((*costs.names, *coefficients, _text(costs.time.beyond, duration), error))
    headers = (*_NAMES, "a call", "a step", "a cell", "a cell beyond\nthe caches", "error on sizes\nnot seen")
    below = (
        f"{problem_of(record.settings.problem).loop_text}.",
        "95% intervals are over sizes; <: cannot be told from zero; –: cannot be told from another cost, or not known.",
        "The error is that of predicting the time of a size from all others: its median, and the largest.",
    )
    return Table(f"Time of a call, fitted over {len(record.inputs)} sizes", headers, rows, left_then_right(3, 5), below)


def first_call_table(record: Record) -> Table:
    """The coefficients of compile time and of memory."""
    rows = []
    for costs in costs_of(record):
        compiling = [_text(costs.compiling and costs.compiling.coefficient(column), duration) for column in (0, 1)]
        memory = _text(costs.memory and costs.memory.coefficient(1), lambda count: f"{figures(count)} B")
        rows.append((*costs.names, *compiling, memory))
    headers = (*_NAMES, "compiling", "compiling\na step", "memory\nof a cell")
    below = ("Memory: the peak of a call above what was in use before it, without its arguments.",)
    return Table("Compiling and memory, fitted over the same sizes", headers, rows, left_then_right(3, 3), below)


def _text(estimate: Estimate | None, text: Callable[[float], str]) -> str:
    """A coefficient with its interval, or its upper limit where it cannot be told from 0."""
    if not estimate or not estimate.high:
        return NOTHING
    if estimate.low <= 0:
        return f"< {text(estimate.high)}"
    return f"{text(estimate.value)}\n({range_text(estimate.low, estimate.high, text)})"


def crossovers(record: Record) -> Iterator[Statement]:
    """Yield the faster framework along the problem's path of sizes, for each pass, of all variants and of each."""
    problem, every = problem_of(record.settings.problem), costs_of(record)
    path = [problem.growing_size(record.settings, number) for number in _NUMBERS]
    for pass_name in record.settings.passes:
        variants = list(dict.fromkeys(costs.case.variant for costs in every if costs.case.pass_name == pass_name))
        for variant in ("", *variants) if len(variants) > 1 else variants:
            cases = [c for c in every if c.case.pass_name == pass_name and variant in ("", c.case.variant)]
            winners = {
                size: outcome_text(raced[2], [FRAMEWORKS[costs.case.framework] for costs in raced[:2]])
                for size in path
                if all(costs.covers(size) for costs in cases) and (raced := race(cases, size))
            }
            if winners:
                yield Statement(f"{pass_name}, {variant or 'fastest variants'}", _crossover(winners, record))


def _crossover(outcomes: Mapping[Size, str], record: Record) -> str:
    """Who is faster where. outcomes: in words at each size."""
    problem, sizes, parts, end = problem_of(record.settings.problem), [*outcomes], [], 0
    for outcome, group in itertools.groupby(outcomes.values()):
        begin, end = end, end + len(list(group))
        low, high = (rough_text(problem.extent_of_size(record.settings, sizes[at])) for at in (begin, end - 1))
        where = f"up to {high}" if begin == 0 else f"from {low} on" if end == len(sizes) else f"from {low} to {high}"
        where = f"at {low}" if low == high else where
        unit = "" if parts else f" {problem.sizes.axis}"
        parts.append(f"{outcome} {'throughout' if len({*outcomes.values()}) == 1 else where + unit}")
    return f"{', '.join(parts)} (evaluated from {size_text(sizes[0])} to {size_text(sizes[-1])})."


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
        cells = []
        for estimate, text in (
            (costs.seconds(size), duration),
            (costs.peak_bytes(size), lambda n: bytes_text(round(n))),
        ):
            is_known = estimate and estimate.high <= _MOST_WIDTH * estimate.low
            cells += [text(estimate.value) if estimate else NOTHING]
            cells += [range_text(estimate.low, estimate.high, text) if estimate and is_known else NOTHING]
        rows.append((*costs.names, *cells, "" if costs.covers(size) else "extrapolated"))
    headers = (*_NAMES, "time", "95% interval", "memory", "95% interval", "")
    below = (
        f"95% intervals are over sizes; {NOTHING}: wider than a factor of {_MOST_WIDTH:g}. Extrapolated: steps, cells "
        "or cells in a step are outside what was measured, and may cost more than intervals say.",
    )
    whole = batch_of_size(record.settings, size) if isinstance(problem, AlignmentProblem) else size
    title = f"Predicted for {size_text(whole)}, from {len(record.inputs)} sizes; nothing was measured"
    statements = []
    for name in record.settings.passes:
        if result := race([costs for costs in cases if costs.case.pass_name == name], size):
            *both, ratio = result
            titles = [f"{FRAMEWORKS[costs.case.framework]} ({costs.case.variant})" for costs in both]
            outside = "" if all(costs.covers(size) for costs in both) else " Extrapolated."
            faster = " ".join(cell([FRAMEWORKS[costs.case.framework] for costs in both], ratio).split())
            statements.append(Statement(name, f"{' against '.join(titles)}: {faster}.{outside}"))
    table = Table(title, headers, rows, ("left",) * 3 + ("right",) * 4 + ("left",), below)
    return Report(Answer([table], statements))
