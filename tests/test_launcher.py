"""The C++ that launches kernels for XLA, on a CUDA driver that only says what it was asked for."""

import importlib.util
from pathlib import Path

import pytest
from side_by_side_processes import run_tests


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.timeout(900)  # these are many tests, with limits of their own
def test_launches_reach_a_driver_that_listens(tmp_path: Path, pytestconfig: pytest.Config):
    # that driver has the true one's name, and has to be loaded before PyTorch, which conftest.py imports
    run_tests("launches", tmp_path, pytestconfig, "--noconftest")
