"""A batch divided into shards, one for each process or device that trains.

All shards have the same number of rows, which depends on the batch's alone: so every process compiles the same shapes,
and no others than the batches have. Pairs of unlike length are dealt so that shards have about as many cells each.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.learning.batches import Batch


class Divided(NamedTuple):
    """A batch whose shards stand one after the other, and where each row of the batch before went."""

    batch: Batch  # (shards · rows, …): shard k has rows k · rows to (k + 1) · rows
    places: NDArray[np.intp]  # (pairs,): results[places] are in the order of the batch before

    def shard(self, number: int, shards: int) -> Batch:
        """That of this number, from 0."""
        return Batch._make(np.split(array, shards)[number] for array in self.batch)


def divided(batch: Batch, shards: int) -> Divided:
    """A batch as so many shards, filled up with rows of lengths 0 and weight 0."""
    numbers = dealt(batch.lengths, shards)
    rows = max(len(of_shard) for of_shard in numbers)
    places = np.empty(len(batch.lengths), np.intp)
    for number, of_shard in enumerate(numbers):
        places[of_shard] = number * rows + np.arange(len(of_shard))
    whole = Batch._make(np.zeros((shards * rows, *array.shape[1:]), array.dtype) for array in batch)
    whole.partners[:] = -1
    for of_shard, array in zip(whole, batch, strict=True):
        of_shard[places] = array
    return Divided(whole, places)


def dealt(lengths: NDArray[np.integer], shards: int) -> list[NDArray[np.intp]]:
    """The numbers of the pairs of each shard, for lengths (pairs, 2); no shard has more than ceil(pairs / shards).

    Pairs go by number of cells, the largest first, to the shard that has the fewest cells of those with room.
    """
    most = -(-len(lengths) // shards)
    cells = lengths.astype(np.int64).prod(1)
    owners, loads = np.empty(len(cells), np.intp), np.zeros(shards, np.int64)
    counts = np.zeros(shards, np.intp)
    for pair in np.argsort(-cells, kind="stable"):
        shard = min(np.flatnonzero(counts < most), key=lambda number: (loads[number], counts[number]))
        owners[pair] = shard
        loads[shard] += cells[pair]
        counts[shard] += 1
    return [np.flatnonzero(owners == number) for number in range(shards)]
