"""Calls of a library of native kernels, for the sanitizers that it was built with to watch: test_native.py runs this.

In both layouts and with two threads, on arrays of exactly the size that they need. Then one is too small: a planted
fault. Arguments: the library, its kind and dtype.
"""

import ctypes
import itertools
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
from native_calls import PAIRS, ROWS, Given, assert_same_bits, many

from shared.alignments import FREE
from shared.kernels import cpp

# affine gaps may turn in four ways, which need the same memory: each choice of gaps by position has another one
AFFINE = {
    ("gap_open", "gap_extend"): {},
    ("gap_open",): {"restrict_turns": False},
    ("gap_extend",): {"penalize_turns": False},
    (): {"restrict_turns": False, "penalize_turns": False},
}
CALLS: dict[str, list[Any]] = {
    "GLOBAL": [("needleman_wunsch", {}, ()), ("free_gap", {}, ())],
    "SOFT_DTW": [("soft_dtw", {}, ())],
    "GLOBAL_AFFINE": [("needleman_wunsch_affine", {"end_gaps": end_gaps}, ()) for end_gaps in FREE],
    "AFFINE": [("smith_waterman_affine", options, names) for names, options in AFFINE.items()],
}
# pairs, rows and columns around the width of a vector
SIZES = [
    *((1, 1, 1), (3, 1, 9), (3, 9, 1), (20, 7, 5), (5, 16, 16)),
    *((19, 17, 33), (2, 33, 40), (3, 0, 4), (2, 18, 290)),
]
LARGE = [(24, 60, 70), (1, 300, 400)]  # enough for a second thread, and for several on one pair


def check(
    kernel: Any, problem: str, options: dict, names: tuple[str, ...], size: tuple[int, int, int], dtype: str
) -> None:
    similarity, lengths, parameters = many(problem, dtype, *size, names)
    lengths[0], similarity[similarity > 4] = size[1:], np.inf if problem == "soft_dtw" else -np.inf
    parameters["temperature"] = np.logspace(-3, 3, len(similarity))
    parameters["temperature"][4::5] = 0
    results = []
    for layout, threads in ((PAIRS, 1), (ROWS, 1), (0, 1), (0, 2)):
        call: Any = Given(problem, similarity, lengths, parameters, options, layout, threads)
        d_values = np.empty_like(call.values)
        instead = lambda *arguments: kernel.gradients(*arguments, d_values.ctypes.data)  # noqa: B023, E731
        call.kernel = SimpleNamespace(**{"marginals": instead} | vars(kernel))
        results.append(call.results())
        if hasattr(kernel, "best"):
            scores, matches = call.new()[0], np.empty(similarity.shape, np.uint8)
            call.run("best", scores, matches)
            results[-1] += scores, matches
    assert_same_bits(results[0], results[1])
    assert_same_bits(results[2], results[3])


def main(path: str, kind: str, dtype: str) -> None:
    library = ctypes.CDLL(path)
    kernel: Any = SimpleNamespace()
    for name, types in cpp.PASSES.items():
        if hasattr(library, f"alignment_{name}"):
            function = getattr(library, f"alignment_{name}")
            function.argtypes = ctypes.c_char_p, *types
            setattr(kernel, name, function)
    first = CALLS[kind][0]
    for call, size in (*itertools.product(CALLS[kind], SIZES), *((first, size) for size in LARGE)):
        problem, options, names = call
        check(kernel, problem, options, names, size, dtype)
    ctypes.CDLL(None).__lsan_do_recoverable_leak_check()  # prints what has leaked, and where it comes from
    print("all checked", flush=True)
    first_call = Given(first[0], *many(first[0], dtype, names=first[2]), first[1])
    first_call.kernel = kernel
    first_call.run("score", first_call.new()[0][:-1].copy())  # too little room


if __name__ == "__main__":
    main(*sys.argv[1:])
