"""At a low temperature the smooth scores are those of an exact aligner, Biopython's.

So are, exactly, the scores of best alignments; and those of the reference, with gaps by axis, to the last match. The
smooth marginals are the average of all best alignments, those of the enumeration.

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
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple

import numpy as np
import pytest
from Bio.Align import PairwiseAligner, substitution_matrices
from enumeration import GLOBAL, PRICES, best_matches, number_of_alignments
from frameworks import PROBLEMS, Inputs, Result, axes_of, packed, run
from test_best_alignment import TORCH_AND_A_CASE_OF_JAX, best

from shared import reference
from shared.alignments import COLS, FREE, ROWS, of_axis
from shared.sequences import GLOBINS, Record, pair_batch, read_fasta, substitution_matrix

TEMPERATURE = 1e-3
AMINO_ACIDS = "ARNDCQEGHILKMFPSTWYV"
BLOSUM62 = substitution_matrices.load("BLOSUM62")

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
    "needleman_wunsch_affine": AFFINE_GAPS,
}


CASES = [(problem, options) for problem, described in PROBLEMS.items() for options in described.options]
# those that Biopython computes too: there a gap always opens anew after one in the other direction
EXACT_CASES = [case for case in CASES if case[0] in WHOLE_GAPS and case[1].get("penalize_turns", True)]
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


class Settings(NamedTuple):
    """The settings of Biopython's aligner."""

    mode: str
    prices: tuple[tuple[float, float], ...]  # of the first and of further gap positions along the row; along the column
    is_free: tuple[bool, ...]  # whether gaps at the ends are, along the row; along the column


def settings_of(problem: str, options: dict[str, Any], gaps: dict[str, float]) -> Settings:
    named = [[gaps.get(of_axis(name, k), gaps.get(name, 0)) for name in PRICES[problem]] or [0] for k in (ROWS, COLS)]
    is_free = tuple(options.get("end_gaps") in ("free", FREE[k]) for k in (ROWS, COLS))
    return Settings(
        "global" if problem in GLOBAL else "local", tuple((prices[0], prices[-1]) for prices in named), is_free
    )


def biopython(settings: Settings, matrix: Any = BLOSUM62) -> PairwiseAligner:
    aligner = PairwiseAligner(mode=settings.mode, substitution_matrix=matrix, epsilon=1e-9)
    for name, (start, extend), is_free in zip(("insertion", "deletion"), *settings[1:], strict=True):
        setattr(aligner, f"open_{name}_score", start)
        setattr(aligner, f"extend_{name}_score", extend)
        if is_free:
            setattr(aligner, f"end_{name}_score", 0.0)
    return aligner


def worth(settings: Settings, matches: np.ndarray, similarity: np.ndarray) -> float:
    """The worth of the best alignment with these matches; a gap opens anew after another."""
    total, cells = similarity[matches].sum(), [tuple(cell) for cell in np.argwhere(matches)]
    ends = [(-1, -1), similarity.shape]
    corners = [ends[0], *cells, ends[1]] if settings.mode == "global" else cells
    for before, after in pairwise(corners):
        costs = []
        for axis, (first, further) in enumerate(settings.prices):
            length = int(after[1 - axis] - before[1 - axis]) - 1
            assert length >= 0, "matches cross"
            costs.append(first + (length - 1) * further if length else 0)
        is_free = settings.is_free if before == ends[0] or after == ends[1] else (False, False)
        if all(is_free) and cells:  # only the first of two gaps before the first match is along the border
            total += max(costs)
        else:
            total += sum(cost for cost, free in zip(costs, is_free, strict=True) if not free)
    return float(total)


@functools.cache
def exact_scores(pairs: str, settings: Settings) -> np.ndarray:
    aligner = biopython(settings)
    return np.array([aligner.score(*pair) for pair in pairs_of(pairs).letters])


@functools.cache
def logarithms_of_numbers(pairs: str, problem: str, options: tuple[tuple[str, Any], ...]) -> np.ndarray:
    """log(number of alignments) of each pair, or more; 0 where there is none, as the score is then."""
    counted = {} if dict(options).get("end_gaps", "cost") != "cost" else dict(options)
    numbers = [number_of_alignments(problem, *map(int, sizes), **counted) for sizes in pairs_of(pairs).lengths]
    return np.array([math.log(max(number, 1)) for number in numbers])


