"""The report of records as one HTML page: no network, no script, no other file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from shared.bench.analysis.diagnostics import diagnostics, warnings
from shared.bench.questions import QUESTIONS
from shared.bench.record import Record
from shared.bench.report import conditions
from shared.bench.report.case_table import case_table
from shared.bench.report.picture import pictures
from shared.bench.report.svg import own_style
from shared.bench.report.tables import Answer, Plot, printable


def html_report(records: Sequence[Record]) -> str:
    """The page, complete. Text from records is shown as text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    parts = [
        _part(f"r{number}", heading, record)
        for number, (heading, record) in enumerate(zip(conditions.headings(records), records, strict=True), 1)
    ]
    return environment.get_template("page.html.j2").render(title=conditions.title(records), parts=parts)


def _printable(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _part(key: str, heading: str, record: Record) -> dict[str, Any]:
    """What the page shows of one record."""
    question = QUESTIONS[record.settings.question] if record.settings else None
    return {
        "key": key,
        "heading": heading,
        "head": list(conditions.head(record)),
        "warnings": list(warnings(record)),
        "answer": question.answer(record) if question else Answer(),
        "plots": [(plot, Markup(plot.svg)) for plot in _plots(record, key)],
        "cases": case_table(record) if question and record.results else None,
        "diagnostics": list(diagnostics(record)),
        "conditions": conditions.tables(record),
        "command": conditions.commands(record),
        "when": conditions.when(record),
    }


def _plots(record: Record, key: str) -> Iterator[Plot]:
    if record.settings is not None:
        with own_style():
            yield from QUESTIONS[record.settings.question].plots(record, key)
            yield from pictures(record, key)
