"""What a person reads: times in units that suit them, none for a wrong case, and a verdict that follows from them."""

import re
from typing import Any

import pytest
from hand_made import WORK, case, ended, record, right

from shared.bench.plan import Absence, Settings
from shared.bench.record import Record, Result
from shared.bench.table import duration, report

TIME = re.compile(r"\d (µs|ms|s)\b")
ONE_PASS = Settings(input="random", passes=("score",))
LADDER = Settings(input="random", passes=("score",), ladder=True)

# bad cases that carry times all the same, as a careless worker might send them: they must not be shown
TIMES = {"first_seconds": 0.001, "steady_seconds": [0.001], "peak_bytes": 0, "work": WORK}
WRONG = ended(case("jax", "vmap"), "wrong", "score off by 1.0e+00 for pair 2, allowed 1.0e-05", **TIMES)
FAILED = ended(case("jax", "vmap"), "failed", "ValueError: no such thing", **TIMES)
LIMIT = ended(case("jax", "vmap"), "limit", "> 120 s", **TIMES)
BAD = pytest.mark.parametrize(("result", "mark"), [(WRONG, "WRONG"), (FAILED, "FAILED"), (LIMIT, "> 120 s")])


def lines_of(*results: Result, settings: Settings = ONE_PASS, **more: Any) -> list[str]:
    return report(record(*results, settings=settings, **more)).splitlines()


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def row_of(lines: list[str], *names: str) -> list[str]:
    """The cells of the one table row that begins with these names."""
    (row,) = (cells(line) for line in lines if cells(line)[: len(names)] == list(names))
    return row[len(names) :]


def verdict(*results: Result, **more: Any) -> str:
    (line,) = (line for line in lines_of(*results, **more) if line.startswith("score: "))
    return line


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.5e-7, "0.25 µs"),
        (4.231e-6, "4.23 µs"),
        (42.31e-6, "42.3 µs"),
        (423.1e-6, "423 µs"),
        (1e-3, "1.00 ms"),
        (0.0561, "56.1 ms"),
        (0.506, "506 ms"),
        (1.0, "1.00 s"),
        (12.34, "12.3 s"),
        (1234.0, "1234 s"),
    ],
)
def test_a_duration_has_three_figures_and_a_unit_that_suits_it(seconds: float, text: str):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(9.996e-6, "10.0 µs"), (99.96e-3, "100 ms"), (0.9996e-3, "1.00 ms"), (0.9996, "1.00 s")]
)
def test_a_duration_just_below_a_round_one_has_three_figures_too(seconds: float, text: str):
    assert duration(seconds) == text


# the table


def test_the_head_says_what_was_measured_and_where():
    lines = lines_of()
    assert lines[:5] == [
        "smith_waterman: smooth local alignment with a linear gap; float32, gap -1, end any",
        "input: three pairs; 126 cells",
        "on Abacus 9, 1 core, Python 3.11, NumPy 2.4",
        "JAX 1.2.3; starting its compiler took 50.0 ms, once, not counted below",
        "PyTorch 1.2.3; starting its compiler took 50.0 ms, once, not counted below",
    ]


def test_a_row_has_first_call_median_quartiles_rate_and_memory():
    lines = lines_of(right(case("torch", "diagonal_loop", compiled=False), 0.001, 0.002, 0.003, first_seconds=0.75))
    row = row_of(lines, "score", "PyTorch", "diagonal_loop", "no")
    assert row[:3] == ["750 ms", "2.00 ms", "1.50 ms … 2.50 ms"]
    assert float(row[3]) == pytest.approx(WORK / 0.002 / 1e9, rel=0.01)
    assert row[4] == "3.0 MiB"


def test_memory_that_nobody_knows_is_a_question_mark():
    result = right(case("jax", "vmap"), 0.001)
    result.outcome.details["peak_bytes"] = None
    assert row_of(lines_of(result), "score", "JAX", "vmap (auto)", "yes")[4] == "?"


