"""The kernels in plain odds give what float64 gives, or flag a pair; flagged ones are computed by the exact kernels."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from frameworks import Result, assert_parity, ragged, reference_result
from kernel_calls import Given, direction, given, jax_calls, jnp, run, run_native, torch_calls
from odds_cases import BIT, BOUNDS, CHUNKS, FORBIDDEN, GAIN, HARD, STATES, STEEP
from triton.runtime.interpreter import InterpreterBuilder

from shared.kernels import cpp
from shared.kernels.triton.programs import (
    NARROW,
    Chunk,
    Layout,
    Program,
    gradients_program,
    product_program,
    score_program,
)
from shared.sequences import GLOBINS, pair_batch, read_fasta, substitution_matrix
from shared.tolerances import hvp_bound, marginals_bound, score_bound

operators: Any = torch_calls
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
LOCAL = ("any", "match", "affine", "turns")


@pytest.fixture(autouse=True)
def _exponentials_as_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in float32 that would be denormal numbers are 0."""

    def exp2(x: np.ndarray) -> np.ndarray:
        result = np.exp2(x)
        is_flushed = (result < 2.0**-126) & (result.dtype == np.float32)
        return np.where(is_flushed, np.zeros_like(result), result)

    monkeypatch.setattr(InterpreterBuilder, "create_exp2", lambda own, x: own.unary_op(x, exp2))


def with_odds(chunk: Chunk) -> Layout:
    return Layout(4, 1, chunk, chunk, chunk)


class Found(NamedTuple):
    """The buffers after a score and after a gradient."""

    scores: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray]

    def flags(self) -> list[tuple[int, int]]:
        """The flags of each pair, in a score and in a gradient."""
        return list(zip(self.scores["flags"].tolist(), self.gradients["flags"].tolist(), strict=True))


def computed(which: str, arrays: Given, chunk: Chunk = CHUNKS[1], exact: bool = False) -> Found:
    """By the kernels in plain odds alone, or with the exact ones after them.

    Results are 7 where nobody writes, which the exact kernels do not for a pair without a flag.
    """
    call = CALLS[which]
    inputs = operators._inputs(*(torch.from_numpy(array) for array in arrays), [], call.options)
    own = call, *torch_calls._described(inputs), with_odds(chunk)
    programs = score_program(*own), gradients_program(*own, with_values=False)
    return Found(*(_run(program, inputs, exact) for program in programs))


def product_of(
    which: str, arrays: Given, towards: np.ndarray, chunk: Chunk = CHUNKS[1], exact: bool = False
) -> dict[str, np.ndarray]:
    """The buffers after the second derivatives in a direction, as `computed` gives those of the first ones."""
    call, tensors = CALLS[which], [torch.from_numpy(array) for array in (*arrays, towards)]
    inputs = operators._inputs(*tensors[:3], [], call.options)
    inputs |= {"t_similarity": tensors[3], "t_values": torch.zeros_like(tensors[2])}
    return _run(product_program(call, *torch_calls._described(inputs), with_odds(chunk)), inputs, exact)


def assert_product_right(which: str, arrays: Given, towards: np.ndarray, found: dict[str, np.ndarray]) -> None:
    """By the tolerances of all tests, against the native kernels in float64; of all pairs without a flag."""
    exact = Given(arrays.similarity.astype(float), arrays.lengths, arrays.values.astype(float))
    wanted = run_native(CALLS[which], exact, (towards.astype(float), np.zeros_like(exact.values)))
    scores = run_native(CALLS[which], exact).scores
    for pair in np.flatnonzero(found["flags"] == 0):
        rows, cols = arrays.lengths[pair]
        own, other, temperature = found["d_similarity"][pair], wanted.d_similarity[pair], arrays.values[pair, -1]
        gap = abs(float(arrays.values[pair, 0])) if which == "global" else 0.0
        bound = hvp_bound("float32", np.abs(other).max(), max(abs(scores[pair]), gap * (rows + cols)), temperature)
        np.testing.assert_allclose(own, other, rtol=0, atol=bound, err_msg=f"pair {pair}")
        largest = np.abs(towards[pair, :rows, :cols]).max() * min(rows, cols)
        np.testing.assert_allclose(found["scores"][pair], wanted.scores[pair], rtol=1e-4, atol=1e-5 * largest)
        assert not own[rows:].any() and not own[:, cols:].any()
        assert not found["d_values"][pair].any()


