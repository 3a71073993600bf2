"""The NumPy reference is right: against every alignment of small matrices, one by one, and finite differences."""

import itertools
from typing import Any

import numpy as np
import pytest
from enumeration import (
    AFFINE,
    GLOBAL,
    PRICES,
    SIGN,
    Alignment,
    alignments,
    by_enumeration,
    hessian_vector_product,
    largest_state,
    number_of_alignments,
    worth_of,
)
from frameworks import BY_AXIS, PROBLEMS, axes_of, by_keyword, packed, reference_gradients, sizes_of, unpacked
from gaps_by_position import EVERY as BY_POSITION
from gaps_by_position import TURNS

from shared import reference

SMALL = ((1, 1), (1, 4), (4, 1), (2, 2), (3, 2), (3, 3), (2, 4), (3, 4), (4, 4))
TEMPERATURES = (0.05, 1.0, 20.0)
# of each sign, and of every order of what opens and what extends
PRICED = {
    (): ((),),
    ("gap",): ((-3.0,), (-0.5,), (0.0,), (0.75,)),
    ("gap_open", "gap_extend"): ((-3.0, -1.0), (-0.5, -2.0), (0.0, 0.0), (-1.0, 0.75), (0.75, 0.25)),
}
NUMBERS = [(problem, options, ()) for problem, described in PROBLEMS.items() for options in described.options]
EVERY = pytest.mark.parametrize(("problem", "options"), [case[:2] for case in NUMBERS], ids=str)
# one of two gaps by axis
ONE_BY_AXIS = [(problem, PROBLEMS[problem].options[-1], axes_of(gap)) for problem in AFFINE for gap in PRICES[problem]]
QUICK = [*NUMBERS, *TURNS, *ONE_BY_AXIS[-1:], *BY_AXIS[-2:]]
CASES = pytest.mark.parametrize(
    ("problem", "options", "names"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] * (case not in QUICK))
        for case in [*NUMBERS, *BY_POSITION, *BY_AXIS, *ONE_BY_AXIS]
    ],
    ids=str,
)


def score(problem: str, similarity: Any, lengths: Any = None, **arguments: Any) -> np.ndarray:
    return by_keyword(getattr(reference, problem))(similarity, lengths, **arguments)


def largest(problem: str, similarity: Any, lengths: Any = None, **arguments: Any) -> np.ndarray:
    return reference.largest_state(problem, similarity, lengths, **packed(arguments))


def best(problem: str, similarity: Any, lengths: Any = None, **arguments: Any) -> tuple[np.ndarray, np.ndarray]:
    return reference.best_alignment(problem, similarity, lengths, **packed(arguments))


