"""Records as a reader sees them, in each output."""

import os
from collections.abc import Sequence
from unittest.mock import patch

from shared.bench.questions import QUESTIONS
from shared.bench.record import Record
from shared.bench.report import html, markdown
from shared.bench.report.console import console_text
from shared.bench.report.report import Report
from shared.bench.report.side_by_side import notes, side_by_side


def report_of(record: Record) -> Report:
    return QUESTIONS[record.settings.question].report(record)


def console_report(record: Record, columns: int = 1000) -> str:
    with patch.dict(os.environ, COLUMNS=str(columns)):
        return console_text(report_of(record))


def markdown_report(records: Sequence[Record]) -> str:
    return markdown.markdown_report([*map(report_of, records)], notes(records), side_by_side(records))


def html_report(records: Sequence[Record]) -> str:
    return html.html_report([*map(report_of, records)], notes(records), side_by_side(records))
