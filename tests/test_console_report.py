"""What a person reads: times in units that suit them, none for a wrong case, and the verdict of each pass in words."""

import re
from dataclasses import replace
from typing import Any

import hand_made
import pytest
from hand_made import WORK, case, ended, record, right, steady
from shared.bench.plan import Settings
from shared.bench.statistics import Estimate
from shared.bench.table import report
from shared.bench.text import clock, duration, figures, ratio_interval, size, time_interval

from shared.bench.record import Compilation, Record, Result

TIME = re.compile(r"\d (µs|ms|s)\b")
ONE_PASS = Settings(input="random", passes=("score",))
LADDER = Settings(input="random", passes=("score",), ladder=True)

# bad cases that have times all the same, taken before they went wrong: they must not be shown
TIMES: dict[str, Any] = {"cold": Compilation(0.001), "blocks": hand_made.blocks([0.001] * 5, 4), "peak_bytes": 0}
WRONG = ended(case("jax", "vmap"), "wrong", "score off by 1.0e+00 for pair 2, allowed 1.0e-05", **TIMES)
FAILED = ended(case("jax", "vmap"), "failed", "ValueError: no such thing", **TIMES)
LIMIT = ended(case("jax", "vmap"), "limit", "> 120 s", **TIMES)
BAD = pytest.mark.parametrize(("result", "mark"), [(WRONG, "WRONG"), (FAILED, "FAILED"), (LIMIT, "> 120 s")])
# the columns after compiled
COLD, WARM, SHAPE, MEDIAN, INTERVAL, RATE, MEMORY = range(7)


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


# numbers


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


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.00"), (9.994, "9.99"), (9.996, "10.0"), (12.34, "12.3"), (99.96, "100"), (123.4, "123")],
)
def test_a_factor_has_three_figures(value: float, text: str):
    assert figures(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "?"), (0, "0 B"), (480, "480 B"), (2048, "2 KiB"), (3 * 2**20, "3.0 MiB"), (5 * 2**29, "2.50 GiB")],
)
def test_a_number_of_bytes_has_a_unit_that_suits_it(count: int | None, text: str):
    assert size(count) == text


def test_an_interval_is_two_times_and_none_is_a_dash():
    assert time_interval(Estimate(2.0, 0.5, 3.0)) == "500 ms … 3.00 s"
    assert time_interval(Estimate(2.0, float("nan"), float("nan"))) == "–"


def test_the_ends_of_a_ratio_s_interval_show_on_which_side_of_1_they_are():
    assert ratio_interval(Estimate(1.0, 0.9961, 1.0037)) == "0.9961 … 1.0037"
    assert ratio_interval(Estimate(1.5, 1.0, 11.11)) == "1.00 … 11.1"


@pytest.mark.parametrize(("seconds", "text"), [(0.9, "0:00"), (61.5, "1:01"), (3600.0, "60:00")])
def test_a_clock_shows_minutes_and_seconds(seconds: float, text: str):
    assert clock(seconds) == text


# the table


def test_the_head_says_what_was_measured_and_where():
    lines = lines_of(right(case("jax", "vmap"), 0.25, 0.5, workers=4))
    assert lines[:6] == [
        "smith_waterman: smooth local alignment with a linear gap; float32, gap -1, end any",
        "input: three pairs; 126 cells",
        "on Abacus 9, 1 core, Python 3.11, NumPy 2.4",
        "JAX 1.2.3; starting its compiler took 50.0 ms, once, not counted below",
        "PyTorch 1.2.3; starting its compiler took 50.0 ms, once, not counted below",
        "4 fresh processes for each case, 8 rounds, 5:12 minutes",
    ]


def test_the_head_names_the_gpu_and_is_silent_of_what_is_not_known():
    made = record(settings=ONE_PASS)
    made.environment["frameworks"] = {"jax": {"jax": "1.2.3", "gpu": "Abacus X"}, "torch": {"torch": "4.5"}}
    assert report(made).splitlines()[3:5] == ["JAX 1.2.3 on Abacus X", "PyTorch 4.5"]
    assert "fresh processes" not in report(made)


def test_a_row_has_first_calls_median_interval_rate_and_memory():
    result = right(
        case("torch", "diagonal_loop", compiled=False), 0.001, 0.002, 0.003, workers=4, cold=0.75,
        warm=[Compilation(0.25), Compilation(0.5)], retrace=Compilation(0.125),
    )  # fmt: skip
    row = row_of(lines_of(result), "score", "PyTorch", "diagonal_loop", "no")
    assert row[:MEDIAN] == ["750 ms", "375 ms", "125 ms"]
    result.blocks = [
        block._replace(seconds=tuple(s * (1 + block.worker / 1e3) for s in block.seconds)) for block in result.blocks
    ]
    row = row_of(lines_of(result), "score", "PyTorch", "diagonal_loop", "no")
    time = result.time
    assert time.low < time.high
    assert row[MEDIAN:RATE] == ["2.00 ms", f"{duration(time.low)} … {duration(time.high)}"]
    assert float(row[RATE]) == pytest.approx(WORK / 0.002 / 1e9, rel=0.01)
    assert row[MEMORY:] == ["3.0 MiB"]


