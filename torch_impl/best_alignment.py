"""The best alignment, by the recurrences with maxima in place of the smooth ones: the limit of temperature 0."""

import functools
from collections.abc import Callable
from typing import Any

import torch

import torch_impl
from shared import checks
from shared.alignments import names_by_position
from shared.kernels import cpp
from torch_impl.arguments import _tensor, from_numpy, see
from torch_impl.derivatives import mapped
from torch_impl.kernels import cpp_binding
from torch_impl.kernels.plain_calls import plain_call

Tensor = torch.Tensor
Pair = tuple[Tensor, Tensor]


def best_alignment(
    function: Callable[..., Tensor], similarity: Any, lengths: Any = None, **parameters: Any
) -> tuple[Tensor, Tensor]:
    """The best alignment of each pair and its score: what the smooth function tends to at temperature 0.

    Each maximum of the recurrence is taken as it is, with no exponential: whole numbers give exact scores, in float32
    up to 2^24. Of equally good alignments it is one, which walking back from its end is the first in this order: of
    ends by row, then column; in a cell to start, to come from the diagonal, from the left, from above; with an affine
    gap from a match, from a gap along the row, from one along the column.

    Args:
        function: smith_waterman, smith_waterman_affine, free_gap or needleman_wunsch of this package, or
            functools.partial of one with keywords.
        similarity, lengths: as for that function; -inf forbids a match.
        parameters: its gaps and options, such as end. There is no temperature and no variant.

    Returns:
        Scores of shape () or (batch,), in similarity's dtype and units, and matches, boolean, of similarity's shape:
        where the alignment has a match. Without an alignment the score is 0; where a pair has NaN or +inf inside its
        lengths, or as a gap, it is NaN; in both cases nothing matches. Works under torch.compile and torch.func.vmap.

    Raises:
        TypeError, ValueError: an argument is not as described.
        CannotDifferentiate: a derivative is asked for, in the backward. Matches are a target without one.
        NotImplementedError: similarity is on another device than a CPU.
        RuntimeError: there are no native kernels here; its text says why.

    While it works it holds 2 bits for each cell of the pairs that its threads are at, with an affine gap 6, or 7
    without restrict_turns; on a CPU with vectors of fewer than 8 numbers more.

    Source: Smith and Waterman 1981, doi:10.1016/0022-2836(81)90087-5; Gotoh 1982, doi:10.1016/0022-2836(82)90398-9;
    Needleman and Wunsch 1970, doi:10.1016/0022-2836(70)90057-4.
    """
    name, gaps, options = checks.best_alignment_call(torch_impl, function, parameters)
    temperature = {"temperature": 1.0}  # which the kernels have a place for
    result = plain_call(_plain, name, options, similarity, lengths, gaps | temperature, str)
    if result is not None:
        return result
    checks.check_alignment(see, similarity, lengths, gaps)
    s = similarity if isinstance(similarity, Tensor) else from_numpy(similarity)
    if s.device.type != "cpu":
        raise NotImplementedError(checks.no_best_text(s.device.type))
    dtype, wide, batch = s.dtype, s.to(torch.promote_types(s.dtype, torch.float32)), s.shape[:-2]
    by_position = names_by_position(name, gaps)
    own = {name: _tensor(value, wide.dtype, wide.device) for name, value in (gaps | temperature).items()}
    matrices = [own[name] for name in by_position]
    values = torch.stack(
        [(wide.new_zeros(()) if name in by_position else value).expand(batch) for name, value in own.items()], dim=-1
    )
    whole = torch.empty((0, 2), dtype=torch.int32)
    sizes = whole if lengths is None else _tensor(lengths, torch.int64, wide.device)
    if not batch:
        wide, values, matrices = wide[None], values[None], [matrix[None] for matrix in matrices]
        sizes = sizes if lengths is None else sizes[None]
    call = cpp.call_of(name, options, by_position)
    if torch.compiler.is_compiling():
        scores, matches = cpp_binding.best(wide, sizes, values, matrices, *call)
    else:
        scores, matches = _Best.apply(*call, wide, sizes, values, *matrices)
    if not batch:
        scores, matches = scores[0], matches[0]
    return scores.to(dtype), matches


def _plain(own: Any, s: Tensor, lengths: Tensor, values: Tensor, gaps: Any, kind: int, options: int, _: Any) -> Pair:
    return own.best(s, lengths, values, gaps, kind, options)


# the backward as an operator, so that the compiler can trace it, and it raises only where it is run
torch.library.define("smooth_alignment::no_gradient_of_best", "(Tensor of_scores) -> Tensor")


@torch.library.register_fake("smooth_alignment::no_gradient_of_best")
def _fake_gradient(of_scores: Tensor) -> Tensor:
    return torch.empty_like(of_scores)


def _no_gradient(*_: Any) -> Any:
    raise checks.CannotDifferentiate(checks.BEST_GRADIENT_TEXT)


torch.library.impl("smooth_alignment::no_gradient_of_best", "CPU", _no_gradient)
torch.library.register_vmap("smooth_alignment::no_gradient_of_best", _no_gradient)


class _Best(torch.autograd.Function):
    """The operator under autograd and torch.func."""

    @staticmethod
    def forward(kind: int, options: int, s: Tensor, lengths: Tensor, values: Tensor, *gaps: Tensor) -> Pair:
        return cpp_binding.best(s, lengths, values, gaps, kind, options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Pair) -> None:
        ctx.shapes = [tensor.shape for tensor in inputs[2:]]

    @staticmethod
    def backward(ctx: Any, of_scores: Tensor, of_matches: Any) -> tuple[Tensor | None, ...]:
        nothing = torch.ops.smooth_alignment.no_gradient_of_best(of_scores).sum()
        return None, None, *(nothing.expand(shape) for shape in ctx.shapes)

    @staticmethod
    def jvp(ctx: Any, *directions: Any) -> None:
        raise checks.CannotDifferentiate(checks.BEST_GRADIENT_TEXT)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], kind: int, options: int, *tensors: Tensor) -> Any:
        return mapped(functools.partial(_Best.apply, kind, options), info, in_dims[2:], tensors)


# the same for the compiler, which does not take all methods of the Function


def _operator_context(ctx: Any, inputs: tuple[Any, ...], output: Pair) -> None:
    s, _, values, gaps, *_ = inputs
    ctx.shapes = s.shape, values.shape, [gap.shape for gap in gaps]


def _operator_backward(ctx: Any, of_scores: Tensor, of_matches: Any) -> tuple[Any, ...]:
    nothing = torch.ops.smooth_alignment.no_gradient_of_best(of_scores).sum()
    of_s, of_values, of_gaps = ctx.shapes
    gaps = [nothing.expand(shape) for shape in of_gaps]
    return nothing.expand(of_s), None, nothing.expand(of_values), gaps, None, None


torch.library.register_autograd("smooth_alignment::fused_best", _operator_backward, setup_context=_operator_context)
