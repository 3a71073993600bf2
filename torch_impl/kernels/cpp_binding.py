"""The native kernels as operators of PyTorch, without derivatives: see torch_impl.derivatives.

Tensors: similarity (batch, rows, cols), lengths (batch, 2) of integers or (0, 2) for whole matrices, values (batch, P),
the parameters in the order of shared.alignments.ALIGNMENTS; gaps: those by position (the options tell which), each like
similarity; all floats of similarity's dtype. Results are new and contiguous. A similarity or gap is
copied unless each matrix is contiguous; pairs may have any stride.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from shared.kernels import cpp
from torch_impl.derivatives import Derivatives, library_of, register_vmap
from torch_impl.kernels import openmp, without_gradient

Tensor = torch.Tensor
Gaps = Sequence[Tensor]
Pair = tuple[Tensor, Tensor]
DTYPE_NAMES = {torch.float32: "float32", torch.float64: "float64"}
_LARGEST = torch.iinfo(torch.int32).max
_INPUTS = "Tensor similarity, Tensor lengths, Tensor values, Tensor[] gaps"
_CALL = "int kind, int options"
_DERIVATIVES = "(Tensor, Tensor, Tensor, Tensor[])"

# plain operators: those of torch.library.custom_op take 15 microseconds more per call
_LIBRARY = library_of("fused")
for _name, _schema in {
    "score": f"({_INPUTS}, {_CALL}) -> Tensor",
    "gradients": f"({_INPUTS}, {_CALL}, bool with_values) -> {_DERIVATIVES}",
    "tangents": f"({_INPUTS}, Tensor t_similarity, Tensor t_values, Tensor[] t_gaps, {_CALL}) -> {_DERIVATIVES}",
    "product": f"({_INPUTS}, Tensor t_similarity, {_CALL}) -> Tensor",
    "best": f"({_INPUTS}, {_CALL}) -> (Tensor, Tensor)",
}.items():
    _LIBRARY.define(f"fused_{_name}{_schema}", tags=torch.Tag.pt2_compliant_tag)

score = torch.ops.smooth_alignment.fused_score.default
gradients = torch.ops.smooth_alignment.fused_gradients.default
tangents = torch.ops.smooth_alignment.fused_tangents.default
product = torch.ops.smooth_alignment.fused_product.default
best = torch.ops.smooth_alignment.fused_best.default
for _operator in (score, gradients, tangents, product, best):
    register_vmap(_operator, _LIBRARY)
without_gradient.register(best, _LIBRARY)


@torch.library.register_fake(score, lib=_LIBRARY)
def _fake_score(similarity: Tensor, *_: Any) -> Tensor:
    return similarity.new_empty(similarity.shape[:1])


@torch.library.register_fake(gradients, lib=_LIBRARY)
def _fake_gradients(
    similarity: Tensor, _: Tensor, values: Tensor, gaps: Gaps, *call_and_with_values: Any
) -> Derivatives:
    return _new(similarity, values, gaps if call_and_with_values[-1] else [])


@torch.library.register_fake(tangents, lib=_LIBRARY)
def _fake_tangents(similarity: Tensor, _: Tensor, values: Tensor, gaps: Gaps, *__: Any) -> Derivatives:
    return _new(similarity, values, gaps)


@torch.library.register_fake(product, lib=_LIBRARY)
def _fake_product(similarity: Tensor, *_: Any) -> Tensor:
    return similarity.new_empty(similarity.shape)


@torch.library.register_fake(best, lib=_LIBRARY)
def _fake_best(similarity: Tensor, *_: Any) -> Pair:
    return similarity.new_empty(similarity.shape[:1]), similarity.new_empty(similarity.shape, dtype=torch.bool)


def _score(similarity: Tensor, lengths: Tensor, values: Tensor, gaps: Gaps, kind: int, options: int) -> Tensor:
    """Scores (batch,)."""
    call, _alive = _packed(similarity, lengths, values, kind, options, gaps)
    scores = similarity.new_empty(similarity.size(0))
    _check(_kernel(similarity, kind, options).score(call, scores.data_ptr()))
    return scores


def _gradients(
    similarity: Tensor, lengths: Tensor, values: Tensor, gaps: Gaps, kind: int, options: int, with_values: bool
) -> Derivatives:
    """Scores, and their gradients with respect to similarity, values and gaps.

    Unless with_values, 0 for the values and none for the gaps.
    """
    if not with_values:
        scores, d_similarity, *_ = _marginals(similarity, lengths, values, gaps, kind, options, with_values)
        return scores, d_similarity, torch.zeros_like(values), []
    scores, d_similarity, d_values, d_gaps = results = _new(similarity, values, gaps)
    call, _alive = _packed(similarity, lengths, values, kind, options, gaps, d_gaps=d_gaps)
    pointers = scores.data_ptr(), d_similarity.data_ptr(), d_values.data_ptr()
    _check(_kernel(similarity, kind, options).gradients(call, *pointers))
    return results


def _marginals(
    similarity: Tensor, lengths: Tensor, values: Tensor, gaps: Gaps, kind: int, options: int, _: bool
) -> Derivatives:
    """Scores, and their gradients with respect to similarity; the values stand where their gradients would."""
    call, _alive = _packed(similarity, lengths, values, kind, options, gaps)
    scores, d_similarity = similarity.new_empty(similarity.size(0)), _like(similarity)
    _check(_kernel(similarity, kind, options).marginals(call, scores.data_ptr(), d_similarity.data_ptr()))
    return scores, d_similarity, values, []


def _tangents(
    similarity: Tensor,
    lengths: Tensor,
    values: Tensor,
    gaps: Gaps,
    t_similarity: Tensor,
    t_values: Tensor,
    t_gaps: Gaps,
    kind: int,
    options: int,
) -> Derivatives:
    """The tangents of all results of gradients, in the direction (t_similarity, t_values, t_gaps)."""
    scores, d_similarity, d_values, d_gaps = results = _new(similarity, values, gaps)
    call, _alive = _packed(similarity, lengths, values, kind, options, gaps, t_gaps, d_gaps)
    t_matrices, t_values = _contiguous_matrices(t_similarity), t_values.contiguous()
    direction = t_matrices.data_ptr(), t_matrices.stride(0), t_values.data_ptr()
    pointers = scores.data_ptr(), d_similarity.data_ptr(), d_values.data_ptr()
    _check(_kernel(similarity, kind, options).tangents(call, *direction, *pointers))
    return results


def _product(
    similarity: Tensor, lengths: Tensor, values: Tensor, gaps: Gaps, t_similarity: Tensor, kind: int, options: int
) -> Tensor:
    """The tangents of the gradients with respect to similarity, in a direction that is 0 for values and gaps."""
    call, _alive = _packed(similarity, lengths, values, kind, options, gaps)
    result, t_matrices = _like(similarity), _contiguous_matrices(t_similarity)
    direction = t_matrices.data_ptr(), t_matrices.stride(0), 0
    _check(_kernel(similarity, kind, options).tangents(call, *direction, 0, result.data_ptr(), 0))
    return result


def _best(similarity: Tensor, lengths: Tensor, values: Tensor, gaps: Gaps, kind: int, options: int) -> Pair:
    """The scores (batch,) of the best alignments, and their matches (batch, rows, cols), boolean.

    The temperature is not looked at.
    """
    call, _alive = _packed(similarity, lengths, values, kind, options, gaps)
    scores, matches = _fake_best(similarity)
    _check(_kernel(similarity, kind, options).best(call, scores.data_ptr(), matches.data_ptr()))
    return scores, matches


class Functions(NamedTuple):
    """The operators as functions."""

    score: Callable[..., Tensor]
    gradients: Callable[..., Derivatives]
    tangents: Callable[..., Derivatives]
    product: Callable[..., Tensor]
    best: Callable[..., Pair]


for _name, _function in Functions(_score, _gradients, _tangents, _product, _best)._asdict().items():
    _LIBRARY.impl(f"fused_{_name}", _function, "CPU")
# without PyTorch's dispatcher, which takes 25 microseconds from cold caches: for ordinary tensors in a call that
# autograd does not record; `gradients` then gives the marginals only
DIRECT = Functions(_score, _marginals, _tangents, _product, _best)
# where autograd records: tangents, product and best stay operators, because a compiler may trace the backward
RECORDED = Functions(_score, _gradients, tangents, product, best)


def _kernel(similarity: Tensor, kind: int, options: int) -> cpp.Kernel:
    return cpp.kernel(DTYPE_NAMES[similarity.dtype], kind, options)


def _packed(
    similarity: Tensor,
    lengths: Tensor,
    values: Tensor,
    kind: int,
    options: int,
    gaps: Gaps,
    t_gaps: Gaps = (),
    d_gaps: Gaps = (),
) -> tuple[bytes, Any]:
    """The call as the kernels take it, and what it points into, which must outlive it.

    t_gaps, d_gaps: none, or as many as gaps.
    """
    pairs, rows, cols = similarity.shape
    similarity, values, has_lengths = _contiguous_matrices(similarity), values.contiguous(), lengths.numel() > 0
    if has_lengths and lengths.dtype is not torch.int32:
        # the kernels clamp to the matrix, or refuse, but the conversion must not wrap around
        wide = lengths if lengths.dtype is torch.int64 else lengths.to(torch.int64)
        lengths = wide.clamp(-1, _LARGEST).to(torch.int32)
    lengths = lengths.contiguous() if has_lengths else lengths
    packed_gaps, in_gaps = _packed_gaps(options, gaps, t_gaps, d_gaps) if gaps else (None, None)
    threads, layout = torch.get_num_threads(), 0  # ALIGNMENT_CHOOSE
    numbers = kind, options, threads, layout, pairs, rows, cols
    pointers = (
        similarity.data_ptr(),
        similarity.stride(0),
        lengths.data_ptr() if has_lengths else 0,
        values.data_ptr(),
        openmp.parallel,
        ctypes.addressof(packed_gaps) if packed_gaps else 0,
    )
    return cpp.pack_call(*numbers, *pointers), (similarity, lengths, values, packed_gaps, in_gaps)


def _packed_gaps(options: int, gaps: Gaps, t_gaps: Gaps, d_gaps: Gaps) -> tuple[Any, Any]:
    """Pack the gaps by position, their tangents and their gradients."""
    costs, directions = [_contiguous_matrices(gap) for gap in gaps], [_contiguous_matrices(gap) for gap in t_gaps]
    absent, rest = (0,) * 5, iter(range(len(costs)))
    numbers = [next(rest) if options & flag else None for flag in (cpp.OPEN_BY_POSITION, cpp.EXTEND_BY_POSITION)]

    def fields(number: int) -> tuple[int, ...]:
        direction = (directions[number].data_ptr(), directions[number].stride(0)) if directions else (0, 0)
        result = d_gaps[number].data_ptr() if d_gaps else 0
        return costs[number].data_ptr(), costs[number].stride(0), *direction, result

    packed = [absent if number is None else fields(number) for number in numbers]
    return ctypes.create_string_buffer(cpp.pack_gaps(*packed[0], *packed[1])), (costs, directions)


def _contiguous_matrices(matrices: Tensor) -> Tensor:
    """Make each matrix contiguous; pairs may have any stride."""
    if matrices.is_contiguous() or matrices.stride()[1:] == (matrices.shape[2], 1):
        return matrices
    # PyTorch transposes a single matrix twice as fast as one of a batch of one
    return matrices[0].contiguous()[None] if len(matrices) == 1 else matrices.contiguous()


def _new(similarity: Tensor, values: Tensor, gaps: Gaps) -> Derivatives:
    return similarity.new_empty(similarity.size(0)), _like(similarity), _like(values), [_like(gap) for gap in gaps]


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)  # in half the time of new_empty


class LengthsOutside(ValueError):
    """A length outside the matrix, in a call that has cpp.CHECK_LENGTHS among its options."""


def _check(status: int) -> None:
    if not status:
        return
    if status == cpp.BAD_LENGTHS:
        raise LengthsOutside("lengths outside the matrix")
    if status == cpp.OUT_OF_MEMORY:
        raise MemoryError("out of memory in the native alignment kernel")
    raise RuntimeError("internal error: the native alignment kernel rejected the call")
