"""The native kernels with several threads: the same bits, from whatever thread and process they are called."""

import ctypes
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from frameworks import PROBLEMS
from native_calls import ROWS, Given, assert_same_bits, many

import torch_impl
from shared.kernels import cpp

pytestmark = pytest.mark.skipif(cpp.why_absent() is not None, reason=f"no native kernels: {cpp.why_absent()}")

CASES = [(problem, options) for problem in PROBLEMS for options in PROBLEMS[problem].options]
# FE_UPWARD of the C library, by machine
UPWARD = {"x86_64": 0x800, "aarch64": 0x400000}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("problem", "options"), CASES)
def test_the_number_of_threads_changes_no_bit(problem, options, dtype):
    inputs = many(problem, dtype, pairs=150)  # enough cells for the threads that are asked for
    alone = Given(problem, *inputs, options).results()
    for threads in (2, 3, 5):
        assert_same_bits(alone, Given(problem, *inputs, options, threads=threads).results())


@pytest.mark.parametrize("pairs", [1, 16, 17, 20, 31, 33, 48, 130])
def test_nor_does_how_a_batch_is_divided_among_them(pairs):
    similarity, lengths, parameters = many("smith_waterman", "float32", pairs, 80, 90)
    for lengths_of in (lengths, None):
        alone = Given("smith_waterman", similarity, lengths_of, parameters).results()
        assert_same_bits(alone, Given("smith_waterman", similarity, lengths_of, parameters, threads=3).results())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("problem", "options"), CASES)
def test_nor_do_the_blocks_of_long_and_narrow_pairs(problem, options, dtype):
    # a block of rows begins at another row in each layout; between them logarithms are not carried but taken anew
    similarity, lengths, parameters = many(problem, dtype, 36, 230, 3)
    together = Given(problem, similarity, lengths, parameters, options).results()
    assert_same_bits(together, Given(problem, similarity, lengths, parameters, options, layout=ROWS).results())


def test_threads_that_help_round_as_the_caller_does():
    if sys.platform != "linux" or platform.machine() not in UPWARD:
        pytest.skip("how to ask the C library for a rounding mode is known for Linux on two machines only")
    mathematics = ctypes.CDLL("libm.so.6")
    inputs = many("smith_waterman", "float32", pairs=150)
    # the layouts are equal in the usual mode only
    calls = [Given("smith_waterman", *inputs, layout=ROWS, threads=threads) for threads in (1, 3)]
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


def test_many_callers_at_once_share_the_threads():
    inputs = many("smith_waterman", "float32", pairs=150)
    alone = Given("smith_waterman", *inputs).results()
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: Given("smith_waterman", *inputs, threads=4).results(), range(64)):
            assert_same_bits(alone, found)


FORK = """
import os, sys, warnings
sys.path.insert(0, "tests")
warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, for a process with threads
from native_calls import ROWS, Given, many
inputs = many("smith_waterman", "float32", pairs=150)
call = Given("smith_waterman", *inputs, threads=3)
before = [array.tobytes() for array in call.results()]
child = os.fork()
if not child:
    same = [array.tobytes() for array in call.results()] == before
    helped = sys.platform != "linux" or len(os.listdir("/proc/self/task")) > 1
    os._exit(0 if same and helped else 3)
assert [array.tobytes() for array in call.results()] == before
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_of_fork_has_threads_of_its_own():
    # as the workers of a data loader are; the parent's threads do not exist there
    root = Path(__file__).parent.parent
    ran = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, cwd=root, timeout=120)
    assert ran.returncode == 0, ran.stderr


def test_threads_of_pytorch_change_no_bit():
    similarity = torch.randn(100, 60, 70, generator=torch.Generator().manual_seed(0)).requires_grad_()
    found = []
    for threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            scores = torch_impl.smith_waterman(similarity, variant="fused")
            found.append([scores.detach().numpy(), torch.autograd.grad(scores.sum(), similarity)[0].numpy()])
        finally:
            torch.set_num_threads(before)
    assert_same_bits(*found)
