"""The GPU kernels run, on this CPU, in Triton's interpreter: in a process of its own, because it has to be on before
Triton is imported."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.timeout(900)  # these are many tests, with limits of their own
@pytest.mark.parametrize("tier", ["not slow and not cuda", pytest.param("slow and not cuda", marks=pytest.mark.slow)])
def test_gpu_kernels_are_right_in_the_interpreter(tier: str, tmp_path: Path):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", tier, str(TESTS / "interpreted")]
    environment = os.environ | {"TRITON_INTERPRET": "1", "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=TESTS.parent)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout and "skipped" not in ended.stdout
