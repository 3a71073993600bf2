"""What a run is asked for (Settings), and the cases that this makes."""

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from shared.problems import PROBLEMS
from shared.variants import Abilities, variant_names

FRAMEWORKS = {"jax": "JAX", "torch": "PyTorch"}
PASSES = tuple(dict.fromkeys(name for problem in PROBLEMS.values() for name in problem.passes))

# The default table: the rungs that a user would pick, and the framework's own choice. The rest is in --ladder.
_DEFAULT_VARIANTS = ("scan_select", "vmap", "wavefront")
# Never compiled unless the ladder asks: an unrolled loop takes minutes to compile, and batch_loop compiles its pair.
_RUN_UNCOMPILED = ("cell_loop", "diagonal_loop", "batch_loop")
_BATCH_RUNGS = ("batch_loop", "vmap")
_DEFAULT_PASSES = ("score", "marginals")


@dataclass(frozen=True)
class Settings:
    """One run, as asked for on the command line; defaults are the defaults of the command line."""

    device: str = "cpu"
    frameworks: tuple[str, ...] = ("jax", "torch")
    problem: str = "smith_waterman"
    variants: tuple[str, ...] | None = None
    passes: tuple[str, ...] = _DEFAULT_PASSES
    input: str = "globins"
    matrix: str = "BLOSUM62"
    batch: int | None = None
    size: tuple[int, int] | None = None
    dtype: str = "float32"
    repeats: int | None = None
    arguments: dict[str, Any] = field(default_factory=dict)  # of the problem; what is not here has its default
    seed: int = 0
    threads: int = 1
    unroll: int | None = None
    compile_limit: float = 120.0
    ladder: bool = False
    json: str | None = None


@dataclass(frozen=True)
class Case:
    """problem x size x pass x variant x framework x device x dtype, compiled or not."""

    framework: str
    variant: str
    pass_name: str
    compiled: bool
    single: bool  # the single pair instead of the batch
    problem: str
    device: str
    dtype: str
    unroll: int | None = None
    repeats: int | None = None  # None: as many as fit a short time
    warm_up: bool = True  # one call between the first and the steady ones that does not count

    @property
    def title(self) -> str:
        """How progress and errors name this case."""
        mode = "" if self.compiled else ", not compiled"
        return f"{FRAMEWORKS[self.framework]} {self.variant} {self.pass_name}{mode}"

    def as_json(self) -> dict[str, Any]:
        """The case as it travels to a worker and into a record."""
        return asdict(self)


class Absence(NamedTuple):
    """A case that a framework cannot run."""

    framework: str
    case: str  # its title
    reason: str


def plan(settings: Settings, abilities: dict[str, Abilities]) -> list[Case]:
    """The cases of a run, frameworks side by side. abilities: what each usable framework says of itself."""
    return [case for case in _wanted(settings, abilities) if _why_not(case, abilities) is None]


def absences(settings: Settings, abilities: dict[str, Abilities]) -> list[Absence]:
    """What the plan leaves out because a framework cannot do it, each said once."""
    left_out = ((case, _why_not(case, abilities)) for case in _wanted(settings, abilities))
    rows = [Absence(case.framework, case.title, reason) for case, reason in left_out if reason is not None]
    return list(dict.fromkeys(rows))


def _why_not(case: Case, abilities: dict[str, Abilities]) -> str | None:
    return abilities[case.framework].why_not(case.variant, case.pass_name, case.compiled)


def _wanted(settings: Settings, abilities: dict[str, Abilities]) -> list[Case]:
    """What the user asked for, possible or not."""
    return [
        Case(
            framework=framework,
            variant=variant,
            pass_name=pass_name,
            compiled=compiled,
            single=single,
            problem=settings.problem,
            device=settings.device,
            dtype=settings.dtype,
            unroll=settings.unroll,
            repeats=1 if settings.ladder else settings.repeats,
            warm_up=not settings.ladder,
        )
        for pass_name in settings.passes
        for asked in variant_names(settings.problem)
        for framework in abilities
        for variant, compiled, single in _ways(settings, asked, abilities[framework])
    ]


def _ways(settings: Settings, variant: str, abilities: Abilities) -> list[tuple[str, bool, bool]]:
    """(variant, compiled, single): how a run measures a variant on a framework; empty if it does not."""
    asked, auto = settings.variants, abilities.auto
    if settings.ladder:
        single = variant not in _BATCH_RUNGS
        wanted = asked is None or _is_asked(variant, asked, auto)
        return [(variant, compiled, single) for compiled in (False, True)] if wanted else []
    wanted = _is_asked(variant, (*_DEFAULT_VARIANTS, "auto") if asked is None else asked, auto)
    return [(variant, variant not in (*_RUN_UNCOMPILED, *abilities.ready), False)] if wanted else []


def _is_asked(variant: str, asked: tuple[str, ...], auto: str) -> bool:
    return variant in asked or (variant == auto and "auto" in asked)
