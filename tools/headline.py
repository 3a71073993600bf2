"""The headline of the README: which framework is faster for each way to write an alignment, over all recorded runs."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from shared.alignments import ALIGNMENTS
from shared.bench.analysis.verdict import FIRST, WRITTEN, Comparison, comparisons, decided_on_device
from shared.bench.cases import FRAMEWORKS
from shared.bench.questions.growth import crossovers
from shared.bench.record import Record
from shared.bench.report.markdown import markdown_table
from shared.bench.report.tables import Table, left_then_right
from shared.bench.units import factor_text

# what the passes are for a training
_GRADIENT, _SECOND = "marginals", "hvp"
_WORDS = {_GRADIENT: "gradient", _SECOND: "second derivatives"}
# no second derivatives of the loops: PyTorch's compiled one has none
_ROWS = ((FIRST, _GRADIENT), ("vmap", _GRADIENT), *((row, name) for row in ("wavefront", "fused") for name in _WORDS))


def headline(folder: Path) -> str:
    """A table of these rows on CPUs and GPUs, and at which sizes the answer changes."""
    records = [Record.read(path) for path in sorted(folder.glob("*.json")) if path.stem != "validation"]
    runs = [r for r in records if r.settings.question == "speed" and r.settings.problem in ALIGNMENTS]
    on_cpu, on_gpu = (_by_row(r for r in runs if (r.settings.device == "cpu") == is_cpu) for is_cpu in (True, False))
    rows = [
        (WRITTEN[row], _WORDS[pass_name], *(_cell(device.get((row, pass_name), [])) for device in (on_cpu, on_gpu)))
        for row, pass_name in _ROWS
    ]
    headers = ("how it is written", "of a training step", "CPU", "GPU")
    table = markdown_table(Table("", headers, rows, left_then_right(4, 0))).partition("\n\n")[2]
    sizes = "; ".join(_by_size(records))
    return f"{table}\n\nBy size, the gradient: {sizes}." if sizes else table


def _by_row(runs: Iterable[Record]) -> dict[tuple[str, str], list[Comparison]]:
    """Group the comparisons of all runs by row and pass."""
    found: dict[tuple[str, str], list[Comparison]] = {}
    for record in runs:
        for name in record.inputs:
            for row, by_pass in comparisons(record, name, decided_on_device(record, name)).items():
                for pass_name, comparison in by_pass.items():
                    found.setdefault((row, pass_name), []).extend([comparison] if comparison.ratio else [])
    return found


def _cell(comparisons_of_row: Sequence[Comparison]) -> str:
    """Who is faster by what factors in how many of some comparisons, and by what factor at most where nobody is."""
    if not comparisons_of_row:
        return "not yet run"
    factors: dict[str, list[float]] = {}
    limits: list[float] = []
    for comparison in comparisons_of_row:
        assert comparison.ratio is not None, "it has been looked for"
        if comparison.ratio.outcome == "different" and not comparison.is_negligible:
            factors.setdefault(FRAMEWORKS[comparison.results[0].case.framework], []).append(comparison.ratio.value)
        else:
            limits.append(comparison.ratio.most)
    parts = []
    for name, values in sorted(factors.items(), key=lambda item: -len(item[1])):
        ends = " to ".join(dict.fromkeys(map(factor_text, (min(values), max(values)))))
        parts.append(f"{name} {ends}× in {len(values)} of {len(comparisons_of_row)}")
    if limits:
        count = f"{len(limits)} of {len(comparisons_of_row)}" if parts else f"all {len(comparisons_of_row)}"
        parts.append(f"within {factor_text(max(limits))}× in {count}")
    return "\n".join(parts)


def _by_size(records: Sequence[Record]) -> Iterator[str]:
    """Yield each way to write it whose answer for the gradient changes with the size."""
    for record in records:
        if record.settings.question == "growth" and record.settings.problem in ALIGNMENTS:
            statements = dict(crossovers(record))
            for row, words in WRITTEN.items():
                text = statements.get(f"{_GRADIENT}, {row}", "")
                if text and " throughout " not in text:
                    yield f"{words}: {text.partition(' (asked')[0]}"
