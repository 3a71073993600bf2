"""The alignments: the table of recurrences that the array code of both frameworks and the tests read.

The kernels in C++ (recurrences.h and what its header names) and Triton (cells.py, best.py, block_*.py), the reference
and, of smith_waterman, plain_loops.py state them again: test_parity.py and test_reference.py compare numbers, and
test_cuda_without_a_gpu.py compares cells.py with this table.

With smax(x1, x2, ...) = T log sum exp(x / T), the smooth maximum at temperature T, and s the similarity:

smith_waterman: local alignment with a linear gap.

    h(i,j) = smax( h(i-1,j-1) + s(i,j), h(i,j-1) + gap, h(i-1,j) + gap, s(i,j) )
    score  = smax over all cells of h(i,j)                               end="any"
    score  = smax over i, j >= 1 of h(i-1,j-1) + s(i,j)                  end="match"

smith_waterman_affine: local alignment in which a gap of length k costs gap_open + (k-1) gap_extend. The state A ends
in a match, R in a gap along the row, D in a gap along the column.

    A(i,j) = smax( A(i-1,j-1) + s(i,j), R(i-1,j-1) + s(i,j), D(i-1,j-1) + s(i,j), s(i,j) )
    R(i,j) = smax( A(i,j-1) + gap_open, R(i,j-1) + gap_extend, D(i,j-1) + turn )      the last unless restrict_turns
    D(i,j) = smax( A(i-1,j) + gap_open, R(i-1,j) + turn, D(i-1,j) + gap_extend )
    turn   = gap_open if penalize_turns, else gap_extend
    score  = smax over i, j >= 1 and X = A, R, D of X(i-1,j-1) + s(i,j)

free_gap: global alignment whose gaps cost nothing.

    h(i,j) = smax( h(i-1,j-1) + s(i,j), h(i,j-1), h(i-1,j) )                          h = 0 outside the matrix
    score  = h of the last cell

needleman_wunsch: global alignment with a linear gap.

    h(i,j) = smax( h(i-1,j-1) + s(i,j), h(i,j-1) + gap, h(i-1,j) + gap )              h = (i + j + 2) gap outside
    score  = h of the last cell

needleman_wunsch_affine: global alignment with an affine gap, in the states of smith_waterman_affine.

    A(i,j) = smax( A(i-1,j-1), R(i-1,j-1), D(i-1,j-1) ) + s(i,j)                      A = 0 before the first cell
    R(i,j), D(i,j) as there                  R = gap_open + j gap_extend above the matrix, and so D to its left
    score  = smax of A, R and D of the last cell

soft_dtw: soft dynamic time warping. The matrix holds costs: s is minus them, and the result minus the score.

    h(i,j) = smax( h(i-1,j-1), h(i,j-1), h(i-1,j) ) + s(i,j)          h = 0 before the first cell, else LOWEST outside
    score  = h of the last cell

Outside the matrix a state is LOWEST where nothing is said of it: nothing begins there.

Every gap may also be given by position, as a matrix like the similarity: gap(i,j) is then what a step into the cell
(i, j) costs, along either axis. Outside the matrix there is no such value: such a gap adds nothing along the border.

Or gaps may be given by axis, each as a tuple (rows, cols): gap[0] is what a gap along the row costs, from (i, j-1) to
(i, j), and gap[1] one along the column.

With end_gaps="free" or "free_rows" an alignment begins anywhere above the matrix, with h or A = 0, and gaps along its
last row cost nothing, whatever they follow. With "free" or "free_cols" the same holds of the column to the left of the
matrix, and of its last column. All gaps are then by axis, and those that are free somewhere also by position: 0 in the
last row or column, and one number elsewhere.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shared.tolerances import FORBIDDEN, LOWEST

SIMILARITY = "similarity"

# the axes of gaps: along a row, and along a column
ROWS, COLS = 0, 1
COST, FREE = "cost", ("free_rows", "free_cols")  # end_gaps: they cost what others do; those along one axis cost nothing
END_GAPS = (COST, "free", *FREE)
# what a gap along the row that follows one along the column costs: 0 in the last row, LOWEST in all others
LAST_TURN = "last_turn"

# where an alignment may end
ANYWHERE, ON_A_LATER_MATCH, IN_THE_LAST_CELL = "anywhere", "on a match that is not its first", "in the last cell"


class Choice(NamedTuple):
    """One choice of a smooth maximum: a neighbour's state plus some terms."""

    neighbour: str | None  # "diagonal", "left", "up", or "cell" itself; None: an alignment starts here
    state: int  # of the neighbour
    terms: tuple[str, ...]  # the terms added: SIMILARITY, or parameters
    when: tuple[tuple[str, tuple], ...] = ()  # (option, values): only with one of these values of each


