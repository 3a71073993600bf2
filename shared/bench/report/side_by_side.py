"""Records of the same question from several machines, side by side."""

from collections.abc import Sequence

from shared.bench.analysis.verdict import comparisons
from shared.bench.cases import FRAMEWORKS
from shared.bench.record import Record
from shared.bench.report.tables import Table
from shared.bench.units import NOTHING, duration


def side_by_side(records: Sequence[Record]) -> list[Table]:
    """The faster framework on each machine: a table for each question that several machines answered."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        settings, results = record.settings, record.results
        if any(result.measured for result in results) and not any(result.case.label for result in results):
            groups.setdefault((settings.question, settings.problem, settings.dtype), []).append(record)
    return [_table(group) for group in groups.values() if len({record.device_name for record in group}) > 1]


def notes(records: Sequence[Record]) -> list[str]:
    """A warning to readers of records from several machines, or of several numbers of cores."""
    machines = dict.fromkeys(record.device_name for record in records)
    warning = f"Recorded on different machines or cores ({'; '.join(machines)}): compare times within a section only."
    return [warning] if len(machines) > 1 else []


def _table(records: Sequence[Record]) -> Table:
    settings, columns = records[0].settings, [_cells(record) for record in records]
    keys = dict.fromkeys(key for cells in columns for key in cells)
    texts = list(dict.fromkeys(text for text, _, _ in keys))
    shown = slice(1 if len(texts) == 1 else 0, 3)
    rows = [(*key[shown], *(cells.get(key, NOTHING) for cells in columns)) for key in keys]
    devices = [record.device_name.replace(", ", "\n") for record in records]
    headers = (*("input", "variant", "pass")[shown], *devices)
    names = " / ".join(FRAMEWORKS.values())
    below = [f"The faster framework, by what factor, the 95% interval, and the times of a call: {names}."]
    below += [f"Input: {text}." for text in texts if len(texts) == 1]
    title = f"Side by side, {settings.question}: {settings.problem}, {settings.dtype}"
    return Table(title, headers, rows, ("left",) * len(headers), tuple(below))


def _cells(record: Record) -> dict[tuple[str, str, str], str]:
    """The cells by input, variant and pass. An input's name can mean another input on another machine."""
    cells = {}
    for name, facts in record.inputs.items():
        for variant, by_pass in comparisons(record, name).items():
            for pass_name, comparison in by_pass.items():
                if comparison.results:
                    seconds = {r.case.framework: r.time.value for r in comparison.results}
                    times = " / ".join(duration(seconds.get(framework)) for framework in FRAMEWORKS)
                    cells[facts.text, variant, pass_name] = f"{comparison.text}\n{times}"
    return cells
