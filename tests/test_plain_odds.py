"""The native kernels in plain odds with shared exponents, on both sides of each bound of what these can hold.

In float32, against the same kernels in float64, which have an exponent per cell and are proved elsewhere.
"""

import platform
from collections.abc import Iterator
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from frameworks import DTYPES
from gaps_by_position import CASES as EVERY_BY_POSITION
from gaps_by_position import TURNS
from native_calls import CASES, KINDS, ROWS, Given, assert_as_in_float64, assert_same_bits

from shared.alignments import ALIGNMENTS
from shared.kernels import cpp
from shared.kernels.cpp import library
from shared.problems.alignment_inputs import GLOBINS
from shared.sequences import pair_batch, read_fasta, substitution_matrix

pytestmark = pytest.mark.skipif(cpp.why_absent() is not None, reason=f"no native kernels: {cpp.why_absent()}")

# linear gaps by position in the default tier, the other recurrences in the slow one
BY_POSITION = pytest.mark.parametrize(
    ("problem", "options", "names"), [TURNS[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in TURNS[1:])]
)
BLOSUM = substitution_matrix("BLOSUM62").scores[:20, :20].astype(np.float32)
CALLS = 4  # in Given.results that try plain odds
BIT = np.log(2)


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def proteins(length: int, seed: int = 0) -> np.ndarray:
    """Similarity of a random protein to itself."""
    letters = random(seed).integers(0, 20, length)
    return BLOSUM[letters][:, letters]


def parameters_of(problem: str, gap: float, temperature: float = 1.0) -> dict[str, Any]:
    every = {"gap": gap, "gap_open": gap, "gap_extend": gap / 4, "temperature": temperature}
    return {name: every[name] for name in ALIGNMENTS[problem].parameters}


def by_position(problem: str, names: tuple[str, ...], gap: Any, number: float) -> dict[str, Any]:
    """Gaps by position from gap(), a matrix for each; the others are this number."""
    gaps = {name: gap() if name in names else number for name in ALIGNMENTS[problem].gaps}
    return gaps | {"temperature": 1.0}


def assert_right(
    problem: str, options: Any, similarity: Any, gap: float, temperature: float = 1.0, lengths: Any = None
) -> int:
    """Compare all derivatives with those in float64. Returns how many times a pair got an exponent per cell."""
    return assert_as_in_float64(problem, options, similarity, lengths, parameters_of(problem, gap, temperature))


def some_globins(step: int) -> tuple[np.ndarray, np.ndarray]:
    records, matrix = read_fasta(GLOBINS), substitution_matrix("BLOSUM62")
    batch = pair_batch(records, list(combinations(range(len(records)), 2))[::step], matrix, GLOBINS)
    return batch.similarity, batch.lengths


@pytest.fixture(scope="module")
def globins() -> tuple[np.ndarray, np.ndarray]:
    return some_globins(9)


@pytest.fixture(scope="module")
def uniform() -> tuple[np.ndarray, np.ndarray]:
    lengths = np.stack([random(1).integers(80, 101, 20), random(2).integers(95, 121, 20)], axis=1)
    return random().random((20, 100, 150)), lengths


@KINDS
def test_ordinary_input_is_held_by_plain_odds(problem, options, globins, uniform):
    assert assert_right(problem, options, uniform[0], -1.0, lengths=uniform[1]) == 0
    for gap in (-1.0, -3.0, -11.0):
        assert assert_right(problem, options, globins[0], gap, lengths=globins[1]) == 0


@BY_POSITION
def test_ordinary_gaps_by_position_are_held_by_plain_odds(problem, options, names, uniform):
    chance = random()
    for similarity, lengths in (some_globins(5), uniform):
        for least in (-1.0, -4.0):
            gap = lambda: chance.uniform(least, 0, similarity.shape)  # noqa: B023, E731
            parameters = by_position(problem, names, gap, -1.0)
            assert assert_as_in_float64(problem, options, similarity, lengths, parameters) == 0


