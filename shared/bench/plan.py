"""What a run is asked for (Settings), and the cases that this makes."""

from dataclasses import asdict, dataclass
from typing import Any

from shared.variants import variant_names

FRAMEWORKS = {"jax": "JAX", "torch": "PyTorch"}
PASSES = ("score", "marginals")

# The default table: the rungs that a user would pick, and the framework's own choice. The rest is in --ladder.
_DEFAULT_VARIANTS = ("scan_select", "vmap")
# Never compiled unless the ladder asks: an unrolled loop takes minutes to compile, and batch_loop compiles its pair.
_RUN_UNCOMPILED = ("cell_loop", "diagonal_loop", "batch_loop")
_BATCH_RUNGS = ("batch_loop", "vmap")


@dataclass(frozen=True)
class Settings:
    """One run, as asked for on the command line; defaults are the defaults of the command line."""

    device: str = "cpu"
    frameworks: tuple[str, ...] = ("jax", "torch")
    problem: str = "smith_waterman"
    variants: tuple[str, ...] | None = None
    passes: tuple[str, ...] = PASSES
    input: str = "globins"
    matrix: str = "BLOSUM62"
    batch: int | None = None
    size: tuple[int, int] | None = None
    dtype: str = "float32"
    repeats: int | None = None
    gap: float = -1.0
    end: str = "any"
    temperature: float = 1.0
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


def plan(settings: Settings, absent: dict[str, dict[str, str]], auto: dict[str, str]) -> list[Case]:
    """The cases of a run, frameworks side by side. absent and auto: what each usable framework says of itself."""
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
        for framework in auto
        for variant, compiled, single in _ways(settings, asked, auto[framework])
        if variant not in absent[framework]
    ]


def _ways(settings: Settings, variant: str, auto: str) -> list[tuple[str, bool, bool]]:
    """(variant, compiled, single): how a run measures a variant on a framework; empty if it does not."""
    asked = settings.variants
    if settings.ladder:
        single = variant not in _BATCH_RUNGS
        wanted = asked is None or _is_asked(variant, asked, auto)
        return [(variant, compiled, single) for compiled in (False, True)] if wanted else []
    wanted = _is_asked(variant, (*_DEFAULT_VARIANTS, "auto") if asked is None else asked, auto)
    return [(variant, variant not in _RUN_UNCOMPILED, False)] if wanted else []


def absences(settings: Settings, absent: dict[str, dict[str, str]]) -> list[tuple[str, str, str]]:
    """(framework, variant, reason) of what a framework does not have: of the variants asked for, or of all."""
    asked = settings.variants or variant_names(settings.problem)
    return [
        (framework, variant, reason)
        for framework, reasons in absent.items()
        for variant, reason in reasons.items()
        if variant in asked
    ]


def _is_asked(variant: str, asked: tuple[str, ...], auto: str) -> bool:
    return variant in asked or (variant == auto and "auto" in asked)
