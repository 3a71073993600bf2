"""The native kernels with block exponents, on both sides of each bound of what these can hold.

Against the same kernels in float64 with an exponent per cell, which are proved elsewhere.
"""

import itertools
import platform
from types import SimpleNamespace
from typing import Any

import native_calls
import numpy as np
import pytest
from frameworks import DTYPES
from gaps_by_position import TURNS
from native_calls import EVERY, FINENESS, IN_BLOCKS, KINDS, ROWS, Given, assert_as_with_cell_exponents, assert_same_bits

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
CALLS = 4  # in Given.results that try block exponents
BIT = np.log(2)


@pytest.fixture(params=DTYPES, autouse=True)
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The dtype that a test tries: each test tries both."""
    monkeypatch.setattr(native_calls, "tried_dtype", request.param)
    return request.param


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
    """Compare all derivatives with those by cell exponents. Returns how many times a pair got these anyway."""
    return assert_as_with_cell_exponents(
        problem, options, similarity, lengths, parameters_of(problem, gap, temperature)
    )


def some_globins(step: int) -> tuple[np.ndarray, np.ndarray]:
    records, matrix = read_fasta(GLOBINS), substitution_matrix("BLOSUM62")
    batch = pair_batch(records, list(itertools.combinations(range(len(records)), 2))[::step], matrix, GLOBINS)
    return batch.similarity, batch.lengths


@pytest.fixture(scope="module")
def globins() -> tuple[np.ndarray, np.ndarray]:
    return some_globins(9)


@pytest.fixture(scope="module")
def uniform() -> tuple[np.ndarray, np.ndarray]:
    lengths = np.stack([random(1).integers(80, 101, 20), random(2).integers(95, 121, 20)], axis=1)
    return random().random((20, 100, 150)), lengths


@KINDS
def test_ordinary_input_is_held_by_block_exponents(problem, options, globins, uniform):
    assert assert_right(problem, options, uniform[0], -1.0, lengths=uniform[1]) == 0
    for gap in (-1.0, -3.0, -11.0):
        most = int((problem, gap) == ("needleman_wunsch", -11.0))  # one call for one pair, on CPUs without AVX-512
        assert assert_right(problem, options, globins[0], gap, lengths=globins[1]) <= most


@BY_POSITION
def test_ordinary_gaps_by_position_are_held_by_block_exponents(problem, options, names, uniform):
    chance = random()
    for similarity, lengths in (some_globins(15), uniform):
        for least in (-1.0, -4.0):
            gap = lambda: chance.uniform(least, 0, similarity.shape)  # noqa: B023, E731
            parameters = by_position(problem, names, gap, -1.0)
            assert assert_as_with_cell_exponents(problem, options, similarity, lengths, parameters) == 0


@KINDS
def test_self_alignments_are_right_at_every_scale(problem, options):
    base = proteins(150)
    for gap in (0.0, -1.0, -4.0, -11.0, -50.0, 0.5):
        exact = [assert_right(problem, options, base * scale, gap) for scale in (1, 2, 5, 50)]
        assert exact[0] == 0 or not -11 <= gap <= 0
        assert exact[3] > 0  # 11 * 50 is e^550, or 2^793


@pytest.mark.slow
def test_long_self_alignments_are_right():
    base = proteins(1200)
    # one alignment outweighs all others: the temperature's gradient is what is left of two large numbers
    assert assert_right("smith_waterman", None, base, -11.0) <= 1
    assert_right("smith_waterman", None, 3 * base, -1.0)


@KINDS
def test_a_direction_that_adds_up_along_the_alignment_is_right(problem, options, dtype):
    # its tangents sum up to a thousand times the result
    base = proteins(1000)[None]
    for gap in (-1.0, -11.0):
        for similarity, layout, of_score, bound in ((base, 0, 1e-6, 5e-5), (base[:, :500, :500], ROWS, 2e-6, 1e-4)):
            before = cpp.exact_pairs()
            (t_score, product), (expected_t_score, expected) = (
                Given(problem, similarity.astype(wide), None, parameters_of(problem, gap), options, which).product(
                    np.ones(similarity.shape, wide)
                )
                for wide, which in ((dtype, layout), ("float64", ROWS))
            )
            assert cpp.exact_pairs() == before
            # the expected number of matches
            np.testing.assert_allclose(t_score, expected_t_score, rtol=of_score * FINENESS[dtype])
            np.testing.assert_allclose(product, expected, rtol=0, atol=bound * FINENESS[dtype])


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


def low(shape: tuple[int, int], value: float, cells: str = "") -> np.ndarray:
    """The value everywhere but in some cells, each given as row, column and value; all in bits."""
    similarity = np.full(shape, value)
    for cell in filter(None, cells.split(",")):
        row, col, bits = cell.split()
        similarity[int(row), int(col)] = float(bits)
    return BIT * similarity


NORMAL = random().normal(size=(40, 50))
LAST_STRIP = np.where(np.arange(270) < 128, -np.inf, random().normal(size=(60, 270)))
# similarity, gap in bits, and whether it is held
BOUNDS = {
    "a gap of up to 27 bits": (NORMAL, -26.9, True),
    "a gap of more than 27 bits": (NORMAL, -27.1, False),
    "a match that outweighs its neighbours by 75 bits": (low((40, 50), 0.0, "7 11 75"), -1.0, True),
    "a match that outweighs its neighbours by 122 bits": (low((40, 50), 0.0, "7 11 122"), -1.0, False),
    # of a column that each row takes higher, while the one before it stays where it is
    "neighbouring columns 56 bits apart": (low((40, 50), 0.0, "0 20 40, 1 20 45, 2 20 50"), -26.0, True),
    "neighbouring columns further apart": (low((40, 50), 0.0, "0 20 50, 1 20 100, 2 20 110"), -26.0, False),
    "starts of the least weight where gaps are cheap": (low((400, 400), -101.0, "399 399 0.0"), 0.0, False),
    # so many that together they count, where a gap and its two places in an order are worth 1.01
    "many starts": (low((2000, 2000), -100.1, "1999 1999 -15.0"), -701 / 1024 / BIT, False),
    "a total below the start of an alignment": (low((40, 50), -10.0), -1.4, True),
    "a total far below the start of an alignment": (low((40, 50), -35.0), -1.4, False),
    "a strip without matches before another": (LAST_STRIP, -1.4, True),
    "few columns": (NORMAL[:, :4], -1.4, False),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_what_is_held_ends_at_its_bounds(name, dtype):
    similarity, gap, is_held = BOUNDS[name]
    is_held |= (name, dtype) == ("many starts", "float64")  # which would have to be more, beside 2^-53
    assert assert_right("smith_waterman", None, similarity, gap * BIT) == (0 if is_held else CALLS)


# the least such start, and the next greater one that is held
@pytest.mark.parametrize(
    ("dtype", "start", "exact"),
    [
        ("float32", -98, CALLS),
        ("float32", -39, CALLS),
        ("float32", -38, 0),
        ("float64", -73, CALLS),
        ("float64", -72, 0),
    ],
    indirect=["dtype"],
)
def test_starts_that_a_dear_gap_makes_as_little_count_too(start, exact):
    similarity = low((400, 400), -np.inf, f"0 0 {start}, 399 399 0.0, 398 0 0.0, 399 1 0.0")
    options = {"restrict_turns": False, "penalize_turns": False}
    parameters = {"gap_open": -26 * BIT, "gap_extend": 0.0, "temperature": 1.0}
    assert assert_as_with_cell_exponents("smith_waterman_affine", options, similarity, None, parameters) == exact


# A result is lost, if a condition is not checked, where a column or a strip is worth much more than its predecessor.
LOCAL, AFFINE, GLOBAL, FREE = "smith_waterman", "smith_waterman_affine", "needleman_wunsch", "free_gap"
NONE = -np.inf
STEEP = {
    "a start beside a large column": (LOCAL, (8, 20), 0.0, -1.0, "1 0 98, 0 0 98"),
    "a tangent beside a column": (GLOBAL, (66, 20), NONE, -0.1, "20 0 0, 21 1 103, 25 0 0, 26 1 98, 30 0 40, 32 0 4"),
    "an end beside a large start": (AFFINE, (8, 17), -30.0, -0.05, "2 1 80, 6 1 120, 3 4 20, 6 0 0"),
    "a start in the first column": (LOCAL, (66, 20), NONE, -0.05, "5 0 80, 46 0 120, 50 0 120"),
    "a strip's edge": (AFFINE, (60, 270), NONE, -0.05, "0 128 60, 1 129 0, 20 128 108, 21 129 0, 40 128 120, 41 129 0"),
    "the border of a global alignment": (GLOBAL, (34, 20), -101.0, -1.0, "14 0 80, 31 0 122, 32 0 126"),
    "the border in a low unit": (FREE, (17, 17), -101.0, -0.05, "0 0 80, 6 0 120, 8 0 126, 2 3 4"),
    "a total beside last rows": (AFFINE, (8, 270), -60.0, -1.0, "1 128 80, 4 128 100, 7 128 126, 1 130 20, 3 130 0"),
    "a marginal of dead ends": (LOCAL, (50, 270), NONE, 0.0, "0 0 40, 13 0 40, 19 0 60, 46 0 0"),
    "a sum of dead ends": (GLOBAL, (8, 40), NONE, -0.1, "0 0 80, 1 1 5, 2 0 80, 3 1 5, 5 0 125, 6 1 0, 6 2 40"),
    "a share of two high units": (LOCAL, (8, 20), NONE, -0.05, "2 8 45, 3 9 45, 4 10 80"),
    "a short alignment's place": (LOCAL, (17, 270), NONE, -1.0, "1 269 60, 8 269 80"),
    # so many orders of gaps lead from the first cell to the last but one
    "no alignment comes to its weight backwards": (LOCAL, (100, 100), NONE, 0.0, "99 99 1, 98 98 1"),
    "nor to those of a gap's states": (AFFINE, (100, 100), NONE, 0.0, "99 99 1, 98 98 1"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if STEEP[name][0] in (LOCAL, AFFINE) else pytest.mark.slow) for name in STEEP]
)
def test_steep_columns_are_right(name):
    problem, shape, value, gap, cells = STEEP[name]
    similarity = low(shape, value, cells)
    for matrix in (similarity, similarity[::-1, ::-1]):
        assert_right(problem, None, matrix, gap * BIT)


def put_steep_column(chance: np.random.Generator, similarity: np.ndarray, column: int, steps: list[int]) -> None:
    """Have a few matches of one column be worth 2^40 to 2^126, each more than the one above by one of these steps."""
    rows, cols = similarity.shape
    bits = chance.choice([40, 60, 80, 98])
    for row in sorted(chance.choice(rows, chance.integers(2, 5), replace=False)):
        similarity[row, column] = min(bits, 126)
        bits += chance.choice(steps)
        if chance.random() < 0.5:
            similarity[min(row + 1, rows - 1), min(column + 1, cols - 1)] = chance.choice([0, 5, 50])


def assert_steep_columns_are_right(problem: str, options: Any) -> None:
    """Compare random matrices with a steep column."""
    chance = random(7)
    for _ in range(200):
        rows, cols = int(chance.choice([8, 17, 34, 66])), int(chance.choice([17, 20, 20, 40, 270]))
        column = int(chance.choice([0, 1, cols - 2, cols - 1, 127, 128] if cols > 256 else [0, 0, 1, 10, cols - 1]))
        value, gap = chance.choice([-np.inf, -101, -60, -30, -10, -3, 0]), chance.choice([0, -0.05, -0.3, -1, -3, -26])
        similarity = np.full((rows, cols), value)
        put_steep_column(chance, similarity, column, [0, 5, 20, 40, 45])
        similarity = similarity[::-1, ::-1] if chance.random() < 0.3 else similarity
        assert_right(problem, options, BIT * similarity, gap * BIT)


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "options"), IN_BLOCKS)
def test_random_steep_columns_are_right(problem, options):
    assert_steep_columns_are_right(problem, options)


def steep_gaps(chance: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Gaps by position of one of several kinds, in bits."""
    rows, cols = shape
    cheap = chance.choice([3, 1, 0, -0.1])
    one, row, column = np.full(shape, -1.0), np.full(shape, -20.0), np.full(shape, -20.0)
    one[chance.integers(rows), chance.integers(cols)] = chance.choice([-26, -40, -200, 20])
    row[chance.integers(rows)] = column[:, chance.integers(cols)] = cheap
    kinds = (
        *(one, row, column),
        chance.uniform(-200, 20, shape),
        chance.uniform(-26, chance.choice([0, 26]), shape),
        chance.uniform(-chance.choice([0.5, 4, 12]), 0, shape),
        np.where(chance.random(shape) < 0.5, -25.0, -0.05),
    )
    return kinds[chance.integers(len(kinds))]


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "options", "names"), TURNS)
def test_random_steep_gaps_and_matches_are_right(problem, options, names):
    chance = random(7)
    for _ in range(40):
        shape = int(chance.choice([8, 17, 34, 66, 130])), int(chance.choice([17, 20, 40, 64, 150, 270]))
        similarity = np.full(shape, chance.choice([-np.inf, -101, -60, -30, -10, -3, 0]))
        similarity = similarity + chance.normal(size=shape) * chance.choice([0, 1, 4])
        if chance.random() < 0.5:
            put_steep_column(chance, similarity, int(chance.integers(shape[1])), [0, 5, 20, 40])
        if chance.random() < 0.5:
            similarity[chance.random(shape) < 0.1] = chance.choice([5, 20, 60, -np.inf])
        gap = lambda: steep_gaps(chance, shape)[None] * BIT  # noqa: B023, E731
        parameters = by_position(problem, names, gap, chance.choice([0, -0.05, -1, -3, -26]) * BIT)
        assert_as_with_cell_exponents(problem, options, similarity * BIT, None, parameters)


