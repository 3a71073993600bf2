"""Trainers equal to NumPy and to each other; early stopping, the target, checkpoints, and resumed trainings."""

import errno
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from command_line import run_compare, without
from made_up_families import gradients_of_first_step, made_up_family, ragged

import jax_impl.learning
import torch_impl.learning
from shared import reference
from shared.learning import training as loop
from shared.learning.batches import Batch
from shared.learning.job import DOUBT, Job
from shared.learning.training import Training, fit, validation_batches
from shared.learning.weights import MODELS, initial_weights, raw_gap

TRAINERS: dict[str, Any] = {"jax": jax_impl.learning.Trainer, "torch": torch_impl.learning.Trainer}
FRAMEWORK = pytest.mark.parametrize("framework", TRAINERS)
MODEL = pytest.mark.parametrize("model", MODELS)


def loss_and_gradients(weights: dict[str, np.ndarray], batch: Batch) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients in NumPy, the second derivatives by the reference's differences."""
    matrix = (weights["matrix"] + weights["matrix"].T) / 2
    similarity = matrix[batch.first[:, :, None], batch.second[:, None, :]]
    gaps = {name: -np.log1p(np.exp(weights[name])) for name in ("gap_open", "gap_extend")}
    name = "smith_waterman_affine"
    expected = reference.gradients(name, similarity, batch.lengths, **gaps)["similarity"]
    loss, cotangent, total = 0.0, np.zeros_like(expected), float(batch.weights.sum())
    for pair in np.flatnonzero(batch.weights):
        rows = np.flatnonzero(batch.partners[pair] >= 0)
        at = pair, rows, batch.partners[pair, rows]
        mixed = (1 - DOUBT) * expected[at] + DOUBT
        loss -= np.log(mixed).mean() / total
        cotangent[at] = -(1 - DOUBT) / mixed / len(rows) / total
    size = np.abs(cotangent).max()  # the differences want a direction of size 1
    second = reference.hessian_vector_product(name, similarity, cotangent / size, batch.lengths, **gaps)
    d_matrix = np.zeros((20, 20))
    np.add.at(d_matrix, (batch.first[:, :, None], batch.second[:, None, :]), size * second["similarity"])
    d_gaps = {gap: size * second[gap].sum() * -1 / (1 + np.exp(-weights[gap])) for gap in gaps}
    return loss, {"matrix": (d_matrix + d_matrix.T) / 2, **d_gaps}


@FRAMEWORK
def test_loss_and_gradients_are_those_of_numpy(framework: str):
    batch, weights = ragged(16), initial_weights("matrix", 3)
    trainer = TRAINERS[framework](Job(seed=3), dtype="float64")
    loss, expected = loss_and_gradients(weights, batch)
    assert float(trainer.step(batch)) == pytest.approx(loss, rel=1e-13)
    results = gradients_of_first_step(trainer)
    assert results.keys() == expected.keys()
    for name, gradient in expected.items():
        # the worst seen is 2e-10: of the reference's differences
        assert np.abs(results[name] - gradient).max() < 1e-8 * np.abs(gradient).max(), name


@pytest.mark.parametrize("model", ["matrix", pytest.param("encoder", marks=pytest.mark.slow)])
def test_both_frameworks_take_the_same_50_steps_in_float64(model: str):
    batches = [ragged(length) for length in (16, 25)]
    trainers = [make(Job(model), dtype="float64") for make in TRAINERS.values()]
    losses = [[float(trainer.step(batches[number % 2])) for number in range(50)] for trainer in trainers]
    weights = [trainer.weights() for trainer in trainers]
    # the worst seen is 3e-15
    np.testing.assert_allclose(*losses, rtol=0, atol=1e-12)
    for name, start in initial_weights(model, 0).items():
        np.testing.assert_allclose(weights[0][name], weights[1][name], rtol=0, atol=1e-12)
        assert np.abs(weights[0][name] - start).max() > 1e-3, f"{name} has not been trained"


