"""Batches sharded over devices, in a process of its own, because JAX has to be told first that this CPU is several."""

import os
from pathlib import Path

import pytest
from side_by_side_processes import run_tests


@pytest.mark.parametrize("tier", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_on_several_devices(tier: str, tmp_path: Path):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    run_tests("sharded", tmp_path, "--noconftest", "-m", tier, XLA_FLAGS=flags)
