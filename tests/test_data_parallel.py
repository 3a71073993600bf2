"""Training by several processes, each a process of its own here: see data_parallel_process.py for what they check."""

import os
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
from ragged_batches import ragged
from side_by_side_processes import TESTS, run_together

from shared.learning.job import Job
from shared.learning.shards import dealt, divided


def run(framework: str, count: int, folder: Path, devices: int = 1, checks: tuple[str, ...] = ()) -> list[str]:
    """What each process says that checks training."""
    meeting = str(folder / "meeting") if framework == "torch" else f"127.0.0.1:{free_port()}"
    script = [sys.executable, str(TESTS / "data_parallel_process.py"), framework]
    commands = [[*script, str(index), str(count), meeting, str(folder), *checks] for index in range(count)]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return run_together(commands, folder, JAX_PLATFORMS="cpu", XLA_FLAGS=flags)


def free_port() -> int:
    """One that the system has chosen."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]


FEW = ("check_a_planted_mistake_is_seen", "check_predictions", "check_training")


@pytest.mark.parametrize(
    ("framework", "count", "devices", "checks"),
    [
        ("torch", 3, 1, FEW),
        ("jax", 2, 1, FEW),
        pytest.param("torch", 3, 1, (), marks=pytest.mark.slow),
        pytest.param("jax", 2, 1, (), marks=pytest.mark.slow),
        pytest.param("jax", 1, 2, ("check_gradients_and_ten_steps", "check_predictions"), marks=pytest.mark.slow),
    ],
)
def test_processes_train_as_one_does(framework, count, devices, checks, tmp_path):
    for text in run(framework, count, tmp_path, devices, checks):
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
    for own, array in zip(whole, batch, strict=True):
        assert own.shape == (shards * rows, *array.shape[1:]) and own.dtype == array.dtype
        assert np.array_equal(own[places], array)
    others = np.setdiff1d(np.arange(shards * rows), places)
    assert not whole.weights[others].any() and not whole.lengths[others].any() and (whole.partners[others] == -1).all()
    shard = divided(batch, shards).shard(shards - 1, shards)
    assert all(np.array_equal(own, array[-rows:]) for own, array in zip(shard, whole, strict=True))


def test_pairs_are_dealt_by_cells():
    lengths = np.array([[9, 9], [8, 10], [1, 1], [5, 5], [4, 6], [1, 2]])
    assert [own.tolist() for own in dealt(lengths, 2)] == [[0, 4, 5], [1, 2, 3]]
    sorted_lengths = np.sort(np.random.default_rng(0).integers(100, 151, (32, 2)), axis=0)
    cells = [int(sorted_lengths[shard].prod(1).sum()) for shard in dealt(sorted_lengths, 4)]
    assert max(cells) * 4 / sum(cells) < 1.01
