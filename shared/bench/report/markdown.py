"""The report of records as Markdown: the page's words and tables, without the plots."""

import re
from collections.abc import Iterator, Sequence

from tabulate import tabulate

from shared.bench.notes import notes, warnings
from shared.bench.record import Record
from shared.bench.report import rows
from shared.bench.report.cases import case_table
from shared.bench.report.rows import Table, printable
from shared.bench.verdict import verdicts

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# means something anywhere in a line, or only at its start
_SPECIAL = re.compile(r"[&<>\\`*_\[\]#|~$]")
_BLOCK = re.compile(r"^([-+](?=[\s-]|$)|=|\d+(?=[.)](?:\s|$)))")


def markdown_report(records: Sequence[Record]) -> str:
    """The report, complete. Whatever text the records hold is shown as text."""
    lines = [f"# {escaped(rows.title(records))}"]
    for title, part in (("Verdict", _verdict), ("Every number", _numbers), ("Conditions", _conditions)):
        lines.append(f"## {title}")
        for heading, record in zip(rows.headings(records), records, strict=True):
            lines += [f"### {escaped(heading)}", *filter(None, part(record))]
    return "\n\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    line = " ".join(printable(text).split())
    line = _SPECIAL.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), line)
    return _BLOCK.sub(lambda match: match[0] + "\\" if match[0].isdigit() else f"\\{match[0]}", line)


def fenced(text: str) -> str:
    """Text as a block of code, which its own backticks cannot end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{printable(text)}\n{fence}"


def _verdict(record: Record) -> Iterator[str]:
    for warning in warnings(record):
        yield f"**{escaped(warning)}**"
    yield _items(rows.summary(record))
    found = verdicts(record) if record.settings else []
    for verdict in found:
        about = f"{verdict.pass_name}, {verdict.input}" if len(record.inputs) > 1 else verdict.pass_name
        prices = "".join(f"\n  - {escaped(line)}" for line in verdict.price)
        yield f"- **{escaped(about)}**: {escaped(verdict.sentence)}{prices}"
    if not found:
        yield "Nothing was measured."


def _numbers(record: Record) -> Iterator[str]:
    cases = case_table(record)
    yield _table(cases) if cases.rows else "No case was measured."
    for table in (rows.growth_table(record), rows.reference_table(record)):
        if table.rows:
            yield f"#### {table.title}"
            yield _table(table)


def _conditions(record: Record) -> Iterator[str]:
    found = list(notes(record))
    if found:
        yield "#### Notes"
        yield _items(found)
    if record.speed:
        yield f"#### {rows.speed_table(record).title}"
        yield _table(rows.speed_table(record))
    for make in (rows.input_table, rows.environment_table, rows.settings_table):
        table = make(record)
        if table.rows:
            yield f"#### {table.title}"
            yield _table(table)
    yield "#### Command"
    yield fenced(rows.commands(record))
    yield escaped(rows.when(record))


def _items(lines: Iterator[str] | Sequence[str]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)


def _table(table: Table) -> str:
    cells = [[escaped(cell) for cell in row] for row in table.rows]
    headers = [escaped(header) for header in table.headers]
    return tabulate(cells, headers, tablefmt="github", disable_numparse=True, colalign=table.aligns)
