import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import matplotlib
import pytest
from markupsafe import escape
from shared.bench.plan import Settings
from shared.bench.report.cases import case_table
from shared.bench.report.plots import plots
from shared.bench.report.scales import shown

from shared.bench.record import Record
from shared.bench.report.html import html_report
from tests import recorded

EVERY_KIND = {
    name: getattr(recorded, name)
    for name in ("plain", "ladder", "sweep", "troubled", "alone", "hostile", "interrupted", "begun")
}


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


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: html_report([make()]) for name, make in EVERY_KIND.items()}


def test_a_hostile_name_is_escaped(pages: dict[str, str]):
    page = pages["hostile"]
    assert intruders(page) == []
    assert recorded.HOSTILE not in page
    assert page.count(str(escape(recorded.HOSTILE))) > 40


def test_a_name_that_was_not_escaped_is_noticed(pages: dict[str, str]):
    page = pages["hostile"].replace(str(escape(recorded.HOSTILE)), recorded.HOSTILE, 1)
    assert intruders(page) == ["script"]


@pytest.mark.parametrize(
    "where",
    ["command", "resumed_by", "facts", "environment name", "environment value", "setting", "note", "missing", "absent",
     "reason", "retrace note", "gate", "reference", "variant in the table", "gpu", "version"],
)  # fmt: skip
def test_hostile_text_reads_as_it_was_written(pages: dict[str, str], where: str):
    hostile = recorded.HOSTILE
    expected = {
        "command": f"python compare.py --input '{hostile}' ```` ~~~\n{hostile}",
        "resumed_by": f"python compare.py --input '{hostile}' ```` ~~~\n{hostile}",
        "facts": f"{hostile}; 2,678,757 cells",
        "environment name": f"{hostile} / {hostile}",
        "environment value": f"{hostile}, line\nbreak �[31m�",
        "setting": f"arguments / {hostile}",
        "note": f"# {hostile}\n- {hostile}",
        "missing": f"PyTorch was not measured: {hostile}",
        "absent": f"absent: {hostile}: {hostile}",
        "reason": f"FAILED: {hostile}\n{hostile}",
        "retrace note": f"new shape not measured: JAX fused score, {hostile}, "
        f"PyTorch fused score, {hostile}, not compiled, JAX fused marginals, {hostile}, "
        f"PyTorch fused marginals, {hostile}, not compiled: {hostile}",
        "gate": f"pairs too large for the NumPy reference were gated by {hostile}",
        "reference": "1.00 s",
        "variant in the table": f"JAX {hostile}",
        "gpu": f"{hostile}, {hostile}, 1 core",
        "version": f"JAX {hostile}, PyTorch 2.13.0",
    }
    assert expected[where] in Read(pages["hostile"]).texts


def test_a_variant_is_not_taken_for_mathematics_or_markup_in_a_plot():
    drawn = [Read(plot.svg) for plot in plots(recorded.hostile(), "key")]
    assert len(drawn) == 4
    for svg in drawn:
        assert shown(recorded.HOSTILE, 46) in svg.texts
        assert {tag for tag, _ in svg.elements} <= {
            "svg",
            "defs",
            "g",
            "path",
            "clippath",
            "rect",
            "text",
            "use",
            "pattern",
        }


def test_the_verdict_comes_first(pages: dict[str, str]):
    ids = [
        value for value in Read(pages["plain"]).values("id") if value in ("verdict", "plots", "numbers", "conditions")
    ]
    assert ids == ["verdict", "plots", "numbers", "conditions"]


def test_a_card_names_the_winner_the_factor_and_the_interval(pages: dict[str, str]):
    texts = Read(pages["plain"]).texts
    assert "JAX 1.14×" in texts and "as fast as PyTorch" in texts
    assert any(re.fullmatch(r"95% interval 1\.\d+ … 1\.\d+", text) for text in texts)


def test_a_card_names_no_winner_where_there_is_no_difference(pages: dict[str, str]):
    page = pages["plain"]
    assert page.count('class="card tone-even"') == 1 and page.count('class="card tone-jax"') == 1
    assert "No difference" in Read(page).texts


