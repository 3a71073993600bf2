"""The NumPy reference is right: against every alignment of small matrices, one by one, and finite differences."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from enumeration import PRICES, alignments, by_enumeration, number_of_alignments, worth_of
from enumeration import hessian_vector_product as hessian_vector_product_by_enumeration
from enumeration import largest_state as largest_state_by_enumeration
from frameworks import PROBLEMS

from shared import reference

SMALL = ((1, 1), (1, 4), (4, 1), (2, 2), (3, 2), (2, 4), (3, 4), (4, 4))
TEMPERATURES = (0.05, 1.0, 20.0)
# of each sign, and of every order of what opens and what extends
PRICED = {
    (): ((),),
    ("gap",): ((-3.0,), (-0.5,), (0.0,), (0.75,)),
    ("gap_open", "gap_extend"): ((-3.0, -1.0), (-0.5, -2.0), (0.0, 0.0), (-1.0, 0.75), (0.75, 0.25)),
}
LOCAL = ("smith_waterman", "smith_waterman_affine")
NEEDS_TWO_MATCHES = [("smith_waterman", {"end": "match"})]
NEEDS_TWO_MATCHES += [("smith_waterman_affine", options) for options in PROBLEMS["smith_waterman_affine"].options]


def named(problem: str, options: dict[str, Any]) -> Any:
    return pytest.param(problem, options, id="-".join([problem, *(f"{key}={value}" for key, value in options.items())]))


EVERY = pytest.mark.parametrize(
    ("problem", "options"),
    [named(problem, options) for problem, described in PROBLEMS.items() for options in described.options],
)


def score(problem: str, similarity: Any, lengths: Any = None, **arguments: Any) -> np.ndarray:
    return getattr(reference, problem)(similarity, lengths, **arguments)


def some_parameters(problem: str, random: np.random.Generator, shape: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    return {name: random.uniform(*limits, size=shape) for name, limits in PROBLEMS[problem].parameters.items()}


def assert_same_gradients(got: dict[str, Any], wanted: dict[str, Any], tolerance: float) -> None:
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


@EVERY
@pytest.mark.parametrize("shape", SMALL)
def test_the_enumeration_lists_each_alignment_once(problem, options, shape):
    every = alignments(problem, *shape, **options)
    assert len({(alignment.start, alignment.moves) for alignment in every}) == len(every)
    assert len(every) == number_of_alignments(problem, *shape, **options)


def test_the_enumeration_has_as_many_alignments_as_counted_by_hand():
    assert [number_of_alignments("needleman_wunsch", n, n) for n in (1, 2, 3, 4)] == [3, 13, 63, 321]  # Delannoy
    # single matches; one move further: three from (0,0), one each from (0,1) and (1,0); two gaps from (0,0)
    assert number_of_alignments("smith_waterman", 2, 2, end="any") == 4 + 5 + 2
    # pairs of a match and a later one: four that touch, four across one gap, two gaps in two orders; three in a row
    assert number_of_alignments("smith_waterman", 3, 3, end="match") == 4 + 4 + 2 + 1
    assert number_of_alignments("smith_waterman_affine", 3, 3, restrict_turns=True) == 4 + 4 + 1 + 1


def test_each_gap_position_pays_what_comes_before_it_says():
    paid = {
        (penalize, alignment.moves): alignment.paid
        for penalize in (True, False)
        for alignment in alignments("smith_waterman_affine", 5, 5, restrict_turns=False, penalize_turns=penalize)
    }
    start, extend = PRICES["smith_waterman_affine"]
    assert paid[True, "MRM"] == (start,)
    assert paid[True, "MRRRM"] == (start, extend, extend)
    assert paid[True, "MRMDM"] == (start, start)
    assert paid[True, "MRDDRM"] == (start, start, extend, start)
    assert paid[False, "MRDDRM"] == (start, extend, extend, extend)


@EVERY
def test_without_prices_the_score_is_the_logarithm_of_the_number_of_alignments(problem, options):
    free = dict.fromkeys(PRICES[problem], 0.0)
    for rows, cols in ((2, 2), (3, 7), (12, 9)):
        expected = math.log(number_of_alignments(problem, rows, cols, **options))
        np.testing.assert_allclose(score(problem, np.zeros((rows, cols)), **free, **options), expected, rtol=1e-12)


@EVERY
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("shape", SMALL)
def test_score_and_gradients_are_those_of_all_alignments(problem, options, shape, temperature):
    similarity = np.random.default_rng(shape).normal(size=shape) * 2
    names = PRICES[problem]
    for prices in PRICED[names]:
        parameters = {**dict(zip(names, prices, strict=True)), "temperature": temperature}
        expected, gradients = by_enumeration(problem, similarity, parameters, options)
        got = score(problem, similarity, **parameters, **options)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12, err_msg=str(parameters))
        assert_same_gradients(reference.gradients(problem, similarity, **parameters, **options), gradients, 1e-10)


@EVERY
def test_minus_infinity_leaves_the_alignments_that_do_not_match_there(problem, options):
    random = np.random.default_rng(4)
    for forbidden in itertools.product(range(3), range(4)):
        similarity = random.normal(size=(3, 4))
        similarity[forbidden] = -np.inf
        parameters = some_parameters(problem, random)
        possible = [a for a in alignments(problem, 3, 4, **options) if forbidden not in a.matches]
        worth = [worth_of(a, similarity, parameters) for a in possible]
        temperature = parameters["temperature"]
        expected = temperature * math.log(math.fsum(math.exp(value / temperature) for value in worth))
        arguments = {**parameters, **options}
        np.testing.assert_allclose(score(problem, similarity, **arguments), expected, rtol=1e-11, atol=1e-12)
        gradients = reference.gradients(problem, similarity, **arguments)
        assert gradients["similarity"][forbidden] == 0.0
        assert_same_gradients(gradients, by_enumeration(problem, similarity, parameters, options)[1], 1e-10)


@EVERY
def test_where_every_match_is_forbidden_only_gaps_are_left(problem, options):
    similarity = np.full((3, 4), -np.inf)
    parameters = some_parameters(problem, np.random.default_rng(8))
    expected, gradients = by_enumeration(problem, similarity, parameters, options)
    if problem in LOCAL:
        assert expected == 0.0 and not any(np.any(value) for value in gradients.values())
    np.testing.assert_allclose(score(problem, similarity, **parameters, **options), expected, rtol=1e-12)
    assert_same_gradients(reference.gradients(problem, similarity, **parameters, **options), gradients, 1e-12)


@EVERY
def test_gradients_are_central_differences_of_the_score(problem, options):
    random = np.random.default_rng(7)
    arguments = {"similarity": random.normal(size=(6, 5)), **some_parameters(problem, random)}
    gradients = reference.gradients(problem, **arguments, **options)
    step = 1e-5
    for name, value in arguments.items():
        direction = random.normal(size=np.shape(value))
        ahead, behind = (
            score(problem, **arguments | {name: value + sign * step * direction}, **options) for sign in (1, -1)
        )
        difference = (ahead - behind) / (2 * step)
        np.testing.assert_allclose(np.sum(gradients[name] * direction), difference, rtol=1e-7, err_msg=name)


@EVERY
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_hessian_vector_product_is_the_covariance_over_all_alignments(problem, options, temperature):
    random = np.random.default_rng(5)
    similarity, direction = random.normal(size=(2, 3, 4))
    parameters = some_parameters(problem, random) | {"temperature": temperature}
    expected = hessian_vector_product_by_enumeration(problem, similarity, direction, parameters, options)
    got = reference.hessian_vector_product(problem, similarity, direction, **parameters, **options)
    assert_same_gradients(got, expected, 1e-7 * max(1.0, *(np.abs(value).max() for value in expected.values())))


@EVERY
def test_hessian_vector_product_is_a_second_difference_of_the_score_over_all_alignments(problem, options):
    random = np.random.default_rng(6)
    similarity, direction, other = random.normal(size=(3, 3, 4))
    parameters = some_parameters(problem, random)
    others = {"similarity": other, **{name: random.normal() for name in parameters}}
    got = reference.hessian_vector_product(problem, similarity, direction, **parameters, **options)
    step = 1e-3
    for name, towards in others.items():
        arguments = {"similarity": similarity, **parameters}
        total = 0.0
        for along, across in itertools.product((1, -1), (1, -1)):
            moved = arguments | {name: arguments[name] + across * step * towards}
            moved["similarity"] = moved["similarity"] + along * step * direction
            value, _ = by_enumeration(problem, moved["similarity"], {key: moved[key] for key in parameters}, options)
            total += along * across * value
        difference = total / (4 * step**2)
        np.testing.assert_allclose(np.sum(got[name] * towards), difference, rtol=1e-4, atol=1e-4, err_msg=name)


@EVERY
@pytest.mark.parametrize("shape", SMALL)
def test_the_largest_state_is_that_of_all_beginnings_of_alignments(problem, options, shape):
    random = np.random.default_rng(shape)
    for _ in range(3):
        similarity, parameters = random.normal(size=shape), some_parameters(problem, random)
        expected = largest_state_by_enumeration(problem, similarity, parameters, options)
        got = reference.largest_state(problem, similarity, **parameters, **options)
        np.testing.assert_allclose(got, expected, rtol=1e-11)


def test_known_value():
    np.random.seed(0)  # the input is defined by this call
    similarity = np.random.random((100, 150))
    value = reference.smith_waterman(similarity, gap=0.0, temperature=1.0, end="any")
    assert value == pytest.approx(232.31181, rel=float(np.finfo(np.float32).eps))


@EVERY
def test_a_batch_is_its_pairs_one_by_one(problem, options):
    random = np.random.default_rng(3)
    similarity = random.normal(size=(5, 5, 6))
    lengths = np.array([(5, 6), (3, 6), (1, 2), (2, 2), (0, 4)])
    parameters = some_parameters(problem, random, (5,))
    arguments = {**parameters, **options}
    scores = score(problem, similarity, lengths, **arguments)
    largest = reference.largest_state(problem, similarity, lengths, **arguments)
    gradients = reference.gradients(problem, similarity, lengths, **arguments)
    for b, (rows, cols) in enumerate(lengths):
        pair = similarity[b, :rows, :cols]
        own = {name: float(value[b]) for name, value in parameters.items()} | options
        assert scores[b] == score(problem, pair, **own)
        assert largest[b] == reference.largest_state(problem, pair, **own)
        alone = reference.gradients(problem, pair, **own)
        padded = np.zeros((5, 6))
        padded[:rows, :cols] = alone["similarity"]
        np.testing.assert_array_equal(gradients["similarity"][b], padded)
        assert [gradients[name][b] for name in parameters] == [alone[name] for name in parameters]


@EVERY
@pytest.mark.parametrize("lengths", [(0, 3), (3, 0), (0, 0)])
def test_a_pair_without_length_has_gaps_alone(problem, options, lengths):
    similarity = np.full((3, 3), np.nan)
    parameters = some_parameters(problem, np.random.default_rng(9))
    price = {name: float(sum(lengths)) if problem == "needleman_wunsch" else 0.0 for name in PRICES[problem]}
    expected = sum(price[name] * parameters[name] for name in price)  # 0 for local ones: they have no alignment
    np.testing.assert_allclose(score(problem, similarity, np.array(lengths), **parameters, **options), expected)
    gradients = reference.gradients(problem, similarity, np.array(lengths), **parameters, **options)
    assert_same_gradients(gradients, {"similarity": np.zeros((3, 3)), **price, "temperature": 0.0}, 0.0)


@pytest.mark.parametrize(("problem", "options"), [named(*each) for each in NEEDS_TWO_MATCHES])
@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (1, 1)])
def test_two_matches_need_two_rows_and_columns(problem, options, shape):
    similarity = np.ones(shape)
    assert score(problem, similarity, **options) == 0.0
    gradients = reference.gradients(problem, similarity, **options)
    assert not any(np.any(value) for value in gradients.values())


@EVERY
def test_an_empty_batch_is_empty(problem, options):
    similarity = np.zeros((0, 4, 5))
    assert score(problem, similarity, **options).shape == (0,)
    assert reference.largest_state(problem, similarity, **options).shape == (0,)
    gradients = reference.gradients(problem, similarity, **options)
    expected = {"similarity": (0, 4, 5)} | dict.fromkeys(PROBLEMS[problem].parameters, (0,))
    assert {name: value.shape for name, value in gradients.items()} == expected


@EVERY
def test_swapping_the_sequences_transposes_the_marginals(problem, options):
    random = np.random.default_rng(11)
    similarity, arguments = random.normal(size=(5, 7)), some_parameters(problem, random) | options
    np.testing.assert_allclose(score(problem, similarity.T, **arguments), score(problem, similarity, **arguments))
    gradients = reference.gradients(problem, similarity, **arguments)
    swapped = reference.gradients(problem, similarity.T, **arguments)
    assert_same_gradients(swapped | {"similarity": swapped["similarity"].T}, gradients, 1e-12)


@pytest.mark.parametrize("penalize_turns", [True, False])
def test_an_affine_gap_whose_prices_are_equal_is_a_linear_gap(penalize_turns):
    random = np.random.default_rng(12)
    similarity = random.normal(size=(7, 6))
    for gap in (-1.3, 0.0, 0.4):
        affine = {"gap_open": gap, "gap_extend": gap, "restrict_turns": False, "penalize_turns": penalize_turns}
        linear = {"gap": gap, "end": "match"}
        np.testing.assert_allclose(
            reference.smith_waterman_affine(similarity, temperature=0.7, **affine),
            reference.smith_waterman(similarity, temperature=0.7, **linear),
            rtol=1e-13,
        )
        got = reference.gradients("smith_waterman_affine", similarity, temperature=0.7, **affine)
        gradients = reference.gradients("smith_waterman", similarity, temperature=0.7, **linear)
        assert_same_gradients({"gap": got.pop("gap_open") + got.pop("gap_extend"), **got}, gradients, 1e-12)


def test_free_gap_is_a_global_alignment_with_gap_zero():
    similarity = np.random.default_rng(13).normal(size=(7, 6))
    assert reference.free_gap(similarity, temperature=0.7) == reference.needleman_wunsch(
        similarity, gap=0.0, temperature=0.7
    )
    gradients = reference.gradients("needleman_wunsch", similarity, gap=0.0, temperature=0.7)
    del gradients["gap"]
    assert_same_gradients(reference.gradients("free_gap", similarity, temperature=0.7), gradients, 0.0)


def test_a_parameter_that_the_function_does_not_take_is_an_error():
    with pytest.raises(TypeError, match="free_gap takes no gap"):
        reference.best_alignment("free_gap", np.ones((2, 2)), gap=-1.0)


def test_gaps_by_position_of_another_shape_are_an_error():
    with pytest.raises(ValueError, match=r"gap must have shape .* \(3, 4\), got \(1, 4\)"):
        reference.smith_waterman(np.ones((3, 4)), gap=np.ones((1, 4)))


def test_an_unknown_end_is_an_error():
    with pytest.raises(ValueError, match="end must be 'any' or 'match', got 'both'"):
        reference.smith_waterman(np.ones((2, 2)), end="both")
