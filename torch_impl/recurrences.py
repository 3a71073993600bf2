"""How a recurrence of shared.alignments is computed in PyTorch: the smooth maximum, and one step for some cells.

A sweep hands a step the similarity of some cells and the states of their three neighbours; all tensors have one
shape, (*batch) for a single cell or (positions, *batch) for an anti-diagonal. The differentiable parameters are passed
as a dict: each of shape (*batch), or for a gap by position, of the shape of the cells.
"""

import functools

import torch

from shared.alignments import Recurrence

Tensor = torch.Tensor
States = tuple[Tensor, ...]
Parameters = dict[str, Tensor]


def smooth_maximum(values: Tensor, temperature: Tensor, dim: int) -> Tensor:
    """temperature * log(sum of exp(value / temperature)) over one dimension, the first or the last, of values.

    The largest value is subtracted before the division: after it, value / temperature - largest / temperature would
    lose digits, and for LOWEST (whose rounding error is huge) everything.
    torch.logsumexp would look for the largest value again. The gradient of a quotient would divide LOWEST by the
    temperature twice, which at 1e-10 is infinite in float32, and NaN as soon as it meets a weight of 0.
    """
    largest = values.detach().amax(dim, keepdim=True)
    weights = torch.exp((values - largest) * temperature.reciprocal().unsqueeze(dim))
    return largest.squeeze(dim) + temperature * torch.log(weights.sum(dim))


def smax(parameters: Parameters, *values: Tensor) -> Tensor:
    """The smooth maximum of tensors of one shape, element by element."""
    return smooth_maximum(torch.stack(values, dim=-1), parameters["temperature"], dim=-1)


def recurrence_step(
    recurrence: Recurrence, parameters: Parameters, s: Tensor, diagonal: States, left: States, up: States
) -> tuple[States, Tensor]:
    """The states of some cells, and the score of the alignments that end there."""
    return recurrence.step(functools.partial(smax, parameters), parameters, s, diagonal, left, up)
