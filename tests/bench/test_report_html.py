"""The report as a page: the answer first, every number below, text as text, and nothing from elsewhere."""

import base64
import functools
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.dom import minidom

import matplotlib
import pytest
import recorded
from hand_made import case, record, steady
from markupsafe import escape
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from rendered import html_report, report_of

from shared.bench.cases import Settings
from shared.bench.estimates import SAME, Block, Estimate
from shared.bench.questions import QUESTIONS
from shared.bench.report import plots
from shared.bench.report.case_table import CACHES_EMPTY, CACHES_WARM, case_tables
from shared.bench.report.tables import Point, winner


class Read(HTMLParser):
    """The elements of a page, their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())

    def values(self, attribute: str) -> list[str]:
        return [value for _, attributes in self.elements if (value := attributes.get(attribute))]


def intruders(page: str) -> list[str]:
    """What only text that was taken for markup could have put there."""
    elements = Read(page).elements
    return [tag for tag, _ in elements if tag in ("script", "iframe", "object", "foreignobject")] + [
        name for _, attributes in elements for name in attributes if name.startswith("on")
    ]


@functools.cache
def page_of(name: str) -> str:
    return html_report([recorded.EVERY_KIND[name]()])


def row_of_first(record: Any) -> dict[str, str]:
    """The first row of the tables of all cases, by column."""
    return {
        name: cell for table in case_tables(record) for name, cell in zip(table.headers, table.rows[0], strict=True)
    }


def test_hostile_text_is_escaped_everywhere():
    page, hostile = page_of("hostile"), recorded.HOSTILE
    assert intruders(page) == [] and hostile not in page
    assert intruders(page.replace(str(escape(hostile)), hostile, 1)) == ["script"]
    assert {
        f"input: {hostile}; 126 cells",
        f"PyTorch was not measured: {hostile}",
        f"absent: {hostile}: {hostile}",
        f"FAILED: {hostile}\n{hostile}",
        f"Not compiled in PyTorch: {hostile}.",
    } <= set(Read(page).texts)


def test_the_answer_comes_first():
    headings = re.findall(r"<h3>(.*?)</h3>", page_of("plain"))
    answer = ["Which framework is faster", "What first calls of marginals and the code cost", "First calls"]
    assert headings == [*answer, "Time of a call", "Memory and errors"]
    terms = {text for text in Read(page_of("plain")).texts if text.startswith(("score: the forward", "vmap: a batch"))}
    assert len(terms) == 2


def test_a_page_of_several_records_folds_all_but_their_answers():
    several = html_report([recorded.plain(), recorded.ladder()])
    assert several.count("<details>") == 2 and page_of("plain").count("<details open>") == 1


def summary(*records: Any) -> list[str]:
    """The lines above the parts of a page."""
    nav = re.search(r"<nav>(.*?)</nav>", html_report(records), re.DOTALL)
    assert nav
    lines = re.findall(r"<li>(.*?)</li>", nav[1], re.DOTALL)
    return [" ".join(re.sub("<.*?>", "", line).split()) for line in lines]


def test_a_page_of_several_records_opens_with_a_line_of_each():
    speed, ladder, begun = summary(recorded.plain(), recorded.ladder(), recorded.begun())
    assert "marginals: JAX 1.14× (the same loop, compiled), JAX 1.14× (tuned framework code), JAX 1.14×" in speed
    assert "JAX from 4.00 s (cell_loop, not compiled)" in ladder
    assert begun == "speed: smith_waterman on cpu, 2026-05-04, three pairs: score: no case was measured."
    nothing = replace(recorded.begun(), settings=Settings("threads"))
    learning, threads = summary(recorded.learning(), nothing)
    assert "learning: The faster framework:" in learning
    assert threads.startswith(f"threads: {QUESTIONS['threads'].asks}")


@pytest.mark.parametrize(
    ("line", "expected"),
    [("JAX 1.9×", "jax"), ("PyTorch about 29×\n", "torch"), ("JAX 1e+05×", "jax"), ("PyTorch or same", "torch perhaps"),
     ("JAX from call 1", "jax"), ("JAX from call 160", "jax perhaps"), ("PyTorch up to call 1,200", "torch perhaps"),
     ("JAX only", ""), ("JAX", ""), ("PyTorch fused", ""), ("JAX 0.10.2: in Python 3.11", ""), ("same", ""),
     ("no clear winner", ""), ("", "")],
)  # fmt: skip
def test_a_winner_is_told_from_a_framework_that_is_only_named(line: str, expected: str):
    assert winner(line) == expected


def test_winners_have_the_colour_of_their_framework_in_tables():
    assert '<td class="left"><span class="jax">JAX 1.14×\n</span>(1.13 … 1.15)</td>' in page_of("plain")
    assert '<td class="left">JAX</td>' in page_of("plain")


@pytest.mark.parametrize("seconds", [0.1, 0.4])
def test_ratios_are_of_pytorch_over_jax(seconds: float):
    made = record(steady(case("jax", "vmap"), 0.2), steady(case("torch", "vmap"), seconds))
    (ratio,) = report_of(made).answer.ratios
    assert ratio[:2] == ("score", "the same loop, compiled") and ratio.value.value == pytest.approx(seconds / 0.2)
    assert winner(ratio.text) == ("jax" if seconds > 0.2 else "torch")


def test_the_picture_has_a_point_for_each_cell_around_the_band(monkeypatch: pytest.MonkeyPatch):
    axes: Any = Figure().subplots()
    monkeypatch.setattr(plots, "drawn", lambda draw, *_: draw(axes))
    made = recorded.plain()
    cells = [
        Point("marginals", "one process", "PyTorch about 3×", Estimate(1 / 3, 0.2, 0.5, 1, False)),
        *report_of(made).answer.ratios,
    ]
    plots.picture(cells)
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert [float(line.get_xdata()[0]) for line in points] == [cell.value.value for cell in cells]
    blue, orange = plots.COLOURS.values()
    assert [to_hex(line.get_color()) for line in points[:-1]] == [orange] + [blue] * 5  # the last is the same in both
    assert to_hex(points[-1].get_color()) not in (blue, orange)
    assert [line.get_markerfacecolor() for line in points].count("white") == 1
    intervals = [(float(low), float(high)) for line in axes.lines if line.get_marker() == "|"
                 for low, high in [line.get_xdata()]]  # fmt: skip
    assert intervals == [cell.value[1:3] for cell in cells[1:]]
    band = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert (band.x0, band.x1) == pytest.approx((1 / SAME, SAME))
    low, high = axes.get_xlim()
    assert low * high == pytest.approx(1) and low < 1 / 3


def test_a_run_without_numbers_says_so():
    text = "This run was not finished. It shows what was measured until it ended."
    assert text in Read(page_of("begun")).texts and "<img" not in page_of("begun")


def test_every_plot_is_an_image_that_says_what_it_shows():
    shown = {name: Read(page_of(name)).values("alt") for name in ("plain", "ladder", "growth")}
    times = [f"{pass_name}: time of a call" for pass_name in ("score", "marginals")]
    assert shown["plain"] == ["How many times as fast the faster framework is", *times]
    assert shown["ladder"] == [f"score, {name}: time of a call" for name in ("single", "batch")]
    assert shown["growth"] == [
        f"{pass_name}: {what}"
        for pass_name in ("score", "marginals")
        for what in ("time of a call", "first call, caches empty", "peak memory of a call")
    ]
    for source in Read(page_of("growth")).values("src"):
        svg = base64.b64decode(source.removeprefix("data:image/svg+xml;base64,"))
        assert minidom.parseString(svg).getElementsByTagName("svg")


def test_the_table_of_all_cases_has_every_number():
    made = recorded.plain()
    made.results[0].blocks = [Block.of(block.worker, block.round, (0.16,) * 6) for block in made.results[0].blocks]
    row = row_of_first(made)
    assert [len(table.rows) for table in case_tables(made)] == [12] * 3
    assert row == {
        "pass": "score", "framework": "JAX", "variant": "vmap (auto)", "compiled": "yes", CACHES_EMPTY: "600 ms",
        "tracing": "180 ms", "compiling": "360 ms", CACHES_WARM: "148 ms\n(115 … 190 ms; 2 processes)",
        "new shape": "300 ms", "second\nnew shape": "150 ms",
        "median": "160 ms", "95% interval": "159 … 161 ms", "samples": "120", "rounds": "20", "workers": "4",
        "GCUPS": "0.0125", "of the limit": "1.11%", "memory": "25.0 MiB", "input bytes": "17.0 MiB",
        "output bytes": "480 B", "error, of allowed": "11.0%", "status": "ok",
    }  # fmt: skip
    made.results[0].blocks = []
    assert row_of_first(made)["status"] == "not timed"


def test_a_wrong_result_has_no_time():
    row = row_of_first(recorded.troubled())
    assert row["status"] == "WRONG: score off by 2.0e+00 for pair 3, allowed 1.0e-05"
    assert row["error, of allowed"] == "not finite"
    assert [name for name, cell in row.items() if re.search(r"\d (s|ms|µs)$", cell)] == []


def test_a_run_without_rounds_has_no_columns_of_rounds():
    names = ("pass", "input", "framework", "variant", "compiled")
    assert [table.headers for table in case_tables(recorded.ladder())] == [
        (*names, "median", "status"), (*names, CACHES_EMPTY)
    ]  # fmt: skip


def test_the_page_needs_nothing_else():
    page = page_of("plain")
    assert all(value.startswith("data:") for value in Read(page).values("src")) and not Read(page).values("href")
    assert "@import" not in page and "url(" not in page


def test_a_page_is_always_the_same_and_leaves_matplotlib_as_it_was():
    odd: Any = {"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "none"}
    with matplotlib.rc_context(odd):
        before = dict(matplotlib.rcParams.copy())
        assert html_report([recorded.plain()]) == page_of("plain")
        assert dict(matplotlib.rcParams.copy()) == before
