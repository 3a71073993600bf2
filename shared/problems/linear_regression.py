"""Linear regression as a problem of the benchmark: a training loop whose steps are almost nothing.

y = 2 x + 1 + 0.5 * normal with x uniform in [0, 1), drawn by the seed: all x first, then the noise.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from shared.problems.argument_types import real, whole
from shared.problems.problem import (
    DATA,
    Argument,
    Inputs,
    Loop,
    Problem,
    Rate,
    Sizes,
    UnusableInput,
    Verdict,
    check_form,
    other_length,
    within,
)
from shared.reference.linear_regression import fit, least_squares
from shared.variants import Abilities

POINTS = 1000
TRUE_A, TRUE_B, NOISE = 2.0, 1.0, 0.5
# how far a and b may be from those of NumPy's gradient descent: in float32 late updates fall below the rounding
ALLOWED = {"float32": 5e-4, "float64": 1e-10}
_AWAY = 10.0
# the compiler is part of these; nothing is to be put around any variant
_COMPILED = ("jit_step", "compiled_loop")


@dataclass(frozen=True)
class Points(Inputs):
    """x and y, each (points,). The parameter is the learning rate, the option the number of epochs."""

    x: np.ndarray
    y: np.ndarray

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {"x": self.x, "y": self.y}

    def arguments(self, pass_name: str) -> list[np.ndarray | None]:
        return [self.x, self.y]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.x.shape

    @property
    def work(self) -> int:
        return self.options["epochs"]

    def resized(self, step: int) -> "Points":
        return replace(self, x=other_length(self.x, 0, step), y=other_length(self.y, 0, step))


class Fitted(NamedTuple):
    """The reference results."""

    descent: np.ndarray  # (2,): a and b by NumPy's gradient descent
    best: np.ndarray  # (2,): by least squares


class LinearRegression(Problem[Points, Fitted]):
    """Fit a line by full-batch gradient descent, autograd in every step."""

    name = "linear_regression"
    text = "fit y = a x + b by gradient descent on the mean squared error"
    passes = {"train": "the whole training loop"}  # noqa: RUF012
    default_passes = ("train",)
    arguments = {  # noqa: RUF012
        "epochs": Argument(10_000, whole("epochs", 1), "steps of the training loop", "N"),
        "learning_rate": Argument(1e-2, real("learning-rate", positive=True), "length of a step down", "R"),
    }
    rate = Rate("steps", "steps/s", 1.0)
    sizes = Sizes("POINTS", "1000", tuple((10**n,) for n in range(2, 7)), "points")
    loop_text = "A step is an epoch, a cell a point in it"

    def inputs(self, settings: Any) -> dict[str, Points]:
        return {DATA: self.inputs_of_size(settings, settings.size or (POINTS,))}

    def inputs_of_size(self, settings: Any, size: tuple[int, ...]) -> Points:
        values = self.argument_values(settings)
        learning_rate, epochs = values["learning_rate"], values["epochs"]
        (points,) = size
        if points < 2:
            raise UnusableInput(f"a line takes at least 2 points, got {points}")
        generator = np.random.default_rng(settings.seed)
        x = generator.random(points)
        y = TRUE_A * x + TRUE_B + NOISE * generator.standard_normal(points)
        text = f"{points:,} points, seed {settings.seed}"
        typed = (array.astype(settings.dtype) for array in (x, y))
        fields = {"parameters": {"learning_rate": learning_rate}, "options": {"epochs": epochs}}
        return Points(text, *typed, **fields, seed=settings.seed)

    def loop(self, settings: Any, variant: str, size: tuple[int, ...]) -> Loop:
        epochs = self.argument_values(settings)["epochs"]
        return Loop(epochs, epochs * size[0], repeats=epochs)

    def modes(self, variant: str, abilities: Abilities) -> Sequence[bool]:
        return [variant in _COMPILED]

    def extent(self, shape: tuple[int, ...], work: int) -> int:
        return shape[0]

    def reference_results(self, inputs: Points, passes: Collection[str]) -> Fitted:
        descent = _fit(inputs)
        best = least_squares(inputs.x, inputs.y)
        # it begins less than this away, and goes nearer with every step that is not too long
        if not np.abs(descent - best).max() < _AWAY * (1 + np.abs(best).max()):
            rate = inputs.parameters["learning_rate"]
            raise UnusableInput(f"gradient descent runs away with a learning rate of {rate:g}: take a smaller one")
        return Fitted(descent, best)

    def judge(self, pass_name: str, result: np.ndarray, expected: Fitted, inputs: Points, dtype: str) -> Verdict:
        fault = check_form(pass_name, result, (2,), dtype)
        if fault:
            return fault
        (a, b), (best_a, best_b) = result, expected.best
        summary = f"a {a:.6f}, b {b:.6f}; least squares a {best_a:.6f}, b {best_b:.6f}"
        return within(pass_name, result, expected.descent, ALLOWED[dtype], summary)

    def reference(self, pass_name: str, inputs: Points) -> None:
        _fit(inputs)


def _fit(inputs: Points) -> np.ndarray:
    return fit(inputs.x, inputs.y, epochs=inputs.options["epochs"], learning_rate=inputs.parameters["learning_rate"])
