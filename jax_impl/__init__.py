"""Smooth, differentiable sequence alignment in JAX. The same names, order and defaults as `torch_impl`.

    from jax_impl import best_alignment, marginals, smith_waterman
    scores = smith_waterman(similarity, lengths, gap=-1.0, temperature=1.0)   # (batch,)
    expected = marginals(smith_waterman, similarity, lengths, gap=-1.0)       # (batch, rows, cols)
    scores, matches = best_alignment(smith_waterman, similarity, lengths, gap=-1.0)

jax.jit, jax.vmap and, up to second derivatives of a score, jax.grad work in any order.
"""

try:
    from jax_impl.functions import (
        free_gap,
        needleman_wunsch,
        needleman_wunsch_affine,
        smith_waterman,
        smith_waterman_affine,
        soft_dtw,
    )
except ImportError as error:
    import pathlib
    import runpy

    namespace = runpy.run_path(str(pathlib.Path(__file__).parents[1] / "shared/first_import.py"))
    raise namespace["explained"](error, __name__, "jax") from None

from jax_impl.alignment import absent_on
from jax_impl.best_alignment import best_alignment
from jax_impl.expected_alignment import hessian_vector_product, marginals
from shared.variants import usable_variants

__all__ = [
    "best_alignment",
    "free_gap",
    "hessian_vector_product",
    "marginals",
    "needleman_wunsch",
    "needleman_wunsch_affine",
    "smith_waterman",
    "smith_waterman_affine",
    "soft_dtw",
    "variants",
]


def variants(function_name: str) -> tuple[str, ...]:
    """Names of the variants of a function that run on this machine, from naive to fast. Tries the C++ compiler, once.

    Raises:
        ValueError: function_name is no public function's name.
    """
    return usable_variants(function_name, absent_on("cpu"))
