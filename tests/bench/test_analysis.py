"""The stage `analysis`: intervals that cover what they promise, hardware limits, diagnostics, numbers."""

import math
from typing import Any

import hand_made
import numpy as np
import pytest
from hand_made import WORK, blocks, case, ended, record, right, steady
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.bench.analysis.diagnostics import diagnostics, warnings
from shared.bench.analysis.roofline import BANDWIDTH, EXPONENTIALS, rate_limit, share_of_limit
from shared.bench.cases import Absence, Settings
from shared.bench.estimates import Block, Estimate, break_even, drift, median_time, time_ratio, unpaired_ratio
from shared.bench.record import Gate, Record, Repeat, Result
from shared.bench.units import bytes_text, duration, figures, interval_text, minutes_text, ratio_text, rough_text
from shared.kernels.triton.hardware_limit import SPECIAL_FUNCTIONS

ONE_PASS = Settings(input="random", passes=("score",))
ROUNDS = 20


def noisy(generator: np.random.Generator, ratio: float, processes: int) -> tuple[list[Block], list[Block]]:
    """Blocks of two cases, with the noise of recorded runs: processes differ by 2 %, one in 20 by 30 %."""
    odd = (generator.random(processes) < 0.05) * generator.normal(0, 0.3, processes)
    scatter = generator.normal(0, 0.02, processes) + odd
    ratios = np.exp(math.log(ratio) + scatter[:, None] + 0.06 * generator.standard_t(2.5, (processes, ROUNDS)))
    first = [Block.of(worker, at, [float(ratios[worker, at])]) for worker, at in np.ndindex(processes, ROUNDS)]
    return first, [block._replace(median=1.0) for block in first]


@pytest.mark.parametrize("processes", [1, 3, *(pytest.param(count, marks=pytest.mark.slow) for count in (2, 8))])
def test_intervals_cover_what_is_true_and_large_differences_are_found(processes: int):
    generator = np.random.default_rng(processes)
    same = [time_ratio(*noisy(generator, 1.0, processes)) for _ in range(400)]
    # 95 %, and three standard errors of so many comparisons
    assert sum(ratio.low <= 1 <= ratio.high for ratio in same) >= 0.917 * len(same)
    faster = [time_ratio(*noisy(generator, 1.3, processes)) for _ in range(200)]
    assert sum(ratio.low > 1 for ratio in faster) >= (0.77 if processes < 3 else 0.93) * len(faster)


def test_a_quotient_of_two_runs_has_few_false_positives_and_finds_large_differences():
    generator = np.random.default_rng(3)

    def quotients(ratio: float) -> list[Estimate]:
        return [unpaired_ratio(noisy(generator, ratio, 5)[0], noisy(generator, 1.0, 5)[0]) for _ in range(100)]

    assert sum(ratio.low <= 1 <= ratio.high for ratio in quotients(1.0)) >= 90
    assert sum(ratio.low > 1 for ratio in quotients(1.3)) >= 95


def test_a_drift_that_both_share_cancels_in_the_ratio():
    # the machine gets slower from round to round, in every worker
    slower, faster = (
        [Block.of(w, r, [seconds * (1 + r + w)]) for w in range(4) for r in range(5)] for seconds in (2, 1)
    )
    assert time_ratio(slower, faster).value == pytest.approx(2.0)
    assert time_ratio(slower, faster).relative_half_width < 0.02
    assert median_time(slower).relative_half_width > 0.2
    assert drift(blocks([1.0, 1.0, 5.0, 5.0, 1.5, 1.5])) == pytest.approx(0.5)  # the last third over the first
    assert drift(blocks([1.0, 2.0, 3.0, 4.0, 5.0])) is None  # too few rounds


def test_only_rounds_that_both_were_in_make_the_ratio_unless_there_are_none():
    both, more = (
        [Block.of(worker, round_, [seconds]) for worker in range(3)] for round_, seconds in ((0, 0.5), (1, 64.0))
    )
    faster = blocks([0.25], workers=3)
    assert time_ratio([*both, *more], faster) == time_ratio(both, faster)
    assert time_ratio(both, faster).value == 2.0
    assert time_ratio(more, faster) == unpaired_ratio(more, faster)
    assert time_ratio(more, faster).value == pytest.approx(256.0)


def test_one_odd_process_of_five_does_not_decide():
    slower = [Block.of(w, r, [math.exp(x)]) for w, x in enumerate((0.3, 0.31, 0.29, 0.3, -0.5)) for r in range(20)]
    assert time_ratio(slower, blocks([1.0] * 20, workers=5)).low > 1.1


