"""Pairs of sequences of families, and batches of them: one shape for each bucket of lengths, so few are compiled."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.learning.families import Family

CELLS = 1_500_000  # of a batch at most, its padding included, unless one pair has more
MOST_PAIRS = 32  # of a batch
_STEP = 1.25  # from one bucket of lengths to the next


class Pair(NamedTuple):
    """Two sequences of a family, by their numbers."""

    family: Family
    first: int
    second: int


class Batch(NamedTuple):
    """Pairs padded to one length. Those that only fill it have lengths 0 and weight 0."""

    first: NDArray[np.int32]  # (pairs, length), numbers of letters
    second: NDArray[np.int32]  # (pairs, length)
    lengths: NDArray[np.int32]  # (pairs, 2)
    partners: NDArray[np.int32]  # (pairs, length): of each residue of first its true partner in second, or -1
    weights: NDArray[np.float32]  # (pairs,): 1, or 0


class Packed(NamedTuple):
    """A batch, and the pairs that it holds, which stand first in it."""

    batch: Batch
    pairs: tuple[Pair, ...]


def draw_pairs(families: Sequence[Family], of_each: int, random: np.random.Generator) -> list[Pair]:
    """So many pairs of each family without replacement, or all if it has fewer; only those with a true partner."""
    found = []
    for family in families:
        every = list(itertools.combinations(range(len(family.codes)), 2))
        pairs = (Pair(family, *every[place]) for place in random.permutation(len(every)))
        aligned = (pair for pair in pairs if (family.partners(pair.first, pair.second) >= 0).any())
        found += itertools.islice(aligned, of_each)
    return found


def pack(pairs: Sequence[Pair], random: np.random.Generator | None = None, cells: int = CELLS) -> list[Packed]:
    """Batches of pairs of similar length. random: shuffles pairs within buckets, and the batches."""
    buckets: dict[int, list[Pair]] = {}
    for pair in pairs:
        longest = max(len(pair.family.codes[pair.first]), len(pair.family.codes[pair.second]))
        buckets.setdefault(bucket(longest), []).append(pair)
    batches = []
    for length, own in sorted(buckets.items()):
        count = max(1, min(MOST_PAIRS, cells // length**2))
        order = range(len(own)) if random is None else random.permutation(len(own))
        ordered = [own[place] for place in order]
        batches += [_packed(ordered[at : at + count], length, count) for at in range(0, len(own), count)]
    return batches if random is None else [batches[place] for place in random.permutation(len(batches))]


def bucket(length: int) -> int:
    """The padded length: the next of 16, 24, 32, …, each some 1.25 times as long as the one before."""
    size = 16
    while size < length:
        size = math.ceil(size * _STEP / 8) * 8
    return size


def _packed(pairs: Sequence[Pair], length: int, count: int) -> Packed:
    shape = (count, length)
    batch = Batch(
        np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros((count, 2), np.int32),
        np.full(shape, -1, np.int32), np.zeros(count, np.float32),
    )  # fmt: skip
    for row, (family, first, second) in enumerate(pairs):
        one, other = family.codes[first], family.codes[second]
        batch.first[row, : len(one)], batch.second[row, : len(other)] = one, other
        batch.lengths[row] = len(one), len(other)
        batch.partners[row, : len(one)] = family.partners(first, second)
        batch.weights[row] = 1
    return Packed(batch, tuple(pairs))
