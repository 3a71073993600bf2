"""Two recorded runs compared: what changed, whether that is decided, and what makes the runs hard to compare."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hand_made
import pytest
from hand_made import blocks, case, ended, steady

from shared.bench.cases import Settings
from shared.bench.estimates import Block
from shared.bench.record import Record, Result
from shared.bench.report.case_table import CACHES_EMPTY
from shared.bench.report.compare_runs import compare_runs

VMAP, OTHER = case("jax", "vmap"), case("torch", "wavefront", "marginals", compiled=False)


def measured(of_case: Any, *seconds: float, **others: Any) -> Result:
    """A result whose workers each take so many seconds in every round."""
    made = [Block.of(worker, number, [value]) for worker, value in enumerate(seconds) for number in range(7)]
    return replace(steady(of_case, 1.0, **others), blocks=made)


ABOUT_250_MS = measured(VMAP, 0.2499, 0.25, 0.2501)


def record(*results: Result, **others: Any) -> Record:
    return hand_made.record(*results, settings=Settings(), **others)


def row_of(old: Result, new: Result) -> dict[str, str]:
    """The only row, by column."""
    (table,) = compare_runs(record(old), record(new)).report.answer.tables
    (row,) = table.rows
    return dict(zip(table.headers, row, strict=True))


@pytest.mark.parametrize(
    ("seconds", "ratio", "outcome"),
    [
        ((0.499, 0.5, 0.501), "2.00 (1.97 … 2.03)", "slower"),
        ((0.1249, 0.125, 0.1251), "0.50 (0.49 … 0.51)", "faster"),
        ((0.2479, 0.25, 0.2521), "1.000 (0.984 … 1.016)", "same"),
        ((0.249, 0.26, 0.254), "1.017 (0.983 … 1.052)", "slower or same"),
        ((0.2, 0.26, 0.338), "1.040 (0.68 … 1.58)", "no clear change"),
        ((0.5, 0.5), "2.00 (1.97 … 2.04; 2 processes)", "slower"),
        ((5.0,), "20.0 (19.3 … 20.7; 1 process)", "slower"),
    ],
)
def test_a_case_is_slower_faster_the_same_or_unclear(seconds: tuple[float, ...], ratio: str, outcome: str):
    row = row_of(ABOUT_250_MS, measured(VMAP, *seconds))
    assert list(row.values())[:5] == ["score", "batch", "JAX", "vmap (auto)", "yes"]
    assert (row["old"], row["new / old"], row["outcome"]) == ("250 ms", ratio, outcome)


def test_the_first_call_and_memory_of_both_runs_are_shown():
    old = replace(ABOUT_250_MS, cold=[])
    row = row_of(old, measured(VMAP, 0.2499, 0.25, 0.2501, cold=2.0, peak_bytes=2**20))
    assert (row[CACHES_EMPTY], row["memory"]) == ("– → 2.00 s", "3.0 MiB → 1.0 MiB")


@pytest.mark.parametrize(("status", "mark"), [("wrong", "WRONG"), ("failed", "FAILED"), ("limit", "over the limit")])
def test_a_case_that_one_run_did_not_measure_is_marked_and_not_compared(status: str, mark: str):
    bad, good = ended(OTHER, status, "because", blocks=blocks([1e-6] * 5, 4)), measured(OTHER, 0.25)
    assert list(row_of(good, bad).values())[5:] == ["250 ms", f"{mark}: because", "–", status, "–", "–"]
    assert list(row_of(bad, good).values())[5:] == [f"{mark}: because", "250 ms", *["–"] * 4]


def test_both_runs_are_described_and_the_summary_counts():
    cases = [case("jax", variant) for variant in ("vmap", "wavefront", "fused")]
    old = [measured(each, 0.2499, 0.25, 0.2501) for each in cases]
    new = [
        measured(each, *seconds)
        for each, seconds in zip(cases, [(0.49, 0.5, 0.5), (0.25,), (0.12, 0.13, 0.125)], strict=True)
    ]
    found = compare_runs(
        record(*old, command="python compare.py --variant vmap"), record(*new, measured(OTHER, 0.25), finished=None)
    ).report
    assert found.head == [
        "old: 2026-05-04T10:00:00+00:00 to 2026-05-04T10:05:12+00:00, commit 0123456789abcdef: "
        "python compare.py --variant vmap",
        "new: 2026-05-04T10:00:00+00:00 to its interruption, commit 0123456789abcdef: python compare.py",
    ]
    assert found.diagnostics == [
        "3 cases in the old run, 4 in the new one, 3 in both: 1 slower, 1 faster, 0 same, 1 no clear change"
    ]


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (ABOUT_250_MS, 0),
        (measured(VMAP, 0.1249, 0.125, 0.1251), 0),  # faster
        (measured(VMAP, 0.2, 0.26, 0.338), 0),  # no clear change
        (measured(VMAP, 0.499, 0.5, 0.501), 1),  # slower
        (ended(VMAP, "wrong", "because"), 1),
        (ended(VMAP, "failed", "because"), 1),
        (ended(VMAP, "limit", "> 120 s"), 1),
        (measured(OTHER, 0.25, 0.25, 0.25), 1),  # the old run's case is missing
    ],
)
def test_the_exit_code_says_whether_anything_is_slower(new: Result, code: int):
    assert compare_runs(record(ABOUT_250_MS), record(new)).exit_code == code


def test_a_case_is_missing_only_if_the_new_run_was_to_measure_it():
    other = measured(OTHER, 0.25, 0.25, 0.25)
    found = compare_runs(record(ABOUT_250_MS, other), record(other))
    assert [row[-3] for row in found.report.answer.tables[0].rows] == ["same", "missing"] and found.exit_code == 1
    assert "1 in both: 0 slower, 0 faster, 1 same, 1 missing" in found.report.diagnostics[0]
    fewer = replace(record(other), settings=Settings(variants=("wavefront",)))
    assert compare_runs(record(ABOUT_250_MS, other), fewer).exit_code == 0


def test_a_case_without_times_that_became_wrong_is_worse():
    tried = Result(VMAP, details={"outcomes": {}})
    assert compare_runs(record(tried), record(ended(VMAP, "wrong", "because"))).exit_code == 1
    assert compare_runs(record(tried), record(tried)).exit_code == 2


def test_runs_without_a_common_case_have_no_table():
    assert compare_runs(Record("python compare.py", Settings()), record(ABOUT_250_MS)).report.answer.tables == []


# what is not the same


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda e: e.update(cpu="Abacus 10"), "cpu was Abacus 9, is Abacus 10"),
        (lambda e: e["frameworks"]["torch"].update(threads=2), "torch threads was 1, is 2"),
        # the code may differ, and what is measured always does
        (lambda e: e.update(git_commit="fedcba9876543210", bandwidth_bytes_per_second=2e10), None),
    ],
)
def test_different_environments_are_warned_of(change: Callable[[dict[str, Any]], Any], text: str | None):
    changed = record()
    change(changed.environment)
    assert compare_runs(record(), changed).report.warnings == ([f"the environments differ: {text}"] if text else [])


def test_different_settings_are_warned_of():
    old, new = record(), record()
    new.settings = Settings(problem="free_gap", dtype="float64")
    assert compare_runs(old, new).report.warnings == [
        "the settings differ: problem was smith_waterman, is free_gap",
        "the settings differ: dtype was float32, is float64",
    ]


def test_a_different_input_is_warned_of_and_not_compared():
    other = record(ABOUT_250_MS, inputs={"batch": hand_made.facts("four pairs", (4, 6, 7))})
    found = compare_runs(record(ABOUT_250_MS), other).report
    assert found.warnings == ["the input batch differs in text, shape, pairs, work, sha256: its cases are not compared"]
    assert found.answer.tables == []


@pytest.mark.parametrize(("seconds", "change"), [(0.006, "+20%"), (0.004, "-20%"), (0.0052, None)])
def test_a_machine_that_was_slower_or_faster_is_warned_of(seconds: float, change: str | None):
    old, new = (record(speed=[value] * 3) for value in (0.005, seconds))
    line = f"the machine itself changed: its calibration loop took {change} in the new run"
    assert compare_runs(old, new).report.warnings == ([line] if change else [])
