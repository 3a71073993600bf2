"""The native kernels by themselves: what no framework shows. Their values are proved with those of all variants."""

import ctypes
import math
import mmap
import platform
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from frameworks import PROBLEMS, ragged
from native_calls import PAIRS, ROWS, Given, assert_same_bits, many

from shared import reference
from shared.alignments import ALIGNMENTS
from shared.kernels import cpp
from shared.kernels.cpp import library

pytestmark = pytest.mark.skipif(cpp.why_absent() is not None, reason=f"no native kernels: {cpp.why_absent()}")

CASES = [(problem, options) for problem in PROBLEMS for options in PROBLEMS[problem].options]
# undefined behaviour ends the program without a word, which takes less to compile than to say where. What would be
# copied to each of its calls is compiled, and watched, once.
SANITIZERS = (
    *("-O0", "-g1", "-Dalways_inline=noinline"),
    *("-fsanitize=address,undefined", "-fsanitize-undefined-trap-on-error"),
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("problem", "options"), CASES)
def test_layouts_give_the_same_bits(problem, options, dtype):
    inputs = many(problem, dtype)
    by_pairs = Given(problem, *inputs, options, layout=PAIRS).results()
    assert_same_bits(by_pairs, Given(problem, *inputs, options, layout=ROWS).results())


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_pair_does_not_see_the_others(problem):
    similarity, lengths, parameters = many(problem, "float32")
    together = Given(problem, similarity, lengths, parameters).results()
    for pair in (0, 20, 36):
        one = slice(pair, pair + 1)
        own = {name: value[one] for name, value in parameters.items()}
        # the direction is drawn by shape: scores and gradients suffice
        alone = Given(problem, similarity[one], lengths[one], own).results()[:4]
        assert_same_bits([array[one] for array in together[:4]], alone)


@pytest.mark.parametrize("layout", [PAIRS, ROWS])
@pytest.mark.parametrize("shape", [(20000, 12), (12, 20000)])
def test_a_sum_of_many_equal_ends_loses_nothing(shape, layout):
    similarity, parameters = np.full((1, *shape), -3.0), {"gap": -20.0, "temperature": 1.0}
    narrow, wide = (
        Given("smith_waterman", similarity.astype(dtype), None, parameters, layout=layout).results()[0]
        for dtype in ("float32", "float64")
    )
    np.testing.assert_allclose(narrow, wide, rtol=2e-7)


@pytest.mark.parametrize("layout", [PAIRS, ROWS])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.nan])
def test_a_bad_similarity_spoils_its_own_pair_alone(bad, layout):
    inputs = ragged(17, 9)
    similarity = inputs.similarity.astype(np.float32)
    clean = Given("smith_waterman", similarity, inputs.lengths, inputs.parameters, layout=layout).results()
    similarity[0, 16, 8] = bad
    spoiled = Given("smith_waterman", similarity, inputs.lengths, inputs.parameters, layout=layout).results()
    for before, after in zip(clean, spoiled, strict=True):
        assert np.isnan(after[0]).all()
        assert before[1:].tobytes() == after[1:].tobytes()


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_temperature_that_is_none_gives_nan_in_its_own_pair_and_zeros_in_the_padding(problem, temperature):
    inputs = ragged(7, 5, problem=problem)
    temperatures = np.ones(6)
    temperatures[4] = temperature
    parameters = inputs.parameters | {"temperature": temperatures}
    assert inputs.lengths is not None
    rows, cols = inputs.lengths[4]
    scores, again, d_similarity, d_values, *_ = Given(
        problem, inputs.similarity.astype(np.float32), inputs.lengths, parameters
    ).results()
    assert np.isnan(scores[4])
    assert np.isnan(again[4])
    assert np.isnan(d_values[4]).all()
    assert np.isnan(d_similarity[4, :rows, :cols]).all()
    assert not d_similarity[4, rows:].any()
    assert not d_similarity[4, :, cols:].any()
    for array in (scores, d_similarity, d_values):
        assert np.isfinite(np.delete(array, 4, axis=0)).all()


