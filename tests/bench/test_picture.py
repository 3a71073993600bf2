"""The picture of what was learned: on the page, and as a file of its own."""

from pathlib import Path
from xml.dom import minidom

import recorded

from shared.bench.report.output_files import write_reports
from shared.bench.report.picture import picture_file, pictures


def test_a_page_shows_it_before_and_after():
    before, after = pictures(recorded.with_picture(), "r1")
    assert (before.title, after.title) == ("one alignment before learning", "one alignment after learning")
    assert after.reading.endswith(" By JAX fused.")
    # what is less probable than 2 % is not drawn
    assert [plot.svg.count("opacity: 0.") for plot in (before, after)] == [4, 2]


def test_a_file_is_an_image_that_is_always_the_same():
    text = picture_file([recorded.plain(), recorded.with_picture()])
    assert minidom.parseString(text).documentElement is not None
    assert "before learning" in text and "after learning" in text
    assert text == picture_file([recorded.with_picture()])


def test_without_a_picture_no_file_is_made(tmp_path: Path):
    path = tmp_path / "picture.svg"
    (problem,) = write_reports([recorded.plain()], None, None, path)
    assert problem.startswith(f"cannot make {path}: ") and "no case with a picture" in problem
    assert write_reports([recorded.with_picture()], None, None, path) == [] and path.read_text().startswith("<?xml")
    assert list(tmp_path.iterdir()) == [path]
