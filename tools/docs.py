"""Writes the figures of README.md and docs/, and the plot of learning, from the records: make docs

A page has blocks of the form

    <!-- generated: KIND results/NAME.json -->
    ...
    <!-- end -->

whose content is made from the record. KIND is a key of KINDS.
"""

import functools
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from shared.alignments import ALIGNMENTS
from shared.bench.analysis.diagnostics import drifts
from shared.bench.analysis.verdict import FIRST_ROW, HOW_WRITTEN, READING, Comparison, comparisons, decided_on_device
from shared.bench.cases import FRAMEWORKS
from shared.bench.estimates import Estimate, drift
from shared.bench.measure import measured_code
from shared.bench.questions import QUESTIONS
from shared.bench.questions.growth import crossovers
from shared.bench.questions.speed import decision_tables
from shared.bench.record import Record
from shared.bench.report.case_table import BRIEF, FIRST_CALLS, TABLES, case_table
from shared.bench.report.markdown import escaped, markdown_items, markdown_table
from shared.bench.report.report import Items
from shared.bench.report.tables import Answer, Table, left_then_right
from shared.bench.units import figures
from tools.validate_protocol import POWER

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^(<!-- generated: (\S+) (\S+) -->\n).*?^(<!-- end -->)$", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    """Every page that may have generated blocks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def rendered(text: str) -> str:
    """The page with its blocks made anew, and above the first tables of a record whether its code has changed since.

    A record that does not exist is not yet recorded. A legend stands below the first of its tables only; how to read a
    cell stands in method.md.
    """
    blocks_told, legends = set[str](), set[str]()

    def block(match: re.Match[str]) -> str:
        begin, kind, name, end = match.groups()
        if not (path := ROOT / name).exists():
            return f"{begin}\nNot yet recorded.\n\n{end}"
        changed = measured_code.warnings(_record(path)) if kind in KINDS_OF_TABLES and name not in blocks_told else []
        blocks_told.update([name] if kind in KINDS_OF_TABLES else [])
        lines = [line for line in KINDS[kind](path).splitlines() if not line.startswith(READING)]
        lines = [line for line in lines if line.startswith(("|", "#", "-")) or line not in legends or not line]
        legends.update(lines)
        made = "\n\n".join([*(f"**{escaped(line)}**" for line in changed), "\n".join(lines).strip()])
        return re.sub(r"\n{3,}", "\n\n", f"{begin}\n{made}\n\n{end}")

    return _BLOCK.sub(block, text)


@functools.cache
def _record(path: Path) -> Record:
    """Read once: several blocks are of one record, of which some have megabytes."""
    return Record.read(path)


@functools.cache
def _answer(path: Path) -> Answer:
    return QUESTIONS[_record(path).settings.question].answer(_record(path))


def _head(path: Path) -> str:
    record = _record(path)
    commit = str(record.environment.get("git_commit"))[:10]
    # of few rounds it is not known
    steady = [result for result in record.results if result.measured and drift(result.blocks) is not None]
    drifted = f"; {len(drifts(record))} of {len(steady)} measured times drifted by more than 5%" if steady else ""
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
    shown = "\n\n".join(markdown_table(table) for some in of_inputs for table in (some if is_default else some[:1]))
    return shown if len(record.inputs) > 1 else shown.partition("\n\n")[2]


def _last_pass(record: Record) -> Record:
    """The record without results of other passes than its last."""
    return replace(record, results=[r for r in record.results if r.case.pass_name == record.settings.passes[-1]])


def _hours(path: Path) -> str:
    """Say how far ratios lie apart in recordings of one comparison, hours apart. path: of the last, NAME-N.json."""
    records = [_record(other) for other in path.parent.glob(f"{path.stem.rpartition('-')[0]}*.json")]
    apart = []
    for of_row in _by_row(records).values():
        ratios = [c.ratio.value ** (1 if c.results[0].case.framework == "jax" else -1) for c in of_row if c.ratio]
        apart.append(max(ratios) / min(ratios) - 1)
    starts = ", ".join(sorted(str(record.started)[:16].replace("T", " ") for record in records))
    how_far = f"{median(apart):.0%} in the median, by {max(apart):.0%} at most"
    return f"Recorded {len(records)} times ({starts}), the default comparison's ratios differ by {how_far}."


def _validation(path: Path) -> str:
    saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    a_a, power = ([Estimate(row["ratio"], row["low"], row["high"]) for row in saved[name]] for name in ("a_a", "power"))
    positives = sum(not ratio.low <= 1 <= ratio.high for ratio in a_a)
    detected, slower = sum(ratio.low > 1 for ratio in power), [ratio.value for ratio in power]
    detected_text = f"{detected} of {len(power)} detected, at ratios of {min(slower):.3f} to {max(slower):.3f}"
    return "\n".join([
        f"- A/A test: {positives} false positives in {len(a_a)} comparisons; half-widths {_widths(a_a)}.",
        f"- Power test, {POWER.slowdown:.0%}: {detected_text}; half-widths {_widths(power)}.",
        f"- Recorded {saved['started']} at commit {saved['environment']['git_commit'][:10]}.",
    ])  # fmt: skip


def _widths(ratios: list[Estimate]) -> str:
    widths = sorted(ratio.relative_half_width for ratio in ratios)
    return f"±{widths[0]:.1%} to ±{widths[-1]:.1%}, median ±{widths[len(widths) // 2]:.1%}"


