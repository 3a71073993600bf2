"""Learning to align as a problem of the benchmark: the use that differentiable alignments were made for.

A 20 x 20 substitution matrix and a gap score are learnt by gradient descent through `marginals`, so that the soft
alignments of synthetic protein families are the true ones.
"""

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from shared.problems.alignments import ALIGNMENT_PROBLEMS
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
    check_memory,
    other_length,
    within,
)
from shared.problems.synthetic_pairs import LETTERS, synthetic_pairs
from shared.reference import learning
from shared.reference.learning import MATRIX_LETTERS, START_GAP, Learned, first_derivatives, recovered, start_matrix
from shared.tolerances import TEMPERATURES

SIZE = (32, 40)
# scores beyond this tell every alignment from every other: there is nothing soft left to learn from
_MOST = 1e3
# how far the curve of the losses, the matrix and the gap may be from NumPy's
ALLOWED = {"float32": 2e-3, "float64": 1e-8}


# what a step's rounding amounts to, as a difference in the start
ROUNDING = {"float32": 1e-5, "float64": 1e-14}
# complex numbers in memory for each cell while the reference walks the pairs: choices, shares, states, derivatives
_NUMBERS = 16
# beside the start, in no direction of its own
_BESIDE = 1e-7 * np.random.default_rng(0).standard_normal((MATRIX_LETTERS, MATRIX_LETTERS))


@dataclass(frozen=True)
class Pairs(Inputs):
    """Pairs of sequences with their true alignments. Parameters are the learning rate and the temperature, the option
    is the number of steps."""

    first: np.ndarray  # (pairs, rows), int32
    second: np.ndarray  # (pairs, cols), int32
    truth: np.ndarray  # (pairs, rows, cols)
    lengths: np.ndarray  # (pairs, 2), int32

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {"first": self.first, "second": self.second, "truth": self.truth, "lengths": self.lengths}

    def arguments(self, pass_name: str) -> list[np.ndarray | None]:
        return list(self.arrays.values())

    @property
    def shape(self) -> tuple[int, ...]:
        return self.truth.shape

    @property
    def work(self) -> int:
        return self.options["steps"]

    def resized(self, step: int) -> "Pairs":
        """Fewer letters in every second sequence that is full."""
        second, truth = other_length(self.second, 1, step), other_length(self.truth, 2, step)
        lengths = np.minimum(self.lengths, truth.shape[1:]).astype(self.lengths.dtype)
        return replace(self, second=second, truth=truth, lengths=lengths)


class Trained(NamedTuple):
    """The reference results."""

    losses: np.ndarray
    matrix: np.ndarray
    gap: np.ndarray


