"""The native kernels as operators of PyTorch, without derivatives: see torch_impl.derivatives.

Tensors: similarity (batch, rows, cols), lengths (batch, 2) of integers or (0, 2) for whole matrices, values (batch, P),
the parameters in the order of shared.alignments.ALIGNMENTS; all floats of similarity's dtype. Results are new and
contiguous. A similarity is copied unless each matrix is contiguous; pairs may have any stride.
"""

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from shared.kernels import cpp
from torch_impl.kernels import openmp

Tensor = torch.Tensor
Pair = tuple[Tensor, Tensor]
Triple = tuple[Tensor, Tensor, Tensor]

NAMES = {torch.float32: "float32", torch.float64: "float64"}
_LARGEST = torch.iinfo(torch.int32).max
_INPUTS = "Tensor similarity, Tensor lengths, Tensor values"
_CALL = "int kind, int options"
_TRIPLE = "(Tensor, Tensor, Tensor)"

# plain operators: those of torch.library.custom_op take 15 microseconds more per call
for _name, _schema in {
    "score": f"({_INPUTS}, {_CALL}) -> Tensor",
    "gradients": f"({_INPUTS}, {_CALL}, bool with_values) -> {_TRIPLE}",
    "tangents": f"({_INPUTS}, Tensor t_similarity, Tensor t_values, {_CALL}) -> {_TRIPLE}",
    "product": f"({_INPUTS}, Tensor t_similarity, {_CALL}) -> Tensor",
    "best": f"({_INPUTS}, Tensor? open, Tensor? extend, {_CALL}) -> (Tensor, Tensor)",
}.items():
    torch.library.define(f"smooth_alignment::fused_{_name}", _schema, tags=torch.Tag.pt2_compliant_tag)

score = torch.ops.smooth_alignment.fused_score.default
gradients = torch.ops.smooth_alignment.fused_gradients.default
tangents = torch.ops.smooth_alignment.fused_tangents.default
product = torch.ops.smooth_alignment.fused_product.default
best = torch.ops.smooth_alignment.fused_best.default


@torch.library.register_fake("smooth_alignment::fused_score")
def _fake_score(similarity: Tensor, lengths: Tensor, values: Tensor, kind: int, options: int) -> Tensor:
    return similarity.new_empty(similarity.shape[:1])


@torch.library.register_fake("smooth_alignment::fused_gradients")
def _fake_gradients(
    similarity: Tensor, lengths: Tensor, values: Tensor, kind: int, options: int, with_values: bool
) -> Triple:
    return _new(similarity, values)


@torch.library.register_fake("smooth_alignment::fused_tangents")
def _fake_tangents(
    similarity: Tensor,
    lengths: Tensor,
    values: Tensor,
    t_similarity: Tensor,
    t_values: Tensor,
    kind: int,
    options: int,
) -> Triple:
    return _new(similarity, values)


@torch.library.register_fake("smooth_alignment::fused_product")
def _fake_product(
    similarity: Tensor, lengths: Tensor, values: Tensor, t_similarity: Tensor, kind: int, options: int
) -> Tensor:
    return similarity.new_empty(similarity.shape)


def _score(similarity: Tensor, lengths: Tensor, values: Tensor, kind: int, options: int) -> Tensor:
    """Scores (batch,)."""
    call, _alive = _packed(similarity, lengths, values, kind, options)
    scores = similarity.new_empty(similarity.shape[:1])
    _check(cpp.kernel(NAMES[similarity.dtype], kind).score(call, scores.data_ptr()))
    return scores


def _gradients(
    similarity: Tensor, lengths: Tensor, values: Tensor, kind: int, options: int, with_values: bool
) -> Triple:
    """Scores, and their gradients with respect to similarity and values; 0 for the values unless with_values."""
    call, _alive = _packed(similarity, lengths, values, kind, options)
    scores, d_similarity, d_values = results = _new(similarity, values)
    kernel = cpp.kernel(NAMES[similarity.dtype], kind)
    if with_values:
        _check(kernel.gradients(call, scores.data_ptr(), d_similarity.data_ptr(), d_values.data_ptr()))
    else:
        _check(kernel.marginals(call, scores.data_ptr(), d_similarity.data_ptr()))
        d_values.zero_()
    return results


def _tangents(
    similarity: Tensor,
    lengths: Tensor,
    values: Tensor,
    t_similarity: Tensor,
    t_values: Tensor,
    kind: int,
    options: int,
) -> Triple:
    """The tangents of all results of gradients, in the direction (t_similarity, t_values)."""
    call, _alive = _packed(similarity, lengths, values, kind, options)
    results = _new(similarity, values)
    t_rows, t_values = _rows(t_similarity), t_values.contiguous()
    direction = t_rows.data_ptr(), t_rows.stride(0), t_values.data_ptr()
    kernel = cpp.kernel(NAMES[similarity.dtype], kind)
    _check(kernel.tangents(call, *direction, *[result.data_ptr() for result in results]))
    return results