def _run(program: Program, inputs: dict[str, torch.Tensor], exact: bool) -> dict[str, np.ndarray]:
    count = len(program.launches) // 2
    odds = torch_calls._run(program._replace(launches=program.launches[:count]), inputs)
    buffers = {name: buffer.clone() for name, buffer in odds.items()}
    if exact:
        for name in program.results:
            buffers[name][buffers["flags"] == 0] = 7
        for launch in program.launches[count:]:
            torch_calls._launch(launch, buffers)
        for name in program.results:
            is_odds = buffers["flags"] == 0
            assert (buffers[name][is_odds] == 7).all(), f"{name} of pairs without a flag"
            buffers[name][is_odds] = odds[name][is_odds]
    return {name: buffer.numpy() for name, buffer in buffers.items()}


def pairs_of(
    which: str, *similarities: Any, gap: float | tuple[float, float] = -1.0, temperature: float = 1.0
) -> Given:
    """Pairs of one temperature and gap, each as large as its similarities. gap: of affine ones also (open, extend)."""
    tables = [np.atleast_2d(np.asarray(own, np.float32)) for own in similarities]
    lengths = np.array([own.shape for own in tables], np.int32)
    similarity = np.full((len(tables), *lengths.max(0)), np.nan, np.float32)
    for pair, own in enumerate(tables):
        similarity[pair, : own.shape[0], : own.shape[1]] = own
    count = {"free_gap": 0, "smith_waterman_affine": 2}.get(PROBLEMS[which], 1)
    values = [*np.broadcast_to(gap, count), temperature]
    return Given(similarity, lengths, np.array([values] * len(tables), np.float32))


def assert_right(which: str, arrays: Given, found: Found) -> None:
    """By the tolerances of all tests, against the native kernels in float64; of all pairs without a flag."""
    similarity, lengths, values = arrays
    wanted = run_native(CALLS[which], Given(similarity.astype(float), lengths, values.astype(float)))
    for pair, flags in enumerate(found.flags()):
        score, temperature = wanted.scores[pair], values[pair, -1]
        gap = abs(float(values[pair, 0])) if which == "global" else 0.0
        largest = max(abs(score), gap * lengths[pair].sum())
        if not flags[0]:
            bound = score_bound("float32", score, largest, temperature)
            np.testing.assert_allclose(found.scores["scores"][pair], score, rtol=0, atol=bound, err_msg=f"pair {pair}")
        if not flags[1]:
            bound = marginals_bound("float32", largest, temperature)
            own, other = found.gradients["d_similarity"][pair], wanted.d_similarity[pair]
            np.testing.assert_allclose(own, other, rtol=0, atol=bound, err_msg=f"pair {pair}")
            np.testing.assert_array_equal(found.gradients["scores"][pair], found.scores["scores"][pair])
            assert not np.nan_to_num(found.gradients["d_values"][pair]).any()