@MODEL
@FRAMEWORK
def test_padding_and_pairs_that_fill_change_nothing(framework: str, model: str):
    small: Any = ragged(16)
    wide: Any = ragged(25)
    for number, lengths in enumerate(small.lengths.T):  # around them other residues than in the small batch
        for pair, length in enumerate(lengths):
            wide[number][pair, :length] = small[number][pair, :length]
    partners = np.pad(small.partners, [(0, 0), (0, 9)], constant_values=-1)
    padded = Batch(*(part[:-1] for part in (wide.first, wide.second, small.lengths, partners, small.weights)))
    losses, weights = [], []
    for batch in (small, padded):
        trainer = TRAINERS[framework](Job(model), dtype="float64")
        losses.append([float(trainer.step(batch)) for _ in range(2)])
        weights.append(trainer.weights())
        exact = trainer.predicted(batch, exact=True)
        assert (exact >= 0).any() and (exact < batch.lengths[:, 1, None]).all()
        inside = np.arange(exact.shape[1]) < batch.lengths[:, 0, None]
        assert (exact[~inside] == -1).all()
    np.testing.assert_allclose(*losses, rtol=1e-13)
    for name, value in weights[0].items():
        np.testing.assert_allclose(weights[1][name], value, rtol=0, atol=1e-12)


@FRAMEWORK
def test_predictions_are_the_marginals_above_one_half_and_the_best_alignment(framework: str):
    trainer, batch = TRAINERS[framework](Job(), dtype="float64"), ragged(16)
    weights = trainer.weights()
    trainer.set_weights(weights | {"matrix": 3 * weights["matrix"]})  # of random sequences, so few pairs are certain
    similarity = trainer.matrix[batch.first[:, :, None], batch.second[:, None, :]]
    gaps = dict(zip(("gap_open", "gap_extend"), trainer.gaps, strict=True))
    marginals = reference.gradients("smith_waterman_affine", similarity, batch.lengths, **gaps)["similarity"]
    _, best = reference.best_alignment("smith_waterman_affine", similarity, batch.lengths, **gaps)
    np.testing.assert_allclose(trainer.marginals(batch), marginals, rtol=0, atol=1e-12)
    for exact, matches in ((False, marginals > 0.5), (True, best)):
        predicted = trainer.predicted(batch, exact)
        assert predicted.dtype == np.int32
        pairs = {(*at, predicted[*at]) for at in np.argwhere(predicted >= 0)}
        assert pairs == {tuple(at) for at in np.argwhere(matches)}
        assert matches.any()
    by_alignment, gradients = trainer.alignment_call(batch)()
    np.testing.assert_allclose(np.asarray(by_alignment.tolist()), trainer.marginals(batch), rtol=0, atol=1e-14)
    assert np.abs(np.asarray(gradients[0].tolist())).max() > 0


@MODEL
@FRAMEWORK
def test_weights_go_in_and_come_out_as_they_are(framework: str, model: str):
    trainer, weights = TRAINERS[framework](Job(model), dtype="float64"), initial_weights(model, 5)
    assert trainer.gaps == pytest.approx((-3, -0.5), rel=1e-14)
    weights |= {"gap_open": raw_gap(-40.0), "gap_extend": raw_gap(-1e-3)}
    trainer.set_weights(weights)
    assert trainer.gaps == pytest.approx((-40, -1e-3), rel=1e-12)
    result = trainer.weights()
    assert result.keys() == weights.keys()
    assert all(np.array_equal(result[name], weights[name]) and result[name].dtype == np.float64 for name in weights)
    other = next(name for name in MODELS if name != model)
    with pytest.raises(ValueError, match="weights must have the names and shapes"):
        trainer.set_weights(initial_weights(other, 0))


