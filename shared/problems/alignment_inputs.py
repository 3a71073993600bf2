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
# lengths of the random pairs as fractions of the matrix: 80, 90, 100 of 100 rows and 95, 105, 120 of 150 columns
_ROW_CHOICES, _COL_CHOICES = (0.8, 0.9, 1.0), (95 / 150, 105 / 150, 120 / 150)


def alignment_inputs(settings: Any, parameters: dict[str, float], options: dict[str, Any]) -> tuple[Inputs, Inputs]:
    """The single pair and the batch that the settings ask for. Raises SequenceError on bad sequences."""
    if settings.input == "random":
        (single, single_text), (batch, lengths, batch_text) = _random(settings)
        single_lengths = None
    else:
        path = GLOBINS if settings.input == "globins" else Path(settings.input)
        batch, lengths, batch_text, single_text = _proteins(path, settings)
        single, single_lengths = batch[0], lengths[0]
    dtype = np.dtype(settings.dtype)
    return (
        Inputs(single_text, single.astype(dtype), single_lengths, parameters, options, settings.seed),
        Inputs(batch_text, batch.astype(dtype), lengths, parameters, options, settings.seed),
    )


def _random(settings: Any) -> tuple[tuple[np.ndarray, str], tuple[np.ndarray, np.ndarray, str]]:
    rows, cols = settings.size or RANDOM_SIZE
    count = settings.batch or RANDOM_BATCH
    generator = np.random.RandomState(settings.seed)
    try:
        single = generator.random_sample((rows, cols))
        batch = generator.random_sample((count, rows, cols))
    except ValueError as error:  # more than NumPy can even count
        raise MemoryError(f"{count} random matrices of {rows} x {cols}: {error}") from None
    choices = _scaled(_ROW_CHOICES, rows), _scaled(_COL_CHOICES, cols)
    lengths = np.array([[generator.choice(options) for options in choices] for _ in range(count)], dtype=np.int32)
    text = f"random similarity, seed {settings.seed}"
    return (single, f"{text}, one pair of {rows} x {cols}"), (
        batch,
        lengths,
        f"{text}, {count} pairs of up to {rows} x {cols}",
    )


def _scaled(fractions: Sequence[float], size: int) -> list[int]:
    return [max(1, round(fraction * size)) for fraction in fractions]


def _proteins(path: Path, settings: Any) -> tuple[np.ndarray, np.ndarray, str, str]:
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
    return similarity, lengths, batch_text, f"{text}, one pair: {first} and {second}"
