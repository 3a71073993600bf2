"""The alignments: each recurrence is stated here, once, and everything that computes one reads this table.

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

soft_dtw: soft dynamic time warping. The matrix holds costs: s is minus them, and the result minus the score.

    h(i,j) = smax( h(i-1,j-1), h(i,j-1), h(i-1,j) ) + s(i,j)          h = 0 before the first cell, else LOWEST outside
    score  = h of the last cell

A local alignment has the state LOWEST outside the matrix: nothing begins there.

Every gap may also be given by position, as a matrix like the similarity: gap(i,j) is then what a step into the cell
(i, j) costs, along either axis. Outside the matrix there is no such value, so gaps along the border of needleman_wunsch
then cost nothing: h = 0 there.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shared.tolerances import FORBIDDEN, LOWEST

SIMILARITY = "similarity"

# where an alignment may end
ANYWHERE, ON_A_LATER_MATCH, IN_THE_LAST_CELL = "anywhere", "on a match that is not its first", "in the last cell"


class Choice(NamedTuple):
    """One choice of a smooth maximum: a neighbour's state plus some terms."""

    neighbour: str | None  # "diagonal", "left", "up", or "cell" itself; None: an alignment starts here
    state: int  # of the neighbour
    terms: tuple[str, ...]  # the terms added: SIMILARITY, or parameters
    when: tuple[tuple[str, Any], ...] = ()  # (option, value): only with all of these


class End(NamedTuple):
    """The cells where an alignment may end, and the values whose smooth maximum there is its score."""

    where: str
    choices: tuple[Choice, ...]  # the states of the cell, or choices of the first state
    when: tuple[tuple[str, Any], ...] = ()


class Alignment(NamedTuple):
    """One public function."""

    text: str
    source: str
    parameters: dict[str, float]  # the differentiable ones -> their defaults
    option_values: dict[str, tuple[Any, ...]]  # the options -> their possible values, the default first
    states: dict[str, tuple[Choice, ...]]  # state -> the choices of its smooth maximum
    border: tuple[str, ...] | None  # outside the matrix, for each gap from its corner on; None: LOWEST
    ends: tuple[End, ...]  # one for each combination of the options
    is_cost: bool = False  # the matrix holds costs, minus the similarity; the result is minus the score
    only_corner: bool = False  # of the border an alignment may begin in the corner only, the rest is LOWEST

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


def _diagonal(state: int, *terms: str, **when: Any) -> Choice:
    """A choice that continues from the cell (i-1, j-1)."""
    return Choice("diagonal", state, terms, tuple(when.items()))


def _left(state: int, *terms: str, **when: Any) -> Choice:
    """A choice that continues from the cell (i, j-1)."""
    return Choice("left", state, terms, tuple(when.items()))


def _up(state: int, *terms: str, **when: Any) -> Choice:
    """A choice that continues from the cell (i-1, j)."""
    return Choice("up", state, terms, tuple(when.items()))


def _start(*terms: str) -> Choice:
    """An alignment starts in this cell."""
    return Choice(None, 0, terms)


def _own(state: int) -> Choice:
    """A state of the cell itself."""
    return Choice("cell", state, ())


def _end(where: str, *choices: Choice, **when: Any) -> End:
    return End(where, choices, tuple(when.items()))


S = SIMILARITY
H = 0  # the state of a linear gap
A, R, D = 0, 1, 2  # those of an affine gap: a match, a gap along the row, a gap along the column
_PETTI = "Petti et al. 2021, doi:10.1101/2021.10.23.465204"
_CUTURI = "Cuturi and Blondel 2017, arXiv:1703.01541"
_NEEDLEMAN = "Needleman and Wunsch 1970, doi:10.1016/0022-2836(70)90057-4; smoothed as in Petti et al. 2021"

ALIGNMENTS = {
    "smith_waterman": Alignment(
        text="smooth local alignment with a linear gap",
        source=_PETTI,
        parameters={"gap": -1.0, "temperature": 1.0},
        option_values={"end": ("any", "match")},
        states={"h": (_diagonal(H, S), _left(H, "gap"), _up(H, "gap"), _start(S))},
        border=None,
        ends=(_end(ANYWHERE, _own(H), end="any"), _end(ON_A_LATER_MATCH, _diagonal(H, S), end="match")),
    ),
    "smith_waterman_affine": Alignment(
        text="smooth local alignment with an affine gap",
        source=_PETTI,
        parameters={"gap_open": -3.0, "gap_extend": -1.0, "temperature": 1.0},
        option_values={"restrict_turns": (True, False), "penalize_turns": (True, False)},
        states={
            "A": (_diagonal(A, S), _diagonal(R, S), _diagonal(D, S), _start(S)),
            "R": (
                _left(A, "gap_open"),
                _left(R, "gap_extend"),
                _left(D, "gap_open", restrict_turns=False, penalize_turns=True),
                _left(D, "gap_extend", restrict_turns=False, penalize_turns=False),
            ),
            "D": (
                _up(A, "gap_open"),
                _up(R, "gap_open", penalize_turns=True),
                _up(R, "gap_extend", penalize_turns=False),
                _up(D, "gap_extend"),
            ),
        },
        border=None,
        ends=(_end(ON_A_LATER_MATCH, _diagonal(A, S), _diagonal(R, S), _diagonal(D, S)),),
    ),
    "free_gap": Alignment(
        text="smooth global alignment whose gaps cost nothing",
        source=_PETTI,
        parameters={"temperature": 1.0},
        option_values={},
        states={"h": (_diagonal(H, S), _left(H), _up(H))},
        border=(),
        ends=(_end(IN_THE_LAST_CELL, _own(H)),),
    ),
    "needleman_wunsch": Alignment(
        text="smooth global alignment with a linear gap",
        source=_NEEDLEMAN,
        parameters={"gap": -1.0, "temperature": 1.0},
        option_values={},
        states={"h": (_diagonal(H, S), _left(H, "gap"), _up(H, "gap"))},
        border=("gap",),
        ends=(_end(IN_THE_LAST_CELL, _own(H)),),
    ),
    "soft_dtw": Alignment(
        text="soft dynamic time warping",
        source=_CUTURI,
        parameters={"temperature": 1.0},
        option_values={},
        states={"h": (_diagonal(H, S), _left(H, S), _up(H, S))},
        border=(),
        ends=(_end(IN_THE_LAST_CELL, _own(H)),),
        is_cost=True,
        only_corner=True,
    ),
}