@pytest.mark.parametrize(
    ("framework", "pairs", "problem", "options", "gaps"),
    [
        pytest.param("jax", "globins", problem, PROBLEMS[problem].options[0], gaps, marks=[pytest.mark.slow] * bool(at))
        for at, (problem, (gaps, *_)) in enumerate(WHOLE_GAPS.items())  # its machine code is PyTorch's
    ]
    + [
        ("torch", pairs, *case, gaps)
        for pairs, case in product(["globins", "random"], EXACT_CASES)
        for gaps in WHOLE_GAPS[case[0]]
    ],
    ids=str,
)
def test_smooth_and_best_scores_are_those_of_biopython(framework, pairs, problem, options, gaps):
    _, similarity, lengths = pairs_of(pairs)
    settings = settings_of(problem, options, gaps)
    scores, matches = best(framework, problem, similarity, lengths, "float32", **gaps, **options)
    for score, matched, matrix, (rows, cols) in zip(scores, matches, similarity, lengths, strict=True):
        assert worth(settings, matched[:rows, :cols], matrix[:rows, :cols]) == score
        assert not matched[rows:].any() and not matched[:, cols:].any()

    # a smooth score is above by less than all alignments can add
    got = smooth(framework, problem, options, similarity, lengths, gaps).score
    can_add = TEMPERATURE * logarithms_of_numbers(pairs, problem, tuple(options.items()))
    assert can_add.max() < 0.5  # scores are integers: what is between the bounds is one of them
    exact = exact_scores(pairs, settings)
    counted = exact > [exact_only(problem, options, matrix) for matrix in similarity]
    assert counted.sum() >= {"globins": 120, "random": 500}[pairs]
    np.testing.assert_array_equal(scores[counted], exact[counted])
    assert (scores <= exact).all()
    rounding = 1e-9 * np.maximum(1.0, np.abs(exact))
    above = got - exact
    assert (above[counted] >= -rounding[counted]).all()
    assert (above <= can_add + rounding).all()


REAL_PRICES = {"gap": -0.7, "gap_open": -1.9, "gap_extend": -0.6}
WHOLE_PRICES = {"gap": -1.0, "gap_open": -2.0, "gap_extend": -1.0}


def small_pairs(whole: bool) -> tuple[np.ndarray, np.ndarray]:
    """Matrices of few cells that are worth matching, so that gaps, and gaps that meet, are worth their price."""
    random = np.random.default_rng(4)
    similarity = random.choice([-3.0, -3.0, 1.0, 4.0], size=(60, 4, 5))
    between = 0.0 if whole else random.uniform(-0.5, 0.5, size=similarity.shape)
    return similarity + between, np.array([(3, 4), (4, 4), (4, 5)] * 20, dtype=np.int32)


def traceback(settings: Settings, similarity: np.ndarray) -> tuple[float, np.ndarray]:
    """Biopython's score and first alignment: 1 for each pair of letters, each letter standing for its position."""
    rows, cols = similarity.shape
    first, second = "ABCDEFGHI"[:rows], "RSTUVWXYZ"[:cols]
    matrix = substitution_matrices.Array(first + second, dims=2)
    for i, letter in enumerate(first):
        for j, other in enumerate(second):
            matrix[letter, other] = similarity[i, j]
    matches = np.zeros(similarity.shape)
    found = biopython(settings, matrix).align(first, second)
    for (start, end), (other_start, _) in zip(*found[0].aligned, strict=True):
        for k in range(end - start):
            matches[start + k, other_start + k] = 1.0
    return found.score, matches


@EVERY_EXACT
def test_single_best_alignments_of_the_reference_are_those_of_biopython(problem, options):
    similarity, lengths = small_pairs(whole=False)
    random = np.random.default_rng(9)
    single = 0
    for padded, (rows, cols) in zip(similarity, lengths, strict=True):
        # to open costs more than to extend: or gaps that turn, and turn again, would be worth more than long ones
        gaps = {name: REAL_PRICES[name.split("[")[0]] + random.uniform(-0.5, 0.5) for name in axes_of(*PRICES[problem])}
        pair, settings = padded[:rows, :cols], settings_of(problem, options, gaps)
        score, matches = reference.best_alignment(problem, pair, **packed(gaps), **options)
        _, best_worth, ahead = best_matches(problem, pair, gaps, options)
        if best_worth < exact_only(problem, options, pair):
            continue
        exact, expected = traceback(settings, pair)
        assert score == pytest.approx(exact, abs=1e-9)
        assert score == pytest.approx(worth(settings, matches, pair), abs=1e-9)
        if ahead > 1e-9:
            single += 1
            np.testing.assert_array_equal(matches, expected)
    assert single >= 40


def exact_only(problem: str, options: dict[str, Any], similarity: np.ndarray) -> float:
    """The best of what Biopython counts and ours does not."""
    if problem in GLOBAL:
        return -np.inf
    return 0.0 if options.get("end") == "any" else max(0.0, similarity.max())


@TORCH_AND_A_CASE_OF_JAX
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
