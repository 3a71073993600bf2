"""compare.py as a user runs it: a process of its own; and folders that plant faults in what it imports."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shared.bench.record import Record
from shared.problems import PROBLEMS

ROOT = Path(__file__).parents[1]
COMPARE = str(ROOT / "compare.py")
PASSES = tuple(dict.fromkeys(name for problem in PROBLEMS.values() for name in problem.passes))
# the least that has an interval: one fresh worker, two rounds
TINY = (
    *("--input", "random", "--size", "6x7", "--batch", "3", "--threads", "1"),
    *("--workers", "1", "--rounds", "2"),
)
JAX = (*TINY, "--framework", "jax", "--variant", "vmap")

TWO = (*TINY, "--framework", "jax", "--variant", "scan_select,vmap", "--pass", "score")

# longer than any run here takes on a busy machine
SECONDS = 240

# Runs at the start of every Python process: when one of these modules has been imported, its function gets it.
_WHEN_IMPORTED = '''
import importlib.util, os, signal, sys, time


class WhenImported:
    """A finder of modules that adds a patch to the end of their import."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        patch = PATCHES.pop(name, None)
        if patch is None:
            return None
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_patch(module):
            load(module)
            patch(module)

        spec.loader.exec_module = load_and_patch
        return spec


sys.meta_path.insert(0, WhenImported)
'''

_NOT_INSTALLED = 'raise ImportError("No module named {name!r}")\n'

# what a case of TWO does in its second block
_IN_THE_SECOND_BLOCK = """
def with_a_fault(runner):
    sample, blocks = runner.Runner.sample, []

    def sample_or_not(self, case, **arguments):
        if case["variant"] == "scan_select":
            blocks.append(case)
            if len(blocks) == 2:
                {fault}
        return sample(self, case, **arguments)

    runner.Runner.sample = sample_or_not


PATCHES = {{"shared.bench.runner": with_a_fault}}
"""
# the worker is killed, as the system does
KILLED_WHILE_TIMED = _IN_THE_SECOND_BLOCK.format(fault="os.kill(os.getpid(), signal.SIGKILL)")
HANGING = _IN_THE_SECOND_BLOCK.format(fault="time.sleep(600)")


def environment(*folders: Path) -> dict[str, str]:
    """This process's environment, with folders that Python looks into first."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}


def run_compare(
    *arguments: str,
    folders: tuple[Path, ...] = (),
    cwd: Path = ROOT,
    python: tuple[str, ...] = (COMPARE,),
    more: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    """Run it to its end. more: of its environment."""
    command, variables = [sys.executable, *python, *arguments], {**environment(*folders), **more}
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=SECONDS, check=False)


def plant(folder: Path, patches: str) -> Path:
    """A folder for `run_compare` in which `patches` defines PATCHES: module name -> function of the imported module."""
    (folder / "sitecustomize.py").write_text(f"{_WHEN_IMPORTED}\n{patches}")
    return folder


def without(folder: Path, *frameworks: str) -> Path:
    """A folder for `run_compare` in which these frameworks cannot be imported."""
    for name in frameworks:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(_NOT_INSTALLED.format(name=name))
    return folder


COLUMNS = ("compiled", "first call", "new process", "new shape", "median", "95% interval", "GCUPS", "memory")


def rows(output: str) -> dict[tuple[str, str, str], dict[str, str]]:
    """(pass, framework, variant) -> column -> cell, of every row of the printed table; empty cells are left out."""
    split = [re.split(r"\s{2,}", line.strip()) for line in output.splitlines()]
    return {
        (cells[0], cells[1], cells[2]): dict(zip(COLUMNS, cells[3:], strict=False))
        for cells in split
        if cells[0] in PASSES and len(cells) > 3
    }


def verdicts(output: str) -> list[str]:
    """The lines of plain words below the table."""
    return [line for line in output.splitlines() if line.startswith(tuple(f"{name}: " for name in PASSES))]


def stored(path: Path) -> dict[str, Any]:
    """A record's JSON; also that it can be read as one."""
    Record.read(path)
    return json.loads(path.read_text())
