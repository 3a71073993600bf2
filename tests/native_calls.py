"""Calls of the native kernels on NumPy arrays, without a framework; and a note of those that PyTorch makes."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from frameworks import PROBLEMS, poison

from shared.alignments import ALIGNMENTS, names_by_position
from shared.kernels import cpp
from shared.kernels.cpp import library
from shared.tolerances import TOLERANCES, hvp_bound, marginals_bound, score_bound

PAIRS, ROWS = 1, 2  # layouts
# one case for each library, and two for affine gaps, whose turns are chosen at run time
CASES = [
    (problem, options)
    for problem in PROBLEMS
    for options in PROBLEMS[problem].options
    if options in (PROBLEMS[problem].options[0], PROBLEMS[problem].options[-1])
]
# the default tier has a linear and an affine recurrence; on the others the checks are repeated
KINDS = pytest.mark.parametrize(
    ("problem", "options"),
    [pytest.param(*case, marks=() if number in (0, 2) else pytest.mark.slow) for number, case in enumerate(CASES)],
)
# what calls that may be in plain odds return, by its place in Given.results
RESULTS = {0: "score", 1: "score", 2: "d_s", 3: "d_values", 7: "score", 8: "d_s", 9: "product"}
Costs = Mapping[str, np.ndarray]


class Given:
    """One call of the kernels on NumPy arrays. A gap of similarity's shape is by position."""

    def __init__(self, problem, similarity, lengths, parameters, options=None, layout=0, threads=1, openmp=0):
        alignment, dtype = ALIGNMENTS[problem], similarity.dtype
        by_position = names_by_position(problem, parameters)
        call = cpp.call_of(problem, alignment.options | (options or {}), by_position)
        self.kernel = cpp.kernel(str(dtype), call.kind, bool(by_position))
        self.similarity = np.ascontiguousarray(similarity)
        self.lengths = None if lengths is None else np.ascontiguousarray(lengths, dtype=np.int32)
        pairs = len(similarity)
        # what is by position is not looked at as a number
        values = {name: np.nan if name in by_position else parameters[name] for name in alignment.parameters}
        own = [np.broadcast_to(np.asarray(value, dtype), pairs) for value in values.values()]
        self.values = np.ascontiguousarray(np.stack(own, axis=1))
        self.costs = {name: np.ascontiguousarray(parameters[name], dtype) for name in by_position}
        self._gap_names = alignment.gaps
        self._numbers = *call, threads, layout, *similarity.shape
        self._pointers = (
            self.similarity.ctypes.data,
            similarity.shape[1] * similarity.shape[2],
            0 if self.lengths is None else self.lengths.ctypes.data,
            self.values.ctypes.data,
            openmp,
        )
        self.call = self.with_costs()

    def with_costs(self, t_costs: Costs = MappingProxyType({}), d_costs: Costs = MappingProxyType({})) -> bytes:
        """The packed call, with the directions and the results of its gaps by position."""
        if not self.costs:
            return cpp.pack_call(*self._numbers, *self._pointers, 0)
        of_all = []
        for name in (*self._gap_names, "none")[:2]:
            matrices = [costs.get(name) for costs in (self.costs, t_costs, d_costs)]
            costs, t_of_costs, d_of_costs = (0 if matrix is None else matrix.ctypes.data for matrix in matrices)
            stride = self.similarity[0].size if len(self.similarity) else 0
            of_all += [costs, stride, t_of_costs, stride, d_of_costs]
        self._gaps = np.frombuffer(cpp.pack_gaps(*of_all), np.uint8)
        return cpp.pack_call(*self._numbers, *self._pointers, self._gaps.ctypes.data)

    def results(self):
        """(scores), (scores, d_similarity, d_values), the tangents of these in a random direction, and once more
        (scores, d_similarity) and the tangents of d_similarity in its part of the direction: what has calls of its own.
        Then d_costs and their tangents.
        """
        dtype, shape = self.similarity.dtype, self.similarity.shape
        new = lambda: [np.empty(shape[:1], dtype), np.empty(shape, dtype), np.empty(self.values.shape, dtype)]  # noqa: E731
        t_similarity, t_values, t_costs = self.direction()
        d_costs, t_d_costs = ({name: np.empty(shape, dtype) for name in self.costs} for _ in range(2))
        (scores, *_), gradients, tangents = new(), new(), new()
        assert self.kernel.score(self.call, scores.ctypes.data) == 0
        call = self.with_costs(d_costs=d_costs)
        assert self.kernel.gradients(call, *(array.ctypes.data for array in gradients)) == 0
        direction = t_similarity.ctypes.data, shape[1] * shape[2], t_values.ctypes.data
        call = self.with_costs(t_costs, t_d_costs)
        assert self.kernel.tangents(call, *direction, *(array.ctypes.data for array in tangents)) == 0
        again, marginals, _ = new()
        self.call = self.with_costs()
        assert self.kernel.marginals(self.call, again.ctypes.data, marginals.ctypes.data) == 0
        product = self.product(t_similarity)[1]
        return [scores, *gradients, *tangents, again, marginals, product, *d_costs.values(), *t_d_costs.values()]

    def direction(self):
        """A random one, by shape: of the similarity, the values, and the gaps by position."""
        random, dtype, shape = np.random.default_rng(1), self.similarity.dtype, self.similarity.shape
        t_similarity = random.normal(size=shape).astype(dtype)
        t_values = random.normal(size=self.values.shape).astype(dtype)
        return t_similarity, t_values, {name: random.normal(size=shape).astype(dtype) for name in self.costs}

    def product(self, direction):
        """The tangents of scores and d_similarity in a direction that leaves the parameters alone."""
        scores, product = np.empty(len(direction), direction.dtype), np.empty_like(direction)
        own = direction.ctypes.data, direction[0].size, 0
        assert self.kernel.tangents(self.call, *own, scores.ctypes.data, product.ctypes.data, 0) == 0
        return scores, product