@KINDS
def test_self_alignments_are_right_at_every_scale(problem, options):
    base = proteins(150)
    for gap in (0.0, -1.0, -4.0, -11.0, -50.0, 0.5):
        exact = [assert_right(problem, options, base * scale, gap) for scale in (1, 2, 5, 50)]
        assert exact[0] == 0 or not -11 <= gap <= 0
        assert exact[3] > 0  # 11 * 50 is e^550, or 2^793


@pytest.mark.parametrize("problem", ["smith_waterman", pytest.param("smith_waterman_affine", marks=pytest.mark.slow)])
def test_long_self_alignments_are_right(problem):
    base = proteins(2000)
    # one alignment outweighs all others: the temperature's gradient is what is left of two large numbers
    assert assert_right(problem, None, base, -11.0) <= 1
    assert_right(problem, None, 3 * base, -1.0)


@KINDS
def test_a_direction_that_adds_up_along_the_alignment_is_right(problem, options):
    # its tangents sum up to a thousand times the result
    base = proteins(1000)[None]
    for gap in (-1.0, -11.0):
        parameters = parameters_of(problem, gap)
        before = cpp.exact_pairs()
        (t_score, product), (expected_t_score, expected) = (
            Given(problem, base.astype(dtype), None, parameters, options).product(np.ones(base.shape, dtype))
            for dtype in DTYPES
        )
        assert cpp.exact_pairs() == before
        np.testing.assert_allclose(t_score, expected_t_score, rtol=1e-6)  # the expected number of matches
        np.testing.assert_allclose(product, expected, rtol=0, atol=5e-5)
        part, ones = base[:, :500, :500], np.ones((1, 500, 500))
        exactly = Given(problem, part, None, parameters, options, layout=ROWS).product(ones.astype("f"))
        expected = Given(problem, part.astype("d"), None, parameters, options).product(ones)
        np.testing.assert_allclose(exactly[1], expected[1], rtol=0, atol=1e-4)


@KINDS
def test_every_temperature_is_right(problem, options):
    shape = (90, 110)
    similarity = np.stack([random().normal(size=shape), *(np.full(shape, value) for value in (0.0, -5.0, 5.0))])
    for temperature in (1e-3, 0.02, 0.1, 0.3, 3.0, 100.0, 1e3):
        exact = assert_right(problem, options, similarity, -1.0, temperature)
        assert exact == 0 or temperature < 3
        assert exact == CALLS * 4 or temperature > 0.02 or problem == "free_gap"


@KINDS
def test_the_later_of_two_islands_wins(problem, options):
    similarity, diagonal = np.full((150, 1200), -4.0), np.arange(40)
    for gain in (1.0, 6.0):
        similarity[diagonal, diagonal] = gain
        similarity[100 + diagonal, 1100 + diagonal] = 1.3 * gain
        for gap in (0.0, -0.3, -1.0, -11.0):
            assert assert_right(problem, options, similarity, gap) <= 1


@KINDS
def test_forbidden_and_nearly_forbidden_matches_are_right(problem, options):
    base, chance = 2 * random().normal(size=(7, 60, 70)), random(1).random((60, 70))
    low = [-np.inf, -1e9, -100, -60, -30, -np.inf, -np.inf]
    similarity = np.stack([np.where(chance < 0.5, value, matrix) for value, matrix in zip(low, base, strict=True)])
    similarity[5], similarity[6] = base[5], base[6]
    similarity[5, :, 40:43], similarity[6, ::2] = -np.inf, -np.inf  # nothing but gaps crosses these
    for gap in (0.0, -1.0, -11.0, -20.0):
        exact = assert_right(problem, options, similarity, gap)
        # starts at -100 are not negligible where gaps are cheap, nor where they are cheaper those at -60
        is_cheaper = gap == 0 or (gap == -1 and problem == "smith_waterman_affine")
        assert exact <= 1 + (2 if is_cheaper else 1) * CALLS or gap < -11


