"""Lines below the numbers (errors, gates, steadiness, what is missing), and warnings above the answer."""

from typing import Any

import hand_made
import pytest
from hand_made import blocks, case, ended, record, right, steady

from shared.bench.analysis.diagnostics import diagnostics, warnings
from shared.bench.cases import Absence, Settings
from shared.bench.record import Gate, Generation, Result

ONE_PASS = Settings(input="random", passes=("score",))
GATE = "every time passed the parity gate on 2 of 3 pairs; worst error 25% of what is allowed"
SAMPLES = "{} samples, of which none is dropped"
QUIET = [GATE, SAMPLES.format(20)]
STEADY = steady(case("jax", "vmap"), 0.25)
WRONG = ended(case("jax", "wavefront"), "wrong", "score off by 1.0e+00 for pair 2, allowed 1.0e-05")
FAILED = ended(case("torch", "vmap"), "failed", "ValueError: no such thing", blocks=blocks([1.0] * 3 + [9.0] * 3),
               build_seconds=30.0, settled=[False], gate=Gate("", 9.0, "NumPy", 1))  # fmt: skip


def lines_of(*results: Result, settings: Settings = ONE_PASS, **others: Any) -> list[str]:
    return list(diagnostics(record(*results, settings=settings, **others)))


def test_a_quiet_run_has_two_lines():
    assert lines_of(STEADY) == QUIET


def test_why_a_case_was_wrong_or_failed_is_told_and_it_counts_nowhere_else():
    limit = ended(case("jax", "fused"), "limit", "> 120 s")
    assert lines_of(WRONG, FAILED, limit, STEADY) == [
        f"WRONG: JAX wavefront score: {WRONG.reason}",
        "FAILED: PyTorch vmap score: ValueError: no such thing (the blocks of 6 calls timed before are kept in the "
        "record)",
        *QUIET,
    ]


def test_gates_tell_their_source_the_pairs_they_covered_and_the_worst_error():
    inputs = {"6x7": hand_made.facts("small"), "8x9": hand_made.facts("large", (16, 8, 9))}
    source = "float64 vmap, itself gated by NumPy on cut pairs"
    results = [right(case("jax", "vmap", input=name), 1.0, source=source, error=0.31) for name in inputs]
    results[0].gate = Gate("", 0.02, "NumPy", 2, "it found 9 of 10 letters")
    assert lines_of(*results, inputs=inputs)[:3] == [
        f"pairs too large for the NumPy reference were gated by {source}",
        "JAX vmap score, 6x7: it found 9 of 10 letters",
        "every time passed the parity gate on 2 of 3 and 2 of 16 pairs; worst error 31% of what is allowed",
    ]


@pytest.mark.parametrize(("last", "change"), [(1.1, "+10%"), (0.5, "-50%"), (1.04, None)])
def test_a_drift_is_told_in_either_direction(last: float, change: str | None):
    found = [line for line in lines_of(right(case("jax", "vmap"), *[1.0] * 3, *[last] * 3)) if "drift" in line]
    line = f"drift, the last third of the rounds against the first: JAX vmap score {change}"
    assert found == ([line] if change else [])


def test_warm_ups_that_did_not_settle_are_told():
    results = [
        right(case("jax", "vmap"), 0.25, 0.25, settled=[True, False]),
        right(case("torch", "vmap"), 0.25, 0.25, settled=[True, None]),
    ]
    line = "times had not settled when the warm-up ended, in at least one worker: JAX vmap score"
    assert lines_of(*results)[-1] == line


def test_the_speed_of_the_machine_itself_is_told():
    assert lines_of(speed=[0.004, 0.004, 0.006, 0.004, 0.01]) == [
        "calibration loop: median 4.00 ms, quartiles 4.00 … 6.00 ms, slowest 10.0 ms"
    ]


def test_a_ladder_of_single_calls_has_no_lines_on_steadiness():
    result = right(case("jax", "vmap"), 1.0, settled=[False])
    assert lines_of(result, settings=Settings("ladder", passes=("score",))) == [GATE]


def test_a_new_shape_that_was_not_measured_is_told_once_for_each_reason():
    budget, native = "the budget of 60 s had no room for it", "RuntimeError: no"
    results = [
        right(case(framework, "vmap", pass_name), 0.25, new_shapes_note=note)
        for framework, pass_name, note in (
            ("jax", "score", budget), ("torch", "score", native), ("jax", "hvp", budget), ("torch", "hvp", None)
        )
    ]  # fmt: skip
    assert [line for line in lines_of(*results) if "new shape" in line] == [
        f"new shape not measured: JAX vmap score; JAX vmap hvp: {budget}",
        f"new shape not measured: PyTorch vmap score: {native}",
    ]


def test_notes_and_what_is_absent_are_told_at_the_end():
    absent = [Absence("jax", "JAX scan_cond score", "it cannot")]
    missing = {"torch": "PyTorch is not installed (No module named 'torch')"}
    assert lines_of(STEADY, notes=["the budget was spent"], absent=absent, missing=missing) == [
        *QUIET,
        "the budget was spent",
        "absent: JAX scan_cond score: it cannot",
        "PyTorch was not measured: PyTorch is not installed (No module named 'torch')",
    ]


@pytest.mark.parametrize(("busy", "warned"), [(0.4, False), (19.0, True)])
def test_other_programs_that_took_much_are_warned_of(busy: float, warned: bool):
    made = record(STEADY, settings=ONE_PASS, generations=[Generation(0, 20.0, busy)])
    assert [line.startswith("Other programs kept 0.95 of 1 cores busy") for line in warnings(made)] == [True] * warned


def test_an_unfinished_run_and_bad_cases_are_warned_of():
    assert list(warnings(record(WRONG, WRONG, FAILED, finished=None))) == [
        "This run was not finished. It shows what was measured until it ended.",
        "2 cases gave a wrong result. The diagnostics have the reason.",
        "1 case failed. The diagnostics have the reason.",
    ]