def test_one_round_decides_nothing(pages: dict[str, str]):
    page = pages["ladder"]
    assert Read(page).texts.count("Not decided") == 4
    assert "tone-jax" not in page.split("</style>")[1]


def test_one_framework_wins_nothing(pages: dict[str, str]):
    assert Read(pages["alone"]).texts.count("Only JAX") == 2


@pytest.mark.parametrize("name", ["interrupted", "begun"])
def test_a_run_without_numbers_says_so(pages: dict[str, str], name: str):
    texts = Read(pages[name]).texts
    assert "This run was not finished. It shows what was measured until it ended." in texts
    assert "No case was measured." in texts
    assert "<svg" not in pages[name]


def test_a_wrong_result_has_no_time():
    table = case_table(recorded.troubled())
    row = dict(zip(table.headers, table.rows[0], strict=True))
    assert row["status"] == "WRONG: score off by 2.0e+00 for pair 3, allowed 1.0e-05"
    assert row["error, of allowed"] == "not finite"
    assert [name for name, cell in row.items() if re.search(r"\d (s|ms|µs)$", cell)] == []


def test_wrong_and_failed_cases_are_announced(pages: dict[str, str]):
    texts = Read(pages["troubled"]).texts
    assert "1 case gave a wrong result. The reason is in the table of all cases." in texts
    assert "1 case failed. The reason is in the table of all cases." in texts
    assert {"WRONG", "FAILED", "over the limit"} <= set(texts)


def test_the_table_of_cases_has_every_number():
    table = case_table(recorded.plain())
    assert len(table.rows) == 12
    row = dict(zip(table.headers, table.rows[0], strict=True))
    median, interval = row.pop("median"), row.pop("95% interval")
    assert re.fullmatch(r"16\d ms", median) and re.fullmatch(r"1\d\d ms … 1\d\d ms", interval)
    assert re.fullmatch(r"[+-]\d+\.\d%", row.pop("drift"))
    assert re.fullmatch(r"0\.016\d?", row.pop("GCUPS")) and re.fullmatch(
        r"0\.9\d%|1\.0\d%", row.pop("of the bandwidth's limit")
    )
    assert row == {
        "pass": "score", "case": "JAX vmap", "compiled": "yes", "first call, cold": "600 ms", "tracing": "180 ms",
        "compiling": "360 ms", "first call, warm": "148 ms", "new shape": "300 ms", "samples": "120", "rounds": "20",
        "workers": "4", "warm-up calls": "3 … 8", "outliers": row["outliers"], "peak memory": "25.0 MiB",
        "input bytes": "17.0 MiB", "output bytes": "480 B", "kernel build": "–", "error, of allowed": "11.0%",
        "status": "ok",
    }  # fmt: skip


def test_a_ladder_shows_both_calls_and_no_interval():
    headers = case_table(recorded.ladder()).headers
    assert "first call" in headers and "second call" in headers and "95% interval" not in headers


def test_a_case_without_samples_is_not_timed():
    made = recorded.plain()
    made.results[0].blocks = []
    assert case_table(made).rows[0][-1] == "not timed"


def test_a_sweep_is_drawn_over_size():
    titles = [plot.title for plot in plots(recorded.sweep(), "key")]
    what = ["time of a call", "first call, caches empty", "peak memory of a call", "cells per second (GCUPS)"]
    assert titles == [f"{pass_name}: {title}" for pass_name in ("score", "marginals") for title in what]


def test_a_sweep_of_oblong_sizes_is_drawn_over_cells():
    drawn = plots(recorded.sweep(((32, 64), (64, 32), (100, 200))), "key")
    assert "cells in a call" in Read(drawn[0].svg).texts


def test_a_plot_without_data_is_left_out():
    made = recorded.sweep()
    for entry in made.results:
        entry.peak_bytes = None
    assert not any("memory" in plot.title for plot in plots(made, "key"))


