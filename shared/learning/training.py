"""Training with validation, early stopping and checkpoints, for the trainer of either framework.

An epoch draws new pairs of every training family, takes a step on each batch of them, and validates. The pairs
depend on the seed and the number of the epoch alone, those of validation on neither; families are taken in order of
their names, however they are given.

A checkpoint holds the state at the end of an epoch (at first that of the start), in a file that is replaced as a
whole. So whatever ends the process, Ctrl-C included, the file is there and costs at most the epoch under way: a
training that goes on from it repeats that epoch, and ends with the very weights of one that was never interrupted.
"""

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.learning.batches import Packed, Pair, draw_pairs, pack
from shared.learning.families import Family, by_name
from shared.learning.job import Job
from shared.learning.quality import quality

PAIRS = 40  # of each validation family
_MAY_CHANGE = ("epochs", "patience", "target")  # of a job, between one process of a training and the next
CELLS = 4_000_000  # of a family, in an epoch or in validation: a family of long sequences gives fewer pairs


@dataclass(frozen=True)
class Epoch:
    """The results of one epoch."""

    number: int  # from 1
    steps: int
    loss: float  # the mean over its pairs
    quality: float  # on the validation families, at its end
    seconds: float  # in training and validation since the start; writing checkpoints does not count


class Reached(NamedTuple):
    """When a training reached its target."""

    epoch: int
    seconds: float


class Training:
    """A training under way: call epoch() until is_finished."""

    def __init__(
        self,
        trainer: Any,
        train: Sequence[Family],
        validation: Sequence[Family],
        job: Job,
        checkpoint: str | Path | None = None,
    ) -> None:
        """trainer: a Trainer of jax_impl.learning or torch_impl.learning, at its start, made for the same job.

        checkpoint: a file that is written at each epoch; if it is there already, the training goes on from it.

        Raises: ValueError if there are no families, or two of one name, or if that file is damaged, of other families,
        of more epochs, or of a job that differs in more than epochs, patience and target.
        """
        for name, families in (("train", train), ("validation", validation)):
            if not families:
                raise ValueError(f"{name} must have at least one family, got none")
            names = [family.name for family in families]
            # families are known by their names: in the quality, and in a checkpoint
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{name} must have families of different names, got several of {', '.join(twice)}")
        self.trainer, self.job = trainer, job
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self.history: list[Epoch] = []
        self.best: dict[str, NDArray[np.float64]] = trainer.weights()  # those of the best validation quality so far
        self._train = train
        self._validation = validation_batches(validation)
        fixed = {name: value for name, value in asdict(job).items() if name not in _MAY_CHANGE}
        self._made_for = {"job": fixed, "train": digests(train), "validation": digests(validation)}
        self._interrupted = False
        if self.checkpoint is not None:
            try:  # rather than look for the file: of processes that train together the trainer asks one
                self._restore(self.checkpoint)
            except FileNotFoundError:
                self._save()

    def epoch(self) -> Epoch:
        """One epoch more. After one that was interrupted it first goes back to the checkpoint."""
        if self._interrupted:
            if self.checkpoint is None:
                raise RuntimeError("an epoch was interrupted: only a training with a checkpoint can go on from there")
            self._restore(self.checkpoint)
        self._interrupted = True
        start = perf_counter()
        number = len(self.history) + 1
        batches = [packed.batch for packed in epoch_batches(self._train, self.job, number)]
        losses = [self.trainer.step(batch) for batch in batches]  # waits for none of them
        loss = np.average([float(value) for value in losses], weights=[batch.weights.sum() for batch in batches])
        at_end = quality(self.trainer, self._validation)
        seconds = (self.history[-1].seconds if self.history else 0) + perf_counter() - start
        if at_end > max((epoch.quality for epoch in self.history), default=-1):
            self.best = self.trainer.weights()
        epoch = Epoch(number, len(batches), float(loss), at_end, seconds)
        self.history.append(epoch)
        self._interrupted = False
        self._save()
        return epoch

    @property
    def best_epoch(self) -> Epoch:
        """The first with the best validation quality."""
        return max(self.history, key=lambda epoch: epoch.quality)

    @property
    def is_finished(self) -> bool:
        """Whether all epochs are done, or the last `patience` of them were no better than one before."""
        done = len(self.history)
        return done >= self.job.epochs or (done > 0 and done - self.best_epoch.number >= self.job.patience)

    @property
    def reached(self) -> Reached | None:
        """The first epoch with the target's quality."""
        target = self.job.target
        if target is None:
            return None
        return next((Reached(epoch.number, epoch.seconds) for epoch in self.history if epoch.quality >= target), None)

    def _save(self) -> None:
        if self.checkpoint is not None:
            best = {name: array.tolist() for name, array in self.best.items()}
            history = [asdict(epoch) for epoch in self.history]
            self.trainer.save(self.checkpoint, {"made_for": self._made_for, "history": history, "best": best})

    def _restore(self, checkpoint: Path) -> None:
        state = self.trainer.load(checkpoint)
        for fact, value in self._made_for.items():
            other = state["made_for"][fact]
            for name in sorted({*value, *other}, key=str):
                if value.get(name) != other.get(name):
                    text = f"the family {name} as it is here to {fact}"
                    if fact == "job":
                        text = f"{name} = {value.get(name)!r}, got {other.get(name)!r}"
                    raise ValueError(f"{checkpoint}: expected a checkpoint of a training with {text}")
        if len(state["history"]) > self.job.epochs:
            expected = f"expected a checkpoint of at most {self.job.epochs} epochs"
            raise ValueError(f"{checkpoint}: {expected}, got one of {len(state['history'])}")
        self.history = [Epoch(**epoch) for epoch in state["history"]]
        self.best = {name: np.array(array, np.float64) for name, array in state["best"].items()}
        self._interrupted = False


