import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from shared.bench.report.rows import printable

from shared.bench.report.markdown import escaped, fenced, markdown_report
from tests import recorded
from tests.test_report_html import EVERY_KIND, Read, intruders

# html is on: markup that got through would be markup
READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def plainly(text: str) -> str:
    """What a reader sees of a line."""
    return " ".join(printable(text).split())


def cells(rendered: str) -> list[str]:
    return [html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", rendered, re.DOTALL)]


def items(rendered: str) -> list[str]:
    return [html.unescape(item) for item in re.findall(r"<li>(.*?)(?:\n<ul>|</li>)", rendered, re.DOTALL)]


def test_hostile_text_is_escaped_exactly():
    assert escaped(recorded.HOSTILE) == (
        r"&lt;script&gt;alert(1)&lt;/script&gt; &amp; "
        r'"x" \$a\_b\$ \| \* \` &lt;/style&gt; --&gt; \\ \[y\](z) &amp;lt; ' + "'q'"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# heading", r"\# heading"),
        ("- item", r"\- item"),
        ("---", r"\---"),
        ("1. item", r"1\. item"),
        ("1.19 ms", "1.19 ms"),
        ("-0.5%", "-0.5%"),
        ("two\nlines", "two lines"),
        ("\x1b[31m", "\N{REPLACEMENT CHARACTER}\\[31m"),
        ("~~struck~~", r"\~\~struck\~\~"),
        ("===", r"\==="),
    ],
)
def test_text_that_would_begin_something_is_escaped(text: str, expected: str):
    assert escaped(text) == expected


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("\\`*_[]()<>&#|~$-+=.!1 \n"), min_size=1))
def test_escaped_text_reads_as_it_was_written(text: str):
    seen = plainly(text)
    if seen:
        assert html.unescape(READER.render(escaped(text))) == f"<p>{seen}</p>\n"
        assert items(READER.render(f"- {escaped(text)}")) == [seen]
        assert cells(READER.render(f"| a |\n|---|\n| {escaped(text)} |")) == [seen]


@given(st.text("`~ a\n", min_size=1))
def test_nothing_ends_a_block_of_code_early(text: str):
    rendered = READER.render(f"{fenced(text)}\n\nafter")
    assert rendered == f"<pre><code>{text}\n</code></pre>\n<p>after</p>\n"


def test_a_fence_is_longer_than_any_backticks_inside():
    assert fenced("a ```` b").splitlines() == ["`````", "a ```` b", "`````"]


@pytest.mark.parametrize("name", EVERY_KIND)
def test_no_markup_gets_through(name: str):
    rendered = READER.render(markdown_report([EVERY_KIND[name]()]))
    assert intruders(rendered) == []
    known = {
        "h1",
        "h2",
        "h3",
        "h4",
        "p",
        "ul",
        "li",
        "strong",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "pre",
        "code",
    }
    assert {tag for tag, _ in Read(rendered).elements} <= known


def test_markup_that_got_through_is_noticed():
    text = markdown_report([recorded.hostile()]).replace(escaped(recorded.HOSTILE), recorded.HOSTILE)
    assert "script" in intruders(READER.render(text))


def test_hostile_cells_and_notes_read_as_they_were_written():
    rendered = READER.render(markdown_report([recorded.hostile()]))
    hostile = recorded.HOSTILE
    found = cells(rendered)
    assert {f"JAX {hostile}", f"FAILED: {hostile} {hostile}", f"{hostile} / {hostile}"} <= set(found)
    assert {hostile, f"# {hostile} - {hostile}", f"absent: {hostile}: {hostile}"} <= set(items(rendered))
    assert f"python compare.py --input '{hostile}' ```` ~~~\n{hostile}\n" in html.unescape(rendered)


@pytest.mark.parametrize("name", EVERY_KIND)
def test_every_row_has_as_many_cells_as_its_head(name: str):
    rendered = READER.render(markdown_report([EVERY_KIND[name]()]))
    for table in re.findall(r"<table>.*?</table>", rendered, re.DOTALL):
        head = table.count("<th>") + table.count("<th ")
        assert {row.count("<td") for row in table.split("</tr>")[1:-1]} == {head}


def test_the_verdict_comes_before_the_numbers():
    text = markdown_report([recorded.plain()])
    places = [text.index(part) for part in ("- **score**: no difference", "| pass", "#### Settings", "```")]
    assert places == sorted(places)


def test_an_interrupted_run_says_so():
    text = markdown_report([recorded.interrupted()])
    assert "**This run was not finished. It shows what was measured until it ended.**" in text
    assert "Nothing was measured." in text and text.endswith("Not started; not finished.\n")


def test_several_records_go_into_one_report():
    text = markdown_report([recorded.plain(), recorded.sweep()])
    assert [text.count(f"### smith\\_waterman on cpu ({number})\n") for number in (1, 2)] == [3, 3]
