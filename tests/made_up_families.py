"""Small families and batches for tests of learning, and the gradients that a trainer takes of a batch."""

from typing import Any

import numpy as np

from shared.learning.batches import Batch
from shared.learning.families import ALPHABET, Family


def made_up_family(name: str, seed: int = 0, sequences: int = 6, columns: int = 24) -> Family:
    """Copies of one ancestor with a fifth of the residues changed and some left out."""
    random = np.random.default_rng(seed)
    ancestor = random.integers(len(ALPHABET), size=columns)
    codes, places = [], []
    for _ in range(sequences):
        changed = np.where(random.random(columns) < 0.2, random.integers(len(ALPHABET), size=columns), ancestor)
        columns_left = np.flatnonzero(random.random(columns) < 0.9)
        codes.append(changed[columns_left].astype(np.int32))
        places.append(columns_left.astype(np.int32))
    return Family(name, "", tuple(f"{name}/{number}" for number in range(sequences)), tuple(codes), tuple(places))


def ragged(length: int, seed: int = 0, pairs: int = 4) -> Batch:
    """Random pairs, the first of full length; the last only fills the batch."""
    random = np.random.default_rng([seed, length])
    first, second = random.integers(0, 20, (2, pairs, length)).astype(np.int32)
    lengths = random.integers(3, length + 1, (pairs, 2)).astype(np.int32)
    lengths[0], lengths[-1] = length, 0
    partners = np.full((pairs, length), -1, np.int32)
    for row, (rows, cols) in zip(partners, lengths, strict=True):
        count = min(rows, cols) // 2
        places = (np.sort(random.permutation(size)[:count]) for size in (rows, cols))
        row[next(places)] = next(places)
    return Batch(first, second, lengths, partners, (lengths[:, 0] > 0).astype(np.float32))


def gradients_of_first_step(trainer: Any) -> dict[str, np.ndarray]:
    """The gradients of the first step, from Adam's first moment, which is a tenth of them."""
    model, optimizer = trainer._trained
    if isinstance(optimizer, tuple):  # optax's
        from jax_impl.learning.models import weights_of

        return {name: moment / 0.1 for name, moment in weights_of(optimizer[0].mu).items()}
    return {name: optimizer.state[value]["exp_avg"].numpy() / 0.1 for name, value in model.named_parameters()}
