"""What do shapes that change with every batch cost, and what helps: padding, a few shapes, dynamic shapes?

A stream of batches, each of another shape, goes once through each case with each strategy, in fresh processes with
empty caches; every batch is timed, compilation included. The stream: shapes_stream.py; its measurement: shapes_run.py;
what it took in total: shapes_totals.py.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from shared.bench.cases import FRAMEWORKS, Absence, Case, Settings
from shared.bench.estimates import LEAST_PROCESSES, Estimate
from shared.bench.questions.question import Question
from shared.bench.questions.shapes_run import measure_streams
from shared.bench.questions.shapes_stream import AS_IS, DYNAMIC, EAGER, FOUR, STRATEGIES, stream_of
from shared.bench.questions.shapes_totals import (
    COUNTS,
    EXTRAPOLATED,
    compare_totals,
    compilations,
    fastest,
    processes,
    ratio_of_totals,
    total_text,
    totals_table,
)
from shared.bench.record import Record, Result
from shared.bench.report.plots import Line, line_plot
from shared.bench.report.tables import Answer, Plot, Statement, Table, left_then_right
from shared.bench.run.context import Run
from shared.bench.run.plan import WorkerStart
from shared.bench.units import NOTHING, duration, ratio_interval, ratio_text
from shared.problems import Inputs
from shared.problems.problem import DATA, Problem
from shared.variants import Abilities

# strategies that are PyTorch's, of what it compiles
_OF_PYTORCH = (DYNAMIC, EAGER)
_ADVICE = {
    AS_IS: "leave the batches as they are",
    FOUR: "pad to 4 shapes",
    DYNAMIC: "compile with dynamic shapes",
    EAGER: "do not compile",
}


class Shapes(Question):
    """Batches of another shape each."""

    name = "shapes"
    asks = "what do shapes that change with every batch cost, compilation included; what does padding gain"
    takes = ("size", "workers")
    default_input = "random"
    labels: Mapping[str, WorkerStart] = dict.fromkeys(STRATEGIES, WorkerStart())
    default_budget = 540.0  # with what is begun when it is spent, ten minutes
    times_rounds = False

    def default_passes(self, problem: Problem) -> tuple[str, ...]:
        return problem.default_passes[-1:]

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        return {DATA: stream_of(settings)}

    def cases(
        self, settings: Settings, abilities: Mapping[str, Abilities], inputs: Sequence[str]
    ) -> tuple[list[Case], list[Absence]]:
        cases, absent = super().cases(settings, abilities, inputs)
        kept = [c for c in cases if c.label not in _OF_PYTORCH or (c.framework == "torch" and c.compiled)]
        as_run = [replace(c, compiled=c.compiled and c.label != EAGER) for c in kept]
        return as_run, [row for row in absent if row.case.endswith(AS_IS)]  # each once

    def measure(self, run: Run, cases: list[Case], inputs: dict[str, Any]) -> None:
        measure_streams(run, cases, inputs[DATA])

    def answer(self, record: Record) -> Answer:
        tables, told, details = [], [], []
        for pass_name in record.settings.passes:
            by_variant = _by_variant(record, pass_name)
            if by_variant:
                prefix = f"{pass_name}, " if len(record.settings.passes) > 1 else ""
                every = [result for results in by_variant.values() for result in results]
                tables.append(_table(record, pass_name, by_variant))
                details.append(totals_table(every, f"Totals over processes, {pass_name}"))
                for about, results in {"fastest of all": every, **by_variant}.items():
                    told += [Statement(f"{prefix}{about}", text) for text in _winners(results)]
                for variant, results in by_variant.items():
                    told += [Statement(f"{prefix}{variant} in {name}", text) for name, text in _advice(results)]
        return Answer(tables, told, details)

    def plots(self, record: Record) -> Iterator[Plot]:
        """Total time over batches, a line for each framework and strategy."""
        for pass_name in record.settings.passes:
            for variant, results in _by_variant(record, pass_name).items():
                streams = [(r.case, max((p["seconds"] for p in processes(r)), key=len)) for r in results]
                lines = [Line(case.framework, case.label, [*enumerate(accumulate(took), 1)]) for case, took in streams]
                yield Plot(
                    f"{pass_name}, {variant}: total time over batches",
                    line_plot({"": lines}, "batches", "s", x_base=None),
                    "Lower is better. Of each case the longest stream, as far as it was measured.",
                )


QUESTION = Shapes()


def _by_variant(record: Record, pass_name: str) -> dict[str, list[Result]]:
    """The cases with a stream, in the order of the ladder."""
    found: dict[str, list[Result]] = {}
    for result in record.results:
        if result.case.pass_name == pass_name and processes(result):
            found.setdefault(result.case.variant, []).append(result)
    return found


def _table(record: Record, pass_name: str, by_variant: Mapping[str, Sequence[Result]]) -> Table:
    """A row for each variant and strategy; in each cell JAX / PyTorch, and under totals the faster one."""
    rows = []
    for variant, results in by_variant.items():
        for strategy in STRATEGIES:
            own = {result.case.framework: result for result in results if result.case.label == strategy}
            both = [own.get(framework) for framework in FRAMEWORKS]
            if own:
                counts = _side_by_side(both, _compilations)
                times = _side_by_side(both, lambda result: duration(result.time.value))
                rows.append((variant, strategy, counts, times, *(_total_cell(both, count) for count in COUNTS)))
    names = " / ".join(FRAMEWORKS.values())
    headers = (
        "variant",
        "strategy",
        f"compilations\n{names}",
        f"a batch,\nonce compiled\n{names}",
        *(f"in total,\nafter {count}\n{names}" for count in COUNTS),
    )
    unmeasured = [r for r in record.results if r.case.pass_name == pass_name and r.status != "ok"]
    below = (
        "Compilation included, from empty caches. The faster framework, by what factor, and the 95% interval over "
        "fresh processes.",
        f"{EXTRAPOLATED}: extrapolated from the batches that were measured, as is every total after {COUNTS[-1]}. "
        "n in m: n in the m batches that were measured.",
        "as is: each shape compiled by itself; multiples of 16, of 64: rows and columns padded up to the next one; 4 "
        "shapes: to the next of four that are known beforehand; the time of padding counts; dynamic: torch.compile's "
        "default, which makes sizes that change variables; eager: without torch.compile, but the scan operator "
        "traces and compiles its step for each shape.",
        *(f"No {result.case.title}: {result.reason}." for result in unmeasured),
    )
    title = f"Shapes that change with every batch, {pass_name}"
    return Table(title, headers, rows, left_then_right(len(headers), 0), below)


def _side_by_side(both: Sequence[Result | None], text: Callable[[Result], str]) -> str:
    return " / ".join(NOTHING if result is None else text(result) for result in both)


def _compilations(result: Result) -> str:
    count, batches = compilations(result)
    return f"{count}" if batches is None else f"{count} in {batches}"


def _total_cell(both: Sequence[Result | None], count: int) -> str:
    """Both totals, and who is faster."""
    told = _side_by_side(both, lambda result: total_text(result, count))
    comparison = compare_totals(filter(None, both), count)
    return told if comparison.ratio is None else f"{told}\n{comparison.text}"


def _winners(results: Sequence[Result]) -> Iterator[str]:
    """Each framework with its fastest strategy, after each count of batches."""
    parts = []
    for count in COUNTS:
        comparison = compare_totals(results, count)
        if comparison.ratio is not None:
            sides = [f"{total_text(result, count)} ({_name(result, results)})" for result in comparison.results]
            parts.append(f"after {count} batches {' '.join(comparison.text.split())}, {' against '.join(sides)}")
    if parts:
        yield f"{'; '.join(parts)}."


def _name(result: Result, among: Sequence[Result]) -> str:
    """Its strategy, and its variant if there are several."""
    variants = {each.case.variant for each in among}
    return f"{result.case.variant}, {result.case.label}" if len(variants) > 1 else result.case.label


def _advice(results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """For each framework: what to do, what it costs, and what it gains over doing nothing."""
    count, later = COUNTS[-2:]
    for framework, name in FRAMEWORKS.items():
        own = {result.case.label: result for result in results if result.case.framework == framework}
        if not own:
            continue
        best, best_later = (fastest(own.values(), number) for number in (count, later))
        compiled, batches = compilations(best)
        told = f": {compiled} compilation{'' if compiled == 1 else 's'}"
        told += "" if batches is None else f" up to batch {batches}"
        told += f", {total_text(best, count)} for {count} batches"
        advice = _ADVICE.get(best.case.label, f"pad to {best.case.label}")
        other = _other(own, best, count)
        if other is not best:
            ratio = ratio_of_totals(other, best, count)
            if ratio.outcome != "different":
                advice = f"no strategy is decided to be faster; {best.case.label}"
            told += f" against {total_text(other, count)} ({other.case.label}), {_factor(ratio)}"
            if best.case.label != AS_IS != other.case.label and AS_IS in own:
                told += f", and {total_text(own[AS_IS], count)} ({AS_IS})"
        if best_later is not best:
            told += f"; for {later} batches {total_text(best_later, later)} ({best_later.case.label})"
        yield name, f"{advice}{told}."


def _other(own: Mapping[str, Result], best: Result, count: int) -> Result:
    """What the best strategy is compared with: doing nothing, or the next best where too few processes did nothing."""
    others = [result for result in own.values() if result is not best]
    if AS_IS in own and own[AS_IS] is not best:
        known = [result for result in others if len(processes(result)) >= LEAST_PROCESSES]
        return own[AS_IS] if own[AS_IS] in known or not known else fastest(known, count)
    return fastest(others, count) if others else best


def _factor(ratio: Estimate) -> str:
    """Of the totals of two strategies."""
    text = f"{ratio_text(ratio.value)}×"
    if math.isnan(ratio.low):
        return f"{text}, < {LEAST_PROCESSES} processes"
    return f"{text if ratio.outcome == 'different' else ratio.outcome} ({ratio_interval(ratio)})"
