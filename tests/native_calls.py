"""Calls of the native kernels on NumPy arrays, without a framework; and a note of those that PyTorch makes."""

import functools
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shared.alignments import ALIGNMENTS, each_axis, has_free_ends, names_by_position
from shared.kernels import cpp
from shared.tolerances import hvp_bound, marginals_bound, score_bound

PAIRS, ROWS = 1, 2  # layouts
# a case for each library, and more for affine gaps, whose turns are chosen at run time
CASES, BY_POSITION = [], []
for _problem, _alignment in ALIGNMENTS.items():
    _every = _alignment.all_options()
    _costly = [_options for _options in _every if not has_free_ends(_options)]
    _some = {str(_options): _options for _options in (_every[0], _costly[-1], _every[-1])}
    CASES += [(_problem, _options) for _options in _some.values()]
    BY_POSITION += [(_problem, _costly[-1], _alignment.gaps)] if _alignment.gaps else []
# those of similarities that have block exponents
IN_BLOCKS = [(problem, options) for problem, options in CASES if problem != "soft_dtw" and not has_free_ends(options)]


def others_slow(cases: list[Any], *default: int) -> list[Any]:
    """The cases; those of these numbers are in the default tier."""
    marks = ([] if number in default else [pytest.mark.slow] for number in range(len(cases)))
    return [pytest.param(*case, marks=mark) for case, mark in zip(cases, marks, strict=True)]


# the default tier has a linear and an affine recurrence, and a gap by position; on the others the checks are repeated
KINDS = pytest.mark.parametrize(("problem", "options"), others_slow(IN_BLOCKS, 0, 2))
EVERY = pytest.mark.parametrize(
    ("problem", "options", "names"), others_slow([*((*case, ()) for case in CASES), *BY_POSITION], 0, 2, len(CASES))
)
# what calls that may take block exponents return, by its place in Given.results
RESULTS = {0: "score", 1: "score", 2: "d_s", 3: "d_values", 7: "score", 8: "d_s", 9: "product"}
Costs = Mapping[str, np.ndarray]


def address(value: Any) -> int:
    """The address of an array; 0 for None; a number as it is."""
    return value.ctypes.data if isinstance(value, np.ndarray) else value or 0


class Given:
    """One call of the kernels on NumPy arrays. A gap of similarity's shape is by position."""

    def __init__(self, problem, similarity, lengths, parameters, options=None, layout=0, threads=1, openmp=0):
        alignment, dtype = ALIGNMENTS[problem], similarity.dtype
        options, by_position = alignment.options | (options or {}), names_by_position(problem, parameters)
        parameters, gaps = each_axis(problem, {name: parameters[name] for name in alignment.parameters}, options)
        call = cpp.call_of(problem, options, gaps)
        self.kernel = cpp.kernel(str(dtype), *call)
        self.similarity, self._matrix_size = np.ascontiguousarray(similarity), similarity.shape[1] * similarity.shape[2]
        self.lengths = None if lengths is None else np.ascontiguousarray(lengths, dtype=np.int32)
        # what is by position is not looked at as a number
        values = [np.nan if name in by_position else value for name, value in parameters.items()]
        self.values = np.stack([np.broadcast_to(np.asarray(value, dtype), len(similarity)) for value in values], axis=1)
        self.costs = {name: np.ascontiguousarray(parameters[name], dtype) for name in by_position}
        self._gap_names = (*alignment.gaps, "none")[:2]
        self._numbers = *call, threads, layout, *similarity.shape
        arrays = address(self.similarity), self._matrix_size, address(self.lengths), address(self.values)
        self._pointers = *arrays, openmp
        self.call = self.with_costs()

    def with_costs(self, t_costs: Costs = MappingProxyType({}), d_costs: Costs = MappingProxyType({})) -> bytes:
        """The packed call, with the directions and the results of its gaps by position."""
        if not self.costs:
            return cpp.pack_call(*self._numbers, *self._pointers, 0)
        of_gaps = []
        for name in self._gap_names:
            costs, t_of_costs, d_of_costs = (address(of.get(name)) for of in (self.costs, t_costs, d_costs))
            of_gaps += [costs, self._matrix_size, t_of_costs, self._matrix_size, d_of_costs]
        self._gaps = np.frombuffer(cpp.pack_gaps(*of_gaps), np.uint8)
        return cpp.pack_call(*self._numbers, *self._pointers, address(self._gaps))

    def run(self, pass_name, *arguments, call=None):
        """Have a pass work on these arrays and numbers, which follow the packed call; it must succeed."""
        assert getattr(self.kernel, pass_name)(call or self.call, *map(address, arguments)) == 0

    def new(self):
        """Arrays for scores, d_similarity and d_values."""
        dtype, shape = self.similarity.dtype, self.similarity.shape
        return np.empty(shape[0], dtype), np.empty(shape, dtype), np.empty(self.values.shape, dtype)

    def results(self):
        """(scores), (scores, d_similarity, d_values), the tangents of these in a random direction, and once more
        (scores, d_similarity) and the tangents of d_similarity in its part of the direction: what has calls of its own.
        Then d_costs and their tangents.
        """
        (scores, *_), gradients, tangents, (again, marginals, _) = (self.new() for _ in range(4))
        d_costs, t_d_costs = ({name: self.new()[1] for name in self.costs} for _ in range(2))
        t_similarity, t_values, t_costs = self.direction()
        self.run("score", scores)
        self.run("gradients", *gradients, call=self.with_costs(d_costs=d_costs))
        directions = t_similarity, self._matrix_size, t_values
        self.run("tangents", *directions, *tangents, call=self.with_costs(t_costs, t_d_costs))
        self.call = self.with_costs()
        self.run("marginals", again, marginals)
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
        scores, product, _ = self.new()
        self.run("tangents", direction, self._matrix_size, 0, scores, product, 0)
        return scores, product


