"""What one step of each alignment does, in PyTorch: its states, borders, step and end. Nothing about walking a matrix.

A sweep hands a step the similarity of some cells and the states of their three neighbours; all tensors have one
shape, (*batch) for a single cell or (positions, *batch) for an anti-diagonal. A recurrence holds its options and is
hashable; its differentiable parameters, each of shape (*batch), are passed to it as a dict.
"""

from dataclasses import dataclass
from typing import Any

import torch

from shared.numerics import LOWEST

Tensor = torch.Tensor
States = tuple[Tensor, ...]
Parameters = dict[str, Tensor]


def smooth_maximum(values: Tensor, temperature: Tensor, dim: int) -> Tensor:
    """temperature * log(sum of exp(value / temperature)) over one dimension, the first or the last, of values.

    The largest value is taken off before the division: after it, value / temperature - largest / temperature would
    lose digits, and for LOWEST (whose rounding error is huge) everything.
    torch.logsumexp would look for the largest value again.
    """
    largest = values.detach().amax(dim, keepdim=True)
    odds = torch.exp((values - largest) / temperature.unsqueeze(dim))
    return largest.squeeze(dim) + temperature * torch.log(odds.sum(dim))


@dataclass(frozen=True)
class LocalLinear:
    """smith_waterman: local alignment with a linear gap; one state, h.

        h(i,j) = smax( h(i-1,j-1) + s(i,j), h(i,j-1) + gap, h(i-1,j) + gap, s(i,j) )

    Source: Petti et al. 2021, doi:10.1101/2021.10.23.465204.
    """

    end: str = "any"

    def border(self, parameters: Parameters, diagonal: Any) -> tuple[Any, ...]:
        """The states of the cells outside the matrix on anti-diagonal i + j = diagonal."""
        return (LOWEST,)

    def step(
        self, parameters: Parameters, s: Tensor, diagonal: States, left: States, up: States
    ) -> tuple[States, Tensor]:
        """New states, and what an alignment that ends in these cells is worth."""
        matched = diagonal[0] + s
        gap = parameters["gap"]
        choices = torch.stack((matched, left[0] + gap, up[0] + gap, s), dim=-1)
        h = smooth_maximum(choices, parameters["temperature"], dim=-1)
        return (h,), h if self.end == "any" else matched

    def may_end(self, i: Tensor, j: Tensor, lengths: Tensor) -> Tensor:
        """Mask of the cells where an alignment may end. lengths: (2, *batch)."""
        inside = (i < lengths[0]) & (j < lengths[1])
        return inside if self.end == "any" else inside & (i >= 1) & (j >= 1)


RECURRENCES = {
    "smith_waterman": LocalLinear,
}
