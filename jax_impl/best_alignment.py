"""The best alignment, by the recurrences with maxima in place of the smooth ones: the limit of temperature 0."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from jax_impl import functions
from jax_impl.arguments import see, widened
from jax_impl.kernels import cpp_binding, triton_binding
from jax_impl.kernels.cpp_binding import Array, Arrays
from jax_impl.kernels.fused import converted, floating, platform_of
from shared import checks
from shared.alignments import each_axis
from shared.kernels import cpp
from shared.kernels import triton as triton_kernels


def best_alignment(
    function: Callable[..., Array], similarity: Any, lengths: Any = None, **parameters: Any
) -> tuple[Array, Array]:
    """The best alignment of each pair and its score: what the smooth function tends to at temperature 0.

    Each maximum of the recurrence is taken as it is, with no exponential: whole numbers give exact scores, in float32
    up to 2^24. Ties are broken in a fixed order, from the end backwards: the first end, row by row; in each cell first
    a start, then the diagonal, the left, the cell above; with an affine gap first a match, then a gap along the row,
    then one along the column.

    Args:
        function: an alignment of this package, such as smith_waterman, or functools.partial of one with keywords.
        similarity, lengths: as for that function; -inf forbids a match, a cost of inf a cell.
        parameters: its gaps and options, such as end. There is no temperature and no variant.

    Returns:
        Scores of shape () or (batch,), in similarity's dtype and units, and matches, boolean, of similarity's shape:
        where the alignment has a match (soft_dtw: where the path has a cell). Without an alignment the score is 0, of a
        global pair -inf, of soft_dtw inf (0 if a length is 0); where a pair has NaN or +inf inside its lengths (-inf as
        a cost), or NaN as a gap, it is NaN. In these cases nothing matches.

        It works under jax.jit and jax.vmap.

    Raises:
        TypeError, ValueError: an argument is not as described.
        CannotDifferentiate: a derivative is asked for. Use jax.lax.stop_gradient where matches are a target.
        NotImplementedError: similarity is neither on a CPU nor on a CUDA device.
        RuntimeError: there are no native kernels here; its text says why.

    While it works on a CPU it holds 2 bits for each cell of the pairs that its threads are at, with an affine gap 6,
    or 7 without restrict_turns or with gaps free along rows, and more on a CPU with vectors of fewer than 8 numbers. On
    a CUDA device it holds a row of states for each pair.

    Source: Smith and Waterman 1981, doi:10.1016/0022-2836(81)90087-5; Gotoh 1982, doi:10.1016/0022-2836(82)90398-9;
    Needleman and Wunsch 1970, doi:10.1016/0022-2836(70)90057-4.
    """
    name, gaps, options = checks.best_alignment_call(functions, function, parameters)
    gaps, special = each_axis(name, gaps, options)
    checks.check_alignment(see, similarity, lengths, gaps)
    checks.check_fixed_shape(similarity.shape)
    platform = platform_of(similarity)
    s = jnp.asarray(similarity)
    wide = widened(s)
    kernels = _kernels(platform, str(wide.dtype))
    call = cpp.call_of(name, options, special)
    sizes = np.array(s.shape[-2:], np.int32) if lengths is None else lengths
    scores, matches = _converted(kernels, call, wide, sizes, floating(gaps.values()))
    return scores.astype(s.dtype), matches


def _kernels(platform: str, dtype: str) -> Any:
    """The module of a platform's kernels, which then can be called.

    Before XLA compiles, where an error could not be raised as ours.
    """
    if platform == "cuda":
        reason = triton_kernels.why_absent()
        if reason:
            raise RuntimeError(reason)
        triton_binding.register()
        return triton_binding
    if platform != "cpu":
        raise NotImplementedError(checks.no_best_text(platform))
    cpp_binding.register(dtype)
    return cpp_binding


@functools.partial(jax.jit, static_argnums=(0, 1))
def _converted(
    kernels: Any, call: cpp.Call, similarity: Array, lengths: Any, gaps: tuple[Any, ...]
) -> tuple[Array, Array]:
    temperature = np.ones(())  # ignored, but the kernels expect a value
    return _best(kernels, call, similarity, *converted(similarity, lengths, (*gaps, temperature)))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _best(kernels: Any, call: cpp.Call, similarity: Array, lengths: Array, parameters: Arrays) -> tuple[Array, Array]:
    return kernels.best(call, similarity, lengths, parameters)


@functools.partial(_best.defjvp, symbolic_zeros=True)
def _best_tangent(kernels: Any, call: cpp.Call, primals: Any, tangents: Any) -> Any:
    t_similarity, _, t_parameters = tangents
    if all(isinstance(tangent, SymbolicZero) for tangent in (t_similarity, *t_parameters)):
        scores, matches = _best(kernels, call, *primals)
        return (scores, matches), (jnp.zeros_like(scores), np.zeros(matches.shape, jax.dtypes.float0))
    raise checks.CannotDifferentiate(checks.BEST_GRADIENT_TEXT)
