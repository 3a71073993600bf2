"""Alignment with an affine gap, smoothed, cell by cell in float64: smith_waterman_affine, needleman_wunsch_affine.

On a grid one larger than the similarity, where X[i][j] belongs to the alignments of the first i rows and j columns.
Three states: A ends in a match, R in a gap along the row, D in a gap along the column.

    A[i][j] = s[i-1][j-1] + smax( start, A[i-1][j-1], R[i-1][j-1], D[i-1][j-1] )
    R[i][j] = smax( A[i][j-1] + open, R[i][j-1] + extend, D[i][j-1] + turn )     the last one only if not restrict_turns
    D[i][j] = smax( A[i-1][j] + open, R[i-1][j] + turn, D[i-1][j] + extend )
    turn = open if penalize_turns, else extend

    local:  start = 0, nothing begins on the border; score = smax over i >= 1, j >= 1 and X of X[i][j] + s[i][j]
    global: no start, but A[0][0] = 0; score = smax over X of X[rows][cols]

A gap of length k costs open + (k-1) * extend. Each may be two, for R and for D, or a matrix like the similarity: a step
into a cell then costs what that has there, and one along the border nothing. Where end gaps along the row are free, an
alignment begins anywhere in the first row of the grid, with A = 0, and R[rows][j] is smax(A, R, D) of [rows][j-1], even
if restrict_turns; so it is with columns and D. At T = 0 the maximum goes to the first of the largest, in the order
above. The backward recurrence walks the cells in the opposite order, as in local_linear. Sources: Petti et al. 2021,
doi:10.1101/2021.10.23.465204; Gotoh 1982, doi:10.1016/0022-2836(82)90398-9.
"""

from math import inf, isinf
from typing import Any

import numpy as np

from shared.reference.gaps import COLS, ROWS, Gap, are_paid, as_given, of_steps
from shared.reference.smooth import entropy, smooth_maximum, weights

A, R, D = range(3)
LEADS_TO = (R, D)  # by the axis of a gap step


class _Pair:
    """One pair and its states. similarity: float64 (rows, cols), each at least 0; gaps: a number, two, or (rows, cols).

    Everything that follows belongs to a corner (i, j) of the grid.
    """

    def __init__(
        self,
        similarity: np.ndarray,
        *,
        gap_open: Gap,
        gap_extend: Gap,
        temperature: float,
        restrict_turns: bool,
        penalize_turns: bool,
        end_gaps: str = "cost",
        is_local: bool = False,
    ) -> None:
        self.rows, self.cols = similarity.shape
        self.s, self.is_local, self.temperature = similarity.tolist(), is_local, temperature
        self.paid = paid = are_paid(similarity.shape, end_gaps)
        first, further = of_steps(gap_open, paid), of_steps(gap_extend, paid)
        turn = first if penalize_turns else further
        to_r = np.where(paid[ROWS], -inf, 0.0) if restrict_turns else turn[ROWS]
        # what a gap step along an axis adds after each state
        self.costs = np.array([(first[ROWS], further[ROWS], to_r), (first[COLS], turn[COLS], further[COLS])]).tolist()
        begins = np.zeros((self.rows + 1, self.cols + 1), bool)  # where an alignment does, and no step leads
        begins[0, 0] = not is_local
        begins[0] |= ~paid[ROWS, 0]
        begins[:, 0] |= ~paid[COLS, :, 0]
        self.begins = begins.tolist()
        self.states = np.full((3, self.rows + 1, self.cols + 1), -inf).tolist()
        self._fill()

    def _fill(self) -> None:
        a = self.states[A]
        for i in range(self.rows + 1):
            for j in range(self.cols + 1):
                if self.begins[i][j]:
                    a[i][j] = 0.0
                    continue
                if i and j:
                    a[i][j] = self.s[i - 1][j - 1] + smooth_maximum(self.before_a_match(i, j), self.temperature)
                for axis in _axes(i, j):
                    choices = self.before_a_gap(axis, i, j)
                    self.states[LEADS_TO[axis]][i][j] = smooth_maximum(choices, self.temperature)

    def before_a_match(self, i: int, j: int) -> list[float]:
        """The values that a match may continue: a start's, and those of the states before it."""
        return [0.0 if self.is_local else -inf, *(state[i - 1][j - 1] for state in self.states)]

    def before_a_gap(self, axis: int, i: int, j: int) -> list[float]:
        """The states that a gap step along an axis may come after, with what it costs."""
        row, col = _before(axis, i, j)
        return [state[row][col] + cost[i][j] for state, cost in zip(self.states, self.costs[axis], strict=True)]

    def endings(self) -> dict[tuple[int, int], list[float]]:
        """The scores of the alignments that end here, or if local with the next match, by their states here."""
        if not self.is_local:
            return {(self.rows, self.cols): [state[-1][-1] for state in self.states]}
        corners = [(i, j) for i in range(1, self.rows) for j in range(1, self.cols)]
        return {(i, j): [state[i][j] + self.s[i][j] for state in self.states] for i, j in corners}


