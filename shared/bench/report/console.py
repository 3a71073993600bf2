"""Reports on the console, and what else is printed there."""

import re
import shutil
from textwrap import fill

from tabulate import tabulate

from shared.bench.report.report import Items, Report, blocks
from shared.bench.report.tables import Table

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # which a record may hold, and a terminal would obey


def console_text(report: Report) -> str:
    """A report as a run prints it at its end."""
    shown = (console_table(block) if isinstance(block, Table) else _lines(block) for block in blocks(report, True))
    return _CONTROL.sub("?", "\n\n".join(filter(None, shown)))


def _lines(items: Items | str) -> str:
    if isinstance(items, str):
        return ""
    mark, gap = {"warning": ("WARNING: ", "\n\n"), "answer": ("", "\n\n"), "details": ("", "\n")}[items.kind]
    return gap.join(wrapped(f"{mark}{f'{about}: ' if about else ''}{text}") for about, text in items.lines)


def wrapped(text: str) -> str:
    """Wrap lines to the output's width; continuation lines are indented."""
    width, options = _width(), {"break_long_words": False, "break_on_hyphens": False, "subsequent_indent": "  "}
    return "\n".join(fill(line, width, **options) for line in text.split("\n"))


def _width() -> int:
    """Columns of the terminal, or of $COLUMNS; 120 where the output is a file or a pipe."""
    return shutil.get_terminal_size((120, 24)).columns


def console_table(table: Table) -> str:
    """A table under its title, with its footnotes; what is too wide goes on below, with the columns that name a row."""
    width, columns = _width(), [*zip(table.headers, *table.rows, strict=True)]
    # tabulate pads headers by two spaces, and puts two between columns
    widths = [max(len(line) + 2 * (not at) for at, cell in enumerate(column) for line in cell.split("\n")) + 2
              for column in columns]  # fmt: skip
    keys = next((n for n in range(1, len(columns)) if len({row[:n] for row in table.rows}) == len(table.rows)), 0)
    parts = [[*range(keys)]]
    for column in range(keys, len(columns)):
        if len(parts[-1]) > keys and sum(widths[at] for at in [*parts[-1], column]) - 2 > width:
            parts.append([*range(keys)])
        parts[-1].append(column)
    shown = [
        tabulate([[row[at] for at in part] for row in table.rows], headers=[table.headers[at] for at in part],
                 disable_numparse=True, colalign=[table.aligns[at] for at in part])
        for part in parts
    ]  # fmt: skip
    title, *below = map(wrapped, (table.title, *table.below))
    return "\n".join([title, "", "\n\n".join(shown), *below])
