"""Every variant of both frameworks equals the reference: scores, and gradients through a random cotangent.

A case is a ragged batch with poisoned padding and parameters per pair; a gap may be by position, a matrix for each
pair. The variants whose derivatives are written by hand are shown every problem, option and choice of gaps by position.
The others compute all problems by the same code: each variant of each framework is shown every problem once.

Single pairs, shared parameters, the bundled globins and PyTorch's compiler have tests of their own. JAX's float64 cases
are compiled with little optimisation, its float32 cases of smith_waterman and fused as users compile them; PyTorch runs
eagerly. PyTorch's batch_loop compiles its single pair through inductor by itself: that is done for one shape, and its
other cases run inside a compile that only traces, on three pairs.
"""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from frameworks import (
    AWKWARD_SIZES,
    BY_AXIS,
    BY_HAND,
    DTYPES,
    FRAMEWORKS,
    PROBLEMS,
    Inputs,
    Result,
    assert_parity,
    of_pairs,
    poison,
    ragged,
    reference_result,
    run,
    single,
)
from gaps_by_position import EVERY as BY_POSITION
from gaps_by_position import FRAMEWORK, TURNS, VARIANT, outside

from shared.alignments import COST, FREE, ROWS
from shared.sequences import GLOBINS, pair_batch, read_fasta, substitution_matrix
from shared.tolerances import LARGEST_GAP, LOWEST
from shared.variants import FOR_GPUS, variant_names

# a size for each problem. XLA takes a second for every seven cells written out, PyTorch one or more to trace a scan
RUNGS = {
    ("jax", "cell_loop"): ((3, 2), (2, 2), (2, 2), (2, 3), (2, 2), (2, 2)),
    ("jax", "diagonal_loop"): ((3, 4), (2, 3), (2, 3), (3, 2), (2, 3), (2, 3)),
    ("jax", "scan_cond"): ((8, 5), (3, 4), (1, 7), (3, 4), (3, 4), (3, 4)),
    ("jax", "scan_select"): ((63, 17), (5, 8), (8, 5), (17, 9), (5, 8), (5, 8)),
    ("jax", "batch_loop"): ((4, 3), (3, 4), (4, 3), (3, 4), (3, 4), (3, 4)),
    ("jax", "vmap"): ((17, 9), (5, 8), (7, 1), (8, 5), (5, 8), (5, 8)),
    ("torch", "cell_loop"): ((17, 9), (8, 5), (5, 8), (8, 5), (8, 5), (5, 8)),
    ("torch", "diagonal_loop"): ((63, 17), (8, 5), (17, 9), (63, 17), (8, 5), (17, 9)),
    ("torch", "scan_cond"): ((5, 8), (3, 4), (3, 4), (3, 4), (3, 4), (3, 4)),
    ("torch", "scan_select"): ((7, 1), (3, 4), (3, 4), (5, 8), (3, 4), (3, 4)),
    ("torch", "batch_loop"): ((3, 4), (3, 4), (3, 4), (3, 4), (3, 4), (3, 4)),
    ("torch", "vmap"): ((5, 8), (3, 4), (3, 4), (3, 4), (3, 4), (3, 4)),
}
assert {*RUNGS} == {*itertools.product(FRAMEWORKS, {*variant_names("smith_waterman")} - {*BY_HAND, *FOR_GPUS})}
# a case of these, which PyTorch traces, takes seconds: each is shown every other problem
TRACED = [("torch", variant) for variant in ("scan_cond", "scan_select", "batch_loop", "vmap")]
# a case of these takes milliseconds in any size
CHEAP = [("jax", "fused"), *(("torch", variant) for variant in ("cell_loop", "diagonal_loop", *BY_HAND))]
# the default tier has gaps by position with the other end: ten libraries fewer are compiled for it
ANY_BY_POSITION = ("smith_waterman", {"end": "any"}, ("gap",))
# gaps by axis, of which the default tier has one that is free along one axis
QUICK_BY_AXIS = [case for case in BY_AXIS if case[1].get("end_gaps") == "free_rows" and len(case[2]) == 4]
# pairs of a ragged batch for PyTorch's batch_loop, which traces each by itself
EMPTY_AND_PARTIAL = (1, 5)

