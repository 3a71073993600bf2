"""The stream of `shapes`: how its batches are drawn, and to which shapes each strategy pads them.

A data loader that groups pairs of similar length gives batches whose longest pair is anywhere between a third of the
largest size and all of it. The first BATCHES are measured, each of another shape; of the rest up to COUNTED only the
shapes are drawn, with repetition, to know how often a strategy has to compile for them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shared.problems import problem_of
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.alignment_reference import ReferenceResults, reference_results
from shared.problems.alignments import AlignmentProblem
from shared.problems.problem import UnusableInput

BATCHES, COUNTED = 50, 500
SIZE, PAIRS = (150, 150), 16
_SHORTEST = 1 / 3  # of a batch's longest pair, as a part of the size; and of a pair, as a part of the batch's longest

Shapes = np.ndarray  # (batches, 2): rows and columns of each batch's matrix

AS_IS, FOUR, DYNAMIC, EAGER = "as is", "4 shapes", "dynamic", "eager"


def _multiples(shapes: Shapes, of: int) -> Shapes:
    return -(-shapes // of) * of


def _four(shapes: Shapes) -> Shapes:
    """Rows to their median or their largest, and columns likewise."""
    median, largest = np.median(shapes, axis=0).astype(shapes.dtype), shapes.max(axis=0)
    return np.where(shapes <= median, median, largest)


# strategy -> the shapes to which it pads
STRATEGIES: dict[str, Callable[[Shapes], Shapes]] = {
    AS_IS: lambda shapes: shapes,
    "multiples of 16": lambda shapes: _multiples(shapes, 16),
    "multiples of 64": lambda shapes: _multiples(shapes, 64),
    FOUR: _four,
    DYNAMIC: lambda shapes: shapes,
    EAGER: lambda shapes: shapes,
}


def stream_of(settings: Any) -> AlignmentInputs:
    """All pairs of the stream, batch by batch, each in a matrix of the largest size. Raises UnusableInput."""
    problem = problem_of(settings.problem)
    if not isinstance(problem, AlignmentProblem):
        raise UnusableInput(f"shapes goes with alignments, not with {problem.name}")
    if settings.input != "random":
        raise UnusableInput(f"shapes goes with --input random, got {settings.input!r}")
    for name in settings.passes:
        if name not in ("score", "marginals"):
            raise UnusableInput(f"shapes goes with --pass score and marginals, got {name}")
    size, pairs = settings.size or SIZE, settings.batch or PAIRS
    shapes = drawn_shapes(settings)[:BATCHES]
    whole = problem.inputs_of_size(replace(settings, batch=BATCHES * pairs), size)
    part = np.random.default_rng(settings.seed).uniform(_SHORTEST, 1.0, (BATCHES, pairs, 2))
    lengths = np.ceil(part * shapes[:, None]).astype(np.int32)
    lengths[:, 0, 0], lengths[:, -1, 1] = shapes.T
    text = f"{BATCHES} batches of {pairs} random pairs, seed {settings.seed}, each of another shape, up to "
    return replace(whole, text=text + " x ".join(map(str, size)), lengths=lengths.reshape(-1, 2))


def drawn_shapes(settings: Any) -> Shapes:
    """(COUNTED, 2), of which the first BATCHES differ. Raises UnusableInput."""
    size = np.array(settings.size or SIZE)
    least = np.ceil(size * _SHORTEST).astype(int)
    choices = size - least + 1
    count = int(choices.prod())
    if count < BATCHES:
        rows, cols = size
        raise UnusableInput(f"{BATCHES} batches of different shapes need a size of more than {rows}x{cols}")
    generator = np.random.default_rng(settings.seed)
    drawn = [generator.choice(count, BATCHES, replace=False), generator.integers(count, size=COUNTED - BATCHES)]
    return least + np.stack(np.divmod(np.concatenate(drawn), choices[1]), axis=1)


def batches_of(stream: AlignmentInputs) -> list[AlignmentInputs]:
    """Each in a matrix of its own shape."""
    found, pairs = [], len(stream.similarity) // BATCHES
    for first in range(0, len(stream.similarity), pairs):
        lengths = stream.pair_lengths[first : first + pairs]
        rows, cols = lengths.max(axis=0)
        own = slice(first, first + pairs), slice(rows), slice(cols)
        gaps = {name: gap[own] for name, gap in stream.gaps.items()}
        found.append(replace(stream, similarity=stream.similarity[own], gaps=gaps, lengths=lengths))
    return found


def references_of(problem: str, stream: AlignmentInputs, passes: Sequence[str]) -> list[ReferenceResults]:
    """For each batch the reference results of its shortest and its longest pair.

    All at once: NumPy takes nearly as long for a cell of one pair as for that of a hundred.
    """
    work = stream.pair_lengths.astype(np.int64).prod(axis=1).reshape(BATCHES, -1)
    pairs = np.stack([work.argmin(axis=1), work.argmax(axis=1)], axis=1)  # in their batch
    chosen = (pairs + np.arange(BATCHES)[:, None] * work.shape[1]).reshape(-1)
    gaps = {name: gap[chosen] for name, gap in stream.gaps.items()}
    given = replace(stream, similarity=stream.similarity[chosen], gaps=gaps, lengths=stream.pair_lengths[chosen])
    found = reference_results(problem, given, passes, cells=given.work)
    places = found.pairs.argsort().reshape(BATCHES, 2)
    return [_of_batch(found, own, batch_pairs) for own, batch_pairs in zip(places, pairs, strict=True)]


def _of_batch(found: ReferenceResults, own: np.ndarray, pairs: np.ndarray) -> ReferenceResults:
    """own: the places of the pairs in what was found. pairs: what they are in their batch."""
    lengths = found.lengths[own]
    rows, cols = lengths.max(axis=0)
    marginals = found.marginals[own, :rows, :cols]
    return found._replace(
        pairs=pairs, lengths=lengths, largest=found.largest[own], score=found.score[own], marginals=marginals
    )


def padded_to(array: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Matrices with zeros up to a shape; lengths (batch, 2) as they are."""
    if array.ndim < 3 or array.shape[1:] == shape:
        return array
    larger = np.zeros((len(array), *shape), array.dtype)
    larger[:, : array.shape[1], : array.shape[2]] = array
    return larger
