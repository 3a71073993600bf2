"""Which framework is faster per call, and for how much code of your own? What does the first call cost, and from which
call on is a framework faster with it included?

Every case is called with empty caches and on a new shape, then timed by fresh processes in rounds, in which the two
frameworks take turns.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from shared.bench.analysis.verdict import (
    FIRST_ROW,
    FIRST_ROWS,
    HOW_WRITTEN,
    READING,
    Comparison,
    cell,
    comparisons,
    decided_on_device,
    verdicts,
)
from shared.bench.cases import FRAMEWORKS, Case, Settings
from shared.bench.estimates import Block, Estimate, break_even, mean_over_processes
from shared.bench.questions.question import Question
from shared.bench.record import Record
from shared.bench.report.case_table import FIRST_CALLS, STEPS, case_tables
from shared.bench.report.tables import Answer, Point, Statement, Table, left_then_right
from shared.bench.run.schedule import is_settled
from shared.bench.units import NOTHING, duration, rough_text
from shared.problems import problem_of
from shared.variants import SAME_CODE, WRITTEN_FIRST, Abilities

_TITLE, _ROW_HEADER = "Which framework is faster", "how it is written"
_BUSY = " (measured beside another program: see the warning)"
_TRAINING = "marginals"  # the pass that most users need: it stands first
_COST_COLUMNS = ("first\nnew shape", "later\nnew shape", "in total,\ncaches empty", "in total,\ncaches warm")
_LOST = {"wrong": "was wrong", "failed": "failed", "limit": "was not completed"}


class Speed(Question):
    """The default question."""

    name = "speed"
    asks = "which framework is faster per call, for how much code, and from which call on with the first call included"
    tries_new_shape = True

    def contenders(self, record: Record) -> set[Case]:
        """The fastest cases, and those of table cells that are not settled yet."""
        unsettled = {
            result.case
            for name in record.inputs
            for by_pass in comparisons(record, name, decided_on_device(record, name)).values()
            for comparison in by_pass.values()
            if comparison.ratio and not is_settled(comparison.ratio)
            for result in comparison.results
        }
        return super().contenders(record) | unsettled

    def is_default(self, settings: Settings, framework: str, variant: str, abilities: Abilities) -> bool:
        """Add the loop that one would write first, in PyTorch an eager one, to the problem's defaults."""
        return variant == WRITTEN_FIRST[framework] or super().is_default(settings, framework, variant, abilities)

    def answer(self, record: Record) -> Answer:
        if not record.repeats:
            record = _before_rounds(record)
        tables = [table for name in record.inputs for table in decision_tables(record, name)]
        details = case_tables(record, STEPS, FIRST_CALLS) if tables else []
        return Answer([*tables, *details], _statements(record), tables_first=len(tables), ratios=list(_ratios(record)))


QUESTION = Speed()


def _ratios(record: Record) -> Iterator[Point]:
    """The cells of the decision tables that compare, by the clock that decides."""
    for input_name, pass_name in product(record.inputs, sorted(record.settings.passes, key=_TRAINING.__ne__)):
        about = f"{pass_name}, {input_name}" if len(record.inputs) > 1 else pass_name
        for row, by_pass in comparisons(record, input_name, decided_on_device(record, input_name)).items():
            comparison = by_pass[pass_name]
            if ratio := comparison.ratio:
                value = ratio if comparison.results[0].case.framework == "jax" else ratio.inverse
                yield Point(about, HOW_WRITTEN.get(row, row), comparison.text.partition("\n")[0], value)


