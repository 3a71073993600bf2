"""Plots of single inputs: the time of every case as a bar."""

from collections.abc import Iterator, Sequence

from shared.bench.cases import FRAMEWORKS
from shared.bench.record import Record, Result
from shared.bench.report.svg import COLOURS, INK, SECONDS, inline, new_axes
from shared.bench.report.tables import Plot, printable
from shared.bench.units import duration

_WIDTH, _ROW, _MARGIN = 520, 20, 50


def plots_of_cases(record: Record, key: str) -> Iterator[Plot]:
    """One for each input and pass. key: unique on the page."""
    assert record.settings is not None
    for number, (input_name, pass_name) in enumerate(
        (input_name, pass_name) for input_name in record.inputs for pass_name in record.settings.passes
    ):
        results = [
            result
            for result in record.results
            if result.measured and (result.case.input, result.case.pass_name) == (input_name, pass_name)
        ]
        if results:
            title = (
                f"{pass_name}, {input_name}: time of a call"
                if len(record.inputs) > 1
                else f"{pass_name}: time of a call"
            )
            reading = (
                "Shorter is faster; the scale is logarithmic. A thin line is the 95% interval, where there is one."
            )
            unfilled = "" if all(result.case.compiled for result in results) else " Unfilled bars were not compiled."
            yield Plot(title, _bars(results, f"{key}-time-{number}", title), reading + unfilled)


def _bars(results: Sequence[Result], name: str, title: str) -> str:
    axes = new_axes(_WIDTH, _ROW * len(results) + _MARGIN)
    for row, result in enumerate(results):
        value, low, high = result.time
        colour = COLOURS.get(result.case.framework, INK)
        face = colour if result.case.compiled else "none"
        hatch = "///" if result.case.framework == "torch" and result.case.compiled else None
        bar = axes.barh(row, value, height=0.75, color=face, edgecolor="white" if hatch else colour, hatch=hatch)
        axes.bar_label(bar, [duration(value)], padding=6)
        if low < high:
            axes.plot([low, high], [row, row], color=INK, linewidth=1.2, marker="|", markersize=5)
    names = [f"{FRAMEWORKS.get(r.case.framework, r.case.framework)} {_short(r.case.variant)}" for r in results]
    axes.set_yticks(range(len(results)), names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(right=max(result.time.value for result in results) * 6)
    axes.xaxis.set_major_formatter(SECONDS)
    axes.grid(visible=False, axis="y")
    return inline(axes, name, title)


def _short(text: str) -> str:
    return printable(text) if len(text) <= 30 else f"{printable(text)[:29]}…"
