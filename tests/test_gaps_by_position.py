"""Gaps by position: a cost for each cell, in every variant of both frameworks, against the reference.

The ragged batches have NaN and infinities in the padding of these matrices too. The variants whose derivatives are
written by hand are shown every problem, option and choice of the gaps by position; the others compute all of them by
the same code, and are shown one option for each choice; of two gaps both, where the step of a sweep is slow to compile.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from frameworks import (
    AWKWARD_SIZES,
    BY_HAND,
    DTYPES,
    FRAMEWORKS,
    Inputs,
    assert_parity,
    of_pairs,
    ragged,
    reference_result,
    run,
    single,
)
from gaps_by_position import EVERY, FRAMEWORK, GAPS, TURNS, VARIANT, Options, how_to_run, outside

from shared import reference
from shared.alignments import ALIGNMENTS
from shared.tolerances import LARGEST_GAP, LOWEST
from shared.variants import FOR_GPUS, variant_names

# pairs of a ragged batch for batch_loop, which is traced for each by itself
EMPTY_AND_PARTIAL = (1, 4)
LADDER = [name for name in variant_names("smith_waterman") if name not in (*BY_HAND, *FOR_GPUS)]
# To which of two gaps a matrix belongs, only the step of the recurrence knows, which all rungs of a framework share.
# These compile nothing, or little
EVERY_CHOICE = [("torch", "cell_loop"), ("torch", "diagonal_loop"), ("jax", "scan_select"), ("jax", "vmap")]
# These take seconds to trace, and are scan_select but for how they come by a pair's matrices: they are shown two
OF_TWO_GAPS = [("torch", "scan_cond"), ("torch", "vmap"), ("torch", "batch_loop"), ("jax", "batch_loop")]


def by_hand() -> Iterator[tuple[str, str, str, Options, tuple[str, ...], str, tuple[int, int]]]:
    """(framework, variant, problem, options, gaps by position, dtype, size); XLA takes seconds for each wavefront."""
    for framework, variant in itertools.product(FRAMEWORKS, BY_HAND):
        for number, case in enumerate(EVERY):
            if (framework, variant) == ("jax", "wavefront"):
                yield framework, variant, *case, DTYPES[number % 2], ((5, 8), (8, 5), (17, 9))[number % 3]
            else:
                for dtype in DTYPES:
                    yield framework, variant, *case, dtype, AWKWARD_SIZES[3 + number % 4]
        for size in AWKWARD_SIZES[:3]:
            yield framework, variant, *EVERY[-1], "float64", size


def of_rungs() -> Iterator[tuple[str, str, str, Options, tuple[str, ...]]]:
    """(framework, variant, problem, options, gaps by position)."""
    for framework, variant in itertools.product(FRAMEWORKS, LADDER):
        for problem, options, names in TURNS:
            count = 2 if (framework, variant) in OF_TWO_GAPS else len(ALIGNMENTS[problem].gaps)
            if (framework, variant) in EVERY_CHOICE or len(names) == count:
                yield framework, variant, problem, options, names


@pytest.mark.parametrize(
    ("framework", "variant", "problem", "options", "names", "dtype", "size"), list(by_hand()), ids=str
)
def test_a_variant_by_hand_equals_the_reference(framework, variant, problem, options, names, dtype, size):
    inputs = ragged(*size, problem=problem, by_position=names)
    result = run(framework, inputs, dtype, variant, how_to_run(framework, variant), problem, **options)
    assert_parity(result, reference_result(inputs, problem, **options), dtype, inputs.parameters["temperature"])
    for name in ("similarity", *names):
        assert not result.gradients[name][outside(inputs)].any(), name


@pytest.mark.parametrize(("framework", "variant", "problem", "options", "names"), list(of_rungs()), ids=str)
def test_a_rung_equals_the_reference(framework, variant, problem, options, names):
    inputs = ragged(3, 4, problem=problem, by_position=names)
    if variant == "batch_loop":
        inputs = of_pairs(inputs, EMPTY_AND_PARTIAL)
    result = run(framework, inputs, "float64", variant, how_to_run(framework, variant), problem, **options)
    assert_parity(result, reference_result(inputs, problem, **options), "float64", inputs.parameters["temperature"])
    for name in ("similarity", *names):
        assert not result.gradients[name][outside(inputs)].any(), name


@pytest.mark.parametrize("variant", ["vmap", *BY_HAND])
@FRAMEWORK
def test_a_single_pair_equals_the_reference(framework, variant):
    problem, options, names = "smith_waterman_affine", {"restrict_turns": False}, ("gap_extend",)
    inputs = single(4, 5, problem=problem, by_position=names)
    result = run(framework, inputs, "float64", variant, how_to_run(framework, variant), problem, **options)
    assert_parity(result, reference_result(inputs, problem, **options), "float64", inputs.parameters["temperature"])


@VARIANT
@FRAMEWORK
def test_a_pair_without_rows_or_columns_has_gradients_of_its_shape(framework, variant):
    for shape in ((0, 4), (3, 0), (0, 3, 4)):
        empty, batch = np.zeros(shape), shape[:-2]
        inputs = Inputs(empty, None, {"gap": empty, "temperature": np.ones(batch)}, np.ones(batch))
        result = run(framework, inputs, "float64", variant, problem="needleman_wunsch")
        assert not result.score.any()
        assert result.gradients["gap"].shape == shape


@pytest.mark.parametrize("variant", ["diagonal_loop", *BY_HAND])
@FRAMEWORK
def test_gaps_beyond_the_limits_are_at_the_limits(framework, variant):
    inputs = ragged(3, 4, by_position=("gap",))
    for beyond, limit in ((-np.inf, LOWEST), (-1e30, LOWEST), (np.inf, LARGEST_GAP), (1e30, LARGEST_GAP)):
        scores = []
        for value in (beyond, limit):
            gap = inputs.parameters["gap"].copy()
            gap[:, ::2, 1] = value
            own = inputs._replace(parameters=inputs.parameters | {"gap": gap})
            scores.append(run(framework, own, "float32", variant, how_to_run(framework, variant)).score)
        assert np.isfinite(scores[0]).all()
        np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize("variant", ["diagonal_loop", *BY_HAND])
@FRAMEWORK
def test_forbidden_and_free_gaps_equal_the_reference(framework, variant):
    for problem, names in GAPS if how_to_run(framework, variant) == "eager" else GAPS[:1]:
        inputs = ragged(5, 8, problem=problem, by_position=names)
        random = np.random.default_rng(7)
        for name in names:
            chosen = random.random(inputs.similarity.shape)
            gap = np.where(chosen < 0.2, -np.inf, np.where(chosen < 0.4, 0.0, inputs.parameters[name]))
            inputs.parameters[name] = np.where(outside(inputs), np.nan, gap)
        result = run(framework, inputs, "float32", variant, how_to_run(framework, variant), problem)
        assert_parity(result, reference_result(inputs, problem), "float32", inputs.parameters["temperature"])


@pytest.mark.parametrize("cell", [(2, 3), (4, 7)], ids=["a cell within", "the last cell, where no gap can step"])
@VARIANT
@FRAMEWORK
def test_a_gap_that_is_no_number_spoils_its_own_pair_alone(framework, variant, cell):
    inputs = ragged(5, 8, by_position=("gap",))
    inputs.parameters["gap"][0, *cell] = np.nan
    result = run(framework, inputs, "float32", variant, how_to_run(framework, variant), end="match")
    assert np.isnan(result.score).tolist() == [True] + [False] * 5
    assert np.isnan(result.gradients["gap"][0]).all()
    assert np.isfinite(result.gradients["gap"][1:]).all()


@VARIANT
@FRAMEWORK
def test_equal_costs_everywhere_are_one_gap_for_the_pair_in_a_local_alignment(framework, variant):
    for problem in ("smith_waterman", "smith_waterman_affine"):
        inputs = ragged(5, 8, problem=problem)
        gaps = ALIGNMENTS[problem].gaps
        matrices = {name: np.where(outside(inputs), np.nan, inputs.parameters[name][:, None, None]) for name in gaps}
        given = inputs, inputs._replace(parameters=inputs.parameters | matrices)
        one, other = (run(framework, own, "float64", variant, how_to_run(framework, variant), problem) for own in given)
        np.testing.assert_allclose(other.score, one.score, rtol=1e-13)
        for name, gradient in one.gradients.items():
            found = other.gradients[name].sum((1, 2)) if name in gaps else other.gradients[name]
            np.testing.assert_allclose(found, gradient, rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("variant", ["cell_loop", *BY_HAND])
@FRAMEWORK
def test_gaps_along_the_border_of_a_global_alignment_are_free(framework, variant):
    # of one row, whose left and upper neighbours outside are 0
    s, gap = np.array([[[0.5, -1.0], [9.0, 9.0]]] * 2), np.array([[[-1.5, -0.25], [9.0, 9.0]]] * 2)
    lengths = np.array([(1, 2), (0, 2)], np.int32)
    inputs = Inputs(s, lengths, {"gap": gap, "temperature": np.ones(2)}, np.ones(2))
    result = run(framework, inputs, "float64", variant, how_to_run(framework, variant), "needleman_wunsch")
    first = np.logaddexp(0.5, np.log(2) - 1.5)
    second = np.logaddexp.reduce([-1.0, first - 0.25, -0.25])
    np.testing.assert_allclose(result.score, [second, 0.0], rtol=1e-12)


@FRAMEWORK
def test_half_precision_is_computed_in_float32_and_kept(framework):
    package, backend = FRAMEWORKS[framework]
    random = np.random.default_rng(2)
    s, gap = random.normal(size=(2, 3, 5, 6)).astype(np.float16)
    half = package.smith_waterman(backend.to_device(s, "cpu"), gap=backend.to_device(gap, "cpu"))
    full = package.smith_waterman(s.astype(np.float32), gap=gap.astype(np.float64))
    whole = package.smith_waterman(s.astype(np.float32), gap=np.full(gap.shape, -2))
    assert backend.to_numpy(half).dtype == np.float16
    np.testing.assert_array_equal(backend.to_numpy(half), backend.to_numpy(full).astype(np.float16))
    np.testing.assert_allclose(backend.to_numpy(whole), reference.smith_waterman(s, gap=-2.0), rtol=1e-5)
