"""One of the processes that train together, and what each of them checks: that they do what one process does.

python data_parallel_process.py FRAMEWORK INDEX COUNT MEETING FOLDER [CHECK …]. MEETING: an address in JAX, a
file in PyTorch.
"""

import contextlib
import importlib
import io
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_families import made_up_family
from ragged_batches import gradients_of_first_step, ragged

from shared.learning import training as loop
from shared.learning.batches import Batch
from shared.learning.job import Job
from shared.learning.training import Training, fit, print_progress
from shared.learning.weights import MODELS

SECONDS = 60  # without a sign of the others, after which a process ends
FAMILIES = [made_up_family("one", 1), made_up_family("two", 2)], [made_up_family("three", 3)]
JOB = Job(pairs_per_family=4, epochs=2)
PACK = loop.pack


class Processes:
    """This process and the others."""

    def __init__(self, framework: str, index: int, count: int, meeting: str, folder: Path) -> None:
        self.framework, self.index, self.count, self.folder = framework, index, count, folder
        if framework == "torch":
            import torch

            torch.set_num_threads(1)
            how = {"rank": index, "world_size": count, "timeout": timedelta(seconds=SECONDS)}
            torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", **how)
            self.shards = count
        else:
            import jax

            if count > 1:
                jax.distributed.initialize(meeting, count, index, [0], heartbeat_timeout_seconds=SECONDS)
            self.shards = jax.device_count()
        self.trainers = importlib.import_module(f"{framework}_impl.learning.trainer")

    def trainer(self, job: Job, dtype: str = "float64", data_parallel: bool = True) -> Any:
        return self.trainers.Trainer(job, dtype=dtype, data_parallel=data_parallel)

    def both(self, job: Job, dtype: str = "float64") -> tuple[Any, Any]:
        """A trainer of this process alone, and one of all of them."""
        return self.trainer(job, dtype, False), self.trainer(job, dtype)


def batches() -> list[Batch]:
    """Seven pairs, a number that no number of processes divides; and one pair, which leaves whole shards without."""
    return [ragged(16, pairs=8), ragged(11, pairs=2)]


def distance(result: Any, expected: Any) -> float:
    """The largest difference, as a part of the largest number; that of the worst array of several."""
    if isinstance(expected, dict):
        assert result.keys() == expected.keys()
        return max(distance(result[name], expected[name]) for name in expected)
    return float(np.abs(np.subtract(result, expected)).max() / np.abs(expected).max())


def after_steps(alone: Any, together: Any, steps: int = 10) -> list[float]:
    """Distances of the gradients of the first step, and of losses and weights after all."""
    given, losses = batches(), []
    for number in range(steps):
        losses.append([float(trainer.step(given[number % 2])) for trainer in (alone, together)])
        if number == 0:
            first = [distance(*(gradients_of_first_step(trainer) for trainer in (together, alone)))]
    return [*first, distance(*np.transpose(losses)), distance(together.weights(), alone.weights())]


def check_gradients_and_ten_steps(processes: Processes) -> None:
    for model in MODELS:
        distances = after_steps(*processes.both(Job(model)))
        assert max(distances) < 1e-12, (model, distances)


def check_float32(processes: Processes) -> None:
    """docs/devices.md has these bounds. Weights are last, and worst: Adam divides by gradients that may be near 0."""
    distances = after_steps(*processes.both(Job("encoder"), "float32"))
    assert np.all(np.less(distances, (1e-5, 1e-5, 1e-3))), distances


def check_a_planted_mistake_is_seen(processes: Processes) -> None:
    """Means of the shards' pairs, averaged in PyTorch, as DistributedDataParallel does, and summed in JAX."""
    right = processes.trainers._cross_entropy

    def wrong(expected: Any, batch: Any, weight: Any) -> Any:
        return right(expected, batch, batch.weights.sum())

    alone, together = processes.both(JOB)
    # of 3 pairs, 2 fall to one shard of two; of 4, to one of three
    batch = ragged(11, pairs=2 + processes.shards)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes.trainers, "_cross_entropy", wrong)
        for trainer in (alone, together):
            trainer.step(batch)
    assert distance(*(gradients_of_first_step(trainer) for trainer in (together, alone))) > 1e-2


def check_predictions(processes: Processes) -> None:
    alone, together = processes.both(Job())
    for batch in batches():
        assert distance(together.marginals(batch), alone.marginals(batch)) < 1e-14
        for exact in (False, True):
            assert np.array_equal(together.predicted(batch, exact), alone.predicted(batch, exact))


def check_training(processes: Processes) -> None:
    """Each process has a folder of its own, and only the first one's is used."""
    folder = processes.folder / str(processes.index)
    folder.mkdir()
    path = folder / "checkpoint"

    def training(data_parallel: bool, checkpoint: Path | None = path, train: Any = FAMILIES[0], **job: Any) -> Training:
        wanted = replace(JOB, **job)
        return Training(processes.trainer(wanted, data_parallel=data_parallel), train, FAMILIES[1], wanted, checkpoint)

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


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]

if __name__ == "__main__":
    framework, index, count, meeting, folder, *names = sys.argv[1:]
    checks = [globals()[name] for name in names] if names else CHECKS
    processes = Processes(framework, int(index), int(count), meeting, Path(folder))
    for check in checks:
        check(processes)
    print("all checked")
