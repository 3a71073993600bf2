"""Commands that run at the same time, in processes of their own; and a folder of tests that needs one for itself."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LIMIT = 300  # seconds, more than they take on a busy machine


def run_together(commands: Sequence[Sequence[str]], folder: Path, limit: float = LIMIT, **variables: str) -> list[str]:
    """The outputs of commands that run at the same time, with these variables in their environment.

    Fails with the outputs of those that end with an error, or with all past the limit; kills the others.
    """
    environment = os.environ | {"PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}"} | variables
    environment.pop("PYTEST_XDIST_WORKER", None)
    files = [folder / f"{index}.txt" for index in range(len(commands))]
    running: list[subprocess.Popen[bytes]] = []
    end = time.monotonic() + limit
    try:
        for command, file in zip(commands, files, strict=True):
            with file.open("w") as output:
                running.append(subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=folder))
        codes = [process.poll() for process in running]
        while None in codes and not any(codes) and time.monotonic() < end:
            time.sleep(0.05)
            codes = [process.poll() for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    said = [file.read_text() for file in files]
    titles = [f"process {index} of {len(commands)}: {code}\n{said[index]}" for index, code in enumerate(codes)]
    assert not any(codes), "\n".join(title for title, code in zip(titles, codes, strict=True) if code)
    assert None not in codes, f"not done after {limit:g} s:\n" + "\n".join(titles)
    return said


def run_tests(name: str, folder: Path, config: pytest.Config, *options: str, **variables: str) -> None:
    """Run the tests of this tier in a folder of this one, of which none may be skipped, in a process of its own."""
    tier = config.getoption("markexpr")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", tier, *options, str(TESTS / name)]
    variables |= {"JAX_PLATFORMS": "cpu", "TMPDIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}
    (said,) = run_together([command], folder, 900, **variables)
    assert " passed" in said and "skipped" not in said
