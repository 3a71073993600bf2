"""The C++ that launches kernels for XLA, on a CUDA driver that only says what it was asked for: in a process of its
own, because that driver has the true one's name, and has to be loaded before any framework."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_with_a_driver_that_listens(tmp_path: Path):
    # no conftest.py: it imports PyTorch
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest"]
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH", "")])),
        "TMPDIR": str(tmp_path),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
    }
    for name in ("PYTEST_XDIST_WORKER", "TRITON_INTERPRET"):
        environment.pop(name, None)
    ended = subprocess.run(
        [*command, str(TESTS / "launches")], capture_output=True, text=True, env=environment, cwd=TESTS.parent
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout and "failed" not in ended.stdout