def fit(training: Training, on_epoch: Callable[[Training], Any] | None = None) -> list[Epoch]:
    """Runs a training to its end and returns its history; on_epoch (such as print_progress) is called at each epoch."""
    try:
        while not training.is_finished:
            training.epoch()
            if on_epoch is not None:
                on_epoch(training)
    except KeyboardInterrupt:
        if training.checkpoint is not None and training.trainer.process == 0:
            done = len(training.history)
            print(f"interrupted after epoch {done}; {training.checkpoint} goes on from there", file=sys.stderr)
        raise
    return training.history


def epoch_batches(families: Sequence[Family], job: Job, number: int) -> list[Packed]:
    """The batches of an epoch, counted from 1, one for each step."""
    random = np.random.default_rng([job.seed, number])
    return pack(_drawn(families, job.pairs_per_family, random), random)


def validation_batches(families: Sequence[Family]) -> list[Packed]:
    """PAIRS of each family, or as many as CELLS allows: the same ones for every seed and every model."""
    return pack(_drawn(families, PAIRS, np.random.default_rng(0)))


def print_progress(training: Training) -> None:
    """One line about the last epoch, on standard error; of processes that train together the first one writes it."""
    if training.trainer.process > 0:
        return
    ends = [0.0, *(epoch.seconds for epoch in training.history)]
    durations = np.diff(ends)
    epoch = training.history[-1]
    # The first epoch compiles. Early stopping may end the training long before.
    seconds_left = max(durations[1:], default=durations[0]) * (training.job.epochs - epoch.number)
    print(
        f"epoch {epoch.number:3}   loss {epoch.loss:.3f}   quality {epoch.quality:.3f}   "
        f"{epoch.steps / durations[-1]:.1f} steps/s   at most {seconds_left:.0f} s left",
        file=sys.stderr,
    )


def _drawn(families: Sequence[Family], most: int, random: np.random.Generator) -> list[Pair]:
    """Draw at most so many pairs of each family, or as many as CELLS allows, whatever the order of the families."""
    pairs = []
    for family in by_name(families):
        of_a_pair = np.mean([len(codes) for codes in family.codes]) ** 2
        pairs += draw_pairs(family, max(1, min(most, int(CELLS / of_a_pair))), random)
    return pairs


def digests(families: Sequence[Family]) -> dict[str, str]:
    """A digest of each family: of its sequences and their alignment."""
    return {
        family.name: hashlib.sha256(
            b"".join(np.ascontiguousarray(row).tobytes() + b"," for row in (*family.codes, *family.columns))
        ).hexdigest()
        for family in families
    }
