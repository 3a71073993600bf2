"""The stage `report`: each output has the answer first, every number below, no time of a bad case, and text as text."""

import base64
import functools
import html
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.dom import minidom

import hand_made
import matplotlib
import pytest
import recorded
from hand_made import blocks, blocks_of_workers, case, ended, record, right, steady
from markdown_it import MarkdownIt
from markupsafe import escape
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from rendered import console_report, html_report, markdown_report, report_of

from shared.bench.cases import Absence, Settings
from shared.bench.estimates import SAME, Block, Estimate
from shared.bench.record import FirstCall, Record, Result
from shared.bench.report import plots
from shared.bench.report.case_table import BRIEF, CACHES_EMPTY, CACHES_WARM, case_table, case_tables
from shared.bench.report.compare_runs import compare_runs
from shared.bench.report.console import console_table, console_text
from shared.bench.report.markdown import escaped
from shared.bench.report.side_by_side import side_by_side
from shared.bench.report.tables import Point, Table, winner

ONE_PASS = Settings(input="random", passes=("score",))
BEGUN = "This run was not finished. It shows what was measured until it ended."


def row_of(result: Result) -> dict[str, str]:
    """The row of a case on the console, by column."""
    table = case_table(record(result, settings=ONE_PASS), BRIEF)
    return dict(zip(table.headers, table.rows[0], strict=True))


def row_of_first(record: Record) -> dict[str, str]:
    """The first row of the tables of all cases, by column."""
    return {
        name: cell for table in case_tables(record) for name, cell in zip(table.headers, table.rows[0], strict=True)
    }


def test_a_quick_run_says_that_compiled_jax_stands_beside_eager_pytorch():
    cases = [right(case("jax", "vmap")), right(case("torch", "wavefront", compiled=False))]
    left_out = [Absence("torch", "PyTorch vmap score", "torch.compile takes too long for --quick")]
    warning = "WARNING: --quick: nothing that torch.compile compiles: JAX is compiled, PyTorch is not\n"
    quick = replace(ONE_PASS, quick=True)
    assert warning in console_report(record(*cases, settings=quick, absent=left_out))
    assert "--quick" not in console_report(record(*cases, settings=quick))  # nothing was left out


def test_the_table_of_all_cases_has_every_number():
    made = recorded.plain()
    made.results[0].blocks = [Block.of(block.repeat, block.round, (0.16,) * 6) for block in made.results[0].blocks]
    row = row_of_first(made)
    assert [len(table.rows) for table in case_tables(made)] == [12] * 3
    assert row == {
        "pass": "score", "framework": "JAX", "variant": "vmap (auto)", "compiled": "yes", CACHES_EMPTY: "600 ms",
        "tracing": "180 ms", "compiling": "360 ms", CACHES_WARM: "148 ms\n(115 … 190 ms; 2 processes)",
        "new shape": "300 ms", "second\nnew shape": "150 ms",
        "median": "160 ms", "95% interval": "159 … 161 ms", "samples": "120", "rounds": "20", "workers": "4",
        "GCUPS": "0.0125", "of the limit": "1.11%", "memory": "25.0 MiB", "input bytes": "17.0 MiB",
        "output bytes": "480 B", "error / allowed": "11.0%", "status": "ok",
    }  # fmt: skip
    made.results[0].blocks = []
    assert row_of_first(made)["status"] == "not timed"
    assert "rounds" not in row_of_first(recorded.ladder())  # there are none
    plain = right(case("torch", "diagonal_loop", compiled=False, label="A"), peak_bytes=None)
    assert row_of(plain) == {
        "pass": "score", "framework": "PyTorch", "variant": "diagonal_loop, A", "compiled": "no", CACHES_EMPTY: "500 ms"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "reason", "mark"),
    [("wrong", "score off", "WRONG"), ("failed", "ValueError: no", "FAILED"), ("limit", "> 120 s", "> 120 s")],
)
def test_a_bad_case_shows_its_mark_and_no_time_anywhere(status: str, reason: str, mark: str):
    # times that were taken before it went wrong
    bad = ended(case("jax", "vmap"), status, reason, cold=[FirstCall(0.001)], blocks=blocks([0.001] * 5, 4))
    assert row_of(bad)[CACHES_EMPTY] == mark
    text = console_text(replace(report_of(record(bad, settings=ONE_PASS)), head=[]))
    assert "score: no case was measured." in text
    assert not re.search(r"\d (µs|ms|s)\b", text.replace("> 120 s", ""))


