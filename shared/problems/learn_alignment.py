"""Learning to align as a problem of the benchmark: the use that differentiable alignments were made for.

A model of how alike residues are is trained, through the marginals of smith_waterman_affine, until its alignments of
proteins of a family are the family's true ones. The question `learning` alone measures it; the models, the training
and the measure of quality are in shared/learning, jax_impl/learning and torch_impl/learning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from shared.learning.families import Family, bundled_families, read_families
from shared.learning.job import Job
from shared.learning.training import epoch_batches
from shared.learning.weights import MODELS
from shared.problems.argument_types import file, one_of, whole
from shared.problems.problem import DATA, Argument, Inputs, NotMeasurable, Problem, Rate, Sizes, UnusableInput
from shared.variants import Abilities

ALIGNMENT = "smith_waterman_affine"  # whose marginals are learned through
TRAIN, STEP = "train", "step"  # passes
NO_COMPILER = "torch.compile takes longer than the whole training"


@dataclass(frozen=True)
class FamilyInputs(Inputs):
    """Protein families. The options are the model, the number of seeds, and the epochs at most."""

    families: tuple[Family, ...]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Residues and columns of all sequences, one after the other, and their lengths."""
        lengths = np.array([len(codes) for family in self.families for codes in family.codes], np.int32)
        flat = {
            name: np.concatenate([row for family in self.families for row in getattr(family, name)])
            for name in ("codes", "columns")
        }
        return flat | {"lengths": lengths}

    def arguments(self, pass_name: str) -> list[np.ndarray | None]:
        return list(self.arrays.values())

    @property
    def shape(self) -> tuple[int, ...]:
        """Families, the sequences of the largest, and residues of the longest."""
        longest = max(len(codes) for family in self.families for codes in family.codes)
        return len(self.families), max(len(family.codes) for family in self.families), longest

    @property
    def work(self) -> int:
        """Pairs of an epoch, if all families are trained on."""
        return sum(len(packed.pairs) for packed in epoch_batches(self.families, Job(seed=self.seed), 1))


def _folder(text: str) -> str:
    return str(file(text).absolute())  # a record may be resumed in another folder


class LearnAlignment(Problem[FamilyInputs, None]):
    """Training on families, with validation and early stopping."""

    name = "learn_alignment"
    text = f"learn to align protein families, by gradient descent through the marginals of {ALIGNMENT}"
    passes = {  # noqa: RUF012
        TRAIN: "training from the first weights to the quality, with validation after each epoch",
        STEP: "a step of training: the loss of a batch of pairs, its gradient, and Adam's update of the weights",
    }
    default_passes = (TRAIN, STEP)
    question = "learning"
    arguments = {  # noqa: RUF012
        "model": Argument("matrix", one_of("model", MODELS), f"what is learned: {' or '.join(MODELS)}", "NAME"),
        "families": Argument("bundled", _folder, "folder of Stockholm files to learn from", "FOLDER"),
        "seeds": Argument(3, whole("seeds", 1), "how often each framework trains, each time from another start", "N"),
        "epochs": Argument(Job().epochs, whole("epochs", 1), "steps or epochs of training, at most", "N"),
        "checkpoints": Argument("none", _folder, "folder to keep the trainings in", "FOLDER"),
    }
    rate = Rate("pairs in an epoch of all families", "steps/s", 1.0)
    sizes = Sizes("as the families have it", "", (), "residues")
    takes = ()
    has_auto = True

    def abilities(self, framework: str, known: Mapping[str, Abilities]) -> Abilities:
        """The abilities of the alignment with second derivatives; JAX compiles a step as a whole."""
        able = known[ALIGNMENT]
        uncompiled = {} if framework == "jax" else {**able.uncompiled_variants, "fused": NO_COMPILER}
        return able._replace(
            absent={**able.absent, **able.first_order}, uncompiled_passes={}, uncompiled_variants=uncompiled
        )

    def is_default(self, variant: str, abilities: Abilities, settings: Any) -> bool:
        return variant == abilities.auto

    def inputs(self, settings: Any) -> dict[str, FamilyInputs]:
        """Raises SequenceError where the families cannot be read, UnusableInput where checkpoints cannot be kept."""
        folder, checkpoints = (settings.arguments.get(name) for name in ("families", "checkpoints"))
        if checkpoints is not None:
            try:
                Path(checkpoints).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UnusableInput(f"checkpoints cannot be kept in {checkpoints}: {error.strerror}") from None
        families = bundled_families() if folder is None else read_families(Path(folder))
        values = self.argument_values(settings)
        sequences, residues = _extent(families)
        where = "bundled" if folder is None else f"in {folder}"
        text = f"{len(families)} families {where}, {sequences:,} sequences, {residues:,} residues; seed {settings.seed}"
        options = {name: values[name] for name in ("model", "seeds", "epochs")}
        return {DATA: FamilyInputs(text, families, options=options, seed=settings.seed)}

    def inputs_of_size(self, settings: Any, size: tuple[int, ...]) -> NoReturn:
        raise NotMeasurable("families have the size that they have")

    def reference_results(self, inputs: FamilyInputs, passes: Any) -> None:
        """A training is compared with that of the other framework, step by step."""

    def judge(self, *_: Any, **__: Any) -> NoReturn:
        raise NotMeasurable(f"the question {self.question} judges it")

    def reference(self, *_: Any) -> NoReturn:
        raise NotMeasurable("nobody has trained in NumPy")


def _extent(families: Sequence[Family]) -> tuple[int, int]:
    """Sequences, and residues of all of them."""
    lengths = [len(codes) for family in families for codes in family.codes]
    return len(lengths), sum(lengths)
