"""best_alignment is the reference's, to the last match, where arithmetic is exact; elsewhere it is a best alignment."""

import functools
import itertools
import math
import sys
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import DTYPES, FRAMEWORKS, PROBLEMS, poison
from native_calls import PAIRS, ROWS, Given, assert_same_bits, many

import jax_impl
import torch_impl
from shared import reference
from shared.alignments import ALIGNMENTS
from shared.kernels import cpp
from shared.kernels.cpp import library

CASES = [(problem, options) for problem, described in PROBLEMS.items() for options in described.options]
# each gap as one number, a number for each pair, or by position
WITH_GAPS = [
    (problem, options, kinds)
    for problem, options in CASES
    for kinds in itertools.product(("number", "pairs", "position"), repeat=len(ALIGNMENTS[problem].gaps))
]
BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)
EVERY = pytest.mark.parametrize(("problem", "options"), CASES, ids=str)


class Integers:
    """A ragged batch of integers, some matches forbidden, with gaps of these kinds, and NaN around all matrices."""

    def __init__(self, problem: str, kinds: tuple[str, ...], pairs: int = 6, rows: int = 17, cols: int = 9) -> None:
        random = np.random.default_rng([pairs, rows, cols])
        shape = pairs, rows, cols
        similarity = random.integers(-4, 5, size=shape).astype(float)
        similarity[random.random(shape) < 0.1] = -np.inf
        self.lengths = random.integers(0, (rows + 1, cols + 1), size=(pairs, 2))
        self.lengths[0] = rows, cols
        self.similarity = poison(similarity, self.lengths)
        of_kind = {"number": (), "pairs": (pairs,), "position": shape}
        self.gaps = {}
        for name, kind in zip(ALIGNMENTS[problem].gaps, kinds, strict=True):
            gap = random.integers(-3, 2, size=of_kind[kind]).astype(float)
            self.gaps[name] = poison(gap, self.lengths) if kind == "position" else gap


def best(framework: str, problem: str, similarity: Any, lengths: Any, dtype: str = "float64", **parameters: Any) -> Any:
    """Scores and matches as NumPy arrays."""
    package, backend = FRAMEWORKS[framework]
    with backend.precision(dtype):
        own = {
            name: backend.to_device(value.astype(dtype), "cpu") if isinstance(value, np.ndarray) else value
            for name, value in parameters.items()
        }
        matrix = backend.to_device(np.asarray(similarity, dtype), "cpu")
        results = package.best_alignment(getattr(package, problem), matrix, lengths, **own)
        return tuple(backend.to_numpy(result) for result in results)


def best_natively(given: Given) -> list[np.ndarray]:
    scores, matches = (
        np.full(len(given.similarity), 7, given.similarity.dtype),
        np.full(given.similarity.shape, 7, np.uint8),
    )
    assert given.kernel.best(given.call, scores.ctypes.data, matches.ctypes.data) == 0
    return [scores, matches]


def assert_equal(got: Any, expected: Any) -> None:
    for own, wanted in zip(got, expected, strict=True):
        np.testing.assert_array_equal(own, wanted)


def worth(problem: str, options: dict, matches: np.ndarray, similarity: np.ndarray, gaps: dict[str, float]) -> float:
    """What an alignment of whole matrices is worth, by its matches alone; no gap is better than none."""
    cells = np.argwhere(matches)
    total = similarity[matches].sum()
    is_global = problem in ("free_gap", "needleman_wunsch")
    corners = [(-1, -1), *cells, similarity.shape] if is_global else cells
    first, further = (gaps.get("gap", 0.0),) * 2 if problem != "smith_waterman_affine" else gaps.values()
    for before, after in itertools.pairwise(corners):
        lengths = [int(b) - int(a) - 1 for a, b in zip(before, after, strict=True)]
        assert min(lengths) >= 0, "matches cross"
        opened = sum(length > 0 for length in lengths)
        if opened == 2 and not options.get("penalize_turns", True):
            opened = 1
        total += opened * first + (sum(lengths) - opened) * further
    return float(total)


@pytest.mark.parametrize("dtype", DTYPES)
@BOTH
@pytest.mark.parametrize(("problem", "options", "kinds"), WITH_GAPS, ids=str)
def test_of_integers_it_is_the_reference(framework, problem, options, kinds, dtype):
    given = Integers(problem, kinds)
    got = best(framework, problem, given.similarity, given.lengths, dtype, **given.gaps, **options)
    assert got[0].dtype == dtype and got[1].dtype == bool
    assert_equal(got, reference.best_alignment(problem, given.similarity, given.lengths, **given.gaps, **options))


