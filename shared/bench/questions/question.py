"""The base class of questions: the cases that one needs, how they are measured, and how the record answers it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from shared.bench.analysis.verdict import time_over, verdicts
from shared.bench.cases import Absence, Case, Settings
from shared.bench.estimates import Estimate
from shared.bench.record import Record, Result
from shared.bench.report.plots import plots_of_cases
from shared.bench.report.report import Report, report_of
from shared.bench.report.tables import Answer, Plot
from shared.bench.run.context import Run
from shared.bench.run.interpreters import other_interpreters
from shared.bench.run.plan import Plan, WorkerStart
from shared.bench.run.protocol import measure_calls
from shared.problems import Inputs, problem_of
from shared.problems.alignments import AlignmentProblem
from shared.problems.problem import DATA, Problem, UnusableInput
from shared.variants import PATH, WITH_PATH, Abilities

TIMING = ("workers", "rounds", "precision")  # options of questions that time rounds
AbilitiesByFramework = Mapping[str, Abilities]  # of each usable framework
Cases = tuple[list[Case], list[Absence]]  # those of a run, and those that a framework cannot run


class Question(ABC):
    """One question: a subclass in its own module, which is named in `_MODULES` and has an instance as `QUESTION`."""

    name: str
    asks: str  # the question itself, one line

    # which cases

    default_problem = Settings.problem
    only_on_cpus = ""  # why it is not asked of other devices
    only_alignments = False
    only_random = False  # whether it takes only --input random
    only_passes: tuple[str, ...] = ()  # none: every pass
    which_passes = slice(None)  # of a problem's default passes, those of this question
    # the options that it takes, of those that only some questions take
    takes: tuple[str, ...] = ("size", *TIMING)
    own_passes: Mapping[str, str] = {}  # beside those of the problem, each with what it is
    takes_every_alignment = False  # measures all alignments, unless the user names a problem
    default_input = "globins"  # of problems that take sequences, on a CPU
    default_dtype = Settings.dtype  # or several, with commas in between
    # every case is measured once for each label
    labels: Mapping[str, WorkerStart] = {"": WorkerStart()}
    details: type | None = None  # a dataclass of `Result.details`, which raises ValueError for impossible values

    def starts(self, settings: Settings) -> dict[tuple[str, str], WorkerStart]:
        """The starts of workers, by framework and label; in another interpreter where `--python` names one.

        Raises UnusableInput.
        """
        other = other_interpreters(settings)
        return {
            (framework, label): start._replace(command=other[framework].command, about=other[framework].about)
            if framework in other
            else start
            for framework, (label, start) in product(settings.frameworks, self.labels.items())
        }

    def check_device(self, device: str) -> None:
        """Raise UnusableInput if it cannot be asked of the device."""
        if self.only_on_cpus and device != "cpu":
            raise UnusableInput(f"{self.name} goes with --device cpu, got {device}: {self.only_on_cpus}")

    def check(self, settings: Settings) -> None:
        """Raise UnusableInput if it cannot be asked of the problem, the input or the passes."""
        unknown = [name for name in settings.passes if self.only_passes and name not in self.only_passes]
        if self.only_alignments and not isinstance(problem_of(settings.problem), AlignmentProblem):
            raise UnusableInput(f"{self.name} goes with alignments, not with {settings.problem}")
        if self.only_random and settings.input != "random":
            raise UnusableInput(f"{self.name} goes with --input random, got {settings.input!r}")
        if unknown:
            raise UnusableInput(f"{self.name} goes with --pass {' or '.join(self.only_passes)}, got {unknown[0]}")

    def default_passes(self, problem: Problem) -> tuple[str, ...]:
        return problem.default_passes[self.which_passes]

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        """The inputs by name. Raises UnusableInput, SequenceError or MemoryError."""
        return problem_of(settings.problem).inputs(settings)

    def is_default(self, settings: Settings, framework: str, variant: str, abilities: Abilities) -> bool:
        """Whether a framework's variant is measured if the user names none."""
        return problem_of(settings.problem).is_default(variant, abilities, settings)

    def modes(self, settings: Settings, variant: str, input_name: str, abilities: Abilities) -> Sequence[bool]:
        """Whether a variant is measured compiled (True), not compiled (False), both or neither."""
        return problem_of(settings.problem).modes(variant, abilities)

    def cases(self, settings: Settings, abilities: AbilitiesByFramework, inputs: Sequence[str]) -> Cases:
        """The cases of a run, frameworks side by side. inputs: the names of the run's inputs."""
        cases, absent = [], {}
        starts = self.starts(settings)
        variants = problem_of(settings.problem).variant_names
        for name, pass_name, variant, framework in product(inputs, settings.passes, variants, abilities):
            able = abilities[framework]
            if settings.variants is None:
                is_asked_for = (
                    variant in WITH_PATH if pass_name == PATH else self.is_default(settings, framework, variant, able)
                )
            else:
                is_asked_for = variant in settings.variants or (variant == able.auto and "auto" in settings.variants)
            modes = self.modes(settings, variant, name, able) if is_asked_for else ()
            labels = [label for name, label in starts if name == framework]
            for compiled, label in product(modes, labels):
                where = (name, settings.problem, settings.device, settings.dtype, label)
                case = Case(framework, variant, pass_name, compiled, *where)
                reason = able.why_not(variant, pass_name, compiled)
                if reason is None and compiled and settings.quick:
                    reason = able.slow_compiler
                if reason is None:
                    cases.append(case)
                else:
                    absent[Absence(framework, replace(case, label="", input=DATA).title, reason)] = None
        return cases, list(absent)

    def plan(self, settings: Settings) -> Plan:
        """The plan of a run. Raises UnusableInput, SequenceError or MemoryError."""
        self.check(settings)
        starts, inputs = self.starts(settings), self.inputs(settings)
        has_sizes = bool(problem_of(settings.problem).sizes.growth)
        flags = self.times_rounds, self.times_reference, self.tries_new_shape and has_sizes, self.drops_dominated
        cases = partial(self.cases, settings, inputs=list(inputs))
        return Plan(starts, inputs, cases, self.measure, self.deciding, self.contenders, *flags)

    # how they are measured

    default_budget = Settings.budget  # seconds
    times_rounds = True  # whether fresh workers time rounds
    times_reference = False  # the NumPy reference too
    tries_new_shape = False  # the first call on another shape too
    drops_dominated = True  # calls of seconds: timed in one repeat only, if another variant is far faster

    def measure(self, run: Run, cases: list[Case], inputs: dict[str, Inputs]) -> None:
        """Measure the cases into the run's record, and keep it after every step: by default first calls, then rounds.

        `run.ask_for_result("call", case, function=f)` calls f(runner, case), a module-level function, in the case's
        worker; the `details` of its reply are the dictionary that f returns.
        """
        measure_calls(run, cases, inputs)

    def deciding(self, record: Record) -> list[Estimate]:
        """The estimates that must be precise before the run may end: each verdict's ratio, or its only time."""
        return [one.ratio or one.time(one.results[0]) for one in verdicts(record).values() if one.results]

    def contenders(self, record: Record) -> set[Case]:
        """The cases that must be timed further: those that may still prove the fastest of their framework."""
        contenders: set[Case] = set()
        for key, comparison in verdicts(record).items():
            best = {result.case.framework: result for result in comparison.results}
            for result in record.results_of(*key):
                fastest = best.get(result.case.framework)
                if fastest and result.measured and not time_over(result, fastest, comparison.on_device).low > 1:
                    contenders.add(result.case)
        return contenders

    # how the record answers

    @abstractmethod
    def answer(self, record: Record) -> Answer:
        """The answer in a table that a hurried person reads, and in sentences; as far as the run has got."""

    def report(self, record: Record) -> Report:
        """The report of a record of this question."""
        passes = {**problem_of(record.settings.problem).passes, **self.own_passes}
        return report_of(record, self.asks, passes, self.answer(record), lambda: self.plots(record))

    def plots(self, record: Record) -> Iterator[Plot]:
        """Yield the plots of the report page; by default the time of every case."""
        return plots_of_cases(record)


def unmeasured(results: Iterable[Result]) -> Iterator[str]:
    """A footnote for each reason why cases have no result."""
    lost = [result for result in results if result.status != "ok"]
    for reason in dict.fromkeys(result.reason for result in lost):
        yield f"No {'; '.join(result.case.title for result in lost if result.reason == reason)}: {reason}."
