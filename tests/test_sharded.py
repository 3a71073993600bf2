"""Batches sharded over devices, in a process of its own, because JAX has to be told first that this CPU is several."""

import os
from pathlib import Path

import pytest
from side_by_side_processes import run_tests


@pytest.mark.timeout(900)  # these are many tests, with limits of their own
def test_on_several_devices(tmp_path: Path, pytestconfig: pytest.Config):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    run_tests("sharded", tmp_path, pytestconfig, "--noconftest", XLA_FLAGS=flags)
