"""What does it cost to stay in PyTorch and call JAX's kernel?

JAX's variants, called in JAX and from PyTorch, show what the crossing costs. Called from PyTorch, they are compared
with PyTorch's own: the choice of whoever trains a model in PyTorch.
"""

from collections.abc import Sequence
from dataclasses import replace

from shared.bench.cases import FRAMEWORKS, Absence, Case, Settings
from shared.bench.questions.axis_question import AxisQuestion, Row
from shared.bench.questions.question import AbilitiesByFramework, Cases
from shared.bench.record import Record
from shared.bench.run.plan import WorkerStart
from shared.bench.run.schedule import is_precise
from shared.bench.run.worker_handle import WORKER_COMMAND
from shared.bench.units import NOTHING, duration, range_text
from shared.problems import Inputs, problem_of
from shared.problems.problem import UnusableInput
from shared.variants import Abilities

IN_JAX, FROM_PYTORCH = "in JAX", "from PyTorch"
SMALL = "small"  # the input on which a call is little more than the crossing
_SMALL_SIZE = (4, 16, 16)
_WORKER_COMMAND = (*WORKER_COMMAND[:-1], "shared.bench.questions.bridge_worker")


class Bridge(AxisQuestion):
    """JAX's kernels in JAX and from PyTorch, against PyTorch's own."""

    name = "bridge"
    asks = "what does it cost to stay in PyTorch and call JAX's kernel"
    only_alignments, only_passes = True, ("score", "marginals", "hvp")
    default_budget = 540.0
    axis, change, is_gain = "calls", "the crossing adds", False
    compares = "The faster kernel from PyTorch"
    below = (
        "JAX from PyTorch: through torch_impl.jax_bridge. Adds: the time of the crossing, its share of the call from "
        "PyTorch, and the 95% interval of the time; <: the upper end of an interval that contains 0.",
        "A score crosses once. Marginals by autograd cross twice, and JAX compiles forward and backward apart.",
    )

    def starts(self, settings: Settings) -> dict[tuple[str, str], WorkerStart]:
        if settings.pythons:
            raise UnusableInput("bridge needs both frameworks in the interpreter that runs it: leave out --python")
        return {
            ("jax", IN_JAX): WorkerStart(),
            ("jax", FROM_PYTORCH): WorkerStart(command=_WORKER_COMMAND),
            ("torch", FROM_PYTORCH): WorkerStart(),
        }

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        if len(settings.frameworks) < len(FRAMEWORKS):
            raise UnusableInput(f"bridge needs both frameworks, got --framework {settings.frameworks[0]}")
        small = problem_of(settings.problem).inputs_of_size(replace(settings, batch=None), _SMALL_SIZE)
        return {**super().inputs(settings), SMALL: small}

    def modes(self, settings: Settings, variant: str, input_name: str, abilities: Abilities) -> Sequence[bool]:
        # a small call shows what a crossing costs, whatever the variant; more of them would take torch.compile minutes
        if input_name == SMALL and variant != abilities.auto:
            return []
        return super().modes(settings, variant, input_name, abilities)

    def cases(self, settings: Settings, abilities: AbilitiesByFramework, inputs: Sequence[str]) -> Cases:
        if missing := [FRAMEWORKS[name] for name in FRAMEWORKS if name not in abilities]:
            return [], [Absence(name, "call through the bridge", f"{missing[0]} is missing") for name in abilities]
        return super().cases(settings, abilities, inputs)

    def contenders(self, record: Record) -> set[Case]:
        """The cases of rows in which a ratio is not precise yet."""
        rows = [[*row.results.values()] for row in self.rows(record)]
        vague = [row for row in rows if not is_precise(self.deciding(replace(record, results=row)), record.settings)]
        return {result.case for row in vague for result in row}

    def change_text(self, row: Row, framework: str, point: str) -> str:
        """The time that the crossing adds to a call, and its share of the call from PyTorch."""
        changed = self.changed(row, framework, point)
        if changed is None or changed.ratio is None or (framework, IN_JAX) not in row.results:
            return NOTHING
        seconds = row.results[framework, IN_JAX].time.value
        value, low, high = ((ratio - 1) * seconds for ratio in changed.ratio[:3])
        if low <= 0:
            return f"< {duration(high)}" if high > 0 else "nothing"
        return f"{duration(value)}, {1 - 1 / changed.ratio.value:.0%} of the call\n({range_text(low, high)})"


QUESTION = Bridge()
