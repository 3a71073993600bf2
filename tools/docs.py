"""Writes the figures of README.md and docs/, and the plot of learning, from the records: make docs

A page has blocks of the form

    <!-- generated: KIND results/NAME.json -->
    ...
    <!-- end -->

whose content is made from the record. KIND is a key of KINDS.
"""

import functools
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shared.bench.analysis.diagnostics import drifts
from shared.bench.estimates import Estimate, drift
from shared.bench.measure import measured_code
from shared.bench.questions import QUESTIONS
from shared.bench.questions.speed import decision_tables
from shared.bench.record import Record
from shared.bench.report.case_table import BRIEF, FIRST_CALLS, TABLES, case_table
from shared.bench.report.markdown import escaped, markdown_items, markdown_table
from shared.bench.report.report import Items
from shared.bench.report.tables import Answer, Table
from tools.headline import headline
from tools.validate_protocol import POWER

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^(<!-- generated: (\S+) (\S+) -->\n).*?^(<!-- end -->)$", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    """Every page that may have generated blocks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def rendered(text: str) -> str:
    """The page with its blocks made anew, and above the first tables of a record whether its code has changed since.

    A record that does not exist is not yet recorded.
    """
    told = set[str]()

    def block(match: re.Match[str]) -> str:
        begin, kind, name, end = match.groups()
        if not (path := ROOT / name).exists():
            return f"{begin}\nNot yet recorded.\n\n{end}"
        changed = measured_code.warnings(_record(path)) if kind in KINDS_OF_TABLES and name not in told else []
        told.update([name] if kind in KINDS_OF_TABLES else [])
        made = "\n\n".join([*(f"**{escaped(line)}**" for line in changed), KINDS[kind](path)])
        return f"{begin}\n{made}\n\n{end}"

    return _BLOCK.sub(block, text)


@functools.cache
def _record(path: Path) -> Record:
    """Read once: several blocks are of one record, of which some have megabytes."""
    return Record.read(path)


def _answer(path: Path) -> Answer:
    return QUESTIONS[_record(path).settings.question].answer(_record(path))


def _head(path: Path) -> str:
    record = _record(path)
    commit = str(record.environment.get("git_commit"))[:10]
    # of few rounds it is not known
    known = [result for result in record.results if result.measured and drift(result.blocks) is not None]
    drifted = f"; {len(drifts(record))} of {len(known)} times changed by more than 5% during it" if known else ""
    report = QUESTIONS[record.settings.question].report(record)
    head = [*report.head, f"recorded {record.started} at commit {commit}{drifted}"]
    return markdown_items(Items("details", [("", line) for line in head]))


def _untitled(table: Table) -> str:
    """A table without its title, which the page has."""
    return markdown_table(table).partition("\n\n")[2]


def _decision(path: Path) -> str:
    """The decision tables; that of the only input without its title, which the page has.

    What first calls and code cost is told of a device's default run alone.
    """
    record, is_default = _record(path), path.stem.endswith("-default")
    of_inputs = [decision_tables(record, name) for name in record.inputs]
    shown = "\n\n".join(markdown_table(table) for each in of_inputs for table in (each if is_default else each[:1]))
    return shown if len(record.inputs) > 1 else shown.partition("\n\n")[2]


def _validation(path: Path) -> str:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    a_a, power = ([Estimate(row["ratio"], row["low"], row["high"]) for row in found[name]] for name in ("a_a", "power"))
    positives = sum(not ratio.low <= 1 <= ratio.high for ratio in a_a)
    detected, slower = sum(ratio.low > 1 for ratio in power), [ratio.value for ratio in power]
    told = f"{detected} of {len(power)} detected, at ratios of {min(slower):.3f} to {max(slower):.3f}"
    return "\n".join([
        f"- A/A test: {positives} false positives in {len(a_a)} comparisons; half-widths {_widths(a_a)}.",
        f"- Power test, {POWER.slowdown:.0%}: {told}; half-widths {_widths(power)}.",
        f"- Recorded {found['started']} at commit {found['environment']['git_commit'][:10]}.",
    ])  # fmt: skip


def _widths(ratios: list[Estimate]) -> str:
    widths = sorted(ratio.relative_half_width for ratio in ratios)
    return f"±{widths[0]:.1%} to ±{widths[-1]:.1%}, median ±{widths[len(widths) // 2]:.1%}"


KINDS: dict[str, Callable[[Path], str]] = {
    "head": _head,
    "headline": headline,
    "sentences": lambda path: "\n".join(
        f"- **{escaped(s.about)}**: {escaped(s.text)}" for s in _answer(path).statements
    ),
    "tables": lambda path: "\n\n".join(map(markdown_table, _answer(path).tables)),
    "decision": _decision,
    "first-calls": lambda path: _untitled(case_table(_record(path), TABLES[FIRST_CALLS], FIRST_CALLS)),
    "cases": lambda path: _untitled(case_table(_record(path), BRIEF)),
    "validation": _validation,
}
KINDS_OF_TABLES = ("tables", "decision", "first-calls", "cases")


def outdated() -> Iterator[Path]:
    """Pages whose figures are not those of the records."""
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if rendered(text) != text:
            yield path


def main() -> int:
    """Write every page that is out of date, and the plot of learning."""
    (plot,) = QUESTIONS["learning"].plots(_record(ROOT / "results/cpu-learning.json"))
    (ROOT / "results/learning-quality.svg").write_text(plot.svg, encoding="utf-8")
    for path in outdated():
        path.write_text(rendered(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
