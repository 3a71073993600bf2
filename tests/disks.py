"""A disk of its own, small enough to be filled."""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(at: Path, size: str) -> Iterator[Path]:
    """A file system with room for this much ("64k"); skips the test where none can be mounted."""
    if sys.platform != "linux" or shutil.which("mount") is None:
        pytest.skip("needs Linux to make a small disk")
    folder = at / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
