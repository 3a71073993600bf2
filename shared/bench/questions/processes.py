"""What do several processes gain, each with a shard of a batch, against one process on the same cores?

Every case is computed by one process on all cores, by one process on as many cores as each of several would have, and
by several processes, each on its shard and on cores of its own.
"""

from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from shared.bench.analysis.verdict import time_over
from shared.bench.cases import FRAMEWORKS, Absence, Case, Settings
from shared.bench.measure.machine import counts_up_to, usable_cores
from shared.bench.questions import processes_worker
from shared.bench.questions.axis_question import AxisQuestion, Row
from shared.bench.questions.processes_worker import ALONE, STEP, StepInputs, shard_name
from shared.bench.questions.question import TIMING, AbilitiesByFramework, Cases
from shared.bench.record import Record, Result
from shared.bench.report.tables import Answer, Statement
from shared.bench.run.context import Run
from shared.bench.run.fresh_processes import groups_of, time_in_processes
from shared.bench.run.plan import WorkerStart
from shared.bench.run.worker_handle import WORKER_COMMAND
from shared.learning.batches import Batch
from shared.learning.families import bundled_families
from shared.learning.job import Job
from shared.learning.shards import dealt
from shared.learning.training import epoch_batches
from shared.problems import Inputs, problem_of
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.alignment_reference import CELLS, reference_results
from shared.problems.alignments import AlignmentProblem
from shared.problems.argument_types import names, whole
from shared.problems.problem import BATCH, Problem, UnusableInput

# the default input: calls take milliseconds, as they do in a step of training
_SIZE, _PAIRS = (256, 256), 128
# the shortest length of a random pair, as a fraction of the matrix
_SHORTEST = 1 / 3