def counts(problem: str, similarity: Any, gap: float, temperature: float = 1.0) -> int:
    return assert_right(problem, None, similarity, gap, temperature)


def test_a_gap_of_up_to_27_bits_is_held():
    similarity = random().normal(size=(40, 50))
    assert counts("smith_waterman", similarity, -26.9 * BIT) == 0
    assert counts("smith_waterman", similarity, -27.1 * BIT) == CALLS
    assert counts("smith_waterman", similarity, 26.9 * BIT) > 0  # states outgrow the range


def test_a_match_may_outweigh_its_neighbours_by_75_bits():
    similarity = np.zeros((40, 50))
    similarity[7, 11] = 75 * BIT
    assert counts("smith_waterman", similarity, -1.0) == 0
    similarity[7, 11] = 102 * BIT
    assert counts("smith_waterman", similarity, -1.0) == CALLS


def test_neighbouring_columns_may_be_56_bits_apart():
    # of a column that each row takes higher, while the one before it stays where it is
    gap, similarity = -26 * BIT, np.zeros((40, 50))
    similarity[0, 20], similarity[1, 20], similarity[2, 20] = BIT * np.array([40, 45, 50])
    assert counts("smith_waterman", similarity, gap) == 0
    similarity[0, 20], similarity[1, 20], similarity[2, 20] = BIT * np.array([50, 100, 110])
    assert counts("smith_waterman", similarity, gap) == CALLS


def low(shape: tuple[int, int], value: float, cells: str) -> np.ndarray:
    """The value everywhere but in some cells, each given as row, column and value; all in bits."""
    similarity = np.full(shape, value)
    for cell in cells.split(","):
        row, col, bits = cell.split()
        similarity[int(row), int(col)] = float(bits)
    return BIT * similarity


@pytest.mark.parametrize("problem", ["smith_waterman", "smith_waterman_affine"])
def test_where_no_alignment_comes_to_its_odds_backwards_may_be_anything(problem):
    # so many orders of gaps lead from the first cell to the last but one
    assert_right(problem, None, low((100, 100), -np.inf, "99 99 1.0, 98 98 1.0"), 0.0)


def test_starts_of_the_least_odds_count_where_gaps_are_cheap():
    assert counts("smith_waterman", low((120, 120), -101.0, "119 119 0.0"), 0.0) == CALLS
    # so many that together they count, where a gap and its two places in an order are worth 1.01
    assert counts("smith_waterman", low((2000, 2000), -100.1, "1999 1999 -15.0"), -701 / 1024) == CALLS


# the least such start, and the next greater one that is held
@pytest.mark.parametrize(("start", "exact"), [(-98, CALLS), (-43, CALLS), (-42, 0)])
def test_starts_that_a_dear_gap_makes_as_little_count_too(start, exact):
    similarity = low((100, 100), -np.inf, f"0 0 {start}, 99 99 0.0, 98 0 0.0, 99 1 0.0")
    options = {"restrict_turns": False, "penalize_turns": False}
    parameters = {"gap_open": -26 * BIT, "gap_extend": 0.0, "temperature": 1.0}
    assert assert_as_in_float64("smith_waterman_affine", options, similarity, None, parameters) == exact


