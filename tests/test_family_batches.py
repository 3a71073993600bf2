"""Pairs drawn without replacement, batches that hold them all and only padding besides, and their quality."""

import itertools
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from made_up_families import made_up_family

from shared.learning.baseline import GAP_EXTEND, GAP_OPEN, TEMPERATURE, blosum_weights
from shared.learning.batches import CELLS, MOST_PAIRS, Batch, Packed, Pair, bucket, draw_pairs, pack
from shared.learning.families import ALPHABET, Family, bundled_families
from shared.learning.quality import count, quality

FAMILIES = bundled_families()


def made_up(name: str, columns: list[list[int]]) -> Family:
    """A family with these columns of the residues of its sequences, which are all alanine."""
    codes = tuple(np.zeros(len(residues), np.int32) for residues in columns)
    names = tuple(f"{name}{number}" for number in range(len(columns)))
    return Family(name, "", names, codes, tuple(np.array(residues, np.int32) for residues in columns))


def drawn(of_each: int, seed: int = 0, families: Sequence[Family] = FAMILIES) -> list[Pair]:
    random = np.random.default_rng(seed)
    return [pair for family in families for pair in draw_pairs(family, of_each, random)]


def test_pairs_are_drawn_without_replacement_and_all_of_a_small_family() -> None:
    pairs = drawn(100)
    assert len(set(pairs)) == len(pairs)
    for family in FAMILIES:
        chosen = {(pair.first, pair.second) for pair in pairs if pair.family is family}
        every = set(itertools.combinations(range(len(family.codes)), 2))
        assert chosen <= every and len(chosen) == min(100, len(every))


def test_every_pair_of_a_family_is_as_likely() -> None:
    family = made_up("of six", [[0]] * 6)
    times = dict.fromkeys(itertools.combinations(range(6), 2), 0)
    random = np.random.default_rng(0)
    for _ in range(3000):
        for _, first, second in draw_pairs(family, 3, random):
            times[first, second] += 1
    # each 600 times on average, with a standard deviation of 22
    assert all(abs(count - 600) < 100 for count in times.values()), times


def test_the_generator_decides_the_draw_and_the_order() -> None:
    def shuffled(seed: int) -> list[tuple[Pair, ...]]:
        return [packed.pairs for packed in pack(drawn(20, seed), np.random.default_rng(seed))]

    assert shuffled(0) == shuffled(0) != shuffled(1)
    pairs = drawn(32, families=[made_up("one", [[0]] * 9), made_up("other", [[0]] * 9)])
    for random, families in ((None, [1, 1]), (np.random.default_rng(0), [2, 2])):  # mixed in a bucket if shuffled
        assert [len({pair.family for pair in packed.pairs}) for packed in pack(pairs, random)] == families


def test_pairs_without_a_true_pair_are_not_drawn() -> None:
    family = made_up("fragments", [[0, 1], [1, 2], [2, 3], [-1, 4]])
    pairs = draw_pairs(family, 10, np.random.default_rng(0))
    assert sorted((pair.first, pair.second) for pair in pairs) == [(0, 1), (1, 2)]
    thirds = made_up("thirds", [[number % 3] for number in range(60)])  # 1,770 pairs, 570 with a true pair
    assert len(draw_pairs(thirds, 50, np.random.default_rng(0))) == 50


