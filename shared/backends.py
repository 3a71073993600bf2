"""Shared by the adapters `jax_impl.backend` and `torch_impl.backend`: types and helpers without a framework."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shared.alignments import ALIGNMENTS
from shared.kernels import cpp
from shared.kernels.triton.programs import Kernel, kernels_of, layout_of
from shared.variants import PATH

# written between calls on an accelerator, to evict its caches: more than the largest of them holds
FLUSH_BYTES = 2**28

# the option of the benchmark's alignments that gives every gap as a matrix
GAPS_BY_POSITION = "gaps_by_position"


def is_file(problem: str) -> bool:
    """Whether a problem is named by the path of a user's file."""
    return problem.endswith(".py")


def module_of(problem: str) -> str:
    """The module, in a framework's package, of a problem that is no alignment."""
    return "own_problem" if is_file(problem) else problem


def split_options(problem: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The options of an alignment's function, and the gaps that are given by position: all, or none."""
    scalar_options = dict(options)
    return scalar_options, ALIGNMENTS[problem].gaps if scalar_options.pop(GAPS_BY_POSITION, False) else ()


def with_gaps(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """The function with these gaps as its last arrays."""
    if not names:
        return function

    def call(*arrays: Any, **parameters: Any) -> Any:
        gaps = dict(zip(names, arrays[-len(names) :], strict=True))
        return function(*arrays[: -len(names)], **parameters | gaps)

    return call


def build_kernels(dtype: str, problem: str, options: dict[str, Any], pass_name: str) -> None:
    """Compile and cache the native kernels that a pass calls; of a problem that is no alignment, smith_waterman's."""
    if problem not in ALIGNMENTS:
        problem, options = "smith_waterman", {}
    scalar_options, names = split_options(problem, ALIGNMENTS[problem].options | options)
    kernel = cpp.kernel(dtype, *cpp.call_of(problem, scalar_options, names))
    passes = {
        "score": ("score",), "marginals": ("marginals",), "hvp": ("marginals", "tangents"), PATH: ("best",)
    }  # fmt: skip
    for needed in passes.get(pass_name, ("score", "marginals", "gradients", "tangents")):
        getattr(kernel, needed)


def gpu_kernels(
    dtype: str, problem: str, options: dict[str, Any], pass_name: str, shape: Sequence[int], has_lengths: bool
) -> list[Kernel]:
    """The kernels that a pass of an alignment launches on a GPU, for matrices of shape (pairs, rows, cols)."""
    function_options, gaps = split_options(problem, ALIGNMENTS[problem].options | options)
    call = {"score": "score", "marginals": "gradients", "hvp": "product", PATH: "best"}[pass_name]
    return kernels_of(call, cpp.call_of(problem, function_options, gaps), dtype, layout_of(*shape[:2]), has_lengths)


@dataclass
class CompileTimes:
    """Seconds of a call spent tracing and compiling; None where the framework does not report them.

    compilations: how many functions were compiled, each with its backward.
    """

    tracing: float | None = None
    compiling: float | None = None
    compilations: int = 0


class DeviceWork(NamedTuple):
    """Seconds in which an accelerator ran a kernel or a copy of a call, and the number of these."""

    seconds: float
    kernels: int

    @classmethod
    def of(cls, spans: Sequence[tuple[float, float]]) -> "DeviceWork | None":
        """Sum up the (start, end), in ns, of each kernel and copy; None if there was none.

        Overlaps count once, and the host's time between two launches does not count.
        """
        return cls(union_length(spans) / 1e9, len(spans)) if spans else None


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
