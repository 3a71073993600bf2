"""Every alignment of a small matrix, one by one: the score and its derivatives by the definition alone.

An alignment is a walk over the corners between the cells, a corner (i, j) lying behind i rows and j columns:

    M  matches the cell (i, j) and goes to (i+1, j+1)
    R  is a gap along the row and goes to (i, j+1)
    D  is a gap along the column and goes to (i+1, j)

    free_gap, needleman_wunsch    every walk from (0, 0) to (rows, cols)
    needleman_wunsch_affine       the same; with restrict_turns none has a D just before an R
    smith_waterman                every walk from anywhere that begins with M; with end="match" it also ends with M and
                                  has at least two
    smith_waterman_affine         the same as end="match"; with restrict_turns none has a D just before an R
    soft_dtw                      every walk from (0, 0) to (rows, cols) that begins with M; each move matches the cell
                                  before the corner to which it goes, at its cost: the temperature is negative

    score = T log(sum over the alignments of exp(worth / T)),  worth = similarities matched + prices of gap positions

A price is a number, or two, for R and for D; or a matrix with the price of a step to the corner behind each cell, and
steps along the border are then free. With free end gaps the R before the first row and after the last one pay nothing,
and may follow D, or it is so with D and columns; those before the first are no gap to what follows them.
Shares nothing with shared.reference: no recurrence over states, no smooth maximum of a few numbers.
"""

import functools
import math
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np

Cell = tuple[int, int]
Values = dict[str, Any]

# what a gap position may pay
PRICES = {
    "smith_waterman": ("gap",),
    "smith_waterman_affine": ("gap_open", "gap_extend"),
    "free_gap": (),
    "needleman_wunsch": ("gap",),
    "needleman_wunsch_affine": ("gap_open", "gap_extend"),
    "soft_dtw": (),
}
GLOBAL = ("free_gap", "needleman_wunsch", "needleman_wunsch_affine", "soft_dtw")
AFFINE = ("smith_waterman_affine", "needleman_wunsch_affine")
FREE = {"free": "RD", "free_rows": "R", "free_cols": "D"}  # the moves that are, of end gaps
SIGN = dict.fromkeys(PRICES, 1) | {"soft_dtw": -1}


class Alignment(NamedTuple):
    """One alignment, or the beginning of one."""

    start: Cell  # corners
    moves: str
    states: str  # which move the next one takes each for
    end: Cell
    matches: tuple[Cell, ...]  # cells
    paid: tuple[str, ...]  # the name of what each gap position pays
    directions: str  # its move
    entered: tuple[Cell, ...]  # the cell before the corner to which it goes


def alignments(problem: str, rows: int, cols: int, **options: Any) -> list[Alignment]:
    """Every alignment of a matrix, once."""
    return [
        begun for begun in _beginnings(problem, rows, cols, options) if _is_whole(problem, begun, rows, cols, options)
    ]


def by_enumeration(problem: str, similarity: np.ndarray, parameters: Values, options: Values) -> tuple[float, Values]:
    """Score and gradients (similarity and each parameter): 0 and zeros where there is no alignment."""
    every = _ensemble(problem, similarity, parameters, options)
    mean = float(every.probabilities @ every.worth) if len(every.worth) else every.score
    entropy = (every.score - mean) / every.temperature * SIGN[problem] if np.isfinite(mean) else 0.0
    return every.score, _named(problem, similarity.shape, parameters, every.probabilities @ every.counts, entropy)


def hessian_vector_product(
    problem: str, similarity: np.ndarray, direction: np.ndarray, parameters: Values, options: Values
) -> Values:
    """The change of every gradient along a direction of the similarity: a covariance over all alignments."""
    every = _ensemble(problem, similarity, parameters, options)
    along = every.counts[:, : direction.size] @ direction.ravel()
    shares = every.probabilities * (along - every.probabilities @ along) / every.temperature
    # entropy = (score - expected worth) / T: the score changes as the worths do, what is left is that of their shares
    to_entropy = -float(shares @ every.worth) / every.temperature * SIGN[problem]
    return _named(problem, similarity.shape, parameters, shares @ every.counts, to_entropy)


def largest_state(problem: str, similarity: np.ndarray, parameters: Values, options: Values) -> float:
    """The largest |smooth maximum of all beginnings of alignments that have come to one corner|.

    With an affine gap these are told apart by their last move. 0 where there is none.
    """
    rows, cols = similarity.shape
    temperature = parameters["temperature"] * SIGN[problem]
    totals: dict[tuple[Cell, str], list[float]] = {}
    for begun in _beginnings(problem, rows, cols, options):
        state = begun.states[-1:] if problem in AFFINE else ""
        worth = worth_of(begun, similarity, parameters)
        totals.setdefault((begun.end, state), []).append(worth)
    return max((abs(_smooth_maximum(np.array(worths), temperature)) for worths in totals.values()), default=0.0)


