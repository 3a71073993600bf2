"""What the workers of `learning` do: a training an epoch at a time, the steps of one timed, and what came of it."""

import contextlib
import importlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from shared.bench.cases import Case
from shared.bench.measure.clock import timed
from shared.bench.measure.memory import resident_peak
from shared.learning.batches import Batch
from shared.learning.families import Family
from shared.learning.job import Job
from shared.learning.training import Training, epoch_batches
from shared.problems.learn_alignment import ALIGNMENT, FamilyInputs
from shared.problems.problem import DATA
from shared.variants import PATH

if TYPE_CHECKING:
    from shared.bench.worker.case_runner import CaseRunner

# between two signs of life during an epoch
_SIGN_SECONDS = 1.0
# batches whose steps are timed, the same in both frameworks, and how often
STEPS, ROUNDS = 24, 3

# those of this process, by name
_trainings: dict[str, Training] = {}


class _Watched:
    """A trainer that says that it is alive, and how long its first step took."""

    def __init__(self, trainer: Any, runner: "CaseRunner") -> None:
        self._trainer, self._runner = trainer, runner
        self.first_step: float | None = None
        self.shapes: set[tuple[int, ...]] = set()
        self._told = time.monotonic()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)

    def step(self, batch: Batch) -> Any:
        seconds, loss = timed(lambda: self._first(batch) if self.first_step is None else self._trainer.step(batch))
        self.first_step = self.first_step or seconds
        self.shapes.add(batch.first.shape)
        self._give_sign()
        return loss

    def predicted(self, batch: Batch, exact: bool = False) -> Any:
        found = self._trainer.predicted(batch, exact)
        self._give_sign()
        return found

    def _give_sign(self) -> None:
        if time.monotonic() - self._told > _SIGN_SECONDS:
            self._runner.send("step")
            self._told = time.monotonic()

    def _first(self, batch: Batch) -> Any:
        return self._runner.backend.wait(self._trainer.step(batch))


def package_problem(runner: "CaseRunner", case: Case) -> dict[str, Any]:
    """Why the framework's package of models cannot be used; None if it can."""
    try:
        importlib.import_module(f"{case.framework}_impl.learning")
    except ImportError as error:
        return {"problem": str(error)}
    return {"problem": None}


def begin(
    runner: "CaseRunner", case: Case, name: str, job: Mapping[str, Any], split: Mapping[str, Sequence[str]],
    process: int, checkpoint: str | None = None, is_anew: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Make a training, of a trainer of its own; returns its history, which a checkpoint may have.

    split: the names of the families to train on, and to validate with. process: which has compilers' caches of its own.
    checkpoint: a file; is_anew: what it has is not gone on from.
    """
    if checkpoint and is_anew:
        Path(checkpoint).unlink(missing_ok=True)
    with settings(runner, case, process):
        trainer = new_trainer(runner, case, Job(**job))
        train, validation = (families_of(runner, split[part]) for part in ("train", "validation"))
        _trainings[name] = Training(trainer, train, validation, Job(**job), Path(checkpoint) if checkpoint else None)
    return _state(_trainings[name])


def epoch(runner: "CaseRunner", case: Case, name: str, process: int, keeps_weights: bool = False) -> dict[str, Any]:
    """One more of a training. keeps_weights: in the run's folder, for the parent to compare."""
    training, backend = _trainings[name], runner.backend
    with settings(runner, case, process), backend.compile_times() as split:
        peak = resident_peak(training.epoch) if case.device == "cpu" else None
        if peak is None:
            training.epoch()
    if keeps_weights:
        np.savez(weights_file(runner.folder, name, len(training.history)), **training.trainer.weights())
    trainer = training.trainer
    return _state(training) | {
        "peak_bytes": peak and peak[1],
        "first_step": trainer.first_step,
        "shapes": len(trainer.shapes),
        "tracing": split.tracing,
        "compiling": split.compiling,
    }


def weights_file(folder: Path, name: str, number: int) -> Path:
    """Where an epoch's weights are kept."""
    return folder / f"weights {name} {number}.npz"


def _state(training: Training) -> dict[str, Any]:
    return {
        "history": [asdict(epoch) for epoch in training.history],
        "reached": training.reached and training.reached._asdict(),
        "is_finished": training.is_finished,
        "best_quality": training.best_epoch.quality if training.history else None,
    }


def learned(runner: "CaseRunner", case: Case, name: str, process: int) -> dict[str, Any]:
    """The gaps with the best weights of a training, and the matrix (20, 20) if that is the model."""
    training = _trainings[name]
    with settings(runner, case, process):
        trainer = new_trainer(runner, case, training.job)
        trainer.set_weights(training.best)
        matrix = np.round(trainer.matrix, 4).tolist() if training.job.model == "matrix" else None
        return {"matrix": matrix, "gaps": list(trainer.gaps)}


def step_times(
    runner: "CaseRunner", case: Case, job: Mapping[str, Any], train: Sequence[str], process: int
) -> dict[str, Any]:
    """Seconds of a step, of one that is waited for, and of its alignment alone, on batches of the first epochs: the
    means of each round.

    Steps follow each other without waiting, as in training; what they need is compiled already. Alignments do not
    depend on each other, and might be computed side by side, so each is waited for: they are a share of such steps.
    """
    own, backend, families = Job(**job), runner.backend, families_of(runner, train)
    epochs = (epoch_batches(families, own, number) for number in range(1, STEPS + 1))
    batches = [packed.batch for packed in islice(chain.from_iterable(epochs), STEPS)]
    rounds = []
    with settings(runner, case, process):
        trainer = new_trainer(runner, case, own)
        alignments = [trainer.alignment_call(batch) for batch in batches]

        def steps() -> None:
            backend.wait([trainer.step(batch) for batch in batches])

        def each_step() -> None:
            for batch in batches:
                backend.wait(trainer.step(batch))

        def each_alignment() -> None:
            for call in alignments:
                backend.wait(call())

        parts = {"step": steps, "waited": each_step, "alignment": each_alignment}
        for number in range(ROUNDS + 1):  # the first one warms up
            seconds = {}
            for part in list(parts) if number % 2 else list(parts)[::-1]:
                seconds[part] = timed(parts[part])[0] / len(batches)
                runner.send("step")
            rounds += [seconds] if number else []
    return {"rounds": rounds, "steps": len(batches)}


def settings(runner: "CaseRunner", case: Case, process: int) -> contextlib.AbstractContextManager[None]:
    """The precision of a case, and compilers' caches that no other process has."""
    return runner.compilers(case, runner.cache("learning", case.framework, case.variant, process))


def new_trainer(runner: "CaseRunner", case: Case, job: Job) -> Any:
    """A trainer of the case's framework, variant and dtype, with the job's first weights; its native kernels built."""
    for pass_name in (case.pass_name, PATH):
        runner.build(replace(case, problem=ALIGNMENT, pass_name=pass_name), {})
    trainer = importlib.import_module(f"{case.framework}_impl.learning").Trainer
    how = {"variant": case.variant, "device": case.device, "dtype": case.dtype, "compiled": case.compiled}
    return _Watched(trainer(job, **how), runner)


def families_of(runner: "CaseRunner", names: Sequence[str]) -> list[Family]:
    """The families of these names."""
    own = {family.name: family for family in cast(FamilyInputs, runner.gate.inputs(DATA)).families}
    return [own[name] for name in names]


def trained(name: str) -> Training:
    """A training of this process."""
    return _trainings[name]