# A result is lost, if a condition is not checked, where a column or a strip is worth much more than its predecessor.
LOCAL, AFFINE, GLOBAL, FREE = "smith_waterman", "smith_waterman_affine", "needleman_wunsch", "free_gap"
NONE = -np.inf
STEEP = {
    "a start beside a large column": (LOCAL, (8, 20), 0.0, -1.0, "1 0 98, 0 0 98"),
    "a tangent beside a column": (GLOBAL, (66, 20), NONE, -0.1, "20 0 0, 21 1 103, 25 0 0, 26 1 98, 30 0 40, 32 0 4"),
    "an end beside a large start": (AFFINE, (8, 17), -30.0, -0.05, "2 1 80, 6 1 120, 3 4 20, 6 0 0"),
    "a start in the first column": (LOCAL, (66, 20), NONE, -0.05, "5 0 80, 46 0 120, 50 0 120"),
    "a strip's border": (
        AFFINE,
        (60, 270),
        NONE,
        -0.05,
        "0 128 60, 1 129 0, 20 128 108, 21 129 0, 40 128 120, 41 129 0",
    ),
    "the border of a global alignment": (GLOBAL, (34, 20), -101.0, -1.0, "14 0 80, 31 0 122, 32 0 126"),
    "the border in a low unit": (FREE, (17, 17), -101.0, -0.05, "0 0 80, 6 0 120, 8 0 126, 2 3 4"),
    "a total beside last rows": (AFFINE, (8, 270), -60.0, -1.0, "1 128 80, 4 128 100, 7 128 126, 1 130 20, 3 130 0"),
    "a marginal of dead ends": (LOCAL, (50, 270), NONE, 0.0, "0 0 40, 13 0 40, 19 0 60, 46 0 0"),
    "a sum of dead ends": (GLOBAL, (8, 40), NONE, -0.1, "0 0 80, 1 1 5, 2 0 80, 3 1 5, 5 0 125, 6 1 0, 6 2 40"),
    "a share of two high units": (LOCAL, (8, 20), NONE, -0.05, "2 8 45, 3 9 45, 4 10 80"),
    "a short alignment's place": (LOCAL, (17, 270), NONE, -1.0, "1 269 60, 8 269 80"),
}


@pytest.mark.parametrize(
    "name",
    [
        name if case[0].startswith("smith") else pytest.param(name, marks=pytest.mark.slow)
        for name, case in STEEP.items()
    ],
)
def test_steep_columns_are_right(name):
    problem, shape, value, gap, cells = STEEP[name]
    similarity = low(shape, value, cells)
    for matrix in (similarity, similarity[::-1, ::-1]):
        assert_right(problem, None, matrix, gap * BIT)


def assert_steep_columns_are_right(problem: str, options: Any, count: int = 400) -> None:
    """Compare random matrices in which a few matches of one column are worth 2^40 to 2^126."""
    chance = random(7)
    for _ in range(count):
        rows, cols = int(chance.choice([8, 17, 34, 66])), int(chance.choice([17, 20, 20, 40, 270]))
        column = int(chance.choice([0, 1, cols - 2, cols - 1, 127, 128] if cols > 256 else [0, 0, 1, 10, cols - 1]))
        value, gap = chance.choice([-np.inf, -101, -60, -30, -10, -3, 0]), chance.choice([0, -0.05, -0.3, -1, -3, -26])
        similarity, bits = np.full((rows, cols), value), chance.choice([40, 60, 80, 98])
        for row in sorted(chance.choice(rows, chance.integers(2, 5), replace=False)):
            similarity[row, column] = min(bits, 126)
            bits += chance.choice([0, 5, 20, 40, 45])
            if chance.random() < 0.5:
                similarity[min(row + 1, rows - 1), min(column + 1, cols - 1)] = chance.choice([0, 5, 50])
        similarity = similarity[::-1, ::-1] if chance.random() < 0.3 else similarity
        assert_right(problem, options, BIT * similarity, gap * BIT)


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "options"), CASES)
def test_random_steep_columns_are_right(problem, options):
    assert_steep_columns_are_right(problem, options)


