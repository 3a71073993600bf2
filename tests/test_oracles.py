"""At a low temperature the smooth scores and marginals are those of an exact aligner, Biopython's.

So are, exactly, the scores of best alignments.

    0 <= smooth - exact <= temperature * log(number of alignments)

because exp(smooth / T) is a sum over all alignments in which the best one is the largest term. The exact aligner counts
more local alignments: one without a match, worth 0, and with a single match. So the left side is asked for where the
exact score shows that the best has enough matches: above 0 it has one, and above the largest similarity two, gaps being
negative. The right side holds for every pair.

In both a gap along one sequence may follow one along the other, and opens anew (penalize_turns=True); ours may leave
one order (restrict_turns=True), which is worth the same. Open is the first position, extend each further one.
"""

import functools
import math
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pytest
from Bio.Align import PairwiseAligner, substitution_matrices
from enumeration import PRICES, best_matches, number_of_alignments
from frameworks import FRAMEWORKS, PROBLEMS, Inputs, Result, run
from test_best_alignment import best, worth

from shared.sequences import GLOBINS, Record, pair_batch, read_fasta, substitution_matrix

TEMPERATURE = 1e-3
AMINO_ACIDS = "ARNDCQEGHILKMFPSTWYV"
BLOSUM62 = substitution_matrices.load("BLOSUM62")
ALONE_BY = 30 * TEMPERATURE  # what lies this far below the best has a weight of less than 1e-12

LINEAR_GAPS = ({"gap": -1}, {"gap": -4})
AFFINE_GAPS = (
    {"gap_open": -3, "gap_extend": -1},
    {"gap_open": -11, "gap_extend": -1},
    {"gap_open": -5, "gap_extend": -5},
)
WHOLE_GAPS = {
    "smith_waterman": LINEAR_GAPS,
    "smith_waterman_affine": AFFINE_GAPS,
    "free_gap": ({},),
    "needleman_wunsch": LINEAR_GAPS,
}


CASES = [(problem, options) for problem, described in PROBLEMS.items() for options in described.options]
# those that Biopython computes too: there a gap always opens anew after one in the other direction
EXACT_CASES = [case for case in CASES if case[0] in WHOLE_GAPS and case[1].get("penalize_turns", True)]
BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)
EVERY = pytest.mark.parametrize(("problem", "options"), CASES, ids=str)
EVERY_EXACT = pytest.mark.parametrize(("problem", "options"), EXACT_CASES, ids=str)


class Pairs(NamedTuple):
    """Pairs of proteins, and the same as one padded batch."""

    letters: list[tuple[str, str]]
    similarity: np.ndarray  # (batch, rows, cols)
    lengths: np.ndarray  # (batch, 2)


@functools.cache
def pairs_of(name: str) -> Pairs:
    if name == "globins":
        records = read_fasta(GLOBINS)
        chosen = list(combinations(range(len(records)), 2))
    else:
        random = np.random.default_rng(62)
        lengths = random.integers(2, 61, size=(1200,))
        records = [Record(str(k), "".join(random.choice(list(AMINO_ACIDS), size=n))) for k, n in enumerate(lengths)]
        chosen = [(k, k + 1) for k in range(0, len(records), 2)]
    similarity, lengths, _ = pair_batch(records, chosen, substitution_matrix("BLOSUM62"), name)
    letters = [(records[first].letters, records[second].letters) for first, second in chosen]
    return Pairs(letters, similarity.astype(np.float64), lengths)


def smooth(
    framework: str, problem: str, options: dict[str, Any], similarity: np.ndarray, lengths: np.ndarray, gaps: dict
) -> Result:
    """Scores and marginals at the low temperature, in float64."""
    parameters = {name: np.asarray(value, np.float64) for name, value in (gaps | {"temperature": TEMPERATURE}).items()}
    inputs = Inputs(similarity, lengths, parameters, np.ones(len(similarity)))
    return run(framework, inputs, "float64", how="quick" if framework == "jax" else "eager", problem=problem, **options)


def biopython(mode: str, start: float, extend: float, matrix: Any = BLOSUM62) -> PairwiseAligner:
    return PairwiseAligner(
        mode=mode, substitution_matrix=matrix, open_gap_score=start, extend_gap_score=extend, epsilon=1e-9
    )


def mode_and_gaps(problem: str, gaps: dict[str, Any]) -> tuple[str, Any, Any]:
    """Settings of Biopython's aligner: mode, cost of the first and of further gap positions."""
    mode = "local" if problem.startswith("smith_waterman") else "global"
    prices = tuple(gaps.values()) or (0,)
    return mode, prices[0], prices[-1]


@functools.cache
def exact_scores(pairs: str, mode: str, start: int, extend: int) -> np.ndarray:
    aligner = biopython(mode, start, extend)
    return np.array([aligner.score(*pair) for pair in pairs_of(pairs).letters])


@functools.cache
def logarithms_of_numbers(pairs: str, problem: str, options: tuple[tuple[str, Any], ...]) -> np.ndarray:
    """log(number of alignments) of each pair; 0 where there is none, as the score is then."""
    numbers = [number_of_alignments(problem, *map(int, sizes), **dict(options)) for sizes in pairs_of(pairs).lengths]
    return np.array([math.log(max(number, 1)) for number in numbers])


# --- scores ---