@pytest.mark.parametrize(
    ("which", "chunk", "framework"),
    [
        pytest.param(*case, marks=pytest.mark.slow if number > 1 else ())
        for number, case in enumerate(zip(CALLS, 2 * CHUNKS, 3 * ("torch", "jax"), strict=True))
    ],
)
def test_scores_and_marginals_are_the_references(
    framework: str, which: str, chunk: Chunk, monkeypatch: pytest.MonkeyPatch
):
    """Through a framework's calls: ragged pairs with poison; empty ones have flags as well."""
    for calls in (torch_calls, jax_calls):
        monkeypatch.setattr(calls, "forced_layout", with_odds(chunk))
    inputs = ragged(9, 17, problem=PROBLEMS[which])
    inputs.similarity[4, 0, 0] = 60.0  # at its temperature more than fits: a pair with a flag among those without
    call, arrays = CALLS[which], given(inputs, "float32")
    scores, d_similarity, d_values = run(framework, call, arrays, with_values=False)
    expected = reference_result(inputs, PROBLEMS[which], **OPTIONS[which])
    gradients = {"similarity": d_similarity * inputs.cotangent[:, None, None].astype("float32")}
    expected = expected._replace(gradients={"similarity": expected.gradients["similarity"]})
    temperature = inputs.parameters["temperature"]
    assert_parity(Result(scores, gradients, inputs.cotangent), expected, "float32", temperature)
    assert not d_values.any()
    if framework == "torch":
        alone = operators.score(*(torch.from_numpy(array) for array in arrays), [], *call).numpy()
    else:
        similarity, lengths, values = (jnp.asarray(array) for array in arrays)
        alone = np.asarray(jax_calls.score(call, similarity, lengths, tuple(values.T)))
    np.testing.assert_array_equal(alone, scores)


@pytest.mark.parametrize(
    ("which", "chunk", "framework"),
    [
        ("any", CHUNKS[0], "torch"),
        pytest.param("global", CHUNKS[1], "torch", marks=pytest.mark.slow),
        pytest.param("affine", CHUNKS[2], "jax", marks=pytest.mark.slow),
    ],
)
def test_products_are_the_native_ones(framework: str, which: str, chunk: Chunk, monkeypatch: pytest.MonkeyPatch):
    """Through a framework's calls, as above; of pairs with a flag by the exact kernels."""
    for calls in (torch_calls, jax_calls):
        monkeypatch.setattr(calls, "forced_layout", with_odds(chunk))
    inputs = ragged(9, 17, problem=PROBLEMS[which])
    inputs.similarity[4, 0, 0] = 60.0
    arrays = given(inputs, "float32")
    towards, _ = direction(arrays)
    if framework == "torch":
        *tensors, t_similarity = (torch.from_numpy(array) for array in (*arrays, towards))
        found = operators.product(*tensors, [], t_similarity, *CALLS[which]).numpy()
    else:
        similarity, lengths, values, t_similarity = (jnp.asarray(array) for array in (*arrays, towards))
        found = np.asarray(jax_calls.product(CALLS[which], similarity, lengths, tuple(values.T), t_similarity))
    own = product_of(which, arrays, towards, chunk, exact=True)
    assert 0 < own["flags"].sum() < len(found)
    np.testing.assert_array_equal(found, own["d_similarity"])
    # of empty pairs nothing is looked at
    own["flags"] = np.where(arrays.lengths.min(1) == 0, 1, 0)
    assert_product_right(which, arrays, towards, own)


# rows and columns at and around a block, a chunk, and a strip, which is of 8 or 32 rows; and columns for chunks
# in which every lane has one
SIZES = [(1, 1), (1, 9), (9, 1), (7, 8), (8, 7), (8, 16), (16, 15), (17, 17), (31, 3), (32, 8), (33, 9), (18, 67)]


@pytest.mark.slow
@pytest.mark.parametrize("which", CALLS)
def test_awkward_sizes_are_right(which: str):
    number = list(CALLS).index(which)
    chunk, own = CHUNKS[number % 3], SIZES[(number + number % 3) % 6 :: 6]  # with another chunk each size
    random = np.random.default_rng(chunk[:3])
    arrays = pairs_of(which, *(2 * random.normal(size=size) for size in own))
    found = computed(which, arrays, chunk)
    # without a second row and column no second match
    ends_on_match = which in ("match", "affine", "turns")
    assert [max(flags) for flags in found.flags()] == [ends_on_match and min(size) == 1 for size in own]
    assert_right(which, arrays, found)
    for pair, (rows, cols) in enumerate(arrays.lengths):
        if not max(found.flags()[pair]):
            marginals = found.gradients["d_similarity"][pair]
            assert not marginals[rows:].any() and not marginals[:, cols:].any()
    towards, _ = direction(arrays)
    product = product_of(which, arrays, towards, chunk)
    assert product["flags"].tolist() == [flags[1] for flags in found.flags()]
    assert_product_right(which, arrays, towards, product)