@pytest.mark.parametrize("layout", [PAIRS, ROWS])
@pytest.mark.parametrize("temperature", [1e-10, 1e-3, 1.0, 1e3, 1e30])
@pytest.mark.parametrize(("problem", "options"), CASES)
def test_no_temperature_and_no_similarity_makes_a_result_that_is_not_finite(problem, options, temperature, layout):
    random = np.random.default_rng(3)
    similarity = (random.normal(size=(8, 19, 23)) * np.logspace(-6, 6, 8)[:, None, None]).astype(np.float32)
    similarity[:, ::3, ::2] = -np.inf
    similarity[0] = -np.inf  # nothing may be matched
    parameters = {"gap": -1.0, "gap_open": -3.0, "gap_extend": -1e30, "temperature": temperature}
    given = Given(problem, similarity, None, parameters, options, layout)
    scores, again, d_similarity, d_values, *_ = given.results()
    assert np.isfinite(scores).all()
    assert scores.tobytes() == again.tobytes()
    assert np.isfinite(d_similarity).all()
    assert np.isfinite(d_values).all()
    assert (d_similarity >= 0).all()
    assert not d_similarity[np.isneginf(similarity)].any()


def test_many_more_matches_than_a_float_counts():
    # a sum of floats that each add 1 stops at 2 ** 24
    similarity = np.full((1, 6000, 6000), 50.0, np.float32)
    values = np.array([[-1.0, 1.0]], np.float32)
    _, _, d_values = gradients_of(similarity, values)
    assert d_values[0, 0] == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("problem", "options"), CASES)
def test_scores_grow_beyond_the_range_of_a_float_at_any_pace(problem, options, dtype):
    # the best alignment gains `step` at each match; what ends early adds to the same total as what ends late
    steps = np.array([0.5, 5.0, 20.0, 60.0, 150.0])[:, None, None]
    similarity = np.where(np.eye(70) > 0, steps, -0.5 * steps)
    similarity[:, :, 35:] += np.arange(35) / 10
    parameters = {"gap": -1.0, "gap_open": -3.0, "gap_extend": -1.0, "temperature": 1.0}
    own = {name: parameters[name] for name in ALIGNMENTS[problem].parameters}
    expected = getattr(reference, problem)(similarity, **own, **options)
    marginals = reference.gradients(problem, similarity, **own, **options)["similarity"]
    for layout in (PAIRS, ROWS):
        scores, _, d_similarity, *_ = Given(problem, similarity.astype(dtype), None, own, options, layout).results()
        np.testing.assert_allclose(scores, expected, rtol=1e-5)
        np.testing.assert_allclose(d_similarity, marginals, atol=2e-3)


@pytest.mark.parametrize("layout", [PAIRS, ROWS])
@pytest.mark.parametrize("match", [1.4, 1.5, 1.6, 2.5, 2.8, 3.6, 4.4])
def test_totals_of_rows_do_not_overflow_when_they_are_added(match, layout):
    # a row's total may be as far above the matrix's as a total may be above its own exponent, both at a time
    similarity = np.full((1, 100, 100), match, np.float32)
    scores, *_ = Given("smith_waterman", similarity, None, {"gap": -1.0, "temperature": 1.0}, layout=layout).results()
    assert scores[0] == pytest.approx(float(reference.smith_waterman(similarity[0])), rel=1e-5)


def gradients_of(similarity: np.ndarray, values: np.ndarray):
    numbers = *cpp.call_of("smith_waterman", {"end": "any"}), 1, 0, *similarity.shape
    call = cpp.pack_call(*numbers, similarity.ctypes.data, similarity[0].size, 0, values.ctypes.data, 0, 0)
    results = [np.empty(len(values), np.float32), np.empty_like(similarity), np.empty_like(values)]
    assert cpp.kernel("float32", 0).gradients(call, *(array.ctypes.data for array in results)) == 0
    return results


MEMORY = """
import resource, sys
import numpy as np
from shared.kernels import cpp
from shared.kernels.cpp import library
size = 6000
similarity = np.random.default_rng(0).random((1, size, size), dtype=np.float32)
values, score, d_values = np.array([[-1.0, 1.0]], np.float32), np.empty(1, np.float32), np.empty((1, 2), np.float32)
d_similarity = np.zeros_like(similarity)
d_similarity += 1  # its pages exist
call = cpp.pack_call(0, 0, 2, 0, 1, size, size, similarity.ctypes.data, size * size, 0, values.ctypes.data, 0, 0)
kernel = cpp.kernel("float32", 0)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
assert kernel.score and kernel.gradients
before = peak()
assert kernel.score(call, score.ctypes.data) == 0
after_score = peak()
assert kernel.gradients(call, score.ctypes.data, d_similarity.ctypes.data, d_values.ctypes.data) == 0
print((after_score - before) / (2 * size * 4), (peak() - after_score) / similarity.nbytes)
"""