def test_a_few_rounds_of_one_process_are_no_interval():
    assert not median_time(blocks([0.5] * 6)).has_interval
    assert median_time(blocks([0.5] * 7)).has_interval
    assert median_time(blocks([0.5], workers=2)).has_interval
    assert not unpaired_ratio(blocks([0.5] * 7), blocks([0.5])).has_interval


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.01, 1.04, "different"),  # goes beyond 3 %
        (1.01, 1.02, "same"),  # a difference, but one within 3 %
        (0.98, 1.02, "same"),
        (0.98, 1.05, "one-sided"),
        (0.9, 1.0, "one-sided"),
        (0.95, 1.05, "open"),
    ],
)
def test_a_ratio_is_different_the_same_one_sided_or_open(low: float, high: float, outcome: str):
    ratio = Estimate((low + high) / 2, low, high)
    assert ratio.outcome == ratio.inverse.outcome == outcome
    assert ratio.most == ratio.inverse.most >= 1


SECONDS = st.integers(1, 200)  # whole, so that sums are exact


@settings(max_examples=100, deadline=None, derandomize=True)
@given(fast=SECONDS, slow=SECONDS, call=st.integers(1, 20), more=st.integers(1, 20))
@example(fast=12, slow=2, call=1, more=1)  # equal at call 11, so 12 is the first that takes less
def test_break_even_is_the_first_number_of_calls_that_takes_less_time(fast: int, slow: int, call: int, more: int):
    less = (n for n in range(1, 400) if fast + (n - 1) * call < slow + (n - 1) * (call + more))
    assert break_even(fast, call, slow, call + more) == (1 if fast == slow else next(less))


def on_gpu(*results: Result, bandwidth: float | None = 1e12, exponentials: float | None = 1e12) -> Record:
    made = record(*results, settings=Settings(device="cuda", input="random"))
    made.environment |= {BANDWIDTH: bandwidth, EXPONENTIALS: exponentials}
    return made


def gpu_case(seconds: float = 1e-4, problem: str = "smith_waterman", dtype: str = "float32", **others: Any) -> Result:
    """Four bytes in for a cell, four out: a score at 1e12 bytes and 1e12 exponentials per second."""
    made = case("jax", "fused", device="cuda", problem=problem, dtype=dtype)
    return right(made, seconds, seconds, input_bytes=4 * WORK, output_bytes=4 * WORK, **others)


def test_the_limit_is_the_lower_one_of_memory_and_exponentials():
    result = gpu_case()
    needed = SPECIAL_FUNCTIONS["score"]
    assert rate_limit(on_gpu(result, exponentials=None), result) == pytest.approx(1e12 / 8)
    assert rate_limit(on_gpu(result, bandwidth=1e15), result) == pytest.approx(1e12 / needed)
    assert rate_limit(on_gpu(result, bandwidth=None, exponentials=None), result) is None
    # what nobody has counted, and float64, which the special function unit does not compute
    for result in (gpu_case(problem="stencil"), gpu_case(dtype="float64")):
        assert rate_limit(on_gpu(result, exponentials=1.0), result) == pytest.approx(1e12 / 8)


def test_the_share_is_by_the_time_on_the_device_where_that_is_known():
    seconds = WORK / (0.5 * 1e12 / 8)  # half of what the memory allows
    on_device = gpu_case(seconds=10 * seconds, on_device=[Block.of(0, 0, [0.9 * seconds, seconds, 5.0])])
    unknown = gpu_case(seconds=10 * seconds)
    assert share_of_limit(on_gpu(on_device), on_device) == pytest.approx(0.5)
    assert share_of_limit(on_gpu(unknown), unknown) == pytest.approx(0.05)


GATE = "all timed results passed the parity gate on 2 of 3 pairs; worst error 25% of what is allowed"
STEADY = steady(case("jax", "vmap"), 0.25)
WRONG = ended(case("jax", "wavefront"), "wrong", "score off by 1.0e+00 for pair 2, allowed 1.0e-05")
FAILED = ended(case("torch", "vmap"), "failed", "ValueError: no such thing", blocks=blocks([1.0] * 3 + [9.0] * 3),
               build_seconds=30.0, settled=[False], gate=Gate("", 9.0, "NumPy", 1))  # fmt: skip


def lines_of(*results: Result, settings: Settings = ONE_PASS, **others: Any) -> list[str]:
    return list(diagnostics(record(*results, settings=settings, **others)))


