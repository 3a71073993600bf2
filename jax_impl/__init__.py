"""Smooth, differentiable sequence alignment in JAX. The same names, order and defaults as `torch_impl`.

    from jax_impl import smith_waterman, marginals
    scores = smith_waterman(similarity, lengths, gap=-1.0, temperature=1.0)   # (batch,)
    expected = marginals(smith_waterman, similarity, lengths, gap=-1.0)       # (batch, rows, cols)

Every function works under jax.jit, jax.grad and jax.vmap, any of them in any order.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jax_impl.alignment import ABSENT, align
from jax_impl.arguments import see
from shared.checks import ENDS, check_choice, check_similarity
from shared.variants import usable_variants

__all__ = ["marginals", "smith_waterman", "variants"]


def smith_waterman(
    similarity: Any,
    lengths: Any = None,
    *,
    gap: Any = -1.0,
    temperature: Any = 1.0,
    end: str = "any",
    variant: str = "auto",
) -> jax.Array:
    """Smooth local alignment score with a linear gap.

    h(i,j) = smax( h(i-1,j-1) + s(i,j), h(i,j-1) + gap, h(i-1,j) + gap, s(i,j) ), smax(x) = T log sum exp(x / T).

    Args:
        similarity: (rows, cols) or (batch, rows, cols), float32 or float64 (float16 and bfloat16 are computed in
            float32). -inf forbids a match.
        lengths: integers of shape (2,) or (batch, 2), or None for the full matrix. Nothing outside
            similarity[b, :lengths[b, 0], :lengths[b, 1]] has any influence, and its gradient is exactly 0.
        gap: added for every gap position, so normally negative; a number or an array of shape () or (batch,).
        temperature: > 0, in the units of similarity; a number or an array of shape () or (batch,).
        end: "any", score = smax of h over all cells: at least one match, and it may end in a gap; or "match",
            score = smax of h(i-1,j-1) + s(i,j) over i, j >= 1: it ends on a match and has at least two.
        variant: a name of `variants("smith_waterman")`, or "auto" for the best of them here.

    Returns:
        Scores of shape () or (batch,), in similarity's dtype and units; 0 where no alignment exists.
        Differentiable to any order for similarity, and for gap and temperature when they are arrays.

    Raises:
        TypeError, ValueError: an argument is not as described. Values that are being traced or that live on another
            device are not checked: lengths are clamped, and a temperature that is not positive gives NaN.

    Source: Petti et al. 2021, doi:10.1101/2021.10.23.465204.
    """
    check_choice("end", end, ENDS)
    parameters = {"gap": gap, "temperature": temperature}
    return align("smith_waterman", similarity, lengths, parameters, {"end": end}, variant)


def marginals(function: Callable[..., jax.Array], similarity: Any, lengths: Any = None, **parameters: Any) -> jax.Array:
    """Derivative of each pair's score for its similarity: the probability of each match, the expected alignment.

    Args:
        function: a public function of this package, or anything with its signature, a jitted one included.
        similarity, lengths, parameters: as for that function.

    Returns:
        An array of similarity's shape and dtype; for the alignments between 0 and 1, and at most 1 per row and
        column. It can be differentiated again, for every differentiable argument.
    """

    check_similarity(see(similarity))

    def total(matrix: Any) -> jax.Array:
        return jnp.sum(function(matrix, lengths, **parameters))

    return jax.grad(total)(similarity)


def variants(function_name: str) -> tuple[str, ...]:
    """Names of the variants of a function that run on this machine, from naive to fast."""
    return usable_variants(function_name, ABSENT)
