"""The picture of what was learned: on the page, and as a file of its own."""

from pathlib import Path
from xml.dom import minidom

import recorded

from shared.bench.report.output_files import write_reports
from shared.bench.report.plots import picture_svg, pictures


def test_a_page_shows_it_before_and_after():
    (plot,) = pictures(recorded.with_picture())
    assert plot.title == "one alignment before and after learning" and plot.reading.endswith(" By JAX fused.")
    # what is less probable than 2 % is not drawn
    assert plot.svg.count("opacity: 0.") == 6


def test_a_file_is_an_image_that_is_always_the_same():
    text, again = (picture_svg(recorded.with_picture().pictures["batch"]) for _ in range(2))
    assert minidom.parseString(text).documentElement is not None
    assert text == again


def test_without_a_picture_no_file_is_made(tmp_path: Path):
    path = tmp_path / "picture.svg"
    (problem,) = write_reports([recorded.plain()], None, None, path)
    assert problem == f"cannot write {path}: no case with a picture passed its gate"
    records = [recorded.plain(), recorded.with_picture()]
    assert write_reports(records, None, None, path) == [] and path.read_text().startswith("<?xml")
    assert list(tmp_path.iterdir()) == [path]
