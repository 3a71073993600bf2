"""The best alignments are worth exactly what Biopython and parasail find, on the globins and on random proteins."""

import numpy as np
import pytest
from frameworks import FRAMEWORKS
from test_best_alignment import best, worth
from test_oracles import EXACT_CASES, WHOLE_GAPS, best_is_counted, exact_scores, mode_and_gaps, named, pairs_of


@pytest.mark.parametrize("pairs", ["globins", "random"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("problem", "options", "gaps"),
    [named(problem, options, gaps) for problem, options in EXACT_CASES for gaps in WHOLE_GAPS[problem]],
)
def test_scores_are_exactly_those_of_exact_aligners(framework, pairs, problem, options, gaps):
    _, similarity, lengths = pairs_of(pairs)
    scores, matches = best(framework, problem, similarity, lengths, "float32", **gaps, **options)
    for oracle in ("Biopython", "parasail"):
        exact = exact_scores(oracle, pairs, *mode_and_gaps(problem, gaps))
        counted = best_is_counted(problem, options, exact, similarity)
        assert counted.sum() >= {"globins": 120, "random": 500}[pairs]
        np.testing.assert_array_equal(scores[counted], exact[counted], oracle)
        assert (scores <= exact).all()
    for score, own, matrix, (rows, cols) in zip(scores, matches, similarity, lengths, strict=True):
        assert worth(problem, options, own[:rows, :cols], matrix[:rows, :cols], gaps) == score
        assert not own[rows:].any() and not own[:, cols:].any()
