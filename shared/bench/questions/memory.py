"""How large a batch, or how long a pair, fits into a given memory, and in which framework more?

The peak memory of fresh processes is measured at a few sizes; from its line over the cells follows the largest size
that fits (memory_fit.py). Just below it a process must stay within the memory, well above it must not: both are tried
(memory_run.py).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psutil

from shared.bench.analysis.estimates import LEAST_PROCESSES, SAME, Estimate
from shared.bench.cases import FRAMEWORKS, Case, Settings
from shared.bench.questions.memory_fit import (
    Axis,
    cells_that_fit,
    compare_sizes,
    estimate,
    needs,
    predicted_peak,
    trials,
)
from shared.bench.questions.memory_run import ABOVE, BELOW, FITS, STOPPED, default_memory, measure_memory
from shared.bench.questions.question import Question
from shared.bench.record import Record, Result
from shared.bench.report.tables import Answer, Plot, Statement, Table, left_then_right
from shared.bench.units import NOTHING, figures, ratio_interval
from shared.bench.units import size as bytes_text
from shared.problems import Inputs, problem_of
from shared.problems.alignments import AlignmentProblem
from shared.problems.problem import DATA, UnusableInput

if TYPE_CHECKING:
    from shared.bench.run.context import Run

_MARKERS = "osD^vP"


class Memory(Question):
    """The largest size that fits."""

    name = "memory"
    asks = "how large a batch, or how long a pair, fits into a given memory; in which framework more"
    takes = ("size", "memory")
    default_input = "random"
    default_budget = 600.0
    times_rounds = False

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        """One pair, of which batches are made."""
        problem = problem_of(settings.problem)
        if not isinstance(problem, AlignmentProblem):
            raise UnusableInput(f"memory goes with alignments, not with {problem.name}")
        if settings.input != "random":
            raise UnusableInput(f"memory goes with --input random, got {settings.input!r}")
        if settings.batch and settings.size:
            raise UnusableInput("memory seeks the batch for a --size, or the length for a --batch: it takes one of them")
        free = psutil.virtual_memory().available
        if settings.device == "cpu" and (settings.memory or 0) > free:
            raise UnusableInput(f"--memory must be at most the {bytes_text(free)} that are free, got {_given(settings)}")
        axis = Axis.of(settings)
        one = problem.inputs_of_size(replace(settings, batch=None), (1, axis.rows, axis.cols))
        sought = f"batches of random pairs of {axis.rows} x {axis.cols}"
        return {DATA: replace(one, text=sought if axis.batch is None else f"square random pairs, {axis.batch} in a batch")}

    def measure(self, run: "Run", cases: list[Case], inputs: dict[str, Any]) -> None:
        measure_memory(run, cases, inputs[DATA])

    def answer(self, record: Record) -> Answer:
        if record.settings.memory is None:
            return Answer()
        tables, told = [], []
        for pass_name in record.settings.passes:
            results = [r for r in record.results if r.case.pass_name == pass_name and needs(r)]
            if results:
                told.append(Statement(pass_name, _advice(record, results)))
                tables += [_table(record, pass_name, results)]
        every = [result for result in record.results if needs(result)]
        return Answer([*tables, _details(record, every)] if every else [], [*told, *_wrong(every)])

    def plots(self, record: Record) -> Iterator[Plot]:
        """Peak memory over cells, with the lines that were fitted and the trials."""
        for pass_name in record.settings.passes:
            results = [r for r in record.results if r.case.pass_name == pass_name and needs(r)]
            if results:
                reading = (
                    "Lower is better. Small markers: what was measured, and the line through it up to the largest size; "
                    f"large ones: the trial at {BELOW} of that."
                )
                yield Plot(f"{pass_name}: peak memory of a process", _lines(record, results), reading)


QUESTION = Memory()


def _given(settings: Settings) -> str:
    return bytes_text(settings.memory)


def _number(record: Record, cells: float) -> str:
    return f"{Axis.of(record.settings).number(cells):,}"


def _table(record: Record, pass_name: str, results: Sequence[Result]) -> Table:
    """A row for each variant; in each cell JAX / PyTorch."""
    memory = record.settings.memory or 0
    rows = []
    for variant in dict.fromkeys(result.case.variant for result in results):
        own = {result.case.framework: result for result in results if result.case.variant == variant}
        both = [own.get(framework) for framework in FRAMEWORKS]
        comparison = compare_sizes(own.values(), memory)
        rows.append((
            variant,
            _side_by_side([r and f"{figures(estimate(r, 'cell').value)} B" for r in both]),
            _side_by_side([r and _number(record, cells_that_fit(r, memory).value) for r in both]),
            comparison.text if comparison.ratio else NOTHING,
            *(_side_by_side([r and _trial(r, share) for r in both], "\n/ ") for share in (BELOW, ABOVE)),
        ))  # fmt: skip
    names, axis = " / ".join(FRAMEWORKS.values()), Axis.of(record.settings)
    sought = f"pairs of\n{axis.rows} x {axis.cols}" if axis.batch is None else "length of\na square pair"
    headers = (
        "variant",
        f"a cell\n{names}",
        f"largest\n{sought}\n{names}",
        "fits more",
        *(f"tried at\n{share} of that" for share in (BELOW, ABOVE)),
    )
    lost = [r for r in record.results if r.case.pass_name == pass_name and not needs(r)]
    what = "cells" if axis.batch else "pairs"
    below = (
        f"The memory of a process in all: framework, arguments, calls. Fits more: which framework, how many times as many "
        f"{what}, and the 95% interval; same: within ±{SAME - 1:.0%}.",
        f"Tried: the peak of a fresh process; {STOPPED}: it had more than {_given(record.settings)} and was stopped, as it "
        f"must above the largest size.",
        *(f"No {result.case.title}: {result.reason or 'not measured'}." for result in lost),
    )
    return Table(f"What fits into {_given(record.settings)}, {pass_name}", headers, rows, left_then_right(6, 0), below)


def _side_by_side(texts: Sequence[str | None], between: str = " / ") -> str:
    return between.join(text or NOTHING for text in texts)


def _trial(result: Result, share: str) -> str:
    """What became of a trial."""
    found = trials(result).get(share)
    if not found:
        return "not tried"
    expected = FITS if share == BELOW else STOPPED
    text = bytes_text(found["peak"]) if found["outcome"] == FITS else found["outcome"]
    return text if found["outcome"] == expected else f"{text}: not predicted"


def _advice(record: Record, results: Sequence[Result]) -> str:
    """Which variant fits most, in each framework, and which of the two more."""
    memory, axis = record.settings.memory or 0, Axis.of(record.settings)
    comparison = compare_sizes(results, memory)
    sides = []
    for best in comparison.results:
        result = next(result for result in results if result.case == best.case)
        cells = cells_that_fit(result, memory).value
        base, cell = (estimate(result, name).value for name in ("base", "cell"))
        sides.append(
            f"{axis.text(axis.number(cells))} in {result.case.name} ({bytes_text(round(base))} and {figures(cell)} B a "
            "cell)"
        )
    verdict = f": {' '.join(comparison.text.split())}" if comparison.ratio else ""
    return f"{_given(record.settings)} hold most with {', against '.join(sides)}{verdict}."


def _wrong(results: Sequence[Result]) -> Iterator[Statement]:
    """The predictions that were too large: what a reader must not rely on."""
    for result in results:
        found = trials(result).get(BELOW)
        if found and found["outcome"] != FITS:
            text = f"{BELOW} of the largest size that was predicted did not fit ({found['outcome']}): take less."
            yield Statement(result.case.title, text)


def _details(record: Record, results: Sequence[Result]) -> Table:
    """Every case with its intervals, and how far the prediction was off."""
    memory, rows = record.settings.memory or 0, []
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
            _interval(fitting, lambda cells: _number(record, cells)),
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
    return f"{text(estimate.value)}\n({text(estimate.low)} … {text(estimate.high)})"


def _lines(record: Record, results: Sequence[Result]) -> str:
    from shared.bench.report.plots import BYTES, COLOURS, drawn  # here: matplotlib takes a second to import

    memory, variants = record.settings.memory or 0, list(dict.fromkeys(result.case.variant for result in results))

    def draw(axes: Any) -> None:
        for result in results:
            framework, variant = result.case.framework, result.case.variant
            colour = COLOURS[framework]
            look = {"color": colour, "marker": _MARKERS[variants.index(variant) % len(_MARKERS)]}
            look |= {"linestyle": "", "markerfacecolor": colour if framework == "jax" else "white"}
            cells = [math.prod(size) for size in result.details["sizes"]]
            name = f"{FRAMEWORKS[framework]} {variant}"
            for number, process in enumerate(result.details["processes"]):
                axes.loglog(cells, process["peaks"], markersize=4, label=None if number else name, **look)
            ends = range(0, 33)
            line = [cells[0] * (cells_that_fit(result, memory).value / cells[0]) ** (end / 32) for end in ends]
            peaks = [predicted_peak(result, (round(count),)).value for count in line]
            axes.loglog(line, peaks, "-" if framework == "jax" else "--", color=colour, linewidth=1)
            tried = trials(result).get(BELOW)
            if tried and tried["peak"]:
                axes.loglog([math.prod(tried["size"])], [tried["peak"]], markersize=9, **look)
        axes.axhline(memory, color="black", linewidth=1)
        axes.set_xlabel("cells in a call")
        axes.yaxis.set_major_formatter(BYTES)
        axes.legend(fontsize=8)

    return drawn(draw, 7.2, 5)