def assert_same_bits(some, others):
    for a, b in zip(some, others, strict=True):
        assert a.tobytes() == b.tobytes()


# bits that the exponents of a dtype have room for, in those of float32; rounding errors of so many bits, likewise
WIDTH, FINENESS = {"float32": 1, "float64": 8}, {"float32": 1.0, "float64": 8 * 2.0**-29}
# relative error of the temperature's gradient, which is the difference of two sums in float64
OF_GRADIENT = {"float32": 1e-4, "float64": 1e-11}
# that of the calls below
tried_dtype = "float32"


def assert_as_with_cell_exponents(
    problem: str, options: Any, similarity: Any, lengths: Any, parameters: dict[str, Any]
) -> int:
    """Compare all derivatives of a call, which may take block exponents, with those by cell exponents in float64.

    In float64 all values are 8 times as large. Returns how many times a pair got an exponent per cell.
    """
    dtype, width = np.dtype(tried_dtype), WIDTH[tried_dtype]
    similarity = np.asarray(similarity, np.float32).astype(dtype) * dtype.type(width)
    similarity = similarity if similarity.ndim == 3 else similarity[None]
    by_position = names_by_position(problem, parameters)
    narrow = {name: np.asarray(parameters[name], np.float32).astype(dtype) for name in parameters}
    narrow |= {name: narrow[name] * dtype.type(width) for name in ALIGNMENTS[problem].gaps}
    before = cpp.exact_pairs()
    results = Given(problem, similarity, lengths, narrow, options).results()
    exact = cpp.exact_pairs() - before
    wide = {name: value.astype(np.float64) for name, value in narrow.items()}
    expected = Given(problem, similarity.astype(np.float64), lengths, wide, options, ROWS).results()
    temperature, fineness = float(narrow["temperature"]), FINENESS[tried_dtype]
    largest_gap = max([0.0, *(float(narrow[name].max()) for name in by_position)])
    if "gap" in narrow and not by_position:
        largest_gap = abs(float(narrow["gap"]))
    for pair, matrix in enumerate(similarity):
        score, finite = float(expected[0][pair]), np.abs(matrix[np.isfinite(matrix)])
        # max|h|, from above
        largest = abs(score) + finite.max(initial=0) + largest_gap * sum(matrix.shape)
        for place, name in (RESULTS | dict.fromkeys(range(10, 10 + len(by_position)), "d_costs")).items():
            value, right = results[place][pair].astype(np.float64), expected[place][pair]
            size = float(np.abs(right).max(initial=0))
            if name == "score":
                bound = fineness * score_bound("float32", score, largest, temperature)
            elif name in ("d_s", "d_costs"):
                bound = fineness * marginals_bound("float32", largest, temperature)
            elif name == "d_values":
                bound = OF_GRADIENT[tried_dtype] * max(1.0, size)
            else:
                bound = fineness * hvp_bound("float32", size, largest, temperature)
            np.testing.assert_allclose(value, right, rtol=0, atol=bound, err_msg=f"{name} of pair {pair}")
        assert results[0][pair] == results[1][pair] == results[7][pair]
    return exact


def many(
    problem: str, dtype: str, pairs: int = 37, rows: int = 41, cols: int = 53, names: tuple[str, ...] = ()
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """A ragged batch with parameters for each pair. names: gaps by position, some forbidden or too dear for anybody."""
    random = np.random.default_rng(5)
    similarity = (random.normal(size=(pairs, rows, cols)) * 2).astype(dtype)
    lengths = random.integers(0, (rows + 1, cols + 1), size=(pairs, 2))
    parameters = {name: random.uniform(-2.0, 0.5, pairs).astype(dtype) for name in ALIGNMENTS[problem].gaps}
    parameters["temperature"] = random.uniform(0.5, 2.0, pairs).astype(dtype)
    for name in names:
        gap = random.uniform(-3, 0.5, similarity.shape)
        gap[random.random(similarity.shape) < 0.05] = -1e9
        gap[random.random(similarity.shape) < 0.05] = -np.inf
        i, j = np.indices((rows, cols))
        gap[(i >= lengths[:, :1, None]) | (j >= lengths[:, 1:, None])] = np.nan
        parameters[name] = gap.astype(dtype)
    return similarity, lengths, parameters


def noted_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that the native calls add their passes to; of ctypes' calls, so not those of XLA.

    Tangents in a direction that leaves the parameters alone are a "product".
    """
    names: list[str] = []
    kernel_of = cpp.kernel

    def call(kernel: cpp.Kernel, name: str, packed: bytes, *arguments: Any) -> int:
        names.append("product" if name == "tangents" and not arguments[2] else name)
        return getattr(kernel, name)(packed, *arguments)

    def noting(*which: Any) -> SimpleNamespace:
        return SimpleNamespace(**{name: functools.partial(call, kernel_of(*which), name) for name in cpp.PASSES})

    monkeypatch.setattr(cpp, "kernel", noting)
    return names


def start_python(*arguments: Any, **environment: str) -> subprocess.Popen[str]:
    """Python with these arguments, for which the project and its tests can be imported."""
    tests = Path(__file__).parent
    variables = {**os.environ, "PYTHONPATH": f"{tests}:{tests.parent}", **environment}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run_python(*arguments: Any, **environment: str) -> str:
    """All that Python prints. Raises AssertionError with it unless Python ends well."""
    process = start_python(*arguments, **environment)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said
