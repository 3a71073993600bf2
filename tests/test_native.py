"""The native kernels by themselves: bits, memory, sanitizers, and threads. Other tests prove their values."""

import contextlib
import ctypes
import mmap
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS
from native_calls import BY_POSITION, EVERY, KINDS, PAIRS, ROWS, Given, assert_same_bits, many, run_python

from shared import reference
from shared.kernels import cpp
from shared.kernels.cpp import build as building
from shared.kernels.cpp import library
from shared.sequences import GLOBINS, pair_batch, read_fasta, substitution_matrix
from torch_impl.kernels import openmp

pytestmark = pytest.mark.skipif(cpp.why_absent() is not None, reason=f"no native kernels: {cpp.why_absent()}")

# FE_UPWARD of the C library, by machine
UPWARD = {"x86_64": 0x800, "aarch64": 0x400000}
# threads of the kernels' own, and PyTorch's
HELPERS = pytest.mark.parametrize("helpers", [0, openmp.parallel], ids=["own", "OpenMP"])
MODES = pytest.mark.parametrize("flush", [False, True])


@HELPERS
def test_threads_that_help_round_as_the_caller_does(helpers):
    if sys.platform != "linux" or platform.machine() not in UPWARD:
        pytest.skip("how to ask the C library for a rounding mode is known for Linux on two machines only")
    mathematics = ctypes.CDLL("libm.so.6")
    inputs = many("smith_waterman", "float32", pairs=150)
    # the layouts are equal in the usual mode only
    calls = [Given("smith_waterman", *inputs, layout=ROWS, threads=n, openmp=helpers) for n in (1, 3)]
    nearest = calls[1].results()  # whoever helps has begun with this mode
    before = mathematics.fegetround()
    assert mathematics.fesetround(UPWARD[platform.machine()]) == 0
    try:
        alone, together = (call.results() for call in calls)
    finally:
        mathematics.fesetround(before)
    assert_same_bits(alone, together)
    assert alone[0].tobytes() != nearest[0].tobytes()
    assert_same_bits(nearest, calls[1].results())


@HELPERS
def test_many_callers_at_once_share_the_threads(helpers):
    inputs = many("smith_waterman", "float32", pairs=150)
    alone = Given("smith_waterman", *inputs).results()
    with ThreadPoolExecutor(8) as pool:
        results = lambda _: Given("smith_waterman", *inputs, threads=4, openmp=helpers).results()  # noqa: E731
        for results_of_call in pool.map(results, range(64)):
            assert_same_bits(alone, results_of_call)


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")  # of Python 3.12 and JAX, for a fork of a process with threads
import torch
import torch_impl
from native_calls import Given, many
from torch_impl.kernels import openmp

tasks = lambda: len(os.listdir("/proc/self/task"))

