"""best_alignment is the reference's, to the last match, where arithmetic is exact; elsewhere it is a best alignment.

No transform of either framework differentiates it.
"""

import functools
import itertools
import math
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from enumeration import GLOBAL, SIGN
from frameworks import DTYPES, FRAMEWORKS, PROBLEMS, poison
from native_calls import PAIRS, ROWS, Given

import jax_impl
import torch_impl
from shared import reference
from shared.alignments import ALIGNMENTS, has_free_ends
from shared.checks import CannotDifferentiate
from shared.kernels import cpp
from shared.kernels.cpp import library

CASES = [(problem, options) for problem, described in PROBLEMS.items() for options in described.options]
# each gap as one number, a number for each pair, or by position; or all by axis
WITH_GAPS = [
    (problem, options, kinds)
    for problem, options in CASES
    for kinds in (
        *itertools.product(("number", "pairs", "position"), repeat=len(ALIGNMENTS[problem].gaps)),
        *{("axis",) * len(ALIGNMENTS[problem].gaps)} - {()},
    )
    if not has_free_ends(options) or set(kinds) < {"number", "axis"}
]
BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)
EVERY = pytest.mark.parametrize(("problem", "options"), CASES, ids=str)
# the machine code is the same in both, and XLA compiles each case
TORCH_AND_A_CASE_OF_JAX = pytest.mark.parametrize(
    ("framework", "problem", "options"), [*(("torch", *case) for case in CASES), ("jax", *CASES[0])], ids=str
)


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
            if kind == "axis":
                self.gaps[name] = tuple(random.integers(-3, 2, size=(2, pairs)).astype(float))
                continue
            gap = random.integers(-3, 2, size=of_kind[kind]).astype(float)
            self.gaps[name] = poison(gap, self.lengths) if kind == "position" else gap


def best(framework: str, problem: str, similarity: Any, lengths: Any, dtype: str = "float64", **parameters: Any) -> Any:
    """Scores and matches as NumPy arrays."""
    package, backend = FRAMEWORKS[framework]
    with backend.precision(dtype):
        put = lambda value: backend.to_device(value.astype(dtype), "cpu") if isinstance(value, np.ndarray) else value  # noqa: E731
        values = {
            name: tuple(map(put, value)) if isinstance(value, tuple) else put(value)
            for name, value in parameters.items()
        }
        matrix = backend.to_device(np.asarray(similarity, dtype), "cpu")
        results = package.best_alignment(getattr(package, problem), matrix, lengths, **values)
        return tuple(backend.to_numpy(result) for result in results)


def best_natively(given: Given) -> list[np.ndarray]:
    scores = np.full(len(given.similarity), 7, given.similarity.dtype)
    matches = np.full(given.similarity.shape, 7, np.uint8)
    assert given.kernel.best(given.call, scores.ctypes.data, matches.ctypes.data) == 0
    return [scores, matches]


def assert_equal(got: Any, expected: Any) -> None:
    for result, exact in zip(got, expected, strict=True):
        np.testing.assert_array_equal(result, exact)


# of JAX every ninth; in the default tier every third and soft_dtw, but no local alignments with gaps by axis
@pytest.mark.parametrize(
    ("framework", "problem", "options", "kinds", "dtype"),
    [
        pytest.param(name, *case, DTYPES[number % 2], marks=[pytest.mark.slow] * is_slow)
        for name, (number, case) in itertools.product(FRAMEWORKS, enumerate(WITH_GAPS))
        for is_slow in [(number % 3 > 0 and case[0] != "soft_dtw") or (case[0] not in GLOBAL and "axis" in case[2])]
        if name == "torch" or number % 9 == 0
    ],
    ids=str,
)
def test_the_best_alignment_of_integers_is_the_references(framework, problem, options, kinds, dtype):
    drawn = Integers(problem, kinds)
    got = best(framework, problem, drawn.similarity, drawn.lengths, dtype, **drawn.gaps, **options)
    assert got[0].dtype == dtype and got[1].dtype == bool
    assert_equal(got, reference.best_alignment(problem, drawn.similarity, drawn.lengths, **drawn.gaps, **options))


