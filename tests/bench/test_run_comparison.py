"""Two recorded runs compared: what changed, whether that is decided, and what makes the runs hard to compare."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hand_made
import pytest
from hand_made import blocks, case, ended, right, steady

from shared.bench.analysis.compare_runs import compare_runs
from shared.bench.analysis.estimates import Block
from shared.bench.cases import Settings
from shared.bench.record import Compilation, Record, Result

VMAP, OTHER = case("jax", "vmap"), case("torch", "wavefront", "marginals", compiled=False)
STEADY = steady(VMAP, 0.25)
OLD, NEW, RATIO, INTERVAL, WORD, FIRST, MEMORY = range(4, 11)  # columns, after the four of names


def record(*results: Result, **others: Any) -> Record:
    return hand_made.record(*results, settings=Settings(), **others)


def lines_of(old: Record, new: Record) -> list[str]:
    return compare_runs(old, new).splitlines()


def rows_of(old: Record, new: Record) -> list[list[str]]:
    """The cells of the table, empty ones too: cut where the line below the head is."""
    lines = lines_of(old, new)
    ruler = next(number for number, line in enumerate(lines) if line.startswith("---"))
    columns = [match.span() for match in re.finditer("-+", lines[ruler])]
    table = lines[ruler + 1 : lines.index("", ruler)]
    return [[line[start:end].strip() for start, end in columns] for line in table]


def row_of(old: Result, new: Result) -> list[str]:
    (row,) = rows_of(record(old), record(new))
    return row


def warnings(old: Record, new: Record) -> list[str]:
    return [line.removeprefix("WARNING: ") for line in lines_of(old, new) if line.startswith("WARNING: ")]


# a case


@pytest.mark.parametrize(
    ("seconds", "ratio", "word"),
    [
        ((0.499, 0.5, 0.501), "2.00", "slower"),
        ((0.1249, 0.125, 0.1251), "0.50", "faster"),
        ((0.248, 0.25, 0.253), "1.00", "same"),
        ((0.2, 0.26, 0.338), "1.04", "not decided"),
        ((0.5,), "2.00", "one worker"),
    ],
)
def test_a_case_is_slower_faster_the_same_or_not_decided(seconds: tuple[float, ...], ratio: str, word: str):
    old, new = (
        replace(STEADY, blocks=[Block(worker, 0, (value,)) for worker, value in enumerate(values)])
        for values in ((0.2499, 0.25, 0.2501), seconds)
    )
    row = row_of(old, new)
    assert row[:4] == ["batch", "score", "JAX", "vmap"]
    assert (row[OLD], row[RATIO], row[WORD]) == ("250 ms", ratio, word)
    assert (row[INTERVAL] == "–") is (word == "one worker")


def test_the_first_call_and_memory_are_told_where_they_changed_by_much_and_both_runs_know_them():
    old = steady(VMAP, 0.25, cold=1.0, peak_bytes=10 * 2**20)
    told = [
        row_of(old, new)[FIRST:]
        for new in (
            steady(VMAP, 0.25, cold=1.19, peak_bytes=9 * 2**20),
            steady(VMAP, 0.25, cold=2.0, peak_bytes=2**20),
            replace(old, cold=None, peak_bytes=None),
        )
    ]
    assert told == [["within 20%", "within 20%"], ["1.00 s → 2.00 s", "10.0 MiB → 1.0 MiB"], ["", ""]]


@pytest.mark.parametrize("status", ["wrong", "failed", "limit"])
def test_a_case_that_one_run_did_not_measure_is_marked_and_not_compared(status: str):
    bad = ended(OTHER, status, "because", blocks=blocks([1e-6] * 5, 4), cold=Compilation(1e-3))
    good, name = steady(OTHER, 0.25), "wavefront (not compiled)"
    assert row_of(good, bad)[3:] == [name, "250 ms", status.upper(), *[""] * 5]
    assert row_of(bad, good)[3:] == [name, status.upper(), "250 ms", *[""] * 5]
    assert row_of(good, Result(OTHER))[3:] == [name, "250 ms", "–", *[""] * 5]


# the whole


def test_both_runs_are_described_and_the_summary_counts():
    variants = ("vmap", "wavefront", "fused", "scan_select")
    old = [steady(case("jax", variant), 0.25) for variant in variants]
    new = [steady(result.case, seconds) for result, seconds in zip(old, (0.5, 0.25, 0.125, 0.125), strict=True)]
    again = right(OTHER, 0.25)
    lines = lines_of(
        record(*old, again, command="python compare.py --variant vmap", speed=blocks([0.004] * 3)),
        record(*new, again, finished=None, speed=blocks([0.0041] * 3)),
    )
    assert lines[:2] == [
        "old: 2026-05-04T10:00:00+00:00, commit 0123456789abcdef: python compare.py --variant vmap",
        "new: 2026-05-04T10:00:00+00:00, commit 0123456789abcdef: python compare.py, not finished",
    ]
    assert lines[-2:] == [
        "5 cases measured in both: 1 slower, 2 faster, 1 with no difference, 1 not decided",
        "the calibration loop took +2.5% in the new run, which the intervals do not cover",
    ]


def test_cases_that_only_one_run_has_are_named():
    lines = lines_of(record(STEADY), record(steady(OTHER, 0.25), steady(replace(VMAP, dtype="float64"), 0.25)))
    assert "no case is in both runs" in lines
    assert lines[-2:] == [
        "only in the old run: JAX vmap score",
        "only in the new run: PyTorch wavefront marginals, not compiled, JAX vmap score",
    ]
    assert "no case is in both runs" in lines_of(Record("python compare.py"), record(STEADY))


# what is not the same


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda e: e.update(cpu="Abacus 10"), "cpu was Abacus 9, is Abacus 10"),
        (lambda e: e.update(weather="fine"), "weather was None, is fine"),
        (lambda e: e["frameworks"]["jax"].update(jax="1.3"), "jax was 1.2.3, is 1.3"),
        (lambda e: e["frameworks"]["torch"].update(threads=2), "torch threads was 1, is 2"),
        # the code may differ, and what is measured always does
        (lambda e: e.update(git_commit="fedcba9876543210", bandwidth_bytes_per_second=2e10), None),
        (lambda e: e["frameworks"]["jax"].update(compiler_start_seconds=0.5), None),
    ],
)
def test_different_environments_are_warned_of(change: Callable[[dict[str, Any]], Any], text: str | None):
    changed = record(STEADY)
    change(changed.environment)
    assert warnings(record(STEADY), changed) == ([f"the environments differ: {text}"] if text else [])


def test_different_settings_are_warned_of():
    old, new = record(STEADY), record(STEADY)
    assert old.settings is not None
    new.settings = replace(old.settings, problem="free_gap", dtype="float64")
    new.inputs = {name: replace(given, parameters={"gap": -2.0}) for name, given in new.inputs.items()}
    assert warnings(old, new)[:3] == [
        "the problem differs: smith_waterman in the old run, free_gap in the new one",
        "the dtype differs: float32 in the old run, float64 in the new one",
        "gap differs: -1.0 in the old run, -2.0 in the new one",
    ]


def test_a_different_input_is_warned_of_and_not_compared():
    other = record(STEADY, inputs={"batch": hand_made.facts("four pairs", (4, 6, 7))})
    assert warnings(record(STEADY), other) == ["the input batch is not the same: its cases are not compared"]
    assert "no case is in both runs" in lines_of(record(STEADY), other)


@pytest.mark.parametrize(("seconds", "change"), [(0.006, "20% slower"), (0.004, "20% faster"), (0.0052, None)])
def test_a_machine_that_was_slower_or_faster_is_warned_of(seconds: float, change: str | None):
    old, new = (record(STEADY, speed=blocks([value] * 3)) for value in (0.005, seconds))
    line = f"the machine itself was {change} in the new run, by the calibration loop"
    assert warnings(old, new) == ([line] if change else [])