def test_a_quiet_run_has_two_lines_and_its_reasons_notes_and_absences():
    quiet = [GATE, "20 samples, of which none is dropped"]
    limit = ended(case("jax", "fused"), "limit", "> 120 s")
    absent = [Absence("jax", "JAX scan_cond score", "it cannot")]
    missing = {"torch": "PyTorch cannot be imported: No module named 'torch'"}
    assert lines_of(STEADY) == quiet
    assert lines_of(WRONG, FAILED, limit, STEADY, notes=["a note"], absent=absent, missing=missing) == [
        f"WRONG: JAX wavefront score: {WRONG.reason}",
        "FAILED: PyTorch vmap score: ValueError: no such thing (the blocks of 6 calls timed before are kept in the "
        "record)",
        *quiet,
        "a note",
        "absent: JAX scan_cond score: it cannot",
        "PyTorch was not measured: PyTorch cannot be imported: No module named 'torch'",
    ]


def test_gates_tell_their_source_the_pairs_they_covered_and_the_worst_error():
    inputs = {"6x7": hand_made.facts("small"), "8x9": hand_made.facts("large", (16, 8, 9))}
    source = "float64 vmap, itself gated by NumPy on cut pairs"
    results = [right(case("jax", "vmap", input=name), 1.0, source=source, error=0.31) for name in inputs]
    results[0].gate = Gate("", 0.02, "NumPy", 2, "it found 9 of 10 letters")
    assert lines_of(*results, inputs=inputs)[:3] == [
        f"pairs too large for the NumPy reference were gated by {source}",
        "JAX vmap score, 6x7: it found 9 of 10 letters",
        "all timed results passed the parity gate on 2 of 3 and 2 of 16 pairs; worst error 31% of what is allowed",
    ]


def test_drift_unsettled_warm_ups_the_calibration_and_missing_new_shapes_are_told():
    note = "the budget of 60 s had no room for it"
    results = [
        right(case("jax", "vmap"), *[1.0] * 3, *[1.1] * 3, settled=[True, False], new_shapes_note=note),
        right(case("torch", "vmap"), *[1.0] * 3, *[0.5] * 3, settled=[True, None], new_shapes_note=note),
        right(case("jax", "fused"), *[1.0] * 3, *[1.04] * 3),
    ]
    assert lines_of(*results, calibration_seconds=[0.004, 0.004, 0.006, 0.004, 0.01])[2:] == [
        "drift, the last third of the rounds against the first: JAX vmap score +10%; PyTorch vmap score -50%",
        "times had not settled when the warm-up ended, in at least one worker: JAX vmap score",
        "calibration loop: median 4.00 ms, quartiles 4.00 … 6.00 ms, slowest 10.0 ms",
        f"new shape not measured: JAX vmap score; PyTorch vmap score: {note}",
    ]
    ladder = Settings("ladder", passes=("score",))  # of single calls: nothing on steadiness
    assert lines_of(right(case("jax", "vmap"), 1.0, settled=[False]), settings=ladder) == [GATE]


@pytest.mark.parametrize(("busy", "warned"), [(0.4, False), (19.0, True)])
def test_other_programs_that_took_much_are_warned_of(busy: float, warned: bool):
    made = record(STEADY, settings=ONE_PASS, repeats=[Repeat(0, 20.0, busy)])
    assert [
        line.startswith("Other programs, or virtual machines, kept 0.95 of 1 cores busy") for line in warnings(made)
    ] == [True] * warned


def test_an_unfinished_run_and_bad_cases_are_warned_of():
    starts = ["This run was not finished.", "2 cases gave a wrong result.", "1 case failed."]
    lines = list(warnings(record(WRONG, WRONG, FAILED, finished=None)))
    assert len(lines) == 3 and all(map(str.startswith, lines, starts))


@pytest.mark.parametrize(
    ("text", "form", "values"),
    [
        (duration, "250 ns, 423 ps, 42.3 µs, 12.3 s, 1234 s, –", (2.5e-7, 4.23e-10, 42.31e-6, 12.34, 1234.0, None)),
        (duration, "10.0 µs, 1.00 ms, 1.00 s", (9.996e-6, 0.9996e-3, 0.9996)),  # just below a round one
        (figures, "9.99, 10.0, 100, 1e+05", (9.994, 9.996, 99.96, 123456.0)),
        (rough_text, "1, 7.3, 10, 1200", (1.04, 7.26, 9.96, 1234.0)),
        (bytes_text, "–, 480 B, 2 KiB, 3.0 MiB, 2.50 GiB", (None, 480, 2048, 3 * 2**20, 5 * 2**29)),
        (ratio_text, "0.25, 0.996, 1.000, 1.004, 11.1", (0.25, 0.996, 1.0, 1.004, 11.11)),
        (minutes_text, "0:00, 1:01, 60:00", (0.9, 61.5, 3600.0)),
        (interval_text, "500 … 700 ms; 2 processes", (Estimate(2.0, 0.5, 0.7, 2),)),
    ],
)
def test_numbers_have_few_figures_and_a_fitting_unit(text: Any, form: str, values: tuple[Any, ...]):
    assert ", ".join(text(value).replace(",", "") for value in values) == form
