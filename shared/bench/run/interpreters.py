"""The interpreters of `--python`, where a framework has another version, or is installed at all.

Each is asked once, before anything is measured, whether a worker could start there and what it has. Workers run the
code of this checkout with that interpreter's packages.
"""

import functools
import json
import os
import re
import subprocess
import sys
from argparse import ArgumentTypeError
from typing import NamedTuple

from shared.bench.cases import FRAMEWORKS, Settings
from shared.bench.measure.machine import ROOT
from shared.bench.run import worker_handle
from shared.problems.problem import UnusableInput

# [LABEL:]FRAMEWORK=PATH; labels are used in file names
_FORM = re.compile(rf"(?:([\w.+-]+):)?({'|'.join(FRAMEWORKS)})=(.+)")
_PATIENCE_SECONDS = 300.0  # for imports on a busy machine
# imports all that a worker does, and prints a line of JSON; any version of Python can read it
_ASK = """
import sys
if sys.version_info < (3, 11):
    sys.exit("it needs Python 3.11 or newer, this is %d.%d" % sys.version_info[:2])
framework, device = sys.argv[1:]
import importlib, json, numpy, shared.bench.worker.commands
backend = importlib.import_module(framework + "_impl.backend")
if device != "cpu" and backend.device_problem(device):
    sys.exit(backend.device_problem(device))
print(json.dumps([backend.environment(device)[framework], "%d.%d.%d" % sys.version_info[:3], numpy.__version__]))
"""


class Interpreter(NamedTuple):
    """An interpreter that has a framework."""

    framework: str
    label: str  # the framework's version, unless the user has named another
    version: str
    command: tuple[str, ...] | None  # that starts a worker in it; None for the usual one
    about: str  # one line


def parse_python(text: str) -> str:
    """An argument of `--python`, if it has the right form."""
    if not _FORM.fullmatch(text):
        forms = " or ".join(f"[LABEL:]{framework}=PATH" for framework in FRAMEWORKS)
        raise ArgumentTypeError(f"expected {forms}, got {text!r}")
    return text


def interpreters(settings: Settings) -> dict[str, list[Interpreter]]:
    """The interpreters that `--python` names, by framework. Raises UnusableInput."""
    by_framework: dict[str, list[Interpreter]] = {}
    for text in settings.pythons:
        label, framework, path = _FORM.fullmatch(text).groups()  # pyright: ignore[reportOptionalMemberAccess]
        if framework not in settings.frameworks:
            chosen = ", ".join(settings.frameworks)
            raise UnusableInput(f"--python {framework}=PATH goes with --framework {framework}, got {chosen}")
        command = os.path.expanduser(path), *worker_handle.WORKER_COMMAND[1:]
        by_framework.setdefault(framework, []).append(_interpreter(framework, label, command, settings.device))
    return by_framework


def other_interpreters(settings: Settings) -> dict[str, Interpreter]:
    """The interpreter of each framework whose workers run in another than this one. Raises UnusableInput."""
    by_framework = interpreters(settings)
    for framework, several in by_framework.items():
        if len(several) > 1:
            raise UnusableInput(
                f"{settings.question} takes one --python for {FRAMEWORKS[framework]}, got several; the question "
                "versions compares them"
            )
    return {framework: only for framework, (only,) in by_framework.items()}


def every_version(settings: Settings) -> list[Interpreter]:
    """The interpreters of each framework that `--python` names, and this one if it names only one; the oldest version
    first. Raises UnusableInput."""
    if not settings.pythons:
        raise UnusableInput("versions needs another interpreter: --python jax=PATH or --python torch=PATH")
    every: list[Interpreter] = []
    for framework, versions in interpreters(settings).items():
        if len(versions) == 1:
            versions.append(_interpreter(framework, None, None, settings.device))
        labels = [version.label for version in versions]
        if twice := [label for label in labels if labels.count(label) > 1]:
            raise UnusableInput(
                f"two interpreters are called {FRAMEWORKS[framework]} {twice[0]}: name one of them, as in "
                f"--python NAME:{framework}=PATH"
            )
        every += sorted(versions, key=lambda each: [int(number) for number in re.findall(r"\d+", each.version)[:3]])
    return every


def _interpreter(framework: str, label: str | None, command: tuple[str, ...] | None, device: str) -> Interpreter:
    """Ask an interpreter what it has; without a command this one. Raises UnusableInput."""
    version, python, numpy = _ask(command[0] if command else sys.executable, framework, device)
    name = f"{FRAMEWORKS[framework]} {f'{label}, which is {version}' if label else version}"
    return Interpreter(framework, label or version, version, command, f"{name}: in Python {python} with NumPy {numpy}")


@functools.cache
def _ask(path: str, framework: str, device: str) -> tuple[str, str, str]:
    """The versions of the framework, of Python and of NumPy. Raises UnusableInput."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    command = [path, "-W", "ignore", "-c", _ASK, framework, device]
    pipes = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    try:
        done = subprocess.run(command, env=environment, timeout=_PATIENCE_SECONDS, check=False, **pipes)
        version, python, numpy = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        problem = next(filter(None, reversed(f"{done.stdout}\n{done.stderr}".splitlines())), "it printed nothing")
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    else:
        return version, python, numpy
    raise UnusableInput(f"--python {framework}={path}: no worker can start there: {problem.strip()[:300]}")