def worth_of(alignment: Alignment, similarity: np.ndarray, parameters: Values) -> float:
    """The sum of an alignment's matches and prices."""
    steps = zip(alignment.paid, alignment.directions, alignment.entered, strict=True)
    prices = [_price(parameters[_given(name, move, parameters)], cell) for name, move, cell in steps]
    return math.fsum([*(similarity[cell] for cell in alignment.matches), *prices])


def _given(name: str, move: str, given: Collection[str]) -> str:
    """The name of the price of a gap move, where there may be two."""
    return name if name in given else f"{name}[{'RD'.index(move)}]"


def _price(price: Any, cell: Cell) -> float:
    if np.ndim(price) < 2:
        return float(price)
    return 0.0 if min(cell) < 0 else float(price[cell])


def best_matches(
    problem: str, similarity: np.ndarray, parameters: Values, options: Values
) -> tuple[np.ndarray, float, float]:
    """Average matches of the alignments worth most, their worth, and how far below it any other lies.

    Others are those with other matches: two orders of the same gaps are worth the same, and match the same.
    """
    rows, cols = similarity.shape
    counts = _counts(problem, rows, cols, tuple(options.items()), _by_position(problem, parameters))
    worth = counts @ _prices(problem, similarity * SIGN[problem], parameters)
    best = counts[worth > worth.max() - 1e-9, : similarity.size]
    next_best = worth[(counts[:, : similarity.size] != best[0]).any(axis=1)]
    return best.mean(axis=0).reshape(rows, cols), worth.max(), worth.max() - next_best.max(initial=-np.inf)


def number_of_alignments(problem: str, rows: int, cols: int, **options: Any) -> int:
    """The number of alignments, by known formulas; both lengths must be positive.

    Global: the Delannoy number. Local: a Delannoy number of walks from each first match to each end. Affine without
    the other order of turns: one alignment for each chain of cells, if local of at least two, so that Vandermonde's sum
    counts them, where no end gaps are free.
    """
    if options.get("restrict_turns"):
        return math.comb(rows + cols, rows) - (0 if problem in GLOBAL else 1 + rows * cols)
    size = 1 << max(rows, cols).bit_length()  # so that few tables serve all sizes
    if problem in GLOBAL:
        fewer = int(problem == "soft_dtw")
        return _delannoy(size)[rows - fewer, cols - fewer]
    fewer = 1 if options.get("end") == "any" else 2  # a last match takes a row and a column
    return _delannoy_from_each_start(size)[rows - fewer, cols - fewer] if min(rows, cols) >= fewer else 0


class _Ensemble(NamedTuple):
    """The alignments that are possible, as numbers."""

    counts: np.ndarray  # (alignments, cells + prices): how often each is matched or paid
    worth: np.ndarray  # (alignments,)
    probabilities: np.ndarray  # (alignments,)
    score: float
    temperature: float


def _ensemble(problem: str, similarity: np.ndarray, parameters: Values, options: Values) -> _Ensemble:
    temperature = float(parameters["temperature"]) * SIGN[problem]
    counts = _counts(problem, *similarity.shape, tuple(options.items()), _by_position(problem, parameters))
    prices = _prices(problem, similarity, parameters)
    forbidden = np.isinf(prices)
    counts = counts[~counts[:, forbidden].any(axis=1)]
    worth = counts @ np.where(forbidden, 0.0, prices)
    impossible = np.inf if problem == "soft_dtw" and similarity.size else 0.0
    score = _smooth_maximum(worth, temperature) if len(worth) else impossible
    return _Ensemble(counts, worth, np.exp((worth - score) / temperature), score, temperature)


def _given_prices(problem: str, parameters: Values) -> dict[str, np.ndarray]:
    """The prices by their names: gap, or gap[0] of R and gap[1] of D."""
    return {name: np.asarray(value) for name, value in parameters.items() if name.split("[")[0] in PRICES[problem]}


def _by_position(problem: str, parameters: Values) -> tuple[tuple[str, bool], ...]:
    """Whether each price is a matrix."""
    return tuple((name, price.ndim == 2) for name, price in _given_prices(problem, parameters).items())


def _prices(problem: str, similarity: np.ndarray, parameters: Values) -> np.ndarray:
    return np.concatenate([similarity.ravel(), *map(np.ravel, _given_prices(problem, parameters).values())])


def _named(problem: str, shape: tuple[int, ...], parameters: Values, values: np.ndarray, temperature: float) -> Values:
    like = {"similarity": np.zeros(shape), **_given_prices(problem, parameters)}
    parts = np.split(values, np.cumsum([array.size for array in like.values()])[:-1])
    by_name = {name: part.reshape(array.shape) for (name, array), part in zip(like.items(), parts, strict=True)}
    return {**by_name, "temperature": temperature}


