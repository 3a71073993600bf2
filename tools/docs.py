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
import statistics
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
from shared.bench.report.report import Items, Report
from shared.bench.report.tables import Answer, Table
from shared.bench.units import duration, ratio_text
from tools.headline import headline
from tools.validate_protocol import POWER

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^(<!-- generated: (\S+) (\S+) -->\n).*?^(<!-- end -->)$", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    """Every page that may have generated blocks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def rendered(text: str) -> str:
    """The page with its blocks made anew. A record that does not exist is not yet recorded."""

    def block(match: re.Match[str]) -> str:
        begin, kind, name, end = match.groups()
        path = ROOT / name
        made = KINDS[kind](path) if path.exists() else "Not yet recorded."
        return f"{begin}\n{made}\n\n{end}"

    return _BLOCK.sub(block, text)


def _of_record(make: Callable[[Record], str]) -> Callable[[Path], str]:
    return lambda path: make(_record(path))


@functools.cache
def _record(path: Path) -> Record:
    """Read once: several blocks are of one record, of which some have megabytes."""
    return Record.read(path)


def _report(record: Record) -> Report:
    return QUESTIONS[record.settings.question].report(record)


def _answer(record: Record) -> Answer:
    return QUESTIONS[record.settings.question].answer(record)


def _head(record: Record) -> str:
    commit = str(record.environment.get("git_commit"))[:10]
    # of few rounds it is not known
    known = [result for result in record.results if result.measured and drift(result.blocks) is not None]
    drifted = f"; {len(drifts(record))} of {len(known)} times changed by more than 5% during it" if known else ""
    head = [*_report(record).head, f"recorded {record.started} at commit {commit}{drifted}"]
    return markdown_items(Items("details", [("", line) for line in head]))


def _of_tables(make: Callable[[Record], str]) -> Callable[[Path], str]:
    """Tables below what their record says of itself where its code has changed."""
    return _of_record(lambda record: "\n\n".join(filter(None, [_changed(record), make(record)])))


def _changed(record: Record) -> str:
    return markdown_items(Items("warning", [("", line) for line in measured_code.warnings(record)]))


def _sentences(record: Record) -> str:
    return "\n".join(f"- **{escaped(s.about)}**: {escaped(s.text)}" for s in _answer(record).statements)


def _table(make: Callable[[Record], Table | None]) -> Callable[[Path], str]:
    """A table without its title, which the page has."""

    def text(record: Record) -> str:
        table = make(record)
        return "Nothing was measured." if table is None else markdown_table(table).partition("\n\n")[2]

    return _of_record(text)


def _tables(record: Record) -> str:
    return "\n\n".join(map(markdown_table, _answer(record).tables))


def _decision(path: Path) -> str:
    """The decision tables; that of the only input without its title, which the page has.

    What first calls and code cost is told of a device's default run alone.
    """
    record = _record(path)
    of_inputs = [decision_tables(record, name) for name in record.inputs]
    tables = [table for each in of_inputs for table in (each if path.stem.endswith("-default") else each[:1])]
    shown = "\n\n".join(map(markdown_table, tables))
    shown = shown if len(record.inputs) > 1 else shown.partition("\n\n")[2]
    return "\n\n".join(filter(None, [_changed(record), shown]))


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


def _first_contact(path: Path) -> str:
    """A first run on a GPU: on what, whether all was well, and the device times beside goals."""
    steps = {step["step"]: step for step in map(json.loads, path.read_text(encoding="utf-8").splitlines())}
    own = steps["machine"]
    packages = ", ".join(f"{name} {own['packages'][key]}" for name, key in _PACKAGES.items())
    well = sum(step["status"] == "ok" for step in steps.values())
    head = f"{own['gpu']['name']}, {packages}, Python {own['python']}; {own['date']} at commit {own['git_commit'][:7]}"
    lines = ["| `smith_waterman`, float32 | goal | JAX | PyTorch |", "|---|---|---|---|"]
    for words, goal, row in _TIMED:
        found = [steps.get(f"{name} time {row}", {}) for name in ("jax", "torch")]
        lines.append(f"| {words} | {goal} | {' | '.join(map(_device_time, found))} |")
    return "\n".join([f"{head}. {well} of {len(steps)} steps went well.", "", *lines])


