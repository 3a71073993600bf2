"""What changed between two recorded runs, how sure that is, and what makes them hard to compare."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hand_made
import pytest
from hand_made import blocks, case, ended, right, steady
from shared.bench.changes import changes
from shared.bench.machine import different_environments
from shared.bench.plan import Settings
from shared.bench.statistics import Block

from shared.bench.record import Compilation, Record, Result

VMAP, OTHER = case("jax", "vmap"), case("torch", "wavefront", "marginals", compiled=False)
OLD, NEW, RATIO, INTERVAL, WORD, FIRST, MEMORY = range(4, 11)  # columns, after the four of names


def record(*results: Result, **others: Any) -> Record:
    return hand_made.record(*results, settings=Settings(), **others)


def rows_of(old: Record, new: Record) -> list[list[str]]:
    """The cells of the table, empty ones too: cut where the line below the head is."""
    lines = changes(old, new).splitlines()
    ruler = next(number for number, line in enumerate(lines) if line.startswith("---"))
    columns = [match.span() for match in re.finditer("-+", lines[ruler])]
    table = lines[ruler + 1 : lines.index("", ruler)]
    return [[line[start:end].strip() for start, end in columns] for line in table]


def row_of(old: Result, new: Result) -> list[str]:
    (row,) = rows_of(record(old), record(new))
    return row


def lines_of(old: Record, new: Record) -> list[str]:
    return changes(old, new).splitlines()


# a case


@pytest.mark.parametrize(
    ("seconds", "ratio", "word"), [(0.5, "2.00", "slower"), (0.125, "0.50", "faster"), (0.25, "1.00", "same")]
)
def test_a_case_is_slower_faster_or_the_same(seconds: float, ratio: str, word: str):
    row = row_of(steady(VMAP, 0.25), steady(VMAP, seconds))
    assert row[:4] == ["batch", "score", "JAX", "vmap"]
    assert row[OLD] == "250 ms" and (row[RATIO], row[WORD]) == (ratio, word)
    assert row[INTERVAL] == f"{ratio} … {ratio}"


def test_it_is_the_same_when_the_interval_holds_1():
    other = [Block(worker, 0, (seconds,)) for worker, seconds in enumerate((0.248, 0.25, 0.253))]
    row = row_of(steady(VMAP, 0.25), replace(steady(VMAP, 0.25), blocks=other))
    assert (row[RATIO], row[WORD]) == ("1.00", "same")


def test_it_is_not_decided_when_the_interval_holds_much_more_than_1():
    other = [Block(worker, 0, (seconds,)) for worker, seconds in enumerate((0.2, 0.26, 0.338))]
    row = row_of(steady(VMAP, 0.25), replace(steady(VMAP, 0.25), blocks=other))
    assert (row[RATIO], row[WORD]) == ("1.04", "not decided")


@pytest.mark.parametrize("other", ["old", "new"])
def test_one_worker_in_either_run_is_not_enough_to_say(other: str):
    one, many = right(VMAP, 0.25), steady(VMAP, 0.5)
    old, new = (one, many) if other == "old" else (many, one)
    row = row_of(old, new)
    assert row[RATIO] == ("2.00" if other == "old" else "0.50")
    assert (row[INTERVAL], row[WORD]) == ("–", "one worker")


def test_what_is_not_compiled_says_so():
    assert row_of(steady(OTHER, 0.25), steady(OTHER, 0.25))[:4] == [
        "batch", "marginals", "PyTorch", "wavefront (not compiled)"
    ]  # fmt: skip


def test_first_call_and_memory_are_told_where_they_changed_by_much():
    old = steady(VMAP, 0.25, cold=1.0, peak_bytes=10 * 2**20)
    same = row_of(old, steady(VMAP, 0.25, cold=1.19, peak_bytes=9 * 2**20))
    more = row_of(old, steady(VMAP, 0.25, cold=2.0, peak_bytes=2**30))
    less = row_of(old, steady(VMAP, 0.25, cold=0.5, peak_bytes=2**20))
    assert (same[FIRST], same[MEMORY]) == ("within 20%", "within 20%")
    assert (more[FIRST], more[MEMORY]) == ("1.00 s → 2.00 s", "10.0 MiB → 1.00 GiB")
    assert (less[FIRST], less[MEMORY]) == ("1.00 s → 500 ms", "10.0 MiB → 1.0 MiB")


def test_first_call_and_memory_that_one_run_does_not_know_are_left_out():
    row = row_of(steady(VMAP, 0.25), replace(steady(VMAP, 0.25), cold=None, peak_bytes=None))
    assert (row[FIRST], row[MEMORY]) == ("", "")


@pytest.mark.parametrize("status", ["wrong", "failed", "limit"])
def test_a_case_that_one_run_did_not_measure_is_marked_and_not_compared(status: str):
    bad = ended(VMAP, status, "because", blocks=blocks([1e-6] * 5, 4), cold=Compilation(1e-3))
    row = row_of(steady(VMAP, 0.25), bad)
    assert row[OLD:] == ["250 ms", status.upper(), *[""] * 5]
    assert row_of(bad, steady(VMAP, 0.25))[OLD:] == [status.upper(), "250 ms", *[""] * 5]


def test_a_case_that_a_run_did_not_come_to_is_not_called_ok():
    assert row_of(steady(VMAP, 0.25), Result(VMAP, cold=Compilation(1.0)))[OLD : NEW + 1] == ["250 ms", "–"]


# the whole


def test_only_cases_that_are_the_same_in_everything_are_compared():
    others = [{"dtype": "float64"}, {"device": "cuda"}, {"input": "6x7"}, {"unroll": 2}, {"compiled": False}]
    for fields in others:
        text = changes(record(steady(VMAP, 0.25)), record(steady(replace(VMAP, **fields), 0.25)))  # pyright: ignore[reportArgumentType]
        assert "no case is in both runs" in text


def test_the_summary_counts():
    variants = ("vmap", "wavefront", "fused", "scan_select")
    old = [steady(case("jax", variant), 0.25) for variant in variants]
    times = dict(zip(variants, (0.5, 0.25, 0.125, 0.125), strict=True))
    new = [steady(case("jax", variant), seconds) for variant, seconds in times.items()]
    bad = ended(OTHER, "failed", "because")
    lines = lines_of(record(*old, bad), record(*new, steady(OTHER, 0.25)))
    assert lines[-1] == "4 cases measured in both: 1 slower, 2 faster, 1 with no difference, 0 not decided"


def test_the_summary_tells_how_fast_the_machine_itself_was():
    old, new = (record(steady(VMAP, 0.25), speed=blocks([seconds] * 3)) for seconds in (0.004, 0.0041))
    assert lines_of(old, new)[-1] == (
        "the same plain Python work took +2.5% in the new run, which the intervals do not know"
    )


def test_what_only_one_run_has_is_told():
    lines = lines_of(record(steady(VMAP, 0.25)), record(steady(OTHER, 0.25), steady(case("jax", "fused"), 0.25)))
    assert "no case is in both runs" in lines
    assert lines[-3:] == [
        "0 cases measured in both: 0 slower, 0 faster, 0 with no difference, 0 not decided",
        "only in the old run: JAX vmap score",
        "only in the new run: PyTorch wavefront marginals, not compiled, JAX fused score",
    ]


def test_rows_stand_in_the_order_of_the_new_run():
    results = [steady(VMAP, 0.25), steady(OTHER, 0.25)]
    assert [row[1] for row in rows_of(record(*results), record(*results[::-1]))] == ["marginals", "score"]


def test_both_runs_are_described():
    old = record(steady(VMAP, 0.25), command="python compare.py --variant vmap")
    assert lines_of(old, record(steady(VMAP, 0.25), finished=None))[:2] == [
        "old: 2026-05-04T10:00:00+00:00, commit 0123456789abcdef: python compare.py --variant vmap",
        "new: 2026-05-04T10:00:00+00:00, commit 0123456789abcdef: python compare.py, not finished",
    ]


def test_runs_that_never_began_can_be_compared():
    assert "no case is in both runs" in changes(Record("python compare.py"), record(steady(VMAP, 0.25)))


# what is not the same


def warnings(old: Record, new: Record) -> list[str]:
    return [line.removeprefix("WARNING: ") for line in lines_of(old, new) if line.startswith("WARNING: ")]


def changed(change: Callable[[dict[str, Any]], Any]) -> Record:
    """A record whose environment was changed."""
    made = record(steady(VMAP, 0.25))
    change(made.environment)
    return made


DIFFERENT: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "cpu": (lambda e: e.update(cpu="Abacus 10"), "cpu was Abacus 9, is Abacus 10"),
    "cores": (lambda e: e.update(cores=2), "cores was 1, is 2"),
    "more": (lambda e: e.update(weather="fine"), "weather was None, is fine"),
    "framework": (lambda e: e["frameworks"]["jax"].update(jax="1.3"), "jax was 1.2.3, is 1.3"),
    "threads": (lambda e: e["frameworks"]["torch"].update(threads=2), "torch threads was 1, is 2"),
}


@pytest.mark.parametrize(("change", "text"), DIFFERENT.values(), ids=DIFFERENT)
def test_different_environments_are_warned_of(change: Callable[[dict[str, Any]], Any], text: str):
    assert warnings(record(steady(VMAP, 0.25)), changed(change)) == [f"the environments differ: {text}"]


@pytest.mark.parametrize(
    "change",
    [
        lambda e: None,
        lambda e: e.update(git_commit="fedcba9876543210"),  # that is what one compares
        lambda e: e.update(bandwidth_bytes_per_second=2e10),  # measured, never twice the same
        lambda e: e["frameworks"]["jax"].update(compiler_start_seconds=0.5),
    ],
    ids=["nothing", "commit", "bandwidth", "compiler start"],
)
def test_what_differs_from_run_to_run_anyway_is_no_warning(change: Callable[[dict[str, Any]], Any]):
    assert warnings(record(steady(VMAP, 0.25)), changed(change)) == []


def test_a_framework_that_only_one_run_has_is_warned_of():
    (found,) = {line.split(",")[0] for line in warnings(record(), changed(lambda e: e["frameworks"].pop("torch")))
                if " torch was" in line}  # fmt: skip
    assert found == "the environments differ: torch was 1.2.3"


def test_what_was_asked_for_otherwise_is_named():
    old, new = record(steady(VMAP, 0.25)), record(steady(VMAP, 0.25))
    assert old.settings is not None
    new.settings = replace(old.settings, problem="free_gap", dtype="float64")
    new.inputs = {name: replace(given, parameters={"gap": -2.0}) for name, given in new.inputs.items()}
    assert warnings(old, new)[:3] == [
        "the problem differs: smith_waterman in the old run, free_gap in the new one",
        "the dtype differs: float32 in the old run, float64 in the new one",
        "gap differs: -1.0 in the old run, -2.0 in the new one",
    ]


def test_an_input_that_is_not_the_same_is_warned_of():
    other = record(steady(VMAP, 0.25), inputs={"batch": hand_made.facts("four pairs", (4, 6, 7))})
    assert warnings(record(steady(VMAP, 0.25)), other) == [
        "the input batch is not the same: its cases are not compared"
    ]
    assert "no case is in both runs" in changes(record(steady(VMAP, 0.25)), other)


@pytest.mark.parametrize(
    ("seconds", "line"),
    [
        (0.006, "the machine itself was 20% slower in the new run, by the same plain Python work in both"),
        (0.004, "the machine itself was 20% faster in the new run, by the same plain Python work in both"),
        (0.0052, None),
    ],
)
def test_a_machine_that_was_slower_or_faster_is_warned_of(seconds: float, line: str | None):
    old, new = (record(steady(VMAP, 0.25), speed=blocks([value] * 3)) for value in (0.005, seconds))
    assert warnings(old, new) == ([line] if line else [])


def test_environments_that_differ_are_told_by_name_with_both_values():
    before, after = {"cpu": "a", "frameworks": {"jax": {"jax": "1", "gpu": "x"}}}, {"cpu": "b", "frameworks": {}}
    assert different_environments(before, after) == ["cpu was a, is b", "jax was 1, is None", "jax gpu was x, is None"]
    assert different_environments(before, before) == []
