"""Processes on gloo: modules that are wrapped by DDP and FSDP2, and DTensors, give what one process gives."""

import sys
from pathlib import Path

import pytest
from side_by_side_processes import TESTS, run_together

from shared.alignments import ALIGNMENTS

COUNT = 3  # of the shares in torch_processes.py


@pytest.mark.parametrize("names", [["smith_waterman"], pytest.param([*ALIGNMENTS], marks=pytest.mark.slow)], ids=len)
def test_processes_give_what_one_gives(tmp_path: Path, names: list[str]):
    script = [sys.executable, "-W", "ignore", str(TESTS / "torch_processes.py")]
    commands = [[*script, str(rank), str(tmp_path / "store"), *names] for rank in range(COUNT)]
    assert all("all checked" in output for output in run_together(commands, tmp_path))


def test_a_process_that_dies_or_hangs_fails_the_test(tmp_path: Path):
    sleeping, dying = [[sys.executable, "-c", code] for code in ("import time; time.sleep(60)", "1 / 0")]
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_together([sleeping, dying], tmp_path)
    with pytest.raises(AssertionError, match="not done after"):
        run_together([sleeping], tmp_path, 0.2)