class Outside(NamedTuple):
    """A state outside the matrix that an alignment may reach, by gaps from the corner along one axis."""

    state: int
    axis: int | None  # None: no gap, in the corner itself
    first: str | None = None  # what the first gap adds
    further: str | None = None  # and each further one
    when: tuple[tuple[str, tuple], ...] = ()


class End(NamedTuple):
    """The cells where an alignment may end, and the values whose smooth maximum there is its score."""

    where: str
    choices: tuple[Choice, ...]  # the states of the cell, or choices of the first state
    when: tuple[tuple[str, tuple], ...] = ()


class Alignment(NamedTuple):
    """One public function."""

    text: str
    source: str
    parameters: dict[str, float]  # the differentiable ones -> their defaults
    option_values: dict[str, tuple[Any, ...]]  # the options -> their possible values, the default first
    states: dict[str, tuple[Choice, ...]]  # state -> the choices of its smooth maximum
    border: tuple[Outside, ...]  # none: local
    ends: tuple[End, ...]  # any combination of the options selects one of them
    is_cost: bool = False  # the matrix holds costs, minus the similarity; the result is minus the score

    @property
    def matrix(self) -> str:
        """The function's name for its matrix."""
        return "cost" if self.is_cost else SIMILARITY

    @property
    def gaps(self) -> tuple[str, ...]:
        """The parameters that gap steps add."""
        return tuple(name for name in self.parameters if name != "temperature")

    @property
    def options(self) -> dict[str, Any]:
        """The options with their defaults."""
        return {name: values[0] for name, values in self.option_values.items()}

    def all_options(self) -> list[dict[str, Any]]:
        """Every combination of the options, the defaults first."""
        combinations = itertools.product(*self.option_values.values())
        return [dict(zip(self.option_values, values, strict=True)) for values in combinations]


def _when(values: dict[str, Any]) -> tuple[tuple[str, tuple], ...]:
    return tuple((name, value if isinstance(value, tuple) else (value,)) for name, value in values.items())


def _diagonal(state: int, *terms: str, **when: Any) -> Choice:
    """A choice that continues from the cell (i-1, j-1)."""
    return Choice("diagonal", state, terms, _when(when))


def _left(state: int, *terms: str, **when: Any) -> Choice:
    """A choice that continues from the cell (i, j-1)."""
    return Choice("left", state, terms, _when(when))


def _up(state: int, *terms: str, **when: Any) -> Choice:
    """A choice that continues from the cell (i-1, j)."""
    return Choice("up", state, terms, _when(when))


def _start(*terms: str) -> Choice:
    """An alignment starts in this cell."""
    return Choice(None, 0, terms)


def _own(state: int) -> Choice:
    """A state of the cell itself."""
    return Choice("cell", state, ())


def _end(where: str, *choices: Choice, **when: Any) -> End:
    return End(where, choices, _when(when))


def _end_gaps(states: tuple[int, int], first: str, further: str) -> tuple[Outside, ...]:
    """The border of a global alignment. states: those of gaps along the row above it and the column to its left."""
    begun = [Outside(0, None)]
    for axis, state in enumerate(states):
        begun.append(Outside(state, axis, first, further, _when({"end_gaps": (COST, FREE[1 - axis])})))
        begun.append(Outside(0, axis, when=_when({"end_gaps": ("free", FREE[axis])})))
    return tuple(begun)


