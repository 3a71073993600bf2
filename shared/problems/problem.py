"""What the benchmark needs to know of a problem, and the inputs of one run."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Inputs:
    """One call's arguments, as NumPy arrays and numbers."""

    text: str  # one line for the table's head
    similarity: np.ndarray  # (rows, cols) or (batch, rows, cols)
    lengths: np.ndarray | None  # (batch, 2), or None
    parameters: dict[str, float] = field(default_factory=dict)  # differentiable
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def weights(self) -> np.ndarray:
        """c of the loss sum(c * marginals), whose gradient is the pass hvp: normal, drawn by the seed.

        Of similarity's shape and dtype; in the padding too, where it must have no influence.
        """
        drawn = np.random.default_rng(self.seed).standard_normal(self.similarity.shape, dtype=np.float32)
        return drawn.astype(self.similarity.dtype)

    @property
    def pair_lengths(self) -> np.ndarray:
        """(pairs, 2): the lengths of every pair, also of a single one without lengths."""
        rows, cols = self.similarity.shape[-2:]
        pairs = len(self.similarity) if self.similarity.ndim == 3 else 1
        given = np.array([rows, cols]) if self.lengths is None else self.lengths
        return np.broadcast_to(given, (pairs, 2))

    @property
    def resized(self) -> "Inputs":
        """The same with a column less, or one more where there is one: a shape that no compiler has seen yet."""
        cols = self.similarity.shape[-1]
        if cols > 1:
            similarity = np.ascontiguousarray(self.similarity[..., :-1])
        else:
            similarity = np.concatenate([self.similarity] * 2, axis=-1)
        lengths = None
        if self.lengths is not None:
            lengths = np.minimum(self.lengths, similarity.shape[-2:]).astype(self.lengths.dtype)
        return replace(self, similarity=similarity, lengths=lengths)

    @property
    def work(self) -> int:
        """Cells inside the lengths: the work asked for, not the padding."""
        return int(self.pair_lengths.astype(np.int64).prod(axis=1).sum())


@dataclass(frozen=True)
class Problem:
    """What is computed."""

    name: str
    text: str  # one line
    passes: tuple[str, ...]
    arguments: dict[str, Any]  # its parameters and options, which the command line may set, with their defaults
    # what a user asked for -> the inputs of the run by their names
    inputs: Callable[[Any], dict[str, Inputs]]
    # cells that one call does, the name of that rate
    rate: str = "GCUPS"
