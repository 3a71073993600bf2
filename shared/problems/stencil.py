"""The nested-loop stencil as a problem of the benchmark: what a loop over cells costs to compile, and to run.

The weights are uniform in [0, 2/3), drawn by the seed: three of them make 1 on average, so that numbers neither grow
nor vanish from column to column.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from shared.problems.problem import (
    DATA,
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
from shared.reference.stencil import gradient, stencil
from shared.variants import Abilities

SIZE = (64, 32)
# two heights, so that what a column costs can be told from what a cell costs
_GROWTH = ((16, 8), (16, 32), (64, 4), (64, 8), (64, 16), (64, 32))
# of the largest number that is wanted
ALLOWED = {"float32": 1e-5, "float64": 1e-12}
# written out in full, so that a compiler may take minutes: only where the question is what compiling costs
_WRITTEN_OUT = ("cell_loop",)


@dataclass(frozen=True)
class Weights(Inputs):
    """w (height, width)."""

    w: np.ndarray

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {"w": self.w}

    def arguments(self, pass_name: str) -> list[np.ndarray | None]:
        return [self.w, *([self.cotangent] if pass_name == "gradient" else [])]

    @property
    def cotangent(self) -> np.ndarray:
        """c of the loss sum(c * a), whose derivative for w is the pass gradient: normal, drawn by the seed."""
        height, width = self.w.shape
        drawn = np.random.default_rng([self.seed, 1]).standard_normal((height, width + 1), dtype=np.float32)
        return drawn.astype(self.w.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.w.shape

    @property
    def work(self) -> int:
        return self.w.size

    def resized(self, step: int) -> "Weights":
        return replace(self, w=other_length(self.w, 1, step))


class Known(NamedTuple):
    """The reference results."""

    value: np.ndarray  # (height, width + 1)
    gradient: np.ndarray  # (height, width)


class Stencil(Problem[Weights, Known]):
    """Three neighbours of the column before, weighted and added, column by column."""

    name = "stencil"
    text = "a(i, j+1) is the sum of a(k, j) w(k, j) over the neighbours k of i"
    passes = {  # noqa: RUF012
        "value": "the forward pass: every column",
        "gradient": "the gradient of a loss on all columns with respect to the weights",
    }
    default_passes = ("value", "gradient")
    arguments = {}  # noqa: RUF012
    rate = Rate("cells", "Mcells/s", 1e6)
    sizes = Sizes("HEIGHTxWIDTH", "64x32", _GROWTH, "cells in a call")
    loop_text = "A step is a column; in cell_loop a cell"

    def inputs(self, settings: Any) -> dict[str, Weights]:
        return {DATA: self.inputs_of_size(settings, settings.size or SIZE)}

    def inputs_of_size(self, settings: Any, size: tuple[int, ...]) -> Weights:
        height, width = size
        if height < 3:
            raise UnusableInput(f"a stencil has a height of at least 3, got {height}")
        w = np.random.default_rng(settings.seed).random((height, width)) * (2 / 3)
        return Weights(
            f"weights of {height} x {width}, seed {settings.seed}", w.astype(settings.dtype), seed=settings.seed
        )

    def loop(self, settings: Any, variant: str, size: tuple[int, ...]) -> Loop:
        height, width = size
        # a step of the double loop is a cell; a step of the others is a column
        return Loop(height * width, 0) if variant in _WRITTEN_OUT else Loop(width, height * width)

    def modes(self, variant: str, abilities: Abilities) -> Sequence[bool]:
        return [variant not in _WRITTEN_OUT]

    def ladder_modes(self, variant: str, input_name: str, abilities: Abilities, settings: Any) -> Sequence[bool]:
        return [False, True]

    def growth_modes(self, variant: str, abilities: Abilities) -> Sequence[bool]:
        return [True]  # how compile time grows is what it shows

    def reference_results(self, inputs: Weights, passes: Collection[str]) -> Known:
        return Known(stencil(inputs.w), gradient(inputs.w, inputs.cotangent))

    def judge(self, pass_name: str, result: np.ndarray, expected: Known, inputs: Weights, dtype: str) -> Verdict:
        reference: np.ndarray = getattr(expected, pass_name)
        fault = check_form(pass_name, result, reference.shape, dtype)
        return fault or within(pass_name, result, reference, ALLOWED[dtype] * float(np.abs(reference).max(initial=1.0)))

    def reference(self, pass_name: str, inputs: Weights) -> None:
        if pass_name == "value":
            stencil(inputs.w)
        else:
            gradient(inputs.w, inputs.cotangent)
