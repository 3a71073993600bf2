"""Training by several processes, each of which checks that they do what one process does.

A process: python test_data_parallel.py FRAMEWORK INDEX COUNT MEETING FOLDER [CHECK …]. MEETING: an address in JAX, a
file in PyTorch.
"""

import contextlib
import importlib
import io
import os
import socket
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_families import gradients_of_first_step, made_up_family, ragged
from side_by_side_processes import run_together

from shared.learning import training as loop
from shared.learning.job import Job
from shared.learning.shards import dealt, divided
from shared.learning.training import Training, fit, print_progress
from shared.learning.weights import MODELS

SECONDS = 60  # without a sign of the others, after which a process ends
FAMILIES = [made_up_family("one", 1), made_up_family("two", 2)], [made_up_family("three", 3)]
JOB = Job(pairs_per_family=4, epochs=2)
PACK = loop.pack
FEW = ("check_predictions", "check_training")
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("framework", "count", "devices", "checks"),
    [
        ("jax", 2, 1, FEW),
        pytest.param("torch", 3, 1, ("check_steps", *FEW), marks=SLOW),
        pytest.param("jax", 2, 1, ("check_steps",), marks=SLOW),
        pytest.param("jax", 1, 2, ("check_steps", "check_predictions"), marks=SLOW),
    ],
)
def test_processes_train_as_one_does(framework, count, devices, checks, tmp_path):
    with socket.socket() as free:  # on a port that the system chooses
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = str(tmp_path / "meeting") if framework == "torch" else f"127.0.0.1:{port}"
    script = [sys.executable, __file__, framework]
    commands = [[*script, str(index), str(count), meeting, str(tmp_path), *checks] for index in range(count)]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    for text in run_together(commands, tmp_path, JAX_PLATFORMS="cpu", XLA_FLAGS=flags):
        assert text.endswith("all checked\n")


def test_pytorch_wants_a_process_group():
    import torch_impl.learning

    with pytest.raises(RuntimeError, match="data_parallel needs a process group: call"):
        torch_impl.learning.Trainer(Job(), data_parallel=True)