def steep_gaps(chance: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Gaps by position of one of several kinds, in bits."""
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


@pytest.mark.slow
@EVERY_BY_POSITION
def test_random_steep_gaps_and_matches_are_right(problem, options, names):
    chance = random(7)
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
        parameters = by_position(problem, names, gap, chance.choice([0, -0.05, -1, -3, -26]) * BIT)
        assert_as_in_float64(problem, options, similarity * BIT, None, parameters)


@pytest.mark.slow
@pytest.mark.parametrize("penalize_turns", [True, False])
@pytest.mark.parametrize("start", [-2.0, 3.0, 3.8])
@pytest.mark.parametrize("match", [80.0, 95.0, 99.0])
def test_a_gap_down_a_column_does_not_hide_what_alone_may_turn(match, start, penalize_turns):
    # where turns are restricted: a strong alignment leads down a column, from which only a weak one may go right
    similarity, gap = np.full((24, 60), -np.inf), np.full((1, 24, 60), -0.05)
    similarity[2, 9] = similarity[3, 10] = 55
    similarity[6, 10], similarity[7, 31] = start, match
    gap[0, :6, 11:], gap[0, 6, 11:31] = -13, 0.3
    parameters = {"gap_open": gap * BIT, "gap_extend": gap * BIT, "temperature": 1.0}
    options = {"restrict_turns": True, "penalize_turns": penalize_turns}
    assert assert_as_in_float64("smith_waterman_affine", options, similarity * BIT, None, parameters) == CALLS


@pytest.mark.parametrize(("value", "held"), [(-26.5, True), (-27.5, False), (26.5, True), (27.5, False), (-1e9, False)])
def test_one_gap_by_position_of_up_to_27_bits_is_held(value, held):
    similarity, gap = random().normal(size=(1, 20, 40)), np.full((1, 20, 40), -1.0)
    gap[0, 7, 9] = value * BIT
    parameters = {"gap": gap, "temperature": 1.0}
    assert assert_as_in_float64("smith_waterman", None, similarity, None, parameters) == (0 if held else CALLS)


def test_starts_of_the_least_odds_count_where_one_gap_by_position_is_cheap():
    # columns that fill vectors: else what is beside them counts as cheap
    similarity, gap = np.full((1, 120, 128), -101 * BIT), np.full((1, 120, 128), -3.0)
    similarity[0, 119, 127] = 0
    parameters = {"gap": gap, "temperature": 1.0}
    assert assert_as_in_float64("smith_waterman", None, similarity, None, parameters) == 0
    gap[0, 60, 60] = 0
    assert assert_as_in_float64("smith_waterman", None, similarity, None, parameters) == CALLS


@pytest.mark.parametrize("problem", ["smith_waterman", "smith_waterman_affine"])
def test_a_strip_without_matches_leaves_the_next_one_in_range(problem):
    similarity = np.where(np.arange(270) < 128, -np.inf, random().normal(size=(60, 270)))
    assert counts(problem, similarity, -1.0) == 0


@KINDS
def test_the_score_has_the_same_bits_in_all_passes(problem, options):
    # some bands are cut, and the passes have different blocks
    similarity = random(3).normal(size=(100, 150, 256)).astype(np.float32)
    similarity[random(4).random(similarity.shape) < 0.001] = 60 * BIT
    similarity[:, :, ::7] += 6
    parameters = parameters_of(problem, -1.0)
    scores, again, *_, last, _, _ = Given(problem, similarity, None, parameters, options).results()
    assert_same_bits([scores, scores], [again, last])


@pytest.mark.slow
@pytest.mark.parametrize("match", [12.0, 13.0, 14.0])
def test_the_temperature_of_a_certain_alignment_with_many_free_gaps(match):
    similarity = np.full((60, 260), -match)
    similarity[range(60), range(100, 160)] = match
    assert_right("free_gap", None, similarity, 0.0)


def test_a_total_may_be_far_below_the_start_of_an_alignment():
    assert counts("smith_waterman", np.full((40, 50), -10 * BIT), -1.0) == 0
    assert counts("smith_waterman", np.full((40, 50), -35 * BIT), -1.0) == CALLS


@pytest.mark.parametrize("match", [3.0, 4.0, 5.0])
def test_products_are_finite_where_matches_are_almost_too_large(match):
    similarity = np.full((1, 400, 400), match, np.float32)
    *_, product = Given("smith_waterman", similarity, None, {"gap": -1.0, "temperature": 0.1}).results()
    assert np.isfinite(product).all()


def test_pairs_with_few_columns_have_an_exponent_per_cell():
    assert counts("smith_waterman", random().normal(size=(40, 4)), -1.0) == CALLS


@pytest.mark.parametrize(
    ("problem", "options", "names"),
    [
        *((*CASES[number], ()) for number in (0, 2)),
        *(pytest.param(*case, (), marks=pytest.mark.slow) for number, case in enumerate(CASES) if number not in (0, 2)),
        TURNS[0],
        *(pytest.param(*case, marks=pytest.mark.slow) for case in TURNS[1:]),
    ],
)
def test_long_pairs_are_cut_into_tiles_alike_for_any_threads_and_company(problem, options, names):
    # several strips and blocks each; one of the pairs needs an exponent per cell
    similarity, lengths = random().normal(size=(3, 350, 700)).astype(np.float32), [[350, 700], [350, 690], [333, 513]]
    similarity[1] *= 100
    gaps, lengths = random(1).uniform(-3, -0.5, similarity.shape).astype(np.float32), np.array(lengths)

    def parameters(chosen: Any) -> dict[str, Any]:
        numbers = parameters_of(problem, -1.0)
        return numbers | dict.fromkeys(names, gaps[chosen])

    assert assert_as_in_float64(problem, options, similarity[::2], lengths[::2], parameters(slice(0, 3, 2))) == 0
    one, *others = (
        Given(problem, similarity, lengths, parameters(slice(3)), options, threads=threads).results()
        for threads in (1, 2, 3)
    )
    for results in others:
        assert_same_bits(one, results)
    for pair in range(3):
        chosen = slice(pair, pair + 1)
        alone = Given(problem, similarity[chosen], lengths[chosen], parameters(chosen), options, threads=2)
        # the direction is drawn by shape: scores and gradients suffice
        assert_same_bits([array[chosen] for array in one[:4]], alone.results()[:4])


# a kind of each border and gap, and what makes the compiler's vectors shorter
NARROWER_KINDS = ("smith_waterman", {"end": "any"}), CASES[2], ("needleman_wunsch", {})
NARROWER = {"8 lanes": "-mno-avx512f", "4 lanes": "-mno-avx"}


@pytest.fixture(scope="module", params=NARROWER)
def narrower(request) -> Iterator[None]:
    """The float32 kernels of a CPU with shorter vectors, in place of this CPU's."""
    if platform.machine() != "x86_64":
        pytest.skip("vectors of other lengths are those of x86-64")
    flags = "-O1", "-w", NARROWER[request.param]
    names = tuple(name for name in cpp.PASSES if name != "best")  # which computes in no odds
    with pytest.MonkeyPatch.context() as patch:
        for problem, options in NARROWER_KINDS:
            kind = cpp.call_of(problem, options).kind
            target = cpp.target("float32", kind, names, flags)
            target = target._replace(name=f"{target.name}-{request.param[0]}-lanes")
            passes = SimpleNamespace(**{name: library._kernel_of(target, name) for name in names})
            patch.setitem(library._kernels, ("float32", kind, False), passes)
        yield


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("narrower")
def test_shorter_vectors_hold_the_same_bounds(globins):
    for name, (problem, *_) in STEEP.items():
        if problem != "free_gap":
            test_steep_columns_are_right(name)
    similarity, lengths = globins
    for problem, options in NARROWER_KINDS:
        assert_steep_columns_are_right(problem, options, 200)
        assert assert_right(problem, options, similarity[::2], -2.0, lengths=lengths[::2]) == 0
        assert assert_right(problem, options, 8 * proteins(60), -1.0) > 0
        assert assert_right(problem, options, random().normal(size=(2, 150, 600)), -1.0) == 0
