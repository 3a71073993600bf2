"""The NumPy reference is right: against every alignment of small matrices, one by one, and finite differences."""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from shared import reference

SMALL = ((1, 1), (1, 4), (4, 1), (2, 2), (3, 2), (2, 4), (3, 4))
ENDS = ("any", "match")


Cell = tuple[int, int]


class Alignment(NamedTuple):
    """One alignment: the cells it matches, in order, and its number of gap positions."""

    matches: tuple[Cell, ...]
    gaps: int


def alignments(rows: int, cols: int, end: str) -> Iterator[Alignment]:
    """Every local alignment of a matrix, from each start by each sequence of moves to each end."""
    for start in itertools.product(range(rows), range(cols)):
        unfinished: list[tuple[Cell, tuple[Cell, ...], int, bool]] = [(start, (start,), 0, False)]
        while unfinished:
            (i, j), matches, gaps, after_match = unfinished.pop()
            if end == "any" or after_match:
                yield Alignment(matches, gaps)
            if i + 1 < rows and j + 1 < cols:
                unfinished.append(((i + 1, j + 1), (*matches, (i + 1, j + 1)), gaps, True))
            if i + 1 < rows:
                unfinished.append(((i + 1, j), matches, gaps + 1, False))
            if j + 1 < cols:
                unfinished.append(((i, j + 1), matches, gaps + 1, False))


def by_enumeration(similarity: np.ndarray, gap: float, temperature: float, end: str) -> tuple[float, dict]:
    """Score and gradients from the list of all alignments: 0 and zeros if it is empty."""
    rows, cols = similarity.shape
    every = list(alignments(rows, cols, end))
    if not every:
        return 0.0, {"similarity": np.zeros(similarity.shape), "gap": 0.0, "temperature": 0.0}
    worth = [math.fsum(similarity[cell] for cell in a.matches) + gap * a.gaps for a in every]
    highest = max(worth)
    odds = [math.exp((value - highest) / temperature) for value in worth]
    total = math.fsum(odds)
    probabilities = [share / total for share in odds]
    expected_matches = np.zeros(similarity.shape)
    for a, probability in zip(every, probabilities, strict=True):
        for cell in a.matches:
            expected_matches[cell] += probability
    score = highest + temperature * math.log(total)
    expected_worth = math.fsum(p * value for p, value in zip(probabilities, worth, strict=True))
    expected_gaps = math.fsum(p * a.gaps for p, a in zip(probabilities, every, strict=True))
    entropy = (score - expected_worth) / temperature
    return score, {"similarity": expected_matches, "gap": expected_gaps, "temperature": entropy}


def test_the_enumeration_lists_each_alignment_once():
    every = list(alignments(2, 2, "any"))
    # single matches; one move further: three from (0,0), one each from (0,1) and (1,0); two gaps from (0,0)
    assert len(every) == 4 + 5 + 2
    assert list(alignments(2, 2, "match")) == [Alignment(((0, 0), (1, 1)), 0)]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("gap", [-3.0, -0.5, 0.0, 0.75])