S = SIMILARITY
H = 0  # the state of a linear gap
A, R, D = 0, 1, 2  # those of an affine gap: a match, a gap along the row, a gap along the column
_PETTI = "Petti et al. 2021, doi:10.1101/2021.10.23.465204"
_CUTURI = "Cuturi and Blondel 2017, arXiv:1703.01541"
_NEEDLEMAN = "Needleman and Wunsch 1970, doi:10.1016/0022-2836(70)90057-4; smoothed as in Petti et al. 2021"
_GOTOH = "Gotoh 1982, doi:10.1016/0022-2836(82)90398-9; smoothed as in Petti et al. 2021"
_TURNS = {"restrict_turns": (True, False), "penalize_turns": (True, False)}
_IN_ROW = (
    _left(A, "gap_open"),
    _left(R, "gap_extend"),
    _left(D, "gap_open", restrict_turns=False, penalize_turns=True),
    _left(D, "gap_extend", restrict_turns=False, penalize_turns=False),
)
_IN_COLUMN = (
    _up(A, "gap_open"),
    _up(R, "gap_open", penalize_turns=True),
    _up(R, "gap_extend", penalize_turns=False),
    _up(D, "gap_extend"),
)

ALIGNMENTS = {
    "smith_waterman": Alignment(
        text="smooth local alignment with a linear gap",
        source=_PETTI,
        parameters={"gap": -1.0, "temperature": 1.0},
        option_values={"end": ("any", "match")},
        states={"h": (_diagonal(H, S), _left(H, "gap"), _up(H, "gap"), _start(S))},
        border=(),
        ends=(_end(ANYWHERE, _own(H), end="any"), _end(ON_A_LATER_MATCH, _diagonal(H, S), end="match")),
    ),
    "smith_waterman_affine": Alignment(
        text="smooth local alignment with an affine gap",
        source=_PETTI,
        parameters={"gap_open": -3.0, "gap_extend": -1.0, "temperature": 1.0},
        option_values=_TURNS,
        states={
            "A": (_diagonal(A, S), _diagonal(R, S), _diagonal(D, S), _start(S)),
            "R": _IN_ROW,
            "D": _IN_COLUMN,
        },
        border=(),
        ends=(_end(ON_A_LATER_MATCH, _diagonal(A, S), _diagonal(R, S), _diagonal(D, S)),),
    ),
    "free_gap": Alignment(
        text="smooth global alignment whose gaps cost nothing",
        source=_PETTI,
        parameters={"temperature": 1.0},
        option_values={},
        states={"h": (_diagonal(H, S), _left(H), _up(H))},
        border=(Outside(H, None), Outside(H, ROWS), Outside(H, COLS)),
        ends=(_end(IN_THE_LAST_CELL, _own(H)),),
    ),
    "needleman_wunsch": Alignment(
        text="smooth global alignment with a linear gap",
        source=_NEEDLEMAN,
        parameters={"gap": -1.0, "temperature": 1.0},
        option_values={"end_gaps": END_GAPS},
        states={"h": (_diagonal(H, S), _left(H, "gap"), _up(H, "gap"))},
        border=_end_gaps((H, H), "gap", "gap"),
        ends=(_end(IN_THE_LAST_CELL, _own(H)),),
    ),
    "needleman_wunsch_affine": Alignment(
        text="smooth global alignment with an affine gap",
        source=_GOTOH,
        parameters={"gap_open": -3.0, "gap_extend": -1.0, "temperature": 1.0},
        option_values={"end_gaps": END_GAPS, **_TURNS},
        states={
            "A": (_diagonal(A, S), _diagonal(R, S), _diagonal(D, S)),
            "R": (*_IN_ROW, _left(D, LAST_TURN, restrict_turns=True, end_gaps=("free", FREE[ROWS]))),
            "D": _IN_COLUMN,
        },
        border=_end_gaps((R, D), "gap_open", "gap_extend"),
        ends=(_end(IN_THE_LAST_CELL, _own(A), _own(R), _own(D)),),
    ),
    "soft_dtw": Alignment(
        text="soft dynamic time warping",
        source=_CUTURI,
        parameters={"temperature": 1.0},
        option_values={},
        states={"h": (_diagonal(H, S), _left(H, S), _up(H, S))},
        border=(Outside(H, None),),
        ends=(_end(IN_THE_LAST_CELL, _own(H)),),
        is_cost=True,
    ),
}


