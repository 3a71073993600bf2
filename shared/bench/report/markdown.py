"""The report as Markdown: the words and tables of the page, without its plots."""

import re
from collections.abc import Sequence

from tabulate import tabulate

from shared.bench.record import Record
from shared.bench.report.report import report_of
from shared.bench.report.side_by_side import notes, side_by_side
from shared.bench.report.tables import Table

_SPECIAL = re.compile(r"[&<>\\`*_\[\]#|~$]")


def markdown_report(records: Sequence[Record]) -> str:
    """The report, complete."""
    told = [f"**{escaped(line)}**" for line in notes(records)]
    parts = ["# JAX and PyTorch compared", *told, *map(markdown_table, side_by_side(records))]
    for report in map(report_of, records):
        parts += [f"## {escaped(report.heading)}", *(f"**{escaped(line)}**" for line in report.warnings)]
        tables, leading = [*map(markdown_table, report.answer.tables)], report.answer.leading
        statements = "\n".join(f"- **{escaped(about)}**: {escaped(text)}" for about, text in report.answer.statements)
        parts += [*tables[:leading], statements, markdown_items(report.terms), *tables[leading:]]
        parts.append(markdown_items(report.head))
        parts += map(markdown_table, report.cases)
        parts += ["### Diagnostics", markdown_items(report.diagnostics)]
    return "\n\n".join(filter(None, parts)) + "\n"


def markdown_table(table: Table) -> str:
    """A table under its title, with its footnotes."""
    headers, *rows = (
        ["<br>".join(map(escaped, cell.split("\n"))) for cell in row] for row in (table.headers, *table.rows)
    )
    shown = tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=table.aligns)
    below = "\n".join(map(escaped, table.below))
    return "\n\n".join(filter(None, [f"### {escaped(table.title)}", shown, below]))


def markdown_items(lines: Sequence[str]) -> str:
    """A list."""
    return "\n".join(f"- {escaped(line)}" for line in lines)


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))