_PACKAGES = {"JAX": "jax", "PyTorch": "torch", "Triton": "triton"}
# words, goal, and what names the step
_TIMED = (
    ("`fused` score, 4096 pairs of 512 × 512", "≥ 600 GCUPS", "fused score 512x512"),
    ("`fused` marginals, the same", "≥ 200 GCUPS", "fused marginals 512x512"),
    ("`fused` hvp, the same", "≥ 100 GCUPS", "fused hvp 512x512"),
    ("`smith_waterman_affine`, `fused` score, the same", "≥ 300 GCUPS", "fused affine score 512x512"),
    ("`fused` score, 64 pairs of up to 100 × 150", "≤ 20 µs", "fused score 100x150"),
    ("`fused` marginals, the same", "", "fused marginals 100x150"),
    ("`fused` hvp, the same", "", "fused hvp 100x150"),
    ("`cuda_graph` score, the same", "", "cuda_graph score 100x150"),
    ("`wavefront` score, the same", "", "wavefront score 100x150"),
)


# how it is written, and by pass the steps that are compared: JAX's, then PyTorch's
_ANSWERED: tuple[tuple[str, dict[str, tuple[str, str]]], ...] = (
    (
        "one kernel that both call (`fused`), 4096 pairs of 512 × 512",
        {name: (f"fused {name} 512x512", f"fused {name} 512x512") for name in ("score", "marginals", "hvp")},
    ),
    (
        "the same, 64 pairs of up to 100 × 150",
        {name: (f"fused {name} 100x150", f"fused {name} 100x150") for name in ("score", "marginals", "hvp")},
    ),
    (
        "tuned framework code (`wavefront`), the same 64 pairs",
        {"score": ("wavefront score 100x150", "wavefront score 100x150")},
    ),
    (
        "JAX's `wavefront` against PyTorch's `cuda_graph`, the same 64 pairs",
        {"score": ("wavefront score 100x150", "cuda_graph score 100x150")},
    ),
)


def _first_contact_answer(path: Path) -> str:
    """The faster framework by the medians of wall times, and how far the device times of `fused` are apart."""
    steps = {step["step"]: step for step in map(json.loads, path.read_text(encoding="utf-8").splitlines())}

    def medians(rows: tuple[str, str], clock: str) -> dict[str, float]:
        names = (("JAX", f"jax time {rows[0]}"), ("PyTorch", f"torch time {rows[1]}"))
        return {framework: statistics.median(steps[step][clock]) for framework, step in names}

    lines = []
    for words, by_pass in _ANSWERED:
        ratios = []
        for name, rows in by_pass.items():
            (fast, least), (_, most) = sorted(medians(rows, "wall_seconds").items(), key=lambda item: item[1])
            ratios.append(f"{name} {fast} {ratio_text(most / least)}×")
        lines.append(f"- {words}: {', '.join(ratios)}")
    large, small = (
        max(
            max(times) / min(times) - 1
            for times in (medians(rows, "device_seconds").values() for rows in by_pass.values())
        )
        for _, by_pass in _ANSWERED[:2]
    )
    lines.append(
        f"- on the device `fused` takes the same in both, within {large:.1%} (large batch) and {small:.1%} (small)"
    )
    return "\n".join(lines)


def _device_time(step: dict[str, Any]) -> str:
    if "gcups" not in step:
        return "not measured" if step else "—"
    return f"{duration(statistics.median(step['device_seconds']))}, {step['gcups']:.3g} GCUPS"


KINDS: dict[str, Callable[[Path], str]] = {
    "headline": headline,
    "head": _of_record(_head),
    "sentences": _of_record(_sentences),
    "tables": _of_tables(_tables),
    "decision": _decision,
    "first-calls": _table(lambda record: case_table(record, TABLES[FIRST_CALLS], FIRST_CALLS)),
    "cases": _table(lambda record: case_table(record, BRIEF)),
    "validation": _validation,
    "first-contact": _first_contact,
    "first-contact-answer": _first_contact_answer,
}


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