@dataclass(frozen=True, eq=False)  # a key of compiled functions: there is one object for each name
class Recurrence:
    """An alignment with its options chosen. Its methods only calculate, so they take the arrays of any framework."""

    name: str  # of the function, its options and the gaps by axis or position
    parameters: tuple[str, ...]  # those that are added: all but the temperature
    by_position: tuple[str, ...]  # those of them that have a value for each cell
    states: tuple[tuple[Choice, ...], ...]
    outside: tuple[dict[int | None, Outside], ...]  # of each state, by axis
    where: str  # an alignment may end
    ends: tuple[Choice, ...]
    ends_among_choices: tuple[int, ...]  # which choices of the first state the ends are; none: states of the cell
    is_cost: bool
    matrix: str
    is_by_axis: bool

    def step(
        self, smax: Callable[..., Any], parameters: Mapping[str, Any], s: Any, diagonal: Any, left: Any, up: Any
    ) -> tuple[tuple[Any, ...], Any]:
        """The states of some cells, and the score of the alignments that end there.

        smax: the smooth maximum of its arguments. parameters: those by position have the values of the cells. s: the
        similarity of the cells. diagonal, left, up: the states of their neighbours.
        """
        neighbours, terms = {"diagonal": diagonal, "left": left, "up": up}, {**parameters, SIMILARITY: s}

        def value(choice: Choice) -> Any:
            parts = [neighbours[choice.neighbour][choice.state]] if choice.neighbour else []
            parts += [terms[name] for name in choice.terms]
            return sum(parts[1:], parts[0])

        values = [[value(choice) for choice in choices] for choices in self.states]
        states = tuple(smax(*choices) for choices in values)
        ends = [values[0][number] for number in self.ends_among_choices] or states
        return states, ends[0] if len(ends) == 1 else smax(*ends)

    @property
    def is_global(self) -> bool:
        """Whether it begins outside the matrix."""
        return bool(self.outside[0])

    @property
    def is_same_along_axes(self) -> bool:
        """Whether above the matrix the states are what they are to its left."""
        return not self.is_global or (len(self.states) == 1 and not self.is_by_axis)

    def border(self, parameters: Mapping[str, Any], gaps: Any, axis: int, lowest: Any = LOWEST) -> tuple[Any, ...]:
        """The states outside the matrix, `gaps` positions from its corner: above it (ROWS), or to its left."""
        return tuple(self._outside(begun, parameters, gaps, axis, lowest) for begun in self.outside)

    def border_tangent(self, tangents: Mapping[str, Any], gaps: Any, axis: int) -> tuple[Any, ...]:
        """The tangents of `border`, given those of the parameters, in which it is linear or constant."""
        return tuple(_gaps(begun.get(axis), tangents, gaps) for begun in self.outside)

    def _outside(
        self, begun: dict[int | None, Outside], parameters: Mapping[str, Any], gaps: Any, axis: int, lowest: Any
    ) -> Any:
        """One state outside the matrix."""
        if axis not in begun and None not in begun:
            return lowest
        value = _gaps(begun.get(axis), parameters, gaps)
        if axis in begun and None in begun:
            return value
        # a number becomes an array of the computation's type
        lowest = lowest if hasattr(lowest, "dtype") else lowest + 0.0 * parameters["temperature"]
        # all but the corner is forbidden, or the corner alone
        return value + _times(lowest, gaps > 0 if None in begun else gaps == 0)

    def may_end(self, i: Any, j: Any, lengths: Any) -> Any:
        """Mask of the cells where an alignment may end. lengths: (2, *batch)."""
        if self.where == IN_THE_LAST_CELL:
            return (i == lengths[0] - 1) & (j == lengths[1] - 1)
        inside = (i < lengths[0]) & (j < lengths[1])
        return inside if self.where == ANYWHERE else inside & (i >= 1) & (j >= 1)

    def is_empty(self, best: Any, lengths: Any) -> Any:
        """Mask of the pairs that have no alignment, or for a global one no cell.

        best: (*batch), the largest value where an alignment may end, LOWEST if nowhere.
        """
        if self.is_global:
            return (lengths[0] == 0) | (lengths[1] == 0)
        # too few rows or columns, or every match is forbidden, which makes values as low as LOWEST
        return best <= FORBIDDEN

    def empty_score(self, parameters: Mapping[str, Any], lengths: Any) -> Any:
        """The score of an empty pair: all gaps, or 0, because minus infinity would be useless in training."""
        counts = {ROWS: lengths[1], COLS: lengths[0]}
        scores = [
            _gaps(row, parameters, counts[axis])
            for begun in self.outside
            for axis, row in begun.items()
            if axis is not None
        ]
        return sum(scores[1:], scores[0]) if scores else 0.0


