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
from frameworks import DTYPES, PROBLEMS
from native_calls import ROWS, Given, assert_as_in_float64, assert_same_bits

from shared.alignments import ALIGNMENTS
from shared.kernels import cpp
from shared.kernels.cpp import library
from shared.problems.alignment_inputs import GLOBINS
from shared.sequences import pair_batch, read_fasta, substitution_matrix

pytestmark = pytest.mark.skipif(cpp.why_absent() is not None, reason=f"no native kernels: {cpp.why_absent()}")

CASES = pytest.mark.parametrize(
    ("problem", "options"), [(problem, options) for problem in PROBLEMS for options in PROBLEMS[problem].options]
)
BLOSUM = substitution_matrix("BLOSUM62").scores[:20, :20].astype(np.float32)
CALLS = 4  # in Given.results that try plain odds


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def proteins(length: int, seed: int = 0) -> np.ndarray:
    """Similarity of a random protein to itself."""
    letters = random(seed).integers(0, 20, length)
    return BLOSUM[letters][:, letters]


def parameters_of(problem: str, gap: float, temperature: float = 1.0, extend: float | None = None) -> dict[str, Any]:
    every = {"gap": gap, "gap_open": gap, "gap_extend": gap / 4 if extend is None else extend}
    return {name: (every | {"temperature": temperature})[name] for name in ALIGNMENTS[problem].parameters}


def assert_right(
    problem: str, options: Any, similarity: Any, gap: float, temperature: float = 1.0, lengths: Any = None
) -> int:
    """Compare all derivatives with those in float64. Returns how many times a pair got an exponent per cell."""
    return assert_as_in_float64(problem, options, similarity, lengths, parameters_of(problem, gap, temperature))


@pytest.fixture(scope="module")
def globins() -> tuple[np.ndarray, np.ndarray]:
    records, matrix = read_fasta(GLOBINS), substitution_matrix("BLOSUM62")
    batch = pair_batch(records, list(combinations(range(len(records)), 2)), matrix, GLOBINS)
    return batch.similarity, batch.lengths


@CASES
def test_ordinary_input_is_held_by_plain_odds(problem, options, globins):
    uniform = random().random((20, 100, 150))
    lengths = np.stack([random(1).integers(80, 101, 20), random(2).integers(95, 121, 20)], axis=1)
    assert assert_right(problem, options, uniform, -1.0, lengths=lengths) == 0
    similarity, sizes = globins
    for gap in (-1.0, -3.0, -11.0):
        assert assert_right(problem, options, similarity[::9], gap, lengths=sizes[::9]) == 0


@CASES
@pytest.mark.parametrize("gap", [0.0, -1.0, -4.0, -11.0, -50.0, 0.5])
def test_self_alignments_at_every_scale(problem, options, gap):
    base = proteins(150)
    counts = [assert_right(problem, options, base * scale, gap) for scale in (1, 2, 5, 50)]
    if -11 <= gap <= 0:
        assert counts[0] == 0
    assert counts[3] > 0  # 11 * 50 is e^550, or 2^793


@pytest.mark.parametrize("problem", ["smith_waterman", "smith_waterman_affine"])
def test_long_self_alignments(problem):
    base = proteins(2000)
    # one alignment outweighs all others: the temperature's gradient is what is left of two large numbers
    assert assert_right(problem, None, base, -11.0) <= 1
    assert_right(problem, None, 3 * base, -1.0)


@CASES
@pytest.mark.parametrize("gap", [-1.0, -11.0])
def test_a_direction_that_adds_up_along_the_alignment(problem, options, gap):
    # what its tangents sum up to is a thousand times what is left of them
    base = proteins(1000)[None]
    shape, own = base.shape, parameters_of(problem, gap)
    before = cpp.exact_pairs()
    (t_score, product), (expected_t_score, expected) = (
        Given(problem, base.astype(dtype), None, own, options).product(np.ones(shape, dtype)) for dtype in DTYPES
    )
    assert cpp.exact_pairs() == before
    np.testing.assert_allclose(t_score, expected_t_score, rtol=1e-6)  # the expected number of matches
    np.testing.assert_allclose(product, expected, rtol=0, atol=5e-5)
    exactly = Given(problem, base[:, :500, :500], None, own, options, layout=ROWS).product(np.ones((1, 500, 500), "f"))
    expected = Given(problem, base[:, :500, :500].astype("d"), None, own, options).product(np.ones((1, 500, 500)))
    np.testing.assert_allclose(exactly[1], expected[1], rtol=0, atol=1e-4)