class LearnAlignment(Problem[Pairs, Trained]):
    """A training loop whose steps are a batch of alignments, their marginals, and the way back through those."""

    name = "learn_alignment"
    text = "learn a substitution matrix and a gap score by gradient descent through the marginals of smith_waterman"
    passes = {"train": "the whole training loop"}  # noqa: RUF012
    default_passes = ("train",)
    arguments = {  # noqa: RUF012
        "steps": Argument(100, whole("steps", 1), "steps of learning to align", "N"),
        "learning_rate": Argument(20.0, real("learning-rate", positive=True), "length of a step down", "R"),
        "temperature": Argument(1.0, real("temperature", *TEMPERATURES), "of the smooth maximum", "T"),
    }
    rate = Rate("steps", "steps/s", 1.0, "A step is the loss on all pairs, its gradient, and the update.")
    sizes = Sizes("PAIRSxLETTERS", "32x40", ((8, 20), (8, 80), (32, 20), (32, 40), (32, 80)), "cells in a step")
    loop_text = f"{ALIGNMENT_PROBLEMS[0].loop_text}; of all steps of the training"
    has_auto = True

    def inputs(self, settings: Any) -> dict[str, Pairs]:
        return {DATA: self.inputs_of_size(settings, settings.size or SIZE)}

    def inputs_of_size(self, settings: Any, size: tuple[int, ...]) -> Pairs:
        values = self.argument_values(settings)
        pairs, letters = size
        # of complex numbers, as many as the reference has for a cell of the skewed matrices
        check_memory(_NUMBERS * 16 * pairs * letters * 2 * letters, f"{pairs} pairs of {letters} letters")
        drawn = synthetic_pairs(pairs, letters, settings.seed)
        rows, cols = drawn.truth.shape[1:]
        text = (
            f"{pairs} pairs of descendants of proteins of {letters} letters, up to {rows} x {cols}, "
            f"seed {settings.seed}"
        )
        if not drawn.truth.any():
            raise UnusableInput(f"no two letters have the same ancestor among {text}: take longer ones, or more")
        return Pairs(
            text, drawn.first, drawn.second, drawn.truth.astype(settings.dtype), drawn.lengths,
            parameters={name: values[name] for name in ("learning_rate", "temperature")},
            options={"steps": values["steps"]}, seed=settings.seed,
        )  # fmt: skip

    def loop(self, settings: Any, variant: str, size: tuple[int, ...]) -> Loop:
        """The loops of all training steps, each as that of an alignment."""
        (pairs, letters), steps = size, self.argument_values(settings)["steps"]
        own = ALIGNMENT_PROBLEMS[0].loop(settings, variant, (pairs, letters, letters))
        return Loop(steps * own.steps, steps * own.cells, repeats=steps)

    def extent_of_size(self, settings: Any, size: tuple[int, ...]) -> int:
        pairs, letters = size
        return pairs * letters**2

    def extent(self, shape: tuple[int, ...], work: int) -> int:
        return int(np.prod(shape))

    def reference_results(self, inputs: Pairs, passes: Collection[str]) -> Trained:
        with ThreadPoolExecutor() as threads:  # NumPy works on both at a time
            found, beside = threads.map(
                lambda start: learning.learn(
                    *inputs.arrays.values(), **inputs.options, **inputs.parameters, start=start
                ),
                (start_matrix(), start_matrix() + _BESIDE),
            )
        if not max(np.abs(found.matrix).max(), abs(found.gap)) < _MOST:
            rate = inputs.parameters["learning_rate"]
            raise UnusableInput(f"gradient descent runs away with a learning rate of {rate:g}: take a smaller one")
        dtype = str(inputs.truth.dtype)
        grown = float(np.abs(packed(*found) - packed(*beside)).max()) / np.abs(_BESIDE).max()
        if not grown * ROUNDING[dtype] < ALLOWED[dtype]:
            raise UnusableInput(
                f"gradient descent makes a difference in the start {grown:.2g} times as large, so that {dtype} cannot "
                "tell a right result from a wrong one: take a smaller learning rate, fewer steps, or a higher "
                "temperature"
            )
        return Trained(found.losses, found.matrix, np.array(found.gap))

    def judge(self, pass_name: str, result: np.ndarray, expected: Trained, inputs: Pairs, dtype: str) -> Verdict:
        wanted = packed(*expected)
        fault = check_form(pass_name, result, wanted.shape, dtype)
        if fault:
            return fault
        learned = unpacked(result.astype(np.float64))
        before, after = self._marginals(inputs), self._marginals(inputs, learned)
        summary = (
            f"{recovered(before, inputs.truth):.1%} of the true pairs of letters recovered before, "
            f"{recovered(after, inputs.truth):.1%} after; loss {learned.losses[0]:.4f} to {learned.losses[-1]:.4f}, "
            f"gap {START_GAP:g} to {float(learned.gap):.3f}"
        )
        return within(pass_name, result, wanted, ALLOWED[dtype], summary)

    def reference(self, pass_name: str, inputs: Pairs) -> None:
        learning.learn(*inputs.arrays.values(), **inputs.options, **inputs.parameters)

    def picture(self, result: np.ndarray, inputs: Pairs) -> dict[str, Any]:
        """The soft alignment of the first pair before and after, and its truth."""
        rows, cols = (int(length) for length in inputs.lengths[0])
        before, after = (
            self._marginals(inputs, learned)[0, :rows, :cols] for learned in (None, unpacked(result.astype(float)))
        )
        return {
            "before": np.round(before, 3).tolist(),
            "after": np.round(after, 3).tolist(),
            "truth": np.argwhere(inputs.truth[0] > 0.5).tolist(),
            "rows": "".join(LETTERS[code] for code in inputs.first[0, :rows]),
            "columns": "".join(LETTERS[code] for code in inputs.second[0, :cols]),
        }

    def _marginals(self, inputs: Pairs, learned: Learned | None = None) -> np.ndarray:
        """With what was learned, or with the start."""
        matrix, gap = (start_matrix(), START_GAP) if learned is None else (learned.matrix, float(learned.gap))
        similarity = matrix[inputs.first[:, :, None], inputs.second[:, None, :]]
        marginals, _ = first_derivatives(similarity, inputs.lengths, gap, inputs.parameters["temperature"])
        return marginals


def packed(losses: np.ndarray, matrix: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """The result of a case as one vector: (steps + 401,)."""
    return np.concatenate([losses, matrix.ravel(), np.reshape(gap, 1)])


def unpacked(result: np.ndarray) -> Learned:
    """The parts of it."""
    cells = MATRIX_LETTERS**2
    matrix = result[-cells - 1 : -1].reshape(MATRIX_LETTERS, MATRIX_LETTERS)
    return Learned(result[: -cells - 1], matrix, result[-1])
