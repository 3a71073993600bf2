"""What does each variant of the ladder gain, with and without the compiler?

Every variant is called a few times, with `jax.jit` or `torch.compile` and without, on the inputs that it is made for.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from shared.bench.cases import FRAMEWORKS, Settings
from shared.bench.questions.question import Question
from shared.bench.record import Record, Result
from shared.bench.report.tables import Answer, Statement, Table, left_then_right
from shared.bench.run.schedule import LEAST_ROUNDS
from shared.bench.units import NOTHING, duration
from shared.problems import Inputs, problem_of
from shared.variants import Abilities


class Ladder(Question):
    """The question `ladder`: every variant, from the loop over cells to one native kernel."""

    name = "ladder"
    asks = "what does each variant gain, from naive to fast, with and without the compiler"
    takes, which_passes = ("size",), slice(1)
    default_input = "random"
    default_budget = 900.0
    times_rounds = False
    times_reference = True

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        return problem_of(settings.problem).ladder_inputs(settings)

    def is_default(self, settings: Settings, framework: str, variant: str, abilities: Abilities) -> bool:
        return True

    def modes(self, settings: Settings, variant: str, input_name: str, abilities: Abilities) -> Sequence[bool]:
        return problem_of(settings.problem).ladder_modes(variant, input_name, abilities, settings)

    def answer(self, record: Record) -> Answer:
        answer = Answer()
        for pass_name, name in product(record.settings.passes, record.inputs):
            results = record.results_of(pass_name, name)
            answer.tables += [_table(record, pass_name, name, results)] if results else []
            about = f"{pass_name}, {record.inputs[name].text}" if len(record.inputs) > 1 else pass_name
            answer.statements += [Statement(about, f"{gains}.")] if (gains := "; ".join(_gains(results))) else []
        return answer


QUESTION = Ladder()


def _gains(results: Sequence[Result]) -> Iterator[str]:
    """The first and the fastest variant of each framework."""
    for framework, title in FRAMEWORKS.items():
        ran = [r for r in results if r.measured and r.case.framework == framework]
        if len({one.case.variant for one in ran}) > 1:
            first, fastest = ran[0], min(ran, key=lambda one: one.time.value)
            factor = float(f"{first.time.value / fastest.time.value:.2g}")  # no more is known of a few calls
            texts = (f"{duration(one.time.value)} ({one.case.how})" for one in (first, fastest))
            yield f"{title} from {' to '.join(texts)}, {factor:,g} times as fast"


def _table(record: Record, pass_name: str, name: str, results: Sequence[Result]) -> Table:
    """Rows: NumPy and the variants; for each framework the first call and later ones, without and with the compiler."""
    columns = [(framework, compiled) for framework in record.environment["frameworks"] for compiled in (False, True)]
    heads = [f"{FRAMEWORKS[framework]}\njit {'on' if compiled else 'off'}" for framework, compiled in columns]
    headers = ("variant", *(f"{head}\n{call}" for head in heads for call in ("first", "later")))
    cells = {(r.case.variant, (r.case.framework, r.case.compiled)): r for r in results}
    rows: list[tuple[str, ...]] = [("NumPy", *(*map(duration, entry.seconds), "", "") * (len(columns) // 2))
            for entry in record.references if (entry.input, entry.pass_name) == (name, pass_name)]  # fmt: skip
    for variant in dict.fromkeys(variant for variant, *_ in cells):
        rows.append((variant, *(text for column in columns for text in _calls(cells.get((variant, column))))))
    below = (f"Later: the median of up to {LEAST_ROUNDS} blocks after warm-up calls; of slow calls, the second call.",)
    aligns = left_then_right(1, len(headers) - 1)
    return Table(f"{pass_name}, {record.inputs[name].text}", headers, rows, aligns, below)


def _calls(result: Result | None) -> tuple[str, str]:
    """The first call, and later ones."""
    if result is None:
        return NOTHING, NOTHING
    if result.status == "ok":
        first = result.first_call
        return duration(first and first.value), duration(result.time.value if result.measured else None)
    reason = (result.reason or "").partition(":")[0]
    return reason if result.status == "limit" else result.status.upper(), NOTHING
