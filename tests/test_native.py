"""The native kernels by themselves: what no framework shows. Their values are proved with those of all variants."""

import math
import mmap
import platform
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from frameworks import DTYPES, PROBLEMS, ragged
from gaps_by_position import TURNS
from native_calls import CASES, KINDS, PAIRS, ROWS, Given, assert_same_bits, many

from shared import reference
from shared.alignments import ALIGNMENTS
from shared.kernels import cpp
from shared.kernels.cpp import library

pytestmark = pytest.mark.skipif(cpp.why_absent() is not None, reason=f"no native kernels: {cpp.why_absent()}")

LAYOUTS = pytest.mark.parametrize("layout", [PAIRS, ROWS])
# undefined behaviour ends the program without a word, which takes less to compile than to say where. What would be
# copied to each of its calls is compiled, and watched, once.
SANITIZERS = (
    *("-O0", "-g1", "-Dalways_inline=noinline"),
    *("-fsanitize=address,undefined", "-fsanitize-undefined-trap-on-error"),
)
DEFAULT = [(*CASES[0], (), "float32"), (*CASES[2], (), "float32"), (*TURNS[0], "float32")]
ALL = [(*case, dtype) for case in (*((*case, ()) for case in CASES), *TURNS) for dtype in DTYPES]


@pytest.mark.parametrize(
    ("problem", "options", "names", "dtype"),
    [*DEFAULT, *(pytest.param(*case, marks=pytest.mark.slow) for case in ALL if case not in DEFAULT)],
)
def test_layouts_and_thread_counts_give_the_same_bits(problem, options, names, dtype):
    # in the long and narrow ones a block of rows begins at another row in each layout; between blocks logarithms are
    # not carried but taken anew
    for shape in ((37, 41, 53), (36, 230, 3)):
        inputs = many(problem, dtype, *shape, names)
        by_pairs = Given(problem, *inputs, options, layout=PAIRS).results()
        assert_same_bits(by_pairs, Given(problem, *inputs, options, layout=ROWS).results())
    inputs = many(problem, dtype, 150, names=names)  # enough cells for the threads that are asked for
    alone = Given(problem, *inputs, options).results()
    for threads in (2, 3, 5):
        assert_same_bits(alone, Given(problem, *inputs, options, threads=threads).results())


def test_a_pair_does_not_see_the_others():
    problem = "smith_waterman_affine"
    similarity, lengths, parameters = many(problem, "float32")
    together = Given(problem, similarity, lengths, parameters).results()
    for pair in (0, 20, 36):
        one = slice(pair, pair + 1)
        parameters_of_one = {name: value[one] for name, value in parameters.items()}
        # the direction is drawn by shape: scores and gradients suffice
        alone = Given(problem, similarity[one], lengths[one], parameters_of_one).results()[:4]
        assert_same_bits([array[one] for array in together[:4]], alone)


@LAYOUTS
@pytest.mark.parametrize("shape", [(20000, 12), (12, 20000)])
def test_a_sum_of_many_equal_ends_loses_nothing(shape, layout):
    similarity, parameters = np.full((1, *shape), -3.0), {"gap": -20.0, "temperature": 1.0}
    narrow, wide = (
        Given("smith_waterman", similarity.astype(dtype), None, parameters, layout=layout).results()[0]
        for dtype in DTYPES
    )
    np.testing.assert_allclose(narrow, wide, rtol=2e-7)


@LAYOUTS
@pytest.mark.parametrize(
    ("problem", "name", "bad"),
    [
        *(("smith_waterman", "similarity", bad) for bad in (np.nan, np.inf, -np.nan)),
        ("smith_waterman", "gap", np.nan),
        pytest.param("smith_waterman_affine", "gap_extend", np.nan, marks=pytest.mark.slow),
    ],
)
def test_a_bad_number_spoils_its_own_pair_alone(problem, name, bad, layout):
    names = () if name == "similarity" else (name,)
    similarity, lengths, parameters = many(problem, "float32", 6, 17, 9, names)
    lengths[0] = 17, 9
    for gap in names:
        parameters[gap][0] = -1
    clean = Given(problem, similarity, lengths, parameters, layout=layout).results()
    (parameters | {"similarity": similarity})[name][0, 16, 8] = bad
    spoiled = Given(problem, similarity, lengths, parameters, layout=layout).results()
    for number, (before, after) in enumerate(zip(clean, spoiled, strict=True)):
        is_values = number in (3, 6)  # among which the derivative of a gap by position is always 0
        assert np.isnan(after[0]).sum() == after[0].size - (len(names) if is_values else 0)
        assert before[1:].tobytes() == after[1:].tobytes()


