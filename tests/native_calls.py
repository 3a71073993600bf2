"""Calls of the native kernels on NumPy arrays, without a framework; and a note of those that PyTorch makes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from frameworks import PROBLEMS

from shared.alignments import ALIGNMENTS
from shared.kernels import cpp
from shared.kernels.cpp import library

PAIRS, ROWS = 1, 2  # layouts


class Given:
    """One call of the kernels on NumPy arrays."""

    def __init__(self, problem, similarity, lengths, parameters, options=None, layout=0, threads=1, openmp=0):
        options = ALIGNMENTS[problem].options | (options or {})
        call = cpp.call_of(problem, options)
        self.kernel = cpp.kernel(str(similarity.dtype), call.kind)
        self.similarity = np.ascontiguousarray(similarity)
        self.lengths = None if lengths is None else np.ascontiguousarray(lengths, dtype=np.int32)
        pairs = len(similarity)
        own = [
            np.broadcast_to(np.asarray(parameters[name], similarity.dtype), pairs)
            for name in ALIGNMENTS[problem].parameters
        ]
        self.values = np.ascontiguousarray(np.stack(own, axis=1))
        numbers = *call, threads, layout, *similarity.shape
        stride = similarity.shape[1] * similarity.shape[2]
        pointers = (
            self.similarity.ctypes.data,
            stride,
            0 if self.lengths is None else self.lengths.ctypes.data,
            self.values.ctypes.data,
            openmp,
            0,
        )
        self.call = cpp.pack_call(*numbers, *pointers)

    def results(self):
        """(scores), (scores, d_similarity, d_values), the tangents of these in a random direction, and once more
        (scores, d_similarity) and the tangents of d_similarity in its part of the direction: what has calls of its own.
        """
        dtype, shape = self.similarity.dtype, self.similarity.shape
        new = lambda: [np.empty(shape[:1], dtype), np.empty(shape, dtype), np.empty(self.values.shape, dtype)]  # noqa: E731
        random = np.random.default_rng(1)
        t_similarity = random.normal(size=shape).astype(dtype)
        t_values = random.normal(size=self.values.shape).astype(dtype)
        (scores, *_), gradients, tangents = new(), new(), new()
        assert self.kernel.score(self.call, scores.ctypes.data) == 0
        assert self.kernel.gradients(self.call, *(array.ctypes.data for array in gradients)) == 0
        direction = t_similarity.ctypes.data, shape[1] * shape[2], t_values.ctypes.data
        assert self.kernel.tangents(self.call, *direction, *(array.ctypes.data for array in tangents)) == 0
        again, marginals, _ = new()
        assert self.kernel.marginals(self.call, again.ctypes.data, marginals.ctypes.data) == 0
        return [scores, *gradients, *tangents, again, marginals, self.product(t_similarity)[1]]

    def product(self, direction):
        """The tangents of scores and d_similarity in a direction that leaves the parameters alone."""
        scores, product = np.empty(len(direction), direction.dtype), np.empty_like(direction)
        own = direction.ctypes.data, direction[0].size, 0
        assert self.kernel.tangents(self.call, *own, scores.ctypes.data, product.ctypes.data, 0) == 0
        return scores, product


def assert_same_bits(some, others):
    for a, b in zip(some, others, strict=True):
        assert a.tobytes() == b.tobytes()


def many(problem: str, dtype: str, pairs: int = 37, rows: int = 41, cols: int = 53):
    random = np.random.default_rng(5)
    similarity = (random.normal(size=(pairs, rows, cols)) * 2).astype(dtype)
    lengths = random.integers(0, (rows + 1, cols + 1), size=(pairs, 2))
    limits = PROBLEMS[problem].parameters
    return similarity, lengths, {name: random.uniform(*limits[name], size=pairs).astype(dtype) for name in limits}


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