def _smooth_maximum(worth: np.ndarray, temperature: float) -> float:
    most = worth.max() if temperature > 0 else worth.min()
    return most + temperature * math.log(math.fsum(np.exp((worth - most) / temperature)))


@functools.cache
def _counts(
    problem: str, rows: int, cols: int, options: tuple[tuple[str, Any], ...], by_position: tuple[tuple[str, bool], ...]
) -> np.ndarray:
    cells, begin = rows * cols, {}
    size = cells
    for name, has_cells in by_position:
        begin[name] = size, has_cells
        size += cells if has_cells else 1
    every = alignments(problem, rows, cols, **dict(options))
    counts = np.zeros((len(every), size))
    for row, alignment in zip(counts, every, strict=True):
        for i, j in alignment.matches:
            row[i * cols + j] += 1
        for name, move, (i, j) in zip(alignment.paid, alignment.directions, alignment.entered, strict=True):
            at, has_cells = begin[_given(name, move, begin)]
            if not has_cells:
                row[at] += 1
            elif min(i, j) >= 0:
                row[at + i * cols + j] += 1
    return counts


def _beginnings(problem: str, rows: int, cols: int, options: Values) -> Iterator[Alignment]:
    """Every alignment, and everything that one may begin with."""
    if problem == "soft_dtw":
        walks = [((0, 0), "M" + moves) for moves in _walks((1, 1), rows, cols) if rows and cols]
    elif problem in GLOBAL:
        walks = [((0, 0), moves) for moves in _walks((0, 0), rows, cols)]
    else:
        starts = [(i, j) for i in range(rows) for j in range(cols)]
        walks = [((i, j), "M" + moves) for i, j in starts for moves in _walks((i + 1, j + 1), rows, cols)]
    for start, moves in walks:
        if begun := _alignment(problem, start, moves, (rows, cols), options):
            yield begun


def _walks(corner: Cell, rows: int, cols: int) -> Iterator[str]:
    """The moves of every walk from a corner, that of no move included."""
    yield ""
    for move in "MRD":
        i, j = _after(corner, move)
        if i <= rows and j <= cols:
            for further in _walks((i, j), rows, cols):
                yield move + further


def _after(corner: Cell, move: str) -> Cell:
    return corner[0] + (move in "MD"), corner[1] + (move in "MR")


def _alignment(problem: str, start: Cell, moves: str, size: Cell, options: Values) -> Alignment | None:
    """The alignment of a walk, unless it has a turn that is forbidden."""
    corner, states = start, ""
    matches, paid, directions, entered = [], [], "", []
    for move in moves:
        after = _after(corner, move)
        cell = after[0] - 1, after[1] - 1
        side = "RD".find(move)  # R has the same row before and after, D the same column
        is_free = move in FREE.get(options.get("end_gaps", ""), "") and corner[side] in (0, size[side])
        if options.get("restrict_turns") and states[-1:] + move == "DR" and not is_free:
            return None
        if move == "M" or problem == "soft_dtw":
            matches.append(cell)
        elif PRICES[problem] and not is_free:
            is_affine = problem in AFFINE
            paid.append(_affine_price(states[-1:] or "M", move, options["penalize_turns"]) if is_affine else "gap")
            directions += move
            entered.append(cell)
        states += "M" if is_free and corner[side] == 0 else move
        corner = after
    return Alignment(start, moves, states, corner, tuple(matches), tuple(paid), directions, tuple(entered))


def _affine_price(before: str, move: str, penalize_turns: bool) -> str:
    if before == "M":
        return "gap_open"
    if before == move:
        return "gap_extend"
    return "gap_open" if penalize_turns else "gap_extend"


def _is_whole(problem: str, begun: Alignment, rows: int, cols: int, options: Values) -> bool:
    if problem in GLOBAL:
        return begun.end == (rows, cols)
    if options.get("end") == "any":
        return True
    return begun.moves.endswith("M") and len(begun.matches) >= 2


@functools.cache
def _delannoy(size: int) -> np.ndarray:
    """Number of walks from (0, 0) to each corner below (size, size), as integers of any size."""
    walks = np.ones((size, size), dtype=object)
    for i in range(1, size):
        for j in range(1, size):
            walks[i, j] = walks[i - 1, j - 1] + walks[i, j - 1] + walks[i - 1, j]
    return walks


@functools.cache
def _delannoy_from_each_start(size: int) -> np.ndarray:
    """The number at [a, b] of walks from each corner of (0, 0) to (a, b) to each of these that can follow."""
    walks = _delannoy(size)
    for axis in (0, 0, 1, 1):  # once over the ends, once over the starts
        walks = walks.cumsum(axis=axis)
    return walks
