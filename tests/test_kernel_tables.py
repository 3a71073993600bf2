"""The Triton kernels state the recurrences again, for their compiler: called with symbols, they must give the table.

The table of the C++ kernels is proved by test_parity.py, which runs each of its choices on every tier.
"""

from types import SimpleNamespace
from typing import Any

import pytest
from frameworks import PROBLEMS

from shared.alignments import SIMILARITY, recurrence_of
from shared.kernels import cpp

NEIGHBOURS = "diagonal", "left", "up"


class Symbols(frozenset):
    """A sum of symbols: names of terms, and (neighbour, state) for a value of another cell."""

    def __add__(self, other: Any) -> "Symbols":
        assert not self & other, "a symbol is added twice"
        return Symbols(self | other)


def parameters_of(problem: str, options: dict[str, Any]) -> list[set[str]]:
    """The table's name of each cost of the kernels."""
    if problem == "smith_waterman_affine":
        return [{"gap_open"}, {"gap_extend"}, {"gap_open" if options["penalize_turns"] else "gap_extend"}]
    return [set() if problem == "free_gap" else {"gap"}]


@pytest.mark.parametrize(
    ("problem", "options"), [(problem, options) for problem, (_, every) in PROBLEMS.items() for options in every]
)
def test_choices_and_where_triton_hands_their_derivatives_are_the_table(problem, options, monkeypatch):
    pytest.importorskip("triton")
    from shared.kernels.triton import cells

    monkeypatch.setattr(cells, "plus", lambda a, b, product: a + b)
    monkeypatch.setattr(cells, "tl", SimpleNamespace(zeros_like=lambda _: Symbols()))
    table, costs = recurrence_of(problem, options), parameters_of(problem, options)
    kind, restricted = cpp.call_of(problem, options).kind, options.get("restrict_turns", False)
    near = [tuple(Symbols([(name, k)]) for k in range(len(table.states))) for name in NEIGHBOURS]
    given = tuple(map(Symbols, costs))
    states = cells.choices.fn(kind, restricted, True, Symbols([SIMILARITY]), *near, given)
    assert [len(set(choices)) for choices in states] == [len(choices) for choices in states]
    assert [set(choices) for choices in states] == [
        {frozenset([*([(own.neighbour, own.state)] if own.neighbour else []), *own.terms]) for own in choices}
        for choices in table.states
    ]

    def handed(symbol: Any) -> set[tuple[int, int]]:
        return {(k, c) for k, choices in enumerate(states) for c, own in enumerate(choices) if symbol in own}

    parts = tuple(tuple(Symbols([(k, c)]) for c in range(len(choices))) for k, choices in enumerate(states))
    *neighbours, matched, to_costs = cells.to_neighbours.fn(kind, restricted, parts)
    for name, own in zip(NEIGHBOURS, neighbours, strict=True):
        assert list(own) == [handed((name, k)) for k in range(len(states))]
    assert matched == handed(SIMILARITY)
    for parameter in set().union(*costs):
        own = [part for part, names in zip(to_costs, costs, strict=True) if parameter in names]
        assert sum(own, Symbols()) == handed(parameter)
