"""Which framework is faster per call, and for how much code of your own? What does the first call cost, and when does
it pay?

Every case is called with empty caches and on a new shape, then timed by fresh processes in rounds, in which the two
frameworks take turns. The answer is a table: a row for each way to write it, in each cell the faster framework.
"""

from collections.abc import Iterator

from shared.bench.analysis.verdict import SAME, Comparison, by_variant, verdicts
from shared.bench.analysis.verdict import break_even_text as break_even
from shared.bench.cases import FRAMEWORKS, Case
from shared.bench.questions.question import Question
from shared.bench.record import Record
from shared.bench.report.tables import NOTHING, Answer, Plot, Statement, Table, left_then_right
from shared.bench.units import duration, figures, near_one
from shared.variants import SAME_CODE, VARIANTS

# how a variant is written, for those that a user would choose between; others go by their name
_WRITTEN = {
    "vmap": "vmap\na loop you write, compiled",
    "wavefront": "wavefront\ntuned framework code",
    "fused": "fused\none kernel that both call",
}


class Speed(Question):
    """The default question."""

    name = "speed"
    asks = "which framework is faster per call, for how much code; what does the first call cost, when does it pay"
    tries_new_shape = True

    def contenders(self, record: Record) -> set[Case]:
        """The fastest cases, and those of cells that are not decided yet."""
        undecided = [
            result.case
            for name in record.inputs
            for own in _comparisons(record, name).values()
            for comparison in own.values()
            if comparison.outcome == "not decided"
            for result in (comparison.faster, comparison.slower)
        ]
        return super().contenders(record) | set(undecided)

    def answer(self, record: Record) -> Answer:
        tables = []
        for name, facts in record.inputs.items():
            table = decision_table(record, name)
            if table is not None:
                title = f"{table.title}, {facts.text}" if len(record.inputs) > 1 else table.title
                tables += filter(None, [table._replace(title=title), first_call_table(record, name)])
        told = [statement for name in record.inputs for statement in by_variant_in_words(record, name)]
        return Answer(tables, told + statements(record))

    def provisional(self, record: Record) -> Table | None:
        return _provisional(record)

    def plots(self, record: Record, key: str) -> Iterator[Plot]:
        from shared.bench.report.bars import plots_of_cases  # here: matplotlib takes a second to import

        return plots_of_cases(record, key)


def by_variant_in_words(record: Record, input_name: str) -> list[Statement]:
    """A sentence for each variant that both frameworks have: each pass, and what the first call costs."""
    found = []
    for variant, own in _comparisons(record, input_name).items():
        parts = []
        for pass_name, comparison in own.items():
            fast, slow = comparison.faster, comparison.slower
            each = " against ".join(f"{duration(r.time.value)} in {FRAMEWORKS[r.case.framework]}" for r in (fast, slow))
            parts.append(f"{pass_name} {comparison.text}, {each}")
        last = list(own.values())[-1]
        cold = [(FRAMEWORKS[r.case.framework], r.cold.seconds) for r in (last.faster, last.slower) if r.cold]
        first = " and ".join(f"{duration(seconds)} in {name}" for name, seconds in sorted(cold))
        about = f"{input_name}, {variant}" if len(record.inputs) > 1 else variant
        found.append(Statement(about, f"{'; '.join(parts)}; the first call with empty caches takes {first}.", []))
    return found


def _comparisons(record: Record, input_name: str) -> dict[str, dict[str, Comparison]]:
    """By variant and pass, in the order of the ladder."""
    assert record.settings is not None
    by_pass = {
        name: by_variant([r for r in record.results if (r.case.input, r.case.pass_name) == (input_name, name)])
        for name in record.settings.passes
    }
    rungs = [variant.name for variant in VARIANTS[record.settings.problem]]
    found = {rung: {name: of[rung] for name, of in by_pass.items() if rung in of} for rung in rungs}
    return {rung: own for rung, own in found.items() if own}


def statements(record: Record) -> list[Statement]:
    """A verdict for each input and pass, in words."""
    return [
        Statement(
            f"{verdict.input}, {verdict.pass_name}" if len(record.inputs) > 1 else verdict.pass_name,
            verdict.sentence,
            verdict.details,
        )
        for verdict in verdicts(record)
    ]


def decision_table(record: Record, input_name: str) -> Table | None:
    """For each variant that both frameworks have: the faster framework in each pass, on a new shape, and in total.

    None where nothing can be compared. New shape and break-even are those of the last pass.
    """
    assert record.settings is not None
    comparisons = _comparisons(record, input_name)
    if not comparisons:
        return None
    passes = [name for name in record.settings.passes if any(name in own for own in comparisons.values())]
    footnotes: dict[str, str] = {}
    rows = []
    for variant, own in comparisons.items():
        rows.append((
            _WRITTEN.get(variant, variant),
            _code_lines(record, variant),
            _compiled(record, list(own.values())[-1], footnotes),
            *(own[name].text.replace(" (", "\n(") if name in own else NOTHING for name in passes),
            *_of_first_calls(own.get(passes[-1])),
        ))  # fmt: skip
    last_pass = passes[-1]
    of_last = (f"{last_pass},\n{what}" for what in ("new shape", "in total,\ncaches empty", "in total,\ncaches warm"))
    headers = (
        "how it is written",
        "lines of code\n" + " / ".join(FRAMEWORKS.values()),
        "compiled",
        *passes,
        *of_last,
    )
    below = (
        f"The faster framework per call, by what factor, and the 95% interval; same: within ±{SAME - 1:.0%}.",
        *footnotes.values(),
    )
    return Table("Which framework is faster", headers, rows, left_then_right(len(headers), 0), below)


