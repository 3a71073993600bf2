"""Tables, plots and sentences: what every output format renders."""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from shared.bench.cases import FRAMEWORKS
from shared.bench.estimates import Estimate
from shared.bench.units import NOTHING

_WINNER = re.compile(
    rf"({'|'.join(FRAMEWORKS.values())}) (?:(?:about )?[\d.,e+]+×|from call 1$|(or same|from call|up to call))"
)


class Table(NamedTuple):
    """Strings in columns. A cell may have several lines."""

    title: str
    headers: tuple[str, ...]
    rows: list[tuple[str, ...]]
    aligns: tuple[str, ...]  # "left" or "right"
    below: tuple[str, ...] = ()  # footnotes, a line each

    def filled(self, *hidden: str) -> "Table":
        """The table without the columns that nothing fills, and without those of these headers."""
        columns = [column for column in zip(self.headers, self.aligns, *self.rows, strict=True)
                   if column[0] not in hidden and set(column[2:]) - {NOTHING, ""}]  # fmt: skip
        headers, aligns, *rows = zip(*columns, strict=True)
        return self._replace(headers=headers, aligns=aligns, rows=rows)


class Plot(NamedTuple):
    """An SVG document and the words around it."""

    title: str
    svg: str
    reading: str  # how to read it


class Statement(NamedTuple):
    """Sentences, and what they are about. Line breaks show on the console only."""

    about: str
    text: str


class Point(NamedTuple):
    """A row of a plot."""

    about: str  # the heading that it shares with others, or ""
    label: str
    text: str  # the value in words, as in a table
    value: Estimate


@dataclass
class Answer:
    """The answer to a question."""

    tables: list[Table] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    tables_first: int = 1  # tables that stand before the sentences
    lead: Statement | None = None  # the one that says which framework is faster; None: the first one
    ratios: list[Point] = field(default_factory=list)  # of PyTorch's time over JAX's; what is asked most stands first


def winner(text: str) -> str:
    """The faster framework in a line of a cell; "jax perhaps" if only on a condition; "" if none."""
    match = _WINNER.match(text)
    names = {name: framework for framework, name in FRAMEWORKS.items()}
    return names[match[1]] + " perhaps" * bool(match[2]) if match else ""


def left_then_right(left: int, right: int) -> tuple[str, ...]:
    """Alignments of so many columns."""
    return ("left",) * left + ("right",) * right
