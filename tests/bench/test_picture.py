"""The picture of what was learned: on the page, and as a file of its own."""

from pathlib import Path
from xml.dom import minidom

import recorded

from shared.bench.report.output_files import write_reports
from shared.bench.report.plots import picture_file, pictures


def test_a_page_shows_it_before_and_after():
    (plot,) = pictures(recorded.with_picture())
    assert plot.title == "one alignment before and after learning" and plot.reading.endswith(" By JAX fused.")
    # what is less probable than 2 % is not drawn
    assert plot.svg.count("opacity: 0.") == 6


def test_a_file_is_an_image_that_is_always_the_same():
    text = picture_file([recorded.plain(), recorded.with_picture()])
    assert minidom.parseString(text).documentElement is not None
    assert text == picture_file([recorded.with_picture()])


def test_without_a_picture_no_file_is_made(tmp_path: Path):
    path = tmp_path / "picture.svg"
    (problem,) = write_reports([recorded.plain()], None, None, path)
    assert problem.startswith(f"cannot make {path}: ") and "no case with a picture" in problem
    assert write_reports([recorded.with_picture()], None, None, path) == [] and path.read_text().startswith("<?xml")
    assert list(tmp_path.iterdir()) == [path]
