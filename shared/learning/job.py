"""What a training is determined by, beside its families."""

from dataclasses import dataclass

from shared.checks import check_choice, see_host
from shared.learning.weights import MODELS
from shared.workload_checks import check_count, check_learning_rate

DOUBT = 0.01  # the share of true pairs that the loss takes to be annotated wrongly


@dataclass(frozen=True)
class Job:
    """One training. `dataclasses.asdict` gives it as JSON, and `Job(**…)` takes it back.

    Raises ValueError for an unknown model, and TypeError or ValueError for numbers that are none or too small.
    """

    model: str = "matrix"
    seed: int = 0  # of the first weights, and of the pairs that are drawn
    learning_rate: float | None = None  # of Adam; None: the model's own
    pairs_per_family: int = 20  # in an epoch; fewer of long sequences
    epochs: int = 60  # at most
    patience: int = 8  # epochs without a better validation quality, after which training ends
    target: float | None = None  # the quality at which the time is taken

    def __post_init__(self) -> None:
        check_choice("model", self.model, tuple(MODELS))
        for name, least in (("seed", 0), ("pairs_per_family", 1), ("epochs", 1), ("patience", 1)):
            check_count(name, getattr(self, name), least)
        if self.learning_rate is not None:
            check_learning_rate(see_host(self.learning_rate))

    @property
    def rate(self) -> float:
        """The learning rate."""
        return MODELS[self.model].learning_rate if self.learning_rate is None else self.learning_rate