def score(similarity: np.ndarray, **arguments: Any) -> float:
    """Score of one pair, with the arguments of `_Pair`.

    -inf without an alignment: where there are too few rows or columns for a local one, or all is forbidden.
    """
    pair = _Pair(similarity, **arguments)
    values = [x for triple in pair.endings().values() for x in triple]
    return smooth_maximum(values, pair.temperature) if values else -inf


def gradients(similarity: np.ndarray, **arguments: Any) -> dict[str, np.ndarray | float]:
    """Exact derivatives of `score`: similarity (rows, cols), the gaps (as they are given) and temperature."""
    pair = _Pair(similarity, **arguments)
    temperature, to_temperature = pair.temperature, 0.0
    to_similarity, to_steps = np.zeros(similarity.shape), np.zeros(np.shape(pair.costs))
    to_states = np.zeros(np.shape(pair.states)).tolist()

    endings = pair.endings()
    values = [x for triple in endings.values() for x in triple]
    if endings:
        end_weights = weights(values, smooth_maximum(values, temperature), temperature)
        to_temperature += entropy(end_weights)
        for number, (i, j) in enumerate(endings):
            own_weights = end_weights[3 * number : 3 * number + 3]
            if pair.is_local:
                to_similarity[i, j] += sum(own_weights)
            for to_state, weight in zip(to_states, own_weights, strict=True):
                to_state[i][j] += weight

    for i in reversed(range(pair.rows + 1)):
        for j in reversed(range(pair.cols + 1)):
            if pair.begins[i][j]:
                continue
            if i and j:
                v = to_states[A][i][j]
                choices = pair.before_a_match(i, j)
                shares = weights(choices, smooth_maximum(choices, temperature), temperature)
                for to_state, share in zip(to_states, shares[1:], strict=True):
                    to_state[i - 1][j - 1] += v * share
                to_similarity[i - 1, j - 1] += v
                to_temperature += v * entropy(shares)
            for axis in _axes(i, j):
                v = to_states[LEADS_TO[axis]][i][j]
                shares = weights(pair.before_a_gap(axis, i, j), pair.states[LEADS_TO[axis]][i][j], temperature)
                row, col = _before(axis, i, j)
                for to_state, share in zip(to_states, shares, strict=True):
                    to_state[row][col] += v * share
                to_steps[axis, :, i, j] = [v * share for share in shares]
                to_temperature += v * entropy(shares)

    to_open, to_extend = to_steps[:, A], to_steps[[ROWS, COLS], [R, D]]
    to_turn = to_open if arguments["penalize_turns"] else to_extend
    to_turn += to_steps[[ROWS, COLS], [D, R]]
    return {
        "similarity": to_similarity,
        "gap_open": as_given(to_open, pair.paid, arguments["gap_open"]),
        "gap_extend": as_given(to_extend, pair.paid, arguments["gap_extend"]),
        "temperature": to_temperature,
    }


def largest(similarity: np.ndarray, **arguments: Any) -> float:
    """The largest |state| of one pair, of those that an alignment can reach."""
    states = _Pair(similarity, **arguments).states
    return max((abs(x) for state in states for row in state for x in row if not isinf(x)), default=0.0)


def _axes(i: int, j: int) -> list[int]:
    """The axes of the gap steps that lead to a corner."""
    return [ROWS] * (j > 0) + [COLS] * (i > 0)


def _before(axis: int, i: int, j: int) -> tuple[int, int]:
    """The corner from which a gap step along an axis comes."""
    return (i, j - 1) if axis == ROWS else (i - 1, j)
