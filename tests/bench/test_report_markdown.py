"""The report as Markdown, read by a CommonMark reader: the same words and tables as the page, and text as text."""

import html
import re

import pytest
import recorded
from markdown_it import MarkdownIt
from rendered import markdown_report
from test_report_html import Read, intruders

from shared.bench.report.markdown import escaped

# html is on: markup that got through would be markup
READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def cells(rendered: str) -> list[str]:
    return [html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", rendered, re.DOTALL)]


def items(rendered: str) -> list[str]:
    return [html.unescape(item) for item in re.findall(r"<li>(.*?)</li>", rendered, re.DOTALL)]


@pytest.mark.parametrize(
    "text",
    [
        recorded.HOSTILE,
        "<class 'x'>",
        "snake_case_name *args [0] a|b `code` #1 ~~gone~~ $x$ &lt;",
        "1.19 ms, -0.5%",
        "C:\\*",
    ],
)
def test_escaped_text_reads_as_it_was_written(text: str):
    assert html.unescape(READER.render(escaped(text))) == f"<p>{text}</p>\n"
    assert items(READER.render(f"- {escaped(text)}")) == [text]
    assert cells(READER.render(f"| a |\n|---|\n| {escaped(text)} |")) == [text]


@pytest.mark.parametrize("name", recorded.EVERY_KIND)
def test_no_markup_gets_through_and_every_row_has_as_many_cells_as_its_head(name: str):
    rendered = READER.render(markdown_report([recorded.EVERY_KIND[name]()]))
    known = "h1 h2 h3 p ul li strong br table thead tbody tr th td pre code"
    assert {tag for tag, _ in Read(rendered).elements} <= set(known.split()) and intruders(rendered) == []
    for table in re.findall(r"<table>.*?</table>", rendered, re.DOTALL):
        assert {row.count("<td") for row in table.split("</tr>")[1:-1]} == {table.count("<th>") + table.count("<th ")}


def test_hostile_text_reads_as_it_was_written():
    text, hostile = markdown_report([recorded.hostile()]), recorded.HOSTILE
    rendered = READER.render(text)
    assert f"FAILED: {hostile}<br>{hostile}" in cells(rendered)
    assert {hostile, f"absent: {hostile}: {hostile}"} <= set(items(rendered))
    assert "script" in intruders(READER.render(text.replace(escaped(hostile), hostile)))


def test_the_answer_comes_before_the_numbers():
    text = markdown_report([recorded.plain()])
    parts = (
        "### Which framework is faster",
        "- **score**: JAX (fused, ",
        "### Every number, and diagnostics",
        "### Time of a call",
        "- every time passed",
    )
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_an_interrupted_run_says_so():
    warning = "**This run was not finished. It shows what was measured until it ended.**"
    assert warning in markdown_report([recorded.begun()])