def test_without_lengths_the_matrices_are_whole_and_may_lie_anywhere():
    random = np.random.default_rng(1)
    wide = torch.from_numpy(random.normal(size=(9, 3, 21)).astype(np.float32))[:, :, 3:14].transpose(0, 1)
    assert wide.stride(2) == 1 and not wide.is_contiguous()
    lengths, values = np.array([[9, 11]] * 3, np.int32), np.array([[-1, 1]] * 3, np.float32)
    call, none = CALLS["any"], torch.empty((0, 2), dtype=torch.int32)
    inputs = torch_calls._inputs(wide, none, torch.from_numpy(values), [], call.options)
    own = call, *torch_calls._described(inputs), with_odds(CHUNKS[0])
    programs = score_program(*own), gradients_program(*own, with_values=False)
    found = Found(*(_run(program, inputs, exact=False) for program in programs))
    assert found.flags() == [(0, 0)] * 3
    assert_right("any", Given(wide.contiguous().numpy(), lengths, values), found)


@pytest.mark.slow
def test_a_long_alignment_is_right():
    random = np.random.default_rng(2)
    similarity = random.normal(size=(120, 110)) + 4 * np.eye(120, 110)
    arrays = pairs_of("any", similarity)
    found = computed("any", arrays, Chunk(32, 4, 8))
    assert found.flags() == [(0, 0)]
    assert_right("any", arrays, found)
    # a direction of which only little is left: the tangent of the score is large, and marginals are near 1
    towards = (1 + 0.1 * random.normal(size=arrays.similarity.shape)).astype(np.float32)
    product = product_of("any", arrays, towards, Chunk(32, 2, 8))
    assert product["flags"].tolist() == [0] and product["scores"] > 80
    assert_product_right("any", arrays, towards, product)


@pytest.mark.parametrize("odd", [np.nan, np.inf, 3e38])
def test_a_direction_that_is_no_number_or_too_large_has_a_flag(odd: float):
    arrays = pairs_of("any", np.zeros((9, 9)), np.zeros((9, 9)))
    towards = np.ones((2, 9, 9), np.float32)
    towards[1, 3, 3] = odd
    assert product_of("any", arrays, towards)["flags"].tolist() == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize(("which", "chunk"), list(zip(("any", "global", "affine"), CHUNKS, strict=True)))
def test_a_direction_in_which_improbable_ways_outweigh_others_has_a_flag(which: str, chunk: Chunk):
    """1 / marginals: an origin of such a way leaves few digits to what is beside it."""
    arrays = pairs_of(which, np.random.default_rng(9).normal(size=(20, 24)) + 6 * np.eye(20, 24))
    exact = Given(arrays.similarity.astype(float), arrays.lengths, arrays.values.astype(float))
    towards = 1 / np.maximum(run_native(CALLS[which], exact).d_similarity, 1e-7).astype(np.float32)
    assert product_of(which, arrays, towards, chunk)["flags"].tolist() == [1]
    # which does not count where all of it is small
    product = product_of(which, arrays, 1e-6 * towards, chunk)
    assert product["flags"].tolist() == [0]
    assert_product_right(which, arrays, 1e-6 * towards, product)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "gap"), [("affine", (-11.0, -1.0)), ("turns", (-5.0, -2.0)), ("any", -8.0), ("global", -6.0)]
)
def test_proteins_have_no_flag(which: str, gap: Any):
    """In the layouts of many pairs: steep alignments, one of a protein with itself."""
    records = read_fasta(GLOBINS)
    tables, _, _ = pair_batch(records, [(0, 0), (0, 1)], substitution_matrix("BLOSUM62"), GLOBINS)
    arrays = pairs_of(which, *tables[:, :50, :40], gap=gap)
    chunks: Any = NARROW.scores, NARROW.gradients, NARROW.products
    for chunk in dict.fromkeys(chunk._replace(registers=None) for chunk in chunks):  # each once
        found = computed(which, arrays, chunk)
        assert found.flags() == [(0, 0)] * 2
        assert_right(which, arrays, found)


