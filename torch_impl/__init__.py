"""Smooth, differentiable sequence alignment in PyTorch. The same names, order and defaults as `jax_impl`.

    from torch_impl import best_alignment, marginals, smith_waterman
    scores = smith_waterman(similarity, lengths, gap=-1.0, temperature=1.0)   # (batch,)
    expected = marginals(smith_waterman, similarity, lengths, gap=-1.0)       # (batch, rows, cols)
    scores, matches = best_alignment(smith_waterman, similarity, lengths, gap=-1.0)

With variant="auto" every score works under autograd, torch.func.grad, torch.func.jvp and torch.func.vmap, and can be
differentiated twice. A best alignment has no derivative. The variants with the scan operator work under autograd, to
first order.
"""

try:
    from torch_impl.functions import (
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
    raise namespace["explained"](error, __name__, "torch") from None

from shared.variants import usable_variants
from torch_impl.alignment import absent_here
from torch_impl.best_alignment import best_alignment
from torch_impl.expected_alignment import hessian_vector_product, marginals

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
    return usable_variants(function_name, absent_here())
