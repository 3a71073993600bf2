"""The report of records as one HTML page: no network, no script, no other file."""

import base64
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from shared.bench.questions import QUESTIONS
from shared.bench.record import Record
from shared.bench.report.report import report_of
from shared.bench.report.side_by_side import notes, side_by_side


def html_report(records: Sequence[Record]) -> str:
    """The page, complete. Text from records is shown as text."""
    jinja = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined)
    jinja.filters["base64"] = lambda text: base64.b64encode(text.encode()).decode()
    parts = [(report_of(record), [*QUESTIONS[record.settings.question].plots(record)]) for record in records]
    return jinja.get_template("page.html.j2").render(parts=parts, notes=notes(records), machines=side_by_side(records))