# (framework, variant, problem, options, gaps by position, size, dtype)
Case = tuple[Any, ...]


def how_to_run(framework: str, variant: str, dtype: str = "float64", problem: str = "smith_waterman") -> str:
    """The cheapest way that is still the variant itself."""
    if framework == "jax":
        optimised = dtype == "float32" and (problem == "smith_waterman" or variant == "fused")
        return "compiled" if optimised else "quick"
    return "quick" if variant == "batch_loop" else "eager"


def rungs() -> Iterator[tuple[Case, bool]]:
    """Each rung on every problem or, of TRACED, on half of them, the options in turn; and whether it is slow."""
    problem, options, names = TURNS[3]
    for turn, (which, sizes) in enumerate(RUNGS.items()):
        for number, ((name, described), size) in enumerate(zip(PROBLEMS.items(), sizes, strict=True)):
            if which in TRACED and (turn + number) % 2:
                continue
            # three states are shown by needleman_wunsch_affine, and this alignment below, by position
            if name == problem and (which == ("torch", "vmap") or (which[0] == "jax" and which not in CHEAP)):
                continue
            chosen = described.options[(turn + number) % len(described.options)]
            is_slow = which not in CHEAP and number != turn % 4
            yield (*which, name, chosen, (), size, DTYPES[(turn + number) % 2]), is_slow
        yield (*which, problem, options, names, (3, 4), "float64"), which not in CHEAP
        if which[1] != "batch_loop":  # whose free end gaps are by axis
            yield (*which, *BY_AXIS[turn], (3, 4), "float64"), which not in CHEAP
        if which in (*CHEAP, ("jax", "scan_select")):
            for case in TURNS if which in CHEAP else TURNS[1:2]:
                yield (*which, *case, (4, 3), "float64"), which not in CHEAP


def by_hand() -> Iterator[tuple[Case, bool]]:
    """Every problem, option and choice of gaps by position; the sizes in turn."""
    numbers = [(problem, options, ()) for problem, described in PROBLEMS.items() for options in described.options]
    for which in itertools.product(FRAMEWORKS, BY_HAND):
        for number, case in enumerate([*numbers, *BY_POSITION]):
            if which == ("jax", "wavefront"):  # XLA takes seconds for each
                if case in BY_POSITION and case != TURNS[3] and number % 3:
                    continue
                is_slow = case not in (numbers[1], numbers[-1], TURNS[3])
                yield (*which, *case, ((5, 8), (8, 5), (17, 9))[number % 3], DTYPES[number % 2]), is_slow
            else:
                for turn, dtype in enumerate(DTYPES):
                    if which == ("jax", "fused") and turn == number % 2:  # PyTorch runs the same machine code
                        continue
                    # some libraries fewer for each dtype; gaps by position have those of float64
                    is_slow = case == ANY_BY_POSITION or case[1].get("end_gaps", COST) not in (COST, FREE[ROWS])
                    is_slow = which[1] == "fused" and (is_slow or (case in BY_POSITION and dtype == "float32"))
                    yield (*which, *case, AWKWARD_SIZES[3 + (number + turn) % 4], dtype), is_slow
        for number, case in enumerate(BY_AXIS):
            if which == ("jax", "wavefront") and number % 3 and case[0] in (name for name, *_ in BY_AXIS[:number]):
                continue
            is_slow = case not in QUICK_BY_AXIS or which == ("jax", "wavefront")
            yield (*which, *case, ((1, 7), (7, 1), (5, 8))[number % 3], "float64"), is_slow
        for size, case in itertools.product(AWKWARD_SIZES[:3], (numbers[0], BY_POSITION[-1])):
            yield (*which, *case, size, "float64"), which[0] == "jax"


CASES = [*rungs(), *by_hand()]


def check(
    framework: str, variant: str, inputs: Inputs, dtype: str, problem: str, options: dict, how: str | None = None
) -> Result:
    how = how or how_to_run(framework, variant, dtype, problem)
    result = run(framework, inputs, dtype, variant, how, problem, **options)
    assert_parity(result, reference_result(inputs, problem, **options), dtype, inputs.parameters["temperature"])
    for name, gradient in result.gradients.items():
        if inputs.lengths is not None and gradient.ndim > 1:
            assert not gradient[outside(inputs)].any(), name
    return result


