"""Pairs of sequences of families, and batches of them, padded to few lengths, so that few shapes are compiled.

Ragged lengths keep the padding out of the alignments: it costs memory traffic alone, where a shape costs JAX a second
of compiling. Lengths that grow by 1.5 take 8 shapes for the bundled families, and 1.7 cells for each that the pairs
have; by 1.25, 11 shapes and as many cells; by 2, 5 shapes and 3.1 cells.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.learning.families import Family

CELLS = 1_000_000  # of a batch at most, its padding included, unless one pair has more
MOST_PAIRS = 32  # of a batch
_SHORTEST, _STEP, _MULTIPLE = 32, 1.5, 8  # of the padded lengths
_TRIED = 10  # so many times the pairs that are wanted of a family are looked at


class Pair(NamedTuple):
    """Two sequences of a family, by their numbers."""

    family: Family
    first: int
    second: int


class Batch(NamedTuple):
    """Pairs padded to one length. Those that only fill it have lengths 0 and weight 0."""

    first: NDArray[np.int32]  # (pairs, length), residues as numbers into ALPHABET
    second: NDArray[np.int32]  # (pairs, length)
    lengths: NDArray[np.int32]  # (pairs, 2)
    partners: NDArray[np.int32]  # (pairs, length): of each residue of first its true partner in second, or -1
    weights: NDArray[np.float32]  # (pairs,): 1, or 0


class Packed(NamedTuple):
    """A batch, and the pairs that it holds, which stand first in it."""

    batch: Batch
    pairs: tuple[Pair, ...]


def draw_pairs(family: Family, most: int, random: np.random.Generator) -> list[Pair]:
    """Draw pairs of a family without replacement, all if it has fewer; each has a true pair of residues.

    Of a large family, ten times as many are looked at: one that has few with a true pair may give fewer.
    """
    every = math.comb(len(family.codes), 2)
    numbers = random.choice(every, min(every, _TRIED * most), replace=False).tolist()
    pairs = (Pair(family, *_numbered(number)) for number in numbers)
    aligned = (pair for pair in pairs if (family.partners(pair.first, pair.second) >= 0).any())
    return list(itertools.islice(aligned, most))


def pack(pairs: Sequence[Pair], random: np.random.Generator | None = None, cells: int = CELLS) -> list[Packed]:
    """Batches of pairs of similar length; the shape of a batch depends on its padded length and on cells alone.

    random: shuffles pairs within buckets, and the batches. Without it, they are in order of length, else as given.
    """
    buckets: dict[int, list[Pair]] = {}
    for pair in pairs:
        longest = max(len(pair.family.codes[pair.first]), len(pair.family.codes[pair.second]))
        buckets.setdefault(bucket(longest), []).append(pair)
    batches = []
    for length, pairs_of_length in sorted(buckets.items()):
        count = max(1, min(MOST_PAIRS, cells // length**2))
        order = range(len(pairs_of_length)) if random is None else random.permutation(len(pairs_of_length))
        ordered = [pairs_of_length[place] for place in order]
        batches += [_packed(ordered[at : at + count], length, count) for at in range(0, len(pairs_of_length), count)]
    return batches if random is None else [batches[place] for place in random.permutation(len(batches))]


def bucket(length: int) -> int:
    """The padded length: the next of 32, 48, 72, 112, …, each 1.5 times as long as the one before, a multiple of 8."""
    size = _SHORTEST
    while size < length:
        size = math.ceil(size * _STEP / _MULTIPLE) * _MULTIPLE
    return size


def _numbered(number: int) -> tuple[int, int]:
    """The pair of this number in (0, 1), (0, 2), (1, 2), (0, 3), …: those of a large family need not be listed."""
    second = (1 + math.isqrt(1 + 8 * number)) // 2
    return number - math.comb(second, 2), second


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
