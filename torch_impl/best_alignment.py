"""The best alignment, by the recurrences with maxima in place of the smooth ones: the limit of temperature 0."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from shared import checks
from shared.alignments import each_axis
from shared.kernels import cpp
from torch_impl import functions
from torch_impl.derivatives import Engine, with_vmap
from torch_impl.dtensors import is_dtensor, on_local_pairs
from torch_impl.kernels import without_gradient
from torch_impl.kernels.fused import fused, is_on_gpu, is_plain_call, plain_call, why_not_on_gpu

Tensor = torch.Tensor
Pair = tuple[Tensor, Tensor]


def best_alignment(
    function: Callable[..., Tensor], similarity: Any, lengths: Any = None, **parameters: Any
) -> tuple[Tensor, Tensor]:
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

        It works under torch.compile and torch.func.vmap.

    Raises:
        TypeError, ValueError: an argument is not as described.
        CannotDifferentiate: in the backward, if a gradient reaches the result (a target of a loss gets none).
        NotImplementedError: similarity is neither on a CPU nor on a CUDA device.
        RuntimeError: there are no native kernels here; its text says why.

    While it works on a CPU it holds 2 bits for each cell of the pairs that its threads are at, with an affine gap 6,
    or 7 without restrict_turns or with gaps free along rows, and more on a CPU with vectors of fewer than 8 numbers. On
    a CUDA device it holds a row of states for each pair.

    Source: Smith and Waterman 1981, doi:10.1016/0022-2836(81)90087-5; Gotoh 1982, doi:10.1016/0022-2836(82)90398-9;
    Needleman and Wunsch 1970, doi:10.1016/0022-2836(70)90057-4.
    """
    name, gaps, options = checks.best_alignment_call(functions, function, parameters)
    values = gaps | {"temperature": 1.0}  # ignored, but the kernels expect one
    if is_plain_call(similarity):
        result = plain_call(_best, name, options, similarity, lengths, values)
        if result is not None:
            return result
    if is_dtensor(similarity):
        bound = functools.partial(function, **options)
        return on_local_pairs(functools.partial(best_alignment, bound), similarity, lengths, **gaps)
    if is_on_gpu(similarity):
        if reason := why_not_on_gpu():
            raise RuntimeError(reason)
    elif isinstance(similarity, Tensor) and similarity.device.type != "cpu":
        raise NotImplementedError(checks.no_best_text(similarity.device.type))
    pass_function = _best if torch.compiler.is_compiling() else _under_autograd
    values, special = each_axis(name, values, options)
    return fused(pass_function, cpp.call_of(name, options, special), similarity, lengths, values)


def _best(engine: Engine, s: Tensor, lengths: Tensor, values: Tensor, gaps: Sequence[Tensor]) -> Pair:
    return engine.operators.best(s, lengths, values, gaps, *engine.call)


def _under_autograd(engine: Engine, s: Tensor, lengths: Tensor, values: Tensor, gaps: Sequence[Tensor]) -> Pair:
    return _Best.apply(engine, s, lengths, values, *gaps)


@with_vmap
class _Best(torch.autograd.Function):
    """The operator `best` under autograd and torch.func, which has no derivative."""

    @staticmethod
    def forward(engine: Engine, s: Tensor, lengths: Tensor, values: Tensor, *gaps: Tensor) -> Pair:
        return _best(engine, s, lengths, values, gaps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Pair) -> None:
        ctx.shapes = [tensor.shape for tensor in inputs[1:]]

    @staticmethod
    def backward(ctx: Any, ct_scores: Tensor, ct_matches: Any) -> tuple[Tensor | None, ...]:
        raises = without_gradient.gradient(ct_scores).sum()
        return None, *(raises.expand(shape) for shape in ctx.shapes)

    @staticmethod
    def jvp(ctx: Any, *directions: Any) -> None:
        raise checks.CannotDifferentiate(checks.BEST_GRADIENT_TEXT)