@pytest.mark.parametrize("size", [(6, 1, 1), (5, 1, 7), (5, 7, 1), (20, 5, 8), (3, 40, 21), (2, 70, 33)], ids=str)
@EVERY
def test_in_each_layout_it_is_the_reference(problem, options, size):
    for kind in ("pairs", "position"):
        given = Integers(problem, (kind,) * len(ALIGNMENTS[problem].gaps), *size)
        expected = reference.best_alignment(problem, given.similarity, given.lengths, **given.gaps, **options)
        # nobody looks at the temperature
        parameters = given.gaps | {"temperature": math.nan}
        for dtype, layout in itertools.product(DTYPES, (PAIRS, ROWS)):
            call = Given(problem, given.similarity.astype(dtype), given.lengths, parameters, options, layout=layout)
            assert_equal(best_natively(call), expected)


@EVERY
def test_layouts_and_threads_give_the_same_bits(problem, options):
    similarity, lengths, parameters = many(problem, "float32")
    calls = [
        Given(problem, similarity, lengths, parameters, options, layout=layout, threads=threads)
        for layout, threads in ((0, 1), (0, 3), (PAIRS, 2), (ROWS, 2))
    ]
    first, *others = map(best_natively, calls)
    for other in others:
        assert_same_bits(first, other)


@pytest.mark.parametrize("dtype", DTYPES)
@EVERY
def test_the_alignment_is_worth_its_score_which_is_the_best(problem, options, dtype):
    similarity = np.random.default_rng(3).normal(size=(4, 45, 38)).astype(dtype)
    gaps = {"gap": -0.7, "gap_open": -1.9, "gap_extend": -0.6}
    gaps = {name: gaps[name] for name in ALIGNMENTS[problem].gaps}
    scores, matches = best("torch", problem, similarity, None, dtype, **gaps, **options)
    expected, _ = reference.best_alignment(problem, similarity, **gaps, **options)
    tolerance = {"float32": 1e-5, "float64": 1e-13}[dtype]
    np.testing.assert_allclose(scores, expected, rtol=tolerance)
    values = [worth(problem, options, *pair, gaps) for pair in zip(matches, similarity.astype(float), strict=True)]
    np.testing.assert_allclose(values, expected, rtol=tolerance)


@BOTH
def test_ties(framework):
    def cells(problem: str, similarity: Any, **parameters: Any) -> list[tuple[int, ...]]:
        matches = best(framework, problem, similarity, None, **parameters)[1]
        return [tuple(map(int, cell)) for cell in np.argwhere(matches)]

    zeros = np.zeros((3, 4))
    assert cells("smith_waterman", zeros, gap=0) == [(0, 0)]  # the first end
    assert cells("smith_waterman", zeros, gap=0, end="match") == [(0, 0), (1, 1)]
    assert cells("smith_waterman_affine", zeros, gap_open=0, gap_extend=0) == [(0, 0), (1, 1)]
    assert cells("smith_waterman", [[0, -9], [-9, 1]]) == [(1, 1)]  # a start before the diagonal
    assert cells("free_gap", zeros) == [(0, 1), (1, 2), (2, 3)]  # the diagonal before gaps
    assert cells("needleman_wunsch", zeros, gap=0) == [(0, 1), (1, 2), (2, 3)]
    assert cells("free_gap", [[-9, 1], [1, -9]]) == [(1, 0)]  # from the left before from above
    corner = np.full((3, 3), -9.0)
    corner[[1, 0, 2], [0, 1, 2]] = 5
    assert cells("smith_waterman_affine", corner, gap_open=-1) == [(1, 0), (2, 2)]  # R before D
    corner[1, 1] = 4
    assert cells("smith_waterman_affine", corner, gap_open=-1) == [(1, 1), (2, 2)]  # A before R


@BOTH
def test_whole_numbers_are_exact_in_float32(framework):
    similarity = np.full((2, 2), -1.0)
    similarity[[0, 1], [0, 1]] = 2**23, 2**23 - 1
    for problem in PROBLEMS:
        scores, matches = best(framework, problem, similarity, None, "float32")
        assert float(scores) == 2**24 - 1
        assert_equal([matches], [np.eye(2, dtype=bool)])


@BOTH
@EVERY
def test_pairs_without_an_alignment_and_pairs_that_are_not_numbers(framework, problem, options):
    similarity = np.ones((4, 3, 3))
    similarity[0, 1, 1] = np.nan
    similarity[1, 2, 0] = np.inf
    similarity[2] = -np.inf
    scores, matches = best(framework, problem, similarity, None, "float32", **options)
    assert np.isnan(scores[:2]).all() and not matches[:3].any()
    assert scores[2] == (6 * -1.0 if problem == "needleman_wunsch" else 0.0)
    assert scores[3] == 3.0
    assert_equal([matches[3]], [np.eye(3, dtype=bool)])
    for name in ALIGNMENTS[problem].gaps:
        gap = np.where(np.arange(9).reshape(3, 3) == 5, np.nan, -1.0)
        scores, matches = best(framework, problem, similarity[3], None, "float32", **{name: gap}, **options)
        assert np.isnan(scores) and not matches.any()