@pytest.mark.parametrize(
    ("problem", "temperature"),
    [
        *(("smith_waterman", temperature) for temperature in (0.0, -1.0, np.nan, np.inf)),
        *(pytest.param(problem, 0.0, marks=pytest.mark.slow) for problem in PROBLEMS if problem != "smith_waterman"),
    ],
)
def test_a_temperature_that_is_none_gives_nan_in_its_own_pair_and_zeros_in_padding(problem, temperature):
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


@LAYOUTS
@KINDS
def test_results_are_finite_at_every_temperature_and_similarity(problem, options, layout):
    random = np.random.default_rng(3)
    similarity = (random.normal(size=(8, 19, 23)) * np.logspace(-6, 6, 8)[:, None, None]).astype(np.float32)
    similarity[:, ::3, ::2] = -np.inf
    similarity[0] = -np.inf  # nothing may be matched
    for temperature in (1e-10, 1e-3, 1.0, 1e3, 1e30):
        parameters = {"gap": -1.0, "gap_open": -3.0, "gap_extend": -1e30, "temperature": temperature}
        given = Given(problem, similarity, None, parameters, options, layout)
        scores, again, d_similarity, d_values, *_ = given.results()
        assert np.isfinite(scores).all()
        assert scores.tobytes() == again.tobytes()
        assert np.isfinite(d_similarity).all()
        assert np.isfinite(d_values).all()
        assert (d_similarity >= 0).all()
        assert not d_similarity[np.isneginf(similarity)].any()


def test_more_matches_than_a_float_counts_are_summed():
    # a sum of floats that each add 1 stops at 2 ** 24
    similarity = np.full((1, 6000, 6000), 50.0, np.float32)
    values, d_values = np.array([[-1.0, 1.0]], np.float32), np.empty((1, 2), np.float32)
    score, d_similarity = np.empty(1, np.float32), np.empty_like(similarity)
    numbers = *cpp.call_of("smith_waterman", {"end": "any"}), 1, 0, *similarity.shape
    call = cpp.pack_call(*numbers, similarity.ctypes.data, similarity[0].size, 0, values.ctypes.data, 0, 0)
    pointers = (array.ctypes.data for array in (score, d_similarity, d_values))
    assert cpp.kernel("float32", 0).gradients(call, *pointers) == 0
    assert d_values[0, 0] == pytest.approx(0.0, abs=0.05)


@KINDS
def test_scores_grow_beyond_the_range_of_a_float_at_any_pace(problem, options):
    # the best alignment gains `step` at each match; what ends early adds to the same total as what ends late
    steps = np.array([0.5, 5.0, 20.0, 60.0, 150.0])[:, None, None]
    similarity = np.where(np.eye(50) > 0, steps, -0.5 * steps)
    similarity[:, :, 25:] += np.arange(25) / 10
    every = {"gap": -1.0, "gap_open": -3.0, "gap_extend": -1.0, "temperature": 1.0}
    parameters = {name: every[name] for name in ALIGNMENTS[problem].parameters}
    expected = getattr(reference, problem)(similarity, **parameters, **options)
    marginals = reference.gradients(problem, similarity, **parameters, **options)["similarity"]
    for layout in (PAIRS, ROWS):
        for dtype in DTYPES:
            given = Given(problem, similarity.astype(dtype), None, parameters, options, layout)
            scores, _, d_similarity, *_ = given.results()
            np.testing.assert_allclose(scores, expected, rtol=1e-5)
            np.testing.assert_allclose(d_similarity, marginals, atol=2e-3)


