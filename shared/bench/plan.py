"""What a run is asked for (Settings), and the cases that this makes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from shared.problems import PROBLEMS
from shared.problems.problem import BATCH, DATA, SINGLE
from shared.variants import Abilities, variant_names

# of an accelerator's memory: the rest is for what drivers and kernels take
_SHARED = 0.9

FRAMEWORKS = {"jax": "JAX", "torch": "PyTorch"}


@dataclass(frozen=True)
class Settings:
    """One run, as asked for on the command line; defaults are the defaults of the command line."""

    device: str = "cpu"
    frameworks: tuple[str, ...] = ("jax", "torch")
    problem: str = "smith_waterman"
    variants: tuple[str, ...] | None = None
    passes: tuple[str, ...] = PROBLEMS["smith_waterman"].default_passes
    input: str = "globins"
    matrix: str = "BLOSUM62"
    batch: int | None = None
    size: tuple[int, ...] | None = None
    dtype: str = "float32"
    arguments: dict[str, Any] = field(default_factory=dict)  # of the problem; what is not here has its default
    seed: int = 0
    threads: int = 1
    unroll: int | None = None
    compile_limit: float = 120.0
    ladder: bool = False
    sweep: tuple[tuple[int, ...], ...] | None = None  # sizes, each an input of its own
    budget: float = 300.0  # seconds for the whole run
    precision: float = 0.02  # half width of an interval, as a fraction of its value, that is narrow enough
    workers: int | None = None  # how many fresh processes time each case; None: as many as the two above ask for
    rounds: int = 20  # in each of them
    sides: int = 1  # 2: every case against itself, each in processes of its own; only to test the protocol
    handicap: float = 0.0  # how much longer the second side works, as a fraction

    @property
    def is_default_on_gpu(self) -> bool:
        """Whether the device is an accelerator and nothing says how large an input it shall have."""
        told = self.size or self.batch or self.ladder or self.sweep
        return self.device != "cpu" and not told

    @property
    def memory_share(self) -> float:
        """Of an accelerator's memory, for each of the processes that hold their cases at the same time."""
        return _SHARED / (len(self.frameworks) * self.sides)


@dataclass(frozen=True)
class Case:
    """problem x size x pass x variant x framework x device x dtype, compiled or not."""

    framework: str
    variant: str
    pass_name: str
    compiled: bool
    input: str  # which of the run's inputs: its name
    problem: str
    device: str
    dtype: str
    unroll: int | None = None
    side: int = 0  # 1 and 2 where every case runs against itself
    handicap: float = 0.0  # every call is made this fraction longer

    @property
    def title(self) -> str:
        """How progress and errors name this case."""
        mode = "" if self.compiled else ", not compiled"
        where = {BATCH: "", DATA: "", SINGLE: ", one pair"}.get(self.input, f", {self.input}")
        return f"{FRAMEWORKS[self.framework]} {self.variant} {self.pass_name}{where}{mode}{self.side_text}"

    @property
    def side_text(self) -> str:
        """What follows a case's name where it runs against itself."""
        return ("", ", side A", ", side B")[self.side]

    @property
    def seat(self) -> tuple[str, int]:
        """Cases with the same seat are measured by the same worker."""
        return (self.framework, self.side)

    @property
    def match(self) -> tuple[str, str, str, str]:
        """Cases that differ in the framework alone have the same; they are measured next to each other."""
        return (self.problem, self.input, self.pass_name, self.variant)

    def as_json(self) -> dict[str, Any]:
        """The case as it travels to a worker and into a record."""
        return asdict(self)


class Absence(NamedTuple):
    """A case that a framework cannot run."""

    framework: str
    case: str  # its title
    reason: str


def plan(settings: Settings, abilities: dict[str, Abilities], inputs: Sequence[str]) -> list[Case]:
    """The cases of a run, frameworks side by side. abilities: what each usable framework says of itself.

    inputs: the names of the run's inputs.
    """
    return [case for case in _wanted(settings, abilities, inputs) if _why_not(case, abilities) is None]


def absences(settings: Settings, abilities: dict[str, Abilities], inputs: Sequence[str]) -> list[Absence]:
    """What the plan leaves out because a framework cannot do it, each said once."""
    left_out = ((case, _why_not(case, abilities)) for case in _wanted(settings, abilities, inputs))
    rows = [Absence(case.framework, case.title, reason) for case, reason in left_out if reason is not None]
    return list(dict.fromkeys(rows))


def _why_not(case: Case, abilities: dict[str, Abilities]) -> str | None:
    return abilities[case.framework].why_not(case.variant, case.pass_name, case.compiled)


def _wanted(settings: Settings, abilities: dict[str, Abilities], inputs: Sequence[str]) -> list[Case]:
    """What the user asked for, possible or not."""
    return [
        Case(
            framework=framework,
            variant=variant,
            pass_name=pass_name,
            compiled=compiled,
            input=input_name,
            problem=settings.problem,
            device=settings.device,
            dtype=settings.dtype,
            unroll=settings.unroll,
            side=side,
            handicap=settings.handicap if side == 2 else 0.0,
        )
        for input_name in inputs
        for pass_name in settings.passes
        for variant in variant_names(settings.problem)
        for framework in abilities
        for compiled in _ways(settings, variant, abilities[framework], input_name)
        for side in ((0,) if settings.sides == 1 else (1, 2))
    ]


def _ways(settings: Settings, variant: str, abilities: Abilities, input_name: str) -> Sequence[bool]:
    """Compiled, not compiled, both or neither: how a run measures a variant of a framework on an input."""
    problem, asked = PROBLEMS[settings.problem], settings.variants
    if asked is not None:
        wanted = variant in asked or (variant == abilities.auto and "auto" in asked)
    else:
        wanted = settings.ladder or problem.is_default(variant, abilities, settings)
    return problem.ways(variant, input_name, abilities, settings) if wanted else []
