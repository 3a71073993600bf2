"""The report as a page: the answer first, every number below, text as text, and nothing from elsewhere."""

import base64
import functools
import re
from html.parser import HTMLParser
from typing import Any
from xml.dom import minidom

import matplotlib
import recorded
from markupsafe import escape
from rendered import html_report

from shared.bench.estimates import Block
from shared.bench.report.case_table import CACHES_EMPTY, CACHES_WARM, case_tables


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
    asked = "which framework is faster per call, for how much code; what does the first call cost, when does it pay"
    assert f"</a>: {asked}; {next(iter(recorded.plain().inputs.values())).text}</li>" in several


def test_a_run_without_numbers_says_so():
    text = "This run was not finished. It shows what was measured until it ended."
    assert text in Read(page_of("begun")).texts and "<img" not in page_of("begun")


def test_every_plot_is_an_image_that_says_what_it_shows():
    shown = {name: Read(page_of(name)).values("alt") for name in ("plain", "ladder", "growth")}
    assert shown["plain"] == [f"{pass_name}: time of a call" for pass_name in ("score", "marginals")]
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
