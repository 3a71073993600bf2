"""Local alignment with an affine gap, smoothed, cell by cell in float64: smith_waterman_affine.

Three states per cell: A ends in a match, R in a gap along the row, D in a gap along the column.

    A(i,j) = s(i,j) + smax( 0, A(i-1,j-1), R(i-1,j-1), D(i-1,j-1) )
    R(i,j) = smax( A(i,j-1) + open, R(i,j-1) + extend, D(i,j-1) + turn )      the last one only if not restrict_turns
    D(i,j) = smax( A(i-1,j) + open, R(i-1,j) + turn, D(i-1,j) + extend )
    turn = open if penalize_turns, else extend
    score = smax over i >= 1, j >= 1 and the states X of X(i-1,j-1) + s(i,j)

A gap of length k costs open + (k-1) * extend. Either may also be a matrix like the similarity: a step into a cell then
costs what that has there. At T = 0 the maximum goes to the first of the largest, in the order above. The backward
recurrence walks the cells in the opposite order, as in local_linear. Source of the recurrence: Petti et al. 2021,
doi:10.1101/2021.10.23.465204.
"""

from math import isinf

import numpy as np

from shared.reference.gaps import Gap, as_given, in_each_cell
from shared.reference.smooth import entropy, smooth_maximum, weights

OUTSIDE = -np.inf


class _Costs:
    """The cost of a step into each cell, by what comes before it."""

    def __init__(
        self, shape: tuple[int, ...], gap_open: Gap, gap_extend: Gap, restrict_turns: bool, penalize_turns: bool
    ) -> None:
        self.open = in_each_cell(gap_open, shape)  # a match
        self.extend = in_each_cell(gap_extend, shape)  # a gap in the same direction
        self.turn = self.open if penalize_turns else self.extend  # a gap along the row before one along the column
        self.restricts = restrict_turns  # a gap along the column never comes before one along the row


def score(
    similarity: np.ndarray,
    *,
    gap_open: Gap,
    gap_extend: Gap,
    temperature: float,
    restrict_turns: bool,
    penalize_turns: bool,
) -> float:
    """Score of one pair. similarity: float64 (rows, cols), each at least 0; gaps: numbers, or (rows, cols).

    -inf without an alignment: where there are too few rows or columns, or all is forbidden.
    """
    costs = _Costs(similarity.shape, gap_open, gap_extend, restrict_turns, penalize_turns)
    endings = _endings(similarity, _fill(similarity, costs, temperature))
    return smooth_maximum([x for triple in endings.values() for x in triple], temperature) if endings else OUTSIDE


