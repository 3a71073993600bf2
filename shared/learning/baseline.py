"""What learning has to beat: BLOSUM62 with the affine gaps that align the training families best.

    similarity = BLOSUM62 / temperature      gap = gap / temperature

which is a temperature, as the models align at temperature 1. Best means the highest quality, of all choices of a grid;
exact and soft alignments have one each. Exact ones know no temperature.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.learning.batches import Packed
from shared.learning.families import ALPHABET
from shared.learning.quality import measure, quality
from shared.learning.weights import Weights, raw_gap
from shared.sequences import substitution_matrix


class Choice(NamedTuple):
    """Gaps and temperature, in BLOSUM62's half bits."""

    gap_open: float
    gap_extend: float
    temperature: float


# The best choices on the bundled families, all or all but some, lie inside.
GRID = {
    "exact": [
        Choice(*gaps, 1.0) for gaps in itertools.product((-6, -8, -10, -12, -14, -17), (-0.2, -0.5, -1, -1.5, -2))
    ],
    "soft": [
        Choice(*point) for point in itertools.product((-6, -8, -10, -12, -14), (-0.5, -1, -1.5), (1, 1.5, 2, 2.5, 3))
    ],
}


class Likeness(NamedTuple):
    """How a learned matrix relates to BLOSUM62."""

    correlation: float  # Pearson's, over the 210 distinct entries
    off_diagonal: float  # the same over the 190 of two different residues
    scale: float  # the matrix as a multiple of BLOSUM62: least squares, through the origin


def blosum() -> NDArray[np.float64]:
    """BLOSUM62 in the order of ALPHABET, (20, 20)."""
    matrix = substitution_matrix("BLOSUM62")
    order = [matrix.alphabet.index(letter) for letter in ALPHABET]
    return np.array(matrix.scores, np.float64)[np.ix_(order, order)]


def weights_of(choice: Choice) -> Weights:
    """The weights of a "matrix" model that aligns by it."""
    return {
        "matrix": blosum() / choice.temperature,
        "gap_open": raw_gap(choice.gap_open / choice.temperature),
        "gap_extend": raw_gap(choice.gap_extend / choice.temperature),
    }


def grid_qualities(trainer: Any, batches: Sequence[Packed], way: str) -> list[float]:
    """The quality with each choice of GRID[way]. trainer: of a "matrix" model; its weights are lost."""
    found = []
    for choice in GRID[way]:
        trainer.set_weights(weights_of(choice))
        found.append(quality(measure(trainer, batches, exact=way == "exact")))
    return found


def best_choice(grids: Sequence[Sequence[float]], way: str) -> Choice:
    """That with the best quality on average; grids: what grid_qualities gave of each family."""
    return GRID[way][int(np.mean(grids, axis=0).argmax())]


def against_blosum(matrix: NDArray[np.float64]) -> Likeness:
    """Of a learned matrix (20, 20), symmetric."""
    own = blosum()
    entries, different = np.triu_indices(len(own)), np.triu_indices(len(own), 1)
    correlation, off_diagonal = (float(np.corrcoef(matrix[at], own[at])[0, 1]) for at in (entries, different))
    return Likeness(correlation, off_diagonal, float((matrix[entries] @ own[entries]) / (own[entries] @ own[entries])))