@BOTH
@pytest.mark.parametrize("pairs", ["globins", "random"])
@pytest.mark.parametrize(
    ("problem", "options", "gaps"),
    [(problem, options, gaps) for problem, options in EXACT_CASES for gaps in WHOLE_GAPS[problem]],
    ids=str,
)
def test_smooth_and_best_scores_are_those_of_biopython(framework, pairs, problem, options, gaps):
    _, similarity, lengths = pairs_of(pairs)
    scores, matches = best(framework, problem, similarity, lengths, "float32", **gaps, **options)
    for score, matched, matrix, (rows, cols) in zip(scores, matches, similarity, lengths, strict=True):
        assert worth(problem, matched[:rows, :cols], matrix[:rows, :cols], gaps) == score
        assert not matched[rows:].any() and not matched[:, cols:].any()

    # a smooth score is above by less than all alignments can add
    got = smooth(framework, problem, options, similarity, lengths, gaps).score
    can_add = TEMPERATURE * logarithms_of_numbers(pairs, problem, tuple(options.items()))
    assert can_add.max() < 0.5  # scores are integers: what is between the bounds is one of them
    exact = exact_scores(pairs, *mode_and_gaps(problem, gaps))
    counted = best_is_counted(problem, options, exact, similarity)
    assert counted.sum() >= {"globins": 120, "random": 500}[pairs]
    np.testing.assert_array_equal(scores[counted], exact[counted])
    assert (scores <= exact).all()
    rounding = 1e-9 * np.maximum(1.0, np.abs(exact))
    above = got - exact
    assert (above[counted] >= -rounding[counted]).all()
    assert (above <= can_add + rounding).all()


def best_is_counted(problem: str, options: dict[str, Any], exact: np.ndarray, similarity: np.ndarray) -> np.ndarray:
    """Whether the best alignment has as many matches as ours must have: none (global), one, or two."""
    if problem in ("free_gap", "needleman_wunsch"):
        return np.ones(exact.shape, dtype=bool)
    if options.get("end") == "any":
        return exact > 0
    return exact > similarity.max(axis=(1, 2))


# --- marginals ---

REAL_PRICES = {"gap": -0.7, "gap_open": -1.9, "gap_extend": -0.6}
WHOLE_PRICES = {"gap": -1.0, "gap_open": -2.0, "gap_extend": -1.0}


def small_pairs(whole: bool) -> tuple[np.ndarray, np.ndarray]:
    """Matrices of few cells that are worth matching, so that gaps, and gaps that meet, are worth their price."""
    random = np.random.default_rng(4)
    similarity = random.choice([-3.0, -3.0, 1.0, 4.0], size=(60, 4, 5))
    between = 0.0 if whole else random.uniform(-0.5, 0.5, size=similarity.shape)
    return similarity + between, np.array([(3, 4), (4, 4), (4, 5)] * 20, dtype=np.int32)


def traceback(aligner_arguments: tuple[str, float, float], similarity: np.ndarray) -> np.ndarray:
    """The matches of Biopython's first alignment: 1 for each pair of letters, each letter standing for its position."""
    rows, cols = similarity.shape
    first, second = "ABCDEFGHI"[:rows], "RSTUVWXYZ"[:cols]
    matrix = substitution_matrices.Array(first + second, dims=2)
    for i, letter in enumerate(first):
        for j, other in enumerate(second):
            matrix[letter, other] = similarity[i, j]
    matches = np.zeros(similarity.shape)
    blocks = biopython(*aligner_arguments, matrix=matrix).align(first, second)[0].aligned
    for (start, end), (other_start, _) in zip(*blocks, strict=True):
        for k in range(end - start):
            matches[start + k, other_start + k] = 1.0
    return matches


@BOTH
@EVERY_EXACT
def test_marginals_of_a_single_best_alignment_are_its_traceback(framework, problem, options):
    similarity, lengths = small_pairs(whole=False)
    gaps = {name: REAL_PRICES[name] for name in PRICES[problem]}
    got = smooth(framework, problem, options, similarity, lengths, gaps).gradients["similarity"]
    single = 0
    for marginals, padded, (rows, cols) in zip(got, similarity, lengths, strict=True):
        pair = padded[:rows, :cols]
        _, worth, ahead = best_matches(problem, pair, gaps, options)
        if ahead < ALONE_BY or worth < exact_only(problem, options, pair) + ALONE_BY:
            continue
        single += 1
        expected = np.zeros(padded.shape)
        expected[:rows, :cols] = traceback(mode_and_gaps(problem, gaps), pair)
        np.testing.assert_allclose(marginals, expected, rtol=0, atol=1e-6)
    assert single >= 48


def exact_only(problem: str, options: dict[str, Any], similarity: np.ndarray) -> float:
    """The best of what Biopython counts and ours does not."""
    if problem in ("free_gap", "needleman_wunsch"):
        return -np.inf
    return 0.0 if options.get("end") == "any" else max(0.0, similarity.max())


@BOTH
@EVERY
def test_marginals_of_several_best_alignments_are_their_average(framework, problem, options):
    similarity, lengths = small_pairs(whole=True)
    gaps = {name: WHOLE_PRICES[name] for name in PRICES[problem]}
    got = smooth(framework, problem, options, similarity, lengths, gaps).gradients["similarity"]
    tied = 0
    for marginals, padded, (rows, cols) in zip(got, similarity, lengths, strict=True):
        average, _, ahead = best_matches(problem, padded[:rows, :cols], gaps, options)
        tied += ahead == 0.0
        np.testing.assert_allclose(marginals[:rows, :cols], average, rtol=0, atol=1e-6)
        assert marginals.sum() == pytest.approx(average.sum(), abs=1e-6)
    assert tied >= 15