@BOTH
def test_half_precision_and_empty_batches(framework):
    package, shape = FRAMEWORKS[framework].package, (2, 3, 3)
    ones = jnp.ones if framework == "jax" else torch.ones
    half = jnp.ones(shape, jnp.bfloat16) if framework == "jax" else torch.ones(shape, dtype=torch.bfloat16)
    scores, matches = package.best_alignment(package.smith_waterman, half)
    assert scores.dtype == half.dtype and scores.tolist() == [3, 3] and matches.sum() == 6
    scores, matches = package.best_alignment(package.free_gap, ones((0, 3, 3)))
    assert scores.shape == (0,) and matches.shape == (0, 3, 3)
    scores, matches = package.best_alignment(package.needleman_wunsch, ones((2, 0, 3)), gap=-2)
    assert scores.tolist() == [-6, -6] and matches.shape == (2, 0, 3)


def error_of(call: Callable[[], Any]) -> tuple[type, str]:
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    return caught.type, str(caught.value)


@pytest.mark.parametrize(
    ("problem", "parameters", "kind", "text"),
    [
        ("smith_waterman", {"temperature": 1.0}, TypeError, "best_alignment takes no temperature"),
        ("smith_waterman", {"x": 1}, TypeError, "best_alignment of smith_waterman takes gap, end, got x"),
        ("free_gap", {"variant": "auto"}, TypeError, "best_alignment of free_gap takes no parameters, got variant"),
        ("smith_waterman", {"end": "last"}, ValueError, "end must be one of 'any', 'match', got 'last'"),
        ("smith_waterman_affine", {"restrict_turns": 1}, TypeError, "restrict_turns must be True or False, got int"),
        ("needleman_wunsch", {"gap": 1e30}, ValueError, "gap must be finite and at most 1e+18, got 1e+30"),
        ("marginals", {}, TypeError, "function must be one of smith_waterman, smith_waterman_affine, free_gap, "
         "needleman_wunsch of this package, or functools.partial of one with keywords only, got "
         "{package}.expected_alignment.marginals"),
    ],
)  # fmt: skip
@BOTH
def test_errors(framework, problem, parameters, kind, text):
    package = FRAMEWORKS[framework].package
    function, similarity = getattr(package, problem), np.zeros((2, 2), np.float32)
    text = text.format(package=package.__name__)
    assert error_of(lambda: package.best_alignment(function, similarity, **parameters)) == (kind, text)
    if parameters:
        whole = functools.partial(function, **parameters)
        assert error_of(lambda: package.best_alignment(whole, similarity)) == (kind, text)


@BOTH
def test_a_function_may_not_have_lengths(framework):
    package = FRAMEWORKS[framework].package
    function = functools.partial(package.smith_waterman, lengths=np.array([2, 2]))
    text = "best_alignment takes lengths by itself, not in functools.partial"
    assert error_of(lambda: package.best_alignment(function, np.zeros((2, 2)))) == (TypeError, text)


@BOTH
def test_a_function_may_have_its_keywords(framework):
    package = FRAMEWORKS[framework].package
    given = Integers("smith_waterman", ("number",))
    function = functools.partial(package.smith_waterman, gap=-5, end="match")
    got = package.best_alignment(function, given.similarity, given.lengths, gap=-2)
    assert_equal(got, reference.best_alignment("smith_waterman", given.similarity, given.lengths, gap=-2, end="match"))


@BOTH
def test_without_native_kernels_it_says_why(framework, monkeypatch):
    monkeypatch.setenv("ALIGNMENT_NATIVE", "0")
    monkeypatch.setitem(library._kernels, ("float32", 0, False), library.Kernel("float32", 0, False))
    with pytest.raises(cpp.Absent, match="ALIGNMENT_NATIVE turns the native kernels off"):
        best(framework, "smith_waterman", np.zeros((3, 1)), None, "float32")


def test_there_is_none_on_other_devices(monkeypatch):
    text = "best_alignment runs on CPUs and CUDA devices only, not on "
    with pytest.raises(NotImplementedError, match=text + "meta"):
        torch_impl.best_alignment(torch_impl.smith_waterman, torch.zeros((2, 2), device="meta"))
    module = sys.modules["jax_impl.best_alignment"]  # the package has its function by that name
    monkeypatch.setattr(module, "platform_of", lambda _: "rocm")
    with pytest.raises(NotImplementedError, match=text + "rocm"):
        jax_impl.best_alignment(jax_impl.smith_waterman, np.zeros((2, 2), np.float32))
