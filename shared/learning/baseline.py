"""What learning has to reach: BLOSUM62 with affine gaps, at a temperature.

    similarity = BLOSUM62 / temperature      gap = gap / temperature

for the models align at temperature 1. A grid search found these gaps and this temperature the best for soft alignments
of the bundled training families.
"""

import numpy as np
from numpy.typing import NDArray

from shared.learning.families import ALPHABET
from shared.learning.weights import Weights, raw_gap
from shared.sequences import substitution_matrix

GAP_OPEN, GAP_EXTEND, TEMPERATURE = -14.0, -1.5, 3.0  # in BLOSUM62's half bits


def blosum() -> NDArray[np.float64]:
    """BLOSUM62 in the order of ALPHABET, (20, 20)."""
    matrix = substitution_matrix("BLOSUM62")
    order = [matrix.alphabet.index(letter) for letter in ALPHABET]
    return np.array(matrix.scores, np.float64)[np.ix_(order, order)]


def blosum_weights() -> Weights:
    """The weights of a "matrix" model that aligns by BLOSUM62."""
    return {
        "matrix": blosum() / TEMPERATURE,
        "gap_open": raw_gap(GAP_OPEN / TEMPERATURE),
        "gap_extend": raw_gap(GAP_EXTEND / TEMPERATURE),
    }
