"""Gaps by position in plain odds with shared exponents: what these hold, and what is left to an exponent per cell.

In float32, against the same kernels in float64, as in test_plain_odds.py.
"""

from itertools import combinations

import numpy as np
import pytest
from gaps_by_position import CASES
from native_calls import Given, assert_as_in_float64, assert_same_bits

from shared.alignments import ALIGNMENTS
from shared.kernels import cpp
from shared.problems.alignment_inputs import GLOBINS
from shared.sequences import pair_batch, read_fasta, substitution_matrix

pytestmark = pytest.mark.skipif(cpp.why_absent() is not None, reason=f"no native kernels: {cpp.why_absent()}")

AFFINE = "smith_waterman_affine"
CALLS = 4  # in Given.results that try plain odds
BIT = np.log(2)


def parameters_of(problem, names, gap, number, temperature=1.0):
    """Gaps by position from gap(), a matrix for each; the others are this number."""
    gaps = {name: gap() if name in names else number for name in ALIGNMENTS[problem].gaps}
    return gaps | {"temperature": temperature}


@CASES
def test_ordinary_gaps_are_held(problem, options, names):
    random = np.random.default_rng(0)
    records, matrix = read_fasta(GLOBINS), substitution_matrix("BLOSUM62")
    batch = pair_batch(records, list(combinations(range(len(records)), 2))[::20], matrix, GLOBINS)
    uniform = random.random((10, 100, 150))
    lengths = np.stack([random.integers(80, 101, 10), random.integers(95, 121, 10)], axis=1)
    for similarity, own_lengths in ((batch.similarity, batch.lengths), (uniform, lengths)):
        for least in (-1.0, -4.0):
            gap = lambda: random.uniform(least, 0, similarity.shape)  # noqa: B023, E731
            parameters = parameters_of(problem, names, gap, -1.0)
            assert assert_as_in_float64(problem, options, similarity, own_lengths, parameters) == 0


def steep_gaps(chance, shape):
    """Of one of several kinds, in bits."""
    rows, cols = shape
    gap, cheap = np.full(shape, -20.0), chance.choice([3, 1, 0, -0.1])
    kind = chance.integers(7)
    if kind == 0:
        return chance.uniform(-200, 20, shape)
    if kind == 1:
        return chance.uniform(-26, chance.choice([0, 26]), shape)
    if kind == 2:
        gap[:] = -1
        gap[chance.integers(rows), chance.integers(cols)] = chance.choice([-26, -40, -200, 20])
    elif kind == 3:
        gap[chance.integers(rows)] = cheap
    elif kind == 4:
        gap[:, chance.integers(cols)] = cheap
    elif kind == 5:
        gap = chance.uniform(-chance.choice([0.5, 4, 12]), 0, shape)
    else:
        gap = np.where(chance.random(shape) < 0.5, -25.0, -0.05)
    return gap


@CASES
def test_steep_gaps_and_matches(problem, options, names):
    chance = np.random.default_rng(7)
    for _ in range(60):
        shape = rows, cols = int(chance.choice([8, 17, 34, 66, 130])), int(chance.choice([17, 20, 40, 64, 150, 270]))
        similarity = np.full(shape, chance.choice([-np.inf, -101, -60, -30, -10, -3, 0]))
        similarity = similarity + chance.normal(size=shape) * chance.choice([0, 1, 4])
        if chance.random() < 0.5:
            column, bits = chance.integers(cols), chance.choice([40, 60, 80, 98])
            for row in sorted(chance.choice(rows, 3, replace=False)):
                similarity[row, column] = min(bits, 126)
                bits += chance.choice([0, 5, 20, 40])
                similarity[min(row + 1, rows - 1), min(column + 1, cols - 1)] = chance.choice([0, 5, 50])
        if chance.random() < 0.5:
            similarity[chance.random(shape) < 0.1] = chance.choice([5, 20, 60, -np.inf])
        gap = lambda: steep_gaps(chance, shape)[None] * BIT  # noqa: B023, E731
        parameters = parameters_of(problem, names, gap, chance.choice([0, -0.05, -1, -3, -26]) * BIT)
        assert_as_in_float64(problem, options, similarity * BIT, None, parameters)


def corridor(start, match):
    """Where turns are restricted: a strong alignment leads down a column, from which only a weak one may go right."""
    similarity, gap = np.full((24, 60), -np.inf), np.full((24, 60), -0.05)
    similarity[2, 9] = similarity[3, 10] = 55
    similarity[6, 10] = start
    similarity[7, 31] = match
    gap[:6, 11:] = -13
    gap[6, 11:31] = 0.3
    return similarity * BIT, gap[None] * BIT


@pytest.mark.parametrize("penalize_turns", [True, False])
@pytest.mark.parametrize("start", [-2.0, 3.0, 3.8])
@pytest.mark.parametrize("match", [80.0, 95.0, 99.0])
def test_a_gap_down_a_column_may_not_hide_what_alone_may_turn(match, start, penalize_turns):
    similarity, gap = corridor(start, match)
    parameters = {"gap_open": gap, "gap_extend": gap, "temperature": 1.0}
    options = {"restrict_turns": True, "penalize_turns": penalize_turns}
    assert assert_as_in_float64(AFFINE, options, similarity, None, parameters) == CALLS


@pytest.mark.parametrize(("value", "held"), [(-26.5, True), (-27.5, False), (26.5, True), (27.5, False), (-1e9, False)])
def test_one_gap_may_have_27_bits(value, held):
    similarity, gap = np.random.default_rng(0).normal(size=(1, 20, 40)), np.full((1, 20, 40), -1.0)
    gap[0, 7, 9] = value * BIT
    parameters = {"gap": gap, "temperature": 1.0}
    assert assert_as_in_float64("smith_waterman", None, similarity, None, parameters) == (0 if held else CALLS)


def test_starts_of_the_least_odds_count_where_a_gap_is_cheap():
    # columns that fill vectors: else what is beside them counts as cheap
    similarity, gap = np.full((1, 120, 128), -101 * BIT), np.full((1, 120, 128), -3.0)
    similarity[0, 119, 127] = 0
    parameters = {"gap": gap, "temperature": 1.0}
    assert assert_as_in_float64("smith_waterman", None, similarity, None, parameters) == 0
    gap[0, 60, 60] = 0
    assert assert_as_in_float64("smith_waterman", None, similarity, None, parameters) == CALLS


@CASES
def test_long_pairs_are_cut_into_tiles_alike_for_any_threads(problem, options, names):
    random = np.random.default_rng(0)
    similarity = random.normal(size=(3, 350, 700)).astype(np.float32)
    similarity[1] *= 100
    lengths = np.array([[350, 700], [350, 690], [333, 513]])
    gaps = random.uniform(-3, -0.5, similarity.shape)
    parameters = parameters_of(problem, names, lambda: gaps, -1.0)
    some = parameters_of(problem, names, lambda: gaps[::2], -1.0)
    assert assert_as_in_float64(problem, options, similarity[::2], lengths[::2], some) == 0
    own = {name: np.asarray(value, np.float32) for name, value in parameters.items()}
    one, two, three = (
        Given(problem, similarity, lengths, own, options, threads=threads).results() for threads in (1, 2, 3)
    )
    assert_same_bits(one, two)
    assert_same_bits(one, three)
