"""Tables, plots and sentences: what every output format renders."""

from dataclasses import dataclass, field
from typing import NamedTuple


class Table(NamedTuple):
    """Strings in columns. A cell may have several lines."""

    title: str
    headers: tuple[str, ...]
    rows: list[tuple[str, ...]]
    aligns: tuple[str, ...]  # "left" or "right"
    below: tuple[str, ...] = ()  # footnotes, a line each

    def without(self, header: str) -> "Table":
        """The table without a column."""
        at = self.headers.index(header)
        headers, aligns, *rows = (row[:at] + row[at + 1 :] for row in (self.headers, self.aligns, *self.rows))
        return self._replace(headers=headers, aligns=aligns, rows=rows)


class Plot(NamedTuple):
    """An SVG document and the words around it."""

    title: str
    svg: str
    reading: str  # how to read it


class Statement(NamedTuple):
    """Sentences, and what they are about. A line break is one on the console only."""

    about: str
    text: str


@dataclass
class Answer:
    """The answer to a question."""

    tables: list[Table] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    leading: int = 1  # tables that stand before the sentences


def left_then_right(left: int, right: int) -> tuple[str, ...]:
    """Alignments of so many columns."""
    return ("left",) * left + ("right",) * right
