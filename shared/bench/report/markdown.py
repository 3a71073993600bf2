"""Reports as Markdown: the words and tables of the page, without its plots."""

import re
from collections.abc import Sequence

from tabulate import tabulate

from shared.bench.report.report import Items, Report, blocks
from shared.bench.report.tables import Table

_SPECIAL = re.compile(r"[&<>\\`*_\[\]#|~$]")


def markdown_report(reports: Sequence[Report], notes: Sequence[str] = (), machines: Sequence[Table] = ()) -> str:
    """A document. notes, machines: of all reports together, see side_by_side.py."""
    parts = ["# JAX and PyTorch compared", *(f"**{escaped(line)}**" for line in notes), *map(markdown_table, machines)]
    for report in reports:
        parts.append(f"## {escaped(report.heading)}")
        for block in blocks(report, is_brief=False):
            if isinstance(block, str):
                parts.append(f"### {escaped(block)}")
            else:
                parts.append(markdown_items(block) if isinstance(block, Items) else markdown_table(block))
    return "\n\n".join(filter(None, parts)) + "\n"


def markdown_table(table: Table) -> str:
    """A table under its title, with its footnotes."""
    headers, *rows = (
        ["<br>".join(map(escaped, cell.split("\n"))) for cell in row] for row in (table.headers, *table.rows)
    )
    shown = tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=table.aligns)
    below = "\n".join(map(escaped, table.below))
    return "\n\n".join(filter(None, [f"### {escaped(table.title)}", shown, below]))


def markdown_items(items: Items) -> str:
    """A list; warnings are paragraphs."""
    if items.kind == "warning":
        return "\n\n".join(f"**{escaped(text)}**" for _, text in items.lines)
    return "\n".join(f"- {f'**{escaped(about)}**: ' if about else ''}{escaped(text)}" for about, text in items.lines)


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))
