"""The NumPy reference with gaps by position is right: against every alignment of small matrices, one by one."""

from typing import Any

import numpy as np
import pytest
from enumeration import alignments as every_alignment
from enumeration import by_enumeration, largest_state, worth_of
from enumeration import hessian_vector_product as hessian_vector_product_by_enumeration
from frameworks import PROBLEMS
from gaps_by_position import CASES

from shared import reference

SMALL = ((1, 1), (1, 4), (4, 1), (2, 2), (3, 2), (2, 4), (3, 4))


def some(problem: str, names: tuple[str, ...], shape: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, dict]:
    """A similarity and parameters, those of these names of its shape."""
    random = np.random.default_rng([*shape, seed])
    limits = PROBLEMS[problem].parameters
    return random.normal(size=shape) * 2, {
        name: random.uniform(*limits[name], size=shape if name in names else ()) for name in limits
    }


def score(problem: str, similarity: Any, lengths: Any = None, **arguments: Any) -> np.ndarray:
    return getattr(reference, problem)(similarity, lengths, **arguments)


def assert_same(got: dict[str, Any], wanted: dict[str, Any], tolerance: float) -> None:
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        assert np.shape(got[name]) == np.shape(value), name
        np.testing.assert_allclose(got[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


@CASES
@pytest.mark.parametrize("shape", SMALL)
def test_score_and_gradients_are_those_of_all_alignments(problem, options, names, shape):
    similarity, parameters = some(problem, names, shape)
    expected, gradients = by_enumeration(problem, similarity, parameters, options)
    np.testing.assert_allclose(score(problem, similarity, **parameters, **options), expected, rtol=1e-12, atol=1e-12)
    assert_same(reference.gradients(problem, similarity, **parameters, **options), gradients, 1e-10)
    largest = reference.largest_state(problem, similarity, **parameters, **options)
    np.testing.assert_allclose(largest, largest_state(problem, similarity, parameters, options), rtol=1e-11)


@CASES
def test_hessian_vector_product_is_the_covariance_over_all_alignments(problem, options, names):
    similarity, parameters = some(problem, names, (3, 4))
    direction = np.random.default_rng(5).normal(size=(3, 4))
    expected = hessian_vector_product_by_enumeration(problem, similarity, direction, parameters, options)
    got = reference.hessian_vector_product(problem, similarity, direction, **parameters, **options)
    assert_same(got, expected, 1e-7)


@CASES
def test_a_batch_is_its_pairs_one_by_one_whatever_the_padding(problem, options, names):
    similarity, parameters = some(problem, names, (5, 5, 6))
    lengths = np.array([(5, 6), (3, 6), (1, 2), (0, 3), (4, 0)])
    i, j = np.indices((5, 6))
    outside = (i >= lengths[:, 0, None, None]) | (j >= lengths[:, 1, None, None])
    poisoned = parameters | {name: np.where(outside, np.nan, parameters[name]) for name in names}
    arguments = poisoned | options
    scores = score(problem, np.where(outside, np.nan, similarity), lengths, **arguments)
    gradients = reference.gradients(problem, similarity, lengths, **arguments)
    assert {gradients[name].shape for name in names} == {similarity.shape}
    for b, (rows, cols) in enumerate(lengths):
        own = {name: parameters[name][b, :rows, :cols] if name in names else parameters[name] for name in parameters}
        assert scores[b] == score(problem, similarity[b, :rows, :cols], **own, **options)
        alone = reference.gradients(problem, similarity[b, :rows, :cols], **own, **options)
        for name, value in alone.items():
            padding = [(0, 5 - rows), (0, 6 - cols)] if np.ndim(value) else 0
            np.testing.assert_array_equal(gradients[name][b], np.pad(value, padding))
    empty = reference.gradients(
        problem, similarity[:0], **{n: v[:0] if n in names else v for n, v in arguments.items()}
    )
    assert {empty[name].shape for name in names} == {(0, 5, 6)}


@pytest.mark.parametrize("end", ["any", "match"])
def test_the_same_number_in_every_cell_is_that_number_for_a_local_alignment(end):
    similarity, _ = some("smith_waterman", (), (6, 5))
    by_number, by_position = (
        reference.gradients("smith_waterman", similarity, gap=gap, end=end) for gap in (-0.7, np.full((6, 5), -0.7))
    )
    assert_same(by_position | {"gap": by_position["gap"].sum()}, by_number, 1e-13)


def test_gaps_along_the_border_of_a_global_alignment_are_free_where_they_are_by_position():
    similarity = np.full((2, 3), -np.inf)
    assert score("needleman_wunsch", similarity[:0], gap=np.zeros((0, 3))) == 0.0
    # only the last two steps of a walk around the border enter cells: one into (0, 2) and one into (1, 2), or (1, 0..2)
    gap = np.full((2, 3), -100.0)
    gap[0, 2] = gap[1, 2] = -1.0
    np.testing.assert_allclose(score("needleman_wunsch", similarity, gap=gap, temperature=0.1), -2.0, atol=1e-12)


def test_a_turn_costs_what_opens_or_extends_at_the_cell_that_it_enters():
    similarity, parameters = some("smith_waterman_affine", ("gap_open", "gap_extend"), (4, 4))
    for penalize in (True, False):
        every = every_alignment("smith_waterman_affine", 4, 4, restrict_turns=True, penalize_turns=penalize)
        (turned,) = [a for a in every if a.moves == "MRDM" and a.start == (0, 0)]
        assert turned.entered == ((0, 1), (1, 1))
        turn = parameters["gap_open" if penalize else "gap_extend"][1, 1]
        expected = similarity[0, 0] + parameters["gap_open"][0, 1] + turn + similarity[2, 2]
        assert worth_of(turned, similarity, parameters) == pytest.approx(expected, rel=1e-15)
