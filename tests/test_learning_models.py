"""The trainers of both frameworks: equal to NumPy, to each other, and to themselves after a checkpoint."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import run_compare, without
from ragged_batches import gradients_of_first_step, ragged

import jax_impl.learning
import torch_impl.learning
from shared import reference
from shared.learning.batches import Batch
from shared.learning.job import DOUBT, Job
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
    found = gradients_of_first_step(trainer)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        # the worst seen is 2e-10: of the reference's differences
        assert np.abs(found[name] - gradient).max() < 1e-8 * np.abs(gradient).max(), name


@MODEL
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
    small = ragged(16)
    wide = ragged(25)
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
def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    trainer, path = TRAINERS[framework](Job()), tmp_path / "checkpoint"
    trainer.save(path, {"epoch": 1})

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"no space left on device: '{path}'"):
        trainer.save(path, {"epoch": 2})
    assert trainer.load(path) == {"epoch": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_without_equinox_or_optax_one_line_says_what_to_install(tmp_path: Path):
    for absent in ("equinox", "optax"):
        folder = tmp_path / absent
        folder.mkdir()
        program = "import jax_impl\ntry: import jax_impl.learning\nexcept ImportError as error: print(error)"
        done = run_compare(folders=(without(folder, absent),), python=("-c", program))
        expected = "jax_impl.learning needs equinox and optax: pip install equinox optax ("
        assert done.stdout.startswith(expected) and absent in done.stdout.removeprefix(expected)
        assert done.stdout.count("\n") == 1


def test_pytorch_refuses_to_compile_a_step():
    with pytest.raises(ValueError, match="compiled must be False here"):
        TRAINERS["torch"](Job(), compiled=True)