def _gaps(begun: Outside | None, parameters: Mapping[str, Any], count: Any) -> Any:
    """The sum of `count` gaps outside the matrix."""
    if begun is None or not (begun.first or begun.further):
        return 0.0
    if begun.first and begun.first == begun.further:
        return _times(parameters[begun.first], count)
    parts = [parameters[begun.first]] if begun.first else []
    parts += [_times(parameters[begun.further], count - 1)] if begun.further else []
    value: Any = sum(parts[1:], parts[0])
    return _times(value, count > 0)


def _times(value: Any, count: Any) -> Any:
    # JAX may have been told to promote no type by itself; nor does it multiply by a truth value
    return value * (count.astype(value.dtype) if hasattr(count, "astype") else count + 0)


def _name(function_name: str, options: Mapping[str, Any], by_axis: bool, by_position: Iterable[str]) -> str:
    chosen = [*(f"{name}={value}" for name, value in options.items()), *(["gaps by axis"] if by_axis else [])]
    return f"{function_name}({', '.join([*chosen, *(f'{name} by position' for name in by_position)])})"


def _chosen(rows: Iterable[Any], options: Mapping[str, Any]) -> tuple[Any, ...]:
    """The rows that these options select."""
    return tuple(row._replace(when=()) for row in rows if all(options[name] in values for name, values in row.when))


def of_axis(gap: str, axis: int) -> str:
    """The name of a gap along one axis."""
    return f"{gap}[{axis}]"


_AXES = {of_axis("", axis): axis for axis in (ROWS, COLS)}


def axis_of(name: str) -> int | None:
    """The axis of a gap along one axis; None for any other name."""
    return _AXES.get(name[-3:])


def has_free_ends(options: Mapping[str, Any]) -> bool:
    """Whether gaps at the ends of an axis cost nothing."""
    return options.get("end_gaps", COST) != COST


