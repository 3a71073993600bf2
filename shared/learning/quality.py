"""Quality of predicted alignments, with intervals.

    recovered = Σ hits / Σ true      precise = Σ hits / Σ predicted      f1 = 2 Σ hits / Σ (true + predicted)

where the sums go over the pairs of sequences of one family, and count pairs of residues. Of two residues that are both
not aligned in the file (lower-case) it does not say whether they belong together: predicting them counts neither way.
The quality of several families is the mean of their f1.

Pairs that share a sequence are not independent. The intervals therefore resample a family's sequences with
replacement, not its pairs: a pair counts as often as its two sequences were drawn, one times the other. Student's
interval of their standard deviation is taken, which for families of ten sequences covers better than the quantiles: on
simulated families of 9 to 98 with effects of sequences 92 to 99 %, without such effects more. It says how far a result
depends on the sequences of these families, and nothing about other families.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.learning.batches import Packed

RESAMPLES = 2000
COVERAGE = 0.95


class Counts(NamedTuple):
    """Of each pair of sequences of one family its pairs of residues. Arrays of shape (pairs,)."""

    first: NDArray[np.int64]  # the number of the first sequence within the family
    second: NDArray[np.int64]
    hits: NDArray[np.int64]  # predicted, and true
    predicted: NDArray[np.int64]
    true: NDArray[np.int64]


class Rates(NamedTuple):
    """Each between 0 and 1; arrays of one shape."""

    recovered: Any  # of the true pairs of residues the fraction that was predicted
    precise: Any  # of the predicted ones the fraction that is true; 0 where none was predicted
    f1: Any  # their harmonic mean


class Estimate(NamedTuple):
    """A value and its interval."""

    value: float
    low: float
    high: float


def count(predicted: NDArray[np.int32], packed: Packed) -> NDArray[np.int64]:
    """Hits, predicted and true pairs of residues of each pair of a batch, shape (3, pairs).

    predicted: shape (at least pairs, length), of each residue of first its partner in second, or -1.
    """
    found = []
    for row, (family, first, second) in enumerate(packed.pairs):
        columns, others = family.columns[first], family.columns[second]
        own, true = predicted[row, : len(columns)], packed.batch.partners[row, : len(columns)]
        judged = (own >= 0) & ((columns >= 0) | (others[own] >= 0))
        found.append([(judged & (own == true)).sum(), judged.sum(), (true >= 0).sum()])
    return np.array(found).T


def measure(trainer: Any, batches: Sequence[Packed], exact: bool = False) -> dict[str, Counts]:
    """Counts of a trainer's predictions, by name of family. Pairs stand in order of their sequences, however packed."""
    rows: dict[str, list[tuple[int, ...]]] = {}
    for packed in batches:
        numbers_of_each = count(trainer.predicted(packed.batch, exact), packed).T
        for pair, numbers in zip(packed.pairs, numbers_of_each, strict=True):
            rows.setdefault(pair.family.name, []).append((pair.first, pair.second, *numbers))
    return {name: Counts(*np.array(sorted(own)).T) for name, own in rows.items()}


def rates(counts: Counts, weights: NDArray[Any] | None = None) -> Rates:
    """Rates over all pairs, or by weights (…, pairs) an array (…) of them; np.eye(pairs) gives those of each pair."""
    weigh = np.ones(len(counts.true)) if weights is None else weights
    hits, predicted, true = (weigh @ numbers for numbers in counts[2:])
    return Rates(_ratio(hits, true), _ratio(hits, predicted), _ratio(2 * hits, true + predicted))


def quality(counts: Mapping[str, Counts]) -> float:
    """The mean over families of their f1."""
    return float(np.mean([rates(own).f1 for own in counts.values()]))


def estimates(counts: Counts) -> dict[str, Estimate]:
    """Each rate of a family with its interval."""
    return _estimates(counts, None)


def differences(counts: Counts, other: Counts) -> dict[str, Estimate]:
    """Each rate less that of another model on the same pairs, with its interval, both on the same resamples."""
    if not (np.array_equal(counts.first, other.first) and np.array_equal(counts.second, other.second)):
        raise ValueError("differences compares two models on the same pairs, got different pairs")
    return _estimates(counts, other)


def resampled_weights(counts: Counts, seed: int = 0) -> NDArray[np.int64]:
    """How often each pair counts when sequences are drawn with replacement, shape (RESAMPLES, pairs)."""
    number = _sequences(counts)
    places = np.unique([counts.first, counts.second], return_inverse=True)[1].reshape(2, -1)
    times = np.random.default_rng(seed).multinomial(number, np.full(number, 1 / number), RESAMPLES)
    return times[:, places[0]] * times[:, places[1]]


def _sequences(counts: Counts) -> int:
    return len(np.union1d(counts.first, counts.second))


def _estimates(counts: Counts, other: Counts | None) -> dict[str, Estimate]:
    from scipy.stats import t  # here: it takes half a second to import

    weights = resampled_weights(counts)
    weights = weights[weights.any(1)]  # of a few sequences it may happen that no pair was drawn
    models = [counts] if other is None else [counts, other]
    values, samples = ([rates(model, weigh) for model in models] for weigh in (None, weights))
    number, least = _sequences(counts), 1 - len(models)
    found = {}
    for place, name in enumerate(Rates._fields):
        value, sample = (own[0][place] - (own[1][place] if other else 0) for own in (values, samples))
        # two sequences are one pair, whose resamples are all the same
        spread = np.std(sample) * math.sqrt(number / (number - 1)) if number > 2 else math.inf
        half = spread * t.ppf((1 + COVERAGE) / 2, number - 1)
        found[name] = Estimate(float(value), max(least, float(value - half)), min(1.0, float(value + half)))
    return found


def _ratio(numerator: Any, denominator: Any) -> Any:
    return np.divide(numerator, denominator, out=np.zeros_like(numerator, float), where=denominator > 0)