class Processes(AxisQuestion):
    """Every case by one process and by several."""

    name = "processes"
    asks = "what do more processes gain in data-parallel work, against one process on the same cores"
    axis, change = "processes", "gain"
    below = (
        "Gain: the time of one process on all cores over the row's, and the 95% interval. Several processes divide the "
        "batch.",
    )
    takes = ("size", *TIMING, "processes")
    own_passes: Mapping[str, str] = {
        STEP: "a data-parallel step of learning to align: forward, backward, the sum over processes, Adam"
    }
    only_alignments, only_passes = True, ("score", "marginals", "hvp", STEP)
    default_input = "random"
    default_budget = 600.0
    only_on_cpus = "it has not been run on GPUs"

    def default_passes(self, problem: Problem) -> tuple[str, ...]:
        return self.only_passes if isinstance(problem, AlignmentProblem) else problem.default_passes

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        """The batch, and that of the pass `step`. Raises UnusableInput for fewer pairs than processes."""
        if settings.pythons:
            raise UnusableInput("processes measures in the interpreter that runs it: leave out --python")
        step = {ALONE: _step_inputs(settings)} if STEP in settings.passes else {}
        batch = step[ALONE] if settings.passes == (STEP,) else _pairs(settings)
        if (pairs := batch.pairs or 0) < (most := max(counts_of(settings))):
            raise UnusableInput(f"{most} processes need a pair each, got {pairs}")
        return {BATCH: batch, **step}

    def starts(self, settings: Settings) -> dict[tuple[str, str], WorkerStart]:
        """Worker starts; one process on all cores first, as the baseline."""
        shares = [(count, settings.threads // count) for count in counts_of(settings)]
        points = dict.fromkeys(point for count, threads in shares for point in ((1, threads), (count, threads)))
        return {(framework, _label(*point)): WorkerStart(point[1], _command(framework, *point))
                for framework in settings.frameworks for point in points}  # fmt: skip

    def cases(self, settings: Settings, abilities: AbilitiesByFramework, inputs: Sequence[str]) -> Cases:
        cases, absent = [], []
        problem = problem_of(settings.problem)
        where = (problem.name, settings.device, settings.dtype)
        labels = dict.fromkeys(label for _, label in self.starts(settings))
        for pass_name, variant, framework in product(settings.passes, problem.variant_names, abilities):
            able, is_step = abilities[framework], pass_name == STEP
            if not {variant, "auto" if variant == able.auto else variant} & {*(settings.variants or ("auto",))}:
                continue
            # torch.compile would take longer than the measurement: see the question `learning`
            compiled = framework == "jax" if is_step else problem.modes(variant, able)[0]
            reason = able.why_not(variant, "hvp" if is_step else pass_name, compiled)
            reason = reason or (able.slow_compiler if compiled and settings.quick else None)
            if reason is not None:
                absent.append(Absence(framework, f"{FRAMEWORKS[framework]} {variant} {pass_name}", reason))
                continue
            cases += [Case(framework, variant, pass_name, compiled, name, *where, label)
                      for label, name in product(labels, (BATCH, ALONE))
                      if name == BATCH or (is_step and "processes" in label)]  # fmt: skip
        return cases, absent

    def measure(self, run: Run, cases: list[Case], inputs: dict[str, Inputs]) -> None:
        write_inputs(run, inputs)
        time_in_processes(run, groups_of(cases, "variant"))

    def choices(self, points: Sequence[str]) -> Sequence[str]:
        return [point for point in points if "processes" in point]

    def rows(self, record: Record) -> list[Row]:
        """The rows of the batch; steps without communication are no way to train."""
        return [row._replace(input="") for row in super().rows(record) if row.input == BATCH]

    def answer(self, record: Record) -> Answer:
        answer = super().answer(record)
        answer.statements += _communication(record)
        return answer


QUESTION = Processes()


def counts(text: str) -> tuple[int, ...]:
    """Numbers of processes from the command line, and 1, in order. Raises ArgumentTypeError."""
    numbers = sorted({1, *(whole("processes", 1)(part) for part in names(text))})
    if len(numbers) < 2:
        raise ArgumentTypeError(f"processes must have a number above 1, such as 2 or 1,2,4, got {text!r}")
    return tuple(numbers)


def counts_of(settings: Settings) -> tuple[int, ...]:
    """The numbers of processes: those asked for, or 1, 2, 4, … up to the cores. Raises UnusableInput."""
    cores = settings.threads
    if settings.processes and settings.processes[-1] > cores:
        raise UnusableInput(f"--processes must be at most {cores}, the cores to use, got {settings.processes[-1]}")
    if cores < 2:
        raise UnusableInput(f"processes needs at least 2 cores, got {cores}")
    return settings.processes or tuple(counts_up_to(cores))


def _label(count: int, threads: int) -> str:
    """The point with so many processes of so many cores."""
    cores = f"{threads} core{'s' if threads > 1 else ''}"
    return f"{count} processes, {cores} each" if count > 1 else f"1 process, {cores}"


def _command(framework: str, count: int, threads: int) -> tuple[str, ...]:
    """The program of a worker that computes with so many processes, without the arguments that every worker has."""
    usable = [str(core) for core in usable_cores()]
    cores, *other_cores = (",".join(usable[index * threads :][:threads]) for index in range(count))
    special = (":Leader", cores, framework, *other_cores) if other_cores else (":OnShard", cores, "0", "1", "", "")
    return (*WORKER_COMMAND, processes_worker.__name__ + special[0], *special[1:])


def _pairs(settings: Settings) -> AlignmentInputs:
    """The problem's batch; of random pairs one with lengths from a third of the matrix on, in order of their cells."""
    if settings.input == "random":
        settings = replace(settings, size=settings.size or _SIZE, batch=settings.batch or _PAIRS)
    (inputs,) = problem_of(settings.problem).inputs(settings).values()
    assert isinstance(inputs, AlignmentInputs)
    if settings.input != "random":
        return inputs
    sides, drawn = np.array(inputs.similarity.shape[-2:]), np.random.default_rng([inputs.seed, 2])
    least = np.maximum(1, np.ceil(sides * _SHORTEST)).astype(int)
    lengths = drawn.integers(least, sides + 1, (inputs.pairs, 2)).astype(np.int32)
    lengths[0] = sides
    lengths = lengths[np.argsort(lengths.astype(np.int64).prod(1), kind="stable")]
    extent = " to ".join(" x ".join(map(str, extent)) for extent in (least, sides))
    text = f"random similarity, seed {inputs.seed}, {inputs.pairs} pairs of {extent}, the shortest first"
    return replace(inputs, lengths=lengths, text=text)


def _step_inputs(settings: Settings) -> StepInputs:
    """The batch of most pairs, then most cells, of an epoch of the bundled families; with --batch, its pairs repeated
    or cut to that number."""
    epoch = epoch_batches(bundled_families(), Job(seed=settings.seed), 1)
    steps = [StepInputs("", packed.batch, seed=settings.seed) for packed in epoch]
    step = max(steps, key=lambda each: (np.count_nonzero(each.batch.weights), each.work))
    if settings.batch is not None:
        rows = np.arange(settings.batch) % np.count_nonzero(step.batch.weights)
        step = replace(step, batch=Batch._make(array[rows] for array in step.batch))
    pairs, length = np.count_nonzero(step.batch.weights), step.shape[1]
    text = f"a batch of learning, {pairs} pairs of up to {length} residues, for the pass {STEP}"
    return replace(step, text=text)


def write_inputs(run: Run, inputs: Mapping[str, Inputs]) -> None:
    """Write the inputs and reference results of the batch and of every shard for the workers."""
    if ALONE in inputs:
        run.write(f"{STEP}.inputs", inputs[ALONE])
    passes, batch = [name for name in run.settings.passes if name != STEP], inputs[BATCH]
    if not passes or not isinstance(batch, AlignmentInputs):
        return
    for count in counts_of(run.settings):
        for index, rows in enumerate(dealt(batch.pair_lengths, count)):
            gaps = {name: gap[rows] for name, gap in batch.gaps.items()}
            shard = replace(batch, similarity=batch.similarity[rows], lengths=batch.pair_lengths[rows], gaps=gaps)
            run.write(f"{shard_name(index, count)}.inputs", shard)
            expected = reference_results(run.settings.problem, shard, passes, CELLS // count)
            run.write(f"{shard_name(index, count)}.reference", expected)


def _communication(record: Record) -> Iterator[Statement]:
    """Say what share of a data-parallel step is communication."""
    results: dict[Case, Result] = {result.case: result for result in record.results if result.measured}
    for case, alone in results.items():
        if case.input == ALONE and (whole := results.get(replace(case, input=BATCH))):
            ratio = time_over(alone, whole)
            interval = f"95% interval {1 - ratio.high:.0%} … {1 - ratio.low:.0%}"
            about = f"{FRAMEWORKS[case.framework]}, a step by {case.label}"
            yield Statement(about, f"{1 - ratio.value:.0%} of it is communication, waiting included; {interval}.")
