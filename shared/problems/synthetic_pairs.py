"""Synthetic protein families with known alignments: two descendants of one ancestor, in whom letters have been
exchanged, taken out and put in.

An ancestor's letters are drawn evenly from the twenty amino acids. A letter is exchanged for another with odds that
BLOSUM62 gives them (2 raised to half its score), so that there is something to learn beside identity; gaps begin
anywhere and are short. Each descendant has a random stretch before and after, which is not homologous.
"""

from typing import NamedTuple

import numpy as np

from shared.sequences import substitution_matrix

LETTERS = "ARNDCQEGHILKMFPSTVWY"
# of a descendant, for each letter of the ancestor
_EXCHANGED, _GAP_BEGINS, _GAP_GOES_ON = 0.45, 0.04, 0.5
# letters that belong to no ancestor, as a part of its length, before and after
_FLANK = 0.2


class SyntheticPairs(NamedTuple):
    """Pairs of descendants as numbers of letters, and which letters have the same ancestor."""

    first: np.ndarray  # (pairs, rows), int32; 0 in the padding
    second: np.ndarray  # (pairs, cols), int32
    lengths: np.ndarray  # (pairs, 2), int32
    truth: np.ndarray  # (pairs, rows, cols), 1 where two letters descend from the same one, else 0


def synthetic_pairs(pairs: int, length: int, seed: int) -> SyntheticPairs:
    """length: of the ancestors; descendants differ from it and have flanks."""
    generator = np.random.default_rng(seed)
    odds = _exchange_odds()
    drawn = []
    for _ in range(pairs):
        ancestor = generator.integers(len(LETTERS), size=length)
        drawn.append([_descendant(ancestor, odds, generator) for _ in range(2)])
    lengths = np.array([[len(letters) for letters, _ in pair] for pair in drawn], dtype=np.int32)
    rows, cols = lengths.max(axis=0)
    first, second = np.zeros((pairs, rows), np.int32), np.zeros((pairs, cols), np.int32)
    truth = np.zeros((pairs, rows, cols))
    for number, ((one, from_one), (two, from_two)) in enumerate(drawn):
        first[number, : len(one)], second[number, : len(two)] = one, two
        same = (from_one[:, None] == from_two) & (from_one[:, None] >= 0)
        truth[number, : len(one), : len(two)] = same
    return SyntheticPairs(first, second, lengths, truth)


def _exchange_odds() -> np.ndarray:
    """(20, 20): by which probability a letter is exchanged for each other one."""
    matrix = substitution_matrix("BLOSUM62")
    at = [matrix.alphabet.index(letter) for letter in LETTERS]
    odds = 2.0 ** (matrix.scores[np.ix_(at, at)] / 2)
    np.fill_diagonal(odds, 0.0)
    return odds / odds.sum(axis=1, keepdims=True)


def _descendant(
    ancestor: np.ndarray, odds: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Its letters, and for each the place in the ancestor that it comes from, or -1."""
    letters: list[int] = []
    places: list[int] = []

    def insert(count: int) -> None:
        letters.extend(generator.integers(len(LETTERS), size=count).tolist())
        places.extend([-1] * count)

    insert(int(generator.integers(0, max(1, round(_FLANK * len(ancestor))) + 1)))
    place = 0
    while place < len(ancestor):
        if generator.random() < _GAP_BEGINS:
            gap = int(generator.geometric(1 - _GAP_GOES_ON))
            if generator.random() < 0.5:
                insert(gap)
            else:
                place += gap
                continue
        letter = int(ancestor[place])
        if generator.random() < _EXCHANGED:
            letter = int(generator.choice(len(LETTERS), p=odds[letter]))
        letters.append(letter)
        places.append(place)
        place += 1
    insert(int(generator.integers(0, max(1, round(_FLANK * len(ancestor))) + 1)))
    if not letters:  # all of a short ancestor was taken out
        insert(1)
    return np.array(letters), np.array(places)
