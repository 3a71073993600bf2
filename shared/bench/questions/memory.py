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

from shared.bench.cases import FRAMEWORKS, Case, Settings
from shared.bench.estimates import SAME
from shared.bench.questions.memory_fit import (
    ABOVE,
    BELOW,
    FITS,
    STOPPED,
    Axis,
    cells_that_fit,
    compare_sizes,
    details_table,
    estimate,
    needs,
    predicted_peak,
    trials,
)
from shared.bench.questions.memory_run import default_memory, measure_memory
from shared.bench.questions.question import Question
from shared.bench.record import Record, Result
from shared.bench.report.tables import Answer, Plot, Statement, Table, left_then_right
from shared.bench.units import NOTHING, figures
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
    takes = ("size", "memory", "workers")
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
            raise UnusableInput(
                "memory seeks the batch for a --size, or the length for a --batch: it takes one of them"
            )
        free = psutil.virtual_memory().available
        if settings.device == "cpu" and (settings.memory or 0) > free:
            raise UnusableInput(
                f"--memory must be at most the {bytes_text(free)} that are free, got {_given(settings)}"
            )
        axis = Axis.of(replace(settings, memory=settings.memory or default_memory(settings)))
        one = problem.inputs_of_size(replace(settings, batch=None), (1, axis.rows, axis.cols))
        sought = f"batches of random pairs of {axis.rows} x {axis.cols}"
        return {
            DATA: replace(one, text=sought if axis.batch is None else f"square random pairs, {axis.batch} in a batch")
        }

    def measure(self, run: "Run", cases: list[Case], inputs: dict[str, Any]) -> None:
        measure_memory(run, cases, inputs[DATA])

    def answer(self, record: Record) -> Answer:
        if record.settings.memory is None:
            return Answer()
        every = [result for result in record.results if needs(result)]
        told = [
            Statement(pass_name, _advice(record, results))
            for pass_name in record.settings.passes
            if (results := [result for result in every if result.case.pass_name == pass_name])
        ]
        if not every:
            return Answer([], [Statement(r.case.title, f"{r.reason}.") for r in record.results if r.reason])
        return Answer([_table(record, every), details_table(record, every)], [*told, *_wrong(every)])

    def plots(self, record: Record) -> Iterator[Plot]:
        """Peak memory over cells, with the lines that were fitted and the trials."""
        for pass_name in record.settings.passes:
            results = [r for r in record.results if r.case.pass_name == pass_name and needs(r)]
            if results:
                reading = (
                    "Lower is better. Small markers: what was measured, and the line through it up to the largest "
                    f"size; large ones: the trial at {BELOW} of that. The thick line: the given memory."
                )
                yield Plot(f"{pass_name}: peak memory of a process", _lines(record, results), reading)


QUESTION = Memory()


def _given(settings: Settings) -> str:
    return bytes_text(settings.memory)


def _table(record: Record, results: Sequence[Result]) -> Table:
    """A row for each pass and variant; in each cell JAX / PyTorch."""
    memory, axis, rows = record.settings.memory or 0, Axis.of(record.settings), []
    found: dict[tuple[str, str], dict[str, Result]] = {}
    for result in results:
        found.setdefault((result.case.pass_name, result.case.variant), {})[result.case.framework] = result
    for (pass_name, variant), own in found.items():
        both = [own.get(framework) for framework in FRAMEWORKS]
        comparison = compare_sizes(own.values(), memory)
        rows.append((
            pass_name,
            variant,
            _side_by_side([r and f"{figures(estimate(r, 'cell').value)} B" for r in both]),
            _side_by_side([r and f"{axis.number(cells_that_fit(r, memory).value):,}" for r in both]),
            comparison.text if comparison.ratio else NOTHING,
            *(_side_by_side([r and _trial(r, share) for r in both]) for share in (BELOW, ABOVE)),
        ))  # fmt: skip
    names = " / ".join(FRAMEWORKS.values())
    sought = f"pairs of\n{axis.rows} x {axis.cols}" if axis.batch is None else "length of\na square pair"
    headers = (
        *("pass", "variant"),
        f"a cell\n{names}",
        f"largest\n{sought}\n{names}",
        "fits more",
        *(f"tried at\n{share} of that\n{names}" for share in (BELOW, ABOVE)),
    )
    lost = [result for result in record.results if not needs(result)]
    what = "cells" if axis.batch else "pairs"
    below = (
        f"Of a whole process: framework, arguments, calls. Fits more: how many times as many {what}, and the 95% "
        f"interval; same: within ±{SAME - 1:.0%}.",
        f"Tried: the peak of a fresh process; {STOPPED}: it had more than {_given(record.settings)}, as it must "
        "above the largest size.",
        *(f"No {result.case.title}: {result.reason or 'not measured'}." for result in lost),
    )
    title = f"What fits into {_given(record.settings)}"
    return Table(title, headers, rows, left_then_right(len(headers), 0), below)


def _side_by_side(texts: Sequence[str | None]) -> str:
    return " / ".join(text or NOTHING for text in texts)


def _trial(result: Result, share: str) -> str:
    """What became of a trial."""
    found = trials(result).get(share)
    if not found:
        return "not tried"
    expected = FITS if share == BELOW else STOPPED
    text = bytes_text(found["peak"]) if found["outcome"] == FITS else found["outcome"]
    return text if found["outcome"] == expected else f"{text}: not predicted"


def _advice(record: Record, results: Sequence[Result]) -> str:
    """What to take where memory is short: each framework's case that fits most, or one of them."""
    memory, axis = record.settings.memory or 0, Axis.of(record.settings)
    comparison = compare_sizes(results, memory)
    best = [next(result for result in results if result.case == each.case) for each in comparison.results]
    taken = best if comparison.ratio and comparison.outcome != "different" else best[:1]
    sides = []
    for result in best:
        size = axis.text(axis.number(cells_that_fit(result, memory).value))
        base, cell = (estimate(result, name).value for name in ("base", "cell"))
        own = f"{bytes_text(round(base))} for the process and {figures(cell)} B a cell"
        sides.append(f"{size} in {result.case.name} ({own})")
    verdict = f": {' '.join(comparison.text.split())}" if comparison.ratio else ""
    return (
        f"take {' or '.join(result.case.name for result in taken)}: into {bytes_text(memory)} fit "
        f"{', against '.join(sides)}{verdict}."
    )


def _wrong(results: Sequence[Result]) -> Iterator[Statement]:
    """The predictions that were too large: what a reader must not rely on."""
    for result in results:
        found = trials(result).get(BELOW)
        if found and found["outcome"] != FITS:
            text = f"{BELOW} of the largest size that was predicted did not fit ({found['outcome']}): take less."
            yield Statement(result.case.title, text)


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
                axes.semilogx(cells, process["peaks"], markersize=4, label=None if number else name, **look)
            ends = range(0, 33)
            line = [cells[0] * (cells_that_fit(result, memory).value / cells[0]) ** (end / 32) for end in ends]
            peaks = [predicted_peak(result, (round(count),)).value for count in line]
            axes.semilogx(line, peaks, "-" if framework == "jax" else "--", color=colour, linewidth=1)
            tried = trials(result).get(BELOW)
            if tried and tried["peak"]:
                axes.semilogx([math.prod(tried["size"])], [tried["peak"]], markersize=9, **look)
        axes.axhline(memory, color="black", linewidth=2)
        axes.set_xlabel("cells in a call")
        axes.yaxis.set_major_formatter(BYTES)
        axes.legend(fontsize=8)

    return drawn(draw, 7.2, 5)
