"""What needs a sentence below the numbers: errors, gates, how steady it was, what is not there."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import hand_made
import pytest
from hand_made import blocks, case, ended, record, right, steady
from shared.bench.notes import notes, warnings
from shared.bench.plan import Absence, Settings
from shared.bench.table import report

from shared.bench.record import Generation, Result, WarmUp

ONE_PASS = Settings(input="random", passes=("score",))
GATE = "every time above passed the parity gate on 2 of 3 pairs; worst error 25% of what is allowed"
FAR = (
    "{} samples, {} of them more than 3 interquartile ranges outside the quartiles of their case; "
    "all of them count above"
)


def lines_of(*results: Result, settings: Settings = ONE_PASS, **others: Any) -> list[str]:
    return list(notes(record(*results, settings=settings, **others)))


def with_rounds(seconds: Sequence[float], workers: int = 1, **others: Any) -> Result:
    return right(case("jax", "vmap"), *seconds, workers=workers, **others)


def test_a_quiet_run_has_two_lines():
    assert lines_of(steady(case("jax", "vmap"), 0.25)) == [
        GATE, FAR.format(20, 0)
    ]  # fmt: skip


# errors


WRONG = ended(case("jax", "vmap"), "wrong", "score off by 1.0e+00 for pair 2, allowed 1.0e-05")
FAILED = ended(case("torch", "vmap"), "failed", "ValueError: no such thing", blocks=blocks([0.25] * 5, 4))
LIMIT = ended(case("jax", "fused"), "limit", "> 120 s")


def test_it_is_told_why_a_case_was_wrong_or_failed():
    assert lines_of(WRONG, FAILED, LIMIT) == [
        "WRONG: JAX vmap score: score off by 1.0e+00 for pair 2, allowed 1.0e-05",
        "FAILED: PyTorch vmap score: ValueError: no such thing (20 samples taken before are kept in the record)",
    ]


def test_a_bad_case_counts_nowhere_else():
    times = {"build_seconds": 30.0, "warm_up": [WarmUp(60, False)], "gate": hand_made.Gate("", 9.0, "NumPy", 1)}
    bad = replace(FAILED, blocks=blocks([1.0, 1.0, 1.0, 9.0, 9.0, 9.0]), **times)
    assert lines_of(bad, right(case("jax", "vmap"), 0.25))[1:] == lines_of(right(case("jax", "vmap"), 0.25))


# gates


def test_it_is_told_what_was_gated_and_how_well():
    results = [right(case("jax", "vmap"), 1.0, error=0.02), right(case("torch", "vmap"), 1.0, error=0.31)]
    assert lines_of(*results)[0] == (
        "every time above passed the parity gate on 2 of 3 pairs; worst error 31% of what is allowed"
    )


def test_the_gates_of_several_inputs_are_told_together():
    inputs = {"6x7": hand_made.facts("small"), "8x9": hand_made.facts("large", (16, 8, 9))}
    results = [right(case("jax", "vmap", input=name), 1.0) for name in inputs]
    assert "on 2 of 3 and 2 of 16 pairs" in lines_of(*results, inputs=inputs)[0]


def test_a_gate_that_was_numpy_s_needs_no_word():
    assert not any("too large" in line for line in lines_of(right(case("jax", "vmap"), 1.0)))


def test_a_gate_that_was_not_numpy_s_is_told():
    source = "float64 vmap, itself gated by NumPy on cut pairs"
    lines = lines_of(right(case("jax", "vmap"), 1.0, source=source), right(case("torch", "vmap"), 1.0, source=source))
    assert lines[0] == f"pairs too large for the NumPy reference were gated by {source}"
    assert sum(source in line for line in lines) == 1


@pytest.mark.parametrize(("seconds", "told"), [(0.0, False), (0.9, False), (21.5, True)])
def test_what_was_built_for_the_machine_is_told_if_it_took_long(seconds: float, told: bool):
    line = "fused: its kernels were compiled first: 21.5 s, not counted above"
    assert (line in lines_of(steady(case("jax", "fused"), 0.25, build_seconds=seconds))) is told


# how steady it was


def test_outliers_are_counted_over_all_cases():
    far = with_rounds([1.0, 1.1, 1.2, 1.3, 9.0])
    slow = right(case("torch", "vmap"), 10.0, 10.1, 10.2, 10.3, 0.1)  # each among the samples of its own case
    assert FAR.format(10, 2) in lines_of(far, slow)


@pytest.mark.parametrize(
    ("seconds", "line"),
    [
        ([1.0, 1.0, 1.0, 1.1, 1.1, 1.1], "drift: JAX vmap score: +10%, the last third of its rounds against the first"),
        ([1.0, 1.0, 1.0, 0.5, 0.5, 0.5], "drift: JAX vmap score: -50%, the last third of its rounds against the first"),
        ([1.0, 1.0, 1.0, 1.04, 1.04, 1.04], None),
        ([1.0, 9.0], None),  # too few rounds
    ],
)
def test_a_drift_is_told_in_either_direction(seconds: list[float], line: str | None):
    found = [text for text in lines_of(with_rounds(seconds)) if text.startswith("drift: ")]
    assert found == ([line] if line else [])


def test_times_that_had_not_settled_are_told_with_their_cases():
    restless = [WarmUp(6, True), WarmUp(60, False)]
    results = [
        right(case("jax", "vmap"), 0.25, warm_up=restless),
        right(case("torch", "vmap"), 0.25, warm_up=[WarmUp(6, True)] * 2),
        right(case("torch", "fused"), 0.25, warm_up=restless[::-1]),
    ]
    assert lines_of(*results)[-1] == (
        "times had not settled when the warm-up ended, in one worker at least: JAX vmap score, PyTorch fused score"
    )


def test_warm_ups_that_were_too_short_to_tell_are_told():
    results = [right(case("jax", "vmap"), 9.0, warm_up=[WarmUp(1, None)]), right(case("torch", "vmap"), 0.1)]
    assert lines_of(*results)[-1] == ("too slow for a warm-up that shows whether times have settled: JAX vmap score")


def test_the_machine_itself_is_told():
    assert lines_of(speed=blocks([0.004, 0.004, 0.006, 0.004, 0.01])) == [
        "the machine itself: the same plain Python work took 4.00 ms in the median round, quartiles "
        "4.00 ms … 6.00 ms, 2.50 times that in the slowest"
    ]


@pytest.mark.parametrize("seconds", [[], [0.004]])
def test_one_look_at_the_machine_says_nothing_of_how_steady_it_was(seconds: list[float]):
    assert lines_of(speed=blocks(seconds)) == []


def test_a_ladder_of_single_calls_says_nothing_of_how_steady_it_was():
    result = right(case("jax", "vmap"), *[1.0] * 3, *[2.0] * 3, warm_up=[WarmUp(1, False)])
    assert lines_of(result, settings=replace(ONE_PASS, ladder=True), speed=blocks([0.004, 0.005])) == [GATE]


# what is not there


def test_a_new_shape_that_was_not_measured_is_told_once_for_each_reason():
    dear, native = "the budget of 60 s had no room for it", "RuntimeError: no"
    results = [
        right(case(framework, variant), 0.25, retrace_note=note)
        for framework, variant, note in (
            ("jax", "vmap", dear), ("torch", "vmap", dear), ("torch", "fused", native), ("jax", "fused", None),
        )
    ]  # fmt: skip
    assert [line for line in lines_of(*results) if "new shape" in line] == [
        f"new shape not measured: JAX vmap score, PyTorch vmap score: {dear}",
        f"new shape not measured: PyTorch fused score: {native}",
    ]


def test_it_is_told_what_is_absent_and_missing():
    absent = [Absence("jax", "JAX scan_cond score", "it cannot")]
    missing = {"torch": "PyTorch is not installed (No module named 'torch')"}
    assert lines_of(right(case("jax", "vmap"), 1.0), absent=absent, missing=missing)[-2:] == [
        "absent: JAX scan_cond score: it cannot",
        "PyTorch was not measured: PyTorch is not installed (No module named 'torch')",
    ]


def test_the_record_s_own_notes_are_told():
    assert lines_of(notes=["the budget of 60 s was spent"]) == ["the budget of 60 s was spent"]


def test_an_unfinished_run_is_told():
    assert lines_of(finished=None) == ["this run was not finished"]


def test_of_a_run_that_never_began_there_is_nothing_to_tell():
    assert list(notes(hand_made.Record("python compare.py"))) == []


def test_other_programs_are_told_and_if_they_took_much_there_is_a_warning():
    quiet, busy = ([Generation(0, 20.0, others)] for others in (0.4, 19.0))
    line = "other programs kept {} of 1 cores busy while calls were timed"
    one_core = replace(ONE_PASS, threads=1)
    assert line.format("0.02") in lines_of(steady(case("jax", "vmap"), 0.25), settings=one_core, generations=quiet)
    assert line.format("0.95") in lines_of(steady(case("jax", "vmap"), 0.25), settings=one_core, generations=busy)
    made = [record(steady(case("jax", "vmap"), 0.25), settings=one_core, generations=each) for each in (quiet, busy)]
    assert not list(warnings(made[0]))
    (warning,) = warnings(made[1])
    assert warning.startswith("Other programs kept 0.95 of 1 cores busy while calls were timed.")
    assert f"WARNING: {warning}" in report(made[1]) and "WARNING" not in report(made[0])
