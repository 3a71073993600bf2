"""Which framework is faster per call, and for how much code of your own? What does the first call cost, and when does
it pay?

Every case is called with empty caches and on a new shape, then timed by fresh processes in rounds, in which the two
frameworks take turns. The answer is a table: a row for each way to write it, in each cell the faster framework.
"""

from shared.bench.analysis.verdict import Comparison, comparisons, decided_on_device
from shared.bench.cases import FRAMEWORKS, Case
from shared.bench.estimates import SAME
from shared.bench.questions.in_words import (
    break_even_text,
    compiled,
    faster_by_process,
    for_whom,
    new_shapes,
    statements,
)
from shared.bench.questions.question import Question
from shared.bench.record import Record
from shared.bench.report.case_table import FIRST_CALLS, STEPS, case_tables
from shared.bench.report.tables import Answer, Table, left_then_right
from shared.bench.units import NOTHING, duration, ratio_text
from shared.variants import SAME_CODE

# how a variant is written, for those that a user would choose between; others go by their name
_WRITTEN = {
    "vmap": "vmap\na loop you write, compiled",
    "wavefront": "wavefront\ntuned framework code",
    "fused": "fused\none kernel that both call",
}
_FIRST_CALLS = ("first\nnew shape", "later\nnew shape", "in total,\ncaches empty", "in total,\ncaches warm")


class Speed(Question):
    """The default question."""

    name = "speed"
    asks = "which framework is faster per call, for how much code; what does the first call cost, when does it pay"
    tries_new_shape = True

    def contenders(self, record: Record) -> set[Case]:
        """The fastest cases, and those of cells that are not decided yet."""
        undecided = {
            result.case
            for name in record.inputs
            for own in comparisons(record, name, decided_on_device(record, name)).values()
            for comparison in own.values()
            if comparison.ratio and comparison.outcome == "not decided"
            for result in comparison.results
        }
        return super().contenders(record) | undecided

    def answer(self, record: Record) -> Answer:
        tables = [table for name in record.inputs if (table := decision_table(record, name))]
        if not tables and not record.generations:
            tables = _provisional(record)
        leading = len(tables)
        if tables:
            tables += case_tables(record, STEPS, FIRST_CALLS)
        told = [statement for name in record.inputs for statement in for_whom(record, name)]
        return Answer(tables, told + statements(record), leading=leading)


QUESTION = Speed()


def decision_table(record: Record, input_name: str) -> Table | None:
    """For each variant: the faster framework in each pass, on a new shape, and in total.

    None where nothing can be compared. New shape and break-even are those of the last pass.
    """
    found, on_device = comparisons(record, input_name), comparisons(record, input_name, on_device=True)
    every = [comparison for own in found.values() for comparison in own.values()]
    if not any(comparison.ratio for comparison in every):
        return None
    passes = record.settings.passes
    clocks = [("", found)]
    if on_device:  # the ones that decide first
        clocks = [("\nwall time", found), ("\ndevice time", on_device)]
        clocks = clocks[::-1] if decided_on_device(record, input_name) else clocks
    rows = [
        (
            _WRITTEN.get(variant, variant),
            *(of[variant][name].text if variant in of else NOTHING for name in passes for _, of in clocks),
            compiled(own.values()),
            _code_lines(record, variant),
            *_first_call_cells(own[passes[-1]]),
        )
        for variant, own in found.items()
    ]
    headers = (
        "how it is written",
        *(f"{name}{clock}" for name in passes for clock, _ in clocks),
        "compiled",
        "lines of code\n" + " / ".join(FRAMEWORKS.values()),
        *(f"{passes[-1]},\n{what}" for what in _FIRST_CALLS),
    )
    below = [
        "The faster framework per call, by what factor, and the 95% interval; "
        f"same: within ±{SAME - 1:.0%}; –: not measured, or nothing to compare with.",
        "Compiled: by jax.jit, by torch.compile. In total: the framework that has taken less time from this call on, "
        "first call included, but not the start of its compiler.",
    ]
    if on_device:
        below.append(
            "Wall time is what a call costs the caller, device time that in which the GPU works for it: the union of "
            f"its kernels' intervals. On this input {clocks[0][0].strip()} decides: it stands first."
        )
    if any("drift" in cell for row in rows for cell in row):
        below.append("Drift: by how much the ratio changed from the first rounds to the last.")
    for framework, reasons in record.uncompiled.items():
        used = {r.case.variant for each in every for r in each.results if r.case.framework == framework}
        for reason in dict.fromkeys(reason for variant, reason in reasons.items() if variant in used):
            below.append(f"Not compiled in {FRAMEWORKS[framework]}: {reason}.")
    for reason in dict.fromkeys(absence.reason for absence in record.absent):
        below.append(f"No {', '.join(each.case for each in record.absent if each.reason == reason)}: {reason}.")
    title = "Which framework is faster"
    title += f", {record.inputs[input_name].text}" if len(record.inputs) > 1 else ""
    return Table(title, headers, rows, left_then_right(len(headers), 0), tuple(below))


def _code_lines(record: Record, variant: str) -> str:
    """Lines of code that the variant takes in each framework."""
    counts = [record.code_lines.get(framework, {}).get(variant) for framework in FRAMEWORKS]
    if not any(counts):
        return NOTHING
    language = "C++" if record.settings.device == "cpu" else "Triton"
    shared = f"\n+ {record.kernel_lines:,} of {language}" if variant in SAME_CODE and record.kernel_lines else ""
    return " / ".join(NOTHING if count is None else f"{count:,}" for count in counts) + shared


def _first_call_cells(comparison: Comparison) -> tuple[str, ...]:
    """Which is faster on the first new shape and on a later one, and in total from empty and from warm caches."""
    if comparison.ratio is None:
        return (NOTHING,) * 4
    new = [faster_by_process(seconds) for seconds in new_shapes(comparison).values()]
    return (
        *[*new, NOTHING, NOTHING][:2],
        break_even_text(comparison, [result.first_call for result in comparison.results]),
        break_even_text(comparison, [result.warm_call for result in comparison.results]),
    )


def _provisional(record: Record) -> list[Table]:
    """The first cells of the decision table, from a few calls right after each case's first; without intervals."""
    rows: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for result in record.results:
        if result.status == "ok" and result.early_seconds is not None:
            row = rows.setdefault((result.case.input, result.case.variant), {})
            row.setdefault(result.case.pass_name, {})[FRAMEWORKS[result.case.framework]] = result.early_seconds
    cells = [
        (
            f"{f'{name}, ' if len(record.inputs) > 1 else ''}{_WRITTEN.get(variant, variant)}",
            *(_faster(own.get(pass_name, {})) for pass_name in record.settings.passes),
        )
        for (name, variant), own in rows.items()
    ]
    headers = ("how it is written", *record.settings.passes)
    below = ("Medians of up to 5 calls in one process; no intervals yet.",)
    table = Table("Which framework is faster", headers, cells, left_then_right(len(headers), 0), below)
    return [table] if cells else []


def _faster(seconds: dict[str, float]) -> str:
    """The framework that takes less, by what factor; or the time of the only one. Without an interval."""
    names = sorted(seconds, key=seconds.__getitem__)
    if len(names) < 2:
        return f"{names[0]} only\n({duration(seconds[names[0]])})" if names else NOTHING
    return f"{names[0]} {ratio_text(seconds[names[1]] / seconds[names[0]])}×"