@pytest.mark.parametrize(
    ("framework", "variant", "problem", "options", "names", "size", "dtype"),
    [pytest.param(*case, marks=[pytest.mark.slow] * is_slow) for case, is_slow in CASES],
    ids=str,
)
def test_a_ragged_batch_equals_the_reference(framework, variant, problem, options, names, size, dtype):
    inputs = ragged(*size, problem=problem, by_position=names)
    if (framework, variant) == ("torch", "batch_loop"):
        inputs = of_pairs(inputs, EMPTY_AND_PARTIAL)
    check(framework, variant, inputs, dtype, problem, options)


@pytest.mark.parametrize(
    ("framework", "variant", "problem", "options", "names"),
    [
        # these treat a single pair differently from a batch
        *(("jax", variant, "smith_waterman", {"end": "any"}, ()) for variant in ("batch_loop", "vmap")),
        ("jax", "wavefront", "needleman_wunsch", {}, ()),
        pytest.param("jax", "wavefront", "smith_waterman", {"end": "any"}, (), marks=pytest.mark.slow),
        ("jax", "vmap", *TURNS[2]),
        pytest.param("torch", "batch_loop", "smith_waterman", {"end": "any"}, (), marks=pytest.mark.slow),
        pytest.param("torch", "vmap", *TURNS[0], marks=pytest.mark.slow),
        pytest.param("jax", "wavefront", *TURNS[2], marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_single_pair_equals_the_reference(framework, variant, problem, options, names):
    check(framework, variant, single(5, 8, problem=problem, by_position=names), "float64", problem, options)


@pytest.mark.parametrize(("framework", "variant"), CHEAP)
@pytest.mark.parametrize("size", [(1, 1), pytest.param((1, 7), marks=pytest.mark.slow), (8, 5)])
def test_a_single_pair_of_any_size_equals_the_reference(size, framework, variant):
    for problem, (_, every) in PROBLEMS.items():
        for options in every if framework == "torch" else every[:1]:  # XLA compiles each
            check(framework, variant, single(*size, problem=problem), "float64", problem, options)


@pytest.mark.parametrize(
    ("variant", "problem"),
    [
        ("fused", "free_gap"),
        pytest.param("batch_loop", "needleman_wunsch", marks=pytest.mark.slow),
        pytest.param("wavefront", "smith_waterman_affine", marks=pytest.mark.slow),
    ],
)
def test_a_variant_compiled_by_inductor_equals_the_reference(variant, problem):
    inputs, how = ragged(3, 4, problem=problem), "compiled"
    if variant == "batch_loop":  # which compiles its single pair by itself
        inputs, how = of_pairs(inputs, EMPTY_AND_PARTIAL), "eager"
    check("torch", variant, inputs, "float32", problem, PROBLEMS[problem].options[0], how)


@pytest.mark.parametrize(
    ("framework", "variant", "problem"),
    [
        *(("torch", "fused", problem) for problem in ("smith_waterman_affine", "needleman_wunsch", "soft_dtw")),
        ("torch", "wavefront", "needleman_wunsch"),
        ("jax", "fused", "smith_waterman_affine"),
        pytest.param("torch", "fused", "smith_waterman", marks=pytest.mark.slow),
        pytest.param("torch", "fused", "needleman_wunsch_affine", marks=pytest.mark.slow),
        pytest.param("torch", "diagonal_loop", "smith_waterman", marks=pytest.mark.slow),
        pytest.param("jax", "vmap", "smith_waterman", marks=pytest.mark.slow),
        pytest.param("torch", "wavefront", "smith_waterman_affine", marks=pytest.mark.slow),
        pytest.param("jax", "wavefront", "smith_waterman_affine", marks=pytest.mark.slow),
    ],
)
def test_globins_equal_the_reference(framework, variant, problem):
    inputs, expected = globins(problem)
    how = "compiled" if framework == "jax" else "eager"
    result = run(framework, inputs, "float32", variant, how, problem, **PROBLEMS[problem].options[0])
    assert_parity(result, expected, "float32", 1.0)


@functools.cache
def globins(problem: str) -> tuple[Inputs, Result]:
    """Three pairs, the longest and the shortest among them, and their results by the reference."""
    records = read_fasta(GLOBINS)
    order = sorted(
        itertools.combinations(range(len(records)), 2),
        key=lambda pair: len(records[pair[0]].letters) * len(records[pair[1]].letters),
    )
    pairs = [order[0], order[len(order) // 2], order[-1]]
    similarity, lengths, _ = pair_batch(records, pairs, substitution_matrix("BLOSUM62"), GLOBINS)
    usual = {"gap": -4.0, "gap_open": -11.0, "gap_extend": -1.0, "temperature": 1.0}
    parameters = {name: np.array(usual[name]) for name in PROBLEMS[problem].parameters}
    poisoned = poison(similarity.astype(np.float64), lengths)
    inputs = Inputs(poisoned, lengths, parameters, np.array([1.0, -0.5, 0.75]))
    return inputs, reference_result(inputs, problem, **PROBLEMS[problem].options[0])


EACH = pytest.mark.parametrize(
    ("framework", "variant"),
    [
        *itertools.product(FRAMEWORKS, ["fused"]),
        ("torch", "wavefront"),
        ("torch", "diagonal_loop"),
        ("jax", "wavefront"),
        pytest.param("jax", "diagonal_loop", marks=pytest.mark.slow),
    ],
)


@EACH
def test_gaps_beyond_the_limits_are_at_the_limits(framework, variant):
    inputs = ragged(3, 4, by_position=("gap",))
    for beyond, limit in ((-np.inf, LOWEST), (-1e30, LOWEST), (np.inf, LARGEST_GAP), (1e30, LARGEST_GAP)):
        scores = []
        for value in (beyond, limit):
            gap = inputs.parameters["gap"].copy()
            gap[:, ::2, 1] = value
            moved = inputs._replace(parameters=inputs.parameters | {"gap": gap})
            how = how_to_run(framework, variant)
            scores.append(run(framework, moved, "float32", variant, how, end="match").score)
        assert np.isfinite(scores[0]).all()
        np.testing.assert_array_equal(*scores)


@EACH
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_forbidden_and_free_gaps_equal_the_reference(dtype, framework, variant):
    for problem, options, names in TURNS if framework == "torch" else TURNS[:1]:
        inputs = ragged(5, 8, problem=problem, by_position=names)
        random = np.random.default_rng(7)
        for name in names:
            chosen = random.random(inputs.similarity.shape)
            gap = np.where(chosen < 0.2, -np.inf, np.where(chosen < 0.4, 0.0, inputs.parameters[name]))
            inputs.parameters[name] = np.where(outside(inputs), np.nan, gap)
        check(framework, variant, inputs, dtype, problem, options, how_to_run(framework, variant))


@EACH
def test_a_gap_that_is_no_number_spoils_its_own_pair_alone(framework, variant):
    for cell in ((2, 3), (4, 7)):  # within, and the last cell, where no gap can step
        inputs = ragged(5, 8, by_position=("gap",))
        inputs.parameters["gap"][0, *cell] = np.nan
        result = run(framework, inputs, "float32", variant, how_to_run(framework, variant), end="match")
        assert np.isnan(result.score).tolist() == [True] + [False] * 5
        assert np.isnan(result.gradients["gap"][0]).all() or variant == "diagonal_loop"
        assert np.isfinite(result.gradients["gap"][1:]).all()


@VARIANT
@FRAMEWORK
def test_gradients_of_gaps_have_the_shape_of_an_empty_matrix(framework, variant):
    for shape in ((0, 4), (3, 0), (0, 3, 4)):
        empty, batch = np.zeros(shape), shape[:-2]
        inputs = Inputs(empty, None, {"gap": empty, "temperature": np.ones(batch)}, np.ones(batch))
        result = run(framework, inputs, "float64", variant, how_to_run(framework, variant), "needleman_wunsch")
        assert not result.score.any()
        assert result.gradients["gap"].shape == shape
