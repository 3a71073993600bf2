"""The console's report: the answer, what was run, every case (without a time where it is wrong)."""

import re
from dataclasses import replace
from typing import Any

import pytest
import recorded
from hand_made import WORK, blocks, case, ended, record, right
from rendered import console_report, report_of

from shared.bench.cases import Absence, Settings
from shared.bench.estimates import Block
from shared.bench.record import Compilation, Record, Result
from shared.bench.report import console
from shared.bench.report.case_table import BRIEF, CACHES_EMPTY, CACHES_WARM, case_table
from shared.bench.report.console import console_table, console_text
from shared.bench.report.tables import Table

TIME = re.compile(r"\d (µs|ms|s)\b")
ONE_PASS = Settings(input="random", passes=("score",))
# cases that have times all the same, taken before they went wrong: they must not be shown
TIMES: dict[str, Any] = {"cold": [Compilation(0.001)], "blocks": blocks([0.001] * 5, 4)}


def row_of(result: Result) -> dict[str, str]:
    """The row of a case, by column."""
    table = case_table(record(result, settings=ONE_PASS), BRIEF)
    return dict(zip(table.headers, table.rows[0], strict=True))


def test_the_head_says_what_was_measured_and_where():
    made = record(right(case("jax", "vmap"), 0.25, 0.5, workers=4), settings=ONE_PASS)
    start = "compiler start-up, not included below: 50.0 ms, then 10.0 ms"
    assert report_of(made).head[:5] == [
        "smith_waterman: smooth local alignment with a linear gap; float32, gap -1, end any",
        "input: three pairs; 126 cells",
        "on Abacus 9, 1 core, Python 3.11, NumPy 2.4",
        f"JAX 1.2.3; {start}",
        f"PyTorch 1.2.3; {start}",
    ]
    made.environment["frameworks"] = {"jax": {"jax": "1.2.3", "gpu": "Abacus X", "smallest_call_seconds": 2e-5}}
    made.gpu_state = {"samples": 9, "throttled": {}}
    made.gpu_state |= {name: [40, 50, 60] for name in ("sm_mhz", "memory_mhz", "watts", "celsius")}
    assert report_of(made).head[2:5] == [
        "on Abacus X, Abacus 9, 1 core, Python 3.11, NumPy 2.4",
        "JAX 1.2.3; a call of one kernel on three numbers takes 20.0 µs",
        "GPU at work: 50 MHz (40 … 60), 50 MHz of memory (40 … 60), 50 W (40 … 60), 50 °C (40 … 60); "
        "never slowed down; compare.py locks no clocks",
    ]
    assert "\ninput: 16 pairs of 256 x 256; 1,048,576 cells\n" in console_report(recorded.growth())


def test_a_quick_run_says_that_compiled_jax_stands_beside_eager_pytorch():
    cases = [right(case("jax", "vmap")), right(case("torch", "wavefront", compiled=False))]
    left_out = [Absence("torch", "PyTorch vmap score", "torch.compile takes too long for --quick")]
    warning = "WARNING: --quick left out what torch.compile compiles: JAX is compiled here, and PyTorch runs eagerly\n"
    quick = replace(ONE_PASS, quick=True)
    assert warning in console_report(record(*cases, settings=quick, absent=left_out))
    assert "--quick" not in console_report(record(*cases, settings=quick))  # nothing was left out


def test_a_row_has_first_calls_median_interval_rate_and_memory():
    row = row_of(
        right(
            case("torch", "diagonal_loop", compiled=False, label="A"),
            cold=0.75,
            new_shapes=[[0.125]],
            warm=[0.25, 0.5],
            blocks=[Block.of(worker, 0, [0.002 + worker * 1e-5]) for worker in (-1, 0, 1)],
        )
    )
    assert row == {
        "pass": "score", "framework": "PyTorch", "variant": "diagonal_loop, A", "compiled": "no",
        CACHES_EMPTY: "750 ms", CACHES_WARM: "354 ms", "new shape": "125 ms", "median": "2.00 ms",
        "95% interval": "1.72 … 2.33 ms", "GCUPS": f"{WORK / 0.002 / 1e9:.3g}", "memory": "3.0 MiB",
    }  # fmt: skip


def test_a_column_that_no_case_fills_is_left_out():
    assert set(row_of(replace(right(case("jax", "vmap")), peak_bytes=None))) == {
        "pass", "framework", "variant", "compiled", CACHES_EMPTY
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "reason", "mark"),
    [("wrong", "score off", "WRONG"), ("failed", "ValueError: no", "FAILED"), ("limit", "> 120 s", "> 120 s")],
)
def test_a_bad_case_shows_its_mark_and_no_time_anywhere(status: str, reason: str, mark: str):
    bad = ended(case("jax", "vmap"), status, reason, **TIMES)
    assert row_of(bad)[CACHES_EMPTY] == mark
    shown = report_of(record(bad, settings=ONE_PASS))
    text = console_text(replace(shown, head=[]))
    assert "score: no case was measured." in text
    assert not TIME.search(text.replace("> 120 s", ""))


def test_the_answer_comes_before_what_was_run():
    both = (right(case(name, "vmap"), 0.25, 0.5, workers=4) for name in ("jax", "torch"))
    shown = console_report(record(*both, settings=ONE_PASS))
    assert shown.startswith("Which framework is faster\n")
    assert shown.index("score: ") < shown.index("smith_waterman: smooth") < shown.index("All cases")


@pytest.mark.parametrize("name", recorded.EVERY_KIND)
def test_every_kind_of_record_prints(name: str):
    assert console_report(recorded.EVERY_KIND[name]())


def test_a_run_that_was_stopped_early_says_so():
    assert "marginals: no case was measured." in console_report(recorded.begun())


def test_the_answer_comes_before_the_cases_and_these_before_the_diagnostics():
    text = console_report(recorded.plain())
    parts = (
        "Which framework is faster\n",
        "\nscore: JAX (fused, ",
        "\n  Other variants: vmap ",
        "\nAll cases",
        "\nevery",
    )
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def leading(made: Record) -> str:
    """The first table of the answer, as the display shows it."""
    return "".join(map(console_table, report_of(made).answer.tables[:1]))


def test_the_display_shows_the_first_calls_then_the_answer_without_what_follows_it():
    made, begun = recorded.plain(), recorded.plain()
    begun.results = [replace(result, blocks=[]) for result in begun.results]
    first = leading(begun)
    assert "no clear winner" in first and "; 1 process)" in first
    shown = leading(made)
    assert "(1.13 … 1.15)" in shown and "First calls" not in shown
    assert not leading(recorded.begun())


@pytest.mark.parametrize("name", ["plain", "growth", "ladder", "learning"])
def test_nothing_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, name: str):
    made = getattr(recorded, name)()
    widest = max(map(len, console_report(made).splitlines()))
    monkeypatch.setattr(console, "_width", lambda: 80)
    assert widest > 80 >= max(map(len, console_report(made).splitlines()))


def test_a_table_that_is_too_wide_goes_on_below_with_what_names_its_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(console, "_width", lambda: 20)
    table = Table("Title", ("name", "first", "second"), [("a", "1" * 9, "2" * 9), ("b", "3", "4")], ("left",) * 3)
    lines = [line.split() for line in console_table(table).splitlines() if line and "-" not in line]
    assert lines == [
        ["Title"], ["name", "first"], ["a", "1" * 9], ["b", "3"], ["name", "second"], ["a", "2" * 9], ["b", "4"]
    ]  # fmt: skip
