"""The native kernels with several threads: the same bits, from whatever thread and process they are called, and
whatever that thread does with subnormal numbers, those too small for a normal float.
"""

import contextlib
import ctypes
import platform
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS, Inputs, assert_parity, reference_result, run
from native_calls import PAIRS, ROWS, Given, assert_same_bits, many, run_python

from shared.kernels import cpp
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
        for found in pool.map(results, range(64)):
            assert_same_bits(alone, found)


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
        found = score(s, lengths), package.marginals(score, s, lengths)
        found = *found, package.hessian_vector_product(score, s, vector, lengths)
        return [backend.to_numpy(array) for array in found]


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
    found = {}
    for flush in (False, True):
        with flushing(flush):
            found[flush] = derivatives("torch", similarity, lengths)
            assert flushes() == flush
            assert_same_bits(derivatives("jax", similarity, lengths), found[flush])
            for threads in (1, 3):
                assert flushes() == flush
                given = Given("smith_waterman", similarity, lengths, {"gap": -1.0, "temperature": 1.0}, threads=threads)
                found[flush] += given.results()
    assert_same_bits(found[False], found[True])
    assert_same_bits(found[False][3:13], found[False][13:])
    # some marginals are just large enough, so others are not, and became 0
    marginals, smallest = found[False][1], np.finfo(dtype).tiny
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


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_subnormal_similarities_and_gaps_give_what_the_reference_gives(framework):
    tiny = 1e-40
    similarity = np.random.default_rng(0).uniform(-tiny, tiny, size=(3, 17, 9))
    inputs = Inputs(similarity, None, {"gap": np.array(-tiny), "temperature": np.array(1.0)}, np.ones(3))
    assert_parity(run(framework, inputs, "float32", "fused"), reference_result(inputs), "float32", 1.0)