# what the passes are for a training
_GRADIENT, _SECOND = "marginals", "hvp"
_WORDS = {_GRADIENT: "gradient", _SECOND: "second derivatives"}
# no second derivatives of the loops: PyTorch's compiled one has none
_ROWS = ((FIRST_ROW, _GRADIENT), ("vmap", _GRADIENT), *itertools.product(("wavefront", "fused"), _WORDS))


def headline(folder: Path) -> str:
    """A table of these rows on CPUs and GPUs, the sizes at which the winner changes, and how many runs are old."""
    records = {path.stem: _record(path) for path in sorted(folder.glob("*.json")) if path.stem != "validation"}
    alignments = {name: record for name, record in records.items() if record.settings.problem in ALIGNMENTS}
    runs = {name: record for name, record in alignments.items() if record.settings.question == "speed"}
    on_cpu, on_gpu = (_by_row(r for r in runs.values() if (r.settings.device == "cpu") == cpu) for cpu in (True, False))
    rows = [
        (
            HOW_WRITTEN[row] + f"\n({row})" * (row != FIRST_ROW),
            _WORDS[pass_name],
            *(_cell(device.get((row, pass_name), [])) for device in (on_cpu, on_gpu)),
        )
        for row, pass_name in _ROWS
    ]
    cpus = ",\n".join(dict.fromkeys(record.device_name for record in runs.values() if record.settings.device == "cpu"))
    headers = ("how it is written", "what is computed", f"CPU ({cpus})", "GPU")
    table = _untitled(Table("", headers, rows, left_then_right(4, 0)))
    scores = []
    for (row, pass_name), cells in zip(_ROWS, rows, strict=True):
        score = _cell(on_cpu.get((row, "score"), [])).replace("\n(", " (").replace("\n", ", ")
        if pass_name == _GRADIENT and score.split()[0] != cells[2].split()[0]:
            scores.append(f"{HOW_WRITTEN[row]}: {score}")
    older = ", ".join(name for name, record in runs.items() if measured_code.warnings(record))
    below = [f"The score alone, where the outcome differs: {'; '.join(scores)}."] if scores else []
    below += [f"By size, the gradient: {sizes}."] if (sizes := "; ".join(_by_size([*records.values()]))) else []
    below += [f"Of {len(runs)} recorded runs, older than the current code: {older}."] if older else []
    below += [_hours(last)] if (last := folder / "cpu-default-3.json").exists() else []
    return "\n\n".join([table, *below])


def _by_row(runs: Iterable[Record]) -> dict[tuple[str, str], list[Comparison]]:
    """Group the comparisons of all runs by row and pass."""
    by_row: dict[tuple[str, str], list[Comparison]] = {}
    for record in runs:
        for name in record.inputs:
            for row, by_pass in comparisons(record, name, decided_on_device(record, name)).items():
                for pass_name, comparison in by_pass.items():
                    by_row.setdefault((row, pass_name), []).extend([comparison] if comparison.ratio else [])
    return by_row


def _cell(comparisons_of_row: Sequence[Comparison]) -> str:
    """Say who is faster by what factors; in how many of some comparisons nobody is, and by what at most."""
    if not comparisons_of_row:
        return "not yet recorded"
    factors: dict[str, list[float]] = {}
    unclear: dict[str, list[float]] = {}
    for comparison in comparisons_of_row:
        assert comparison.ratio is not None, "it has been looked for"
        chosen = factors if comparison.ratio.outcome == "different" and not comparison.is_negligible else unclear
        chosen.setdefault(FRAMEWORKS[comparison.results[0].case.framework], []).append(comparison.ratio.value)
    parts = []
    for name, values in sorted(factors.items(), key=lambda item: -len(item[1])):
        ends = " to ".join(dict.fromkeys(map(figures, (min(values), max(values)))))
        parts.append(f"{name} {ends}× in {len(values)} of {len(comparisons_of_row)}")
    if number := sum(map(len, unclear.values())):
        count = f"{number} of {len(comparisons_of_row)}" if parts else f"all {number}"
        largest = ", ".join(f"{name} up to {figures(max(values))}×" for name, values in sorted(unclear.items()))
        parts.append(f"no clear winner in {count}\n({largest})")
    return "\n".join(parts)


def _by_size(records: Sequence[Record]) -> Iterator[str]:
    """Yield each way to write it for whose gradient the faster framework changes with the size."""
    for record in records:
        if record.settings.question == "growth" and record.settings.problem in ALIGNMENTS:
            statements = dict(crossovers(record))
            for row, words in HOW_WRITTEN.items():
                text = statements.get(f"{_GRADIENT}, {row}", "")
                if all(name in text for name in FRAMEWORKS.values()):
                    yield f"{words}: {text.rpartition(' (')[0]}"


KINDS: dict[str, Callable[[Path], str]] = {
    "head": _head,
    "headline": headline,
    "sentences": lambda path: "\n".join(
        f"- **{escaped(s.about)}**: {escaped(s.text)}" for s in _answer(path).statements
    ),
    "table": lambda path: markdown_table(_answer(path).tables[0]),
    "tables": lambda path: "\n\n".join(map(markdown_table, _answer(path).tables)),
    "decision": _decision,
    "first-calls": lambda path: _untitled(case_table(_last_pass(_record(path)), TABLES[FIRST_CALLS], FIRST_CALLS)),
    "hours": _hours,
    "cases": lambda path: _untitled(case_table(_record(path), BRIEF)),
    "validation": _validation,
}
KINDS_OF_TABLES = ("table", "tables", "decision", "first-calls", "cases")


def outdated() -> Iterator[Path]:
    """Pages whose figures are not those of the records."""
    yield from (path for path in pages() if rendered(text := path.read_text(encoding="utf-8")) != text)


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
