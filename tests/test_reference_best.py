"""The best alignments of the NumPy reference are right: against every alignment of small matrices, one by one."""

from typing import Any

import numpy as np
import pytest
from enumeration import GLOBAL, PRICES, Alignment, alignments, worth_of
from frameworks import PROBLEMS
from gaps_by_position import EVERY as BY_POSITION

from shared import reference

SMALL = ((1, 1), (1, 4), (4, 1), (2, 2), (3, 2), (2, 4), (3, 4), (4, 4))
NUMBERS = [(problem, options, ()) for problem, described in PROBLEMS.items() for options in described.options]
EVERY = pytest.mark.parametrize(("problem", "options", "names"), [*NUMBERS, *BY_POSITION], ids=str)


def whole_numbers(problem: str, names: tuple[str, ...], shape: tuple[int, ...], seed: int) -> tuple[Any, Any]:
    """A similarity and gaps of few different values, so that many alignments are equally good."""
    random = np.random.default_rng([*shape, seed])
    gaps = {name: random.integers(-2, 2, size=shape if name in names else ()) for name in PRICES[problem]}
    return random.integers(-2, 3, size=shape).astype(float), gaps


def first_of(problem: str, equal: list[Alignment]) -> Alignment:
    """The one that the documented order chooses: the first end, and from there back the first choice in each cell."""
    affine = problem == "smith_waterman_affine"

    def order(alignment: Alignment) -> tuple[Any, ...]:
        moves, last = alignment.moves, alignment.end
        if affine:  # of an end, and of what comes before a match: its state; starting is before all of them
            return (
                last,
                [(0 if moves[:k] == "" else 1 + "MRD".index(moves[k - 1])) for k in range(len(moves) - 1, -1, -1)],
            )
        # what was chosen in each cell on the way back: start, diagonal, left, up
        return (
            last,
            [
                0 if k == 0 and problem not in GLOBAL else 1 + "MRD".index(m)
                for k, m in reversed(list(enumerate(moves)))
            ],
        )

    return min(equal, key=order)


@EVERY
@pytest.mark.parametrize("shape", SMALL)
def test_it_is_the_best_of_all_alignments_and_of_equal_ones_the_first(problem, options, names, shape):
    every = alignments(problem, *shape, **options)
    for seed in range(4):
        similarity, gaps = whole_numbers(problem, names, shape, seed)
        found, matches = reference.best_alignment(problem, similarity, **gaps, **options)
        if not every:
            assert found == 0.0 and not matches.any()
            continue
        worths = [worth_of(alignment, similarity, gaps) for alignment in every]
        assert found == max(worths)
        equal = [alignment for alignment, worth in zip(every, worths, strict=True) if worth == max(worths)]
        expected = np.zeros(shape, bool)
        for cell in first_of(problem, equal).matches:
            expected[cell] = True
        np.testing.assert_array_equal(matches, expected)


@EVERY
def test_it_is_the_limit_of_the_smooth_alignments(problem, options, names):
    random = np.random.default_rng(3)
    similarity = random.normal(size=(6, 7))
    shape = {name: similarity.shape if name in names else () for name in PRICES[problem]}
    gaps = {name: -random.uniform(0.2, 1.0, size=shape[name]) for name in shape}
    found, matches = reference.best_alignment(problem, similarity, **gaps, **options)
    smooth = getattr(reference, problem)(similarity, **gaps, **options, temperature=1e-4)
    np.testing.assert_allclose(found, smooth, atol=1e-2)
    marginals = reference.gradients(problem, similarity, **gaps, **options, temperature=1e-4)["similarity"]
    np.testing.assert_allclose(marginals, matches, atol=1e-6)


def test_a_batch_is_its_pairs_one_by_one():
    random = np.random.default_rng(4)
    similarity, lengths = random.integers(-2, 3, size=(4, 5, 6)).astype(float), [(5, 6), (3, 2), (0, 4), (1, 1)]
    scores, matches = reference.best_alignment("smith_waterman", similarity, lengths, gap=-1)
    assert matches.dtype == bool and matches.shape == similarity.shape
    for b, (rows, cols) in enumerate(lengths):
        score, own = reference.best_alignment("smith_waterman", similarity[b, :rows, :cols], gap=-1)
        assert scores[b] == score
        np.testing.assert_array_equal(matches[b], np.pad(own, [(0, 5 - rows), (0, 6 - cols)]))


def test_where_every_match_is_forbidden_there_is_no_alignment():
    for problem in PROBLEMS:
        score, matches = reference.best_alignment(problem, np.full((3, 4), -np.inf))
        assert not matches.any()
        assert score == (-7.0 if problem == "needleman_wunsch" else 0.0)


def test_it_takes_a_function_or_its_name():
    scores = [reference.best_alignment(given, np.ones((2, 2)))[0] for given in (reference.free_gap, "free_gap")]
    assert scores == [2.0, 2.0]


def test_it_takes_no_temperature():
    with pytest.raises(TypeError, match="best_alignment takes no temperature"):
        reference.best_alignment("smith_waterman", np.ones((2, 2)), temperature=1.0)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_nan_and_infinity_inside_lengths_give_nan_and_no_match(problem):
    ones = np.ones((3, 4, 5))
    similarity = ones.copy()
    similarity[0, 1, 1], similarity[1, 2, 0], similarity[2, 0, 4] = np.nan, np.inf, np.nan
    scores, matches = reference.best_alignment(problem, similarity, [(4, 5), (4, 5), (4, 4)])
    assert np.isnan(scores[:2]).all() and scores[2] == 4.0 and matches.sum((1, 2)).tolist() == [0, 0, 4]
    for name in PRICES[problem]:
        gap = np.full(ones.shape, -1.0)
        gap[0, 3, 4], gap[2, 3, 4] = np.nan, np.nan
        scores, matches = reference.best_alignment(problem, ones, [(4, 5), (4, 5), (3, 4)], **{name: gap})
        assert (
            np.isnan(scores).tolist() == [True, False, False] and not matches[0].any() and matches[1:].any((1, 2)).all()
        )
