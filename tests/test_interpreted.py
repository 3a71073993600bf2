"""The GPU kernels run, on this CPU, in Triton's interpreter, which has to be on before Triton is imported."""

import importlib.util
from pathlib import Path

import pytest
from side_by_side_processes import run_tests


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.timeout(900)  # these are many tests, with limits of their own
def test_gpu_kernels_are_right_in_the_interpreter(tmp_path: Path, pytestconfig: pytest.Config):
    run_tests("interpreted", tmp_path, pytestconfig, TRITON_INTERPRET="1")
