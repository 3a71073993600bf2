"""The inputs of `processes`: a ragged batch, its shards, the batch several times, and a batch of the learning job."""

import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from shared.bench.cases import Settings
from shared.learning.batches import Batch
from shared.learning.families import bundled_families
from shared.learning.job import Job
from shared.learning.shards import dealt
from shared.learning.training import epoch_batches
from shared.problems import Inputs, problem_of
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.alignment_reference import CELLS, ReferenceResults, reference_results
from shared.problems.problem import BATCH, NotMeasurable

# the pass that is a step of training
STEP = "step"
# the names of inputs, beside BATCH, whose shards have about as many cells each: shards of as many pairs each; and of
# the pass step its batch, of which every process takes its shard without telling the others
COUNT, ALONE = "divided by count", "without communication"
# what is measured where nothing is asked for: a call of milliseconds, as a step of training has them
SIZE, PAIRS = (256, 256), 128
# the shortest length of a random pair, as a fraction of the matrix
_SHORTEST = 1 / 3


@dataclass(frozen=True)
class Rows(AlignmentInputs):
    """Pairs of a batch, in any order or several times, with the weights that they have there."""

    own_weights: NDArray[Any] | None = None

    @property
    def weights(self) -> NDArray[Any]:
        assert self.own_weights is not None, "made by rows_of"
        return self.own_weights


@dataclass(frozen=True)
class StepInputs(Inputs):
    """A batch of the learning job."""

    batch: Batch

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        return self.batch._asdict()

    def arguments(self, pass_name: str) -> list[NDArray[Any] | None]:
        return list(self.batch)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.batch.first.shape

    @property
    def pairs(self) -> int:
        return len(self.batch.first)

    @property
    def work(self) -> int:
        return int(self.batch.lengths.astype(np.int64).prod(1).sum())

    def resized(self, step: int) -> "StepInputs":
        raise NotMeasurable("a batch has the pairs that it has")


def inputs_of(settings: Settings, counts: Sequence[int]) -> dict[str, Inputs]:
    """By name: the batch, divided in two ways, several times for each of these counts, and the one of a step.

    Where only steps are asked for, the batch is theirs.
    """
    if settings.passes == (STEP,):
        own = step_inputs(settings.seed, settings.batch)
        copies = {
            copies_name(count): replace(own, text=_copies_text(count), batch=repeated(own.batch, count))
            for count in counts
        }
        return {BATCH: own, **copies, ALONE: replace(own, text=f"the same batch, {ALONE}")}
    asked = settings
    if settings.input == "random":
        asked = replace(settings, size=settings.size or SIZE, batch=settings.batch or PAIRS)
    (given,) = cast("Mapping[str, AlignmentInputs]", problem_of(settings.problem).inputs(asked)).values()
    if settings.input == "random":
        given = _ragged(given)
    several: dict[str, Inputs] = {}
    for count in counts:
        rows = np.tile(np.arange(given.pairs), count)
        several[copies_name(count)] = replace(rows_of(given, rows), text=_copies_text(count))
    found: dict[str, Inputs] = {BATCH: given, COUNT: replace(given, text="the same batch, divided by count"), **several}
    return found | ({ALONE: step_inputs(settings.seed, settings.batch)} if STEP in settings.passes else {})


def copies_name(count: int) -> str:
    """Of the input that has the batch so many times, once for each process."""
    return f"{count} batches"


def _copies_text(count: int) -> str:
    return f"{count} of these batches, one each"


def copies_of(name: str) -> int:
    """How many times an input has the batch."""
    found = re.fullmatch(r"(\d+) batches", name)
    return int(found[1]) if found else 1


def step_inputs(seed: int, batch: int | None = None) -> StepInputs:
    """The batch with the most pairs, and of those the most cells, of an epoch of the bundled families.

    batch: so many pairs instead, those of that batch over and over.
    """
    packed = max(
        epoch_batches(bundled_families(), Job(seed=seed), 1),
        key=lambda each: (len(each.pairs), int(each.batch.lengths.astype(np.int64).prod(1).sum())),
    )
    given = packed.batch
    if batch is not None:
        rows = np.arange(batch) % len(packed.pairs)
        given = Batch._make(array[rows] for array in given)
    pairs, length = np.count_nonzero(given.weights), given.first.shape[1]
    text = f"a batch of learning, {pairs} pairs of up to {length} residues, for the pass {STEP}"
    return StepInputs(text, given, seed=seed)


