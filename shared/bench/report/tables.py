"""Tables as plain strings, and the answer to a question: what every output format renders."""

import unicodedata
from dataclasses import dataclass, field
from typing import NamedTuple

NOTHING = "–"
# characters that change the direction of text: a name with one could pose as another
_DIRECTIONS = {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}


class Table(NamedTuple):
    """Strings in columns. A cell may have two lines."""

    title: str
    headers: tuple[str, ...]
    rows: list[tuple[str, ...]]
    aligns: tuple[str, ...]  # "left" or "right"
    below: tuple[str, ...] = ()  # footnotes, a line each


class Plot(NamedTuple):
    """An inline SVG and the words around it."""

    title: str
    svg: str
    reading: str  # how to read it


class Statement(NamedTuple):
    """A sentence, what it is about, and further sentences that belong to it."""

    about: str
    text: str
    details: list[str]


@dataclass
class Answer:
    """The answer to a question."""

    tables: list[Table] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)


def left_then_right(left: int, right: int) -> tuple[str, ...]:
    """Alignments of so many columns."""
    return ("left",) * left + ("right",) * right


def printable(text: str) -> str:
    """The text without characters that a format cannot hold or that show as something else; line breaks stay."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(
        "\N{REPLACEMENT CHARACTER}"
        if character in _DIRECTIONS or (unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t")
        else character
        for character in text
    )
