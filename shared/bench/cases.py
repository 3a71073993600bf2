"""The settings of a run, and the cases that it times: problem x input x pass x variant x framework x device x dtype."""

from dataclasses import dataclass, field
from typing import Any

from shared.bench.estimates import Count, Seconds
from shared.problems import PROBLEMS
from shared.problems.problem import BATCH, DATA, SINGLE

FRAMEWORKS = {"jax": "JAX", "torch": "PyTorch"}
# of an accelerator's memory, for all workers together: the rest is for drivers and kernels
MEMORY_SHARE = 0.9


@dataclass(frozen=True)
class Settings:
    """One run, as asked for on the command line; defaults are those of `speed` on one core."""

    question: str = "speed"
    device: str = "cpu"
    frameworks: tuple[str, ...] = ("jax", "torch")
    problem: str = "smith_waterman"
    more_problems: tuple[str, ...] = ()  # whose cases are measured in the same run
    variants: tuple[str, ...] | None = None
    passes: tuple[str, ...] = PROBLEMS["smith_waterman"].default_passes
    input: str = "globins"
    matrix: str = "BLOSUM62"
    batch: int | None = None
    size: tuple[int, ...] | None = None
    sizes: tuple[tuple[int, ...], ...] | None = None  # of `growth`: each an input of its own
    memory: int | None = None  # bytes in which `memory` finds the largest batch; None: the default, set when it begins
    dtype: str = "float32"
    arguments: dict[str, Any] = field(default_factory=dict)  # of the problem; the others have their defaults
    seed: int = 0
    threads: Count = 1
    compile_limit: Seconds = 120.0  # that a first call may take
    budget: Seconds = 300.0  # for the whole run
    precision: float = 0.02  # required half-width of an interval, relative to its value
    workers: int | None = None  # fresh processes that time each case; None: until precise or out of budget
    rounds: Count = 12  # in each of them
    quick: bool = False  # without what takes long to compile
    processes: tuple[int, ...] | None = None  # the counts that `processes` compares, 1 first; None: by the cores
    pythons: tuple[str, ...] = ()  # other interpreters for workers, as they were named


# label of the cases that are timed with other work before every call
BETWEEN = "between matrix products"


@dataclass(frozen=True)
class Case:
    """One thing that is timed: a pass of a problem on an input, by a variant of a framework on a device."""

    framework: str
    variant: str
    pass_name: str
    compiled: bool
    input: str  # the name of one of the run's inputs
    problem: str
    device: str
    dtype: str
    label: str = ""  # free text that tells apart otherwise equal cases

    @property
    def title(self) -> str:
        """The case's name in progress and errors."""
        where = {BATCH: "", DATA: "", SINGLE: ", one pair"}.get(self.input, f", {self.input}")
        mode = "" if self.compiled else ", not compiled"
        return f"{self.name} {self.pass_name}{where}{mode}{f', {self.label}' if self.label else ''}"

    @property
    def how(self) -> str:
        """The variant, and whether it is not compiled."""
        return self.variant if self.compiled else f"{self.variant}, not compiled"

    @property
    def name(self) -> str:
        """Framework and variant."""
        return f"{FRAMEWORKS[self.framework]} {self.variant}"

    @property
    def worker_key(self) -> tuple[str, str]:
        """Cases with the same key are measured by the same worker process."""
        return (self.framework, self.label)

    @property
    def group(self) -> tuple[str, str, str, str]:
        """Cases that differ only in framework, label or compilation share it; they are timed next to each other."""
        return (self.problem, self.input, self.pass_name, self.variant)


@dataclass(frozen=True)
class Absence:
    """A case that a framework cannot run, or that --quick leaves out."""

    framework: str
    title: str  # of the case
    reason: str
