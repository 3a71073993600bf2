"""The kernels with block exponents give what float64 gives, or flag a pair, which the exact kernels then compute."""

from typing import Any

import numpy as np
import pytest
import test_cuda
import torch
from frameworks import ragged
from gaps_by_position import outside
from kernel_calls import Given, jax_calls, run_native, take_for_a_gpu, torch_calls
from triton.runtime.interpreter import InterpreterBuilder

import torch_impl
from shared.kernels import cpp
from shared.kernels.triton import programs
from shared.kernels.triton.programs import NARROW, Chunk, Layout, Program
from shared.problems.alignment_inputs import AlignmentInputs
from shared.sequences import GLOBINS, pair_batch, read_fasta, substitution_matrix
from shared.tolerances import hvp_bound, marginals_bound, score_bound
from torch_impl.kernels.exact_pairs import exact_pairs

# rows to a lane, and blocks of steps to a chunk
CHUNKS = (Chunk(8, 1, 8), Chunk(16, 2, 8, warps=2), Chunk(16, 2, 16))
BIT = float(np.log(2))  # of a value at temperature 1
FORBIDDEN = -1e30


def one(value: float, size: int = 4) -> np.ndarray:
    """Similarities of 0, but for one."""
    table = np.zeros((size, size))
    table[1, 2] = value
    return table


def two_matches(cols: int) -> np.ndarray:
    """The second one of 2^40, where a block ends."""
    table = np.full((2, cols), FORBIDDEN)
    table[0, 6], table[1, 7] = 0, 39 * BIT
    return table


# what has a flag in a score and in a gradient, and what has none
BOUNDS = {
    "a gap's cost": ("any", -27.1 * BIT, [np.zeros((3, 3))], [1]),
    "a gap's gain": ("global", 27.1 * BIT, [np.zeros((2, 2))], [1]),
    "a match": ("any", -1.0, [one(39.9 * BIT), one(40.1 * BIT)], [0, 1]),
    "what is no number": ("any", -1.0, [one(np.nan), one(np.inf), one(-np.inf), one(FORBIDDEN)], [1, 1, 0, 0]),
    "nor globally": ("global", -1.0, [one(np.nan), one(np.inf), one(-np.inf), one(FORBIDDEN)], [1, 1, 0, 0]),
    "no number in the last cell": ("match", -1.0, [[[0, 0], [0, np.nan]]], [1]),
    "an opened gap's cost": ("affine", (-27.1 * BIT, -1.0), [np.zeros((3, 3))], [1]),
    "an extended gap's cost": ("turns", (-1.0, -27.1 * BIT), [np.zeros((3, 3))], [1]),
    "an affine gap's gain": ("affine", (-1.0, 27.1 * BIT), [np.zeros((2, 2))], [1]),
    "a total": ("any", -1.0, [[[-39.9 * BIT]], [[-40.1 * BIT]]], [0, 1]),
    "no way": ("match", -1.0, [np.full((3, 3), FORBIDDEN)], [1]),
    "none but by a forbidden gap": ("match", -1e38, [[[-2, FORBIDDEN, FORBIDDEN], [FORBIDDEN, FORBIDDEN, 1]]], [1]),
}


# for lanes with two rows: how far the first one may sink beside the second
STATES = {
    "a state": ("any", -12 * BIT, [two_matches(10), two_matches(11)], [0, 1]),
    "a state beside a gap": ("affine", (-20 * BIT, -8 * BIT), [two_matches(8), two_matches(9)], [0, 1]),
    "a way around": ("any", -23.7 * BIT, [np.zeros((3, 3))], [1]),
    "one before a match": ("global", -15.7 * BIT, [one(39 * BIT), one(39.9 * BIT)], [0, 1]),
    # gaps, of which there are many, that gain; from a match whose weight is 0 in float32
    "a gain": ("any", 18.7, [[[-105.0, *[FORBIDDEN] * 5, 0.0]]], [1]),
    "a small gain": ("any", 0.5, [[*[[-110.0] * 60] * 59, [*[-110.0] * 59, 0.0]]], [1]),
}


def _diagonal(size: int, own: Any, others: float) -> np.ndarray:
    table = np.full((size, size), float(others))
    np.fill_diagonal(table, own)
    return table


