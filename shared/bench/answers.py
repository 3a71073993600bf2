"""What every result is gated against: the NumPy reference on some pairs of the input, computed once, kept in a file.

The reference walks cells in Python, so it covers about CELLS cells: the shortest pair, the longest, then others drawn
by seed. A pair that is larger than that by itself is cut to a corner that fits. The answer then says so: a worker
proves a float64 run of a variant on the corners, and gates the full pairs against that run.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from shared import reference
from shared.problems import Inputs

CELLS = 200_000


class Answer(NamedTuple):
    """Reference values for some pairs of an input. Float64."""

    pairs: np.ndarray  # (n,) which pairs of the batch
    lengths: np.ndarray  # (n, 2) their lengths, cut where a pair is too large
    is_cut: bool
    scores: np.ndarray  # (n,)
    marginals: np.ndarray  # (n, rows, cols), zero outside the lengths; rows and cols of the longest lengths here


def answer(problem: str, inputs: Inputs, seed: int, cells: int = CELLS) -> Answer:
    """Compute the reference for as many pairs of `inputs` as the number of cells allows, at least one."""
    full = inputs.pair_lengths.astype(np.int64)
    side = int(cells**0.5)
    # a corner of at most `cells` cells: a long thin pair keeps its short side
    rows = np.minimum(full[:, 0], np.maximum(side, cells // np.maximum(full[:, 1], 1)))
    cols = np.minimum(full[:, 1], np.maximum(1, cells // np.maximum(rows, 1)))
    cut = np.stack([rows, cols], axis=1)
    work = full.prod(axis=1)
    order = [int(work.argmin()), int(work.argmax()), *np.random.default_rng(seed).permutation(len(work))]
    chosen: list[int] = []
    spent = 0
    for pair in dict.fromkeys(int(pair) for pair in order):
        cost = int(cut[pair].prod())
        if not chosen or spent + cost <= cells or pair == order[1]:
            chosen.append(pair)
            spent += cost
    pairs = np.array(chosen)
    lengths = cut[pairs]
    matrices = inputs.similarity if inputs.similarity.ndim == 3 else inputs.similarity[None]
    corner = matrices[pairs, : lengths[:, 0].max(), : lengths[:, 1].max()]
    found = reference.gradients(problem, corner, lengths, **inputs.parameters, **inputs.options)
    scores = getattr(reference, problem)(corner, lengths, **inputs.parameters, **inputs.options)
    return Answer(pairs, lengths, bool((lengths != full[pairs]).any()), scores, found["similarity"])


def save(answer: Answer, path: Path) -> None:
    """Write to an .npz file."""
    np.savez(path, allow_pickle=False, **answer._asdict())


def load(path: Path) -> Answer:
    """Read what `save` wrote."""
    with np.load(path) as stored:
        arrays = dict(stored)
    return Answer(**arrays)._replace(is_cut=bool(arrays["is_cut"]))
