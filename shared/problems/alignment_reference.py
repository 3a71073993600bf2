"""The reference results of an alignment, against which the gate compares: by NumPy, on some pairs of the input.

The reference walks cells in Python, so it covers about CELLS cells: the shortest pair, the longest, then others drawn
by seed. A pair of more than WHOLE cells is cut to a corner of CELLS. The results then say so: a worker proves a float64
run of a variant on the corners, and gates the full pairs against that run.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from shared import reference
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.problem import UnusableInput
from shared.variants import PATH

CELLS, WHOLE = 200_000, 512 * 512


class ReferenceResults(NamedTuple):
    """The reference's values for some pairs of an input. Float64; matrices are zero outside the lengths."""

    pairs: np.ndarray  # (n,) which pairs of the batch
    lengths: np.ndarray  # (n, 2) their lengths, cut where a pair is too large
    is_cut: bool
    largest: np.ndarray  # (n,) max|h|
    score: np.ndarray  # (n,)
    marginals: np.ndarray  # (n, rows, cols); rows and cols of the longest lengths here
    hvp: np.ndarray | None  # (n, rows, cols), if it was asked for
    path: np.ndarray | None  # (n,) scores of the best alignments, if they were asked for


def reference_results(
    problem: str, inputs: AlignmentInputs, passes: Collection[str], cells: int = CELLS, whole: int = WHOLE
) -> ReferenceResults:
    """Compute the reference for as many pairs of `inputs` as the number of cells allows, at least one.

    whole: cells of a pair that is not cut. Raises UnusableInput where best alignments are asked for of larger ones: one
    of a corner says nothing of that of the pair.
    """
    pairs, lengths, is_cut = _choose(inputs, cells, whole)
    if is_cut and PATH in passes:
        raise UnusableInput(
            f"{PATH} takes pairs of up to {whole:,} cells: the reference finds no larger best alignment"
        )
    corner = (pairs, slice(lengths[:, 0].max()), slice(lengths[:, 1].max()))
    gaps = {name: batched(gap)[corner] for name, gap in inputs.gaps.items()}
    arguments = {**inputs.keywords, **gaps}
    pairs_given = (batched(inputs.similarity)[corner], lengths)
    hvp = path = None
    if "hvp" in passes:
        weights = batched(inputs.weights)[corner]
        hvp = reference.hessian_vector_product(problem, pairs_given[0], weights, lengths, **arguments)["similarity"]
    if PATH in passes:
        path = best_alignments(problem, *pairs_given, arguments)[0]
    return ReferenceResults(
        pairs,
        lengths,
        is_cut,
        reference.largest_state(problem, *pairs_given, **arguments),
        getattr(reference, problem)(*pairs_given, **arguments),
        reference.gradients(problem, *pairs_given, **arguments)["similarity"],
        hvp,
        path,
    )


def best_alignments(
    problem: str, similarity: np.ndarray, lengths: np.ndarray | None, arguments: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Scores and matches of the best alignments, which take no temperature."""
    untempered = {name: value for name, value in arguments.items() if name != "temperature"}
    return reference.best_alignment(problem, similarity, lengths, **untempered)


def batched(array: np.ndarray) -> np.ndarray:
    """A single pair's matrix as a batch of one."""
    return array if array.ndim == 3 else array[None]


def _choose(inputs: AlignmentInputs, cells: int, whole: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """The numbers of some pairs, their lengths, and whether one of them is cut."""
    full = inputs.pair_lengths.astype(np.int64)
    side = int(cells**0.5)
    # a corner of at most `cells` cells: a long thin pair keeps its short side
    rows = np.minimum(full[:, 0], np.maximum(side, cells // np.maximum(full[:, 1], 1)))
    cols = np.minimum(full[:, 1], np.maximum(1, cells // np.maximum(rows, 1)))
    work = full.prod(axis=1)
    cut = np.where(work[:, None] <= whole, full, np.stack([rows, cols], axis=1))
    order = [int(work.argmin()), int(work.argmax()), *np.random.default_rng(inputs.seed).permutation(len(work))]
    chosen: list[int] = []
    spent = 0
    for pair in dict.fromkeys(int(pair) for pair in order):
        cost = int(cut[pair].prod())
        if not chosen or spent + cost <= cells or pair == order[1]:
            chosen.append(pair)
            spent += cost
    pairs = np.array(chosen)
    return pairs, cut[pairs], bool((cut[pairs] != full[pairs]).any())
