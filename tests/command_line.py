"""compare.py as a user runs it: a process of its own; and folders in which a framework cannot be imported."""

import os
import re
import subprocess
import sys
from pathlib import Path

from shared.bench.units import NOTHING
from shared.problems import PROBLEMS

ROOT = Path(__file__).parents[1]
COMPARE = str(ROOT / "compare.py")
PASSES = tuple(dict.fromkeys(name for problem in PROBLEMS.values() for name in problem.passes))
# the least that has an interval: one fresh worker, two rounds
LEAST = ("--threads", "1", "--workers", "1", "--rounds", "2")
TINY = ("--input", "random", "--size", "6x7", "--batch", "3", *LEAST)

# longer than any run here takes on a busy machine
SECONDS = 240

_NOT_INSTALLED = 'raise ModuleNotFoundError("No module named {name!r}")\n'


def environment(*folders: Path) -> dict[str, str]:
    """This process's environment, with folders that Python looks into first, and with lines left whole."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders)), "COLUMNS": "1000"}


def run_compare(
    *arguments: str, folders: tuple[Path, ...] = (), cwd: Path = ROOT, python: tuple[str, ...] = (COMPARE,)
) -> subprocess.CompletedProcess[str]:
    """Run it to its end. python: what Python executes."""
    command = [sys.executable, *python, *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment(*folders), capture_output=True, text=True, timeout=SECONDS, check=False
    )


def without(folder: Path, *frameworks: str) -> Path:
    """A folder for `run_compare` in which these frameworks cannot be imported."""
    for name in frameworks:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(_NOT_INSTALLED.format(name=name))
    return folder


def rows(output: str) -> dict[tuple[str, str, str], dict[str, str]]:
    """(pass, framework, variant) -> column -> cell, of every row of the table of all cases; without empty cells."""
    lines = output[output.rindex("All cases\n") :].splitlines()[2:]
    ruler = next(number for number, line in enumerate(lines) if line.startswith("---"))
    columns = [match.span() for match in re.finditer("-+", lines[ruler])]
    cells = [[line[start:end].strip() for start, end in columns] for line in lines[: [*lines, ""].index("")]]
    headers = [" ".join(filter(None, parts)) for parts in zip(*cells[:ruler], strict=True)]
    table = [dict(zip(headers, row, strict=True)) for row in cells[ruler + 1 :]]
    return {
        (row.pop("pass"), row.pop("framework"), row.pop("variant")): {
            column: cell for column, cell in row.items() if cell != NOTHING
        }
        for row in table
    }


def verdicts(output: str) -> list[str]:
    """The sentence on each pass."""
    return [line for line in output.splitlines() if line.startswith(tuple(f"{name}: " for name in PASSES))]
