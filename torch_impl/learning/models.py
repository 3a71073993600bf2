"""What is learned: the similarity of two sequences' residues, and the gaps.

    Matrix:   s(i,j) = (M + Mᵀ)(first(i), second(j)) / 2
    Encoder:  s(i,j) = f(first)(i) · f(second)(j) / sqrt(channels) + offset, f: embedding, residual blocks, projection

`jax_impl.learning.models` has the same names with the same meaning. Here a layer takes a batch of sequences.
"""

import math

import torch
from torch import nn
from torch.nn import functional

from shared.learning.weights import BLOCKS, CHANNELS, RESIDUES, WIDTH, Weights, check_weights

Tensor = torch.Tensor


class Gaps(nn.Module):
    """Affine gaps, the same everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.gap_open = nn.Parameter(torch.zeros(()))
        self.gap_extend = nn.Parameter(torch.zeros(()))

    def gaps(self) -> tuple[Tensor, Tensor]:
        """The scores of opening and of extending a gap, both below 0."""
        return functional.logsigmoid(-self.gap_open), functional.logsigmoid(-self.gap_extend)


class Matrix(Gaps):
    """A substitution matrix and affine gaps."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(RESIDUES, RESIDUES))

    def symmetric(self) -> Tensor:
        """The similarity of each residue with each, (20, 20)."""
        return (self.matrix + self.matrix.T) / 2

    def similarity(self, first: Tensor, second: Tensor, lengths: Tensor) -> Tensor:
        """(pairs, rows, cols) for residues (pairs, rows) and (pairs, cols)."""
        # products with one-hot vectors: their gradient is a product too, not a scatter of every cell into 400 sums
        one, other = (functional.one_hot(residues, RESIDUES).to(self.matrix.dtype) for residues in (first, second))
        return one @ self.symmetric() @ other.mT


class Block(nn.Module):
    """A residual block: normalisation, activation, and a convolution over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(CHANNELS)
        self.convolution = nn.Conv1d(CHANNELS, CHANNELS, WIDTH, padding="same", bias=False)

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        """x (pairs, length, channels); inside (pairs, length, 1): 0 for padding, which must not reach its
        neighbours."""
        hidden = functional.silu(self.norm(x)) * inside
        return x + self.convolution(hidden.mT).mT


class Encoder(Gaps):
    """A convolutional encoder and affine gaps."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(RESIDUES, CHANNELS)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.projection = nn.Linear(CHANNELS, CHANNELS, bias=False)
        self.offset = nn.Parameter(torch.zeros(()))

    def encode(self, residues: Tensor, lengths: Tensor) -> Tensor:
        """A vector for each position (pairs, length, channels) of sequences (pairs, length) of lengths (pairs,)."""
        x = self.embedding(residues)
        inside = (torch.arange(residues.shape[1], device=x.device) < lengths[:, None])[:, :, None].to(x.dtype)
        for block in self.blocks:
            x = block(x, inside)
        return self.projection(x)

    def similarity(self, first: Tensor, second: Tensor, lengths: Tensor) -> Tensor:
        """(pairs, length, length) for residues (pairs, length) of each, and lengths (pairs, 2)."""
        one, other = self.encode(torch.cat([first, second]), lengths.mT.flatten()).chunk(2)
        return one @ other.mT / math.sqrt(CHANNELS) + self.offset


def with_weights(model: str, weights: Weights, dtype: torch.dtype) -> Matrix | Encoder:
    """A model with these weights. Raises ValueError if they are another model's."""
    with torch.device("meta"):  # no random numbers are drawn
        skeleton = {"matrix": Matrix, "encoder": Encoder}[model]()
    check_weights(weights, {name: tuple(value.shape) for name, value in skeleton.state_dict().items()})
    tensors = {name: torch.tensor(value, dtype=dtype) for name, value in weights.items()}
    skeleton.load_state_dict(tensors, assign=True)
    return skeleton


def weights_of(model: nn.Module) -> Weights:
    """Copies of a model's weights."""
    return {name: value.detach().double().cpu().numpy().copy() for name, value in model.state_dict().items()}