@CASES
@pytest.mark.parametrize("temperature", [1e-3, 0.02, 0.1, 0.3, 3.0, 100.0, 1e3])
def test_temperatures(problem, options, temperature):
    shape = (90, 110)
    equal = (np.full(shape, value) for value in (0.0, -5.0, 5.0))
    exact = assert_right(problem, options, np.stack([random().normal(size=shape), *equal]), -1.0, temperature)
    if temperature >= 3:
        assert exact == 0
    if temperature <= 0.02 and problem != "free_gap":
        assert exact == CALLS * 4


@CASES
@pytest.mark.parametrize("gap", [0.0, -0.3, -1.0, -11.0])
def test_the_later_of_two_islands_wins(problem, options, gap):
    similarity, diagonal = np.full((150, 1200), -4.0), np.arange(40)
    for gain in (1.0, 6.0):
        similarity[diagonal, diagonal] = gain
        similarity[100 + diagonal, 1100 + diagonal] = 1.3 * gain
        assert assert_right(problem, options, similarity, gap) <= 1


@CASES
@pytest.mark.parametrize("gap", [0.0, -1.0, -11.0, -20.0])
def test_forbidden_and_nearly_forbidden_matches(problem, options, gap):
    base, chance = 2 * random().normal(size=(7, 60, 70)), random(1).random((60, 70))
    low = [-np.inf, -1e9, -100, -60, -30, -np.inf, -np.inf]
    similarity = np.stack([np.where(chance < 0.5, value, matrix) for value, matrix in zip(low, base, strict=True)])
    similarity[5], similarity[6] = base[5], base[6]
    similarity[5, :, 40:43], similarity[6, ::2] = -np.inf, -np.inf  # nothing but gaps crosses these
    exact = assert_right(problem, options, similarity, gap)
    # starts at -100 are not negligible where gaps are cheap, nor where they are cheaper those at -60
    is_cheaper = gap == 0 or (gap == -1 and problem == "smith_waterman_affine")
    assert exact <= 1 + (2 if is_cheaper else 1) * CALLS or gap < -11


def counts(problem: str, similarity: Any, gap: float, temperature: float = 1.0) -> int:
    return assert_right(problem, None, similarity, gap, temperature)


def test_a_gap_of_up_to_27_bits_is_held():
    similarity = random().normal(size=(40, 50))
    assert counts("smith_waterman", similarity, -26.9 * np.log(2)) == 0
    assert counts("smith_waterman", similarity, -27.1 * np.log(2)) == CALLS
    assert counts("smith_waterman", similarity, 26.9 * np.log(2)) > 0  # states outgrow the range


def test_a_match_may_outweigh_its_neighbours_by_75_bits():
    similarity = np.zeros((40, 50))
    similarity[7, 11] = 75 * np.log(2)
    assert counts("smith_waterman", similarity, -1.0) == 0
    similarity[7, 11] = 102 * np.log(2)
    assert counts("smith_waterman", similarity, -1.0) == CALLS


def test_neighbouring_columns_may_be_56_bits_apart():
    # of a column that each row takes higher, while the one before it stays where it is
    gap, similarity = -26 * np.log(2), np.zeros((40, 50))
    similarity[0, 20], similarity[1, 20], similarity[2, 20] = np.log(2) * np.array([40, 45, 50])
    assert counts("smith_waterman", similarity, gap) == 0
    similarity[0, 20], similarity[1, 20], similarity[2, 20] = np.log(2) * np.array([50, 100, 110])
    assert counts("smith_waterman", similarity, gap) == CALLS


def low(shape: tuple[int, int], value: float, **cells: float) -> np.ndarray:
    """The value everywhere but in some cells, r<row>_c<column>; all in bits."""
    similarity = np.full(shape, value)
    for name, bits in cells.items():
        row, col = (int(number[1:]) for number in name.split("_"))
        similarity[row, col] = bits
    return np.log(2) * similarity


@pytest.mark.parametrize("problem", ["smith_waterman", "smith_waterman_affine"])
def test_where_no_alignment_comes_to_its_odds_backwards_may_be_anything(problem):
    # so many orders of gaps lead from the first cell to the last but one
    assert_right(problem, None, low((100, 100), -np.inf, r99_c99=1.0, r98_c98=1.0), 0.0)


def test_starts_of_the_least_odds_count_where_gaps_are_cheap():
    assert counts("smith_waterman", low((120, 120), -101.0, r119_c119=0.0), 0.0) == CALLS
    # so many that together they count, where a gap and its two places in an order are worth 1.01
    assert counts("smith_waterman", low((2000, 2000), -100.1, r1999_c1999=-15.0), -701 / 1024) == CALLS


