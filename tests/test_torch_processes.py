"""Processes on gloo: modules that are wrapped by DDP and FSDP2, and DTensors, give what one process gives."""

import sys
from pathlib import Path

import pytest
from side_by_side_processes import TESTS, run_together

COUNT = 3  # of the shares in torch_processes.py


def test_processes_give_what_one_gives(tmp_path: Path):
    script = [sys.executable, "-W", "ignore", str(TESTS / "torch_processes.py")]
    outputs = run_together([[*script, str(rank), str(tmp_path / "store")] for rank in range(COUNT)], tmp_path)
    assert all("check_compiled " in output for output in outputs)


def test_a_process_that_dies_or_hangs_fails_the_test(tmp_path: Path):
    sleeping, dying = [[sys.executable, "-c", code] for code in ("import time; time.sleep(60)", "1 / 0")]
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_together([sleeping, dying], tmp_path)
    with pytest.raises(AssertionError, match="not done after"):
        run_together([sleeping], tmp_path, 0.2)
