"""The best alignment, by the recurrences with maxima in place of the smooth ones: the limit of temperature 0."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

import torch_impl
from shared import checks
from shared.alignments import names_by_position
from shared.kernels import cpp
from torch_impl.arguments import _tensor, columns_and_gaps, from_numpy, see
from torch_impl.derivatives import mapped
from torch_impl.dtensors import is_dtensor, of_own_pairs
from torch_impl.kernels import cpp_binding, without_gradient
from torch_impl.kernels.fused import TRITON_BINDING, is_on_gpu, sizes_of, why_not_on_gpu
from torch_impl.kernels.plain_calls import plain_call

Tensor = torch.Tensor
Pair = tuple[Tensor, Tensor]


def best_alignment(
    function: Callable[..., Tensor], similarity: Any, lengths: Any = None, **parameters: Any
) -> tuple[Tensor, Tensor]:
    """The best alignment of each pair and its score: what the smooth function tends to at temperature 0.

    Each maximum of the recurrence is taken as it is, with no exponential: whole numbers give exact scores, in float32
    up to 2^24. Ties are broken in a fixed order, from the end backwards: the end with the lowest row, then column; in
    each cell, a start before the diagonal, the left and the cell above; with an affine gap, a match before a gap along
    the row and a gap along the column.

    Args:
        function: smith_waterman, smith_waterman_affine, free_gap or needleman_wunsch of this package, or
            functools.partial of one with keywords.
        similarity, lengths: as for that function; -inf forbids a match.
        parameters: its gaps and options, such as end. There is no temperature and no variant.

    Returns:
        Scores of shape () or (batch,), in similarity's dtype and units, and matches, boolean, of similarity's shape:
        where the alignment has a match. Without an alignment the score is 0, of a global pair
        -inf; where a pair has NaN or +inf inside its lengths, or NaN as a gap, it is NaN. In all three nothing matches.

        It works under torch.compile and torch.func.vmap.

    Raises:
        TypeError, ValueError: an argument is not as described.
        CannotDifferentiate: a derivative is asked for, in the backward. Matches are a target without one.
        NotImplementedError: similarity is neither on a CPU nor on a CUDA device.
        RuntimeError: there are no native kernels here; its text says why.

    While it works on a CPU it holds 2 bits for each cell of the pairs that its threads are at, with an affine gap 6,
    or 7 without restrict_turns; on a CPU with vectors of fewer than 8 numbers more. On a CUDA device it holds a row of
    states for each pair.

    Source: Smith and Waterman 1981, doi:10.1016/0022-2836(81)90087-5; Gotoh 1982, doi:10.1016/0022-2836(82)90398-9;
    Needleman and Wunsch 1970, doi:10.1016/0022-2836(70)90057-4.
    """
    name, gaps, options = checks.best_alignment_call(torch_impl, function, parameters)
    temperature = {"temperature": 1.0}  # ignored, but the kernels expect a value
    result = plain_call(_plain, name, options, similarity, lengths, gaps | temperature, str)
    if result is not None:
        return result
    if is_dtensor(similarity):
        bound = functools.partial(getattr(torch_impl, name), **options)
        return of_own_pairs(functools.partial(best_alignment, bound), similarity, lengths, **gaps)
    checks.check_alignment(see, similarity, lengths, gaps)
    s = similarity if isinstance(similarity, Tensor) else from_numpy(similarity)
    operators = _operators(s)
    dtype, wide, batch = s.dtype, s.to(torch.promote_types(s.dtype, torch.float32)), s.shape[:-2]
    tensors = {name: _tensor(value, wide.dtype, wide.device) for name, value in (gaps | temperature).items()}
    values, matrices = columns_and_gaps(tensors, batch)
    sizes = sizes_of(lengths, wide.device)
    if not batch:
        wide, values, matrices = wide[None], values[None], [matrix[None] for matrix in matrices]
        sizes = sizes if lengths is None else sizes[None]
    call = cpp.call_of(name, options, names_by_position(name, gaps))
    if torch.compiler.is_compiling():
        scores, matches = operators.best(wide, sizes, values, matrices, *call)
    else:
        scores, matches = _Best.apply(operators, *call, wide, sizes, values, *matrices)
    if not batch:
        scores, matches = scores[0], matches[0]
    return scores.to(dtype), matches


def _plain(own: Any, s: Tensor, lengths: Tensor, values: Tensor, gaps: Any, kind: int, options: int, _: Any) -> Pair:
    return own.best(s, lengths, values, gaps, kind, options)


def _operators(similarity: Tensor) -> Any:
    """The module of operators for it."""
    if is_on_gpu(similarity):
        reason = why_not_on_gpu()
        if reason:
            raise RuntimeError(reason)
        return sys.modules[TRITON_BINDING]
    if similarity.device.type != "cpu":
        raise NotImplementedError(checks.no_best_text(similarity.device.type))
    return cpp_binding


class _Best(torch.autograd.Function):
    """An operator under autograd and torch.func."""

    @staticmethod
    def forward(own: Any, kind: int, options: int, s: Tensor, lengths: Tensor, values: Tensor, *gaps: Tensor) -> Pair:
        return own.best(s, lengths, values, gaps, kind, options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Pair) -> None:
        ctx.shapes = [tensor.shape for tensor in inputs[3:]]

    @staticmethod
    def backward(ctx: Any, of_scores: Tensor, of_matches: Any) -> tuple[Tensor | None, ...]:
        nothing = without_gradient.gradient(of_scores).sum()
        return None, None, None, *(nothing.expand(shape) for shape in ctx.shapes)

    @staticmethod
    def jvp(ctx: Any, *directions: Any) -> None:
        raise checks.CannotDifferentiate(checks.BEST_GRADIENT_TEXT)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], own: Any, kind: int, options: int, *tensors: Tensor) -> Any:
        return mapped(functools.partial(_Best.apply, own, kind, options), info, in_dims[3:], tensors)