@pytest.mark.slow
@pytest.mark.parametrize("penalize_turns", [True, False])
def test_a_gap_down_a_column_does_not_hide_what_alone_may_turn(penalize_turns):
    # where turns are restricted: a strong alignment leads down a column, from which only a weak one may go right
    similarity, gap = np.full((24, 60), -np.inf), np.full((1, 24, 60), -0.05)
    similarity[2, 9] = similarity[3, 10] = 55
    gap[0, :6, 11:], gap[0, 6, 11:31] = -13, 0.3
    parameters = {"gap_open": gap * BIT, "gap_extend": gap * BIT, "temperature": 1.0}
    options = {"restrict_turns": True, "penalize_turns": penalize_turns}
    for start, match in itertools.product((-2.0, 3.0, 3.8), (80.0, 95.0, 99.0)):
        similarity[6, 10], similarity[7, 31] = start, match
        assert (
            assert_as_with_cell_exponents("smith_waterman_affine", options, similarity * BIT, None, parameters) == CALLS
        )


@pytest.mark.parametrize(
    ("match", "usual", "one", "is_held"),
    [
        *((0.0, -1.0, bits, abs(bits) < 27) for bits in (-26.5, -27.5, 26.5, 27.5, -1e9)),
        # starts of the least weight count where one gap is cheap
        *((-101.0, -4.0, bits, bits < 0) for bits in (-4.0, 0.0)),
    ],
)
def test_one_gap_by_position_is_held_up_to_its_bounds(match, usual, one, is_held):
    problem, options, (name,) = TURNS[0]
    # columns that fill vectors: else what is beside them counts as cheap
    similarity, gap = np.full((1, 400, 512), match), np.full((1, 400, 512), usual)
    similarity[0, [398, 399], [510, 511]], gap[0, 60, 60] = 0, one
    parameters = {name: gap * BIT, "temperature": 1.0}
    exact = assert_as_with_cell_exponents(problem, options, similarity * BIT, None, parameters)
    assert exact == (0 if is_held else CALLS)


