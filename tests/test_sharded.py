"""Batches sharded over devices, in a process of its own, because JAX has to be told first that this CPU is several."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.mark.parametrize("tier", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_on_several_devices(tier: str):
    command = [sys.executable, "-m", "pytest", "-q", "-m", tier, "-p", "no:cacheprovider", "--noconftest"]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    environment.pop("PYTEST_XDIST_WORKER", None)
    command.append(str(TESTS / "sharded"))
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=TESTS.parent)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout and "skipped" not in ended.stdout
