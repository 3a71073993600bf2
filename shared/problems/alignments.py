"""The alignments as problems of the benchmark: they share their inputs and passes, and differ in what they compute."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shared import reference
from shared.alignments import ALIGNMENTS, END_GAPS, has_free_ends
from shared.backends import GAPS_BY_POSITION
from shared.kernels.triton.hardware_limit import SPECIAL_FUNCTIONS
from shared.problems import alignment_reference
from shared.problems.alignment_gate import judge, judge_path
from shared.problems.alignment_inputs import (
    GROWTH_BATCH,
    AlignmentInputs,
    alignment_inputs,
    batch_of_size,
    inputs_of_size,
    ladder_inputs,
)
from shared.problems.alignment_reference import ReferenceResults, batched
from shared.problems.argument_types import one_of, real
from shared.problems.problem import BATCH, Argument, Loop, Problem, Rate, RunFloat64, Sizes, UnusableInput, Verdict
from shared.tolerances import LARGEST_GAP, TEMPERATURES
from shared.variants import FOR_GPUS, PATH, Abilities

PASSES = {
    "score": "the forward pass: a score for each pair",
    "marginals": "forward and backward: the gradient of the scores with respect to the similarity, as in training",
    "hvp": "the gradient of a loss on the marginals: second derivatives, as a Hessian-vector product",
    PATH: "the matches of the best alignment of each pair, the limit of the marginals at temperature 0",
}

# The default table: the variants that a user would pick, and the framework's own choice. `ladder` has them all.
_DEFAULT_VARIANTS = ("vmap", "wavefront")
# Never compiled unless the ladder asks: an unrolled loop takes minutes to compile, and batch_loop compiles its pair.
_RUN_UNCOMPILED = ("cell_loop", "diagonal_loop", "batch_loop")
# What the ladder measures on each of its inputs: these are batches by nature, these are made for either.
_FOR_BATCHES, _FOR_BOTH = ("batch_loop", "vmap"), ("wavefront", "cuda_graph", "fused")

# The loop of cell_loop goes through all pairs cell by cell, those of the others by anti-diagonals, which for the
# wavefront are as long as the shorter side; batch_loop has those of each pair. The loop of fused is in its kernel.
_BY_SHORTER_SIDE = ("wavefront", "cuda_graph")
_BY_DIAGONAL = ("diagonal_loop", "scan_cond", "scan_select", "vmap", *_BY_SHORTER_SIDE)

# Batch, rows and columns vary independently, so that what a call, a step and a cell cost can be told apart: small ones,
# long and narrow ones, short and wide ones, and large ones; at least two of each, so that the others predict each.
_GROWTH = (
    (1, 16, 16), (4, 16, 16), (1, 8, 128), (1, 32, 512), (128, 32, 16), (64, 32, 32), (1, 512, 512), (16, 128, 128),
    (32, 256, 128), (128, 256, 256),
)  # fmt: skip

_ENDS = ALIGNMENTS["smith_waterman"].option_values["end"]
_READ = {
    "gap": (real("gap", most=LARGEST_GAP), "added for every gap position", "G"),
    "gap_open": (real("gap-open", most=LARGEST_GAP), "added for the first position of an affine gap", "G"),
    "gap_extend": (
        real("gap-extend", most=LARGEST_GAP), "added for each further position of an affine gap", "G"
    ),
    "temperature": (real("temperature", *TEMPERATURES), "of the smooth maximum", "T"),
    "end": (one_of("end", _ENDS), "where a linear local alignment may end: any or match", None),
    "end_gaps": (
        one_of("end-gaps", END_GAPS), "global: which gaps at the ends of the sequences cost nothing", None
    ),
    "restrict_turns": (None, "affine: a gap along the row may also follow one along the column", None),
    "penalize_turns": (
        None, "affine: a gap that follows one of the other direction extends it instead of opening", None
    ),
    GAPS_BY_POSITION: (None, "a cost for each cell instead of each gap parameter, drawn around it", None),
}  # fmt: skip


class AlignmentProblem(Problem[AlignmentInputs, ReferenceResults]):
    """A smooth alignment: its scores, their gradients, and the gradient of a loss on those."""

    passes = PASSES
    default_passes = ("score", "marginals")
    rate = Rate("cells", "GCUPS", 1e9)
    sizes = Sizes("ROWSxCOLS", "100x150", _GROWTH, "cells in a call", growth_form="BATCHxROWSxCOLS")
    loop_text = (
        "A step is an anti-diagonal of all pairs (cell_loop: a cell of all pairs; batch_loop: an anti-diagonal of one; "
        "fused: none); cells are those of the variant's skewed layout, more than the matrix has unless it is square "
        "(cell_loop, fused: those of the matrix)"
    )
    has_auto = True
    takes = (*Problem.takes, "input", "matrix", "batch")

    def __init__(self, name: str) -> None:
        self.name = name
        alignment = ALIGNMENTS[name]
        self.text, self._parameters, self._options = alignment.text, alignment.parameters, alignment.options
        by_position = {GAPS_BY_POSITION: False} if alignment.gaps else {}
        self.arguments = {
            key: Argument(default, *_READ[key])
            for key, default in (self._parameters | self._options | by_position).items()
        }

    def inputs(self, settings: Any) -> dict[str, AlignmentInputs]:
        """Raises SequenceError on bad sequences."""
        return alignment_inputs(settings, *self._split(settings))

    def inputs_of_size(self, settings: Any, size: tuple[int, ...]) -> AlignmentInputs:
        return inputs_of_size(settings, size, *self._split(settings))

    def ladder_inputs(self, settings: Any) -> dict[str, AlignmentInputs]:
        return ladder_inputs(settings, *self._split(settings))

    def loop(self, settings: Any, variant: str, size: tuple[int, ...]) -> Loop:
        """Cells count those of the layout: as many as in the matrix where it is square, more where it is long."""
        pairs, rows, cols = batch_of_size(settings, size)
        if variant in ("cell_loop", "fused"):
            return Loop(rows * cols if variant == "cell_loop" else 0, pairs * rows * cols)
        diagonals = rows + cols - 1
        # of the positions on the diagonals of a square, half are outside
        positions = min(rows, cols) if variant in _BY_SHORTER_SIDE else (rows + cols + 1) // 2
        return Loop(diagonals * (pairs if variant == "batch_loop" else 1), pairs * diagonals * positions / 2)

    def steps(self, variant: str, pass_name: str, shape: tuple[int, ...]) -> int | None:
        """The anti-diagonals of a loop over them, of marginals forward and back."""
        loops = {"score": 1, "marginals": 2}.get(pass_name)
        return loops * (sum(shape[-2:]) - 1) if loops and variant in _BY_DIAGONAL else None

    def extent_of_size(self, settings: Any, size: tuple[int, ...]) -> int:
        return math.prod(batch_of_size(settings, size))

    def growing_size(self, settings: Any, n: int) -> tuple[int, ...]:
        """Square pairs."""
        return (n, n) if settings.batch else (GROWTH_BATCH, n, n)

    def _split(self, settings: Any) -> tuple[dict[str, float], dict[str, Any]]:
        """Differentiable parameters, and options."""
        values = self.argument_values(settings)
        by_position = [GAPS_BY_POSITION] if values.get(GAPS_BY_POSITION) else []
        if by_position and has_free_ends(values):
            raise UnusableInput("--gaps-by-position needs --end-gaps cost")
        return {key: values[key] for key in self._parameters}, {
            key: values[key] for key in (*self._options, *by_position)
        }

    def modes(self, variant: str, abilities: Abilities) -> Sequence[bool]:
        return [variant not in (*_RUN_UNCOMPILED, *abilities.uncompiled_variants)]

    def ladder_modes(self, variant: str, input_name: str, abilities: Abilities, settings: Any) -> Sequence[bool]:
        if variant in FOR_GPUS and settings.device == "cpu" and not settings.variants:
            return []  # not what a framework lacks
        suits = variant in _FOR_BOTH or (variant in _FOR_BATCHES) == (input_name == BATCH)
        return [False, True] if suits else []

    def is_default(self, variant: str, abilities: Abilities, settings: Any) -> bool:
        defaults = _DEFAULT_VARIANTS if settings.device == "cpu" else (*_DEFAULT_VARIANTS, *FOR_GPUS)
        return variant in defaults or variant == abilities.auto

    def reference_results(self, inputs: AlignmentInputs, passes: Collection[str]) -> ReferenceResults:
        return alignment_reference.reference_results(self.name, inputs, passes)

    def confirmed(
        self, expected: ReferenceResults, inputs: AlignmentInputs, run: RunFloat64
    ) -> tuple[ReferenceResults, str]:
        """Pairs that are too large for NumPy: a float64 run, which must be right on the corners that NumPy did."""
        if not expected.is_cut:
            return expected, "NumPy"
        similarity = batched(inputs.similarity)[expected.pairs].astype(np.float64)
        gaps = {name: batched(gap)[expected.pairs].astype(np.float64) for name, gap in inputs.gaps.items()}
        batch = replace(inputs, similarity=similarity, gaps=gaps, copies=1)
        passes = [name for name in PASSES if getattr(expected, name) is not None]
        weights = [batched(inputs.weights)[expected.pairs].astype(np.float64)]
        on_corners, full = (
            {
                name: run(name, batch, [batch.similarity, lengths, *(weights if name == "hvp" else []), *gaps.values()])
                for name in passes
            }
            for lengths in (expected.lengths, inputs.pair_lengths[expected.pairs])
        )
        selected = expected._replace(pairs=np.arange(len(expected.pairs)))
        for name, result in on_corners.items():
            verdict = self.judge(name, result, selected, batch, "float64")
            if not verdict.passed:
                raise RuntimeError(f"the float64 run to gate against is itself wrong: {verdict.text}")
        # the corners' max|h| would be too strict for the full pairs; no score is larger than max|h| by much
        largest = np.maximum(expected.largest, np.abs(full["score"]))
        lengths = inputs.pair_lengths[expected.pairs]
        source = "float64 {auto}, itself gated by NumPy on cut pairs"
        return expected._replace(lengths=lengths, is_cut=False, largest=largest, **full), source

    def special_functions(self, pass_name: str, dtype: str) -> float | None:
        # the unit computes in float32
        return SPECIAL_FUNCTIONS.get(pass_name) if dtype == "float32" else None

    def covered(self, expected: ReferenceResults) -> int:
        return len(expected.pairs)

    def judge(
        self, pass_name: str, result: np.ndarray, expected: ReferenceResults, inputs: AlignmentInputs, dtype: str
    ) -> Verdict:
        if pass_name == PATH:
            return judge_path(self.name, result, expected, inputs, dtype)
        temperature = inputs.parameters["temperature"]
        return judge(pass_name, result, expected, dtype, temperature, inputs.similarity.shape)

    def reference(self, pass_name: str, inputs: AlignmentInputs) -> None:
        """Cell by cell, on one core."""
        arrays, arguments = (inputs.similarity, inputs.lengths), inputs.keywords
        if pass_name == "score":
            getattr(reference, self.name)(*arrays, **arguments)
        elif pass_name == PATH:
            alignment_reference.best_alignments(self.name, *arrays, arguments)
        elif pass_name == "marginals":
            reference.gradients(self.name, *arrays, **arguments)
        else:
            similarity, lengths = arrays
            reference.hessian_vector_product(self.name, similarity, inputs.weights, lengths, **arguments)


ALIGNMENT_PROBLEMS = tuple(map(AlignmentProblem, ALIGNMENTS))