def test_without_a_measured_bandwidth_there_is_no_limit():
    made = recorded.plain()
    assert any("bandwidth" in plot.reading for plot in plots(made, "key"))
    for none in ({"bandwidth_bytes_per_second": None}, {}):
        made.environment = {"cpu": "Abacus 9"} | none
        assert not any("bandwidth" in plot.reading for plot in plots(made, "key"))
        assert "of the bandwidth's limit" not in case_table(made).headers


def test_the_limit_is_what_reading_and_writing_once_allows():
    table = case_table(recorded.record([half_of_the_limit()]))
    row = dict(zip(table.headers, table.rows[0], strict=True))
    assert (row["GCUPS"], row["of the bandwidth's limit"]) == ("0.5", "50.00%")


def half_of_the_limit():
    of = recorded.result(recorded.case("jax", "vmap"), 1.0, 0, work=10**9)
    of.blocks = [block._replace(seconds=(2.0,)) for block in of.blocks]
    return replace(of, input_bytes=10 * 10**9, output_bytes=13 * 10**8)


def test_what_was_not_compiled_is_marked(pages: dict[str, str]):
    texts = Read(pages["plain"]).texts
    assert sum(text.endswith(", not compiled") and "ms" in text for text in texts) == 4


@pytest.mark.parametrize("name", EVERY_KIND)
def test_the_page_needs_nothing_else(pages: dict[str, str], name: str):
    read = Read(pages[name])
    assert read.values("src") == []
    assert all(value.startswith("#") or value == "data:," for value in read.values("href"))
    assert "@import" not in pages[name] and not re.search(r"url\((?!#)", pages[name])


def test_no_two_elements_share_an_id_and_every_reference_has_its_element():
    page = html_report([recorded.plain(), recorded.sweep(), recorded.ladder(), recorded.plain()])
    read = Read(page)
    counted = Counter(read.values("id"))
    assert [name for name, count in counted.items() if count > 1] == []
    wanted = {value[1:] for value in read.values("href") if value.startswith("#")}
    wanted |= set(re.findall(r"url\(#([^)]+)\)", page)) | set(read.values("aria-labelledby"))
    assert len(wanted) > 50 and wanted <= set(counted)


def test_every_plot_says_what_it_is_to_who_does_not_see_it(pages: dict[str, str]):
    drawn = [attributes for tag, attributes in Read(pages["plain"]).elements if tag == "svg"]
    assert [attributes["aria-label"] for attributes in drawn] == [
        f"{pass_name}: {what}"
        for pass_name in ("score", "marginals")
        for what in ("time of a call", "cells per second")
    ]
    assert {attributes["role"] for attributes in drawn} == {"img"}


@pytest.mark.parametrize("make", [recorded.plain, recorded.sweep])
def test_every_colour_of_a_plot_is_the_page_s(make):
    drawn = [plot.svg for plot in plots(make(), "key")]
    assert not any(re.search(r"#[0-9a-f]{6}\b|font-family|'DejaVu", svg) for svg in drawn)
    assert all("var(--jax)" in svg and "var(--torch)" in svg for svg in drawn)


def test_a_report_is_always_the_same_and_leaves_matplotlib_as_it_was():
    before = dict(matplotlib.rcParams.copy())
    first = html_report([recorded.plain()])
    assert dict(matplotlib.rcParams.copy()) == before
    odd: Any = {"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path", "text.parse_math": True}
    with matplotlib.rc_context(odd):
        assert html_report([recorded.plain()]) == first


def test_several_records_go_into_one_page():
    gpu = recorded.plain()
    gpu.settings = replace(gpu.settings or Settings(), device="cuda")
    read = Read(html_report([recorded.plain(), gpu]))
    assert "JAX and PyTorch compared: smith_waterman on cpu, smith_waterman on cuda" in read.texts
    assert read.texts.count("smith_waterman on cuda") == 4


def test_records_of_the_same_kind_are_told_apart():
    read = Read(html_report([recorded.plain(), recorded.sweep()]))
    assert [read.texts.count(f"smith_waterman on cpu ({number})") for number in (1, 2, 3)] == [4, 4, 0]


def test_every_record_is_shown_after_it_was_written_and_read(pages: dict[str, str]):
    assert html_report([Record.from_json(recorded.plain().as_json())]) == pages["plain"]
