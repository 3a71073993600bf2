"""What is learned: the similarity of two sequences' residues, and the gaps.

    Matrix:   s(i,j) = (M + Mᵀ)(first(i), second(j)) / 2
    Encoder:  s(i,j) = f(first)(i) · f(second)(j) / sqrt(channels) + offset, f: embedding, residual blocks, projection

`torch_impl.learning.models` has the same names with the same meaning. Here a layer takes one sequence, which jax.vmap
maps over a batch.
"""

import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from shared.learning.weights import BLOCKS, CHANNELS, RESIDUES, WIDTH, Weights, check_weights

Array = jax.Array


class Gaps(eqx.Module):
    """Affine gaps, the same everywhere."""

    gap_open: Array  # ()
    gap_extend: Array  # ()

    def __init__(self) -> None:
        self.gap_open = self.gap_extend = jnp.zeros(())

    def gaps(self) -> tuple[Array, Array]:
        """The scores of opening and of extending a gap, both below 0."""
        return jax.nn.log_sigmoid(-self.gap_open), jax.nn.log_sigmoid(-self.gap_extend)


class Matrix(Gaps):
    """A substitution matrix and affine gaps."""

    matrix: Array  # (20, 20)

    def __init__(self) -> None:
        super().__init__()
        self.matrix = jnp.zeros((RESIDUES, RESIDUES))

    def symmetric(self) -> Array:
        """The similarity of each residue with each, (20, 20)."""
        return (self.matrix + self.matrix.T) / 2

    def similarity(self, first: Array, second: Array, lengths: Array) -> Array:
        """(pairs, rows, cols) for residues (pairs, rows) and (pairs, cols)."""
        # products with one-hot vectors: their gradient is a product too, not a scatter of every cell into 400 sums
        one, other = (jax.nn.one_hot(residues, RESIDUES, dtype=self.matrix.dtype) for residues in (first, second))
        return one @ self.symmetric() @ other.mT


class Block(eqx.Module):
    """A residual block: normalisation, activation, and a convolution over positions."""

    norm: eqx.nn.LayerNorm
    convolution: eqx.nn.Conv1d

    def __init__(self, key: Array) -> None:
        self.norm = eqx.nn.LayerNorm(CHANNELS)
        self.convolution = eqx.nn.Conv1d(CHANNELS, CHANNELS, WIDTH, padding="SAME", use_bias=False, key=key)

    def __call__(self, x: Array, inside: Array) -> Array:
        """x (length, channels); inside (length, 1): 0 for padding, which must not reach its neighbours."""
        hidden = jax.nn.silu(jax.vmap(self.norm)(x)) * inside
        return x + self.convolution(hidden.T).T


class Encoder(Gaps):
    """A convolutional encoder and affine gaps."""

    embedding: eqx.nn.Embedding
    blocks: list[Block]
    projection: eqx.nn.Linear
    offset: Array  # ()

    def __init__(self) -> None:
        super().__init__()
        embedding, projection, *blocks = jax.random.split(jax.random.key(0), 2 + BLOCKS)
        self.embedding = eqx.nn.Embedding(RESIDUES, CHANNELS, key=embedding)
        self.blocks = [Block(key) for key in blocks]
        self.projection = eqx.nn.Linear(CHANNELS, CHANNELS, use_bias=False, key=projection)
        self.offset = jnp.zeros(())

    def encode(self, residues: Array, length: Array) -> Array:
        """The positions (length, channels) of one sequence."""
        inside = (jnp.arange(len(residues)) < length)[:, None]
        x = jax.vmap(self.embedding)(residues)
        for block in self.blocks:
            x = block(x, inside)
        return jax.vmap(self.projection)(x)

    def similarity(self, first: Array, second: Array, lengths: Array) -> Array:
        """(pairs, length, length) for residues (pairs, length) of each, and lengths (pairs, 2)."""
        both = jax.vmap(self.encode)(jnp.concatenate([first, second]), jnp.ravel(lengths, order="F"))
        one, other = jnp.split(both, 2)
        return one @ other.mT / math.sqrt(CHANNELS) + self.offset


def with_weights(model: str, weights: Weights, dtype: str) -> Any:
    """A model with these weights. Raises ValueError if they are another model's."""
    skeleton = eqx.filter_eval_shape({"matrix": Matrix, "encoder": Encoder}[model])
    leaves, structure = jax.tree.flatten_with_path(skeleton)
    check_weights(weights, {_name(path): leaf.shape for path, leaf in leaves})
    return jax.tree.unflatten(structure, [jnp.asarray(weights[_name(path)], dtype) for path, _ in leaves])


def weights_of(model: Any) -> Weights:
    """Copies of a model's weights."""
    return {_name(path): jax.device_get(leaf).astype("float64") for path, leaf in jax.tree.leaves_with_path(model)}


_name = functools.partial(jax.tree_util.keystr, simple=True, separator=".")