@pytest.mark.parametrize("name", recorded.EVERY_KIND)
def test_every_kind_of_record_prints_and_a_narrow_output_shows_it_whole(monkeypatch: pytest.MonkeyPatch, name: str):
    made = recorded.EVERY_KIND[name]()
    whole, narrow = console_report(made), console_report(made, columns=80)
    assert max(map(len, narrow.splitlines())) <= 80
    if name in ("plain", "growth", "ladder", "learning"):
        monkeypatch.delenv("COLUMNS", raising=False)
        monkeypatch.setattr(sys, "__stdout__", None)  # as in a pipe
        assert max(map(len, console_text(report_of(made)).splitlines())) <= 120 < max(map(len, whole.splitlines()))


def test_a_table_that_is_too_wide_goes_on_below_with_the_columns_that_name_its_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "20")
    table = Table("Title", ("name", "first", "second"), [("a", "1" * 9, "2" * 9), ("b", "3", "4")], ("left",) * 3)
    lines = [line.split() for line in console_table(table).splitlines() if line and "-" not in line]
    assert lines == [
        ["Title"], ["name", "first"], ["a", "1" * 9], ["b", "3"], ["name", "second"], ["a", "2" * 9], ["b", "4"]
    ]  # fmt: skip


PARTS = {
    console_report: ("Which framework is faster\n", "\nscore: JAX (fused, ", "\n  Other variants: vmap ",
                     "\nsmith_waterman: smooth", "\nAll cases", "\nall timed"),
    lambda made: markdown_report([made]): ("### Which framework is faster", "- **score**: JAX (fused, ",
        "### Every number, and diagnostics", "### Time of a call", "- all timed results passed"),
    lambda made: html_report([made]): ("<h3>Which framework is faster</h3>", "What first calls of marginals and the",
        "score: the forward", "<h3>First calls</h3>", "<h3>Time of a call</h3>", "<h3>Memory and errors</h3>"),
}  # fmt: skip


@pytest.mark.parametrize(("render", "parts"), PARTS.items(), ids=["console", "markdown", "page"])
def test_the_answer_comes_before_the_cases_and_these_before_the_diagnostics(
    render: Callable[[Record], str], parts: tuple[str, ...]
):
    text = render(recorded.plain())
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert BEGUN in render(recorded.begun()) and "marginals: no case was measured." in console_report(recorded.begun())


@functools.cache
def page_of(name: str) -> str:
    return html_report([recorded.EVERY_KIND[name]()])


def values(page: str, attribute: str) -> list[str]:
    return [html.unescape(value) for value in re.findall(rf' {attribute}="([^"]*)"', page)]


def test_hostile_text_is_escaped_everywhere():
    page, hostile = page_of("hostile"), recorded.HOSTILE
    assert "<script" not in page and hostile not in page
    for text in (
        "input: {0}; 126 cells",
        "absent: {0}: {0}",
        "FAILED: {0}\n{0}",
        "fused: not compiled in PyTorch; {0}.",
    ):
        assert escape(text.format(hostile)) in page