def assert_same_bits(some, others):
    for a, b in zip(some, others, strict=True):
        assert a.tobytes() == b.tobytes()


def assert_as_in_float64(problem: str, options: Any, similarity: Any, lengths: Any, parameters: dict[str, Any]) -> int:
    """Compare what a call in float32 that may be in plain odds gives with what it gives in float64, all derivatives.

    Returns how many times a pair got an exponent per cell.
    """
    similarity = np.asarray(similarity, np.float32)
    similarity = similarity if similarity.ndim == 3 else similarity[None]
    by_position = names_by_position(problem, parameters)
    own = {name: np.asarray(parameters[name], np.float32) for name in parameters}
    before = cpp.exact_pairs()
    found = Given(problem, similarity, lengths, own, options).results()
    exact = cpp.exact_pairs() - before
    wide = {name: value.astype(np.float64) for name, value in own.items()}
    expected = Given(problem, similarity.astype(np.float64), lengths, wide, options).results()
    temperature = float(own["temperature"])
    largest_gap = max([0.0, *(float(own[name].max()) for name in by_position)])
    if "gap" in own and not by_position:
        largest_gap = abs(float(own["gap"]))
    for pair, matrix in enumerate(similarity):
        score, finite = float(expected[0][pair]), np.abs(matrix[np.isfinite(matrix)])
        # max|h|, from above
        largest = abs(score) + finite.max(initial=0) + largest_gap * sum(matrix.shape)
        for place, name in (RESULTS | dict.fromkeys(range(10, 10 + len(by_position)), "d_costs")).items():
            value, right = found[place][pair].astype(np.float64), expected[place][pair]
            size = float(np.abs(right).max(initial=0))
            if name == "score":
                bound = score_bound("float32", score, largest, temperature)
            elif name in ("d_s", "d_costs"):
                bound = marginals_bound("float32", largest, temperature)
            elif name == "d_values":
                bound = TOLERANCES["float32"].gradient * max(1.0, size)
            else:
                bound = hvp_bound("float32", size, largest, temperature)
            np.testing.assert_allclose(value, right, rtol=0, atol=bound, err_msg=f"{name} of pair {pair}")
        assert found[0][pair] == found[1][pair] == found[7][pair]
    return exact


def many(
    problem: str, dtype: str, pairs: int = 37, rows: int = 41, cols: int = 53, names: tuple[str, ...] = ()
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """A ragged batch with parameters for each pair. names: gaps by position, some forbidden or too dear for anybody."""
    random = np.random.default_rng(5)
    similarity = (random.normal(size=(pairs, rows, cols)) * 2).astype(dtype)
    lengths = random.integers(0, (rows + 1, cols + 1), size=(pairs, 2))
    limits = PROBLEMS[problem].parameters
    parameters = {name: random.uniform(*limits[name], size=pairs).astype(dtype) for name in limits}
    for name in names:
        gap = random.uniform(-3, 0.5, similarity.shape)
        gap[random.random(similarity.shape) < 0.05] = -1e9
        gap[random.random(similarity.shape) < 0.05] = -np.inf
        parameters[name] = poison(gap, lengths).astype(dtype)
    return similarity, lengths, parameters


def noted_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that the native calls in float32 add their passes to; of ctypes' calls, so not those of XLA.

    Tangents in a direction that leaves the parameters alone are a "product".
    """
    names: list[str] = []

    class Noting:
        def __init__(self, kernel: cpp.Kernel) -> None:
            self.kernel = kernel

        def __getattr__(self, name: str) -> Callable[..., int]:
            def call(packed: bytes, *arguments: Any) -> int:
                names.append("product" if name == "tangents" and not arguments[2] else name)
                return getattr(self.kernel, name)(packed, *arguments)

            return call

    for key, kernel in list(library._kernels.items()):
        if key[0] == "float32":
            monkeypatch.setitem(library._kernels, key, Noting(kernel))
    return names