def each_axis(
    function_name: str, parameters: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The parameters, each gap by axis as two of them; and the names of all gaps by axis, or of those by position.

    If one gap is by axis, or with free end gaps, all of them are.
    """
    gaps, result = ALIGNMENTS[function_name].gaps, {}
    if not has_free_ends(options) and not any(isinstance(parameters.get(gap), tuple) for gap in gaps):
        return dict(parameters), names_by_position(function_name, parameters)
    for name, value in parameters.items():
        if name not in gaps:
            result[name] = value
            continue
        pair = value if isinstance(value, tuple) else (value, value)
        if len(pair) != 2:
            raise ValueError(f"{name} must be one gap or a tuple (rows, cols) of two, got a tuple of {len(pair)}")
        result |= {of_axis(name, axis): of_one for axis, of_one in enumerate(pair)}
    return result, tuple(name for name in result if axis_of(name) is not None)


def _recurrence(
    function_name: str, options: Mapping[str, Any], by_axis: bool, by_position: tuple[str, ...]
) -> Recurrence:
    alignment = ALIGNMENTS[function_name]

    def named(term: str | None, axis: int | None) -> str | None:
        return of_axis(term, axis) if by_axis and term in alignment.gaps and axis is not None else term

    def choices_of(rows: Iterable[Choice]) -> tuple[Choice, ...]:
        axes = {"left": ROWS, "up": COLS}
        return tuple(
            row._replace(terms=tuple(named(term, axes.get(row.neighbour or "")) for term in row.terms))
            for row in _chosen(rows, options)
        )

    states = tuple(choices_of(choices) for choices in alignment.states.values())
    (end,) = _chosen(alignment.ends, options)
    outside: list[dict[int | None, Outside]] = [{} for _ in states]
    for row in _chosen(alignment.border, options):
        first, further = (named(term, row.axis) for term in (row.first, row.further))
        outside[row.state][row.axis] = row._replace(
            first=None if first in by_position else first, further=None if further in by_position else further
        )
    every = {term for choices in states for choice in choices for term in choice.terms}
    gaps = [of_axis(gap, axis) for gap in alignment.gaps for axis in (ROWS, COLS)] if by_axis else [*alignment.gaps]
    return Recurrence(
        _name(function_name, options, by_axis, by_position),
        (*gaps, LAST_TURN) if LAST_TURN in every else tuple(gaps),
        by_position,
        states,
        tuple(outside),
        end.where,
        end.choices,
        tuple(states[0].index(choice) for choice in end.choices if choice.neighbour != "cell"),
        alignment.is_cost,
        alignment.matrix,
        by_axis,
    )


def _subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [chosen for count in range(len(names) + 1) for chosen in itertools.combinations(names, count)]


def _in_last(function_name: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """The gaps by axis that have values of their own in the last row or column, as end gaps along it are free."""
    free = [axis for axis in (ROWS, COLS) if options.get("end_gaps", COST) in ("free", FREE[axis])]
    names = [of_axis(gap, axis) for gap in ALIGNMENTS[function_name].gaps for axis in (ROWS, COLS) if axis in free]
    return (*names, LAST_TURN) if ROWS in free and options.get("restrict_turns") else tuple(names)


def _every_recurrence() -> Iterator[Recurrence]:
    for name, alignment in ALIGNMENTS.items():
        for options in alignment.all_options():
            if not has_free_ends(options):
                for by_position in _subsets(alignment.gaps):
                    yield _recurrence(name, options, False, by_position)
            if alignment.gaps:
                yield _recurrence(name, options, True, _in_last(name, options))


RECURRENCES = {recurrence.name: recurrence for recurrence in _every_recurrence()}


def recurrence_of(function_name: str, options: Mapping[str, Any], gaps: Iterable[str] = ()) -> Recurrence:
    """The recurrence of a public function with these options. gaps: the names of those by position or by axis."""
    names = tuple(gaps)
    is_by_axis = has_free_ends(options) or any(axis_of(name) is not None for name in names)
    by_position = _in_last(function_name, options) if is_by_axis else names
    return RECURRENCES[_name(function_name, options, is_by_axis, by_position)]


def names_by_position(function_name: str, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """The gaps that are given by position, as arrays with rows and columns, in the table's order."""
    return tuple(name for name in ALIGNMENTS[function_name].gaps if _is_matrix(parameters.get(name)))


def _is_matrix(value: Any) -> bool:
    # PyTorch's compiler cannot ask the numbers that it traces for their attributes
    return not isinstance(value, (float, int, tuple)) and getattr(value, "ndim", 0) > 1