def in_a_child(is_right):
    child = os.fork()
    if not child:
        os._exit(0 if is_right() else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

torch.set_num_threads(2)
s = torch.ones(100, 60, 70)
s @ s.mT
before = tasks()
score = torch_impl.smith_waterman(s, variant="fused")
if openmp.parallel:  # PyTorch's threads are GNU's, and help; in a child OpenMP would wait for them forever
    assert tasks() == before
in_a_child(lambda: torch.equal(torch_impl.smith_waterman(s, variant="fused"), score))

call = Given("smith_waterman", *many("smith_waterman", "float32", pairs=150), threads=3)
results = [array.tobytes() for array in call.results()]
bits_are_kept = lambda: [array.tobytes() for array in call.results()] == results
# the child itself and two that help all four libraries
in_a_child(lambda: bits_are_kept() and (sys.platform != "linux" or tasks() == 3))
assert bits_are_kept()
"""


def test_a_child_of_fork_has_threads_of_its_own_which_all_libraries_share():
    """Workers of a data loader are such children, in which the parent's threads do not exist."""
    run_python("-c", FORK)


def flushes() -> bool:
    """Whether this thread makes 0 of a subnormal result."""
    half_of_the_smallest = torch.tensor([2.0**-126]) / 2
    return half_of_the_smallest.view(torch.int32).item() == 0


@contextlib.contextmanager
def flushing(flush: bool) -> Iterator[None]:
    """This thread takes subnormal numbers as 0, or does not, and calls leave that as it is."""
    before = flushes()
    if not torch.set_flush_denormal(flush):
        pytest.skip("PyTorch cannot choose what this CPU does with subnormal numbers")
    try:
        assert flushes() == flush
        yield
        assert flushes() == flush
    finally:
        torch.set_flush_denormal(before)


def globins(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of globins. In float64 scaled up, so that there too some marginals are too small for the dtype."""
    records = read_fasta(GLOBINS)
    pairs = list(combinations(range(len(records)), 2))[::4]
    similarity, lengths, _ = pair_batch(records, pairs, substitution_matrix("BLOSUM62"), GLOBINS)
    return (similarity * (1 if dtype == "float32" else 8)).astype(dtype), lengths


def derivatives(framework: str, similarity: np.ndarray, lengths: np.ndarray | None) -> list[np.ndarray]:
    """Score, marginals and hessian_vector_product of `fused`."""
    package, backend = FRAMEWORKS[framework]
    direction = np.random.default_rng(1).normal(size=similarity.shape).astype(similarity.dtype)
    with backend.precision(str(similarity.dtype)):
        s, vector = (backend.to_device(array, "cpu") for array in (similarity, direction))
        score = partial(package.smith_waterman, variant="fused")
        derivatives_of_call = score(s, lengths), package.marginals(score, s, lengths)
        derivatives_of_call = *derivatives_of_call, package.hessian_vector_product(score, s, vector, lengths)
        return [backend.to_numpy(array) for array in derivatives_of_call]


@MODES
def test_a_call_that_is_refused_or_runs_out_of_memory_leaves_the_callers_mode(flush):
    if sys.platform != "linux":
        pytest.skip("the limit on memory is one of Linux")
    import resource

    values, score, cols = np.array([[-1.0, 1.0]], np.float32), np.empty(1, np.float32), 2**30 - 1
    similarity = np.ones(1, np.float32)  # nothing of it is read before there is memory for a row
    refused, large = (
        cpp.pack_call(kind, 0, 1, PAIRS, 1, 1, cols, similarity.ctypes.data, cols, 0, values.ctypes.data, 0, 0)
        for kind in (9, 0)
    )
    kernel, before = cpp.kernel("float32", 0).score, resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    with flushing(flush):
        assert kernel(refused, score.ctypes.data) not in (0, cpp.OUT_OF_MEMORY)
        assert flushes() == flush
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, before[1]))
        try:
            status = kernel(large, score.ctypes.data)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
        assert status == cpp.OUT_OF_MEMORY


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_the_callers_mode_changes_no_bit_and_is_left_as_it_was(dtype):
    similarity, lengths = globins(dtype)
    by_mode = {}
    for flush in (False, True):
        with flushing(flush):
            by_mode[flush] = derivatives("torch", similarity, lengths)
            assert flushes() == flush
            assert_same_bits(derivatives("jax", similarity, lengths), by_mode[flush])
            for threads in (1, 3):
                assert flushes() == flush
                call = Given("smith_waterman", similarity, lengths, {"gap": -1.0, "temperature": 1.0}, threads=threads)
                by_mode[flush] += call.results()
    assert_same_bits(by_mode[False], by_mode[True])
    assert_same_bits(by_mode[False][3:13], by_mode[False][13:])
    # some marginals are just large enough, so others are not, and became 0
    marginals, smallest = by_mode[False][1], np.finfo(dtype).tiny
    made = marginals[marginals > 0]
    assert smallest <= made.min() < 1e3 * smallest


@MODES
def test_subnormal_gaps_and_scores_are_0_and_subnormal_temperatures_the_lowest(flush):
    # without rows an alignment is all gaps: 200 would be worth a normal number, 3 would not
    similarity, lengths = np.ones((2, 1, 200), np.float32), np.array([[0, 200], [0, 3]])
    gap = Given("needleman_wunsch", similarity, lengths, {"gap": -1e-40, "temperature": 1.0})
    similarity, lengths, parameters = many("smith_waterman", "float32")
    smallest, largest = np.nextafter(np.array([0, np.finfo("f").tiny], "f"), np.array([1, 0], "f"))
    lowest, *calls = (  # made here: with the other mode NumPy would make 0 of these numbers
        Given("smith_waterman", similarity, lengths, parameters | {"temperature": temperature})
        for temperature in (1e-16, smallest, largest)
    )
    scores = gap.new()[0]
    with flushing(flush):
        gap.run("score", scores)
        assert not (scores.view(np.int32) & 0x7FFFFFFF).any()
        expected = lowest.results()
        assert np.isfinite(expected[0]).all()
        for call in calls:
            assert_same_bits(expected, call.results())


LAYOUTS = pytest.mark.parametrize("layout", [PAIRS, ROWS])
# undefined behaviour ends the program without a word, which takes less to compile than to say where. What would be
# copied to each of its calls is compiled, and watched, once.
SANITIZERS = (
    *("-O0", "-g1", "-Dalways_inline=noinline"),
    *("-fsanitize=address,undefined", "-fsanitize-undefined-trap-on-error"),
)


# a row in its own lanes sees no other pair, so the first comparison shows that pairs side by side do not either
@EVERY
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_layouts_and_thread_counts_give_the_same_bits(problem, options, names, dtype):
    # in the long and narrow ones a block of rows begins at another row in each layout; between blocks logarithms are
    # not carried but taken anew
    for shape in ((37, 41, 53), (36, 230, 3)):
        inputs = many(problem, dtype, *shape, names)
        by_pairs = Given(problem, *inputs, options, layout=PAIRS).results()
        assert_same_bits(by_pairs, Given(problem, *inputs, options, layout=ROWS).results())
    # enough cells for the threads that are asked for, and numbers of pairs that vectors do not divide
    for shape in ((150, 41, 53), (17, 80, 90), (33, 80, 90)):
        inputs = many(problem, dtype, *shape, names)
        alone = Given(problem, *inputs, options).results()
        for threads in (2, 3, 5):
            assert_same_bits(alone, Given(problem, *inputs, options, threads=threads).results())


@LAYOUTS
@pytest.mark.parametrize("shape", [(20000, 12), (12, 20000)])
def test_a_sum_of_many_equal_ends_loses_nothing(shape, layout):
    similarity, parameters = np.full((1, *shape), -3.0), {"gap": -20.0, "temperature": 1.0}
    narrow, wide = (
        Given("smith_waterman", similarity.astype(dtype), None, parameters, layout=layout).results()[0]
        for dtype in ("float32", "float64")
    )
    np.testing.assert_allclose(narrow, wide, rtol=2e-7)


@LAYOUTS
@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *(("similarity", bad) for bad in (np.nan, np.inf, -np.nan)),
        *(("temperature", bad) for bad in (0.0, -1.0, np.nan, np.inf)),
        ("gap", np.nan),
    ],
)
def test_a_bad_number_spoils_its_own_pair_alone(name, bad, layout):
    problem, options, names = BY_POSITION[0] if name == "gap" else ("smith_waterman", {}, ())
    similarity, lengths, parameters = many(problem, "float32", 6, 17, 9, names)
    lengths[0] = 17, 9
    for gap in names:
        parameters[gap][0] = -1
    clean = Given(problem, similarity, lengths, parameters, options, layout).results()
    (parameters | {"similarity": similarity})[name][(0,) if name == "temperature" else (0, 16, 8)] = bad
    spoiled = Given(problem, similarity, lengths, parameters, options, layout).results()
    for number, (before, after) in enumerate(zip(clean, spoiled, strict=True)):
        is_values = number in (3, 6)  # among which the derivative of a gap by position is always 0
        assert np.isnan(after[0]).sum() == after[0].size - (len(names) if is_values else 0)
        assert before[1:].tobytes() == after[1:].tobytes()


@LAYOUTS
@KINDS
def test_results_are_finite_at_every_temperature_and_similarity(problem, options, layout):
    random = np.random.default_rng(3)
    similarity = (random.normal(size=(8, 19, 23)) * np.logspace(-6, 6, 8)[:, None, None]).astype(np.float32)
    similarity[:, ::3, ::2] = -np.inf
    similarity[0] = -np.inf  # nothing may be matched
    for temperature in (1e-10, 1e-3, 1.0, 1e3, 1e30):
        parameters = {"gap": -1.0, "gap_open": -3.0, "gap_extend": -1e30, "temperature": temperature}
        call = Given(problem, similarity, None, parameters, options, layout)
        scores, again, d_similarity, d_values, *_ = call.results()
        # a global alignment of the first pair needs gaps that are extended, which is forbidden
        assert np.isfinite(scores[problem == "needleman_wunsch_affine" :]).all()
        assert scores.tobytes() == again.tobytes()
        assert np.isfinite(d_similarity).all()
        assert np.isfinite(d_values).all()
        assert (d_similarity >= 0).all()
        assert not d_similarity[np.isneginf(similarity)].any()


def test_more_matches_than_a_float_counts_are_summed():
    # a sum of floats that each add 1 stops at 2 ** 24
    similarity = np.full((1, 6000, 6000), 50.0, np.float32)
    call = Given("smith_waterman", similarity, None, {"gap": -1.0, "temperature": 1.0})
    scores, d_similarity, d_values = call.new()
    call.run("gradients", scores, d_similarity, d_values)
    assert d_values[0, 0] == pytest.approx(0.0, abs=0.05)


@LAYOUTS
def test_totals_of_rows_do_not_overflow_when_they_are_added(layout):
    # a row's total may be as far above the matrix's as a total may be above its own exponent, both at a time
    similarity = np.array([1.4, 1.5, 1.6, 2.5, 2.8, 3.6, 4.4], np.float32)[:, None, None] * np.ones((100, 100), "f")
    scores, *_ = Given("smith_waterman", similarity, None, {"gap": -1.0, "temperature": 1.0}, layout=layout).results()
    np.testing.assert_allclose(scores, reference.smith_waterman(similarity), rtol=1e-5)


MEMORY = """
import resource, sys
import numpy as np
from native_calls import Given
similarity = np.random.default_rng(0).random((1, 6000, 6000), dtype=np.float32)
given = Given("smith_waterman", similarity, None, {"gap": -1.0, "temperature": 1.0}, threads=2)
scores, _, d_values = given.new()
d_similarity = np.ones_like(similarity)  # its pages exist
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
assert given.kernel.score and given.kernel.gradients
before = peak()
given.run("score", scores)
after_score = peak()
given.run("gradients", scores, d_similarity, d_values)
print((after_score - before) / (2 * 6000 * 4), (peak() - after_score) / similarity.nbytes)
"""


def test_memory_is_streamed_and_checkpointed():
    score, marginals = map(float, run_python("-c", MEMORY).split())
    # relative to a row and a column: fractions and exponents of a row, the sweep's steps, and page sizes
    assert score < 100
    # relative to the similarity
    assert marginals < 0.5


def faults_of(given: Given, d_similarity: np.ndarray) -> int:
    scores, _, d_values = given.new()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    given.run("gradients", scores, d_similarity, d_values)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_a_large_result_is_put_into_large_pages():
    call = Given("smith_waterman", *many("smith_waterman", "float32", pairs=700))
    warm = np.zeros_like(call.similarity)
    faults_of(call, warm)
    # an array that begins within a large page, in memory that nobody has written yet
    large_page = 2**21
    memory = mmap.mmap(-1, warm.nbytes + 3 * large_page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    new = np.frombuffer(memory, np.float32, warm.size, offset=large_page + 64).reshape(warm.shape)
    faults, pages = faults_of(call, new), new.nbytes // mmap.PAGESIZE
    np.testing.assert_array_equal(new, warm)
    assert faults_of(call, warm) < pages / 20
    system = tuple(int(number) for number in platform.release().split(".")[:2]) if sys.platform == "linux" else (0, 0)
    assert faults <= (pages / 20 if system >= (6, 1) else 2 * pages)


# Affine gaps have the most states, and global alignments a border that costs something. But for
# GLOBAL gradients stand in for marginals. The best alignments where gaps are numbers are the kernels' by position too.
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "form", "dtype"),
    [
        ("SOFT_DTW", 0, "float64"),
        pytest.param("GLOBAL", 0, "float32", marks=pytest.mark.slow),
        pytest.param("AFFINE", 1, "float32", marks=pytest.mark.slow),
        pytest.param("GLOBAL_AFFINE", 2, "float32", marks=pytest.mark.slow),
    ],
)
def test_the_sanitizers_find_nothing_but_a_planted_fault(kind, form, dtype):
    """The library and what it is linked with, watched by the address and undefined-behaviour sanitizers."""
    runtime = subprocess.check_output([*building.find_compiler(), "-print-file-name=libasan.so"], text=True).strip()
    if not Path(runtime).is_absolute():
        pytest.skip("GCC's sanitizers can be loaded before Python")
    more = {"GLOBAL": ["marginals"], "AFFINE": ["best"], "GLOBAL_AFFINE": ["best"]}.get(kind, [])
    passes = "score", "gradients", "tangents", *more
    sanitized = cpp.target(dtype, None, passes, (f"-DKIND=ALIGNMENT_{kind}", *SANITIZERS), form=form)
    common = library.COMMON._replace(name="sanitized-common", flags=SANITIZERS)
    path = cpp.compiled(sanitized._replace(name=f"sanitized-{kind}", objects=(common,)))
    script = Path(__file__).with_name("native_sanitized.py")
    # Python leaks when it ends, which is not watched, and a little before
    environment = {"LD_PRELOAD": runtime, "ASAN_OPTIONS": "leak_check_at_exit=0", "PYTHONMALLOC": "malloc"}
    with pytest.raises(AssertionError) as ended:  # by the planted fault
        run_python(script, path, kind, dtype, **environment)
    before, checked, after = str(ended.value).partition("all checked")
    assert checked and "alignment" not in before and "heap-buffer-overflow" in after


LATE_TEAM = """
import ctypes, time
from native_calls import Given, many

late, calls = 0.003, []


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
def parallel(run, argument, threads, flags):
    calls.append(time.monotonic())
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(run)(argument)
    time.sleep(late)  # as OpenMP waits for a thread that a busy machine does not run


openmp = ctypes.cast(parallel, ctypes.c_void_p).value
call = Given("smith_waterman", *many("smith_waterman", "float32", pairs=64), threads=2, openmp=openmp)
scores, end = call.new()[0], time.monotonic() + 0.3
while time.monotonic() < end:
    call.run("score", scores)
assert len(calls) < 6 and all(b - a > 0.02 for a, b in zip(calls, calls[1:])), calls  # every 20, 40, 80 ms
late = 0.0
while time.monotonic() < end + 30:  # a busy machine may make it wait indeed
    before = len(calls)
    call.run("score", scores)
    call.run("score", scores)
    if len(calls) == before + 2:
        break
    time.sleep(0.02)
assert len(calls) == before + 2
"""


def test_openmp_is_avoided_for_a_while_after_it_kept_a_call_waiting():
    run_python("-c", LATE_TEAM)


def test_a_library_refuses_kinds_gaps_and_sizes_that_it_does_not_know():
    similarity, score, values = np.zeros((1, 3, 3), np.float32), np.empty(1, np.float32), np.ones((1, 3), np.float32)
    packed = np.frombuffer(cpp.pack_gaps(*(similarity.ctypes.data, 9, 0, 0, 0) * 2), np.uint8)
    for kind, options, cols, by_position, gaps, is_known in (
        (1, 0, 3, False, 0, False),  # another library's
        (9, 0, 3, False, 0, False),
        (0, 0, 2**30, False, 0, False),  # more columns than can be counted
        (0, 0, 3, False, 0, True),
        (0, cpp.OPEN_BY_POSITION, 3, False, packed.ctypes.data, False),
        (1, cpp.OPEN_BY_POSITION, 3, True, packed.ctypes.data, True),
        (1, cpp.OPEN_BY_POSITION, 3, True, 0, False),
        (1, cpp.EXTEND_BY_POSITION, 3, True, packed.ctypes.data, False),
    ):
        numbers = kind, options, 1, 0, 1, 3, cols, similarity.ctypes.data, 9, 0, values.ctypes.data, 0
        kernel = cpp.kernel("float32", int(by_position), by_position * cpp.OPEN_BY_POSITION)
        assert (kernel.score(cpp.pack_call(*numbers, gaps), score.ctypes.data) == 0) == is_known
