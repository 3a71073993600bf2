"""The report on the console: warnings, the answer, what was run, the cases, then diagnostics."""

import contextlib
import sys
from dataclasses import replace

from tabulate import tabulate

from shared.bench.questions import QUESTIONS
from shared.bench.record import Record
from shared.bench.report.case_table import BRIEF, NAMES, case_table
from shared.bench.report.report import Report, report_of
from shared.bench.report.tables import Table


def console_report(record: Record) -> str:
    """Everything that a run prints at its end."""
    cases = case_table(record, BRIEF)
    return console_text(replace(report_of(record), cases=[] if set(cases.headers) <= set(NAMES) else [cases]))


def console_text(report: Report) -> str:
    """A report without its terms."""
    parts = [f"WARNING: {line}" for line in report.warnings]
    tables, leading = [*map(console_table, report.answer.tables)], report.answer.leading
    parts += [*tables[:leading], *(f"{about}: {text}" for about, text in report.answer.statements), *tables[leading:]]
    parts.append("\n".join(report.head))
    parts += map(console_table, report.cases)
    parts.append("\n".join(report.diagnostics))
    return "\n\n".join(filter(None, parts))


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


def print_error(line: str) -> None:
    """Print a line on standard error if anybody reads it: a terminal may have gone."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(line, file=sys.stderr, flush=True)


def console_table(table: Table) -> str:
    """A table under its title, with its footnotes."""
    shown = tabulate(table.rows, headers=table.headers, disable_numparse=True, colalign=table.aligns)
    return "\n".join([f"{table.title}\n\n{shown}", *table.below])


def first_table(record: Record) -> str | None:
    """The first table of the answer as far as it is known."""
    return next(map(console_table, QUESTIONS[record.settings.question].answer(record).tables), None)