@LAYOUTS
@pytest.mark.parametrize("match", [1.4, 1.5, 1.6, 2.5, 2.8, 3.6, 4.4])
def test_totals_of_rows_do_not_overflow_when_they_are_added(match, layout):
    # a row's total may be as far above the matrix's as a total may be above its own exponent, both at a time
    similarity = np.full((1, 100, 100), match, np.float32)
    scores, *_ = Given("smith_waterman", similarity, None, {"gap": -1.0, "temperature": 1.0}, layout=layout).results()
    assert scores[0] == pytest.approx(float(reference.smith_waterman(similarity[0])), rel=1e-5)


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
    # relative to a row and a column: fractions and exponents of a row, the sweep's steps, and page sizes
    assert score < 100, ran.stderr
    # relative to the similarity
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


# Affine gaps have the most states, and global alignments a border that costs something. The best alignments where gaps
# are numbers are the kernels' by position too.
@pytest.mark.parametrize(
    ("kind", "by_position", "passes"),
    [("GLOBAL", False, tuple(cpp.PASSES)[:4]), pytest.param("AFFINE", True, tuple(cpp.PASSES), marks=pytest.mark.slow)],
)
def test_the_sanitizers_find_nothing(kind, by_position, passes):
    """The driver with the kernels compiled in, watched by the address and undefined-behaviour sanitizers."""
    flags = f"-DKIND=ALIGNMENT_{kind}", *SANITIZERS, f"-I{Path(cpp.__file__).parent}"
    wanted = cpp.target("float32", passes=passes, flags=flags, by_position=by_position)
    sources = (Path(__file__).parent / "native_sanitized.cpp", *wanted.sources, *library.COMMON.sources)
    program = wanted._replace(name=f"sanitized-{kind}-{by_position}", sources=sources, objects=(), makes="program")
    ran = subprocess.run([cpp.compiled(program)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith("0 failed\n")


def test_the_sanitizers_see_a_read_past_the_end(tmp_path):
    source = tmp_path / "faulty.cpp"
    source.write_text("int main(int n, char **) { int *x = new int[n]; int y = x[n]; delete[] x; return y == 7; }")
    built = cpp.compiled(cpp.Target("faulty", (source,), flags=SANITIZERS, makes="program"))
    ran = subprocess.run([built], capture_output=True, text=True)
    assert ran.returncode != 0
    assert "heap-buffer-overflow" in ran.stderr


def test_a_library_refuses_kinds_gaps_and_sizes_that_it_does_not_know():
    similarity, score, values = np.zeros((1, 3, 3), np.float32), np.empty(1, np.float32), np.ones((1, 3), np.float32)
    packed = np.frombuffer(cpp.pack_gaps(*(similarity.ctypes.data, 9, 0, 0, 0) * 2), np.uint8)
    for kind, options, cols, by_position, gaps, is_known in (
        (1, 0, 3, False, 0, False),  # another library's
        (9, 0, 3, False, 0, False),
        (0, 0, 2**30, False, 0, False),  # more columns than can be counted
        (0, 0, 3, False, 0, True),
        (0, cpp.OPEN_BY_POSITION, 3, False, packed.ctypes.data, False),
        (0, cpp.OPEN_BY_POSITION, 3, True, packed.ctypes.data, True),
        (0, cpp.OPEN_BY_POSITION, 3, True, 0, False),
        (0, cpp.EXTEND_BY_POSITION, 3, True, packed.ctypes.data, False),
    ):
        numbers = kind, options, 1, 0, 1, 3, cols, similarity.ctypes.data, 9, 0, values.ctypes.data, 0
        kernel = cpp.kernel("float32", 0, by_position)
        assert (kernel.score(cpp.pack_call(*numbers, gaps), score.ctypes.data) == 0) == is_known


def test_the_reference_agrees_on_a_large_single_pair():
    similarity = np.random.default_rng(2).normal(size=(1, 200, 300))
    given = Given("smith_waterman", similarity, None, {"gap": -1.0, "temperature": 1.0})
    scores, _, d_similarity, *_ = given.results()
    assert scores[0] == pytest.approx(float(reference.smith_waterman(similarity[0])), rel=1e-12)
    expected = reference.gradients("smith_waterman", similarity[0])["similarity"]
    np.testing.assert_allclose(d_similarity[0], expected, atol=1e-10)