def repeated(batch: Batch, copies: int) -> Batch:
    """A batch that has every pair so many times."""
    return Batch._make(np.concatenate([array] * copies) for array in batch)


def _ragged(given: AlignmentInputs) -> AlignmentInputs:
    """Random pairs with lengths from a third of the matrix on, in order of their cells, as sorted data have them."""
    sides, drawn = np.array(given.similarity.shape[-2:]), np.random.default_rng([given.seed, 2])
    least = np.maximum(1, np.ceil(sides * _SHORTEST)).astype(int)
    lengths = drawn.integers(least, sides + 1, (given.pairs, 2)).astype(np.int32)
    lengths[0] = sides
    lengths = lengths[np.argsort(lengths.astype(np.int64).prod(1), kind="stable")]
    kind = f"{given.pairs} pairs of {' x '.join(map(str, least))} to {' x '.join(map(str, sides))}, the shortest first"
    return replace(given, lengths=lengths, text=f"random similarity, seed {given.seed}, {kind}")


def rows_of(given: AlignmentInputs, rows: NDArray[np.integer]) -> Rows:
    """The pairs of these numbers."""
    own = {name: getattr(given, name) for name in ("text", "parameters", "options", "seed", "notes")}
    gaps = {name: gap[rows] for name, gap in given.gaps.items()}
    lengths = given.pair_lengths[rows]
    return Rows(similarity=given.similarity[rows], lengths=lengths, gaps=gaps, own_weights=given.weights[rows], **own)


def shard_name(name: str, index: int, count: int) -> str:
    """The input that a process has of an input: several batches are one for each."""
    return name if count == 1 else BATCH if copies_of(name) > 1 else f"{name} {index} of {count}"


def shards(given: AlignmentInputs, count: int) -> dict[str, NDArray[np.intp]]:
    """By name, the numbers of the pairs of each shard, divided in both ways."""
    found = {}
    for name, by in ((BATCH, "cells"), (COUNT, "count")):
        for index, rows in enumerate(dealt(given.pair_lengths, count, by)):
            found[shard_name(name, index, count)] = rows
    return found


def largest_share(given: AlignmentInputs, count: int, name: str) -> float:
    """The cells of the largest shard as a multiple of an equal share."""
    cells = given.pair_lengths.astype(np.int64).prod(1)
    loads = [cells[rows].sum() for shard, rows in shards(given, count).items() if shard.startswith(f"{name} ")]
    return float(max(loads) * count / cells.sum())


def reference_of_rows(
    problem: str, whole: ReferenceResults, own: Rows, rows: NDArray[np.integer], passes: Sequence[str]
) -> ReferenceResults:
    """Those of the whole batch that are of these pairs; of a few of them anew where it has none."""
    places = {int(row): place for place, row in reversed(list(enumerate(rows)))}
    kept = [number for number, pair in enumerate(whole.pairs) if int(pair) in places]
    if not kept:
        return reference_results(problem, own, passes, CELLS // 8)
    pairs = np.array([places[int(whole.pairs[number])] for number in kept])
    arrays = {name: value[kept] for name, value in whole._asdict().items() if isinstance(value, np.ndarray)}
    return whole._replace(**arrays | {"pairs": pairs})


def write_inputs(folder: Path, settings: Settings, inputs: Mapping[str, Inputs], counts: Sequence[int]) -> None:
    """Write what workers read: inputs with their reference results, those of every shard too."""
    passes = [name for name in settings.passes if name != STEP]

    def write(name: str, value: Inputs, reference: ReferenceResults | None) -> None:
        for kind, each in (("inputs", value), ("reference", reference)):
            (folder / f"{name}.{kind}").write_bytes(pickle.dumps(each))

    if ALONE in inputs:
        write(STEP, inputs[ALONE], None)
    if not passes:
        return
    given = cast(AlignmentInputs, inputs[BATCH])
    whole = reference_results(settings.problem, given, passes)
    write(BATCH, given, whole)
    for count in counts:
        if (several := inputs.get(copies_name(count))) is not None:
            write(copies_name(count), several, whole)  # its first pairs are those of the batch
        for name, rows in shards(given, count).items():
            own = rows_of(given, rows)
            write(name, own, reference_of_rows(settings.problem, whole, own, rows, passes))