@dataclass(frozen=True, eq=False)  # a key of compiled functions: there is one object for each name
class Recurrence:
    """An alignment with its options chosen. Its methods only calculate, so they take the arrays of any framework."""

    name: str  # of the function, its options and the gaps by position
    parameters: tuple[str, ...]  # those that are added: all but the temperature
    by_position: tuple[str, ...]  # those of them that have a value for each cell
    states: tuple[tuple[Choice, ...], ...]
    border_terms: tuple[str, ...] | None
    where: str  # an alignment may end
    ends: tuple[Choice, ...]
    ends_among_choices: tuple[int, ...]  # which choices of the first state the ends are; none: states of the cell
    only_corner: bool  # of the border an alignment may begin in the corner only

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

    def border(self, parameters: Mapping[str, Any], diagonal: Any, lowest: Any = LOWEST) -> tuple[Any, ...]:
        """The states of the cells outside the matrix on anti-diagonal i + j = diagonal."""
        if self.only_corner:
            # a number becomes an array of the computation's type; every step away from the corner is forbidden
            step = lowest if hasattr(lowest, "dtype") else lowest + 0.0 * parameters["temperature"]
            value = _times(step, diagonal + 2)
        else:
            value = lowest if self.border_terms is None else self._gaps(parameters, diagonal + 2)
        return (value,) * len(self.states)

    def border_tangent(self, tangents: Mapping[str, Any], diagonal: Any) -> tuple[Any, ...]:
        """The tangents of `border`, given those of the parameters, in which it is linear or constant."""
        return self.border(tangents, diagonal) if self.border_terms else (0.0,) * len(self.states)

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
        if self.border_terms is not None:
            return (lengths[0] == 0) | (lengths[1] == 0)
        # too few rows or columns, or every match is forbidden, which makes values as low as LOWEST
        return best <= FORBIDDEN

    def empty_score(self, parameters: Mapping[str, Any], lengths: Any) -> Any:
        """The score of such a pair: all gaps, or 0, because minus infinity would be useless in training."""
        return self._gaps(parameters, lengths[0] + lengths[1])

    def _gaps(self, parameters: Mapping[str, Any], count: Any) -> Any:
        terms = [parameters[name] for name in self.border_terms or ()]
        if not terms:
            return 0.0
        gap: Any = sum(terms[1:], terms[0])
        return _times(gap, count)


def _times(value: Any, count: Any) -> Any:
    # JAX may have been told to promote no type by itself
    return value * (count.astype(value.dtype) if hasattr(count, "astype") else count)


def _name(function_name: str, options: Mapping[str, Any], by_position: Iterable[str] = ()) -> str:
    chosen = [*(f"{name}={value}" for name, value in options.items()), *(f"{name} by position" for name in by_position)]
    return f"{function_name}({', '.join(chosen)})"


def _chosen(rows: Iterable[Any], options: Mapping[str, Any]) -> tuple[Any, ...]:
    """The rows that these options select."""
    return tuple(row._replace(when=()) for row in rows if all(options[name] == value for name, value in row.when))


def _recurrence(function_name: str, options: Mapping[str, Any], by_position: tuple[str, ...]) -> Recurrence:
    alignment = ALIGNMENTS[function_name]
    states = tuple(_chosen(choices, options) for choices in alignment.states.values())
    (end,) = _chosen(alignment.ends, options)
    border = alignment.border
    return Recurrence(
        _name(function_name, options, by_position),
        alignment.gaps,
        by_position,
        states,
        None if border is None else tuple(name for name in border if name not in by_position),
        end.where,
        end.choices,
        tuple(states[0].index(choice) for choice in end.choices if choice.neighbour != "cell"),
        alignment.only_corner,
    )


def _subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [chosen for count in range(len(names) + 1) for chosen in itertools.combinations(names, count)]


RECURRENCES = {
    recurrence.name: recurrence
    for name, alignment in ALIGNMENTS.items()
    for by_position in _subsets(alignment.gaps)
    for recurrence in (_recurrence(name, options, by_position) for options in alignment.all_options())
}


def recurrence_of(function_name: str, options: Mapping[str, Any], by_position: Iterable[str] = ()) -> Recurrence:
    """The recurrence of a public function with these options and these gaps by position, in the table's order."""
    return RECURRENCES[_name(function_name, options, by_position)]


def names_by_position(function_name: str, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """The gaps that are given by position: as arrays with rows and columns."""
    return tuple(name for name in ALIGNMENTS[function_name].gaps if _is_matrix(parameters.get(name)))


def _is_matrix(value: Any) -> bool:
    # PyTorch's compiler cannot ask the numbers that it traces for their attributes
    return not isinstance(value, (float, int)) and getattr(value, "ndim", 0) > 1
