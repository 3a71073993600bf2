"""What do more processes gain, each with a shard of a batch, against one process on the same cores?

One process on one process's cores, one on all cores, and n processes take turns in the same rounds: with a batch that
they divide (strong scaling) and with a batch for each (weak scaling). A process has cores of its own. The pass `step`
is a data-parallel step of the learning job: forward, backward, the sum of the gradients over processes, and Adam.
How: processes_run.py and processes_runner.py; what it means: processes_rows.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from shared.bench.cases import Absence, Case, Settings
from shared.bench.estimates import Estimate
from shared.bench.questions.processes_answer import statements, tables
from shared.bench.questions.processes_group import Place
from shared.bench.questions.processes_inputs import ALONE, COUNT, STEP, copies_name, inputs_of
from shared.bench.questions.processes_launch import launch_of
from shared.bench.questions.processes_rows import many_label, one_label, rows_of
from shared.bench.questions.processes_worker import command
from shared.bench.questions.question import TIMING, Question, WorkerStart
from shared.bench.record import Record
from shared.bench.report.tables import Answer, Plot
from shared.problems import PROBLEMS, Inputs, problem_of
from shared.problems.alignments import AlignmentProblem
from shared.problems.problem import BATCH, Problem, UnusableInput
from shared.variants import PATH, Abilities

if TYPE_CHECKING:
    from shared.bench.run.context import Run


class Processes(Question):
    """Every case by one process and by several."""

    name = "processes"
    asks = "what do more processes gain in data-parallel work, against one process on the same cores"
    takes = ("size", *TIMING, "processes")
    own_passes: Mapping[str, str] = {
        STEP: "a data-parallel step of learning to align: forward, backward, the sum over processes, Adam"
    }
    default_input = "random"
    default_budget = 600.0
    only_on_cpus = "it has not been run on GPUs"
    drops_dominated = False

    def default_passes(self, problem: Problem) -> tuple[str, ...]:
        is_alignment = isinstance(problem, AlignmentProblem)  # others are refused by `inputs`
        return ("score", "marginals", "hvp", STEP) if is_alignment else problem.default_passes

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        if not isinstance(PROBLEMS.get(settings.problem), AlignmentProblem):
            raise UnusableInput(f"processes goes with alignments, not with {settings.problem}")
        if settings.pythons:
            raise UnusableInput("processes measures in the interpreter that runs it: leave out --python")
        if PATH in settings.passes:
            raise UnusableInput(f"processes goes with passes that a training needs, not with {PATH}")
        return inputs_of(settings, counts_of(settings)[1:])

    def starts(self, settings: Settings) -> dict[tuple[str, str], WorkerStart]:
        """One process on all cores first: the machine is measured by it."""
        counts, launch = counts_of(settings), launch_of(settings)
        found = {}
        for framework in settings.frameworks:
            alone = command(Place(framework))
            found[framework, one_label(settings.threads)] = WorkerStart(settings.threads, alone)
            for count in counts[1:]:
                cores = launch.cores(settings) if launch else settings.threads // count
                together = launch.place(settings, "group") if launch else Place(framework, count=count)
                found[framework, one_label(cores)] = WorkerStart(cores, alone)
                found[framework, many_label(count, cores)] = WorkerStart(cores, command(together))
        return found

    def cases(
        self, settings: Settings, abilities: Mapping[str, Abilities], inputs: Sequence[str]
    ) -> tuple[list[Case], list[Absence]]:
        cases, absent = [], {}
        problem = problem_of(settings.problem)
        labels = list(dict.fromkeys(label for _, label in self.starts(settings)))
        asked = settings.variants or ("auto",)
        for pass_name, variant, framework in product(settings.passes, problem.variant_names, abilities):
            able = abilities[framework]
            if variant not in asked and (variant != able.auto or "auto" not in asked):
                continue
            is_step = pass_name == STEP
            # torch.compile would take longer than the measurement: see the question `learning`
            compiled = framework == "jax" if is_step else problem.modes(variant, able)[0]
            reason = able.why_not(variant, "hvp" if is_step else pass_name, compiled)
            if reason is None and compiled and settings.quick:
                reason = able.slow_compiler
            own = (problem.name, settings.device, settings.dtype)
            for name, label in _measured(settings, labels, is_step):
                case = Case(framework, variant, pass_name, compiled, name, *own, label)
                if reason is None:
                    cases.append(case)
                else:
                    absent[Absence(framework, f"{case.name} {pass_name}", reason)] = None
        return cases, list(absent)

    def measure(self, run: "Run", cases: list[Case], inputs: dict[str, Any]) -> None:
        from shared.bench.questions.processes_run import measure_processes  # here: a run has a question

        measure_processes(run, cases, inputs)

    def deciding(self, record: Record) -> list[Estimate]:
        """Strong scaling, against either way to use one process."""
        found = [ratio for row in rows_of(record) for ratio in (row.speed_up, row.against_all)]
        return [ratio for ratio in found if ratio is not None]

    def answer(self, record: Record) -> Answer:
        return Answer(list(tables(record)), list(statements(record)))

    def plots(self, record: Record) -> Iterator[Plot]:
        """None: the tables have all that there is to see."""
        return iter(())


QUESTION = Processes()


def counts_of(settings: Settings) -> tuple[int, ...]:
    """The numbers of processes: those asked for, or 1, 2, 4, … up to the cores; a launcher's are there. Raises
    UnusableInput."""
    launch, cores = launch_of(settings), settings.threads
    if launch is not None:
        return 1, launch.count
    if settings.processes and settings.processes[-1] > cores:
        raise UnusableInput(f"--processes must be at most {cores}, the cores to use, got {settings.processes[-1]}")
    if cores < 2:
        raise UnusableInput(f"processes needs at least 2 cores, got {cores}")
    powers = [2**power for power in range(cores.bit_length())]
    return settings.processes or tuple(dict.fromkeys([*powers, cores]))


def _measured(settings: Settings, labels: Sequence[str], is_step: bool) -> Iterator[tuple[str, str]]:
    """Inputs, each with the label of those that compute it."""
    for label in labels:
        yield BATCH, label
    for count in counts_of(settings)[1:]:
        (together,) = (label for label in labels if label.startswith(f"{count} "))
        if is_step:
            yield ALONE, together
        if settings.quick:  # what decides
            continue
        if not is_step:
            yield COUNT, together
        yield copies_name(count), together
        yield copies_name(count), one_label(settings.threads)