def some(
    problem: str, names: tuple[str, ...], shape: tuple[int, ...], batch: tuple[int, ...] = (), seed: int = 0
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A similarity and parameters: gaps of these names by position or axis, the others for each pair."""
    random = np.random.default_rng([*shape, seed])
    limits = PROBLEMS[problem].parameters
    similarity = random.normal(size=(*batch, *shape)) * 2
    sizes = sizes_of(problem, names, (*batch, *shape), batch)
    return similarity, {name: random.uniform(*limits[name.split("[")[0]], size=size) for name, size in sizes.items()}


def assert_same(got: dict[str, Any], wanted: dict[str, Any], tolerance: float) -> None:
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        assert np.shape(got[name]) == np.shape(value), name
        np.testing.assert_allclose(got[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


# the enumeration itself


@EVERY
def test_the_enumeration_lists_each_alignment_once(problem, options):
    for shape in SMALL:
        every = alignments(problem, *shape, **options)
        assert len({(alignment.start, alignment.moves) for alignment in every}) == len(every)
        number = number_of_alignments(problem, *shape, **options)
        if options.get("restrict_turns") and options.get("end_gaps", "cost") != "cost":
            # those where D comes before a free R, or a free D before R
            assert number < len(every) <= number_of_alignments(problem, *shape)
        else:
            assert len(every) == number


def test_the_enumeration_has_as_many_alignments_as_counted_by_hand():
    assert [number_of_alignments("needleman_wunsch", n, n) for n in (1, 2, 3, 4)] == [3, 13, 63, 321]  # Delannoy
    # single matches; one move further: three from (0,0), one each from (0,1) and (1,0); two gaps from (0,0)
    assert number_of_alignments("smith_waterman", 2, 2, end="any") == 4 + 5 + 2
    # pairs of a match and a later one: four that touch, four across one gap, two gaps in two orders; three in a row
    assert number_of_alignments("smith_waterman", 3, 3, end="match") == 4 + 4 + 2 + 1
    assert number_of_alignments("smith_waterman_affine", 3, 3, restrict_turns=True) == 4 + 4 + 1 + 1


def test_each_gap_position_of_the_enumeration_pays_by_the_move_before_it():
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


def test_free_end_gaps_of_the_enumeration_pay_nothing_and_nothing_follows_them():
    paid = {
        (end_gaps, alignment.moves): list(zip(alignment.paid, alignment.directions, strict=True))
        for end_gaps in ("cost", "free", "free_rows", "free_cols")
        for alignment in alignments(
            "needleman_wunsch_affine", 3, 3, end_gaps=end_gaps, restrict_turns=True, penalize_turns=True
        )
    }
    start, extend = PRICES["needleman_wunsch_affine"]
    assert [end_gaps for end_gaps, moves in paid if moves == "DRMDR"] == ["free"]  # elsewhere an R that pays follows D
    assert paid["free", "DRMDR"] == [(start, "R"), (start, "D")]
    assert paid["free_rows", "MDDRR"] == [(start, "D"), (extend, "D")]
    assert paid["free_cols", "DDRMR"] == [(start, "R"), (start, "R")]
    everywhere = [(start, "R"), (start, "D"), (start, "R"), (start, "D")]
    for end_gaps, free in {"cost": [], "free": [0, 3], "free_rows": [0], "free_cols": [3]}.items():
        assert paid[end_gaps, "RDMRD"] == [pays for at, pays in enumerate(everywhere) if at not in free]


def test_a_turn_of_the_enumeration_pays_at_the_cell_that_it_enters():
    similarity, parameters = some("smith_waterman_affine", ("gap_open", "gap_extend"), (4, 4))
    for penalize in (True, False):
        every = alignments("smith_waterman_affine", 4, 4, restrict_turns=True, penalize_turns=penalize)
        (turned,) = [a for a in every if a.moves == "MRDM" and a.start == (0, 0)]
        assert turned.entered == ((0, 1), (1, 1))
        turn = parameters["gap_open" if penalize else "gap_extend"][1, 1]
        expected = similarity[0, 0] + parameters["gap_open"][0, 1] + turn + similarity[2, 2]
        assert worth_of(turned, similarity, parameters) == pytest.approx(expected, rel=1e-15)


# smooth scores and their derivatives


@CASES
def test_score_gradients_and_largest_state_are_those_of_all_alignments(problem, options, names):
    for shape in [(0, 3), (3, 0), (0, 0), *(SMALL[:-1] if names else SMALL)]:
        similarity, drawn = some(problem, names, shape)
        numbers = [dict(zip(PRICES[problem], prices, strict=True)) for prices in PRICED[PRICES[problem]]]
        every = [prices | {"temperature": t} for prices in numbers for t in TEMPERATURES] if not names else []
        for parameters in (drawn, *every):
            expected, gradients = by_enumeration(problem, similarity, parameters, options)
            arguments = {"similarity": similarity, **parameters, **options}
            np.testing.assert_allclose(score(problem, **arguments), expected, rtol=1e-12, atol=1e-12)
            assert_same(reference_gradients(problem, **arguments), gradients, 1e-10)
            expected = largest_state(problem, similarity, parameters, options)
            np.testing.assert_allclose(largest(problem, **arguments), expected, rtol=1e-11)


@EVERY
def test_minus_infinity_leaves_the_alignments_that_do_not_match_there(problem, options):
    for forbidden in (*itertools.product(range(3), range(4)), ...):  # each cell, and all of them
        similarity, parameters = some(problem, (), (3, 4))
        similarity[forbidden] = -np.inf * SIGN[problem]
        gradients = reference.gradients(problem, similarity, **parameters, **options)
        assert not gradients["similarity"][forbidden].any()
        expected, enumerated = by_enumeration(problem, similarity, parameters, options)
        np.testing.assert_allclose(score(problem, similarity, **parameters, **options), expected, rtol=1e-11)
        assert_same(gradients, enumerated, 1e-10)


@CASES
def test_gradients_are_central_differences_of_the_score(problem, options, names):
    similarity, parameters = some(problem, names, (6, 5), seed=7)
    arguments = {"similarity": similarity, **parameters}
    gradients = reference_gradients(problem, **arguments, **options)
    random, step = np.random.default_rng(7), 1e-5
    for name, value in arguments.items():
        direction = random.normal(size=np.shape(value))
        ahead, behind = (
            score(problem, **arguments | {name: value + sign * step * direction}, **options) for sign in (1, -1)
        )
        difference = (ahead - behind) / (2 * step)
        np.testing.assert_allclose(np.sum(gradients[name] * direction), difference, rtol=1e-6, err_msg=name)


@CASES
def test_hessian_vector_product_is_the_covariance_over_all_alignments(problem, options, names):
    similarity, parameters = some(problem, names, (3, 4))
    direction = np.random.default_rng(5).normal(size=(3, 4))
    for temperature in TEMPERATURES:
        arguments = parameters | {"temperature": np.array(temperature)}
        expected = hessian_vector_product(problem, similarity, direction, arguments, options)
        got = reference.hessian_vector_product(problem, similarity, direction, **packed(arguments), **options)
        assert_same(unpacked(got), expected, 1e-7 * max(1.0, *(np.abs(value).max() for value in expected.values())))


def test_known_value():
    np.random.seed(0)  # the input is defined by this call
    similarity = np.random.random((100, 150))
    value = reference.smith_waterman(similarity, gap=0.0, temperature=1.0, end="any")
    assert value == pytest.approx(232.31181, rel=float(np.finfo(np.float32).eps))


@CASES
def test_a_batch_is_its_pairs_one_by_one_whatever_the_padding(problem, options, names):
    similarity, parameters = some(problem, names, (5, 6), batch=(6,))
    lengths = np.array([(5, 6), (3, 6), (1, 2), (2, 2), (0, 4), (4, 0)])
    i, j = np.indices((5, 6))
    outside = (i >= lengths[:, 0, None, None]) | (j >= lengths[:, 1, None, None])
    poisoned = {
        name: np.where(outside, np.nan, value) if value.ndim > 1 else value for name, value in parameters.items()
    }
    arguments = np.where(outside, np.nan, similarity), lengths
    scores = score(problem, *arguments, **poisoned, **options)
    states = largest(problem, *arguments, **poisoned, **options)
    gradients = reference_gradients(problem, *arguments, **poisoned, **options)
    del poisoned["temperature"]
    best_scores, best_matches = best(problem, *arguments, **poisoned, **options)
    assert best_matches.dtype == bool
    for b, (rows, cols) in enumerate(lengths):
        pair, padding = similarity[b, :rows, :cols], [(0, 5 - rows), (0, 6 - cols)]
        alone = {name: value[b, :rows, :cols] if value.ndim > 1 else value[b] for name, value in parameters.items()}
        assert scores[b] == score(problem, pair, **alone, **options)
        assert states[b] == largest(problem, pair, **alone, **options)
        for name, value in reference_gradients(problem, pair, **alone, **options).items():
            np.testing.assert_array_equal(gradients[name][b], np.pad(value, padding if np.ndim(value) else 0))
        del alone["temperature"]
        best_score, matches = best(problem, pair, **alone, **options)
        assert best_scores[b] == best_score
        np.testing.assert_array_equal(best_matches[b], np.pad(matches, padding))


def test_border_gaps_of_a_global_alignment_are_free_where_they_are_by_position():
    similarity = np.full((2, 3), -np.inf)
    assert score("needleman_wunsch", similarity[:0], gap=np.zeros((0, 3))) == 0.0
    # only the last two steps of a walk around the border enter cells: one into (0, 2) and one into (1, 2), or (1, 0..2)
    gap = np.full((2, 3), -100.0)
    gap[0, 2] = gap[1, 2] = -1.0
    np.testing.assert_allclose(score("needleman_wunsch", similarity, gap=gap, temperature=0.1), -2.0, atol=1e-12)


# best alignments


def first_of(problem: str, equal: list[Alignment]) -> Alignment:
    """The one that the documented order chooses: the first end, and from there back the first choice in each cell.

    A choice is to start, or to come by M, R or D. With an affine gap it is the state before a match, hence shifted.
    """

    def order(alignment: Alignment) -> tuple[Any, ...]:
        moves = alignment.moves
        if problem in AFFINE:
            chosen = [1 + "MRD".index(state) for state in alignment.states[::-1]] + [0]
        else:
            chosen = [1 + "MRD".index(move) for move in moves[::-1]]
            chosen[-1:] = chosen[-1:] if problem in GLOBAL else [0]
        return alignment.end, chosen

    return min(equal, key=order)


@CASES
def test_the_best_alignment_is_the_first_of_those_worth_most(problem, options, names):
    for shape, seed in itertools.product(SMALL, range(4)):
        random = np.random.default_rng([*shape, seed])
        # of few different values, so that many alignments are equally good
        sizes = sizes_of(problem, names, shape)
        del sizes["temperature"]
        gaps = {name: random.integers(-2, 2, size=size) for name, size in sizes.items()}
        similarity = random.integers(-2, 3, size=shape).astype(float)
        best_score, matches = best(problem, similarity, **gaps, **options)
        sign = SIGN[problem]
        every = [(sign * worth_of(a, similarity, gaps), a) for a in alignments(problem, *shape, **options)]
        most = max((worth for worth, _ in every), default=0.0)
        assert best_score == sign * most
        expected = np.zeros(shape, bool)
        for cell in first_of(problem, [a for worth, a in every if worth == most]).matches if every else ():
            expected[cell] = True
        np.testing.assert_array_equal(matches, expected)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_best_alignment_without_possible_matches_or_with_nan_has_no_match(problem):
    sign = SIGN[problem]
    best_score, matches = reference.best_alignment(getattr(reference, problem), np.full((3, 4), -np.inf * sign))
    all_gaps = {"needleman_wunsch": -7.0, "needleman_wunsch_affine": -3.0 - 3 - 3 - 2, "soft_dtw": np.inf}
    assert not matches.any() and best_score == all_gaps.get(problem, 0.0)
    ones = np.ones((3, 4, 5))
    similarity = ones.copy()
    similarity[0, 1, 1], similarity[1, 2, 0], similarity[2, 0, 4] = np.nan, np.inf * sign, np.nan
    scores, matches = reference.best_alignment(problem, similarity, [(4, 5), (4, 5), (4, 4)])
    assert np.isnan(scores[:2]).all() and scores[2] == 4.0 and matches.sum((1, 2)).tolist() == [0, 0, 4]
    for name in PRICES[problem]:
        gap = np.full(ones.shape, -1.0)
        gap[0, 3, 4], gap[2, 3, 4] = np.nan, np.nan
        scores, matches = reference.best_alignment(problem, ones, [(4, 5), (4, 5), (3, 4)], **{name: gap})
        assert np.isnan(scores).tolist() == [True, False, False]
        assert matches.any((1, 2)).tolist() == [False, True, True]


def test_arguments_that_the_reference_does_not_know_are_errors():
    s = np.ones((3, 4))
    for call, error, text in (
        (lambda: reference.best_alignment("free_gap", s, gap=-1.0), TypeError, "free_gap takes no gap"),
        (lambda: reference.best_alignment("free_gap", s, temperature=1.0), TypeError, "takes no temperature"),
        (lambda: score("smith_waterman", s, gap=s[:1]), ValueError, r"gap must have shape .* \(3, 4\), got \(1, 4\)"),
        (lambda: reference.smith_waterman(s, end="both"), ValueError, "end must be 'any' or 'match', got 'both'"),
        (lambda: reference.needleman_wunsch(s, end_gaps="any"), ValueError, "end_gaps must be .*, got 'any'"),
    ):
        with pytest.raises(error, match=text):
            call()