# the least such start, and the next greater one that is held
@pytest.mark.parametrize(("start", "exact"), [(-98, CALLS), (-43, CALLS), (-42, 0)])
def test_so_do_starts_that_a_dear_gap_makes_as_little(start, exact):
    similarity = low((100, 100), -np.inf, r0_c0=start, r99_c99=0.0, r98_c0=0.0, r99_c1=0.0)
    options = {"restrict_turns": False, "penalize_turns": False}
    parameters = {"gap_open": -26 * np.log(2), "gap_extend": 0.0, "temperature": 1.0}
    assert assert_as_in_float64("smith_waterman_affine", options, similarity, None, parameters) == exact


# What is lost, if a condition is not checked, where a column or a strip is worth much more than what it continues.
STEEP = {
    "a start beside a large column": ("smith_waterman", (8, 20), 0.0, -1.0, {"r1_c0": 98, "r0_c0": 98}),
    "a tangent beside a large column": (
        *("needleman_wunsch", (66, 20), -np.inf, -0.1),
        {"r20_c0": 0, "r21_c1": 103, "r25_c0": 0, "r26_c1": 98, "r30_c0": 40, "r32_c0": 4},
    ),
    "an end beside a large start": (
        *("smith_waterman_affine", (8, 17), -30.0, -0.05),
        {"r2_c1": 80, "r6_c1": 120, "r3_c4": 20, "r6_c0": 0},
    ),
    "a start in the first column": (
        "smith_waterman",
        (66, 20),
        -np.inf,
        -0.05,
        {"r5_c0": 80, "r46_c0": 120, "r50_c0": 120},
    ),
    "a start in the first column of a strip": (
        *("smith_waterman_affine", (60, 270), -np.inf, -0.05),
        {"r0_c128": 60, "r1_c129": 0, "r20_c128": 108, "r21_c129": 0, "r40_c128": 120, "r41_c129": 0},
    ),
    "the border of a global alignment": (
        *("needleman_wunsch", (34, 20), -101.0, -1.0),
        {"r14_c0": 80, "r31_c0": 122, "r32_c0": 126},
    ),
    "the border in a low unit": (
        "free_gap",
        (17, 17),
        -101.0,
        -0.05,
        {"r0_c0": 80, "r6_c0": 120, "r8_c0": 126, "r2_c3": 4},
    ),
    "a total beside the last rows": (
        *("smith_waterman_affine", (8, 270), -60.0, -1.0),
        {"r1_c128": 80, "r4_c128": 100, "r7_c128": 126, "r1_c130": 20, "r3_c130": 0},
    ),
    "what nothing leads to, in a marginal": (
        *("smith_waterman", (50, 270), -np.inf, 0.0),
        {"r0_c0": 40, "r13_c0": 40, "r19_c0": 60, "r46_c0": 0},
    ),
    "what nothing leads to, in a sum": (
        *("needleman_wunsch", (8, 40), -np.inf, -0.1),
        {"r0_c0": 80, "r1_c1": 5, "r2_c0": 80, "r3_c1": 5, "r5_c0": 125, "r6_c1": 0, "r6_c2": 40},
    ),
    "a share of two high units": ("smith_waterman", (8, 20), -np.inf, -0.05, {"r2_c8": 45, "r3_c9": 45, "r4_c10": 80}),
    "a short alignment's place": ("smith_waterman", (17, 270), -np.inf, -1.0, {"r1_c269": 60, "r8_c269": 80}),
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", STEEP)
def test_steep_columns(name, turned):
    problem, shape, value, gap, cells = STEEP[name]
    similarity = low(shape, value, **cells)
    assert_right(problem, None, similarity[::-1, ::-1] if turned else similarity, gap * np.log(2))


def assert_steep_columns_are_right(problem: str, options: Any) -> None:
    """Of random matrices in which a few matches of one column are worth 2^40 to 2^126."""
    chance = random(7)
    for _ in range(400):
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
        assert_right(problem, options, np.log(2) * similarity, gap * np.log(2))


@CASES
def test_random_steep_columns(problem, options):
    assert_steep_columns_are_right(problem, options)


@pytest.mark.parametrize("problem", ["smith_waterman", "smith_waterman_affine"])
def test_a_strip_without_matches_leaves_the_next_one_in_range(problem):
    similarity = np.where(np.arange(270) < 128, -np.inf, random().normal(size=(60, 270)))
    assert counts(problem, similarity, -1.0) == 0


@CASES
def test_the_score_has_the_same_bits_in_all_passes(problem, options):
    # some bands are cut, and the passes have different blocks
    similarity = random(3).normal(size=(100, 300, 256)).astype(np.float32)
    similarity[random(4).random(similarity.shape) < 0.001] = 60 * np.log(2)
    similarity[:, :, ::7] += 6
    parameters = parameters_of(problem, -1.0)
    scores, again, *_, last, _, _ = Given(problem, similarity, None, parameters, options).results()
    assert_same_bits([scores, scores], [again, last])


@pytest.mark.parametrize("match", [12.0, 13.0, 14.0])
def test_the_temperature_of_a_certain_alignment_with_many_free_gaps(match):
    similarity = np.full((60, 260), -match)
    similarity[range(60), range(100, 160)] = match
    assert_right("free_gap", None, similarity, 0.0)


def test_a_total_may_be_far_below_the_start_of_an_alignment():
    assert counts("smith_waterman", np.full((40, 50), -10 * np.log(2)), -1.0) == 0
    assert counts("smith_waterman", np.full((40, 50), -35 * np.log(2)), -1.0) == CALLS


@pytest.mark.parametrize("match", [3.0, 4.0, 5.0])
def test_products_are_finite_where_matches_are_almost_too_large(match):
    similarity = np.full((1, 400, 400), match, np.float32)
    *_, product = Given("smith_waterman", similarity, None, {"gap": -1.0, "temperature": 0.1}).results()
    assert np.isfinite(product).all()


def test_pairs_with_few_columns_have_an_exponent_per_cell():
    assert counts("smith_waterman", random().normal(size=(40, 4)), -1.0) == CALLS


@pytest.fixture(scope="module")
def long_pairs() -> tuple[np.ndarray, np.ndarray]:
    """Several strips and blocks each; one of them needs an exponent per cell."""
    similarity = random().normal(size=(3, 350, 700)).astype(np.float32)
    similarity[1] *= 100
    return similarity, np.array([[350, 700], [350, 690], [333, 513]])


@CASES
def test_a_pair_has_the_same_bits_for_any_threads_and_company(problem, options, long_pairs):
    similarity, lengths = long_pairs
    own = parameters_of(problem, -1.0)
    one, two, three = (
        Given(problem, similarity, lengths, own, options, threads=threads).results() for threads in (1, 2, 3)
    )
    assert_same_bits(one, two)
    assert_same_bits(one, three)
    for pair in range(3):
        alone = Given(problem, similarity[pair : pair + 1], lengths[pair : pair + 1], own, options, threads=2)
        # the direction is drawn by shape: scores and gradients suffice
        assert_same_bits([array[pair : pair + 1] for array in one[:4]], alone.results()[:4])


@CASES
def test_long_pairs_are_cut_into_tiles(problem, options, long_pairs):
    similarity, lengths = long_pairs
    assert assert_right(problem, options, similarity[::2], -1.0, lengths=lengths[::2]) == 0


NARROWER = {"8 lanes": "-mno-avx512f", "4 lanes": "-mno-avx"}


@pytest.fixture(scope="module", params=NARROWER)
def narrower(request) -> Iterator[None]:
    """The float32 kernels of a CPU with shorter vectors, in place of this CPU's."""
    if platform.machine() != "x86_64":
        pytest.skip("vectors of other lengths are those of x86-64")
    flags = "-O1", "-w", NARROWER[request.param]
    names = tuple(name for name in cpp.PASSES if name != "best")  # which computes in no odds
    target = cpp.target("float32", passes=names, flags=flags)
    target = target._replace(name=f"alignment-float32-{request.param[0]}-lanes")
    passes = SimpleNamespace(**{name: library._kernel_of(target, name) for name in names})
    with pytest.MonkeyPatch.context() as patch:
        for dtype, kind, by_position in library._kernels:
            if dtype == "float32" and not by_position:
                patch.setitem(library._kernels, (dtype, kind, by_position), passes)
        yield


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("narrower")
def test_shorter_vectors(globins):
    for name in STEEP:
        test_steep_columns(name, turned=False)
    similarity, lengths = globins
    for problem in PROBLEMS:
        for options in PROBLEMS[problem].options:
            assert_steep_columns_are_right(problem, options)
            assert assert_right(problem, options, similarity[::20], -2.0, lengths=lengths[::20]) == 0
            assert assert_right(problem, options, 8 * proteins(60), -1.0) > 0
            assert assert_right(problem, options, random().normal(size=(2, 150, 600)), -1.0) == 0