def test_the_columns_are_named():
    (head,) = (line for line in lines_of() if line.startswith("pass "))
    assert cells(head) == [
        "pass", "framework", "variant", "compiled", "first call", "new process", "new shape", "median",
        "95% interval", "GCUPS", "memory",
    ]  # fmt: skip


def test_what_was_not_measured_of_a_case_is_a_dash_and_memory_that_nobody_knows_a_question_mark():
    row = row_of(lines_of(right(case("jax", "vmap"), 0.001, peak_bytes=None)), "score", "JAX", "vmap (auto)", "yes")
    assert row == ["500 ms", "–", "–", "1.00 ms", "–", "2", "?"]


def test_a_case_that_was_only_compiled_before_the_run_ended_has_no_times():
    begun = replace(right(case("jax", "vmap")), warm=[])
    row = row_of(lines_of(begun), "score", "JAX", "vmap (auto)", "yes")
    assert row == ["500 ms", "–", "–", "–", "–", "–", "3.0 MiB"]


def test_rows_stand_in_the_order_of_the_run():
    variants = ("scan_select", "vmap", "cell_loop")
    lines = lines_of(*(right(case("jax", variant), 0.001) for variant in variants))
    shown = [cells(line)[2] for line in lines if cells(line)[:2] == ["score", "JAX"]]
    assert shown == ["scan_select", "vmap (auto)", "cell_loop"]


def test_the_sides_of_a_case_are_marked():
    sides = [right(case("jax", "vmap", side=side), 0.001) for side in (1, 2)]
    shown = [cells(line)[2] for line in lines_of(*sides) if cells(line)[:2] == ["score", "JAX"]]
    assert shown == ["vmap (auto), side A", "vmap (auto), side B"]


def test_a_sweep_has_a_table_for_each_size_under_its_name():
    sizes = {"6x7": hand_made.facts("small"), "60x70": hand_made.facts("large")}
    results = [right(case("jax", variant, input=name), 0.001) for name in sizes for variant in ("vmap", "fused")]
    lines = lines_of(*results, inputs=sizes, settings=replace(ONE_PASS, sweep=((6, 7), (60, 70))))
    assert lines[1:3] == ["input: small; 126 cells", "input: large; 126 cells"]
    small, large = lines.index("small"), lines.index("large")
    for part in (lines[small:large], lines[large:]):
        assert [cells(line)[2] for line in part if cells(line)[:2] == ["score", "JAX"]] == ["vmap (auto)", "fused"]
    assert [line.split(": ")[0] for line in lines if "was measured" in line] == ["6x7, score", "60x70, score"]


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
    assert lines[-3:] == ["score: no case was measured.", "", "marginals: no case was measured."]


def test_a_run_that_was_stopped_before_it_began_says_so():
    assert report(Record("python compare.py")) == "nothing was measured"


def test_each_pass_has_its_verdict_and_below_it_the_price():
    results = [
        steady(case(framework, "vmap", pass_name), seconds)
        for pass_name, times in (("score", (0.001, 0.002)), ("marginals", (0.008, 0.004)))
        for framework, seconds in zip(("jax", "torch"), times, strict=True)
    ]
    lines = lines_of(*results, settings=Settings(input="random"))
    words = lines.index(
        "score: JAX (vmap, 1.00 ms per call) was 2.00 times as fast as PyTorch (vmap, 2.00 ms per call); "
        "95% interval 2.00 … 2.00."
    )
    assert [line.split(":")[0] for line in lines[words:]][:9] == [
        "score", "  first call", "  break-even", "  peak memory of a call", "",
        "marginals", "  first call", "  break-even", "  peak memory of a call",
    ]  # fmt: skip


# the ladder


def climbed(framework: str, variant: str, off: Result | None, on: Result | None) -> list[Result]:
    """Results of a rung on the single pair; None where there is none."""
    ways = ((False, off), (True, on))
    return [
        replace(result, case=case(framework, variant, compiled=way, input="single")) for way, result in ways if result
    ]


@pytest.fixture
def ladder() -> list[str]:
    fast = right(case("jax", "vmap"), 0.002, cold=0.75)
    results = [
        *climbed("jax", "cell_loop", fast, LIMIT),
        *climbed("torch", "cell_loop", WRONG, FAILED),
        *climbed("jax", "scan_cond", fast, fast),
        right(case("jax", "vmap"), 0.004, cold=0.125),
    ]
    made = record(*results, settings=LADDER)
    made.references = {("single", "score"): [0.25, 0.24], ("batch", "score"): [0.5, 0.49]}
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
    assert not any("fresh processes" in line or "beyond the quartiles" in line for line in ladder)
    kept = "(20 samples taken before are kept in the record)"
    assert f"WRONG: PyTorch cell_loop score, one pair, not compiled: {WRONG.reason} {kept}" in ladder
    assert f"FAILED: PyTorch cell_loop score, one pair: ValueError: no such thing {kept}" in ladder
