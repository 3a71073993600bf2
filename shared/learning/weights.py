"""The models' first weights, the same for both frameworks: float64 arrays, named as the models name them.

Both models begin alike: equal residues have a similarity of about 1, others of about -0.5.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.checks import check_choice
from shared.learning.families import ALPHABET

RESIDUES = len(ALPHABET)
CHANNELS = 32  # of the encoder
BLOCKS = 2
WIDTH = 5  # positions under a convolution's kernel

_EQUAL, _OTHER = 1.5, -0.5  # the similarity of two residues: the sum where they are equal, else the second alone
_GAP_OPEN, _GAP_EXTEND = -3.0, -0.5
_NOISE = 0.01


class Model(NamedTuple):
    """A model in words, and Adam's learning rate for it."""

    text: str
    learning_rate: float


MODELS = {
    "matrix": Model("a 20 × 20 substitution matrix and affine gaps", 0.02),
    "encoder": Model("residual convolutions whose products are the similarity, and affine gaps", 0.001),
}

Weights = dict[str, NDArray[np.float64]]


def initial_weights(model: str, seed: int) -> Weights:
    """The weights that a training begins with. Raises ValueError for an unknown model."""
    check_choice("model", model, tuple(MODELS))
    random = np.random.default_rng(seed)
    weights = _matrix(random) if model == "matrix" else _encoder(random)
    return weights | {"gap_open": raw_gap(_GAP_OPEN), "gap_extend": raw_gap(_GAP_EXTEND)}


def raw_gap(gap: float) -> NDArray[np.float64]:
    """The weight () that a model turns into this gap, which is -log(1 + exp(weight)) and so always below 0."""
    return np.array(-gap + math.log(-math.expm1(gap)))


def check_weights(weights: dict[str, Any], expected: dict[str, tuple[int, ...]]) -> None:
    """Raise ValueError unless these are the weights of a model; expected: the shape of each."""
    shapes = {name: np.shape(value) for name, value in weights.items()}
    if shapes != expected:
        raise ValueError(f"weights must have the names and shapes {expected}, got {shapes}")


def _matrix(random: np.random.Generator) -> Weights:
    return {"matrix": _EQUAL * np.eye(RESIDUES) + _OTHER + _NOISE * random.standard_normal((RESIDUES, RESIDUES))}


def _encoder(random: np.random.Generator) -> Weights:
    # orthogonal rows of length sqrt(CHANNELS); blocks that add little; and products of _EQUAL after division by
    # sqrt(CHANNELS)
    orthogonal = np.linalg.qr(random.standard_normal((CHANNELS, CHANNELS)))[0]
    weights = {"embedding.weight": math.sqrt(CHANNELS) * orthogonal[:RESIDUES]}
    for block in range(BLOCKS):
        weights |= {
            f"blocks.{block}.norm.weight": np.ones(CHANNELS),
            f"blocks.{block}.norm.bias": np.zeros(CHANNELS),
            f"blocks.{block}.convolution.weight": _NOISE * random.standard_normal((CHANNELS, CHANNELS, WIDTH)),
        }
    scale = math.sqrt(_EQUAL / math.sqrt(CHANNELS))
    return weights | {"projection.weight": scale * np.eye(CHANNELS), "offset": np.array(_OTHER)}
