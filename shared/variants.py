"""The ladders: every variant of each problem, in order from naive to fast, and what each changes over the one before.

A variant that a framework cannot run is data with a reason, shown to the user.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from shared.alignments import ALIGNMENTS
from shared.checks import absent_variant_text, check_choice

PATH = "path"  # the pass of best alignments
WITH_PATH = ("fused",)  # the variants that have it


class Variant(NamedTuple):
    """One way to compute a problem."""

    name: str
    changes: str


class Abilities(NamedTuple):
    """The variants that a framework can run; each restriction has a reason, which is shown to the user."""

    auto: str | None  # the variant that "auto" picks, where there is an "auto"
    absent: Mapping[str, str] = MappingProxyType({})  # variant -> why it cannot run
    first_order: Mapping[str, str] = MappingProxyType({})  # variant -> why it has no second derivatives, as hvp needs
    uncompiled_passes: Mapping[str, str] = MappingProxyType({})  # pass -> why it runs only without the compiler
    uncompiled_variants: Mapping[str, str] = MappingProxyType({})  # variant -> why compiling the call gains nothing
    slow_compiler: str | None = None  # why nothing is compiled where a minute has to do

    def as_json(self) -> dict[str, Any]:
        """Convert to plain dictionaries."""
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in self._asdict().items()}

    def why_not(self, variant: str, pass_name: str, compiled: bool) -> str | None:
        """Why this cannot be measured; None if it can."""
        if variant in self.absent:
            return self.absent[variant]
        if pass_name == "hvp" and variant in self.first_order:
            return self.first_order[variant]
        if pass_name == PATH and variant not in WITH_PATH:
            return "best alignments have one implementation, the native kernels of fused"
        return self.uncompiled_passes.get(pass_name) if compiled else None


ALIGNMENT_VARIANTS = (
    Variant(
        "cell_loop", "the recurrence as written: a double Python loop over cells, each written by functional update"
    ),
    Variant("diagonal_loop", "the matrix rotated, so that one Python step computes a whole anti-diagonal"),
    Variant(
        "scan_cond", "the Python loop becomes the compiler's own scan; a cond picks the shift by the diagonal's parity"
    ),
    Variant("scan_select", "an arithmetic select instead of the cond"),
    Variant("batch_loop", "a batch: a Python loop that calls, for each pair, the compiled scan_select"),
    Variant("vmap", "a batch: scan_select, written for one pair and mapped over the pairs by the framework's vmap"),
    Variant("wavefront", "the batch innermost, every shift in one direction, derivatives written by hand"),
    Variant("cuda_graph", "on a GPU the wavefront's launches captured once, by hand, in a CUDA graph"),
    Variant("fused", "one native kernel for the whole matrix, the same machine code in both frameworks"),
)

# what a user of each framework would write first for a batch: a scan under jit and vmap, an eager loop
WRITTEN_FIRST = {"jax": "vmap", "torch": "diagonal_loop"}
# PyTorch's autograd differentiates these by itself, to any order
EAGER_LOOPS = ("cell_loop", "diagonal_loop")
# "auto" picks the first of these that can run; all are right to second order
FASTEST = ("fused", "wavefront")
# these are for accelerators, and absent on every CPU
FOR_GPUS = ("cuda_graph",)
# these run the same machine code in both frameworks, on a CPU and on a GPU
SAME_CODE = ("fused",)

TRAINING_VARIANTS = (
    Variant("eager_loop", "a Python loop, and in each step autograd through eager operations"),
    Variant("loop_unjitted", "the framework's own loop, called without the compiler around it"),
    Variant("jit_step", "one step compiled, called from a Python loop"),
    Variant("compiled_loop", "the whole loop inside the compiler"),
)
STENCIL_VARIANTS = (
    Variant("cell_loop", "the sums as written: a double Python loop over cells"),
    Variant("column_convolve", "one Python step computes a whole column, by a convolution"),
    Variant("column_sum", "three shifted slices are added instead of the convolution"),
    Variant("scan", "the Python loop over columns becomes the compiler's own scan, with the convolution in it"),
    Variant("scan_sum", "the scan with the shifted slices"),
)
# of a problem in a user's file
OWN_VARIANTS = (
    Variant("eager", "as written, called without a compiler: PyTorch only"),
    Variant("compiled", "the whole function under jax.jit or torch.compile"),
)
OWN_WRITTEN_FIRST = {"jax": "compiled", "torch": "eager"}

# the same for every alignment
VARIANTS = dict.fromkeys(ALIGNMENTS, ALIGNMENT_VARIANTS) | {
    "linear_regression": TRAINING_VARIANTS,
    "stencil": STENCIL_VARIANTS,
    # those fast enough for training, with second derivatives in both frameworks
    "learn_alignment": tuple(one for one in ALIGNMENT_VARIANTS if one.name in FASTEST),
}


def variant_names(function_name: str) -> tuple[str, ...]:
    """The names of a function's variants, in the ladder's order."""
    check_choice("function_name", function_name, tuple(VARIANTS))
    return tuple(variant.name for variant in VARIANTS[function_name])


def usable_variants(function_name: str, absent: Mapping[str, str]) -> tuple[str, ...]:
    """The names of an alignment's variants that are not absent (variant -> reason) in a framework."""
    check_choice("function_name", function_name, tuple(ALIGNMENTS))
    return tuple(name for name in variant_names(function_name) if name not in absent)


def fastest_variant(absent: Mapping[str, str]) -> str:
    """The variant that "auto" picks, given the absent ones (variant -> reason)."""
    return next(name for name in FASTEST if name not in absent)


def choose_variant(
    function_name: str,
    variant: str,
    absent: Mapping[str, str],
    why_not: Callable[[str], str | None],
    warn: Callable[[str], None],
) -> str:
    """The variant to run: the one named, or for "auto" the fastest one. Raises ValueError if it is absent or unknown.

    why_not: why a variant that is not absent still cannot take these very arguments; None if it can.
    warn: called with the reason where "auto" is not the first of FASTEST.
    """
    usable = usable_variants(function_name, absent)
    if isinstance(variant, str) and variant in absent:
        raise ValueError(absent_variant_text(variant, absent[variant], usable))
    check_choice("variant", variant, (*usable, "auto"))
    if variant == "auto":
        best, otherwise = FASTEST
        reason = absent.get(best) or why_not(best)
        if reason is None:
            return best
        warn(reason)
        return otherwise
    reason = why_not(variant)
    if reason:
        raise ValueError(absent_variant_text(variant, reason, tuple(name for name in usable if name != variant)))
    return variant
