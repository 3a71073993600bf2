"""Quality: counts and rates by hand, intervals that know of shared sequences, and the best gaps of BLOSUM62."""

import itertools
from typing import Any

import numpy as np
import pytest
from made_up_families import made_up_family

from shared.learning import baseline, quality
from shared.learning.baseline import (
    GRID,
    Choice,
    against_blosum,
    at_edge,
    best_choice,
    blosum,
    grid_qualities,
    weights_of,
)
from shared.learning.batches import Batch, Packed, Pair, draw_pairs, pack
from shared.learning.families import Family
from shared.learning.quality import Counts, count, differences, estimates, measure, rates


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


def counts_by_hand(packed: Packed, predicted: np.ndarray) -> Counts:
    return Counts(np.array([0, 0]), np.array([1, 2]), *count(predicted, packed))


def test_counts_are_those_by_hand():
    packed, predicted = by_hand()
    assert count(predicted, packed).tolist() == [[1, 1], [4, 1], [3, 1]]


def test_rates_are_those_by_hand_and_a_wrong_prediction_lowers_them():
    packed, predicted = by_hand()
    counts = counts_by_hand(packed, predicted)
    assert rates(counts) == (2 / 4, 2 / 5, 4 / 9)
    assert rates(counts, np.eye(2)).f1.tolist() == [2 / 7, 1]
    predicted[1, 0] = 1  # the hit becomes wrong
    assert rates(counts_by_hand(packed, predicted)) == (1 / 4, 1 / 5, 2 / 9)
    none = counts._replace(hits=0 * counts.true, predicted=0 * counts.true)
    assert rates(none) == (0, 0, 0)


class Trainer:
    """Predicts the first partners, all of them with one choice of the grid and fewer the further it is from there."""

    def __init__(self, best: Choice | None = None) -> None:
        self.best, self.share = best, 0.5

    def set_weights(self, weights: dict[str, np.ndarray]) -> None:
        best = weights_of(self.best) if self.best else weights
        self.share = 1 / (1 + sum(np.abs(weights[name] - best[name]).sum() for name in best))

    def predicted(self, batch: Batch, exact: bool) -> np.ndarray:
        shown = np.arange(batch.partners.shape[1]) < self.share * batch.lengths[:, :1]
        return np.where(shown & (not exact), batch.partners, -1)


def test_families_are_measured_apart_and_in_an_order_that_packing_does_not_change():
    families = made_up_family("one", 1), made_up_family("two", 2)
    random = np.random.default_rng(0)
    pairs = [pair for family in families for pair in draw_pairs(family, 6, random)]
    found = [measure(Trainer(), batches) for batches in (pack(pairs), pack(pairs[::-1], cells=3 * 32**2))]
    assert sorted(found[0]) == ["one", "two"]
    for name, counts in found[0].items():
        assert all(np.array_equal(own, other) for own, other in zip(counts, found[1][name], strict=True))
        assert len(counts.true) == 6 and (counts.hits == counts.predicted).all() and (counts.hits < counts.true).all()
    means = [rates(counts).f1 for counts in found[0].values()]
    assert quality.quality(found[0]) == pytest.approx(np.mean(means))


def sequence_effects(shared: bool) -> Counts:
    """Of 12 sequences all pairs, whose hits depend on their sequences, or of as many sequences apart, two by two."""
    random = np.random.default_rng(0)
    pairs = np.array(list(itertools.combinations(range(12), 2)))
    good = random.normal(size=12)[pairs].sum(1)
    if not shared:
        pairs = np.arange(pairs.size).reshape(-1, 2)
    true = np.full(len(pairs), 100)
    hits = random.binomial(true, 1 / (1 + np.exp(-good)))
    return Counts(pairs[:, 0], pairs[:, 1], hits, true, true)


def test_pairs_that_share_a_sequence_widen_the_interval():
    shared, apart = (estimates(sequence_effects(shared))["recovered"] for shared in (True, False))
    assert shared.value == apart.value  # the same pairs, but for whose they are
    widths = [own.high - own.low for own in (shared, apart)]
    counts = sequence_effects(True)
    naive = 2 * 1.96 * np.std(counts.hits / counts.true) / np.sqrt(len(counts.true))
    assert widths[0] > 2 * naive
    assert widths[1] < 0.8 * widths[0]


def test_two_models_are_compared_on_the_same_resamples():
    counts = sequence_effects(True)
    assert set(differences(counts, counts).values()) == {(0, 0, 0)}
    fewer = counts._replace(hits=counts.hits - counts.hits // 10)
    lost, own = differences(fewer, counts)["f1"], estimates(counts)["f1"]
    assert lost.low < lost.value < lost.high < 0
    assert lost.high - lost.low < (own.high - own.low) / 2  # a tenth of the hits moves less than the hits
    with pytest.raises(ValueError, match="on the same pairs, got different pairs"):
        differences(counts, counts._replace(second=counts.second + 1))


def test_one_pair_gives_no_interval():
    one = Counts(*(np.array([number]) for number in (0, 1, 3, 4, 5)))
    assert estimates(one)["recovered"] == (0.6, 0, 1)
    assert differences(one, one)["recovered"] == (0, -1, 1)


@pytest.mark.parametrize(("planted", "edge"), [(0, True), (26, False), (79, True)])
def test_the_grid_finds_a_planted_best_choice_and_tells_if_it_lies_at_its_edge(planted, edge):
    choice = GRID["soft"][planted]
    families = [made_up_family("one", 1), made_up_family("two", 2)]
    grids = [grid_qualities(Trainer(choice), family, "soft") for family in families]
    assert best_choice(grids, "soft") == choice
    assert max(grids[0]) == 1
    assert at_edge(choice, "soft") == edge
    assert not at_edge(Choice(-12.0, -1.0, 1.0), "exact")  # which has one temperature


def test_a_matrix_model_given_blosum62_aligns_by_it():
    weights = weights_of(Choice(-11.0, -1.0, 2.5))
    for name, gap in (("gap_open", -11.0), ("gap_extend", -1.0)):
        assert -np.log1p(np.exp(weights[name])) == pytest.approx(gap / 2.5, rel=1e-12)
    letters = baseline.ALPHABET
    assert 2.5 * weights["matrix"][letters.index("W"), letters.index("W")] == 11
    assert 2.5 * weights["matrix"][letters.index("A"), letters.index("R")] == -1


def test_a_matrix_is_compared_with_blosum62():
    assert against_blosum(0.35 * blosum()) == pytest.approx((1, 1, 0.35))
    diagonal: Any = against_blosum(0.35 * blosum() + 5 * np.eye(20))
    assert diagonal.off_diagonal == pytest.approx(1) and diagonal.correlation < 0.99 and diagonal.scale > 0.35