@EVERY
def test_the_best_alignment_in_each_layout_of_the_kernel_is_the_references(problem, options):
    for size in ((6, 1, 1), (5, 1, 7), (5, 7, 1), (20, 5, 8), (3, 40, 21), (2, 70, 33)):
        for kind in ("pairs", "axis" if has_free_ends(options) else "position"):
            drawn = Integers(problem, (kind,) * len(ALIGNMENTS[problem].gaps), *size)
            expected = reference.best_alignment(problem, drawn.similarity, drawn.lengths, **drawn.gaps, **options)
            # nobody looks at the temperature
            parameters = drawn.gaps | {"temperature": math.nan}
            for dtype, (layout, threads) in itertools.product(DTYPES, ((PAIRS, 1), (ROWS, 2), (0, 3))):
                arguments = drawn.similarity.astype(dtype), drawn.lengths, parameters, options
                assert_equal(best_natively(Given(problem, *arguments, layout=layout, threads=threads)), expected)


@BOTH
def test_best_scores_of_whole_numbers_are_exact_in_float32(framework):
    similarity = np.full((2, 2), -1.0)
    similarity[[0, 1], [0, 1]] = 2**23, 2**23 - 1
    for problem in PROBLEMS:
        scores, matches = best(framework, problem, similarity * SIGN[problem], None, "float32")
        assert float(scores) == (2**24 - 1) * SIGN[problem]
        assert_equal([matches], [np.eye(2, dtype=bool)])


@TORCH_AND_A_CASE_OF_JAX
def test_forbidden_pairs_and_pairs_with_nan_have_no_best_alignment(framework, problem, options):
    similarity = np.ones((4, 3, 3))
    similarity[0, 1, 1] = np.nan
    similarity[1, 2, 0] = np.inf * SIGN[problem]
    similarity[2] = -np.inf * SIGN[problem]
    scores, matches = best(framework, problem, similarity, None, "float32", **options)
    assert np.isnan(scores[:2]).all() and not matches[:3].any()
    first, further = ALIGNMENTS[problem].parameters.get("gap_open", -1.0), -1.0
    turn = first if options.get("penalize_turns") else further
    all_gaps = {"cost": first + turn + 4 * further, "free": 0.0}.get(options.get("end_gaps", ""), first + 2 * further)
    assert scores[2] == {"soft_dtw": np.inf}.get(problem, all_gaps if "end_gaps" in options else 0.0)
    assert scores[3] == 3.0
    assert_equal([matches[3]], [np.eye(3, dtype=bool)])
    for name in () if has_free_ends(options) else ALIGNMENTS[problem].gaps:
        gap = np.where(np.arange(9).reshape(3, 3) == 5, np.nan, -1.0)
        scores, matches = best(framework, problem, similarity[3], None, "float32", **{name: gap}, **options)
        assert np.isnan(scores) and not matches.any()


@BOTH
def test_the_best_alignment_takes_half_precision_and_empty_batches(framework):
    package, shape = FRAMEWORKS[framework].package, (2, 3, 3)
    ones = jnp.ones if framework == "jax" else torch.ones
    half = jnp.ones(shape, jnp.bfloat16) if framework == "jax" else torch.ones(shape, dtype=torch.bfloat16)
    scores, matches = package.best_alignment(package.smith_waterman, half)
    assert scores.dtype == half.dtype and scores.tolist() == [3, 3] and matches.sum() == 6
    scores, matches = package.best_alignment(package.free_gap, ones((0, 3, 3)))
    assert scores.shape == (0,) and matches.shape == (0, 3, 3)
    scores, matches = package.best_alignment(package.needleman_wunsch, ones((2, 0, 3)), gap=-2)
    assert scores.tolist() == [-6, -6] and matches.shape == (2, 0, 3)


