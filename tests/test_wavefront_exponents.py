"""The wavefront with block exponents, and in log space where they do not hold: both sides of each bound.

Whether they hold depends on nothing but the pair.
"""

import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS, Inputs, assert_parity, poison, reference_result

import jax_impl.block_exponent
import torch_impl.block_exponent
from shared.alignments import ALIGNMENTS, recurrence_of
from torch_impl.diagonal_layout import Memory

MODULES = {"jax": jax_impl.block_exponent, "torch": torch_impl.block_exponent}
IN_BLOCKS = [
    ("smith_waterman", {"end": "any"}),
    ("smith_waterman", {"end": "match"}),
    ("free_gap", {}),
    ("needleman_wunsch", {}),
]
BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)
# every recurrence in PyTorch; XLA, which takes seconds to compile one, has the first in the default tier
EVERY = pytest.mark.parametrize(
    ("framework", "problem", "options"),
    [
        pytest.param(framework, *case, marks=pytest.mark.slow if framework == "jax" and number else ())
        for number, case in enumerate(IN_BLOCKS)
        for framework in FRAMEWORKS
    ],
)
ENDS = pytest.mark.parametrize(
    ("framework", "end"),
    [("torch", "any"), ("torch", "match"), ("jax", "any"), pytest.param("jax", "match", marks=pytest.mark.slow)],
)
LOG2_E = math.log2(math.e)
ANY = {"end": "any"}
# pairs, rows and columns of each smaller batch, once it is filled up: XLA takes seconds to compile a shape
ROOM = 12, 50, 50


def batch_of(similarity: Any, gaps: Any, temperatures: Any, problem: str, lengths: Any = None) -> Inputs:
    """Inputs that float32 can hold; all pairs full unless lengths say otherwise.

    They are put into a batch of ROOM if they fit, with poison around them and empty pairs after them.
    """
    s = np.asarray(similarity, np.float32).astype(np.float64)
    sizes = np.tile(s.shape[1:], (len(s), 1)) if lengths is None else np.asarray(lengths)
    parameters = {"gap": gaps, "temperature": temperatures}
    if problem == "free_gap":
        del parameters["gap"]
    values = {n: np.broadcast_to(np.float32(v), len(s)).astype(np.float64) for n, v in parameters.items()}
    missing = [(0, room - size) for size, room in zip(s.shape, ROOM, strict=True)]
    if all(extra >= 0 for _, extra in missing):
        sizes = np.pad(sizes, (missing[0], (0, 0)))
        values = {name: np.pad(value, missing[0], constant_values=1) for name, value in values.items()}
        s = np.pad(s, missing)
    return Inputs(poison(s, sizes), sizes.astype(np.int32), values, np.ones(len(s)))


def hold(framework: str, inputs: Inputs, problem: str, options: dict[str, Any]) -> tuple[list[bool], list[bool]]:
    """Tell which pairs block exponents hold: for their scores, and for their gradients."""
    recurrence = recurrence_of(problem, ALIGNMENTS[problem].options | options)
    similarity = inputs.similarity.astype(np.float32)
    if framework == "jax":
        values = {name: jnp.asarray(value, jnp.float32) for name, value in inputs.parameters.items()}
        both = _jax_hold(recurrence)(similarity, inputs.lengths, values)
    else:
        values = torch.tensor(np.stack(list(inputs.parameters.values()), 1), dtype=torch.float32)
        tensors = torch.from_numpy(similarity), torch.from_numpy(inputs.lengths), values
        both = [
            function(Memory(torch.device("cpu")), *tensors, recurrence.name)[-1]
            for function in (torch_impl.block_exponent.scores, torch_impl.block_exponent.gradients)
        ]
    return both[0].tolist(), both[1].tolist()


@functools.cache
def _jax_hold(recurrence: Any) -> Any:
    functions = jax_impl.block_exponent.scores, jax_impl.block_exponent.gradients
    return jax.jit(lambda *own: [function(recurrence, *own)[-1] for function in functions])


