"""Plots of single inputs: the time of every case as a bar, and its rate beside the machine's limit."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from shared.bench.analysis.roofline import meaning, rate_limit
from shared.bench.cases import FRAMEWORKS
from shared.bench.questions import QUESTIONS
from shared.bench.record import Record, Result
from shared.bench.report.case_table import mark
from shared.bench.report.scales import label_width, log_ticks, percent, rate_text, seconds_text, shown, span
from shared.bench.report.svg import ACCENTS, GRID, INK, MUTED, PAPER, WIDTH, inline, new_axes
from shared.bench.report.tables import Plot
from shared.bench.units import duration
from shared.problems import PROBLEMS

_ROW, _GAP = 16, 6  # heights of a row, and of the space above a variant
_LEFT, _RIGHT = 56, 6  # margins: the rows begin right of the frameworks' names
_SHAPES = {"jax": "o", "torch": "D"}


def plots_of_cases(record: Record, name: str) -> Iterator[Plot]:
    """For each input and pass. name: unique on the page."""
    assert record.settings is not None
    rate = PROBLEMS[record.settings.problem].rate
    for number, (input_name, pass_name) in enumerate(
        (input_name, pass_name) for input_name in record.inputs for pass_name in record.settings.passes
    ):
        results = [r for r in record.results if (r.case.input, r.case.pass_name) == (input_name, pass_name)]
        if not any(result.measured for result in results):
            continue
        which = f"{pass_name}, {input_name}" if len(record.inputs) > 1 else pass_name
        rounds = QUESTIONS[record.settings.question].times_rounds
        call = "a call" if rounds else "the second call"
        whiskers = (
            "The thin line at a bar's end is the 95% interval." if rounds else "Each was timed once: no intervals."
        )
        empty = "" if all(result.case.compiled for result in results) else " A {} was not compiled."
        title = f"{which}: time of {call}"
        yield Plot(
            title,
            _time_bars(results, f"{name}-time-{number}", title),
            f"Shorter is faster. The scale is logarithmic: read where a bar ends, not its area. {whiskers}"
            f"{empty.format('bar on a light ground')}",
        )
        if any(result.rate for result in results):
            has_limit = any(rate_limit(record, result) for result in results)
            title = f"{which}: {rate.work} per second"
            limit = (
                f" The upright line is what {meaning(record)}; in brackets, the share of it that was reached "
                "(beyond 100% the data lay in a cache)."
            )
            yield Plot(
                title,
                _rate_dots(record, results, f"{name}-rate-{number}", title),
                f"Further right is faster. {rate.meaning}{limit if has_limit else ''}{empty.format('hollow marker')}",
            )


class _Label(NamedTuple):
    value: str
    aside: str


def _time_bars(results: Sequence[Result], name: str, title: str) -> str:
    """A bar for each case, those of a variant together, the frameworks side by side."""
    spans = {result.case: span(result.time) for result in results if result.measured}
    labels = [_Label(duration(r.time.value) if r.measured else mark(r), _aside(r)) for r in results]
    ends = [spans[result.case][2] if result.measured else None for result in results]
    low = min(lower for _, lower, _ in spans.values())
    base = 10.0 ** math.floor(math.log10(low / 1.6))
    axes, rows = _rows(results, labels, base, ends, seconds_text)
    for result, y, label in rows:
        if not result.measured:
            _write(axes, base, y, label)
            continue
        value, lower, upper = spans[result.case]
        colour = ACCENTS.get(result.case.framework, INK)
        look = {"facecolor": colour, "edgecolor": PAPER, "linewidth": 0}
        if not result.case.compiled:
            look = {"facecolor": "none", "edgecolor": colour, "linewidth": 1.4}
        hatch = "////" if result.case.framework == "torch" else None
        axes.barh(y, value - base, height=_ROW - 5, left=base, hatch=hatch, **look)
        if upper > lower:
            axes.plot([lower, upper], [y, y], color=INK, linewidth=1.3, marker="|", markersize=6, markeredgewidth=1.3)
        _write(axes, upper, y, label)
    return inline(axes, name, title)


def _rate_dots(record: Record, results: Sequence[Result], name: str, title: str) -> str:
    """A marker for each measured case, and a line up to the limit of the machine."""
    assert record.settings is not None
    rate = PROBLEMS[record.settings.problem].rate
    in_units = lambda per_second: None if per_second is None else per_second / rate.per  # noqa: E731
    found = {result.case: (in_units(result.rate), in_units(rate_limit(record, result))) for result in results}
    shown = [result for result in results if found[result.case][0]]
    values = [value for result in shown for value in found[result.case] if value]
    base = 10.0 ** math.floor(math.log10(min(values) / 1.3))
    labels, ends = [], []
    for result in shown:
        value, limit = found[result.case]
        assert value is not None
        share = f" ({percent(value / limit)})" if limit else ""
        labels.append(_Label(rate.text(value * rate.per), share))
        ends.append(max(value, limit or 0))
    axes, rows = _rows(shown, labels, base, ends, rate_text, rate.unit)
    for result, y, label in rows:
        value, limit = found[result.case]
        assert value is not None
        colour = ACCENTS.get(result.case.framework, INK)
        axes.plot([base, value], [y, y], color=colour, linewidth=1.6)
        if limit:
            axes.plot([value, limit], [y, y], color=GRID, linewidth=1, zorder=1)
            axes.plot([limit], [y], color=INK, marker="|", markersize=11, markeredgewidth=1.6)
        face = colour if result.case.compiled else PAPER
        shape = _SHAPES.get(result.case.framework, "s")
        axes.plot([value], [y], color=colour, marker=shape, markersize=6, markerfacecolor=face, markeredgewidth=1.4)
        _write(axes, max(value, limit or 0), y, label)
    return inline(axes, name, title)


def _rows(
    results: Sequence[Result],
    labels: Sequence[_Label],
    base: float,
    ends: Sequence[float | None],
    tick_text: Callable[[float], str],
    unit: str = "",
) -> tuple[Axes, list[tuple[Result, float, _Label]]]:
    """Axes with a row for each case under its variant's name. ends: how far right each row reaches; None: nowhere."""
    groups: dict[str, list[int]] = {}
    for index, result in enumerate(results):
        groups.setdefault(result.case.variant, []).append(index)
    inner = _ROW * (len(results) + len(groups)) + _GAP * len(groups)
    top, bottom = 4, 34 if unit else 22
    axes = new_axes(inner + top + bottom, _LEFT, _RIGHT, top, bottom)
    room = WIDTH - _LEFT - _RIGHT
    # every row's label must fit to the right of its end
    decades = 0.3
    for end, label in zip(ends, labels, strict=True):
        if end is not None:
            free = room - 10 - label_width(label.value + label.aside)
            decades = max(decades, math.log10(end / base) * room / max(free, room / 4))
    axes.set_xscale("log")
    axes.set_xlim(base, base * 10**decades)
    axes.set_ylim(inner, 0)
    ticks = [
        tick
        for tick in log_ticks(base, base * 10**decades, room)
        if math.log10(tick / base) / decades * room + label_width(tick_text(tick)) / 2 < room + _RIGHT
    ]
    axes.set_xticks(ticks, [tick_text(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(unit, labelpad=2)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=0, pad=4)
    axes.grid(axis="x")
    rows, y = [], 0.0
    for variant, indices in groups.items():
        y += _GAP
        _beside(axes, -_LEFT, y + _ROW / 2, shown(variant, 46), weight="bold")
        y += _ROW
        for index in indices:
            framework = FRAMEWORKS[results[index].case.framework]
            _beside(axes, 8 - _LEFT, y + _ROW / 2, framework, color=MUTED)
            rows.append((results[index], y + _ROW / 2, labels[index]))
            y += _ROW
    return axes, rows


def _beside(axes: Axes, x: float, y: float, text: str, color: str = INK, weight: str = "normal") -> None:
    """Text at x pixels right of where the rows begin."""
    at: Any = ("axes fraction", "data")
    axes.annotate(
        text, (0, y), (x, 0), xycoords=at, textcoords="offset points", va="center", color=color, weight=weight
    )


def _write(axes: Axes, end: float, y: float, label: _Label) -> None:
    """A row's label at its end. The paper behind keeps grid lines out of the text."""
    text = axes.annotate(label.value + label.aside, (end, y), (6, 0), textcoords="offset points", va="center")
    text.set_bbox({"facecolor": PAPER, "edgecolor": "none", "pad": 0.5})


def _aside(result: Result) -> str:
    label = f", {result.case.label}" if result.case.label else ""
    return label + ("" if result.case.compiled else ", not compiled")