@pytest.mark.parametrize(("pairs", "shards"), [(7, 2), (2, 4), (1, 1), (12, 4)])
def test_shards_hold_every_pair_once_in_shapes_known_before(pairs: int, shards: int):
    batch = ragged(9, pairs=pairs)
    whole, places = divided(batch, shards)
    rows = -(-pairs // shards)
    assert sorted({*places}) == sorted(places)
    for ours, array in zip(whole, batch, strict=True):
        assert ours.shape == (shards * rows, *array.shape[1:]) and ours.dtype == array.dtype
        assert np.array_equal(ours[places], array)
    unused = np.setdiff1d(np.arange(shards * rows), places)
    assert not whole.weights[unused].any() and not whole.lengths[unused].any() and (whole.partners[unused] == -1).all()


def test_pairs_are_dealt_by_cells():
    lengths = np.sort(np.random.default_rng(0).integers(100, 151, (32, 2)), axis=0)
    cells = [int(lengths[shard].prod(1).sum()) for shard in dealt(lengths, 4)]
    assert max(cells) * 4 / sum(cells) < 1.01


class Processes:
    """This process and the others."""

    def __init__(self, framework: str, index: int, count: int, meeting: str, folder: Path) -> None:
        self.index, self.folder = index, folder
        if framework == "torch":
            import torch

            torch.set_num_threads(1)
            how = {"rank": index, "world_size": count, "timeout": timedelta(seconds=SECONDS)}
            torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", **how)
        elif count > 1:
            import jax

            jax.distributed.initialize(meeting, count, index, [0], heartbeat_timeout_seconds=SECONDS)
        self.learning = importlib.import_module(f"{framework}_impl.learning")

    def trainer(self, job: Job, dtype: str = "float64", data_parallel: bool = True) -> Any:
        return self.learning.Trainer(job, dtype=dtype, data_parallel=data_parallel)


# seven pairs, a number that no number of processes divides; and one pair, which leaves whole shards without
BATCHES = ragged(16, pairs=8), ragged(11, pairs=2)


def distance(result: Any, expected: Any) -> float:
    """The largest difference, as a part of the largest number; that of the worst array of several."""
    if isinstance(expected, dict):
        assert result.keys() == expected.keys()
        return max(distance(result[name], expected[name]) for name in expected)
    return float(np.abs(np.subtract(result, expected)).max() / np.abs(expected).max())


def check_steps(processes: Processes) -> None:
    """Gradients of the first step, and losses and weights after ten, within the bounds of docs/devices.md.

    Weights are worst in float32: Adam divides by gradients that may be near 0.
    """
    exactly = [(model, "float64", (1e-12, 1e-12, 1e-12)) for model in MODELS]
    for model, dtype, bounds in (*exactly, ("encoder", "float32", (1e-5, 1e-5, 1e-3))):
        alone, together = (processes.trainer(Job(model), dtype, parallel) for parallel in (False, True))
        losses = [[float(trainer.step(BATCHES[0])) for trainer in (alone, together)]]
        first = distance(*(gradients_of_first_step(trainer) for trainer in (together, alone)))
        for number in range(1, 10):
            losses.append([float(trainer.step(BATCHES[number % 2])) for trainer in (alone, together)])
        distances = first, distance(*np.transpose(losses)), distance(together.weights(), alone.weights())
        assert np.all(np.less(distances, bounds)), (model, dtype, distances)


def check_predictions(processes: Processes) -> None:
    alone, together = processes.trainer(Job(), data_parallel=False), processes.trainer(Job())
    for batch in BATCHES:
        assert distance(together.marginals(batch), alone.marginals(batch)) < 1e-14
        for exact in (False, True):
            assert np.array_equal(together.predicted(batch, exact), alone.predicted(batch, exact))


def check_training(processes: Processes) -> None:
    """Each process has a folder of its own, and only the first one's is used."""
    folder = processes.folder / str(processes.index)
    folder.mkdir()
    path = folder / "checkpoint"

    def training(data_parallel: bool, checkpoint: Path | None = path, train: Any = FAMILIES[0], **job: Any) -> Training:
        chosen = replace(JOB, **job)
        return Training(processes.trainer(chosen, data_parallel=data_parallel), train, FAMILIES[1], chosen, checkpoint)

    def same(one: Training, other: Training) -> None:
        for epoch, expected in zip(one.history, other.history, strict=True):
            assert epoch.quality == expected.quality
            assert epoch.loss == pytest.approx(expected.loss, rel=1e-12)
        assert distance(one.trainer.weights(), other.trainer.weights()) < 1e-12
        assert distance(one.best, other.best) < 1e-12

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "pack", lambda pairs, random=None: PACK(pairs, random, cells=4 * 32**2))  # several steps
        alone, interrupted = training(False, None), training(True)
        fit(alone)
        interrupted.epoch()
        resumed = training(True)
        assert resumed.history == interrupted.history or processes.index > 0
        with contextlib.redirect_stderr(io.StringIO()) as progress:
            fit(resumed, print_progress)
        assert progress.getvalue().startswith("epoch   2") == (processes.index == 0)
        same(resumed, alone)
        # gone on from by one process, and by all from what one has written
        longer = training(False, None, epochs=3)
        fit(longer)
        if processes.index == 0:
            path.with_name("of one").write_bytes(path.read_bytes())
            one = training(False, path.with_name("of one"), epochs=3)
            fit(one)
            same(one, longer)
        same(training(True, path.with_name("of one"), epochs=3), longer)

    # what process 0 finds is raised in all
    with pytest.raises(ValueError, match="the family two as it is here to train"):
        training(True, train=FAMILIES[0][:1])
    if processes.index == 0:
        path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="damaged"):
        training(True)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        training(True, folder / "nowhere" / "checkpoint")
    assert list(folder.iterdir()) == ([] if processes.index else [path, path.with_name("of one")])


if __name__ == "__main__":
    framework, index, count, meeting, folder, *names = sys.argv[1:]
    processes = Processes(framework, int(index), int(count), meeting, Path(folder))
    for name in names:
        globals()[name](processes)
    print("all checked")
