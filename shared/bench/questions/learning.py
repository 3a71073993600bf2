"""How long does learning to align real protein families take, to a quality that is fixed beforehand?

Both frameworks train the same model until their alignments of families that they do not train on are as good as those
by BLOSUM62: for each seed in a fresh process, with compilers' caches empty (cold) and from the same start again (warm).
"""

import importlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from shared.bench.cases import Case, Settings
from shared.bench.estimates import Block, mean_over_processes
from shared.bench.measure.clock import timed
from shared.bench.measure.memory import resident_peak
from shared.bench.questions.axis_question import AxisQuestion
from shared.bench.record import Record, Result
from shared.bench.report.plots import COLOURS, drawn, formatter
from shared.bench.report.tables import Answer, Plot, Table, left_then_right
from shared.bench.run.context import Run
from shared.bench.run.fresh_processes import groups_of, measure_in_processes
from shared.bench.run.plan import WorkerStart
from shared.bench.units import NOTHING, bytes_text, duration, figures
from shared.bench.worker.case_runner import CaseRunner
from shared.learning.baseline import GAP_EXTEND, GAP_OPEN, TEMPERATURE, blosum_weights
from shared.learning.families import Family, split
from shared.learning.job import Job
from shared.learning.quality import quality
from shared.learning.training import Epoch, Training, epoch_batches, validation_batches
from shared.problems import Inputs
from shared.problems.learn_alignment import ALIGNMENT, STEP, TRAIN
from shared.problems.problem import DATA, UnusableInput

COLD, WARM = "cold", "warm"
_STEPS, _ROUNDS = 24, 3  # batches whose steps are timed, the same in both frameworks, and how often
_LIMIT = 600.0  # a process that hangs is stopped, but not before so many seconds


@dataclass
class ProcessDetails:
    """Details that a record keeps of one process: a training, or a step."""

    epochs: list[Epoch] = field(default_factory=list)
    compiling: float | None = None  # seconds
    reached: bool = False  # the quality
    peak_bytes: int | None = None
    alignment: float | None = None  # its share of a step


@dataclass
class CaseDetails:
    """Details that a record keeps of one case."""

    processes: list[ProcessDetails]
    target: float  # the quality to reach


class Learning(AxisQuestion):
    """Training to a quality, with compilers' caches empty and once everything is compiled, and a step."""

    name = "learning"
    asks = "how long does learning to align protein families take, to a quality that is fixed beforehand"
    axis, change = "caches", "speed-up"
    labels: Mapping[str, WorkerStart] = {COLD: WorkerStart(), WARM: WorkerStart()}  # of one process, first and second
    below = (
        "Train: steps up to the quality, and validation; cold: from empty caches; warm: again in the same process.",
    )
    takes = ()
    details = CaseDetails
    default_problem = "learn_alignment"
    default_budget = 600.0
    times_rounds = False

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        if settings.problem != self.default_problem:
            raise UnusableInput(f"{self.name} goes with {self.default_problem}, not with {settings.problem}")
        return super().inputs(settings)

    def measure(self, run: Run, cases: list[Case], inputs: dict[str, Any]) -> None:
        record, families, options = run.record, inputs[DATA].families, inputs[DATA].options
        target = _target(run, cases, split(families)[1])
        cases = [case for case in cases if case.framework not in record.missing
                 and (case.pass_name, case.label) != (STEP, COLD)]  # fmt: skip
        record.results = [result for result in record.results if result.case in cases or result.details]

        def one_process(part: Sequence[Case], number: int, seconds: float) -> None:
            case = part[0]
            job = Job(options["model"], run.settings.seed + number, epochs=options["epochs"], target=target)
            file = f"{case.framework}-{case.variant}-{job.model}-{case.dtype}-{record.inputs[DATA].sha256[:8]}"
            folder = run.settings.arguments.get("checkpoints")
            checkpoint = Path(folder, f"{file}-seed-{job.seed}.checkpoint") if folder else None
            run.progress.say(f"{case.name}, seed {job.seed}")
            run.stop()
            watched = run.watch_other_programs(number)
            arguments = {"job": job, "families": families, "seconds": seconds, "checkpoint": checkpoint}
            reply = run.ask("call", case, limit=max(2 * seconds, _LIMIT), function=train_and_time, **arguments)
            repeat = watched()
            run.stop()
            for result in map(record.result, part):
                result.status, result.reason = reply.status, reply.reason
                if reply.details:
                    result.details = {"processes": []} | result.details | {"target": target}
                    _enter(result, number, reply.details)
            record.repeats += [repeat] if reply.details else []

        groups = groups_of(cases, "variant", "framework")
        measure_in_processes(run, groups, one_process, "processes", options["seeds"])

    def answer(self, record: Record) -> Answer:
        answer = super().answer(record)
        trained = [result for result in record.results if result.details.get("processes")]
        return replace(answer, tables=[*answer.tables, _table(record, trained)]) if trained else answer

    def plots(self, record: Record) -> Iterator[Plot]:
        """The quality over time."""
        trained = [r for r in record.results if r.case.pass_name == TRAIN and r.details.get("processes")]

        def draw(*every: Any) -> None:
            for axes, label in zip(every, self.labels, strict=True):
                for result in trained:
                    for process in result.details["processes"] if result.case.label == label else ():
                        x, y = ([epoch[of] for epoch in process.get("epochs", ())] for of in ("seconds", "quality"))
                        axes.plot(x, y, ".-", color=COLOURS[result.case.framework])
                axes.axhline(trained[0].details["target"], color="#14181f", linewidth=1)
                axes.xaxis.set_major_formatter(formatter("s"))
                axes.set(title=label, xlabel="time", ylabel="F1 on the validation families")

        if trained:
            reading = "JAX blue, PyTorch orange; a line: a seed; a marker: an epoch; horizontal: the quality to reach."
            yield Plot("Quality on the validation families over time", drawn(draw, 8.4, 4, 2), reading)


