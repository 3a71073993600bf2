"""The report as a page: the answer first, every number below, text as text, and nothing from elsewhere."""

import functools
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import matplotlib
import pytest
import recorded
from markupsafe import escape

from shared.bench.cases import Settings
from shared.bench.report.case_table import case_table
from shared.bench.report.html import html_report


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
    return [tag for tag, _ in elements if tag in ("script", "iframe", "img", "object", "foreignobject")] + [
        name for _, attributes in elements for name in attributes if name.startswith("on")
    ]


@functools.cache
def page_of(name: str) -> str:
    return html_report([recorded.EVERY_KIND[name]()])


def row_of_first(record: Any) -> dict[str, str]:
    """The first row of the table of all cases, by column."""
    table = case_table(record)
    return dict(zip(table.headers, table.rows[0], strict=True))


# text is text


def test_hostile_text_is_escaped_everywhere():
    page, hostile = page_of("hostile"), recorded.HOSTILE
    assert intruders(page) == [] and hostile not in page
    assert intruders(page.replace(str(escape(hostile)), hostile, 1)) == ["script"]
    read = Read(page)
    assert {
        f"python compare.py --input '{hostile}' ```` ~~~\n{hostile}",
        f"input: {hostile}; 126 cells",
        f"{hostile} / {hostile}",
        f"{hostile}, line\nbreak \N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}",
        f"# {hostile}\n- {hostile}",
        f"PyTorch was not measured: {hostile}",
        f"absent: {hostile}: {hostile}",
        f"FAILED: {hostile}\n{hostile}",
        f"Not compiled in PyTorch: {hostile}.",
    } <= set(read.texts)
    # in a plot neither mathematics nor markup, and cut where it is long
    assert f"JAX {hostile[:29]}…" in read.texts
    assert any(text.endswith(f"By {hostile}.") for text in read.texts)


# what is where


def test_the_answer_comes_first():
    headings = re.findall(r"<h3>(.*?)</h3>", page_of("plain"))
    assert headings == ["Which framework is faster", "First calls", "Plots", "All cases", "Diagnostics", "Conditions"]


def test_a_cell_of_the_answer_has_the_colour_of_the_faster_framework():
    tones = {
        text.split("\n")[0]: tone
        for tone, text in re.findall(r'<td class="left( jax| torch|)">([^<]*)</td>', page_of("plain"))
    }
    assert (tones["JAX 1.14×"], tones["same"]) == (" jax", "")


@pytest.mark.parametrize("name", ["interrupted", "begun"])
def test_a_run_without_numbers_says_so(name: str):
    texts = Read(page_of(name)).texts
    assert "This run was not finished. It shows what was measured until it ended." in texts
    assert "Nothing was measured." in texts and "<svg" not in page_of(name)


def test_every_plot_says_what_it_shows():
    shown = {
        name: [attributes["aria-label"] for tag, attributes in Read(page_of(name)).elements if tag == "svg"]
        for name in ("plain", "ladder", "growth")
    }
    times = [f"{pass_name}: time of a call" for pass_name in ("score", "marginals")]
    assert shown["plain"] == times
    assert shown["ladder"] == [f"score, {name}: time of a call" for name in ("single", "batch")]
    assert shown["growth"] == [
        f"{pass_name}: {what}"
        for pass_name in ("score", "marginals")
        for what in ("time of a call", "first call, caches empty", "peak memory of a call")
    ]
    assert any("Unfilled bars were not compiled." in text for text in Read(page_of("plain")).texts)
    assert {"cells in a call", "PyTorch fused not compiled"} <= set(Read(page_of("growth")).texts)


# the table of all cases


def test_the_table_of_all_cases_has_every_number():
    made = recorded.plain()
    made.results[0].blocks = [replace(block, seconds=(0.16,) * 6) for block in made.results[0].blocks]
    row = row_of_first(made)
    assert len(case_table(made).rows) == 12
    assert row == {
        "pass": "score", "framework": "JAX", "variant": "vmap (auto)", "compiled": "yes", "first call": "600 ms",
        "tracing": "180 ms", "compiling": "360 ms", "new process": "148 ms", "new shape": "300 ms",
        "median": "160 ms", "95% interval": "160 ms … 160 ms", "samples": "120", "rounds": "20", "workers": "4",
        "warm-up calls": "3 … 8", "outliers": "0", "drift": "+0.0%", "GCUPS": "0.0125", "of the limit": "1.11%",
        "memory": "25.0 MiB", "input bytes": "17.0 MiB", "output bytes": "480 B", "kernel build": "–",
        "error, of allowed": "11.0%", "status": "ok",
    }  # fmt: skip
    made.results[0].blocks = []
    assert row_of_first(made)["status"] == "not timed"


def test_a_wrong_result_has_no_time():
    row = row_of_first(recorded.troubled())
    assert row["status"] == "WRONG: score off by 2.0e+00 for pair 3, allowed 1.0e-05"
    assert row["error, of allowed"] == "not finite"
    assert [name for name, cell in row.items() if re.search(r"\d (s|ms|µs)$", cell)] == []


def test_a_run_without_rounds_has_no_columns_of_rounds():
    assert case_table(recorded.ladder()).headers == (
        "pass", "input", "framework", "variant", "compiled", "first call", "median", "status"
    )  # fmt: skip


# the whole page


def test_the_page_needs_nothing_else():
    page = page_of("plain")
    read = Read(page)
    assert read.values("src") == []
    assert all(value.startswith("#") or value == "data:," for value in read.values("href"))
    assert "@import" not in page and not re.search(r"url\((?!#)", page)


def test_records_on_one_page_are_told_apart():
    gpu = recorded.plain()
    gpu.settings = Settings(device="cuda")
    page = html_report([recorded.plain(), recorded.with_picture(), gpu])
    read = Read(page)
    assert "JAX and PyTorch compared: smith_waterman" in read.texts
    headings = [f"speed: smith_waterman on {where}" for where in ("cpu (1)", "cpu (2)", "cuda")]
    assert [read.texts.count(heading) for heading in headings] == [2, 2, 2]
    # identifiers are unique, and every reference has its element
    counted = Counter(read.values("id"))
    assert [name for name, count in counted.items() if count > 1] == []
    wanted = {value[1:] for value in read.values("href") if value.startswith("#")}
    wanted |= set(re.findall(r"url\(#([^)]+)\)", page)) | set(read.values("aria-labelledby"))
    assert len(wanted) > 20 and wanted <= set(counted)


def test_a_page_is_always_the_same_and_leaves_matplotlib_as_it_was():
    odd: Any = {"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path", "text.parse_math": True}
    with matplotlib.rc_context(odd):
        before = dict(matplotlib.rcParams.copy())
        assert html_report([recorded.plain()]) == page_of("plain")
        assert dict(matplotlib.rcParams.copy()) == before
