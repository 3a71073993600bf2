"""What a machine allows at most: the limit of a case, the share of it that was reached, and how both are told."""

from typing import Any

import pytest
from hand_made import WORK, case, record, right
from shared.bench.ceilings import BANDWIDTH, EXPONENTIALS
from shared.bench.notes import notes
from shared.bench.plan import Settings
from shared.bench.table import report
from shared.bench.verdict import verdicts

from shared.bench import ceilings
from shared.bench.record import Record, Result
from shared.kernels.triton.floor import SPECIAL_FUNCTIONS
from shared.problems import PROBLEMS

# 4 bytes in for a cell, 4 out: a score at 1e12 bytes and 1e12 exponentials per second
BYTES: dict[str, Any] = {"input_bytes": 4 * WORK, "output_bytes": 4 * WORK}


def on_gpu(*results: Result, bandwidth: float | None = 1e12, exponentials: float | None = 1e12) -> Record:
    made = record(*results, settings=Settings(device="cuda", input="random"))
    made.environment |= {BANDWIDTH: bandwidth, EXPONENTIALS: exponentials}
    return made


def gpu_case(framework: str = "jax", variant: str = "fused", seconds: float = 1e-4, **others) -> Result:
    return right(case(framework, variant, device="cuda"), seconds, seconds, **(BYTES | others))


def test_the_limit_is_the_slower_of_memory_and_exponentials():
    result = gpu_case()
    needed = SPECIAL_FUNCTIONS["smith_waterman"]["score"]
    assert ceilings.rate_limit(on_gpu(result, exponentials=None), result) == pytest.approx(1e12 / 8)
    assert ceilings.rate_limit(on_gpu(result, bandwidth=1e15), result) == pytest.approx(1e12 / needed)
    assert ceilings.rate_limit(on_gpu(result), result) == pytest.approx(min(1e12 / 8, 1e12 / needed))
    assert ceilings.rate_limit(on_gpu(result, bandwidth=None, exponentials=None), result) is None


def test_the_share_is_by_the_time_on_the_device_where_that_is_known():
    seconds = WORK / (0.5 * 1e12 / 8)  # half of what the memory allows
    known = gpu_case(seconds=10 * seconds, on_device=[0.9 * seconds, seconds, 5.0])
    unknown = gpu_case(seconds=10 * seconds)
    assert ceilings.share_of_limit(on_gpu(known), known) == pytest.approx(0.5)
    assert ceilings.share_of_limit(on_gpu(unknown), unknown) == pytest.approx(0.05)


def test_a_problem_that_nobody_counted_is_bound_by_memory_alone():
    result = right(case("jax", "scan", problem="stencil", device="cuda"), 1.0, **BYTES)
    assert PROBLEMS["stencil"].special_functions("forward", "float32") is None
    assert PROBLEMS["smith_waterman"].special_functions("score", "float64") is None
    assert ceilings.rate_limit(on_gpu(result), result) == pytest.approx(1e12 / 8)


def test_ceilings_are_told_of_an_accelerator_and_of_nothing_else():
    made = on_gpu(gpu_case())
    (line,) = (line for line in notes(made) if line.startswith("measured ceilings"))
    assert line.startswith("measured ceilings: copying 1000 GB/s, 1000 billion exponentials per second; the limit is")
    assert "each framework might take 45% of the accelerator's memory" in list(notes(made))
    for text in notes(record(right(case("jax", "vmap"), 0.1, 0.1))):
        assert "ceilings" not in text and "accelerator" not in text


def test_threads_that_a_framework_has_bound_elsewhere_are_told():
    made = on_gpu(gpu_case())
    assert not any("threads" in text for text in notes(made))
    made.environment["frameworks"]["jax"]["threads_elsewhere"] = True
    assert "JAX: some of its threads do not keep to the cores of the run" in list(notes(made))


def test_the_table_of_an_accelerator_has_two_more_columns():
    made = on_gpu(gpu_case(on_device=[5e-5]), gpu_case("torch"))
    lines = report(made).splitlines()
    (head,) = (line for line in lines if line.startswith("pass "))
    assert head.split("  ")[-1] and "device time" in head and "of the limit" in head
    rows = [line for line in lines if line.startswith("score ")]
    assert "50.0 µs" in rows[0] and "32.0%" in rows[0]
    assert "–" in rows[1] and "16.0%" in rows[1]


def test_the_verdict_tells_what_a_call_takes_of_the_device():
    made = on_gpu(gpu_case(on_device=[5e-5, 6e-5, 7e-5]), gpu_case("torch", seconds=2e-4, on_device=[6e-5]))
    price = verdicts(made)[0].price
    assert "same code: both ran the same kernels; what differs is what each framework does around it." in price
    assert (
        "on the device itself: JAX fused 60.0 µs of 100 µs; PyTorch fused 60.0 µs of 200 µs; the rest of a call is the "
        "framework's."
    ) in price
    without = verdicts(record(right(case("jax", "fused"), 0.1, 0.1)))[0].price
    assert not any("device itself" in line for line in without)