@pytest.mark.parametrize(
    ("problem", "parameters", "error", "text"),
    [
        ("smith_waterman", {"temperature": 1.0}, TypeError, "best_alignment takes no temperature"),
        ("smith_waterman", {"x": 1}, TypeError, "best_alignment of smith_waterman takes gap, end, got x"),
        ("free_gap", {"variant": "auto"}, TypeError, "best_alignment of free_gap takes no parameters, got variant"),
        ("smith_waterman", {"end": "last"}, ValueError, "end must be one of 'any', 'match', got 'last'"),
        ("smith_waterman_affine", {"restrict_turns": 1}, TypeError, "restrict_turns must be True or False, got int"),
        ("needleman_wunsch", {"gap": 1e30}, ValueError, "gap must be finite and at most 1e+18, got 1e+30"),
        ("marginals", {}, TypeError, "function must be one of smith_waterman, smith_waterman_affine, free_gap, "
         "needleman_wunsch, needleman_wunsch_affine, soft_dtw of this package, or functools.partial of one with "
         "keywords only, got {package}.expected_alignment.marginals"),
        ("free_gap", {"lengths": [2, 2]}, TypeError,
         "best_alignment takes lengths by itself, not in functools.partial"),
    ],
)  # fmt: skip
@BOTH
def test_wrong_arguments_of_best_alignment_are_named(framework, problem, parameters, error, text):
    package = FRAMEWORKS[framework].package
    function, similarity = getattr(package, problem), np.zeros((2, 2), np.float32)
    calls = [] if "lengths" in parameters else [functools.partial(package.best_alignment, function, **parameters)]
    if parameters:
        calls += [functools.partial(package.best_alignment, functools.partial(function, **parameters))]
    for call in calls:
        with pytest.raises(error) as raised:
            call(similarity)
        assert str(raised.value) == text.format(package=package.__name__)


@BOTH
def test_best_alignment_takes_a_function_with_keywords(framework):
    package = FRAMEWORKS[framework].package
    drawn = Integers("smith_waterman", ("number",))
    function = functools.partial(package.smith_waterman, gap=-5, end="match")
    got = package.best_alignment(function, drawn.similarity, drawn.lengths, gap=-2)
    assert_equal(got, reference.best_alignment("smith_waterman", drawn.similarity, drawn.lengths, gap=-2, end="match"))


@BOTH
def test_best_alignment_says_why_there_are_no_native_kernels(framework, monkeypatch):
    monkeypatch.setenv("ALIGNMENT_NATIVE", "0")
    monkeypatch.setitem(library._kernels, ("float32", 0, 0), library.Kernel("float32", 0, 0))
    with pytest.raises(cpp.Absent, match="ALIGNMENT_NATIVE turns the native kernels off"):
        best(framework, "smith_waterman", np.zeros((3, 1)), None, "float32")


def test_best_alignment_names_the_devices_that_it_has_no_kernel_for(monkeypatch):
    text = "best_alignment runs on CPUs and CUDA devices only, not on "
    with pytest.raises(NotImplementedError, match=text + "meta"):
        torch_impl.best_alignment(torch_impl.smith_waterman, torch.zeros((2, 2), device="meta"))
    module = sys.modules["jax_impl.best_alignment"]  # the package has its function by that name
    monkeypatch.setattr(module, "platform_of", lambda _: "rocm")
    with pytest.raises(NotImplementedError, match=text + "rocm"):
        jax_impl.best_alignment(jax_impl.smith_waterman, np.zeros((2, 2), np.float32))


NO_GRADIENT = "best_alignment is not differentiable; use marginals of the smooth function"


compiled = functools.partial(torch.compile, fullgraph=True, backend="aot_eager")


def in_jax(similarity: Any, gap: Any = -1.0) -> Any:
    return jax_impl.best_alignment(jax_impl.smith_waterman, similarity, gap=gap)


