"""Which framework is faster per call, and for how much code of your own? What does the first call cost, and when does
it pay?

Every case is called with empty caches and on a new shape, then timed by fresh processes in rounds, in which the two
frameworks take turns. The answer is a table: a row for each way to write it, in each cell the faster framework.
"""

from collections.abc import Iterator

from shared.bench.analysis.estimates import SAME, break_even
from shared.bench.analysis.verdict import Comparison, compare, verdicts
from shared.bench.cases import FRAMEWORKS, Case
from shared.bench.questions.question import Question
from shared.bench.record import Record
from shared.bench.report.case_table import FIRST_CALLS, case_table
from shared.bench.report.tables import Answer, Statement, Table, left_then_right
from shared.bench.units import NOTHING, duration, ratio_text
from shared.problems import problem_of
from shared.variants import SAME_CODE

# how a variant is written, for those that a user would choose between; others go by their name
_WRITTEN = {
    "vmap": "vmap\na loop you write, compiled",
    "wavefront": "wavefront\ntuned framework code",
    "fused": "fused\none kernel that both call",
}
_LOST = {"wrong": "was wrong", "failed": "failed", "limit": "was not completed"}


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
            for own in _comparisons(record, name).values()
            for comparison in own.values()
            if comparison.ratio and comparison.ratio.outcome == "not decided"
            for result in comparison.results
        }
        return super().contenders(record) | undecided

    def answer(self, record: Record) -> Answer:
        tables = [table for name in record.inputs if (table := decision_table(record, name))]
        if not tables and not record.generations:
            tables = _provisional(record)
        if tables:
            tables.append(first_call_table(record))
        told = [statement for name in record.inputs for statement in _variants_in_words(record, name)]
        return Answer(tables, told + statements(record))


QUESTION = Speed()


def _comparisons(record: Record, input_name: str) -> dict[str, dict[str, Comparison]]:
    """By variant and pass, in the order of the ladder; without variants that nobody measured."""
    found = {
        variant: {
            pass_name: compare(r for r in record.results_of(pass_name, input_name) if r.case.variant == variant)
            for pass_name in record.settings.passes
        }
        for variant in problem_of(record.settings.problem).variant_names
    }
    return {variant: own for variant, own in found.items() if any(each.results for each in own.values())}


def _variants_in_words(record: Record, input_name: str) -> Iterator[Statement]:
    """A sentence for each variant that both frameworks have: each pass, and what the first call costs."""
    for variant, own in _comparisons(record, input_name).items():
        compared = {pass_name: comparison for pass_name, comparison in own.items() if comparison.ratio}
        if not compared:
            continue
        parts = []
        for pass_name, comparison in compared.items():
            each = [f"{duration(r.time.value)} in {FRAMEWORKS[r.case.framework]}" for r in comparison.results]
            parts.append(f"{pass_name} {comparison.text.replace(chr(10), ' ')}, {' against '.join(each)}")
        last = list(compared.values())[-1]
        cold = [(FRAMEWORKS[r.case.framework], r.cold.seconds) for r in last.results if r.cold]
        first = " and ".join(f"{duration(seconds)} in {name}" for name, seconds in sorted(cold))
        about = f"{input_name}, {variant}" if len(record.inputs) > 1 else variant
        yield Statement(about, f"{'; '.join(parts)}; the first call, caches empty, takes {first}.")


def statements(record: Record) -> list[Statement]:
    """A verdict for each pass and input, in words, and what a reader must know about it."""
    found = []
    for (pass_name, input_name), comparison in verdicts(record).items():
        lost = [result for result in record.results_of(pass_name, input_name) if result.status != "ok"]
        details = [f"Left out: {r.case.name} {_LOST[r.status]} ({r.reason})." for r in lost]
        if comparison.same_code:
            details.append(comparison.same_code)
        about = f"{input_name}, {pass_name}" if len(record.inputs) > 1 else pass_name
        found.append(Statement(about, "\n  ".join([comparison.sentence, *details])))
    return found


def decision_table(record: Record, input_name: str) -> Table | None:
    """For each variant: the faster framework in each pass, on a new shape, and in total.

    None where nothing can be compared. New shape and break-even are those of the last pass.
    """
    comparisons = _comparisons(record, input_name)
    every = [comparison for own in comparisons.values() for comparison in own.values()]
    if not any(comparison.ratio for comparison in every):
        return None
    passes = record.settings.passes
    rows = [
        (
            _WRITTEN.get(variant, variant),
            _code_lines(record, variant),
            _compiled(own),
            *(own[name].text for name in passes),
            *_first_call_cells(own[passes[-1]]),
        )
        for variant, own in comparisons.items()
    ]
    headers = (
        "how it is written",
        "lines of code\n" + " / ".join(FRAMEWORKS.values()),
        "compiled",
        *passes,
        *(f"{passes[-1]},\n{what}" for what in ("new shape", "in total,\ncaches empty", "in total,\ncaches warm")),
    )
    below = [
        "The faster framework per call, by what factor, and the 95% interval; "
        f"same: within ±{SAME - 1:.0%}; –: not measured, or nothing to compare with."
    ]
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
    shared = f"\n+ {record.kernel_lines:,} of C++" if variant in SAME_CODE and record.kernel_lines else ""
    return " / ".join(NOTHING if count is None else f"{count:,}" for count in counts) + shared


def _compiled(own: dict[str, Comparison]) -> str:
    """The frameworks whose compiler the cases of a variant went through."""
    cases = [result.case for comparison in own.values() for result in comparison.results]
    names = [name for key, name in FRAMEWORKS.items() if any(c.compiled and c.framework == key for c in cases)]
    if len(names) == 1:
        return f"{names[0]} only"
    return "both" if names else "neither"


def _first_call_cells(comparison: Comparison) -> tuple[str, str, str]:
    """Which is faster on a new shape, and in total from empty and from warm caches."""
    if comparison.ratio is None:
        return NOTHING, NOTHING, NOTHING
    shapes = {FRAMEWORKS[r.case.framework]: r.retrace.seconds for r in comparison.results if r.retrace}
    cold = [result.cold.seconds if result.cold else None for result in comparison.results]
    warm = [result.warm_seconds for result in comparison.results]
    return (
        _faster(shapes) if len(shapes) == 2 else NOTHING,
        break_even_text(comparison, cold),
        break_even_text(comparison, warm),
    )


def break_even_text(comparison: Comparison, first_seconds: list[float | None]) -> str:
    """Which of two cases takes the least total time from which call on. first_seconds: of their first calls."""
    fast, slow = first_seconds
    if fast is None or slow is None:
        return NOTHING
    if comparison.ratio is None or comparison.ratio.outcome == "not decided":
        return "not decided"
    faster, slower = (FRAMEWORKS[result.case.framework] for result in comparison.results)
    if comparison.ratio.outcome == "same":
        return f"{faster if fast <= slow else slower} from call 1"
    call = comparison.results[0].time.value
    calls = break_even(fast, call, slow, call * comparison.ratio.value)
    return f"{faster} from call {float(f'{calls:.2g}'):,.0f}"  # two significant figures: no more are known


def first_call_table(record: Record) -> Table:
    """Seconds of first calls, for each case."""
    table = case_table(record, FIRST_CALLS, "First calls")
    return table._replace(below=("One sample each; with caches warm, on disk, the median over processes.",))


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
