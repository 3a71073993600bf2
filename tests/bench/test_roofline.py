"""The roofline: the limit of a case, the share of it that was reached, and how both are reported."""

from typing import Any

import pytest
from hand_made import WORK, case, record, right

from shared.bench.analysis.roofline import BANDWIDTH, EXPONENTIALS, rate_limit, share_of_limit
from shared.bench.cases import Settings
from shared.bench.estimates import Block
from shared.bench.record import Record, Result
from shared.bench.report.case_table import case_tables
from shared.bench.units import NOTHING
from shared.kernels.triton.hardware_limit import SPECIAL_FUNCTIONS

# 4 bytes in for a cell, 4 out: a score at 1e12 bytes and 1e12 exponentials per second
BYTES: dict[str, Any] = {"input_bytes": 4 * WORK, "output_bytes": 4 * WORK}


def on_gpu(*results: Result, bandwidth: float | None = 1e12, exponentials: float | None = 1e12) -> Record:
    made = record(*results, settings=Settings(device="cuda", input="random"))
    made.environment |= {BANDWIDTH: bandwidth, EXPONENTIALS: exponentials}
    return made


def gpu_case(seconds: float = 1e-4, problem: str = "smith_waterman", dtype: str = "float32", **others: Any) -> Result:
    made = case("jax", "fused", device="cuda", problem=problem, dtype=dtype)
    return right(made, seconds, seconds, **(BYTES | others))


def test_the_limit_is_the_lower_one_of_memory_and_exponentials():
    result = gpu_case()
    needed = SPECIAL_FUNCTIONS["score"]
    assert rate_limit(on_gpu(result, exponentials=None), result) == pytest.approx(1e12 / 8)
    assert rate_limit(on_gpu(result, bandwidth=1e15), result) == pytest.approx(1e12 / needed)
    assert rate_limit(on_gpu(result), result) == pytest.approx(min(1e12 / 8, 1e12 / needed))
    assert rate_limit(on_gpu(result, bandwidth=None, exponentials=None), result) is None
    # what nobody has counted, and float64, which the special function unit does not compute
    for result in (gpu_case(problem="stencil"), gpu_case(dtype="float64")):
        assert rate_limit(on_gpu(result, exponentials=1.0), result) == pytest.approx(1e12 / 8)


def test_the_share_is_by_the_time_on_the_device_where_that_is_known():
    seconds = WORK / (0.5 * 1e12 / 8)  # half of what the memory allows
    known = gpu_case(seconds=10 * seconds, on_device=[Block.of(0, 0, [0.9 * seconds, seconds, 5.0])])
    unknown = gpu_case(seconds=10 * seconds)
    assert share_of_limit(on_gpu(known), known) == pytest.approx(0.5)
    assert share_of_limit(on_gpu(unknown), unknown) == pytest.approx(0.05)


def test_the_table_of_all_cases_has_device_times_and_shares():
    table = case_tables(on_gpu(gpu_case(on_device=[Block.of(0, 0, [5e-5])]), gpu_case()))[0]
    known, unknown = (dict(zip(table.headers, row, strict=True)) for row in table.rows)
    assert (known["device time"], known["of the limit"]) == ("50.0 µs", "32.00%")
    assert (unknown["device time"], unknown["of the limit"]) == (NOTHING, "16.00%")
