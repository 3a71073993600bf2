"""Shared by the adapters `jax_impl.backend` and `torch_impl.backend`: types and helpers without a framework."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from shared.alignments import ALIGNMENTS
from shared.kernels import cpp

# written between calls on an accelerator, to evict its caches: more than the largest of them holds
FLUSH_BYTES = 2**28


def is_file(problem: str) -> bool:
    """Whether a problem is named by the path of a user's file."""
    return problem.endswith(".py")


def module_of(problem: str) -> str:
    """The module, in a framework's package, of a problem that is no alignment."""
    return "own_problem" if is_file(problem) else problem


def build_kernels(dtype: str, problem: str, options: dict[str, Any], pass_name: str) -> None:
    """Compile and cache the native kernels that a pass calls; of a problem that is no alignment, smith_waterman's."""
    if problem not in ALIGNMENTS:
        problem, options = "smith_waterman", {}
    kernel = cpp.kernel(dtype, cpp.call_of(problem, ALIGNMENTS[problem].options | options).kind)
    passes = {"score": ("score",), "marginals": ("marginals",), "hvp": ("marginals", "tangents")}
    for each in passes.get(pass_name, ("score", "marginals", "gradients", "tangents")):
        getattr(kernel, each)


@dataclass
class CompileTimes:
    """Seconds of a call spent tracing and compiling; None where the framework does not report them.

    compilations: how many functions were compiled, each with its backward.
    """

    tracing: float | None = None
    compiling: float | None = None
    compilations: int = 0


@contextlib.contextmanager
def environment_of(**variables: str) -> Iterator[None]:
    """Set environment variables of this process for the duration of the context."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def union_length(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of (start, end) spans: nested and overlapping parts count once."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
