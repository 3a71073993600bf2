"""Commands that run at the same time: the processes that a test is about."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parent
LIMIT = 300  # seconds, more than they take on a busy machine


def run_together(commands: Sequence[Sequence[str]], folder: Path, limit: float = LIMIT, **variables: str) -> list[str]:
    """The outputs of commands that run at the same time, with these variables in their environment.

    Fails with the outputs of those that end with an error, or with all past the limit; kills the others.
    """
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent)} | variables
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
