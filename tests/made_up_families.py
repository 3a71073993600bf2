"""Small families for tests of learning, which are quick to train on."""

import numpy as np

from shared.learning.families import ALPHABET, Family


def made_up_family(name: str, seed: int = 0, sequences: int = 6, columns: int = 24) -> Family:
    """Copies of one ancestor with a fifth of the residues changed and some left out."""
    random = np.random.default_rng(seed)
    ancestor = random.integers(len(ALPHABET), size=columns)
    codes, places = [], []
    for _ in range(sequences):
        changed = np.where(random.random(columns) < 0.2, random.integers(len(ALPHABET), size=columns), ancestor)
        kept = np.flatnonzero(random.random(columns) < 0.9)
        codes.append(changed[kept].astype(np.int32))
        places.append(kept.astype(np.int32))
    return Family(name, "", tuple(f"{name}/{number}" for number in range(sequences)), tuple(codes), tuple(places))
