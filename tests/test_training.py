"""Training: early stopping, the target, checkpoints, and that a resumed training ends as an uninterrupted one."""

import importlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_families import made_up_family

from shared.learning import training as loop
from shared.learning.batches import Batch
from shared.learning.job import Job
from shared.learning.training import Training, fit, print_progress, validation_batches

JOB = Job(pairs_per_family=4, epochs=3)
TRAIN = (made_up_family("one", 1), made_up_family("two", 2))
VALIDATION = (made_up_family("three", 3),)
PACK = loop.pack


class Fake:
    """Two weights that depend on every batch and its order; the first `at` of each sequence's partners are right."""

    process = 0

    def __init__(self, at: Iterable[int] = ()) -> None:
        self.at, self.steps, self.weight, self.momentum = tuple(at), 0, 0.0, 0.0

    def step(self, batch: Batch) -> float:
        self.momentum = 0.9 * self.momentum + np.sin(self.weight + (batch.first * batch.weights[:, None]).sum())
        self.weight += 0.1 * self.momentum
        self.steps += 1
        return self.weight

    def predicted(self, batch: Batch, exact: bool = False) -> np.ndarray:
        right = self.at[self.steps - 1] if self.at else int(10 * abs(self.weight))
        return np.where(np.arange(batch.partners.shape[1]) < right, batch.partners, -1)

    def weights(self) -> dict[str, np.ndarray]:
        return {"weight": np.array(self.weight), "steps": np.array(float(self.steps))}

    def save(self, path: Path, state: dict[str, Any]) -> None:
        path.write_text(json.dumps([self.weight, self.momentum, self.steps, state]))

    def load(self, path: Path) -> dict[str, Any]:
        self.weight, self.momentum, self.steps, state = json.loads(path.read_text())
        return state


def new_trainer(framework: str) -> Any:
    return Fake() if framework == "fake" else importlib.import_module(f"{framework}_impl.learning").Trainer(JOB)


def scripted(at: Iterable[int], **job: Any) -> Training:
    """A training whose n-th epoch is one step and predicts the first at[n] partners."""
    return Training(Fake(at), TRAIN[:1], VALIDATION, replace(JOB, epochs=len(tuple(at)), **job))


