"""How do run time, compile time and memory grow with the size of the input?

Every case is measured at each size, as in `speed`; a power of the size is fitted to its times.
"""

from collections.abc import Iterator, Sequence

from shared.bench.analysis.scaling import Power, scalings, sizes
from shared.bench.cases import FRAMEWORKS, Settings
from shared.bench.questions.question import Question
from shared.bench.questions.speed import statements
from shared.bench.record import Record
from shared.bench.report.tables import NOTHING, Answer, Plot, Table, left_then_right
from shared.problems import PROBLEMS, Inputs
from shared.problems.argument_types import size_text
from shared.variants import Abilities

# largest deviation from a power law that is not mentioned
_STRAIGHT = 1.25


class Growth(Question):
    """A run over several sizes."""

    name = "growth"
    asks = "how do run time, compile time and memory grow with the size of the input"
    default_input = "random"
    takes_sizes = True

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        problem = PROBLEMS[settings.problem]
        return {
            size_text(size): problem.inputs_of_size(settings, size) for size in settings.sizes or problem.sizes.swept
        }

    def modes(self, settings: Settings, variant: str, input_name: str, abilities: Abilities) -> Sequence[bool]:
        return PROBLEMS[settings.problem].growth_modes(variant, abilities)

    def answer(self, record: Record) -> Answer:
        table = growth_table(record)
        return Answer([table] if table.rows else [], statements(record))

    def plots(self, record: Record, key: str) -> Iterator[Plot]:
        from shared.bench.report.lines import plots_over_size  # here: matplotlib takes a second to import

        return plots_over_size(record, key)


def growth_table(record: Record) -> Table:
    """The fitted exponents."""
    rows = [
        (
            scaling.case.pass_name,
            FRAMEWORKS[scaling.case.framework],
            scaling.case.variant,
            "yes" if scaling.case.compiled else "no",
            *(_power(power) for power in (scaling.first_call, scaling.compiling, scaling.call)),
        )
        for scaling in scalings(record)
    ]
    low, high = sizes(record) if rows else (0, 0)
    axis = PROBLEMS[record.settings.problem].sizes.axis if rows and record.settings else "size"
    title = f"Growth: p of n^p for n {axis}, fitted from {low:,} to {high:,}"
    headers = ("pass", "framework", "variant", "compiled", "first call", "tracing and compiling", "a call")
    return Table(title, headers, rows, left_then_right(4, 3))


def _power(power: Power | None) -> str:
    """The exponent, and the largest deviation if times do not follow a power law."""
    if power is None:
        return NOTHING
    off = f" (off by up to {power.largest_factor:.2g} times)" if power.largest_factor > _STRAIGHT else ""
    return f"{round(power.exponent, 2) + 0.0:.2f}{off}"  # never -0.00