def _ridges(height: float, last: float, between: float = 39.9) -> np.ndarray:
    """Two side by side, which from one block of steps to the next rise by more than a unit holds."""
    table = np.full((8, 9), -300.0)
    for k in range(4):
        table[2 + k, 3 + k] = table[k, 3 + k] = height
    table[4, 7], table[6, 7], table[7, 8] = between, last, last
    return table


_RANDOM = np.random.default_rng(5)
# rises by 2^127 without an end, and has a small one then
_ENDLESS = np.full((32, 30), -300.0)
_ENDLESS[[0, 29, 30, 31, 31], [0, 6, 7, 8, 29]] = 0, 30.4, 30.4, 30.4, -38.4
# in bits, by chunk: a gap, and similarities that come near to what fits, by chance on one side of it or the other
HARD: dict[Chunk, list[tuple[float, np.ndarray]]] = {
    CHUNKS[0]: [
        # from one block of steps to the next more than a unit holds
        (-11, _ridges(30, 20)),
        (-8, _ridges(32, 39.9)),
        (-11.6, np.pad(_ridges(27.8, 32.3, 28.1)[::-1, ::-1], ((1, 0), (2, 0)), constant_values=-300.0)),
        (-7, _diagonal(17, [10] * 4 + [-49] + [12] * 4 + [-80] * 2 + [20] * 6, -150)),  # sinks, and returns
        (-3, _RANDOM.normal(size=(18, 18)) * 3 + 12 * _RANDOM.choice([-1, 1], size=(18, 1))),
        (-0.5, np.array([[39.0] + [FORBIDDEN] * 40, [38.0, *np.arange(1, 41) / BIT]])),  # a long decay
        (-2, _diagonal(18, [39] + [-1] * 16 + [39], -300)),
    ],
    CHUNKS[1]: [
        (-26.9, np.array([[39.0] + [-3] * 3] + [[-3.0] * 4] * 12)),  # from lane to lane another unit
        (-26.9, _diagonal(12, [-40, 39] * 6, -90)),  # what comes from the corner is 2^54 times its neighbours
        (-1, _diagonal(18, 15, -60)),  # near overflow within a block
        (-20, np.where(np.indices((17, 17)).sum(0) % 2, 30.0, -30.0)),
    ],
    CHUNKS[2]: [
        (0, np.full((18, 18), -20.0)),  # the ways are so many that they outweigh their weights
        (0.7, np.full((17, 18), -3.0)),
        (-8, np.where(np.indices((18, 18))[1] % 9 == 8, 39.0, -100.0)),
    ],
    Chunk(8, 4, 8): [(1.9, _ENDLESS)],
}


SLOW = pytest.mark.slow
PROBLEMS = {"any": "smith_waterman", "match": "smith_waterman", "global": "needleman_wunsch", "free": "free_gap"}
PROBLEMS |= dict.fromkeys(("affine", "turns"), "smith_waterman_affine")
OPTIONS: dict[str, Any] = {
    "any": {"end": "any"},
    "match": {"end": "match"},
    "global": {},
    "free": {},
    "affine": {"restrict_turns": True, "penalize_turns": True},
    "turns": {"restrict_turns": False, "penalize_turns": False},
}
CALLS: dict[str, Any] = {which: cpp.call_of(PROBLEMS[which], options) for which, options in OPTIONS.items()}