@FRAMEWORK
def test_a_damaged_or_other_checkpoint_is_refused_in_one_line(framework: str, tmp_path: Path):
    other_framework = next(name for name in TRAINERS if name != framework)
    path, trainer = tmp_path / "checkpoint", TRAINERS[framework](Job())
    trainer.save(path, {})
    whole, damage = path.read_bytes(), "got another kind of file, or a damaged one"
    for save, expected in (
        (TRAINERS[framework](Job("encoder")).save, "model 'matrix', got 'encoder'"),
        (TRAINERS[framework](Job(), dtype="float64").save, "dtype 'float32', got 'float64'"),
        (TRAINERS[other_framework](Job()).save, f"framework '{framework}', {damage}"),
        (lambda path, _: path.write_bytes(b""), f"framework '{framework}', {damage}"),
        (lambda path, _: path.write_bytes(whole[:-10]), "damaged"),
        (lambda path, _: path.write_bytes(whole.replace(b"float32", b"\xff\xfeoat32")), "damaged"),
    ):
        save(path, {})
        with pytest.raises(ValueError, match=expected) as caught:
            trainer.load(path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@FRAMEWORK
def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(framework, tmp_path, monkeypatch):
    trainer, path = TRAINERS[framework](Job()), tmp_path / "checkpoint"
    trainer.save(path, {"epoch": 1})
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "no space left on device")))
    with pytest.raises(OSError, match=f"no space left on device: '{path}'"):
        trainer.save(path, {"epoch": 2})
    assert trainer.load(path) == {"epoch": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_one_line_says_what_to_install_where_equinox_or_optax_is_missing(tmp_path: Path):
    program = "import jax_impl\ntry: import jax_impl.learning\nexcept ImportError as error: print(error)"
    done = run_compare(folders=(without(tmp_path, "optax"),), python=("-c", program))
    expected = "jax_impl.learning needs equinox and optax: pip install equinox optax ("
    assert done.stdout.startswith(expected) and "optax" in done.stdout.removeprefix(expected)
    assert done.stdout.count("\n") == 1


def test_pytorch_refuses_to_compile_a_step():
    with pytest.raises(ValueError, match="compiled must be False here"):
        TRAINERS["torch"](Job(), compiled=True)


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


def scripted(at: Iterable[int], **job: Any) -> Training:
    """A training whose n-th epoch is one step and predicts the first at[n] partners."""
    return Training(Fake(at), TRAIN[:1], VALIDATION, replace(JOB, epochs=len(tuple(at)), **job))


def interrupt(trainer: Any, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the midst of its step of this number."""
    step, taken = trainer.step, iter(range(1, at + 1))

    def until(batch: Batch) -> Any:
        loss = step(batch)
        if next(taken, None) == at:
            raise KeyboardInterrupt
        return loss

    monkeypatch.setattr(trainer, "step", until)


def without_seconds(training: Training) -> list[Any]:
    return [replace(epoch, seconds=0) for epoch in training.history]


def assert_same(training: Training, other: Training) -> None:
    assert without_seconds(training) == without_seconds(other)
    np.testing.assert_equal(training.trainer.weights(), other.trainer.weights())
    np.testing.assert_equal(training.best, other.best)


@pytest.mark.parametrize("trainer_of", [lambda _: Fake(), *TRAINERS.values()])
def test_a_training_interrupted_and_resumed_ends_as_one_that_was_not(trainer_of, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "pack", lambda pairs, random=None: PACK(pairs, random, cells=4 * 32**2))  # several steps
    whole = Training(trainer_of(JOB), TRAIN, VALIDATION, JOB)
    fit(whole)
    steps = whole.history[0].steps
    assert steps > 1
    for at in (1, steps + 2):  # in the first epoch, and in the second
        path, copy = tmp_path / f"{at}", tmp_path / f"copy of {at}"
        first = Training(trainer_of(JOB), TRAIN, VALIDATION, JOB, path)
        interrupt(first.trainer, at, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            fit(first)
        copy.write_bytes(path.read_bytes())
        resumed = Training(trainer_of(JOB), TRAIN, VALIDATION, JOB, copy)
        assert without_seconds(resumed) == without_seconds(first) == without_seconds(whole)[: (at - 1) // steps]
        for training in (resumed, first):
            fit(training)
            assert_same(training, whole)


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


def test_an_interrupted_training_without_a_checkpoint_cannot_go_on(monkeypatch):
    training = Training(Fake(), TRAIN, VALIDATION, JOB)
    interrupt(training.trainer, 2, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fit(training)
    with pytest.raises(RuntimeError, match="only a training with a checkpoint can go on"):
        training.epoch()


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
    for accepted in (JOB, replace(JOB, epochs=99, patience=9, target=0.5)):  # its own is not
        Training(Fake(), TRAIN, VALIDATION, accepted, path)
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
