"""The report of records as Markdown: the words and tables of the page, without its plots."""

import re
from collections.abc import Iterator, Sequence

from tabulate import tabulate

from shared.bench.analysis.diagnostics import diagnostics, warnings
from shared.bench.questions import QUESTIONS
from shared.bench.record import Record
from shared.bench.report import conditions
from shared.bench.report.case_table import case_table
from shared.bench.report.tables import Table, printable

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# special anywhere in a line, or only at its start
_SPECIAL = re.compile(r"[&<>\\`*_\[\]#|~$]")
_BLOCK = re.compile(r"^([-+](?=[\s-]|$)|=|\d+(?=[.)](?:\s|$)))")


def markdown_report(records: Sequence[Record]) -> str:
    """The report, complete. Text from records is shown as text."""
    lines = [f"# {escaped(conditions.title(records))}"]
    for heading, record in zip(conditions.headings(records), records, strict=True):
        lines += [f"## {escaped(heading)}", *filter(None, _sections(record))]
    return "\n\n".join(lines) + "\n"


def _sections(record: Record) -> Iterator[str]:
    yield _items(list(conditions.head(record)))
    if record.settings is None:
        yield "Nothing was measured."
    else:
        for line in warnings(record):
            yield f"**{escaped(line)}**"
        answer = QUESTIONS[record.settings.question].answer(record)
        for table in answer.tables:
            yield markdown_table(table)
        for statement in answer.statements:
            details = "".join(f"\n  - {escaped(line)}" for line in statement.details)
            yield f"- **{escaped(statement.about)}**: {escaped(statement.text)}{details}"
        yield markdown_table(case_table(record))
        yield "### Diagnostics"
        yield _items(list(diagnostics(record)))
    yield "### Conditions"
    for table in conditions.tables(record):
        yield markdown_table(table)
    yield fenced(conditions.commands(record))
    yield escaped(conditions.when(record))


def markdown_table(table: Table) -> str:
    """A table under its title, with its footnotes; nothing if it is empty."""
    if not table.rows:
        return ""
    cells, (headers,) = ([[_cell(cell) for cell in row] for row in rows] for rows in (table.rows, [table.headers]))
    shown = tabulate(cells, headers, tablefmt="github", disable_numparse=True, colalign=table.aligns)
    return "\n\n".join([f"### {escaped(table.title)}", shown, *map(escaped, table.below)])


def _cell(text: str) -> str:
    return "<br>".join(map(escaped, text.split("\n")))


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    line = " ".join(printable(text).split())
    line = _SPECIAL.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), line)
    return _BLOCK.sub(lambda match: match[0] + "\\" if match[0].isdigit() else f"\\{match[0]}", line)


def fenced(text: str) -> str:
    """Text as a block of code that its own backticks cannot end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{printable(text)}\n{fence}"


def _items(lines: Sequence[str]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)
