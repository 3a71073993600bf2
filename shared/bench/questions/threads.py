"""What do more threads gain, and does the faster framework change with their number?

Every case is timed with 1, 2, 4, … and all threads, in float32 and float64. Each number of threads has worker processes
of its own, bound to as many cores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shared.bench.cases import Case, Settings
from shared.bench.measure.machine import counts_up_to, usable_cores
from shared.bench.questions.axis_question import AxisQuestion
from shared.bench.questions.question import AbilitiesByFramework, Cases
from shared.bench.run.context import Run
from shared.bench.run.fresh_processes import groups_of, time_in_processes
from shared.bench.run.plan import WorkerStart
from shared.bench.run.protocol import save_inputs
from shared.problems import Inputs, problem_of
from shared.problems.problem import UnusableInput


def label_of(threads: int) -> str:
    """The point with so many threads."""
    return f"{threads} thread{'s' if threads > 1 else ''}"


class Threads(AxisQuestion):
    """Every case with several numbers of threads."""

    name = "threads"
    asks = "what do more threads gain; does the faster framework depend on their number"
    axis, change = "threads", "speed-up"
    below = (
        "Speed-up: time with 1 thread / time with N threads, and the 95% interval. Both frameworks have processes that "
        "are bound to as many cores as threads.",
    )
    default_input = "random"
    default_dtype = "float32,float64"
    # of which a run has those of `counts_up_to`
    labels: Mapping[str, WorkerStart] = {
        label_of(count): WorkerStart(threads=count) for count in range(1, len(usable_cores()) + 1)
    }
    default_budget = 600.0
    only_on_cpus = "these are threads of a CPU"

    def number_of(self, point: str) -> float:
        return float(point.partition(" ")[0])

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        """One for each dtype, by its name."""
        if settings.threads < 2:
            raise UnusableInput(f"threads needs at least 2 threads to compare, got {settings.threads}")
        by_dtype = {}
        for dtype in settings.dtype.split(","):
            (inputs,) = problem_of(settings.problem).inputs(replace(settings, dtype=dtype)).values()
            by_dtype[dtype] = replace(inputs, text=f"{inputs.text}, {dtype}")
        return by_dtype

    def cases(self, settings: Settings, abilities: AbilitiesByFramework, inputs: Sequence[str]) -> Cases:
        cases, absent = super().cases(settings, abilities, inputs)
        points = [label_of(count) for count in counts_up_to(settings.threads)]
        return [replace(case, dtype=case.input) for case in cases if case.label in points], absent

    def measure(self, run: Run, cases: list[Case], inputs: dict[str, Any]) -> None:
        """Variant after variant; each has half the share of the one after it, which is slower and compiles longer."""
        save_inputs(run, inputs)
        time_in_processes(run, groups_of(cases, "variant", weight_ratio=2.0))


QUESTION = Threads()
