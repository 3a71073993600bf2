"""The report of records as one HTML page: no network, no script, no file beside it."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from shared.bench.notes import notes, warnings
from shared.bench.plan import FRAMEWORKS
from shared.bench.record import Record
from shared.bench.report import rows
from shared.bench.report.cases import case_table
from shared.bench.report.plots import Plot, plots
from shared.bench.report.rows import Table, printable
from shared.bench.text import near_one, ratio_interval, without_winner
from shared.bench.verdict import Verdict, verdicts

# with more verdicts than this in a record their details are folded
_MANY = 4


def html_report(records: Sequence[Record]) -> str:
    """The page, complete. Whatever text the records hold is shown as text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found = [_verdicts(record) for record in records]
    reach = _reach(verdict for each in found for verdict in each)
    parts = [
        _Part(f"r{number}", heading, record, [_card(verdict, reach, len(record.inputs) > 1) for verdict in each])
        for number, (heading, record, each) in enumerate(zip(rows.headings(records), records, found, strict=True), 1)
    ]
    frameworks = list(FRAMEWORKS.items())
    template = environment.get_template("page.html.j2")
    return template.render(title=rows.title(records), parts=parts, frameworks=frameworks)


def _verdicts(record: Record) -> list[Verdict]:
    """In the order in which they are compared: the sizes of a sweep next to each other."""
    found = verdicts(record) if record.settings else []
    if record.settings and record.settings.sweep:
        passes = record.settings.passes
        found.sort(key=lambda verdict: passes.index(verdict.pass_name))
    return found


def _printable(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


class _Card(NamedTuple):
    """A verdict at a glance."""

    tone: str  # a framework, or "even"
    about: str
    headline: str
    detail: str
    interval: str
    scale: "_Scale | None"
    sentence: str
    price: list[tuple[str, str]]  # what it is about, and the rest of the sentence


class _Scale(NamedTuple):
    """Where a ratio and its interval lie between the first framework and the second, in percent of the way."""

    at: float
    low: float
    high: float


class _Part:
    """What the page says of one record."""

    def __init__(self, key: str, heading: str, record: Record, cards: list[_Card]) -> None:
        self.key, self.heading, self.cards, self.folded = key, heading, cards, len(cards) > _MANY
        self.summary = list(rows.summary(record))
        self.warnings = list(warnings(record))
        self.plots: list[Plot] = plots(record, key)
        self.drawings = [Markup(plot.svg) for plot in self.plots]
        self.cases = case_table(record)
        self.reference = rows.reference_table(record)
        self.growth = rows.growth_table(record)
        self.notes = list(notes(record))
        self.speed = rows.speed_table(record)
        self.facts: list[Table] = [rows.environment_table(record), rows.settings_table(record)]
        self.inputs = rows.input_table(record)
        self.command, self.when = rows.commands(record), rows.when(record)


def _reach(found: Iterable[Verdict]) -> float:
    """How far the scale of the cards goes to each side: the same for all of a page, as a logarithm."""
    bounds = [bound for v in found if v.ratio and v.is_sure for bound in (v.ratio.low, v.ratio.high)]
    return 1.1 * max([math.log(1.25), *(abs(math.log(bound)) for bound in bounds)])


def _card(verdict: Verdict, reach: float, has_inputs: bool) -> _Card:
    tone, headline, detail, interval = _glance(verdict)
    sentence = verdict.sentence
    return _Card(
        tone,
        f"{verdict.pass_name}, {verdict.input}" if has_inputs else verdict.pass_name,
        headline,
        detail,
        interval,
        _scale(verdict, reach),
        sentence[:1].upper() + sentence[1:],
        [(label[:1].upper() + label[1:], rest) for label, _, rest in (line.partition(": ") for line in verdict.price)],
    )


def _glance(verdict: Verdict) -> tuple[str, str, str, str]:
    """Tone, headline, and a line and the interval below it."""
    names = [FRAMEWORKS[result.case.framework] for result in verdict.best]
    if not names:
        return "even", "Not measured", "", ""
    if verdict.ratio is None:
        if len(names) > 1:
            return "even", "Not decided", f"{names[0]} and {names[1]} share no round", "no interval"
        return "even", f"Only {names[0]}", "nothing to compare with", ""
    factor = near_one(verdict.ratio.value)
    if not verdict.is_sure:
        return "even", "Not decided", f"{names[0]} {factor}× as fast as {names[1]}, in one process", "no interval"
    interval = f"95% interval {ratio_interval(verdict.ratio)}"
    if not verdict.is_difference:
        headline = without_winner(verdict.ratio).capitalize()
        return "even", headline, f"{names[0]} {factor}× as fast as {names[1]}", interval
    return verdict.best[0].case.framework, f"{names[0]} {factor}×", f"as fast as {names[1]}", interval


def _scale(verdict: Verdict, reach: float) -> _Scale | None:
    if verdict.ratio is None or not verdict.is_sure:
        return None
    side = -1 if verdict.best[0].case.framework == next(iter(FRAMEWORKS)) else 1
    at, *ends = (50 + 50 * side * math.log(value) / reach for value in verdict.ratio)
    return _Scale(round(at, 2), round(min(ends), 2), round(max(ends), 2))