def gradients(
    similarity: np.ndarray,
    *,
    gap_open: Gap,
    gap_extend: Gap,
    temperature: float,
    restrict_turns: bool,
    penalize_turns: bool,
) -> dict[str, np.ndarray | float]:
    """Exact derivatives of `score`: similarity (rows, cols), the gaps (as they are given) and temperature."""
    rows, cols = similarity.shape
    costs = _Costs(similarity.shape, gap_open, gap_extend, restrict_turns, penalize_turns)
    _, r, d = states = _fill(similarity, costs, temperature)
    to_similarity, to_open, to_extend = np.zeros((3, rows, cols))
    to_turn = to_open if penalize_turns else to_extend
    to_temperature = 0.0
    to_a, to_r, to_d = to_states = [np.zeros((rows + 1, cols + 1)).tolist() for _ in states]

    endings = _endings(similarity, states)
    values = [x for triple in endings.values() for x in triple]
    if endings:
        end_weights = weights(values, smooth_maximum(values, temperature), temperature)
        to_temperature += entropy(end_weights)
        for number, (i, j) in enumerate(endings):
            own_weights = end_weights[3 * number : 3 * number + 3]
            to_similarity[i, j] += sum(own_weights)
            for to_state, weight in zip(to_states, own_weights, strict=True):
                to_state[i][j] += weight

    for i in reversed(range(rows)):
        for j in reversed(range(cols)):
            v = to_a[i + 1][j + 1]
            choices = _before_a_match(states, i, j)
            shares = weights(choices, smooth_maximum(choices, temperature), temperature)
            for to_state, share in zip(to_states, shares[1:], strict=True):
                to_state[i][j] += v * share
            to_similarity[i, j] += v
            to_temperature += v * entropy(shares)

            v = to_r[i + 1][j + 1]
            shares = weights(_along_the_row(states, i, j, costs), r[i + 1][j + 1], temperature)
            to_a[i + 1][j] += v * shares[0]
            to_r[i + 1][j] += v * shares[1]
            to_open[i, j] += v * shares[0]
            to_extend[i, j] += v * shares[1]
            if not restrict_turns:
                to_d[i + 1][j] += v * shares[2]
                to_turn[i, j] += v * shares[2]
            to_temperature += v * entropy(shares)

            v = to_d[i + 1][j + 1]
            shares = weights(_along_the_column(states, i, j, costs), d[i + 1][j + 1], temperature)
            to_a[i][j + 1] += v * shares[0]
            to_r[i][j + 1] += v * shares[1]
            to_d[i][j + 1] += v * shares[2]
            to_open[i, j] += v * shares[0]
            to_turn[i, j] += v * shares[1]
            to_extend[i, j] += v * shares[2]
            to_temperature += v * entropy(shares)
    return {
        "similarity": to_similarity,
        "gap_open": as_given(to_open, gap_open),
        "gap_extend": as_given(to_extend, gap_extend),
        "temperature": to_temperature,
    }


def largest(
    similarity: np.ndarray,
    *,
    gap_open: Gap,
    gap_extend: Gap,
    temperature: float,
    restrict_turns: bool,
    penalize_turns: bool,
) -> float:
    """The largest |state| of one pair, of those that an alignment can reach."""
    costs = _Costs(similarity.shape, gap_open, gap_extend, restrict_turns, penalize_turns)
    states = _fill(similarity, costs, temperature)
    return max((abs(x) for state in states for row in state for x in row if not isinf(x)), default=0.0)


def _before_a_match(states: tuple[list, list, list], i: int, j: int) -> list[float]:
    return [0.0, *(state[i][j] for state in states)]


def _along_the_row(states: tuple[list, list, list], i: int, j: int, costs: _Costs) -> list[float]:
    a, r, d = (state[i + 1][j] for state in states)
    choices = [a + costs.open[i][j], r + costs.extend[i][j]]
    return choices if costs.restricts else [*choices, d + costs.turn[i][j]]


def _along_the_column(states: tuple[list, list, list], i: int, j: int, costs: _Costs) -> list[float]:
    a, r, d = (state[i][j + 1] for state in states)
    return [a + costs.open[i][j], r + costs.turn[i][j], d + costs.extend[i][j]]


def _fill(similarity: np.ndarray, costs: _Costs, temperature: float) -> tuple[list, list, list]:
    """A, R and D, each one larger than s: X[i+1][j+1] belongs to cell (i, j), the first row and column lie outside."""
    rows, cols = similarity.shape
    s = similarity.tolist()
    a, r, d = (np.full((rows + 1, cols + 1), OUTSIDE).tolist() for _ in range(3))
    states = (a, r, d)
    for i in range(rows):
        for j in range(cols):
            a[i + 1][j + 1] = s[i][j] + smooth_maximum(_before_a_match(states, i, j), temperature)
            r[i + 1][j + 1] = smooth_maximum(_along_the_row(states, i, j, costs), temperature)
            d[i + 1][j + 1] = smooth_maximum(_along_the_column(states, i, j, costs), temperature)
    return a, r, d


def _endings(similarity: np.ndarray, states: tuple[list, list, list]) -> dict[tuple[int, int], list[float]]:
    """The scores of the alignments that end with the match at a cell, by the state before it."""
    rows, cols = similarity.shape
    s = similarity.tolist()
    cells = [(i, j) for i in range(1, rows) for j in range(1, cols)]
    return {(i, j): [state[i][j] + s[i][j] for state in states] for i, j in cells}