def _product(
    similarity: Tensor, lengths: Tensor, values: Tensor, t_similarity: Tensor, kind: int, options: int
) -> Tensor:
    """The tangents of the gradients with respect to similarity, in a direction that leaves the values alone."""
    call, _alive = _packed(similarity, lengths, values, kind, options)
    result, t_rows = similarity.new_empty(similarity.shape), _rows(t_similarity)
    direction = t_rows.data_ptr(), t_rows.stride(0), 0
    _check(cpp.kernel(NAMES[similarity.dtype], kind).tangents(call, *direction, 0, result.data_ptr(), 0))
    return result


@torch.library.register_fake("smooth_alignment::fused_best")
def _fake_best(
    similarity: Tensor,
    lengths: Tensor,
    values: Tensor,
    open: Tensor | None,
    extend: Tensor | None,
    kind: int,
    options: int,
) -> Pair:
    return similarity.new_empty(similarity.shape[:1]), similarity.new_empty(similarity.shape, dtype=torch.bool)


def _best(
    similarity: Tensor,
    lengths: Tensor,
    values: Tensor,
    open: Tensor | None,
    extend: Tensor | None,
    kind: int,
    options: int,
) -> Pair:
    """The scores (batch,) of the best alignments, and their matches (batch, rows, cols), boolean.

    open, extend: gaps by position, like similarity, in place of their values. The temperature is not looked at.
    """
    call, _alive = _packed(similarity, lengths, values, kind, options, (open, extend))
    scores, matches = _fake_best(similarity, lengths, values, open, extend, kind, options)
    kernel = cpp.kernel(NAMES[similarity.dtype], kind, bool(options & cpp.GAPS_BY_POSITION))
    _check(kernel.best(call, scores.data_ptr(), matches.data_ptr()))
    return scores, matches


class Functions(NamedTuple):
    """The operators as functions."""

    score: Callable[..., Tensor]
    gradients: Callable[..., Triple]
    tangents: Callable[..., Triple]
    product: Callable[..., Tensor]
    best: Callable[..., Pair]


# without PyTorch's dispatcher, which takes 25 microseconds from cold caches: for ordinary tensors in an ordinary call
DIRECT = Functions(_score, _gradients, _tangents, _product, _best)
for _name, _function in DIRECT._asdict().items():
    torch.library.impl(f"smooth_alignment::fused_{_name}", "CPU", _function)


def _packed(
    similarity: Tensor,
    lengths: Tensor,
    values: Tensor,
    kind: int,
    options: int,
    gaps: tuple[Tensor | None, ...] = (),
) -> tuple[bytes, Any]:
    """The call as the kernels take it, and the tensors that it points into, which must outlive it."""
    pairs, rows, cols = similarity.shape
    similarity, values = _rows(similarity), values.contiguous()
    if lengths.dtype is not torch.int32:
        # the kernels clamp to the matrix, or refuse, but the conversion must not wrap around
        wide = lengths if lengths.dtype is torch.int64 else lengths.to(torch.int64)
        lengths = wide.clamp(-1, _LARGEST).to(torch.int32)
    lengths = lengths.contiguous()
    threads, layout = torch.get_num_threads(), 0
    numbers = kind, options, threads, layout, pairs, rows, cols
    pointers = (
        similarity.data_ptr(),
        similarity.stride(0),
        lengths.data_ptr() if lengths.numel() else 0,
        values.data_ptr(),
        openmp.parallel,
        0,
    )
    if all(gap is None for gap in gaps):
        return cpp.pack_call(*numbers, *pointers), (similarity, lengths, values)
    matrices = [None if gap is None else _rows(gap) for gap in gaps]
    places = [(0, 0) if matrix is None else (matrix.data_ptr(), matrix.stride(0)) for matrix in matrices]
    packed = ctypes.create_string_buffer(cpp.pack_gaps(*(number for place in places for number in (*place, 0, 0, 0))))
    alive = similarity, lengths, values, matrices, packed
    return cpp.pack_call(*numbers, *pointers[:-1], ctypes.addressof(packed)), alive


def _rows(matrices: Tensor) -> Tensor:
    """With contiguous matrices; pairs may have any stride."""
    if matrices.stride()[1:] == (matrices.shape[2], 1):
        return matrices
    # PyTorch transposes a single matrix twice as fast as one of a batch of one
    return matrices[0].contiguous()[None] if len(matrices) == 1 else matrices.contiguous()


def _new(similarity: Tensor, values: Tensor) -> Triple:
    scores = similarity.new_empty(similarity.shape[:1])
    return scores, similarity.new_empty(similarity.shape), similarity.new_empty(values.shape)


class LengthsOutside(ValueError):
    """A length outside the matrix, in a call that has cpp.CHECK_LENGTHS among its options."""


def _check(status: int) -> None:
    if not status:
        return
    if status == cpp.BAD_LENGTHS:
        raise LengthsOutside("lengths outside the matrix")
    if status == cpp.OUT_OF_MEMORY:
        raise MemoryError("out of memory in the native alignment kernel")
    raise RuntimeError("the native alignment kernel does not know this call")
