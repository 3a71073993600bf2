"""The report of records as one HTML page: no network, no script, no other file."""

import base64
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from shared.bench.questions import QUESTIONS
from shared.bench.record import Record
from shared.bench.report.plots import own_style, pictures
from shared.bench.report.report import report_of
from shared.bench.report.tables import Plot


def html_report(records: Sequence[Record]) -> str:
    """The page, complete. Text from records is shown as text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["base64"] = lambda text: base64.b64encode(text.encode()).decode()
    parts = list(zip(map(report_of, records), map(_plots, records), strict=True))
    return environment.get_template("page.html.j2").render(parts=parts)


def _plots(record: Record) -> list[Plot]:
    if record.settings is None:
        return []
    with own_style():
        return [*QUESTIONS[record.settings.question].plots(record), *pictures(record)]