@pytest.fixture(autouse=True)
def _exponentials_as_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flush float32 exponentials that would be denormal to 0, as a GPU does."""

    def exp2(x: np.ndarray) -> np.ndarray:
        return np.where((np.exp2(x) < 2.0**-126) & (x.dtype == np.float32), np.zeros_like(x), np.exp2(x))

    monkeypatch.setattr(InterpreterBuilder, "create_exp2", lambda own, x: own.unary_op(x, exp2))


def with_blocks(chunk: Chunk) -> Layout:
    return Layout(4, 1, chunk, chunk, chunk)


def flags_of(which: str, arrays: Given, chunk: Any = CHUNKS[1], towards: Any = None, exact: bool = False) -> np.ndarray:
    """Return the flags (pairs, passes) of scores, gradients and, in a direction, products; compare other results.

    They are the native ones in float64, by the tolerances of all tests. exact: the exact kernels compute pairs with a
    flag, whose results are compared too.
    """
    call, (similarity, lengths, values) = CALLS[which], map(torch.from_numpy, arrays)
    inputs: dict[str, Any] = torch_calls._inputs(similarity, lengths, values, [], call.options)
    described: tuple[Any, ...] = call, *torch_calls._described(inputs), with_blocks(chunk)
    runs = [_run(programs.score_program(*described), inputs, exact)]
    runs.append(_run(programs.gradients_program(*described, with_values=False), inputs, exact))
    expected = [run_native(call, arrays)] * 2
    if towards is not None:
        inputs |= {"t_similarity": torch.from_numpy(towards), "t_values": torch.zeros_like(inputs["values"])}
        described = call, *torch_calls._described(inputs), with_blocks(chunk)
        runs.append(_run(programs.product_program(*described), inputs, exact))
        expected.append(run_native(call, arrays, towards))
    flags = np.stack([result["flags"] for result in runs], axis=1)
    for pair, number in zip(*np.nonzero((flags == 0) | exact), strict=True):
        (rows, cols), (*gaps, temperature) = arrays.lengths[pair], arrays.values[pair]
        score, matrix = expected[number].scores[pair], expected[number].d_similarity[pair]
        largest = max(abs(expected[0].scores[pair]), abs(gaps[0]) * (rows + cols) if which == "global" else 0.0)
        if number < 2:
            of_score = score_bound("float32", score, largest, temperature)
            of_matrix = marginals_bound("float32", largest, temperature)
        else:
            size = np.abs(np.asarray(towards)[pair, :rows, :cols]).max() * min(rows, cols)
            of_score = 1e-4 * abs(score) + 1e-5 * size
            of_matrix = hvp_bound("float32", np.abs(matrix).max(), largest, temperature)
        np.testing.assert_allclose(runs[number]["scores"][pair], score, rtol=0, atol=of_score, err_msg=f"pair {pair}")
        if number:
            marginals = runs[number]["d_similarity"][pair]
            np.testing.assert_allclose(marginals, matrix, rtol=0, atol=of_matrix, err_msg=f"pair {pair}")
            assert not marginals[rows:].any() and not marginals[:, cols:].any()
            assert not np.nan_to_num(runs[number]["d_values"][pair]).any()
    is_in_both = (flags[:, 1] == 0) | exact
    np.testing.assert_array_equal(runs[1]["scores"][is_in_both], runs[0]["scores"][is_in_both])
    return flags


def _run(program: Program, inputs: dict[str, torch.Tensor], exact: bool) -> dict[str, np.ndarray]:
    """The buffers. Results are 7 where nobody writes, which the exact kernels do not for a pair without a flag."""
    count = len(program.launches) // 2
    blocks = torch_calls._run(program._replace(launches=program.launches[:count]), inputs)
    buffers = {name: buffer.clone() for name, buffer in blocks.items()}
    if exact:
        for name in program.results:
            buffers[name][buffers["flags"] == 0] = 7
        for launch in program.launches[count:]:
            torch_calls._launch(launch, buffers)
        is_unflagged = buffers["flags"] == 0
        for name in program.results:
            assert (buffers[name][is_unflagged] == 7).all(), f"{name} of pairs without a flag"
            buffers[name][is_unflagged] = blocks[name][is_unflagged]
    return {name: buffer.numpy() for name, buffer in buffers.items()}


def pairs_of(which: str, *similarities: Any, gap: float | tuple[float, float] = -1.0) -> Given:
    """Pairs at temperature 1, each as large as its similarities. gap: of affine ones also (open, extend)."""
    tables = [np.atleast_2d(np.asarray(similarity, np.float32)) for similarity in similarities]
    lengths = np.array([table.shape for table in tables], np.int32)
    similarity = np.full((len(tables), *lengths.max(0)), np.nan, np.float32)
    for pair, table in enumerate(tables):
        similarity[pair, : table.shape[0], : table.shape[1]] = table
    count = {"free_gap": 0, "smith_waterman_affine": 2}.get(PROBLEMS[which], 1)
    values = [*np.broadcast_to(gap, count), 1.0]
    return Given(similarity, lengths, np.array([values] * len(tables), np.float32))


def direction(arrays: Any) -> np.ndarray:
    """A random direction of the similarities, with NaN where there is no cell."""
    towards = np.random.default_rng(0).normal(size=arrays.similarity.shape)
    return np.where(outside(arrays), np.nan, towards).astype(np.float32)


@pytest.mark.parametrize(
    ("which", "chunk", "framework"),
    [
        pytest.param(*case, marks=SLOW if number else ())
        for number, case in enumerate(zip(CALLS, 2 * CHUNKS, 3 * ("torch", "jax"), strict=True))
        if number % 2 == 0 or case[0] == "turns"
    ],
)
def test_public_functions_are_right_beside_pairs_with_a_flag(
    framework: str, which: str, chunk: Chunk, monkeypatch: pytest.MonkeyPatch
):
    take_for_a_gpu(monkeypatch)
    monkeypatch.setattr(test_cuda, "DEVICE", "cpu")
    for calls in (torch_calls, jax_calls):
        monkeypatch.setattr(calls, "forced_layout", with_blocks(chunk))
    drawn = ragged(9, 17, problem=PROBLEMS[which], per_pair=False)
    drawn.similarity[4, 0, 0] = 60.0  # more than fits
    parameters = {name: float(value) for name, value in drawn.parameters.items()}
    similarity = drawn.similarity.astype(np.float32)
    inputs = AlignmentInputs("", similarity, drawn.lengths, parameters=parameters, options=OPTIONS[which])
    test_cuda.assert_right(framework, PROBLEMS[which], "fused", ("score", "marginals", "hvp"), inputs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_matrices_without_lengths_are_whole_and_may_lie_anywhere(dtype: str, monkeypatch: pytest.MonkeyPatch):
    wide = torch.from_numpy(np.random.default_rng(1).normal(size=(9, 3, 21)).astype(dtype))[:, :, 3:14].transpose(0, 1)
    assert wide.stride(2) == 1 and not wide.is_contiguous()
    expected = torch_impl.marginals(torch_impl.smith_waterman, wide.double())
    take_for_a_gpu(monkeypatch)
    monkeypatch.setattr(torch_calls, "forced_layout", with_blocks(CHUNKS[0]))
    assert exact_pairs(torch_impl.smith_waterman, wide).tolist() == [dtype == "float64"] * 3
    tolerance = 1e-13 if dtype == "float64" else marginals_bound("float32", 20.0, 1.0)
    marginals = torch_impl.marginals(torch_impl.smith_waterman, wide)
    np.testing.assert_allclose(marginals, expected, rtol=0, atol=tolerance)


# rows and columns at and around a block, a chunk, and a strip, which is of 8 or 32 rows; and columns for chunks
# in which every lane has one
SIZES = [(1, 1), (1, 9), (9, 1), (7, 8), (8, 7), (8, 16), (16, 15), (17, 17), (31, 3), (32, 8), (33, 9), (18, 67)]


@pytest.mark.slow
@pytest.mark.parametrize("which", CALLS)
def test_awkward_sizes_are_right(which: str):
    number = list(CALLS).index(which)
    chunk, sizes = CHUNKS[number % 3], SIZES[(number + number % 3) % 6 :: 6]  # with another chunk each size
    random = np.random.default_rng(chunk[:3])
    arrays = pairs_of(which, *(2 * random.normal(size=size) for size in sizes))
    # without a second row and column no second match
    ends_on_match = which in ("match", "affine", "turns")
    flags = [ends_on_match and min(size) == 1 for size in sizes]
    assert flags_of(which, arrays, chunk, direction(arrays)).tolist() == [[flag] * 3 for flag in flags]


@pytest.mark.slow
@pytest.mark.parametrize(("which", "gap"), [("affine", (-11.0, -1.0)), ("any", -8.0)])
def test_proteins_have_no_flag(which: str, gap: Any):
    """Steep alignments, one of a protein with itself, in the layouts of many pairs."""
    records = read_fasta(GLOBINS)
    tables, _, _ = pair_batch(records, [(0, 0), (0, 1)], substitution_matrix("BLOSUM62"), GLOBINS)
    arrays = pairs_of(which, *tables[:, :50, :40], gap=gap)
    # a direction of which little is left: the tangent of the score is large, and marginals are near 1
    towards = (1 + 0.1 * np.random.default_rng(2).normal(size=arrays.similarity.shape)).astype(np.float32)
    for chunk in (NARROW.gradients, NARROW.products):  # in the interpreter that of scores is that of gradients
        assert not flags_of(which, arrays, chunk, towards).any()


@pytest.mark.parametrize("odd", [np.nan, pytest.param(np.inf, marks=SLOW), 3e38])
def test_a_direction_that_is_no_number_or_too_large_has_a_flag(odd: float):
    towards = np.ones((2, 9, 9), np.float32)
    towards[1, 3, 3] = odd
    assert flags_of("any", pairs_of("any", *np.zeros((2, 9, 9))), towards=towards)[:, 2].tolist() == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize(("which", "chunk"), list(zip(("any", "global", "affine"), CHUNKS, strict=True)))
def test_a_direction_in_which_improbable_ways_outweigh_others_has_a_flag(which: str, chunk: Chunk):
    """1 / marginals: an origin of such a way leaves few digits to what is beside it."""
    arrays = pairs_of(which, np.random.default_rng(9).normal(size=(20, 24)) + 6 * np.eye(20, 24))
    towards = 1 / np.maximum(run_native(CALLS[which], arrays).d_similarity, 1e-7).astype(np.float32)
    assert flags_of(which, arrays, chunk, towards).tolist() == [[0, 0, 1]]
    # which does not count where all of it is small
    assert flags_of(which, arrays, chunk, 1e-6 * towards).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("bound", [*BOUNDS, *(pytest.param(name, marks=SLOW) for name in STATES)])
def test_what_does_not_fit_has_a_flag_and_is_right_all_the_same(bound: str):
    which, gap, similarities, flags = (BOUNDS | STATES)[bound]
    flagged = flags_of(which, pairs_of(which, *similarities, gap=gap), CHUNKS[bound in STATES], exact=True)
    assert flagged.tolist() == [[flag, flag] for flag in flags]


@pytest.mark.slow
def test_what_does_not_fit_on_the_way_back_alone_has_a_flag():
    # four matches, of which one unit holds three forwards, where the last one is in the next block of steps
    growing = np.full((8, 12), FORBIDDEN)
    growing[range(4, 8), range(8, 12)] = 39 * BIT
    # the ways on from a match that begin with a gap, which opening makes infinite and extending does not
    opened = np.zeros((8, 9))
    opened[range(3), range(4, 7)] = 32 * BIT
    hard: Any = (("any", -BIT, growing, Chunk(8, 4, 8)), ("affine", (24 * BIT, -2 * BIT), opened, Chunk(8, 2, 8)))
    for which, gap, table, chunk in hard:
        assert flags_of(which, pairs_of(which, table, gap=gap), chunk, exact=True).tolist() == [[0, 1]]


def test_a_temperature_that_is_none_or_an_empty_pair_has_a_flag_and_spoils_no_other():
    lengths = np.array([[4, 5]] * 5 + [[0, 5], [4, 0]], np.int32)
    values = np.array([[-1, temperature] for temperature in (1, 0, -1, np.nan, np.inf, 1, 1)], np.float32)
    for which in ("any", "global"):
        flags = flags_of(which, Given(np.zeros((7, 4, 5), np.float32), lengths, values), exact=True)
        assert flags.tolist() == [[0, 0], *[[1, 1]] * 6]


@pytest.mark.slow
def test_results_are_right_in_the_whole_range():
    temperatures, sizes = np.array([(1e-3, 1e4), (1e-3, 1.0), (1.0, 1e4), (1e3, 1e-3), (1e3, 1.0)]).T
    similarity = np.random.default_rng(0).normal(size=(5, 5, 6)) * sizes[:, None, None]
    values = np.stack([-0.5 * sizes, temperatures], axis=1)
    lengths = np.array([[5, 6], [4, 4], [5, 6], [3, 6], [5, 5]], np.int32)
    flags_of("any", Given(similarity.astype(np.float32), lengths, values.astype(np.float32)), exact=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "chunk"),
    [(which, chunk) for i, which in enumerate(CALLS) for j, chunk in enumerate(HARD) if (i + j) % 3 == 1],
)
def test_what_is_hard_is_right_or_has_a_flag(which: str, chunk: Chunk):
    arrays = pairs_of(which, *(table * BIT for _, table in HARD[chunk]))
    gaps = BIT * np.array([[gap, gap / 3] for gap, _ in HARD[chunk]])
    arrays.values[:, :-1] = gaps[:, : arrays.values.shape[1] - 1]
    scores, gradients, products = flags_of(which, arrays, chunk, direction(arrays)).T
    assert len(scores) == 1 or not (scores & gradients).all()
    # tangents are larger, and may overflow where the weights do not
    assert 0 <= (products - gradients).sum() <= 1
