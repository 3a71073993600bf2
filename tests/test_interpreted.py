"""The GPU kernels run, on this CPU, in Triton's interpreter, which has to be on before Triton is imported."""

import importlib.util
from pathlib import Path

import pytest
from side_by_side_processes import run_tests


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.timeout(900)  # these are many tests, with limits of their own
@pytest.mark.parametrize("tier", ["not slow and not cuda", pytest.param("slow and not cuda", marks=pytest.mark.slow)])
def test_gpu_kernels_are_right_in_the_interpreter(tier: str, tmp_path: Path):
    run_tests("interpreted", tmp_path, "-m", tier, TRITON_INTERPRET="1")