@pytest.mark.parametrize("bound", [*BOUNDS, *(pytest.param(name, marks=pytest.mark.slow) for name in STATES)])
def test_what_does_not_fit_has_a_flag_and_is_right_all_the_same(bound: str):
    which, gap, similarities, flags = (BOUNDS | STATES)[bound]
    arrays = pairs_of(which, *similarities, gap=gap)
    found = computed(which, arrays, CHUNKS[bound in STATES], exact=True)
    assert found.flags() == [(flag, flag) for flag in flags]
    everything = Found(*({**own, "flags": 0 * own["flags"]} for own in found))
    assert_right(which, arrays, everything)


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
        arrays = pairs_of(which, table, gap=gap)
        found = computed(which, arrays, chunk, exact=True)
        assert found.flags() == [(0, 1)]
        assert_right(which, arrays, Found(*({**own, "flags": 0 * own["flags"]} for own in found)))


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf])
def test_a_temperature_that_is_none_has_a_flag(temperature: float):
    assert computed("any", pairs_of("any", np.zeros((2, 2)), temperature=temperature)).flags() == [(1, 1)]


def test_an_empty_pair_has_a_flag():
    zeros = np.zeros((3, 4, 5), np.float32), np.array([[0, 5], [4, 0], [4, 5]], np.int32)
    for which in ("any", "global"):
        found = computed(which, Given(*zeros, np.array([[-1, 1]] * 3, np.float32)))
        assert found.flags() == [(1, 1), (1, 1), (0, 0)]


@pytest.mark.slow
@pytest.mark.parametrize(("which", "chunk"), list(zip(CALLS, (1, 2, 0, 1, 0, 2), strict=True)))
def test_what_is_hard_is_right_or_has_a_flag(which: str, chunk: int):
    own = HARD[list(CALLS).index(which) % 3 :: 3]  # each pair is shown to two recurrences
    arrays = pairs_of(which, *(table * BIT for _, table in own))
    if which != "free":
        arrays.values[:, 0] = [gap * BIT for gap, _ in own]
    if arrays.values.shape[1] == 3:
        arrays.values[:, 1] = arrays.values[:, 0] / 3
    found = computed(which, arrays, CHUNKS[chunk])
    assert_right(which, arrays, found)
    assert 1 <= sum(map(max, found.flags())) <= 6
    towards, _ = direction(arrays)
    product = product_of(which, arrays, towards, CHUNKS[chunk])
    # tangents are larger, and may overflow where odds do not
    more = product["flags"] - found.gradients["flags"]
    assert more.min() == 0 and more.sum() <= 1
    assert_product_right(which, arrays, towards, product)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["any", "match", "turns", "global"])
@pytest.mark.parametrize("chunk", STEEP, ids=lambda chunk: chunk.height)
def test_what_rises_by_more_than_a_unit_holds_is_right_or_has_a_flag(which: str, chunk: Chunk):
    """From block to block, where a lane would carry nothing on, or from lane to lane, which would be passed nothing."""
    arrays = pairs_of(which, *(table * BIT for _, table in STEEP[chunk]))
    arrays.values[:, :-1] = BIT * np.array([[gap] for gap, _ in STEEP[chunk]])
    found = computed(which, arrays, chunk)
    assert_right(which, arrays, found)
    if chunk.height > 1:
        towards, _ = direction(arrays)
        assert_product_right(which, arrays, towards, product_of(which, arrays, towards, chunk))
    else:
        assert any(map(max, found.flags()))


@pytest.mark.slow
@pytest.mark.parametrize(("which", "gap", "table"), GAIN)
def test_what_gaps_raise_from_below_all_numbers_has_a_flag(which: str, gap: float, table: Any):
    arrays = pairs_of(which, table, gap=gap)
    assert_right(which, arrays, computed(which, arrays))
