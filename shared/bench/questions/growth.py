"""What do a call, a step of its loop and a cell cost? How do run time, memory and compile time grow with the size?

Every case is measured at each size, as in `speed`. A cost model (`cost_model`) is fitted to that; it tells from which
size on which framework is faster, and predicts sizes that were not measured (`prediction`).
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from shared.bench.cases import FRAMEWORKS, Settings
from shared.bench.estimates import Estimate
from shared.bench.questions.prediction import Costs, Size, costs_of, race
from shared.bench.questions.question import TIMING, Question
from shared.bench.record import Record, Result
from shared.bench.report.plots import Line, line_plot
from shared.bench.report.tables import Answer, Plot, Statement, Table, left_then_right
from shared.bench.units import NOTHING, between, duration, figures
from shared.problems import Inputs, problem_of
from shared.problems.argument_types import size as numbers_of
from shared.problems.argument_types import size_text
from shared.problems.problem import UnusableInput
from shared.variants import Abilities

# one more than a time has coefficients
LEAST_SIZES = 4
# the numbers of the sizes on the path that are tried
_NUMBERS = np.unique(np.geomspace(1, 1e6, 200).round().astype(int)).tolist()
# lines in a plot, for each framework
_MOST_LINES = 2
_TIME = "time of a call"
_READING = "Lower is better. Both scales are logarithmic."
_LINES = " Lines: the cost model of each framework's fastest variants, for the sizes that the answer compares."


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
        return Answer(tables, [*steps_in_words(record), *crossovers(record)])

    def plots(self, record: Record) -> Iterator[Plot]:
        """Time, first call and memory over the size."""
        quantities: tuple[tuple[str, Callable[[Result], float | None], str], ...] = (
            (_TIME, lambda result: result.time.value, "s"),
            ("first call, caches empty", lambda result: result.first_call and result.first_call.value, "s"),
            ("peak memory of a call", lambda result: result.peak_bytes, "B"),
        )
        problem, settings = problem_of(record.settings.problem), record.settings
        for pass_name, (name, value, unit) in itertools.product(settings.passes, quantities):
            points: dict[tuple[str, str], list[tuple[float, float]]] = {}
            for result in record.results:
                if result.measured and result.case.pass_name == pass_name and (known := value(result)):
                    extent = problem.extent_of_size(settings, numbers_of(result.case.input))
                    points.setdefault((result.case.framework, result.case.variant), []).append((extent, known))
            models = _fastest(record, pass_name) if name == _TIME else []
            path = _path(record, models)
            lines = [Line(*key, own, "o") for key, own in points.items()]
            for costs in models:
                curve = [(problem.extent_of_size(settings, size), costs.seconds(size).value) for size in path]
                lines.append(Line(costs.case.framework, costs.case.variant, curve, "-"))
            if points:
                drawing = line_plot({"": lines}, problem.sizes.axis, unit)
                yield Plot(f"{pass_name}: {name}", drawing, _READING + (_LINES if models else ""))


QUESTION = Growth()


def cost_table(record: Record) -> Table:
    """The coefficients of a call's time for each case, and how well they predict sizes that were not seen."""
    rows = []
    for costs in costs_of(record):
        median, largest = costs.time.factors
        rows.append((
            costs.case.pass_name,
            FRAMEWORKS[costs.case.framework],
            costs.case.variant,
            *(_text(costs.time.coefficient(column), duration) for column in (2, 1, 0)),
            _text(costs.time.beyond, duration),
            f"{median - 1:.0%}\n({largest - 1:.0%} at {costs.time.worst})",
        ))  # fmt: skip
    headers = (
        *("pass", "framework", "variant", "a call", "a step", "a cell", "a cell beyond\nthe caches"),
        "error on sizes\nnot seen",
    )
    below = (
        f"{problem_of(record.settings.problem).loop_text}.",
        "95% intervals are over sizes; <: not told from zero; –: not told from another cost, or not known.",
        "The error is that of predicting the time of a size from all others: its median, and the largest.",
    )
    title = f"Time of a call, fitted over {len(record.inputs)} sizes"
    return Table(title, headers, rows, left_then_right(3, len(headers) - 3), below)