QUESTION = Learning()


def _target(run: Run, cases: Sequence[Case], validation: Sequence[Family]) -> float:
    """The quality to reach; notes the frameworks that cannot train. Raises UnusableInput if none can."""
    qualities = []
    for case in {case.framework: case for case in reversed(cases)}.values():
        fastest = replace(case, variant=run.record.auto[case.framework])
        reply = run.ask("call", fastest, function=blosum_quality, families=validation)
        if reply.status == "ok":
            qualities.append(reply.details["quality"])
        else:
            run.record.missing[case.framework] = f"it cannot train here: {reply.reason}"
    if not qualities:
        raise UnusableInput("; ".join(run.record.missing.values()))
    return qualities[0]


def _enter(result: Result, number: int, process: Mapping[str, Any]) -> None:
    """Enter what a process measured into the result of a case."""
    if result.case.pass_name == STEP:
        result.blocks += [Block.of(number, place, [seconds]) for place, seconds in enumerate(process["steps"])]
        result.details["processes"].append({"alignment": process["alignment"]})
        return
    training = process[result.case.label]
    result.details["processes"].append(training)
    if training["reached"]:
        result.blocks.append(Block.of(number, 0, [training["epochs"][-1]["seconds"]]))
    result.peak_bytes = max(filter(None, (result.peak_bytes, training["peak_bytes"])), default=None)


def blosum_quality(runner: CaseRunner, case: Case, families: Sequence[Family]) -> dict[str, Any]:
    """Return the quality of BLOSUM62's alignments, in a worker."""
    with runner.compilers(case, runner.cache("learning", case.framework, "target")):
        trainer = _trainer(runner, case, Job())
        trainer.set_weights(blosum_weights())
        return {"quality": quality(trainer, validation_batches(families))}