def test_pairs_of_a_large_family_are_not_listed() -> None:
    family = made_up("large", [[0]] * 5000)
    tracemalloc.start()
    pairs = draw_pairs(family, 100, np.random.default_rng(0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(set(pairs)) == 100 and all(0 <= pair.first < pair.second < 5000 for pair in pairs)
    assert max(pair.second for pair in pairs) > 4000
    assert peak < 1_000_000  # bytes; 12.5 million pairs would take a hundred times as many


@pytest.mark.parametrize("seed", [None, 0])
def test_batches_hold_each_pair_once_with_its_residues_and_true_partners(seed: int | None) -> None:
    pairs = drawn(20)
    batches = pack(pairs, None if seed is None else np.random.default_rng(seed))
    held = [pair for packed in batches for pair in packed.pairs]
    assert len(held) == len(pairs) and set(held) == set(pairs)
    for batch, packed in batches:
        assert batch.weights.tolist() == [1] * len(packed) + [0] * (len(batch.weights) - len(packed))
        assert not batch.lengths[len(packed) :].any()
        for row, (one, other) in enumerate(batch.lengths):  # padding
            assert not batch.first[row, one:].any() and not batch.second[row, other:].any()
            assert (batch.partners[row, one:] == -1).all()
        for row, (family, first, second) in enumerate(packed):
            one, other = batch.lengths[row]
            assert np.array_equal(batch.first[row, :one], family.codes[first])
            assert np.array_equal(batch.second[row, :other], family.codes[second])
            at = np.flatnonzero(batch.partners[row] >= 0)
            columns, partner_columns = family.columns[first][at], family.columns[second][batch.partners[row, at]]
            assert np.array_equal(columns, partner_columns) and columns.min() >= 0
            common = np.intersect1d(family.columns[first], family.columns[second])
            assert len(at) == np.count_nonzero(common >= 0) > 0


def test_few_shapes_come_again_in_every_draw_and_grow_by_a_half() -> None:
    shapes = {packed.batch.first.shape for seed in range(5) for packed in pack(drawn(100, seed))}
    assert len(shapes) <= 9
    for pairs, length in shapes:
        assert pairs <= MOST_PAIRS and (pairs == 1 or pairs * length**2 <= CELLS)
    sizes = sorted({bucket(length) for length in range(1, 3000)})
    assert sizes[:6] == [32, 48, 72, 112, 168, 256]
    assert all(size % 8 == 0 and bucket(size) == size and bucket(size + 1) > size for size in sizes[:-1])
    assert all(after / before < 1.6 for before, after in itertools.pairwise(sizes))


# quality


def by_hand() -> tuple[Packed, np.ndarray]:
    """Two pairs of a family with unaligned residues and one that only fills, and a prediction of them."""
    family = made_up("made up", [[0, 1, 2, -1, 4, -1], [0, 1, -1, 4, -1], [0, 3]])
    (packed,) = pack([Pair(family, 0, 1), Pair(family, 0, 2)])
    predicted = np.zeros(packed.batch.partners.shape, np.int32)  # all that lies beyond the sequences is wrong
    # a hit; wrong; one where none is true; unaligned with aligned; not made; unaligned with unaligned, not counted
    predicted[0, :6] = [0, 2, 1, 3, -1, 4]
    predicted[1, :6] = [0, -1, -1, -1, -1, -1]
    return packed, predicted


class Trainer:
    """Predicts what it is given, or half of the true partners."""

    def __init__(self, predicted: np.ndarray | None = None) -> None:
        self._predicted = predicted

    def predicted(self, batch: Batch) -> np.ndarray:
        shown = np.arange(batch.partners.shape[1]) < batch.lengths[:, :1] / 2
        return np.where(shown, batch.partners, -1) if self._predicted is None else self._predicted


def test_counts_and_quality_are_those_by_hand_and_a_wrong_prediction_lowers_it() -> None:
    packed, predicted = by_hand()
    assert count(predicted, packed).tolist() == [[1, 1], [4, 1], [3, 1]]
    assert quality(Trainer(predicted), [packed]) == 4 / 9
    predicted[1, 0] = 1  # the hit becomes wrong
    assert quality(Trainer(predicted), [packed]) == 2 / 9
    assert quality(Trainer(np.full_like(predicted, -1)), [packed]) == 0


def test_quality_is_the_mean_over_families_however_pairs_are_packed() -> None:
    families = made_up_family("one", 1), made_up_family("two", 2)
    random = np.random.default_rng(0)
    pairs = [draw_pairs(family, number, random) for family, number in zip(families, (6, 3), strict=True)]
    alone = [quality(Trainer(), pack(own)) for own in pairs]
    together = pack([*pairs[1], *pairs[0]], cells=3 * 32**2)
    assert alone[0] != alone[1] and quality(Trainer(), together) == pytest.approx(np.mean(alone))


def test_a_matrix_model_given_blosum62_aligns_by_it() -> None:
    weights = blosum_weights()
    for name, gap in (("gap_open", GAP_OPEN), ("gap_extend", GAP_EXTEND)):
        assert -np.log1p(np.exp(weights[name])) == pytest.approx(gap / TEMPERATURE, rel=1e-12)
    for pair, score in (("WW", 11), ("AR", -1)):
        assert TEMPERATURE * weights["matrix"][*map(ALPHABET.index, pair)] == score