@functools.cache
def _calls(framework: str, problem: str, options: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    """The scores, and the marginals."""
    package, backend = FRAMEWORKS[framework]
    function = backend.function(problem, "wavefront", dict(options))
    calls = function, functools.partial(package.marginals, function)
    return tuple(jax.jit(call) for call in calls) if framework == "jax" else calls


def of_similarity(framework: str, inputs: Inputs, problem: str, options: dict[str, Any]) -> list[np.ndarray]:
    """Scores and the gradients with respect to similarity, which alone are computed with block exponents."""
    backend = FRAMEWORKS[framework].backend
    s, *values = (
        backend.to_device(array.astype(np.float32), "cpu") for array in (inputs.similarity, *inputs.parameters.values())
    )
    parameters = dict(zip(inputs.parameters, values, strict=True))
    calls = _calls(framework, problem, tuple(options.items()))
    lengths = inputs.lengths if framework == "jax" else torch.from_numpy(inputs.lengths)
    return [backend.to_numpy(call(s, lengths, **parameters)) for call in calls]


def assert_right(framework: str, inputs: Inputs, problem: str, options: dict[str, Any]) -> None:
    """Raise AssertionError unless scores and marginals are the reference's, within the usual bounds."""
    scores, marginals = of_similarity(framework, inputs, problem, options)
    expected = reference_result(inputs, problem, **options)
    expected = expected._replace(gradients={"similarity": expected.gradients["similarity"]})
    got = expected._replace(score=scores, gradients={"similarity": marginals})
    assert_parity(got, expected, "float32", inputs.parameters["temperature"])


def assert_held(
    framework: str, inputs: Inputs, problem: str, options: dict[str, Any], scores: list[bool], gradients: Any = None
) -> None:
    """Raise AssertionError unless block exponents hold these pairs (gradients by default like scores), all right."""
    both = hold(framework, inputs, problem, options)
    assert [of_dtype[: len(scores)] for of_dtype in both] == [scores, scores if gradients is None else gradients]
    assert_right(framework, inputs, problem, options)


RANGE = list(itertools.product((1e-3, 0.03, 0.2, 0.5, 1.0, 10.0, 1e3), (0.0, -0.5, -1.0, -4.0, -11.0, -50.0, 0.5)))


@EVERY
def test_temperatures_and_gaps_of_the_whole_range_are_right(framework, problem, options):
    random = np.random.default_rng(0)
    rows, cols = 19, 23
    s = random.normal(size=(len(RANGE), rows, cols)) * 2
    s[random.uniform(size=s.shape) < 0.1] = -np.inf
    lengths = random.integers(2, (rows + 1, cols + 1), size=(len(RANGE), 2))
    temperatures, gaps = zip(*RANGE, strict=True)
    inputs = batch_of(s, gaps, temperatures, problem, lengths)
    assert_right(framework, inputs, problem, options)
    scores, gradients = hold(framework, inputs, problem, options)
    assert 0.3 < np.mean(scores) < 1
    assert all(score or not gradient for score, gradient in zip(scores, gradients, strict=True))


@BOTH
def test_an_island_a_thousand_columns_after_another_wins(framework):
    s = np.full((1, 12, 1100), -3.0)
    for begin, worth in ((5, 4.0), (1050, 5.0)):
        s[0, range(12), range(begin, begin + 12)] = worth
    assert_held(framework, batch_of(s, -1.0, 1.0, "smith_waterman"), "smith_waterman", ANY, [True])


@EVERY
def test_gaps_matches_and_growth_hold_up_to_their_bounds(framework, problem, options):
    module, has_gap = MODULES[framework], problem != "free_gap"
    if has_gap:
        most = module.MOST_DECAY / (module.BLOCK * LOG2_E)
        gaps = [-0.99 * most, -1.01 * most, 0.99 * most, 1.01 * most, -1e4]
        inputs = batch_of(np.full((5, 4, 4), 0.5), gaps, 1.0, problem)
        assert_held(framework, inputs, problem, options, [True, False, True, False, False])
    gap = -6.0 * has_gap
    most = (module.LARGEST_MATCH + gap * module.BLOCK * LOG2_E) / LOG2_E
    s = np.full((3, 3, 5), -1.0)
    s[:, 1, 2] = 0.99 * most, 1.01 * most, 5 * most
    assert_held(framework, batch_of(s, gap, 1.0, problem), problem, options, [True, False, False])
    growing = np.array([1.0, 6.0, 40.0, 50.0])[:, None, None] * np.eye(40)
    assert_held(framework, batch_of(growing, -1.0, 1.0, problem), problem, options, [True, True, False, False])


@BOTH
def test_a_local_alignment_above_the_least_exponent_holds_with_block_exponents(framework):
    least = MODULES[framework].LEAST_EXPONENT / LOG2_E
    inputs = batch_of(np.array([0.9, 1.1, 4.0])[:, None, None] * np.full((1, 1), least), -1.0, 1.0, "smith_waterman")
    assert_held(framework, inputs, "smith_waterman", ANY, [True, False, False])


@ENDS
def test_a_start_too_small_for_float32_that_grows_leaves_block_exponents(framework, end):
    # where gaps pay, or where the ways through them are many, one that begins early wins over the good matches
    s, gaps = np.full((6, 40, 40), -100.0), np.array([1.0, 0.5, 0.5, -1.0, 1.0, 1.0])
    s[1], s[1, 0, 0], s[4], s[5] = -9000.0, -88.0, -np.inf, -1e9
    s[:, 35:, 35:] = 0.0
    s[1, 35:37], s[1, :, 35:37] = -9000.0, -9000.0
    lengths = np.full((6, 2), 40)
    s[2, :10, :10], lengths[2] = s[2, 30:, 30:], 10
    inputs = batch_of(s, gaps, 1.0, "smith_waterman", lengths)
    assert_right(framework, inputs, "smith_waterman", {"end": end})
    assert hold(framework, inputs, "smith_waterman", {"end": end})[0][:6] == [False, False, True, True, True, True]


@BOTH
def test_a_gradient_leaves_block_exponents_where_it_alone_is_too_large(framework):
    s = np.full((2, 80, 80), -np.inf)
    # from the first cell to this one there are more ways than float32 can count, and nothing begins on them
    s[0, -1, -1], s[1, 40, 40] = 1.0, 1.0
    inputs = batch_of(s, 0.0, 1.0, "smith_waterman")
    assert_held(framework, inputs, "smith_waterman", ANY, [True, True], [False, True])


@ENDS
def test_growth_from_block_to_block_is_bounded_for_gradients(framework, end):
    # backwards, what the last match adds is brought to the exponent of the block of the one before
    s = np.full((2, 12, 3, 16), -3.0)
    for place in range(12):
        for row, bits in enumerate((30, 55, (1, 55))):
            s[:, place, row, place + row] = np.array(bits) / LOG2_E
    for similarity, is_grown in zip(s, (False, True), strict=True):
        inputs = batch_of(similarity, -0.1, 1.0, "smith_waterman")
        assert_right(framework, inputs, "smith_waterman", {"end": end})
        scores, gradients = hold(framework, inputs, "smith_waterman", {"end": end})
        assert any(scores)
        assert gradients == ([False] * 12 if is_grown else scores)


@BOTH
def test_ends_that_are_worth_much_less_than_states_leave_block_exponents(framework):
    # a single match is no alignment where it ends on a later one
    s = np.full((4, 8, 17), -70.0)
    s[0, 4, 0], s[1, 4, 0], s[1, 5, 0], s[2, 4, 0], s[3, 4, 0] = 10.0, 41.0, 45.0, 20.0, 36.0
    s[[0, 2, 3], 2, 3], s[[0, 2, 3], 3, 4] = 2.0, 3.0
    inputs = batch_of(s, 0.0, 1.0, "smith_waterman")
    assert_right(framework, inputs, "smith_waterman", {"end": "match"})
    assert hold(framework, inputs, "smith_waterman", {"end": "match"})[0][:4] == [True, False, True, False]


@BOTH
def test_a_pair_has_the_same_bits_beside_one_that_does_not_hold(framework):
    s = np.random.default_rng(1).normal(size=(4, 20, 30))
    usual, beside = (batch_of(s, -1.0, [1.0, cold, 1.0, 1.0], "smith_waterman") for cold in (1.0, 1e-3))
    assert hold(framework, beside, "smith_waterman", ANY)[1][:4] == [True, False, True, True]
    results = [of_similarity(framework, inputs, "smith_waterman", ANY) for inputs in (usual, beside)]
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first[[0, 2, 3]], second[[0, 2, 3]])


