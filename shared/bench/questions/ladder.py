"""What does each rung of the ladder gain, with and without the compiler?

Every variant is called a few times, with `jax.jit` or `torch.compile` and without, on inputs that rungs are made for.
"""

from collections.abc import Sequence

from shared.bench.cases import FRAMEWORKS, Settings
from shared.bench.questions.question import Question
from shared.bench.record import Record, Result
from shared.bench.report.tables import Answer, Statement, Table, left_then_right
from shared.bench.units import NOTHING, duration
from shared.problems import Inputs, problem_of
from shared.problems.problem import Problem
from shared.variants import Abilities


class Ladder(Question):
    """From the loop as written to one native kernel."""

    name = "ladder"
    asks = "what does each rung of the ladder gain, with and without the compiler"
    takes = ("size",)
    default_input = "random"
    default_budget = 900.0
    times_rounds = False
    times_reference = True

    def default_passes(self, problem: Problem) -> tuple[str, ...]:
        return problem.default_passes[:1]

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        return problem_of(settings.problem).ladder_inputs(settings)

    def is_default(self, settings: Settings, variant: str, abilities: Abilities) -> bool:
        return True

    def modes(self, settings: Settings, variant: str, input_name: str, abilities: Abilities) -> Sequence[bool]:
        return problem_of(settings.problem).ladder_modes(variant, input_name, abilities, settings)

    def answer(self, record: Record) -> Answer:
        keys = [(pass_name, name) for pass_name in record.settings.passes for name in record.inputs]
        gains = [_gain(record, *key) for key in keys]
        tables = [_table(record, *key) for key in keys]
        return Answer([table for table in tables if table.rows], [gain for gain in gains if gain is not None])


QUESTION = Ladder()


def _gain(record: Record, pass_name: str, name: str) -> Statement | None:
    """The first and the fastest rung of each framework."""
    parts = []
    for framework, title in FRAMEWORKS.items():
        own = [r for r in record.results_of(pass_name, name) if r.measured and r.case.framework == framework]
        if len({result.case.variant for result in own}) > 1:
            first, fastest = own[0], min(own, key=lambda result: result.time.value)
            told = [
                f"{duration(r.time.value)} ({r.case.variant}{'' if r.case.compiled else ', not compiled'})"
                for r in (first, fastest)
            ]
            factor = float(f"{first.time.value / fastest.time.value:.2g}")  # no more is known of a few calls
            parts.append(f"{title} from {' to '.join(told)}, {factor:,g} times as fast")
    if not parts:
        return None
    about = f"{pass_name}, {record.inputs[name].text}" if len(record.inputs) > 1 else pass_name
    return Statement(about, f"{'; '.join(parts)}.")


def _table(record: Record, pass_name: str, name: str) -> Table:
    """Rows are NumPy and the rungs; for each framework the first call and later ones, without and with the compiler."""
    frameworks = list(record.environment["frameworks"])
    cells: dict[tuple[str, str, bool], Result] = {
        (result.case.variant, result.case.framework, result.case.compiled): result
        for result in record.results_of(pass_name, name)
    }
    rows: list[tuple[str, ...]] = []
    for entry in record.references:
        if (entry.input, entry.pass_name) == (name, pass_name):
            rows.append(("NumPy", *(*map(duration, entry.seconds), "", "") * len(frameworks)))
    for variant in dict.fromkeys(variant for variant, _, _ in cells):
        row = [variant]
        for framework in frameworks:
            for compiled in (False, True):
                row += _cells(cells.get((variant, framework, compiled)))
        rows.append(tuple(row))
    headers = ["variant"]
    for framework in frameworks:
        for mode in ("jit off", "jit on"):
            headers += [f"{FRAMEWORKS[framework]}\n{mode}\n{call}" for call in ("first", "later")]
    title = f"{pass_name}, {record.inputs[name].text}"
    below = ("Later: the second call, or the median of up to five where they take less than half a second.",)
    return Table(title, tuple(headers), rows, left_then_right(1, len(headers) - 1), below)


def _cells(result: Result | None) -> tuple[str, str]:
    """The first call, and later ones."""
    if result is None:
        return NOTHING, NOTHING
    if result.status == "ok":
        first = result.first_call
        return duration(first and first.value), duration(result.time.value if result.measured else None)
    limit = (result.reason or "").partition(":")[0]
    return {"wrong": "WRONG", "failed": "FAILED", "limit": limit}[result.status], NOTHING
