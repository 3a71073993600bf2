"""What the workers of `learning` do for its quality side: BLOSUM62 over its gaps, and a model on a family left out."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shared.bench.cases import Case
from shared.bench.questions.learning_gain import WAYS
from shared.bench.questions.learning_worker import families_of, new_trainer, settings, trained
from shared.learning.baseline import CELLS, at_edge, best_choice, grid_qualities, weights_of
from shared.learning.batches import Pair, pack
from shared.learning.families import ALPHABET
from shared.learning.job import Job
from shared.learning.quality import Counts, differences, estimates, measure, quality, rates
from shared.learning.training import validation_batches

if TYPE_CHECKING:
    from shared.bench.worker.case_runner import CaseRunner

_PAIRS = 100  # of a family that is left out; fewer of long sequences
# of a pair that is drawn: most residues of a sequence, and the least part of the shorter one that has a true partner
_MOST_RESIDUES, _LEAST_ALIGNED = 100, 0.5
LEVELS = "0123456789abcdef"  # probabilities in 16 steps, a character each


def grid(runner: "CaseRunner", case: Case, family: str, process: int) -> dict[str, Any]:
    """The quality that BLOSUM62 has on a family with each choice of the grid, by exact and by soft alignments."""
    with settings(runner, case, process):
        trainer, (own,) = _blosum(runner, case), families_of(runner, [family])
        return {way: grid_qualities(trainer, own, way) for way in WAYS}


def _blosum(runner: "CaseRunner", case: Case) -> Any:
    """A trainer of a matrix, whatever the model of the run is."""
    return new_trainer(runner, case, Job())


def target(
    runner: "CaseRunner", case: Case, split: Mapping[str, Sequence[str]], grids: Mapping[str, Any], process: int
) -> dict[str, Any]:
    """The quality of BLOSUM62's soft alignments of the validation families, by the best choice on the others."""
    choice = best_choice([own["soft"] for own in grids.values()], "soft")
    with settings(runner, case, process):
        trainer = _blosum(runner, case)
        trainer.set_weights(weights_of(choice))
        own = quality(measure(trainer, validation_batches(families_of(runner, split["validation"]))))
    return {"quality": own, **choice._asdict(), "at_edge": at_edge(choice, "soft")}


def tested(
    runner: "CaseRunner", case: Case, name: str, process: int, family: str, grids: Mapping[str, Any]
) -> dict[str, Any]:
    """The rates of BLOSUM62 and of a training's best weights on a family, their differences, and its hardest pair.

    grids: those of the families that were trained on.
    """
    training, found = trained(name), {"blosum": {}, "learned": {}, "gain": {}, "choice": {}}
    batches = validation_batches(families_of(runner, [family]), _PAIRS, CELLS)
    with settings(runner, case, process):
        model, blosum = new_trainer(runner, case, training.job), _blosum(runner, case)
        model.set_weights(training.best)
        for way in WAYS:
            choice = best_choice([own[way] for own in grids.values()], way)
            found["choice"][way] = {**choice._asdict(), "at_edge": at_edge(choice, way)}
            blosum.set_weights(weights_of(choice))
            before, after = (measure(each, batches, exact=way == "exact")[family] for each in (blosum, model))
            for part, own in (("blosum", estimates(before)), ("learned", estimates(after))):
                found[part][way] = {key: list(value) for key, value in own.items()}
            found["gain"][way] = {key: list(value) for key, value in differences(after, before).items()}
        # the last one was soft
        start = new_trainer(runner, case, training.job)
        picture = _picture(
            families_of(runner, [family])[0], before, {"start": start, "BLOSUM62": blosum, "learned": model}
        )
    return {**found, "pairs": len(before.true), "picture": picture}


def _picture(family: Any, counts: Counts, models: Mapping[str, Any]) -> dict[str, Any] | None:
    """The soft alignments of the pair that BLOSUM62 aligns worst, of those that are short and mostly aligned."""
    lengths = np.array([len(codes) for codes in family.codes])
    both = np.stack([lengths[counts.first], lengths[counts.second]])
    fits = (both.max(0) <= _MOST_RESIDUES) & (counts.true >= _LEAST_ALIGNED * both.min(0))
    if not fits.any():
        return None
    f1 = np.where(fits, rates(counts, np.eye(len(counts.true))).f1, 2.0)
    place = int(f1.argmin())
    pair = Pair(family, int(counts.first[place]), int(counts.second[place]))
    (packed,) = pack([pair])
    rows, cols = packed.batch.lengths[0]
    steps = len(LEVELS) - 1
    soft = {
        name: [
            "".join(LEVELS[round(steps * float(p))] for p in row[:cols])
            for row in each.marginals(packed.batch)[0][:rows]
        ]
        for name, each in models.items()
    }
    truth = [[i, int(j)] for i, j in enumerate(packed.batch.partners[0]) if j >= 0]
    names = [family.sequences[number] for number in pair[1:]]
    letters = ["".join(ALPHABET[code] for code in family.codes[number]) for number in pair[1:]]
    return {"f1": float(f1[place]), "soft": soft, "truth": truth, "sequences": names, "letters": letters}
