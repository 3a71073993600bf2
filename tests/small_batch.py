"""A small ragged batch in float32, and the reference's results for it."""

from typing import Any

import numpy as np

from shared import reference


def batch(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


S = batch(3, 4, 5)
LENGTHS = np.array([(4, 5), (2, 3), (0, 4)], dtype=np.int32)
SCORES = reference.smith_waterman(S, LENGTHS)
MARGINALS = reference.gradients("smith_waterman", S, LENGTHS)["similarity"]


def close(got: Any, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5, atol=1e-5)


def outer_scores(problem: str, outer: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The reference's scores of each batch of an outer axis."""
    return np.stack([getattr(reference, problem)(*pair) for pair in zip(outer, lengths, strict=True)])
