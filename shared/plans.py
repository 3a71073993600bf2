"""A recurrence as data: the choices of each smooth maximum, read from the recurrence itself by handing it symbols.

What a framework's recurrence does with arrays it does with symbols too, as long as it only adds. So there is no second
description of a recurrence that could differ from the first.
"""

import functools
from typing import Any, NamedTuple

SIMILARITY = "similarity"


class Choice(NamedTuple):
    """One choice of a smooth maximum: a neighbour's state plus some terms."""

    neighbour: str | None  # "diagonal", "left", "up", or "cell" itself; None: an alignment begins here
    state: int
    terms: tuple[str, ...]  # SIMILARITY, or a parameter


class Plan(NamedTuple):
    """What each state is the smooth maximum of, and the score."""

    states: tuple[tuple[Choice, ...], ...]
    endings: tuple[Choice, ...]


class _Symbols(frozenset):
    """A sum of symbols: names of terms, and (neighbour, state)."""

    def __add__(self, other: Any) -> "_Symbols":
        return self if isinstance(other, float) else _Symbols(self | other)

    def choice(self) -> Choice:
        source = [symbol for symbol in self if not isinstance(symbol, str)]
        neighbour, state = source[0] if source else (None, 0)
        return Choice(neighbour, state, tuple(symbol for symbol in self if isinstance(symbol, str)))


@functools.cache
def plan_of(recurrence: Any, names: tuple[str, ...]) -> Plan:
    """What a recurrence is made of. names: of its parameters, the temperature apart."""
    symbols: Any = {name: _Symbols([name]) for name in names}
    count = len(recurrence.border(dict.fromkeys(names, 0.0), 0))
    diagonal, left, up, own = (
        tuple(_Symbols([(name, k)]) for k in range(count)) for name in ("diagonal", "left", "up", "cell")
    )
    choices = recurrence.choices(symbols, _Symbols([SIMILARITY]), diagonal, left, up)
    states = tuple(tuple(choice.choice() for choice in of_state) for of_state in choices)
    return Plan(states, tuple(choice.choice() for choice in recurrence.endings(choices, own)))
