"""The interpreters of `--python`, in which workers of a framework run: another version of it, or the only one.

Each is asked once, before anything is measured, whether a worker could start there and what it has. Workers run the
code of this checkout with that interpreter's packages.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from shared.bench.cases import FRAMEWORKS, Settings
from shared.bench.run import worker_handle
from shared.problems.problem import UnusableInput

# [LABEL:]FRAMEWORK=PATH; a label may be part of a file's name
_FORM = re.compile(rf"(?:(?P<label>[\w.+-]+):)?(?P<framework>{'|'.join(FRAMEWORKS)})=(?P<path>.+)")
_ROOT = Path(__file__).resolve().parents[3]
# of its imports on a busy machine
_PATIENCE_SECONDS = 300.0
# what an interpreter of any version can run: all that a worker imports, and what it then is
_ASK = """
import sys

def tell(**found):
    import json
    print(json.dumps(found))
    sys.exit()

python = "%d.%d.%d" % sys.version_info[:3]
if sys.version_info < (3, 11):
    tell(problem="a worker needs Python 3.11 or newer, this is " + python)
framework, device = sys.argv[1:]
import importlib
import importlib.metadata
try:
    import shared.bench.worker.commands
    backend = importlib.import_module(framework + "_impl.backend")
except ModuleNotFoundError as error:
    tell(problem="a worker cannot start there: %s" % error)
except Exception as error:
    has = framework, importlib.metadata.version(framework), type(error).__name__, error
    tell(problem="%s %s cannot run this code: %s: %s" % has)
if device != "cpu" and backend.device_problem(device):
    tell(problem=backend.device_problem(device))
import numpy
tell(version=backend.environment(device)[framework], python=python, numpy=numpy.__version__)
"""


class Interpreter(NamedTuple):
    """One that has a framework."""

    framework: str
    label: str  # the framework's version, unless the user has named another
    version: str
    command: tuple[str, ...] | None  # that starts a worker in it; None for the usual one
    about: str  # one line


def named(text: str) -> str:
    """An argument of `--python`, if it has the right form."""
    if not _FORM.fullmatch(text):
        forms = " or ".join(f"[LABEL:]{framework}=PATH" for framework in FRAMEWORKS)
        raise ArgumentTypeError(f"expected {forms}, got {text!r}")
    return text


def elsewhere(settings: Settings) -> dict[str, Interpreter]:
    """By framework, the interpreter in which its workers run instead of in this one. Raises UnusableInput."""
    found: dict[str, Interpreter] = {}
    for each in _those_named(settings):
        if each.framework in found:
            raise UnusableInput(
                f"{settings.question} takes one --python for {FRAMEWORKS[each.framework]}, got several; "
                "the question versions compares them"
            )
        found[each.framework] = each
    return found


def every_version(settings: Settings) -> list[Interpreter]:
    """Of each framework that `--python` names: those named, or the only one and this interpreter; the oldest version
    first, equal ones in this order. Raises UnusableInput."""
    every = list(_those_named(settings))
    if not every:
        raise UnusableInput("versions needs another interpreter: --python jax=PATH or --python torch=PATH")
    found: list[Interpreter] = []
    for framework in dict.fromkeys(each.framework for each in every):
        own = [each for each in every if each.framework == framework]
        if len(own) == 1:
            facts = _asked(sys.executable, framework, settings.device)
            if "problem" in facts:
                raise UnusableInput(
                    f"versions needs two interpreters with {FRAMEWORKS[framework]}, got one --python; in this one: "
                    f"{facts['problem']}"
                )
            own.append(_interpreter(framework, "", None, facts))
        labels = [each.label for each in own]
        if twice := [label for label in labels if labels.count(label) > 1]:
            raise UnusableInput(
                f"two interpreters are called {FRAMEWORKS[framework]} {twice[0]}: name one of them, as in "
                f"--python NAME:{framework}=PATH"
            )
        found += sorted(own, key=lambda each: _release(each.version))
    return found


def _those_named(settings: Settings) -> Iterator[Interpreter]:
    """Raises UnusableInput."""
    parts = [found.groupdict() for text in settings.pythons if (found := _FORM.fullmatch(text))]
    for part in parts:
        if part["framework"] not in settings.frameworks:
            framework, others = part["framework"], ", ".join(settings.frameworks)
            raise UnusableInput(f"--python {framework}=PATH goes with --framework {framework}, got {others}")

    def ask(part: dict[str, str]) -> dict[str, Any]:
        return _asked(os.path.expanduser(part["path"]), part["framework"], settings.device)

    with ThreadPoolExecutor() as pool:  # each takes seconds
        every = list(pool.map(ask, parts))
    for part, facts in zip(parts, every, strict=True):
        framework, path = part["framework"], part["path"]
        if "problem" in facts:
            raise UnusableInput(f"--python {framework}={path}: {facts['problem']}")
        command = (os.path.expanduser(path), *worker_handle.WORKER_COMMAND[1:])
        yield _interpreter(framework, part["label"] or "", command, facts)


def _interpreter(framework: str, label: str, command: tuple[str, ...] | None, facts: dict[str, Any]) -> Interpreter:
    version = facts["version"]
    name = f"{FRAMEWORKS[framework]} {label}, which is {version}" if label else f"{FRAMEWORKS[framework]} {version}"
    about = f"{name}: in Python {facts['python']} with NumPy {facts['numpy']}"
    return Interpreter(framework, label or version, version, command, about)


@functools.cache
def _asked(path: str, framework: str, device: str) -> dict[str, Any]:
    """The versions of an interpreter, or the problem with it, in one line."""
    if shutil.which(path) is None:
        return {"problem": "expected a Python interpreter, there is no such program"}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))}
    command = [path, "-W", "ignore", "-c", _ASK, framework, device]
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_SECONDS,
        )
        facts = json.loads((done.stdout.splitlines() or [""])[-1])
        return {name: " ".join(text.split())[:300] for name, text in facts.items()}
    except ValueError:
        printed = (done.stderr + done.stdout).split("\n")
        last = next((line.strip() for line in reversed(printed) if line.strip()), "nothing")
        return {"problem": f"expected a Python interpreter, it printed: {last[:300]}"}
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"problem": f"expected a Python interpreter: {error}"}


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a version, without what follows them: 2.13.0+cpu is (2, 13, 0)."""
    numbers = re.match(r"[\d.]*", version)
    return tuple(int(number) for number in numbers[0].split(".") if number) if numbers else ()
