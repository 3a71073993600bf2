"""The report of a run on the console: warnings, the answer, the cases, then diagnostics."""

from tabulate import tabulate

from shared.bench.analysis.diagnostics import diagnostics, warnings
from shared.bench.questions import QUESTIONS
from shared.bench.record import Record
from shared.bench.report.case_table import case_table
from shared.bench.report.conditions import head
from shared.bench.report.tables import Table


def console_report(record: Record) -> str:
    """Everything that a run prints at its end."""
    if record.settings is None:
        return "nothing was measured"
    answer = QUESTIONS[record.settings.question].answer(record)
    parts = ["\n".join(head(record))]
    parts += [f"WARNING: {line}" for line in warnings(record)]
    parts += map(console_table, answer.tables)
    for statement in answer.statements:
        parts.append("\n  ".join([f"{statement.about}: {statement.text}", *statement.details]))
    parts += [console_table(case_table(record, brief=True)), "\n".join(diagnostics(record))]
    return "\n\n".join(part for part in parts if part)


def console_table(table: Table) -> str:
    """A table under its title, with its footnotes."""
    if not table.rows:
        return ""
    shown = tabulate(table.rows, headers=table.headers, disable_numparse=True, colalign=table.aligns)
    return "\n".join([f"{table.title}\n\n{shown}", *table.below])


def first_table(record: Record) -> str | None:
    """The tables of the answer as far as it is known; before the first rounds the provisional one."""
    if record.settings is None:
        return None
    question = QUESTIONS[record.settings.question]
    if not record.generations:
        table = question.provisional(record)
        return console_table(table) if table else None
    return "\n\n".join(map(console_table, question.answer(record).tables[:1])) or None