def _code_lines(record: Record, variant: str) -> str:
    """Lines of code that the variant takes in each framework."""
    counts = [record.code_lines.get(framework, {}).get(variant) for framework in FRAMEWORKS]
    if None in counts:
        return NOTHING
    shared = f"\n+ {record.kernel_lines:,} of C++" if variant in SAME_CODE else ""
    return " / ".join(f"{count:,}" for count in counts) + shared


def _compiled(record: Record, comparison: Comparison, footnotes: dict[str, str]) -> str:
    """Which of the two cases went through its framework's compiler, with a footnote on why one did not."""
    cases = sorted(
        (comparison.faster.case, comparison.slower.case), key=lambda case: list(FRAMEWORKS).index(case.framework)
    )
    for case in cases:
        reason = record.uncompiled.get(case.framework, {}).get(case.variant)
        if not case.compiled and reason:
            footnotes.setdefault(reason, f"Not compiled in {FRAMEWORKS[case.framework]}: {reason}.")
    compiled = [FRAMEWORKS[case.framework] for case in cases if case.compiled]
    if len(compiled) == 1:
        return f"{compiled[0]} only"
    return "both" if compiled else "neither"


def _of_first_calls(comparison: Comparison | None) -> tuple[str, str, str]:
    """Which is faster on a new shape, and in total from empty and from warm caches."""
    if comparison is None:
        return NOTHING, NOTHING, NOTHING
    sides = (comparison.faster, comparison.slower)
    cold = [result.cold.seconds if result.cold else None for result in sides]
    return (
        _on_a_new_shape(comparison),
        break_even(comparison, cold),
        break_even(comparison, [result.warm_seconds for result in sides]),
    )


def _on_a_new_shape(comparison: Comparison) -> str:
    """The framework with the shorter first call on a new shape; single samples, so without an interval."""
    starts = {FRAMEWORKS[r.case.framework]: r.retrace for r in (comparison.faster, comparison.slower)}
    seconds = {name: start.seconds for name, start in starts.items() if start is not None}
    if len(seconds) < 2:
        return NOTHING
    fast, slow = sorted(seconds, key=seconds.__getitem__)
    return f"{fast} {figures(seconds[slow] / seconds[fast])}×"


def first_call_table(record: Record, input_name: str) -> Table | None:
    """Seconds of first calls, for each variant and framework."""
    rows = []
    for result in record.results:
        if result.case.input != input_name or result.cold is None or result.status != "ok":
            continue
        split = [f"{duration(part)}" if part else NOTHING for part in (result.cold.tracing, result.cold.compiling)]
        rows.append((
            result.case.pass_name,
            FRAMEWORKS[result.case.framework],
            result.case.variant,
            duration(result.cold.seconds),
            *split,
            duration(result.warm_seconds) if result.warm_seconds is not None else NOTHING,
            duration(result.retrace.seconds) if result.retrace else NOTHING,
        ))  # fmt: skip
    headers = ("pass", "framework", "variant", "caches empty", "tracing", "compiling", "new process", "new shape")
    below = ("new process: the compiler's caches are on disk. One sample each, but for new process.",)
    return Table("First calls", headers, rows, left_then_right(3, 5), below) if rows else None


def _provisional(record: Record) -> Table | None:
    """The first cells of the decision table, from a few calls right after each case's first; without intervals."""
    assert record.settings is not None
    own: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for result in record.results:
        if result.status == "ok" and result.early_seconds is not None:
            row = own.setdefault((result.case.input, result.case.variant), {})
            row.setdefault(result.case.pass_name, {})[FRAMEWORKS[result.case.framework]] = result.early_seconds
    rows = []
    for (name, variant), passes in own.items():
        cells = [_faster(passes.get(pass_name, {})) for pass_name in record.settings.passes]
        where = f"{name}, " if len(record.inputs) > 1 else ""
        rows.append((f"{where}{_WRITTEN.get(variant, variant)}", *cells))
    headers = ("variant", *record.settings.passes)
    below = ("Medians of up to 5 calls in one process; no intervals yet.",)
    return Table("Which framework is faster", headers, rows, left_then_right(len(headers), 0), below) if rows else None


def _faster(seconds: dict[str, float]) -> str:
    if len(seconds) < 2:
        return f"{next(iter(seconds))} only" if seconds else NOTHING
    fast, slow = sorted(seconds, key=seconds.__getitem__)
    return f"{fast} {near_one(seconds[slow] / seconds[fast])}×"