@pytest.mark.parametrize("temperature", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("shape", SMALL)
def test_score_and_gradients_are_those_of_all_alignments(shape, temperature, gap, end):
    similarity = np.random.default_rng(shape).normal(size=shape) * 2
    score, gradients = by_enumeration(similarity, gap, temperature, end)
    options = {"gap": gap, "temperature": temperature, "end": end}
    np.testing.assert_allclose(reference.smith_waterman(similarity, **options), score, rtol=1e-12, atol=1e-12)
    got = reference.gradients("smith_waterman", similarity, **options)
    assert got.keys() == gradients.keys()
    for name, value in gradients.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("end", ENDS)
def test_minus_infinity_leaves_the_alignments_that_do_not_match_there(end):
    similarity = np.random.default_rng(4).normal(size=(3, 3))
    similarity[1, 1] = -np.inf
    possible = [a for a in alignments(3, 3, end) if (1, 1) not in a.matches]
    worth = [sum(similarity[cell] for cell in a.matches) - 0.5 * a.gaps for a in possible]
    score = reference.smith_waterman(similarity, gap=-0.5, end=end)
    np.testing.assert_allclose(score, math.log(math.fsum(map(math.exp, worth))), rtol=1e-12)
    assert reference.gradients("smith_waterman", similarity, gap=-0.5, end=end)["similarity"][1, 1] == 0.0


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", ["similarity", "gap", "temperature"])
def test_gradients_are_central_differences_of_the_score(name, end):
    random = np.random.default_rng(7)
    arguments = {"similarity": random.normal(size=(6, 5)), "gap": np.array(-0.7), "temperature": np.array(0.6)}
    step = 1e-5
    direction = random.normal(size=arguments[name].shape)
    moved = [
        reference.smith_waterman(**arguments | {name: arguments[name] + sign * step * direction}, end=end)
        for sign in (1, -1)
    ]
    gradients = reference.gradients("smith_waterman", **arguments, end=end)
    np.testing.assert_allclose(np.sum(gradients[name] * direction), (moved[0] - moved[1]) / (2 * step), rtol=1e-8)


def test_known_value():
    np.random.seed(0)  # the input is defined by this call
    similarity = np.random.random((100, 150))
    score = reference.smith_waterman(similarity, gap=0.0, temperature=1.0, end="any")
    assert score == pytest.approx(232.31181, rel=float(np.finfo(np.float32).eps))


@pytest.mark.parametrize("end", ENDS)
def test_a_batch_is_its_pairs_one_by_one(end):
    random = np.random.default_rng(3)
    similarity = random.normal(size=(4, 5, 6))
    lengths = np.array([(5, 6), (3, 6), (1, 2), (2, 2)])
    parameters = {"gap": random.normal(size=4), "temperature": random.uniform(0.5, 2, size=4)}
    scores = reference.smith_waterman(similarity, lengths, **parameters, end=end)
    gradients = reference.gradients("smith_waterman", similarity, lengths, **parameters, end=end)
    for b, (rows, cols) in enumerate(lengths):
        own = {name: float(value[b]) for name, value in parameters.items()}
        pair = similarity[b, :rows, :cols]
        assert scores[b] == reference.smith_waterman(pair, **own, end=end)
        alone = reference.gradients("smith_waterman", pair, **own, end=end)
        outside = np.ones((5, 6), dtype=bool)
        outside[:rows, :cols] = False
        np.testing.assert_array_equal(gradients["similarity"][b, :rows, :cols], alone["similarity"])
        assert not gradients["similarity"][b][outside].any()
        assert (gradients["gap"][b], gradients["temperature"][b]) == (alone["gap"], alone["temperature"])


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("lengths", [(0, 3), (3, 0), (0, 0)])
def test_a_pair_without_length_scores_zero_with_zero_gradients(lengths, end):
    similarity = np.full((3, 3), np.nan)
    assert reference.smith_waterman(similarity, np.array(lengths), end=end) == 0.0
    gradients = reference.gradients("smith_waterman", similarity, np.array(lengths), end=end)
    assert gradients["similarity"].shape == (3, 3)
    assert not any(np.any(value) for value in gradients.values())


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (1, 1)])
def test_two_matches_need_two_rows_and_columns(shape):
    similarity = np.ones(shape)
    assert reference.smith_waterman(similarity, end="match") == 0.0
    gradients = reference.gradients("smith_waterman", similarity, end="match")
    assert not any(np.any(value) for value in gradients.values())


def test_an_empty_batch_is_empty():
    similarity = np.zeros((0, 4, 5))
    assert reference.smith_waterman(similarity).shape == (0,)
    gradients = reference.gradients("smith_waterman", similarity)
    assert {name: value.shape for name, value in gradients.items()} == {
        "similarity": (0, 4, 5),
        "gap": (0,),
        "temperature": (0,),
    }


def test_an_unknown_end_is_an_error():
    with pytest.raises(ValueError, match="end must be 'any' or 'match', got 'both'"):
        reference.smith_waterman(np.ones((2, 2)), end="both")
