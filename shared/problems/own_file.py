"""A user's Python file: executed, and its functions called, with errors in one line that name what is wrong in it.

It defines `inputs(seed)`, `reference(*inputs)`, `jax_function(*arrays)` or `torch_function(*tensors)` or both, and
perhaps `passes`. The first two run where no framework may be imported.
"""

import contextlib
import functools
import hashlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from shared.problems.problem import UnusableInput

PASSES = ("value", "gradient")
_FUNCTIONS = ("jax_function", "torch_function")
_FRAMEWORKS = ("jax", "torch")
# PyTorch's compiler looks a function's module up by its name
_MODULE = "own_problem_file"
# the environment variables that files have set in this process, each with the name of its file
SET_BY_FILES: dict[str, str] = {}


class OwnFile:
    """The file, executed. Everything raises UnusableInput."""

    def __init__(self, path: str) -> None:
        self.path = Path(path).resolve()
        try:
            source = self.path.read_bytes()
        except OSError as error:
            raise UnusableInput(f"cannot read {path}: {error.strerror}") from None
        self.sha256 = hashlib.sha256(source).hexdigest()[:16]
        self._values = _executed(self.path, source)
        for name in ("inputs", "reference"):
            self.function(name)
        if all(map(self.lacks, _FUNCTIONS)):
            raise UnusableInput(f"{self.path.name} must define {' or '.join(_FUNCTIONS)}, got neither")

    @property
    def passes(self) -> tuple[str, ...]:
        """The passes that are measured if none is named."""
        passes = self._values.get("passes", PASSES[:1])
        if not isinstance(passes, tuple) or not passes or not all(name in PASSES for name in passes):
            raise UnusableInput(f"{self.path.name}: passes must be a tuple of {' or '.join(PASSES)}, got {passes!r}")
        return tuple(dict.fromkeys(passes))

    def lacks(self, name: str) -> bool:
        """Whether it does not define this."""
        return name not in self._values

    def function(self, name: str) -> Callable[..., Any]:
        """One of its functions."""
        if self.lacks(name):
            raise UnusableInput(f"{self.path.name} must define the function {name}, got none")
        if not callable(self._values[name]):
            kind = type(self._values[name]).__name__
            raise UnusableInput(f"{self.path.name}: {name} must be a function, got {kind}")
        return self._values[name]

    def call(self, name: str, *arguments: Any) -> Any:
        """The result of `inputs` or `reference`."""
        function = self.function(name)
        with _explained(self.path):
            return function(*arguments)


def own_function(options: dict[str, Any], name: str) -> Callable[..., Any]:
    """A function of the file that a case's options name. Raises UnusableInput if the file was changed meanwhile."""
    file = OwnFile(options["file"])
    if file.sha256 != options["sha256"]:
        raise UnusableInput(f"{file.path.name} was changed during the run")
    return file.function(name)


@functools.lru_cache(maxsize=1)  # once in a process, unless it is changed
def _executed(path: Path, source: bytes) -> dict[str, Any]:
    """The names that it defines."""
    module = ModuleType(_MODULE)
    module.__file__ = str(path)
    sys.modules[_MODULE] = module
    if str(path.parent) not in sys.path:  # its functions may import what lies beside it
        sys.path.append(str(path.parent))
    with _explained(path):
        exec(compile(source, str(path), "exec"), module.__dict__)
    return module.__dict__


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Around what the user wrote: its exceptions in one line, an error if it imports a framework, and what it sets."""
    before, environment = set(sys.modules), dict(os.environ)
    try:
        yield
    except (Exception, SystemExit) as error:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        where = where_in(path, error) or path.name
        raise UnusableInput(f"{where}: {type(error).__name__}: {first_line(text) or 'no message'}") from None
    finally:
        changed = (name for name, value in os.environ.items() if environment.get(name) != value)
        SET_BY_FILES.update(dict.fromkeys(changed, path.name))
    imported = [name for name in _FRAMEWORKS if name in sys.modules and name not in before]
    if imported:
        raise UnusableInput(
            f"{path.name} must import {' and '.join(imported)} only inside {' and '.join(_FUNCTIONS)}: "
            "the process that reads it imports no framework"
        )


def in_one_line(path: Path, error: BaseException) -> str:
    """An exception of any code: where in the file, if there, its type, and its text. UnusableInput's text says all."""
    parts = [where_in(path, error), type(error).__name__, first_line(str(error))]
    return parts[-1] if isinstance(error, UnusableInput) else ": ".join(filter(None, parts))


def first_line(text: str) -> str:
    """The first that is not empty, if there is one."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def where_in(path: Path, error: BaseException) -> str:
    """The file and the line where an exception was raised, such as "mine.py, line 3"; "" if in no line of the file.

    An exception of PyTorch's compiler tells by itself where in the code that it was reading.
    """
    frames = [*traceback.extract_tb(error.__traceback__), *(getattr(error, "real_stack", None) or ())]
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    return f"{path.name}, line {lines[-1]}" if lines else ""
