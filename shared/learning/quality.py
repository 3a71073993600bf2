"""Quality of predicted alignments.

    f1 = 2 Σ hits / Σ (true + predicted)

where the sums go over the pairs of sequences of one family, and count pairs of residues. Of two residues that are both
not aligned in the file (lower-case) it does not say whether they belong together: predicting them counts neither way.
The quality of several families is the mean of their f1.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.learning.batches import Packed


def quality(trainer: Any, batches: Sequence[Packed]) -> float:
    """The mean over families of the f1 of a trainer's predictions."""
    sums: dict[str, NDArray[np.int64]] = {}
    for packed in batches:
        counts = count(trainer.predicted(packed.batch), packed)
        for pair, numbers in zip(packed.pairs, counts.T, strict=True):
            sums[pair.family.name] = sums.get(pair.family.name, 0) + numbers
    return float(np.mean([2 * hits / (true + predicted) for hits, predicted, true in sums.values()]))


def count(predicted: NDArray[np.int32], packed: Packed) -> NDArray[np.int64]:
    """Hits, predicted and true pairs of residues of each pair of a batch, shape (3, pairs).

    predicted: shape (at least pairs, length), of each residue of first its partner in second, or -1.
    """
    scores = []
    for row, (family, first, second) in enumerate(packed.pairs):
        columns, other_columns = family.columns[first], family.columns[second]
        predicted_partners, true = predicted[row, : len(columns)], packed.batch.partners[row, : len(columns)]
        judged = (predicted_partners >= 0) & ((columns >= 0) | (other_columns[predicted_partners] >= 0))
        scores.append([(judged & (predicted_partners == true)).sum(), judged.sum(), (true >= 0).sum()])
    return np.array(scores).T