def test_a_page_of_several_records_folds_all_but_a_line_of_each():
    records = [recorded.plain(), recorded.learning(), recorded.begun()]
    page = html_report(records)
    assert page.count("<details>") == len(records) and page_of("plain").count("<details open>") == 1
    nav = page[page.index("<nav>") : page.index("</nav>")]
    plain, learning, begun, _ = (" ".join(re.sub("<.*?>", "", line).split()) for line in nav.split("</li>"))
    assert "marginals: JAX 1.14× (the same loop, compiled), JAX 1.14× (tuned framework code), JAX 1.14×" in plain
    assert learning.startswith("learning: The faster framework:")
    assert begun == "speed: smith_waterman on cpu, 2026-05-04, three pairs: score: no case was measured."


@pytest.mark.parametrize(
    ("line", "expected"),
    [("JAX 1.9×", "jax"), ("PyTorch about 29×\n", "torch"), ("JAX 1e+05×", "jax"), ("PyTorch or same", "torch perhaps"),
     ("JAX from call 1", "jax"), ("JAX from call 160", "jax perhaps"), ("PyTorch up to call 1,200", "torch perhaps"),
     ("JAX only", ""), ("JAX 0.10.2: in Python 3.11", ""), ("same", ""), ("no clear winner", "")],
)  # fmt: skip
def test_a_winner_is_told_from_a_framework_that_is_only_named(line: str, expected: str):
    assert winner(line) == expected


def test_the_picture_has_a_point_for_each_ratio_of_pytorch_over_jax_around_the_band(monkeypatch: pytest.MonkeyPatch):
    axes: Any = Figure().subplots()
    monkeypatch.setattr(plots, "drawn", lambda draw, *_: draw(axes))
    cells = [
        Point("marginals", "one process", "PyTorch about 3×", Estimate(1 / 3, 0.2, 0.5, 1, False)),
        *report_of(recorded.plain()).answer.ratios,
    ]
    assert cells[1].value.value == pytest.approx(1.14, rel=0.01) and winner(cells[1].text) == "jax"
    plots.ratio_plot(cells)
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert [float(line.get_xdata()[0]) for line in points] == [cell.value.value for cell in cells]
    blue, orange = plots.COLOURS.values()
    assert [to_hex(line.get_color()) for line in points[:-1]] == [orange] + [blue] * 5  # the last is the same in both
    assert to_hex(points[-1].get_color()) not in (blue, orange)
    assert [line.get_markerfacecolor() for line in points].count("white") == 1
    intervals = [tuple(map(float, line.get_xdata())) for line in axes.lines if line.get_marker() == "|"]
    assert intervals == [cell.value[1:3] for cell in cells[1:]]
    band = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert (band.x0, band.x1) == pytest.approx((1 / SAME, SAME))


def test_winners_have_their_colour_and_plots_are_images_that_say_what_they_show():
    assert '<td class="left"><span class="jax">JAX 1.14×\n</span>(1.13 … 1.15)</td>' in page_of("plain")
    times = [f"{pass_name}: time of a call" for pass_name in ("score", "marginals")]
    assert values(page_of("plain"), "alt") == ["How many times as fast the faster framework is", *times]
    assert values(page_of("ladder"), "alt") == [f"score, {name}: time of a call" for name in ("single", "batch")]
    topics = ("time of a call", "first call, caches empty", "peak memory of a call")
    growth = page_of("growth")
    assert values(growth, "alt") == [f"{pass_name}: {one}" for pass_name in ("score", "marginals") for one in topics]
    for source in values(growth, "src"):
        svg = base64.b64decode(source.removeprefix("data:image/svg+xml;base64,"))
        assert minidom.parseString(svg).getElementsByTagName("svg")