def test_rows_stand_in_the_order_of_the_run():
    variants = ("scan_select", "vmap", "cell_loop")
    lines = lines_of(*(right(case("jax", variant), 0.001) for variant in variants))
    shown = [cells(line)[2] for line in lines if cells(line)[:2] == ["score", "JAX"]]
    assert shown == ["scan_select", "vmap (auto)", "cell_loop"]


@BAD
def test_a_bad_case_shows_its_mark_and_no_time_anywhere(result: Result, mark: str):
    lines = lines_of(result, frameworks=("torch",))
    assert row_of(lines, "score", "JAX", "vmap", "yes") == [mark]
    below = "\n".join(lines[lines.index("") :]).replace("> 120 s", "")
    assert not TIME.search(below)
    assert "score: no case was measured." in lines


@BAD
def test_a_bad_case_does_not_win(result: Result, mark: str):
    slow = right(case("torch", "vmap"), 100.0)
    assert verdict(result, slow) == (
        "score: only PyTorch (vmap, 100 s per call) was measured, so there is nothing to compare."
    )
    assert mark in report(record(result, slow))


def test_a_run_that_was_stopped_before_its_first_case_still_prints():
    lines = lines_of(settings=Settings(input="random"))
    assert lines[-2:] == ["score: no case was measured.", "marginals: no case was measured."]


def test_a_run_that_was_stopped_before_it_began_says_so():
    assert report(Record("python compare.py")) == "nothing was measured"


# the verdict


def test_the_verdict_names_the_faster_framework_and_the_factor():
    slow, fast = right(case("jax", "scan_select"), 0.006), right(case("torch", "vmap"), 0.0015)
    assert verdict(slow, fast) == verdict(fast, slow)
    assert verdict(slow, fast) == (
        "score: PyTorch (vmap, 1.50 ms per call) was 4.00 times as fast as JAX (scan_select, 6.00 ms per call)."
    )


def test_the_verdict_takes_each_framework_s_fastest_variant():
    results = [
        right(case("jax", "cell_loop"), 0.5),
        right(case("jax", "vmap"), 0.001),
        right(case("torch", "vmap"), 0.5),
        right(case("torch", "diagonal_loop"), 0.003),
    ]
    assert verdict(*results) == (
        "score: JAX (vmap, 1.00 ms per call) was 3.00 times as fast as PyTorch (diagonal_loop, 3.00 ms per call)."
    )


def test_the_verdict_goes_by_the_median_not_by_the_best_sample():
    lucky, steady = right(case("jax", "vmap"), 0.001, 0.009, 0.009), right(case("torch", "vmap"), 0.003)
    assert "PyTorch (vmap, 3.00 ms per call) was 3.00 times as fast" in verdict(lucky, steady)


def test_there_is_one_verdict_for_each_pass():
    results = [
        right(case("jax", "vmap", "score"), 0.001),
        right(case("torch", "vmap", "score"), 0.002),
        right(case("jax", "vmap", "marginals"), 0.008),
        right(case("torch", "vmap", "marginals"), 0.004),
    ]
    lines = lines_of(*results, settings=Settings(input="random"))
    assert [line.split(" (")[0] for line in lines if line.endswith("per call).")] == [
        "score: JAX",
        "marginals: PyTorch",
    ]


# the notes


def test_the_notes_tell_what_was_gated_and_how_well():
    results = [right(case("jax", "vmap"), 1.0, error=0.02), right(case("torch", "vmap"), 1.0, error=0.31)]
    assert lines_of(*results)[-1] == (
        "every time above passed the parity gate on 4 of 3 pairs; worst error 31% of what is allowed"
    )


def test_the_notes_are_silent_of_a_gate_that_was_numpy_s():
    assert "too large" not in report(record(right(case("jax", "vmap"), 1.0)))


def test_the_notes_tell_of_a_gate_that_was_not_numpy_s():
    source = "float64 vmap, itself gated by NumPy on cut pairs"
    assert f"pairs too large for the NumPy reference were gated by {source}" in lines_of(
        right(case("jax", "vmap"), 1.0, source=source)
    )


