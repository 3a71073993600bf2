"""Quality: counts and f1 by hand, and the weights of BLOSUM62."""

import numpy as np
import pytest
from made_up_families import made_up_family

from shared.learning.baseline import GAP_EXTEND, GAP_OPEN, TEMPERATURE, blosum_weights
from shared.learning.batches import Batch, Packed, Pair, draw_pairs, pack
from shared.learning.families import ALPHABET, Family
from shared.learning.quality import count, quality


def by_hand() -> tuple[Packed, np.ndarray]:
    """Two pairs of a family with unaligned residues and one that only fills, and a prediction of them."""
    columns = tuple(np.array(own, np.int32) for own in ([0, 1, 2, -1, 4, -1], [0, 1, -1, 4, -1], [0, 3]))
    codes = tuple(np.zeros(len(own), np.int32) for own in columns)
    family = Family("made up", "", ("a", "b", "c"), codes, columns)
    (packed,) = pack([Pair(family, 0, 1), Pair(family, 0, 2)])
    predicted = np.zeros(packed.batch.partners.shape, np.int32)  # all that lies beyond the sequences is wrong
    # a hit; wrong; one where none is true; unaligned with aligned; not made; unaligned with unaligned, not counted
    predicted[0, :6] = [0, 2, 1, 3, -1, 4]
    predicted[1, :6] = [0, -1, -1, -1, -1, -1]
    return packed, predicted


class Trainer:
    """Predicts what it is given, or a part of the true partners."""

    def __init__(self, predicted: np.ndarray | None = None, share: float = 0.5) -> None:
        self._predicted, self._share = predicted, share

    def predicted(self, batch: Batch) -> np.ndarray:
        shown = np.arange(batch.partners.shape[1]) < self._share * batch.lengths[:, :1]
        return np.where(shown, batch.partners, -1) if self._predicted is None else self._predicted


def test_counts_are_those_by_hand():
    packed, predicted = by_hand()
    assert count(predicted, packed).tolist() == [[1, 1], [4, 1], [3, 1]]


def test_quality_is_that_by_hand_and_a_wrong_prediction_lowers_it():
    packed, predicted = by_hand()
    assert quality(Trainer(predicted), [packed]) == 4 / 9
    predicted[1, 0] = 1  # the hit becomes wrong
    assert quality(Trainer(predicted), [packed]) == 2 / 9
    assert quality(Trainer(np.full_like(predicted, -1)), [packed]) == 0


def test_quality_is_the_mean_over_families_however_pairs_are_packed():
    families = made_up_family("one", 1), made_up_family("two", 2)
    random = np.random.default_rng(0)
    pairs = [draw_pairs(family, number, random) for family, number in zip(families, (6, 3), strict=True)]
    alone = [quality(Trainer(), pack(own)) for own in pairs]
    together = pack([*pairs[1], *pairs[0]], cells=3 * 32**2)
    assert alone[0] != alone[1] and quality(Trainer(), together) == pytest.approx(np.mean(alone))


def test_a_matrix_model_given_blosum62_aligns_by_it():
    weights = blosum_weights()
    for name, gap in (("gap_open", GAP_OPEN), ("gap_extend", GAP_EXTEND)):
        assert -np.log1p(np.exp(weights[name])) == pytest.approx(gap / TEMPERATURE, rel=1e-12)
    assert TEMPERATURE * weights["matrix"][ALPHABET.index("W"), ALPHABET.index("W")] == 11
    assert TEMPERATURE * weights["matrix"][ALPHABET.index("A"), ALPHABET.index("R")] == -1