def test_a_page_needs_no_other_file_and_leaves_matplotlib_as_it_was():
    page = page_of("plain")
    assert all(value.startswith("data:") for value in values(page, "src")) and not values(page, "href")
    assert "@import" not in page and "url(" not in page
    odd: Any = {"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "none"}
    with matplotlib.rc_context(odd):
        before = dict(matplotlib.rcParams.copy())
        assert html_report([recorded.plain()]) == page
        assert dict(matplotlib.rcParams.copy()) == before


# Markdown, read by a CommonMark reader; html is on: markup that got through would be markup
READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def cells_of(rendered: str, tag: str = "td") -> list[str]:
    return [html.unescape(cell) for cell in re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", rendered, re.DOTALL)]


@pytest.mark.parametrize("text", [recorded.HOSTILE, "snake_case *args [0] a|b `c` #1 ~~d~~ $x$ &lt; C:\\* -0.5%"])
def test_escaped_text_reads_as_it_was_written(text: str):
    assert html.unescape(READER.render(escaped(text))) == f"<p>{text}</p>\n"
    assert cells_of(READER.render(f"- {escaped(text)}"), "li") == [text]
    assert cells_of(READER.render(f"| a |\n|---|\n| {escaped(text)} |")) == [text]


@pytest.mark.parametrize("name", recorded.EVERY_KIND)
def test_markdown_lets_no_markup_through_and_rows_have_as_many_cells_as_heads(name: str):
    text, hostile = markdown_report([recorded.EVERY_KIND[name]()]), recorded.HOSTILE
    rendered = READER.render(text)
    tags = "h1 h2 h3 p ul li strong br table thead tbody tr th td pre code"
    assert set(re.findall(r"<(\w+)", rendered)) <= set(tags.split())
    for table in re.findall(r"<table>.*?</table>", rendered, re.DOTALL):
        assert {row.count("<td") for row in table.split("</tr>")[1:-1]} == {table.count("<th>") + table.count("<th ")}
    if name == "hostile":
        assert f"FAILED: {hostile}<br>{hostile}" in cells_of(rendered)
        assert {hostile, f"absent: {hostile}: {hostile}"} <= set(cells_of(rendered, "li"))


def of_machine(name: str, factor: float, text: str = "three pairs") -> Record:
    made = record(
        steady(case("jax", "vmap"), 0.1), steady(case("torch", "vmap"), 0.1 * factor),
        inputs={"batch": hand_made.facts(text)},
    )  # fmt: skip
    return replace(made, environment=made.environment | {"cpu": name})


def test_records_of_several_machines_are_shown_side_by_side():
    records = [of_machine("Abacus", 2.0), of_machine("Soroban", 0.5)]
    (table,) = side_by_side(records)
    assert table.headers == ("variant", "pass", "Abacus\n1 core", "Soroban\n1 core")
    assert table.below[-1] == "Input: three pairs."
    assert table.rows == [
        ("vmap", "score", "JAX 2.00×\n(1.98 … 2.02)\n100 ms / 200 ms", "PyTorch 2.00×\n(1.98 … 2.02)\n100 ms / 50.0 ms")
    ]
    page = markdown_report(records)
    assert escaped(table.title) in page and "Recorded on different machines or cores" in page
    assert "Recorded on" not in markdown_report(records[:1])
    labelled = [replace(result, case=replace(result.case, label="2 threads")) for result in records[0].results]
    assert side_by_side([records[1], replace(records[0], results=labelled)]) == []
    assert side_by_side([records[0], records[0]]) == []
    # another input of the same name has a row of its own
    (table,) = side_by_side([records[0], of_machine("Soroban", 0.5, "four pairs")])
    assert [(row[0], row[3:].index("–")) for row in table.rows] == [("three pairs", 1), ("four pairs", 0)]


VMAP, OTHER = case("jax", "vmap"), case("torch", "wavefront", "marginals", compiled=False)


def measured(of_case: Any, *seconds: float, **others: Any) -> Result:
    """A result whose workers each take so many seconds in every round."""
    return replace(steady(of_case, 1.0, **others), blocks=blocks_of_workers(*seconds, rounds=7))


ABOUT_250_MS = measured(VMAP, 0.2499, 0.25, 0.2501)
run = functools.partial(record, settings=Settings())


def row_compared(old: Result, new: Result) -> dict[str, str]:
    """The only row of a comparison, by column."""
    (table,) = compare_runs(run(old), run(new)).report.answer.tables
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
        ((5.0,), "20.0 (19.3 … 20.7; 1 process)", "slower"),
    ],
)
def test_a_case_is_slower_faster_the_same_or_unclear(seconds: tuple[float, ...], ratio: str, outcome: str):
    new = measured(VMAP, *seconds, cold=2.0, peak_bytes=2**20)
    row = row_compared(replace(ABOUT_250_MS, cold=[]), new)
    assert (row["old"], row["new / old"], row["outcome"]) == ("250 ms", ratio, outcome)
    assert (row[CACHES_EMPTY], row["memory"]) == ("– → 2.00 s", "3.0 MiB → 1.0 MiB")
    assert compare_runs(run(ABOUT_250_MS), run(new)).exit_code == (outcome == "slower")