def interrupt(trainer: Any, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the midst of its step of this number."""
    step, taken = trainer.step, iter(range(1, at + 1))

    def until(batch: Batch) -> Any:
        loss = step(batch)
        if next(taken) == at:
            raise KeyboardInterrupt
        return loss

    monkeypatch.setattr(trainer, "step", until)


def without_seconds(training: Training) -> list[Any]:
    return [replace(epoch, seconds=0) for epoch in training.history]


def assert_same(training: Training, other: Training) -> None:
    assert without_seconds(training) == without_seconds(other)
    np.testing.assert_equal(training.trainer.weights(), other.trainer.weights())
    np.testing.assert_equal(training.best, other.best)


@pytest.mark.parametrize("framework", ["fake", "jax", "torch"])
def test_a_training_interrupted_and_resumed_ends_as_one_that_was_not(framework, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "pack", lambda pairs, random=None: PACK(pairs, random, cells=4 * 32**2))  # several steps
    whole = Training(new_trainer(framework), TRAIN, VALIDATION, JOB)
    fit(whole)
    steps = whole.history[0].steps
    assert steps > 1
    for at in (1, steps + 2):  # in the first epoch, and in the second
        path = tmp_path / f"{at}"
        trainer = new_trainer(framework)
        interrupt(trainer, at, monkeypatch)
        first = Training(trainer, TRAIN, VALIDATION, JOB, path)
        with pytest.raises(KeyboardInterrupt):
            fit(first)
        resumed = Training(new_trainer(framework), TRAIN, VALIDATION, JOB, path)
        assert without_seconds(resumed) == without_seconds(first) == without_seconds(whole)[: (at - 1) // steps]
        fit(resumed)
        assert_same(resumed, whole)


def test_the_order_in_which_families_are_given_changes_nothing(tmp_path):
    validation = (*VALIDATION, made_up_family("four", 4))
    whole = Training(Fake(), TRAIN, validation, JOB)
    fit(whole)
    for path in (None, tmp_path / "checkpoint"):
        if path is not None:
            Training(Fake(), TRAIN, validation, JOB, path).epoch()
        turned = Training(Fake(), TRAIN[::-1], validation[::-1], JOB, path)
        fit(turned)
        assert_same(turned, whole)


def test_an_interrupted_training_goes_on_only_with_a_checkpoint(tmp_path, monkeypatch):
    paths = None, None, tmp_path / "checkpoint"
    whole, without, training = (Training(Fake(), TRAIN, VALIDATION, JOB, path) for path in paths)
    fit(whole)
    for own in (without, training):
        with monkeypatch.context() as patch:
            interrupt(own.trainer, 2, patch)
            with pytest.raises(KeyboardInterrupt):
                fit(own)
    fit(training)
    assert_same(training, whole)
    with pytest.raises(RuntimeError, match="only a training with a checkpoint can go on"):
        without.epoch()


def test_a_training_ends_after_its_epochs_or_patience_and_keeps_the_best_weights():
    assert len(fit(scripted([1, 2, 3], patience=3))) == 3
    training = scripted([2, 5, 4, 5, 1, 9], patience=3)
    assert len(fit(training)) == 5  # the fifth is the third that is no better than the second
    assert (training.best_epoch.number, training.best["steps"]) == (2, 2)


def test_the_target_is_reached_at_the_first_epoch_that_has_it():
    qualities = [epoch.quality for epoch in fit(scripted([2, 5, 8, 6]))]
    training = scripted([2, 5, 8, 6], target=qualities[1])
    fit(training)
    assert training.reached == (2, training.history[1].seconds)
    assert 0 < training.history[0].seconds < training.history[1].seconds
    missed = scripted([2, 5, 8, 6], target=qualities[2] + 1e-9)
    fit(missed)
    assert missed.reached is None and scripted([1]).reached is None


@pytest.mark.parametrize(
    ("job", "train", "text"),
    [
        (replace(JOB, learning_rate=0.1), TRAIN, "training with learning_rate = 0.1, got None"),
        (JOB, (TRAIN[0], made_up_family("two", 4)), "training with the family two as it is here to train"),
        (JOB, TRAIN[:1], "training with the family two as it is here to train"),
        (replace(JOB, epochs=1), TRAIN, "a checkpoint of at most 1 epochs, got one of 2"),
        (JOB, (), "train must have at least one family, got none"),
        (JOB, (*TRAIN, made_up_family("two", 4)), "train must have families of different names, got several of two"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(job, train, text, tmp_path):
    path = tmp_path / "checkpoint"
    begun = Training(Fake(), TRAIN, VALIDATION, JOB, str(path))
    begun.epoch()
    begun.epoch()
    for own in (JOB, replace(JOB, epochs=99, patience=9, target=0.5)):  # its own is not
        Training(Fake(), TRAIN, VALIDATION, own, path)
    with pytest.raises(ValueError, match=text) as caught:
        Training(Fake(), train, VALIDATION, job, path)
    assert "\n" not in str(caught.value) and (str(path) in str(caught.value)) == ("must have" not in text)


def test_each_seed_and_epoch_draws_other_pairs_and_validation_none():
    drawn = []
    for seed in (0, 1):
        training = Training(Fake(), TRAIN, VALIDATION, replace(JOB, seed=seed, epochs=2))
        training.trainer.step = lambda batch: drawn.append(batch.first.sum()) or 0.0
        fit(training)
    assert len({*drawn}) == len(drawn) >= 4
    (first,), (again,) = validation_batches(VALIDATION), validation_batches(VALIDATION)
    assert first.pairs == again.pairs


def test_long_sequences_give_fewer_pairs(monkeypatch: pytest.MonkeyPatch):
    # all there are, so many, and those of about 22 × 22 cells
    for pairs, cells, expected in ((40, 10**6, 15), (4, 10**6, 4), (40, 1500, 3)):
        monkeypatch.setattr(loop, "PAIRS", pairs)
        monkeypatch.setattr(loop, "CELLS", cells)
        assert len(validation_batches(VALIDATION)[0].pairs) == expected


def test_progress_is_one_line_on_standard_error(capsys):
    fit(Training(Fake(), TRAIN, VALIDATION, JOB), print_progress)
    out, err = capsys.readouterr()
    first, _, last = err.splitlines()
    assert out == "" and first.startswith("epoch   1   loss ") and last.endswith("at most 0 s left")