def decision_tables(record: Record, input_name: str) -> list[Table]:
    """Make two tables with a row for each way to write it: the faster framework, and the costs of first calls and code.

    Returns [] if nothing can be compared. The second table is about the last pass.
    """
    by_wall, by_device = comparisons(record, input_name), comparisons(record, input_name, on_device=True)
    every = [comparison for by_pass in by_wall.values() for comparison in by_pass.values()]
    if not any(comparison.ratio for comparison in every):
        return []
    passes = sorted(record.settings.passes, key=_TRAINING.__ne__)
    clocks = [("", by_wall)]
    if by_device:  # the clock that decides first
        clocks = [("\nwall time", by_wall), ("\ndevice time", by_device)]
        clocks = clocks[::-1] if decided_on_device(record, input_name) else clocks
    names = {row: f"{HOW_WRITTEN[row]}\n{row}" if row in HOW_WRITTEN else row for row in by_wall}
    rows = [
        (names[row], *(timed[row][name].text if row in timed else NOTHING for name in passes for _, timed in clocks))
        for row in by_wall
    ]
    notes = {_TRAINING: "\nthe gradient that a\ntraining step needs"} if len(passes) > 1 else {}
    headers = (_ROW_HEADER, *(f"{name}{clock}{notes.get(name, '')}" for name in passes for clock, _ in clocks))
    below = [f"{READING}. {NOTHING}: not measured, or nothing to compare with."]
    if FIRST_ROW in by_wall:
        below.append(
            f"{HOW_WRITTEN[FIRST_ROW].capitalize()}: in JAX lax.scan over anti-diagonals under jit and vmap, in "
            "PyTorch a Python loop over anti-diagonals of the whole batch, eager. Compiled: in PyTorch a loop of its "
            "private scan operator, which is right to first order only."
        )
    elif WRITTEN_FIRST["torch"] in problem_of(record.settings.problem).variant_names:
        below.append(f"{HOW_WRITTEN[FIRST_ROW].capitalize()}, {FIRST_ROW}, was not measured.")
    if by_device:
        below.append(
            "Wall time is what a call costs the caller, device time that in which the GPU works for it: the union of "
            f"its kernels' intervals. On this input {clocks[0][0].strip()} decides: it stands first."
        )
    for reason in dict.fromkeys(absence.reason for absence in record.absent):
        below.append(f"No {'; '.join(one.title for one in record.absent if one.reason == reason)}: {reason}.")
    title = f"{_TITLE}, {record.inputs[input_name].text}" if len(record.inputs) > 1 else _TITLE
    title += _BUSY * ((record.cores_busy_with_others or 0.0) > 0.5)
    faster = Table(title, headers, rows, left_then_right(len(headers), 0), tuple(below))
    return [faster, _costs_table(record, by_wall, names)]


def _costs_table(record: Record, by_row: Mapping[str, Mapping[str, Comparison]], names: Mapping[str, str]) -> Table:
    """Make the table of costs beside the calls: first calls, lines of code."""
    last = record.settings.passes[-1]
    rows = [
        (names[row], *_first_call_cells(by_pass[last]), _compiled(by_pass.values()), _code_lines(record, row))
        for row, by_pass in by_row.items()
    ]
    headers = (_ROW_HEADER, *_COST_COLUMNS, "compiled", "lines of code\n" + " / ".join(FRAMEWORKS.values()))
    below = [
        "In total, from call N: faster for N or more calls of a shape, first call included, but not the start of the "
        "compiler; up to call N: faster for at most N calls, not known beyond. Compiled: by jax.jit, torch.compile.",
    ]
    results = [r for by_pass in by_row.values() for comparison in by_pass.values() for r in comparison.results]
    for framework, reasons in record.uncompiled.items():
        used = dict.fromkeys(result.case.variant for result in results if result.case.framework == framework)
        for reason in dict.fromkeys(reason for variant, reason in reasons.items() if variant in used):
            names_of = ", ".join(variant for variant in used if reasons.get(variant) == reason)
            below.append(f"{names_of}: not compiled in {FRAMEWORKS[framework]}; {reason}.")
    title = f"What first calls of {last} and the code cost"
    return Table(title, headers, rows, left_then_right(len(headers), 0), tuple(below)).filled()


def _compiled(by_pass: Iterable[Comparison]) -> str:
    """The frameworks whose compiler the cases went through."""
    cases = [result.case for comparison in by_pass for result in comparison.results]
    names = [name for key, name in FRAMEWORKS.items() if any(c.compiled and c.framework == key for c in cases)]
    return f"{names[0]} only" if len(names) == 1 else "both" if names else "neither"


