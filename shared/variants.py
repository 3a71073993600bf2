"""The ladder: every variant of an alignment, in order from naive to fast, and what each changes over the one before.

A variant that a framework cannot run is data with a reason, shown to the user.
"""

from typing import NamedTuple


class Variant(NamedTuple):
    """One rung: a way to compute an alignment."""

    name: str
    changes: str


ALIGNMENT_VARIANTS = (
    Variant(
        "cell_loop", "the recurrence as written: a double Python loop over cells, each written by functional update"
    ),
    Variant("diagonal_loop", "the matrix rotated, so that one Python step computes a whole anti-diagonal"),
    Variant(
        "scan_cond", "the Python loop becomes the compiler's own scan; a cond picks the shift by the diagonal's parity"
    ),
    Variant("scan_select", "an arithmetic select instead of the cond"),
    Variant("batch_loop", "a batch: a Python loop over pairs of the compiled single-pair scan_select"),
    Variant("vmap", "a batch: the single-pair scan_select mapped over the pairs by the framework's vmap"),
)

VARIANTS = {
    "smith_waterman": ALIGNMENT_VARIANTS,
}


def variant_names(function_name: str) -> tuple[str, ...]:
    """The names of a function's variants, in the ladder's order."""
    return tuple(variant.name for variant in VARIANTS[function_name])