@pytest.mark.parametrize(("status", "mark"), [("wrong", "WRONG"), ("failed", "FAILED"), ("limit", "over the limit")])
def test_a_case_that_one_run_did_not_measure_is_marked_and_not_compared(status: str, mark: str):
    bad, good = ended(OTHER, status, "because", blocks=blocks([1e-6] * 5, 4)), measured(OTHER, 0.25)
    assert list(row_compared(good, bad).values())[5:] == ["250 ms", f"{mark}: because", "–", status, "–", "–"]
    assert list(row_compared(bad, good).values())[5:] == [f"{mark}: because", "250 ms", *["–"] * 4]
    exits = [compare_runs(run(old), run(bad)).exit_code for old in (good, bad)]
    assert exits == [1, 1 if status == "wrong" else 2]
    tried = Result(OTHER, details={"outcomes": {}})  # without times
    assert [compare_runs(run(tried), run(new)).exit_code for new in (bad, tried)] == [1, 2]


def test_both_runs_are_described_and_the_summary_counts_a_case_that_is_missing():
    other = measured(OTHER, 0.25, 0.25, 0.25)
    old, new = run(ABOUT_250_MS, other), run(other, finished=None)
    changes = compare_runs(old, new)
    old_head, new_head = changes.report.head
    assert old_head.startswith("old: 2026-05-04T10:00:00+00:00 to 2026-05-04T10:05:12+00:00, commit 0123456789abcdef: ")
    assert new_head.startswith("new: 2026-05-04T10:00:00+00:00 to its interruption, commit ")
    assert changes.report.diagnostics == [
        "2 cases in the old run, 1 in the new one, 1 in both: 0 slower, 0 faster, 1 same, 1 missing"
    ]
    assert [row[-3] for row in changes.report.answer.tables[0].rows] == ["same", "missing"] and changes.exit_code == 1
    fewer = replace(new, settings=Settings(variants=("wavefront",)))  # it was not to measure the other case
    assert compare_runs(old, fewer).exit_code == 0
    assert compare_runs(Record("", Settings()), old).report.answer.tables == []


def test_differences_that_make_runs_hard_to_compare_are_warned_of():
    old, new = (run(ABOUT_250_MS, calibration_seconds=[0.005] * 3) for _ in range(2))
    # the code may differ, what is measured always does, and the machine a little
    new.environment.update(git_commit="fedcba987654", bandwidth_bytes_per_second=2e10)
    new.calibration_seconds = [0.0052] * 3
    assert compare_runs(old, new).report.warnings == []
    new.environment["cpu"], new.environment["frameworks"]["torch"]["threads"] = "Abacus 10", 2
    new.settings, new.calibration_seconds = Settings(dtype="float64"), [0.006] * 3
    new.inputs = {"batch": hand_made.facts("four pairs", (4, 6, 7))}
    assert compare_runs(old, new).report.warnings == [
        "the environments differ: cpu was Abacus 9, is Abacus 10",
        "the environments differ: torch threads was 1, is 2",
        "the settings differ: dtype was float32, is float64",
        "the input batch differs in text, shape, pairs, work, sha256: its cases are not compared",
        "the machine itself changed: its calibration loop took +20% in the new run",
    ]
