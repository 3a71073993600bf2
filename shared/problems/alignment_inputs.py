"""Inputs that all alignment problems share: bundled globins, a FASTA file, or the random matrices of a known benchmark.

The random input draws in a fixed order: np.random.seed, one single matrix, then the batch, then both lengths of each
pair. With its default size and seed 0 it is a published benchmark's input: 100 pairs of 100 x 150, 959,500 cells.
"""

from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from shared.problems.problem import Inputs
from shared.sequences import GLOBINS, all_pairs, pair_batch, read_fasta, substitution_matrix

RANDOM_SIZE = (100, 150)
RANDOM_BATCH = 100
SWEEP_BATCH = 16
# lengths of the random pairs as fractions of the matrix: 80, 90, 100 of 100 rows and 95, 105, 120 of 150 columns
_ROW_CHOICES, _COL_CHOICES = (0.8, 0.9, 1.0), (95 / 150, 105 / 150, 120 / 150)
# lengths of a sweep's pairs: the whole matrix, so that run time over size is not run time over padding
_FULL = (1.0,)

_Raw = tuple[str, np.ndarray, np.ndarray | None]  # text, similarity, lengths


def alignment_inputs(settings: Any, parameters: dict[str, float], options: dict[str, Any]) -> dict[str, Inputs]:
    """The inputs that the settings ask for, by name. Raises SequenceError on bad sequences.

    A ladder has the single pair and the batch, a sweep a batch of each of its sizes, any other run the batch.
    """

    def made(text: str, similarity: np.ndarray, lengths: np.ndarray | None) -> Inputs:
        dtype = np.dtype(settings.dtype)
        return Inputs(text, similarity.astype(dtype), lengths, parameters, options, settings.seed)

    if settings.sweep:
        return {
            f"{rows}x{cols}": made(*_random(settings, (rows, cols), settings.batch or SWEEP_BATCH, _FULL, _FULL)[1])
            for rows, cols in settings.sweep
        }
    if settings.input == "random":
        size, count = settings.size or RANDOM_SIZE, settings.batch or RANDOM_BATCH
        single, batch = _random(settings, size, count, _ROW_CHOICES, _COL_CHOICES)
    else:
        path = GLOBINS if settings.input == "globins" else Path(settings.input)
        single, batch = _proteins(path, settings)
    return {"single": made(*single), "batch": made(*batch)} if settings.ladder else {"batch": made(*batch)}


def _random(
    settings: Any, size: tuple[int, int], count: int, row_choices: Sequence[float], col_choices: Sequence[float]
) -> tuple[_Raw, _Raw]:
    """The single pair and the batch. The choices are fractions of the size, of which each length is one."""
    rows, cols = size
    generator = np.random.RandomState(settings.seed)
    try:
        single = generator.random_sample((rows, cols))
        batch = generator.random_sample((count, rows, cols))
    except ValueError as error:  # more than NumPy can even count
        raise MemoryError(f"{count} random matrices of {rows} x {cols}: {error}") from None
    choices = _scaled(row_choices, rows), _scaled(col_choices, cols)
    lengths = np.array([[generator.choice(options) for options in choices] for _ in range(count)], dtype=np.int32)
    text = f"random similarity, seed {settings.seed}"
    kind = "of" if row_choices is _FULL else "of up to"
    return (
        (f"{text}, one pair of {rows} x {cols}", single, None),
        (f"{text}, {count} pairs {kind} {rows} x {cols}", batch, lengths),
    )


def _scaled(fractions: Sequence[float], size: int) -> list[int]:
    return [max(1, round(fraction * size)) for fraction in fractions]


def _proteins(path: Path, settings: Any) -> tuple[_Raw, _Raw]:
    records = read_fasta(path)
    distinct = all_pairs(len(records))
    pairs = list(islice(cycle(distinct), settings.batch)) if settings.batch else distinct
    repeated = f" ({len(distinct)}, repeated)" if len(pairs) > len(distinct) else ""
    similarity, lengths = pair_batch(records, pairs, substitution_matrix(settings.matrix), path)
    rows, cols = similarity.shape[1:]
    source = "bundled globins" if settings.input == "globins" else path.name
    text = f"{source}, {settings.matrix.upper()}"
    batch_text = f"{text}, {len(pairs)} pairs{repeated} of {len(records)} proteins, up to {rows} x {cols}"
    first, second = (records[index].name for index in pairs[0])
    return (
        (f"{text}, one pair: {first} and {second}", similarity[0], lengths[0]),
        (batch_text, similarity, lengths),
    )
