"""Processes on gloo: modules that are wrapped by DDP and FSDP2, and DTensors, give what one process gives."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LIMIT = 300  # seconds


def run(commands: list[list[str]], folder: Path, limit: float = LIMIT) -> list[str]:
    """The outputs of commands that run at the same time.

    Fails with the output of the first that ends with an error, or with all outputs past the limit; kills the others.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")])}
    files = [folder / f"{rank}.txt" for rank in range(len(commands))]
    processes = []
    try:
        for command, file in zip(commands, files, strict=True):
            with file.open("w") as output:
                own = subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=folder)
            processes.append(own)
        end = time.monotonic() + limit
        while any(process.poll() is None for process in processes):
            for file, process in zip(files, processes, strict=True):
                assert not process.poll(), file.read_text()
            assert time.monotonic() < end, f"not done after {limit:g} s:\n" + "\n".join(f.read_text() for f in files)
            time.sleep(0.05)
        outputs = [file.read_text() for file in files]
        assert not any(process.returncode for process in processes), "\n".join(outputs)
        return outputs
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize("count", [2, 4])
def test_processes_give_what_one_gives(count: int, tmp_path: Path):
    script = [sys.executable, "-W", "ignore", str(TESTS / "torch_processes.py")]
    outputs = run([[*script, str(rank), str(count), str(tmp_path / "store")] for rank in range(count)], tmp_path)
    assert all("check_ddp " in output for output in outputs)


def test_a_process_that_dies_or_hangs_fails_the_test(tmp_path: Path):
    sleeping, dying = [[sys.executable, "-c", code] for code in ("import time; time.sleep(60)", "1 / 0")]
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run([sleeping, dying], tmp_path)
    with pytest.raises(AssertionError, match="not done after"):
        run([sleeping], tmp_path, 0.2)