def random_costs(chance: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Costs of one of several kinds, in bits: mostly within the 27 of block exponents."""
    rows, cols = shape
    most = chance.choice([4, 12, 26])
    steep = np.full(shape, chance.choice([0.0, 1.0, -1.0]))
    steep[chance.integers(rows)] = steep[:, chance.integers(cols)] = chance.choice([-26, 26])
    kinds = (
        *(steep, chance.normal(size=shape) ** 2, chance.uniform(-most, most, shape)),
        np.where(chance.random(shape) < 0.5, most, 0.0),
        np.abs(np.subtract.outer(np.linspace(0, most, rows), chance.uniform(0, most, cols))),
    )
    costs = kinds[chance.integers(len(kinds))]
    if chance.random() < 0.2:
        costs[chance.integers(rows), chance.integers(cols)] = chance.choice([28, 200, np.inf])
    return costs


@pytest.mark.parametrize("dtype", ["float64"], indirect=True)
def test_costs_are_held_up_to_27_bits(uniform):
    waves = np.sin(np.cumsum(random().uniform(0, 0.3, (2, 4, 300)), axis=-1))
    squares = (waves[0, :, :, None] - waves[1, :, None]) ** 2
    for costs, lengths in (uniform, (squares, None)):
        assert assert_as_with_cell_exponents("soft_dtw", None, costs, lengths, {"temperature": 1.0}) == 0
    for one in (-27.1, -26.9, 26.9, 27.1):
        costs = random().uniform(0, 3, (1, 60, 300))
        costs[0, 30, 200] = one
        exact = assert_as_with_cell_exponents("soft_dtw", None, costs * BIT, None, {"temperature": 1.0})
        assert exact == (0 if abs(one) < 27 else CALLS)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64"], indirect=True)
def test_random_costs_are_right():
    chance = random(7)
    for _ in range(400):
        shape = int(chance.choice([1, 2, 8, 17, 66, 130])), int(chance.choice([17, 20, 40, 64, 150, 270]))
        costs = random_costs(chance, shape) * BIT
        assert_as_with_cell_exponents("soft_dtw", None, costs, None, {"temperature": 1.0})


@pytest.mark.slow
@pytest.mark.parametrize("match", [12.0, 13.0, 14.0])
def test_the_temperature_of_a_certain_alignment_with_many_free_gaps(match):
    assert_right("free_gap", None, np.where(np.eye(60, 260, 100) > 0, match, -match), 0.0)


@pytest.mark.parametrize("match", [3.0, 4.0, 5.0])
def test_products_are_finite_where_matches_are_almost_too_large(match):
    similarity = np.full((1, 400, 400), match, np.float32)
    *_, product = Given("smith_waterman", similarity, None, {"gap": -1.0, "temperature": 0.1}).results()
    assert np.isfinite(product).all()


@EVERY
def test_long_pairs_are_cut_into_tiles_alike_for_any_threads_and_company(problem, options, names):
    # several strips and blocks each; one of the pairs needs an exponent per cell
    similarity, lengths = random().normal(size=(3, 350, 700)).astype(np.float32), [[350, 700], [350, 690], [333, 513]]
    similarity[1] *= 100
    gaps, lengths = random(1).uniform(-3, -0.5, similarity.shape).astype(np.float32), np.array(lengths)

    def parameters(chosen: Any) -> dict[str, Any]:
        return parameters_of(problem, -1.0) | dict.fromkeys(names, gaps[chosen])

    assert (
        assert_as_with_cell_exponents(problem, options, similarity[::2], lengths[::2], parameters(slice(0, 3, 2))) == 0
    )
    one, *other_threads = (
        Given(problem, similarity, lengths, parameters(slice(3)), options, threads=threads).results()
        for threads in (1, 2, 3)
    )
    for results in other_threads:
        assert_same_bits(one, results)
    for pair in range(3):
        chosen = slice(pair, pair + 1)
        alone = Given(problem, similarity[chosen], lengths[chosen], parameters(chosen), options, threads=2)
        # the direction is drawn by shape: scores and gradients suffice
        assert_same_bits([array[chosen] for array in one[:4]], alone.results()[:4])


# what makes the compiler's vectors shorter, and a kind in float32 and one in float64; AArch64's have 4 lanes, or 2
NARROWER = {
    "8 lanes": ("-mno-avx512f", ("float32", *IN_BLOCKS[2]), ("float64", "needleman_wunsch", {})),
    "4 lanes": ("-mno-avx", ("float32", "smith_waterman", {"end": "any"}), ("float64", "needleman_wunsch", {})),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("lanes", NARROWER)
def test_shorter_vectors_hold_the_same_bounds(lanes, dtype, globins, monkeypatch: pytest.MonkeyPatch):
    if platform.machine() != "x86_64":
        pytest.skip("vectors of other lengths are those of x86-64")
    flag, *kinds = NARROWER[lanes]
    _, problem, options = kinds[DTYPES.index(dtype)]
    names = tuple(name for name in cpp.PASSES if name != "best")  # which has no weights
    kind = cpp.call_of(problem, options).kind
    target = cpp.target(dtype, kind, names, ("-O1", "-w", flag))
    target = target._replace(name=f"{target.name}-{lanes[0]}-lanes")
    passes = SimpleNamespace(**{name: library._kernel_of(target, name) for name in names})
    monkeypatch.setitem(library._kernels, (dtype, kind, 0), passes)
    for name, (steep, *_) in STEEP.items():
        if steep == problem:
            test_steep_columns_are_right(name)
    similarity, lengths = globins
    assert_steep_columns_are_right(problem, options)
    assert assert_right(problem, options, similarity[::2], -2.0, lengths=lengths[::2]) == 0
    assert assert_right(problem, options, 8 * proteins(60), -1.0) > 0
    assert assert_right(problem, options, random().normal(size=(2, 150, 600)), -1.0) == 0
