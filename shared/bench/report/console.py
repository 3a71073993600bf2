"""Reports on the console, and what else is printed there."""

from tabulate import tabulate

from shared.bench.report.report import Items, Report, blocks
from shared.bench.report.tables import Table


def console_text(report: Report) -> str:
    """A report as a run prints it at its end."""
    shown = (console_table(block) if isinstance(block, Table) else _lines(block) for block in blocks(report, True)
             if isinstance(block, Table | Items))  # fmt: skip
    return "\n\n".join(filter(None, shown))


def _lines(items: Items) -> str:
    mark, gap = {"warning": ("WARNING: ", "\n\n"), "answer": ("", "\n\n"), "details": ("", "\n")}[items.kind]
    return gap.join(f"{mark}{f'{about}: ' if about else ''}{text}" for about, text in items.lines)


_IN_ASCII = {
    "…": "...",
    "×": "x",
    "–": "-",
    "—": "-",
    "−": "-",
    "µ": "u",
    "±": "+-",
    "→": "->",
    "Σ": "sum",
    "°": " deg ",
}


def in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Replace what an output cannot encode, as an error handler of codecs."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(_IN_ASCII.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def console_table(table: Table) -> str:
    """A table under its title, with its footnotes."""
    shown = tabulate(table.rows, headers=table.headers, disable_numparse=True, colalign=table.aligns)
    return "\n".join([f"{table.title}\n\n{shown}", *table.below])