def _code_lines(record: Record, row: str) -> str:
    """Lines of code that a row of the table takes in each framework."""
    variants = FIRST_ROWS.get(row) or dict.fromkeys(FRAMEWORKS, row)
    counts = [record.code_lines.get(framework, {}).get(variants[framework]) for framework in FRAMEWORKS]
    if not any(counts):
        return NOTHING
    language = "C++" if record.settings.device == "cpu" else "Triton"
    shared = f"\n+ {record.kernel_lines:,} of {language}" if row in SAME_CODE and record.kernel_lines else ""
    return " / ".join(NOTHING if count is None else f"{count:,}" for count in counts) + shared


def _first_call_cells(comparison: Comparison) -> tuple[str, ...]:
    """The faster framework on the first new shape, on a later one, and in total from empty and from warm caches."""
    if comparison.ratio is None:
        return (NOTHING,) * 4
    new = [*_new_shape_cells(comparison), NOTHING, NOTHING]
    return (
        *new[:2],
        break_even_text(comparison, [result.first_call for result in comparison.results]),
        break_even_text(comparison, [result.warm_call for result in comparison.results]),
    )


def _new_shape_cells(comparison: Comparison) -> Iterator[str]:
    """The faster framework on the first new shape, and on the last that both have; of equally many processes."""
    results = comparison.results
    counts = [max(map(len, result.new_shapes), default=0) for result in results]
    for number in dict.fromkeys((1, min(counts))) if min(counts) else ():
        first, second = ([calls[number - 1] for calls in r.new_shapes if len(calls) >= number] for r in results)
        ratio = mean_over_processes([over / under for under, over in zip(first, second, strict=False)])
        yield cell([FRAMEWORKS[result.case.framework] for result in results], ratio)


def break_even_text(comparison: Comparison, first_calls: Sequence[Estimate | None]) -> str:
    """The framework that takes less time in total, and from which call on, given the first calls of both."""
    if not all(first_calls) or (ratio := comparison.ratio) is None:
        return NOTHING
    fast, slow = (first.value for first in first_calls if first)
    faster, slower = (FRAMEWORKS[result.case.framework] for result in comparison.results)
    call, cheap = comparison.results[0].time.value, faster if fast <= slow else slower
    if ratio.outcome == "same" or (ratio.outcome == "one-sided" and cheap == faster):
        return f"{cheap} from call 1"
    if ratio.outcome == "different":
        return f"{faster} from call {rough_text(break_even(fast, call, slow, call * ratio.value))}"
    # which takes less per call is unknown: the shorter first call decides, at least up to this call
    most = 1 / ratio.low if cheap == faster else ratio.high
    return f"{cheap} up to call {rough_text(break_even(max(fast, slow), call, min(fast, slow), call * most) - 1)}"


def _statements(record: Record) -> list[Statement]:
    """Compare the fastest cases in each pass and input; name what is left out, and the times of other variants."""
    statements = []
    for (pass_name, input_name), verdict in verdicts(record).items():
        lost = [result for result in record.results_of(pass_name, input_name) if result.status != "ok"]
        lines = [verdict.sentence, *(f"Left out: {r.case.name} {_LOST[r.status]} ({r.reason})." for r in lost)]
        times: dict[str, list[str]] = {}
        for result in record.results_of(pass_name, input_name):
            if result.measured and result not in verdict.results:
                time = f"{duration(verdict.time(result).value)} in {FRAMEWORKS[result.case.framework]}"
                times.setdefault(result.case.variant, []).append(time)
        slower = [f"{variant} {', '.join(texts)}" for variant, texts in times.items()]
        lines += [f"Other variants: {'; '.join(slower)}."] if slower else []
        about = f"{input_name}, {pass_name}" if len(record.inputs) > 1 else pass_name
        statements.append(Statement(about, "\n  ".join(lines)))
    return statements


def _before_rounds(record: Record) -> Record:
    """The record with the few calls right after each first call as its times."""
    early = {result.case: result.early_seconds for result in record.results if result.early_seconds is not None}
    blocks = {case: [Block.of(0, 0, [seconds])] for case, seconds in early.items()}
    return replace(record, results=[replace(r, blocks=r.blocks or blocks.get(r.case, [])) for r in record.results])