def first_call_table(record: Record) -> Table:
    """The coefficients of what a case compiles, and of its memory."""
    rows = []
    for costs in costs_of(record):
        memory, compiling = costs.memory, costs.compiling
        rows.append((
            costs.case.pass_name,
            FRAMEWORKS[costs.case.framework],
            costs.case.variant,
            *(_text(compiling and compiling.coefficient(column), duration) for column in (0, 1)),
            _text(memory and memory.coefficient(1), _bytes),
        ))  # fmt: skip
    headers = ("pass", "framework", "variant", "compiling", "compiling\na step", "memory\nof a cell")
    below = ("Memory: the peak of a call, less what was in use before it, the arguments included.",)
    return Table("Compiling and memory, fitted to the same", headers, rows, left_then_right(3, len(headers) - 3), below)


def _text(estimate: Estimate | None, text: Callable[[float], str]) -> str:
    """A coefficient with its interval, or below what it is where it cannot be told from 0."""
    if not estimate or not estimate.high:
        return NOTHING
    if estimate.low <= 0:
        return f"< {text(estimate.high)}"
    return f"{text(estimate.value)}\n({between(estimate.low, estimate.high, text)})"


def _bytes(count: float) -> str:
    return f"{figures(count)} B"


def steps_in_words(record: Record) -> Iterator[Statement]:
    """For each pass: what a step of the loop costs on this device, in each framework."""
    for pass_name in record.settings.passes:
        known: dict[str, list[str]] = {}
        for costs in costs_of(record):
            text = _text(costs.time.coefficient(1), duration).replace("\n", " ")
            if text != NOTHING and costs.case.pass_name == pass_name:
                known.setdefault(costs.case.variant, []).append(f"{text} in {FRAMEWORKS[costs.case.framework]}")
        if known:
            each = "; ".join(f"{variant} {', '.join(texts)}" for variant, texts in known.items())
            yield Statement(f"{pass_name}, a step", f"on {record.device_name} it costs: {each}.")


def crossovers(record: Record) -> Iterator[Statement]:
    """For each pass, of all variants and of each: the faster framework along the problem's path of sizes."""
    for pass_name in record.settings.passes:
        cases = [costs for costs in costs_of(record) if costs.case.pass_name == pass_name]
        variants = list(dict.fromkeys(costs.case.variant for costs in cases))
        for variant in ("", *variants) if len(variants) > 1 else variants:
            own = [costs for costs in cases if variant in ("", costs.case.variant)]
            sizes = _path(record, own)
            races = [found for numbers in sizes if (found := race(own, numbers))]
            if races:
                about = f"{pass_name}, {variant or 'fastest variants'}"
                yield Statement(about, _crossover([found.words for found in races], sizes, record))


def _path(record: Record, cases: Sequence[Costs]) -> list[Size]:
    """The sizes of the path that lie between those measured."""
    path = (problem_of(record.settings.problem).growing_size(record.settings, n) for n in _NUMBERS)
    return [numbers for numbers in path if all(costs.covers(numbers) for costs in cases)]


def _fastest(record: Record, pass_name: str) -> list[Costs]:
    """Each framework's fastest cases at the end of the path."""
    cases = [costs for costs in costs_of(record) if costs.case.pass_name == pass_name]
    if not (sizes := _path(record, cases)):
        return []
    ranked = sorted(cases, key=lambda costs: costs.seconds(sizes[-1]).value)
    return [
        costs
        for framework in FRAMEWORKS
        for costs in [each for each in ranked if each.case.framework == framework][:_MOST_LINES]
    ]


def _crossover(outcomes: Sequence[str | None], sizes: Sequence[Size], record: Record) -> str:
    """Who is faster where. outcomes: in words at each size, None where it is not decided."""
    problem, parts, end = problem_of(record.settings.problem), [], 0
    for outcome, group in itertools.groupby(outcomes):
        begin, end = end, end + len(list(group))
        extents = [problem.extent_of_size(record.settings, sizes[at]) for at in (begin, end - 1)]
        low, high = (f"{float(f'{extent:.2g}'):,.0f}" for extent in extents)
        where = f"up to {high}" if begin == 0 else f"from {low} on" if end == len(sizes) else f"from {low} to {high}"
        if outcome:
            unit = "" if parts else f" {problem.sizes.axis}"
            parts.append(f"{outcome} {'throughout' if len(set(outcomes)) == 1 else where + unit}")
    if None in outcomes:
        parts.append("elsewhere it is not decided" if parts else "it is not decided which framework is faster")
    return f"{', '.join(parts)} (asked from {size_text(sizes[0])} to {size_text(sizes[-1])})."