def in_torch(similarity: Any, gap: Any = -1.0) -> Any:
    return torch_impl.best_alignment(torch_impl.smith_waterman, similarity, gap=gap)


@pytest.fixture
def whole() -> tuple[np.ndarray, np.ndarray, Any]:
    """Similarity, gaps by position, and the reference's results."""
    random = np.random.default_rng(8)
    similarity, gap = random.integers((-3, -4), (4, 0), size=(5, 9, 11, 2)).astype(np.float32).transpose(3, 0, 1, 2)
    return similarity, gap, reference.best_alignment("smith_waterman", similarity, gap=gap)


def test_best_alignment_works_under_transforms(whole):
    similarity, gap, expected = whole
    tensors = torch.tensor(similarity), torch.tensor(gap)
    for function in (jax.jit(in_jax), jax.vmap(in_jax), jax.jit(jax.vmap(in_jax)), jax.vmap(jax.jit(in_jax))):
        assert_equal(function(similarity, gap), expected)
    for function in (torch.func.vmap(in_torch), compiled(in_torch)):
        assert_equal(function(*tensors), expected)
    for twice in (
        jax.vmap(in_jax, in_axes=(0, None))(np.stack([similarity] * 2), gap),
        torch.func.vmap(in_torch, in_dims=(0, None))(torch.stack([tensors[0]] * 2), tensors[1]),
    ):
        assert_equal([result[1] for result in twice], expected)
    arguments = tensors[0], torch.empty(0, 2), torch.ones(5, 2), [tensors[1]], 0, 8
    torch.library.opcheck(torch.ops.smooth_alignment.fused_best.default, arguments)
    with torch.no_grad():
        scores, _ = in_torch(tensors[0].requires_grad_(), tensors[1])
    assert not scores.requires_grad


def test_best_alignment_is_not_differentiable(whole):
    similarity, gap, _ = whole
    s, g = torch.tensor(similarity), torch.tensor(gap)
    leaf = lambda tensor: tensor.clone().requires_grad_()  # noqa: E731
    jax_scores, torch_scores = (lambda *inputs, f=f: f(*inputs)[0].sum() for f in (in_jax, in_torch))
    for derivative in (
        lambda: jax.grad(jax_scores)(similarity),
        lambda: jax.jit(jax.grad(jax_scores))(similarity),
        lambda: jax.grad(jax_scores, argnums=1)(similarity, gap),
        lambda: jax.grad(jax_scores, argnums=1)(similarity, -1.0),
        lambda: jax.jvp(jax_scores, (similarity,), (similarity,)),
        lambda: torch_scores(leaf(s)).backward(),
        lambda: torch_scores(s, leaf(g)).backward(),
        lambda: torch_scores(s, torch.tensor(-1.0, requires_grad=True)).backward(),
        lambda: compiled(lambda matrix: in_torch(matrix))(leaf(s))[0].sum().backward(),
        lambda: torch.func.grad(torch_scores)(s),
        lambda: torch.func.vmap(torch.func.grad(torch_scores))(s),
        lambda: torch.func.jvp(torch_scores, (s,), (s,)),
    ):
        with pytest.raises(CannotDifferentiate, match=NO_GRADIENT):
            derivative()


def test_a_loss_on_the_matches_of_a_best_alignment_is_differentiable(whole):
    similarity, gap, (_, matches) = whole
    s, g = torch.tensor(similarity), torch.tensor(gap)
    by_jax = jax.grad(lambda matrix: (matrix * in_jax(jax.lax.stop_gradient(matrix), gap)[1]).sum())
    by_torch = lambda matrix: (matrix * in_torch(matrix, g)[1]).sum()  # noqa: E731
    leaf = s.clone().requires_grad_()
    by_torch(leaf).backward()
    slopes = [by_jax(similarity), jax.jit(by_jax)(similarity), leaf.grad, torch.func.grad(by_torch)(s)]
    assert_equal(slopes, [matches] * 4)
