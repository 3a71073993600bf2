"""What learning has to beat: BLOSUM62 with the affine gaps that align the training families best.

    similarity = BLOSUM62 / temperature      gap = gap / temperature

for the models align at temperature 1. Best means the highest quality of all choices of a grid, which exact and soft
alignments have one each of. Exact ones do not depend on a temperature.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.learning.families import ALPHABET, Family
from shared.learning.quality import measure, quality
from shared.learning.training import validation_batches
from shared.learning.weights import Weights, raw_gap
from shared.sequences import substitution_matrix


class Choice(NamedTuple):
    """Gaps and temperature, in BLOSUM62's half bits."""

    gap_open: float
    gap_extend: float
    temperature: float


# On the bundled families, whichever is left out, the best choice lies inside.
GRID = {
    "exact": [
        Choice(*gaps, 1.0)
        for gaps in itertools.product((-8.0, -10.0, -12.0, -14.0, -17.0), (-0.2, -0.5, -1.0, -1.5, -2.0))
    ],
    "soft": [
        Choice(*each)
        for each in itertools.product((-10.0, -12.0, -14.0, -17.0), (-0.5, -1.0, -1.5, -2.0), (1.5, 2.0, 2.5, 3.0, 3.5))
    ],
}
CELLS = 10_000_000  # of a family: with fewer than ten pairs of long sequences the best choice is a matter of luck


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


def grid_qualities(trainer: Any, family: Family, way: str) -> list[float]:
    """The quality on a family with each choice of GRID[way]. trainer: of a "matrix" model; its weights are lost."""
    batches, found = validation_batches([family], cells=CELLS), []
    for choice in GRID[way]:
        trainer.set_weights(weights_of(choice))
        found.append(quality(measure(trainer, batches, exact=way == "exact")))
    return found


def best_choice(grids: Sequence[Sequence[float]], way: str) -> Choice:
    """That with the best quality on average; grids: what grid_qualities gave of each family."""
    return GRID[way][int(np.mean(grids, axis=0).argmax())]


def at_edge(choice: Choice, way: str) -> bool:
    """Whether a better choice may lie outside the grid."""
    ranges = [sorted({*values}) for values in zip(*GRID[way], strict=True)]
    return any(value in (own[0], own[-1]) for value, own in zip(choice, ranges, strict=True) if len(own) > 1)


def against_blosum(matrix: NDArray[np.float64]) -> Likeness:
    """Of a learned matrix (20, 20), symmetric."""
    own = blosum()
    entries, different = np.triu_indices(len(own)), np.triu_indices(len(own), 1)
    correlation, off_diagonal = (float(np.corrcoef(matrix[at], own[at])[0, 1]) for at in (entries, different))
    return Likeness(correlation, off_diagonal, float((matrix[entries] @ own[entries]) / (own[entries] @ own[entries])))