def test_the_notes_tell_why_a_case_was_wrong_or_failed():
    lines = lines_of(WRONG, FAILED, LIMIT)
    assert "WRONG: JAX vmap score: score off by 1.0e+00 for pair 2, allowed 1.0e-05" in lines
    assert "FAILED: JAX vmap score: ValueError: no such thing" in lines
    assert not any("passed the parity gate" in line for line in lines)


def test_the_notes_tell_what_is_absent_and_missing():
    made = record(right(case("jax", "vmap"), 1.0), settings=ONE_PASS, frameworks=("jax",))
    made.absent = [Absence("jax", "JAX scan_cond score", "it cannot")]
    made.missing = {"torch": "PyTorch is not installed (No module named 'torch')"}
    assert report(made).splitlines()[-2:] == [
        "absent: JAX scan_cond score: it cannot",
        "PyTorch was not measured: PyTorch is not installed (No module named 'torch')",
    ]


# the ladder


def climbed(framework: str, variant: str, off: Result | None, on: Result | None) -> list[Result]:
    """Results of a rung on the single pair; None where there is none."""
    ways = ((False, off), (True, on))
    return [
        Result(case(framework, variant, compiled=way, single=True), result.outcome) for way, result in ways if result
    ]


@pytest.fixture
def ladder() -> list[str]:
    fast = right(case("jax", "vmap"), 0.002, first_seconds=0.75)
    results = [
        *climbed("jax", "cell_loop", fast, LIMIT),
        *climbed("torch", "cell_loop", WRONG, FAILED),
        *climbed("jax", "scan_cond", fast, fast),
        right(case("jax", "vmap"), 0.004, first_seconds=0.125),
    ]
    made = record(*results, settings=LADDER)
    made.add_reference(True, "score", [0.25, 0.24])
    made.add_reference(False, "score", [0.5, 0.49])
    return report(made).splitlines()


def test_the_ladder_has_a_table_for_the_single_pair_then_one_for_the_batch(ladder: list[str]):
    single, batch = ladder.index("score, one pair"), ladder.index("score, three pairs")
    assert single < batch
    assert any(line.startswith("cell_loop") for line in ladder[single:batch])
    assert [line.split()[0] for line in ladder[batch:] if line.startswith(("cell_loop", "vmap"))] == ["vmap"]


def test_the_ladder_s_columns_are_jit_off_and_on_first_and_second_call(ladder: list[str]):
    at = ladder.index("score, one pair") + 2
    assert ladder[at].split() == ["variant", *["JAX"] * 4, *["PyTorch"] * 4]
    assert cells(ladder[at + 1]) == ["jit off", "jit off", "jit on", "jit on"] * 2
    assert ladder[at + 2].split() == ["first", "second"] * 4


def test_the_ladder_s_first_row_is_numpy(ladder: list[str]):
    rows = [cells(line) for line in ladder if line.startswith("NumPy ")]
    assert rows == [["NumPy", *["250 ms", "240 ms"] * 2], ["NumPy", *["500 ms", "490 ms"] * 2]]


def test_a_cell_of_the_ladder_is_a_time_a_mark_or_a_dash(ladder: list[str]):
    assert row_of(ladder, "cell_loop") == ["750 ms", "2.00 ms", "> 120 s", "–", "WRONG", "–", "FAILED", "–"]
    assert row_of(ladder, "scan_cond") == ["750 ms", "2.00 ms", "750 ms", "2.00 ms", *["–"] * 4]


def test_the_ladder_has_no_verdict_but_the_same_notes(ladder: list[str]):
    assert not any("times as fast" in line or "nothing to compare" in line for line in ladder)
    assert "WRONG: PyTorch cell_loop score, not compiled: score off by 1.0e+00 for pair 2, allowed 1.0e-05" in ladder
    assert "FAILED: PyTorch cell_loop score: ValueError: no such thing" in ladder
