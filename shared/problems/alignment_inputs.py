"""Inputs that all alignment problems share: bundled globins, a FASTA file, or random matrices.

The random input draws in a fixed order, so that others can draw the same: np.random.seed, one single matrix, then the
batch, then both lengths of each pair. With its default size and seed 0: 100 pairs of 100 x 150, 959,500 cells.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, cycle, islice
from math import comb
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shared.backends import GAPS_BY_POSITION
from shared.problems.argument_types import size_text
from shared.problems.problem import BATCH, SINGLE, Inputs, UnusableInput, check_memory, other_length
from shared.sequences import GLOBINS, pair_batch, read_fasta, substitution_matrix

RANDOM_SIZE = (100, 150)
RANDOM_BATCH = 100
GROWTH_BATCH = 16
# What a GPU is given by default: a batch of that size, and one that gives every part of it work for long.
# Of the larger only so many pairs differ, so that neither the host nor the gate is busy with it.
GPU_SIZE, GPU_BATCH = RANDOM_SIZE, 64
CHIP_SIZE, CHIP_BATCH, CHIP_DISTINCT = (512, 512), 4096, 64
# lengths of the random pairs as fractions of the matrix: 80, 90, 100 of 100 rows and 95, 105, 120 of 150 columns
_ROW_CHOICES, _COL_CHOICES = (0.8, 0.9, 1.0), (95 / 150, 105 / 150, 120 / 150)
# lengths where growth is measured: the whole matrix, so that run time over size is not run time over padding
_FULL = (1.0,)
# how far a gap by position is from the parameter, at most
_SPREAD = 0.5
# of a batch in float32 that exist at the same time: as it is drawn, and in each worker with its results
_COPIES = 10


class _Raw(NamedTuple):
    text: str
    similarity: np.ndarray
    lengths: np.ndarray | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class AlignmentInputs(Inputs):
    """Similarities and lengths. The parameters are differentiable."""

    similarity: np.ndarray  # (rows, cols) or (batch, rows, cols)
    lengths: np.ndarray | None  # (batch, 2), or None
    gaps: dict[str, np.ndarray] = field(default_factory=dict, kw_only=True)  # by position, of similarity's shape

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        lengths = {} if self.lengths is None else {"lengths": self.lengths}
        return {"similarity": self.similarity, **lengths, **self.gaps}

    def arguments(self, pass_name: str) -> list[np.ndarray | None]:
        weights = [self.weights] if pass_name == "hvp" else []
        return [self.similarity, self.lengths, *weights, *self.gaps.values()]

    @property
    def own_options(self) -> dict[str, Any]:
        """The options that the alignment's function takes."""
        return {name: value for name, value in self.options.items() if name != GAPS_BY_POSITION}

    @property
    def keywords(self) -> dict[str, Any]:
        """The keyword arguments of the alignment's function."""
        return {**self.parameters, **self.gaps, **self.own_options}

    @property
    def hashed(self) -> Iterable[np.ndarray]:
        return self.similarity, self.pair_lengths.astype(np.int64), *self.gaps.values()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.similarity.shape if self.similarity.ndim == 2 else (self.pairs, *self.similarity.shape[1:])

    @property
    def weights(self) -> np.ndarray:
        """c of the loss sum(c * marginals), whose gradient is the pass hvp: normal, drawn by the seed.

        Of similarity's shape and dtype; in the padding too, where it must have no influence.
        """
        drawn = np.random.default_rng(self.seed).standard_normal(self.similarity.shape, dtype=np.float32)
        return drawn.astype(self.similarity.dtype)

    @property
    def pair_lengths(self) -> np.ndarray:
        """(pairs, 2): the lengths of every pair, once; also of a single one without lengths."""
        rows, cols = self.similarity.shape[-2:]
        lengths = np.array([rows, cols]) if self.lengths is None else self.lengths
        return np.broadcast_to(lengths, (self.pairs // self.copies, 2))

    @property
    def pairs(self) -> int:
        return len(self.similarity) * self.copies if self.similarity.ndim == 3 else 1

    def resized(self, step: int) -> "AlignmentInputs":
        similarity, lengths = other_length(self.similarity, -1, step), None
        if self.lengths is not None:
            lengths = np.minimum(self.lengths, similarity.shape[-2:]).astype(self.lengths.dtype)
        gaps = {name: other_length(gap, -1, step) for name, gap in self.gaps.items()}
        return replace(self, similarity=similarity, lengths=lengths, gaps=gaps)

    @property
    def work(self) -> int:
        """Cells inside the lengths: the work asked for, not the padding."""
        return int(self.pair_lengths.astype(np.int64).prod(axis=1).sum()) * self.copies


def alignment_inputs(
    settings: Any, parameters: dict[str, float], options: dict[str, Any]
) -> dict[str, AlignmentInputs]:
    """The batch that the settings ask for; on a GPU a small and a large one unless they say how large it shall be.

    Raises SequenceError on bad sequences.
    """
    if settings.input == "random" and settings.device != "cpu" and not (settings.size or settings.batch):
        small = _random(settings, GPU_SIZE, GPU_BATCH, _ROW_CHOICES, _COL_CHOICES)[1]
        large = _random(settings, CHIP_SIZE, CHIP_DISTINCT, _FULL, _FULL)[1]
        by_size = {
            GPU_SIZE: _made(small, settings, parameters, options),
            CHIP_SIZE: _made(large, settings, parameters, options),
        }
        by_size[CHIP_SIZE] = replace(by_size[CHIP_SIZE], copies=CHIP_BATCH // CHIP_DISTINCT, by_device_time=True)
        return {f"{rows}x{cols}": inputs for (rows, cols), inputs in by_size.items()}
    return {BATCH: _made(_single_and_batch(settings)[1], settings, parameters, options)}


def ladder_inputs(settings: Any, parameters: dict[str, float], options: dict[str, Any]) -> dict[str, AlignmentInputs]:
    """A single pair and a batch. Raises SequenceError on bad sequences."""
    single, batch = _single_and_batch(settings)
    return {SINGLE: _made(single, settings, parameters, options), BATCH: _made(batch, settings, parameters, options)}


def inputs_of_size(
    settings: Any, size: tuple[int, ...], parameters: dict[str, float], options: dict[str, Any]
) -> AlignmentInputs:
    """A batch of random pairs, each as large as its matrix."""
    count, rows, cols = batch_of_size(settings, size)
    _, batch = _random(settings, (rows, cols), count, _FULL, _FULL)
    return _made(batch, settings, parameters, options)


def batch_of_size(settings: Any, size: tuple[int, ...]) -> tuple[int, int, int]:
    """Pairs, rows and columns of a size, BATCHxROWSxCOLS or ROWSxCOLS."""
    *batch, rows, cols = size
    if batch and settings.batch:
        raise UnusableInput(f"a batch of {settings.batch} goes with sizes of ROWSxCOLS, got {size_text(size)!r}")
    return batch[0] if batch else settings.batch or GROWTH_BATCH, rows, cols


def _made(raw: _Raw, settings: Any, parameters: dict[str, float], options: dict[str, Any]) -> AlignmentInputs:
    array = raw.similarity.astype(np.dtype(settings.dtype))
    random = np.random.default_rng([settings.seed, 1])
    names = [name for name in parameters if name != "temperature" and GAPS_BY_POSITION in options]
    gaps = {
        name: (parameters[name] + random.uniform(-_SPREAD, _SPREAD, array.shape)).astype(array.dtype) for name in names
    }
    drawn = f", gaps by position within ±{_SPREAD:g} of the number" if gaps else ""
    return AlignmentInputs(
        raw.text + drawn,
        array,
        raw.lengths,
        gaps=gaps,
        parameters=parameters,
        options=options,
        seed=settings.seed,
        notes=raw.notes,
    )


def _single_and_batch(settings: Any) -> tuple[_Raw, _Raw]:
    if settings.input == "random":
        size, count = settings.size or RANDOM_SIZE, settings.batch or RANDOM_BATCH
        return _random(settings, size, count, _ROW_CHOICES, _COL_CHOICES)
    return _proteins(GLOBINS if settings.input == "globins" else Path(settings.input), settings)


def _random(
    settings: Any, size: tuple[int, int], count: int, row_choices: Sequence[float], col_choices: Sequence[float]
) -> tuple[_Raw, _Raw]:
    """The single pair and the batch. The choices are fractions of the size, of which each length is one."""
    rows, cols = size
    _check_memory(count, rows, cols)
    generator = np.random.RandomState(settings.seed)
    single = generator.random_sample((rows, cols))
    batch = generator.random_sample((count, rows, cols))
    choices = _scaled(row_choices, rows), _scaled(col_choices, cols)
    lengths = np.array([[generator.choice(options) for options in choices] for _ in range(count)], dtype=np.int32)
    text = f"random similarity, seed {settings.seed}"
    kind = "of" if row_choices is _FULL else "of up to"
    return (
        _Raw(f"{text}, one pair of {rows} x {cols}", single, None),
        _Raw(f"{text}, {_pairs(count)} {kind} {rows} x {cols}", batch, lengths),
    )


def _check_memory(count: int, rows: int, cols: int) -> None:
    check_memory(_COPIES * 4 * count * rows * cols, f"{count} matrices of {rows} x {cols}")


def _pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{count} pairs"


def _scaled(fractions: Sequence[float], size: int) -> list[int]:
    return [max(1, round(fraction * size)) for fraction in fractions]


def _proteins(path: Path, settings: Any) -> tuple[_Raw, _Raw]:
    matrix = substitution_matrix(settings.matrix)
    records = read_fasta(path, matrix)
    total = len(records)
    distinct = comb(total, 2)
    count = settings.batch or distinct
    # the longest of the pairs (0, 1), (0, 2), ..., (1, 2), ..., which may be too many to list
    begun = [record for i, record in enumerate(records[:-1]) if i * (2 * total - i - 1) // 2 < count]
    rows, cols = (max(len(record.letters) for record in side) for side in (begun, records[1 : count + 1]))
    _check_memory(count, rows, cols)
    pairs = list(islice(cycle(combinations(range(total), 2)), count))
    repeated = f" ({distinct}, repeated)" if count > distinct else ""
    similarity, lengths, notes = pair_batch(records, pairs, matrix, path)
    source = "bundled globins" if settings.input == "globins" else path.name
    text = f"{source}, {settings.matrix.upper()}"
    batch_text = f"{text}, {_pairs(count)}{repeated} of {total} proteins, up to {rows} x {cols}"
    first, second = (records[index].name for index in pairs[0])
    return (
        _Raw(f"{text}, one pair: {first} and {second}", similarity[0], lengths[0], notes),
        _Raw(batch_text, similarity, lengths, notes),
    )