def train_and_time(
    runner: CaseRunner, case: Case, job: Job, families: Sequence[Family], seconds: float, checkpoint: Path | None
) -> dict[str, Any]:
    """Measure everything in a fresh worker; return nothing if the trainings take longer than so many seconds."""
    end, (train, validation), measured = time.monotonic() + seconds, split(families), {}
    if checkpoint:
        checkpoint.unlink(missing_ok=True)
    with runner.compilers(case, runner.cache("learning", case.framework, case.variant, job.seed)):
        for label in (COLD, WARM):
            file = checkpoint if label == COLD else None
            training = Training(_trainer(runner, case, job), train, validation, job, file)

            def to_quality(training: Training = training) -> None:
                while not (training.is_finished or training.reached or (training.history and time.monotonic() > end)):
                    training.epoch()

            with runner.backend.compile_times() as took:
                peak = resident_peak(to_quality) if case.device == "cpu" else None
                to_quality()  # nothing is left to do, unless memory cannot be measured
            if not (training.is_finished or training.reached):
                return {}
            compiling = None if took.compiling is None else (took.tracing or 0.0) + took.compiling
            measured[label] = {"epochs": [asdict(epoch) for epoch in training.history], "compiling": compiling}
            measured[label] |= {"reached": training.reached is not None, "peak_bytes": peak and peak[1]}
        epochs = (epoch_batches(train, job, number) for number in range(1, _STEPS + 1))
        batches = [packed.batch for epoch in epochs for packed in epoch][:_STEPS]
        return measured | _step_times(runner.backend.wait, _trainer(runner, case, job), batches)


def _trainer(runner: CaseRunner, case: Case, job: Job) -> Any:
    """A trainer at its start, whose native kernels are built."""
    runner.build(replace(case, problem=ALIGNMENT), {})
    trainer = importlib.import_module(f"{case.framework}_impl.learning").Trainer
    return trainer(job, variant=case.variant, device=case.device, dtype=case.dtype, compiled=case.compiled)


def _step_times(wait: Any, trainer: Any, batches: Sequence[Any]) -> dict[str, Any]:
    """Seconds of a step in each round, and the share of the alignment.

    Steps follow each other without waiting, as in training. Independent alignments could overlap, so each is waited
    for; their share is of steps that are waited for too.
    """
    alignments = [trainer.alignment_call(batch) for batch in batches]
    parts = {
        "steps": lambda: wait([trainer.step(batch) for batch in batches]),
        "waited": lambda: [wait(trainer.step(batch)) for batch in batches],
        "alignment": lambda: [wait(call()) for call in alignments],
    }
    rounds = [{name: timed(part)[0] / len(batches) for name, part in parts.items()} for _ in range(_ROUNDS + 1)]
    steps, waited, alignment = ([of_round[name] for of_round in rounds[1:]] for name in parts)  # the first one warms up
    return {"steps": steps, "alignment": median(alignment) / median(waited)}


def _table(record: Record, trained: Sequence[Result]) -> Table:
    """Make a table of what trainings consist of, with a column for each framework and variant."""
    columns: dict[str, dict[str, str]] = {}
    for result in trained:
        case, processes, cells = result.case, result.details["processes"], columns.setdefault(result.case.name, {})
        if case.pass_name == STEP:
            cells["steps per second"] = figures(1 / result.time.value)
            cells["the alignment's share of a step"] = f"{mean(process['alignment'] for process in processes):.0%}"
        elif case.label == COLD:
            epochs = [str(len(process["epochs"])) if process["reached"] else NOTHING for process in processes]
            seconds = [process["compiling"] for process in processes]
            compiled = duration(mean_over_processes(seconds).value) if all(seconds) else NOTHING
            cells["epochs to the quality, by seed"] = ", ".join(epochs)
            cells["compiling in all"] = compiled if case.compiled else "nothing"
            cells["peak memory of the process"] = bytes_text(result.peak_bytes)
            cells["lines of code: models and trainer"] = str(record.code_lines[case.framework][case.variant])
    names = dict.fromkeys(name for cells in columns.values() for name in cells)
    rows = [(name, *(cells.get(name, NOTHING) for cells in columns.values())) for name in names]
    below = (f"The quality: F1 {trained[0].details['target']:.3f} on the validation families, that of BLOSUM62 with "
             f"gaps of {GAP_OPEN:g} and {GAP_EXTEND:g}, T = {TEMPERATURE:g}.",)  # fmt: skip
    return Table("What a training takes", ("", *columns), rows, left_then_right(1, len(columns)), below)
