"""DTensors whose batch is sharded over a device mesh: each process computes the pairs that it holds.

A pair needs nothing of another one, so neither the results nor their derivatives take communication. What all pairs
share, a gap say, is replicated, and its gradient the sum over the processes: a DTensor whose placement is Partial.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from shared import checks
from shared.alignments import of_axis

Tensor = torch.Tensor
REMEDY = "make DTensors of all tensors, or of none"


def is_dtensor(value: Any) -> bool:
    """Tell a DTensor by its type's name: PyTorch built without torch.distributed has no such type to import."""
    return type(value).__name__ == "DTensor"


def on_local_pairs(call: Callable[..., Any], similarity: Any, lengths: Any, **others: Any) -> Any:
    """call(similarity, lengths, **others) of the pairs that each process holds, whose results become DTensors.

    similarity: a DTensor (*batch, rows, cols), of which each dimension of its mesh shards the batch or replicates it.
    lengths, others: the other arguments of the call, of each pair or one for all: DTensors placed like similarity or
    replicated, or values other than tensors.

    Returns a DTensor placed like similarity, or a tuple of such. Right to second order, where `call` is.

    Raises TypeError for a tensor beside these that is no DTensor, ValueError for another shape, mesh or placement.
    """
    # not at the top: see is_dtensor
    from torch.distributed.tensor import DTensor, Partial, Replicate

    arguments, arrays = {"lengths": lengths} | others, {}
    for name, value in arguments.items():
        by_axis = enumerate(value) if isinstance(value, tuple) else ()
        for key, array in [(name, value), *((of_axis(name, axis), gap) for axis, gap in by_axis)]:
            if isinstance(array, (Tensor, np.ndarray)):
                arrays[key] = array
    _check(similarity, arrays)
    mesh, placements = similarity.device_mesh, similarity.placements
    shared_placements = tuple(Partial() if placement.is_shard() else placement for placement in placements)

    def local_part(value: Any) -> Any:
        if value.ndim and value.placements == placements:
            return _ToLocal.apply(value, placements)
        replicated: Any = _ToLocal.apply(value, shared_placements)
        if not value.ndim:
            return replicated
        pairs = torch.arange(len(value), device=value.device)
        numbers = DTensor.from_local(pairs, mesh, [Replicate()] * mesh.ndim, run_check=False)
        return replicated[numbers.redistribute(placements=placements).to_local()]

    def whole(result: Tensor) -> Any:
        shape = similarity.shape[: similarity.ndim - 2] + result.shape[similarity.ndim - 2 :]
        return _FromLocal.apply(result, mesh, placements, shape)

    def put(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(put, value))
        return local_part(value) if isinstance(value, (Tensor, np.ndarray)) else value

    results = call(local_part(similarity), **{name: put(value) for name, value in arguments.items()})
    return tuple(whole(result) for result in results) if isinstance(results, tuple) else whole(results)


# PyTorch's own from_local and to_local drop the graph of some gradients: second derivatives would be wrong


class _FromLocal(torch.autograd.Function):
    """The DTensor of this shape and these placements whose local part in each process is given."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, mesh: Any, placements: Sequence[Any], shape: torch.Size) -> Any:
        from torch.distributed.tensor import DTensor

        ctx.placements = placements
        stride = tuple(shape[axis + 1 :].numel() for axis in range(len(shape)))
        return DTensor.from_local(own, mesh, placements, run_check=False, shape=shape, stride=stride)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        from torch.distributed.tensor import Replicate

        # each process's part of a sum has the gradient of the sum
        placed = tuple(Replicate() if placement.is_partial() else placement for placement in ctx.placements)
        (gradient,) = gradients
        gradient = gradient if gradient.placements == placed else gradient.redistribute(placements=placed)
        return _ToLocal.apply(gradient, ctx.placements), None, None, None


class _ToLocal(torch.autograd.Function):
    """This process's part of a DTensor, whose gradient is a DTensor with the placements given."""

    @staticmethod
    def forward(ctx: Any, whole: Any, placements: Sequence[Any]) -> Tensor:
        ctx.mesh, ctx.placements, ctx.shape = whole.device_mesh, placements, whole.shape
        shard = whole.to_local()
        return shard.view_as(shard)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return _FromLocal.apply(gradients[0], ctx.mesh, ctx.placements, ctx.shape), None


def _see(argument: Any) -> checks.Seen:
    """A DTensor's own shape; the values are checked by each process for its pairs."""
    if not is_dtensor(argument):
        kind = "numpy.ndarray" if isinstance(argument, np.ndarray) else "torch.Tensor"
        return checks.Seen(f"{kind} beside a similarity that is a DTensor; {REMEDY}", None)
    return checks.Seen("DTensor", tuple(argument.shape), str(argument.dtype).removeprefix("torch."))


def _check(similarity: Any, arrays: dict[str, Any]) -> None:
    vector, lengths = arrays.get("vector"), arrays.get("lengths")
    parameters = {name: value for name, value in arrays.items() if name not in ("vector", "lengths")}
    checks.check_alignment(_see, similarity, lengths, parameters)
    if vector is not None:
        checks.check_vector(_see(vector), tuple(similarity.shape))
    placements = similarity.placements
    if not all(p.is_replicate() or (p.is_shard(0) and similarity.ndim == 3) for p in placements):
        got = f"{placements} of a {'batch' if similarity.ndim == 3 else 'single pair'}"
        raise ValueError(f"similarity must have the placements {_OF_PAIRS}, got {got}; redistribute it first")
    for name, value in arrays.items():
        if value.device_mesh != similarity.device_mesh:
            raise ValueError(f"{name} must be on similarity's mesh {similarity.device_mesh}, got {value.device_mesh}")
        is_like_it = value.ndim and value.placements == placements
        if not (is_like_it or all(p.is_replicate() for p in value.placements)):
            expected = (
                f"similarity's placements {placements} or Replicate()" if value.ndim else "placements Replicate()"
            )
            raise ValueError(f"{name} must have {expected}, got {value.placements}; redistribute it first")


_OF_PAIRS = "Shard(0) of a batch, or Replicate()"
