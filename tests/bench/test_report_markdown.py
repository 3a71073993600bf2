"""The report as Markdown, read by a CommonMark reader: the same words and tables as the page, and text as text."""

import html
import re

import pytest
import recorded
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from test_report_html import Read, intruders

from shared.bench.report.markdown import escaped, fenced, markdown_report
from shared.bench.report.tables import printable

# html is on: markup that got through would be markup
READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def cells(rendered: str) -> list[str]:
    return [html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", rendered, re.DOTALL)]


def items(rendered: str) -> list[str]:
    return [html.unescape(item) for item in re.findall(r"<li>(.*?)(?:\n<ul>|</li>)", rendered, re.DOTALL)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# heading", r"\# heading"),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
        ("1.19 ms", "1.19 ms"),
        ("-0.5%", "-0.5%"),
        ("two\nlines", "two lines"),
        ("\x1b[31m", "\N{REPLACEMENT CHARACTER}\\[31m"),
        ("===", r"\==="),
    ],
)
def test_only_text_that_would_begin_something_is_escaped(text: str, expected: str):
    assert escaped(text) == expected


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("\\`*_[]()<>&#|~$-+=.!1 \n"), min_size=1))
def test_escaped_text_reads_as_it_was_written(text: str):
    seen = " ".join(printable(text).split())
    if seen:
        assert html.unescape(READER.render(escaped(text))) == f"<p>{seen}</p>\n"
        assert items(READER.render(f"- {escaped(text)}")) == [seen]
        assert cells(READER.render(f"| a |\n|---|\n| {escaped(text)} |")) == [seen]


@given(st.text("`~ a\n", min_size=1))
def test_nothing_ends_a_block_of_code_early(text: str):
    rendered = READER.render(f"{fenced(text)}\n\nafter")
    assert rendered == f"<pre><code>{text}\n</code></pre>\n<p>after</p>\n"


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
    assert {hostile, f"FAILED: {hostile}<br>{hostile}", f"{hostile} / {hostile}"} <= set(cells(rendered))
    assert {hostile, f"# {hostile} - {hostile}", f"absent: {hostile}: {hostile}"} <= set(items(rendered))
    assert f"python compare.py --input '{hostile}' ```` ~~~\n{hostile}\n" in html.unescape(rendered)
    assert "script" in intruders(READER.render(text.replace(escaped(hostile), hostile)))


def test_the_answer_comes_before_the_numbers():
    text = markdown_report([recorded.plain()])
    parts = ("### Which framework is faster", "- **score**: the same", "### All cases", "### Settings", "```")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_an_interrupted_run_says_so():
    text = markdown_report([recorded.interrupted()])
    assert "Nothing was measured." in text and text.endswith("Not started; not finished.\n")
    warning = "**This run was not finished. It shows what was measured until it ended.**"
    assert warning in markdown_report([recorded.begun()])


def test_records_of_the_same_kind_are_told_apart():
    text = markdown_report([recorded.plain(), recorded.plain()])
    assert [text.count(f"## speed: smith\\_waterman on cpu ({number})\n") for number in (1, 2)] == [1, 1]