def test_memory_is_streamed_and_checkpointed():
    ran = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, cwd=Path(__file__).parent.parent
    )
    score, marginals = map(float, ran.stdout.split())
    # of the numbers in a row and a column: fractions and exponents of a row, the sweep's steps, and page sizes
    assert score < 100, ran.stderr
    # of the similarity
    assert marginals < 0.5, ran.stderr


def new_memory(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array that begins within a large page, in memory that nobody has written yet."""
    large = 2**21
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    values = mmap.mmap(-1, math.prod(shape) * np.dtype(dtype).itemsize + 3 * large, flags)
    return np.frombuffer(values, dtype, math.prod(shape), offset=large + 64).reshape(shape)


def faults_of(given: Given, d_similarity: np.ndarray) -> int:
    scores, d_values = np.empty(len(d_similarity), np.float32), np.empty(given.values.shape, np.float32)
    pointers = (array.ctypes.data for array in (scores, d_similarity, d_values))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    assert given.kernel.gradients(given.call, *pointers) == 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_a_large_result_is_put_into_large_pages():
    similarity, lengths, parameters = many("smith_waterman", "float32", pairs=700)
    given = Given("smith_waterman", similarity, lengths, parameters)
    warm = np.zeros(similarity.shape, np.float32)
    faults_of(given, warm)
    new = new_memory(similarity.shape, "float32")
    faults, pages = faults_of(given, new), new.nbytes // mmap.PAGESIZE
    np.testing.assert_array_equal(new, warm)
    assert faults_of(given, warm) < pages / 20
    system = tuple(int(number) for number in platform.release().split(".")[:2]) if sys.platform == "linux" else (0, 0)
    assert faults <= (pages / 20 if system >= (6, 1) else 2 * pages)


# Of the kinds, affine gaps have the most states, and global alignments a border that costs something. The best
# alignments where gaps are numbers are the kernels' by position too.
@pytest.mark.parametrize(
    ("kind", "by_position", "passes"),
    [("GLOBAL", False, tuple(name for name in cpp.PASSES if name != "best")), ("AFFINE", True, tuple(cpp.PASSES))],
)
def test_the_sanitizers_find_nothing(kind, by_position, passes):
    """The driver with the kernels compiled in, watched by the address and undefined-behaviour sanitizers."""
    flags = f"-DKIND=ALIGNMENT_{kind}", *SANITIZERS, f"-I{Path(cpp.__file__).parent}"
    wanted = cpp.target("float32", passes=passes, flags=flags, by_position=by_position)
    sources = (Path(__file__).parent / "native_sanitized.cpp", *wanted.sources, *library.COMMON.sources)
    own = wanted._replace(name=f"sanitized-{kind}-{by_position}", sources=sources, objects=(), makes="program")
    ran = subprocess.run([cpp.compiled(own)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith("0 failed\n")


def test_the_sanitizers_see_a_read_past_the_end(tmp_path):
    source = tmp_path / "faulty.cpp"
    source.write_text("int main(int n, char **) { int *x = new int[n]; int y = x[n]; delete[] x; return y == 7; }")
    built = cpp.compiled(cpp.Target("faulty", (source,), flags=SANITIZERS, makes="program"))
    ran = subprocess.run([built], capture_output=True, text=True)
    assert ran.returncode != 0
    assert "heap-buffer-overflow" in ran.stderr


def test_unknown_calls_are_refused():
    kernel, score = cpp.kernel("float32", 0), ctypes.c_float()
    # of another library, and of none; longer than columns can be counted
    for kind, cols in ((1, 1), (9, 1), (0, 2**30)):
        call = cpp.pack_call(kind, 0, 1, 0, 0, 1, cols, 0, 0, 0, 0, 0, 0)
        assert kernel.score(call, ctypes.addressof(score)) != 0


def test_the_reference_agrees_on_a_large_single_pair():
    similarity = np.random.default_rng(2).normal(size=(1, 200, 300))
    given = Given("smith_waterman", similarity, None, {"gap": -1.0, "temperature": 1.0})
    scores, _, d_similarity, *_ = given.results()
    assert scores[0] == pytest.approx(float(reference.smith_waterman(similarity[0])), rel=1e-12)
    expected = reference.gradients("smith_waterman", similarity[0])["similarity"]
    np.testing.assert_allclose(d_similarity[0], expected, atol=1e-10)