@pytest.mark.parametrize("framework", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("problem", "options"), IN_BLOCKS[::2])
def test_a_pair_is_computed_the_same_way_beside_a_larger_one(framework, problem, options):
    # behind its lengths states go on growing
    s = np.random.default_rng(4).normal(size=(2, 120, 130))
    beside = batch_of(s, 0.0, 1.0, problem, np.array([(20, 25), (120, 130)]))
    alone = batch_of(s[:1, :20, :25], 0.0, 1.0, problem)
    for inputs, pairs in ((beside, 2), (alone, 1)):
        assert all(all(bits[:pairs]) for bits in hold(framework, inputs, problem, options))
    (score, marginals), (other_score, other_marginals) = (
        of_similarity(framework, inputs, problem, options) for inputs in (beside, alone)
    )
    np.testing.assert_allclose(score[0], other_score[0], rtol=1e-6)
    np.testing.assert_allclose(marginals[0, :20, :25], other_marginals[0, :20, :25], atol=1e-6)


@pytest.mark.parametrize("pairs", [1, 2])
def test_torch_does_not_write_to_the_similarity(pairs):
    s = torch.ones(pairs, 4, 5)
    for problem, options in IN_BLOCKS:
        for call in _calls("torch", problem, tuple(options.items())):
            call(s)
    assert (s == 1).all()
