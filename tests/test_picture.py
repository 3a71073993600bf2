"""The picture of what was learned: on the page, and as a file of its own."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.dom import minidom

import recorded
from shared.bench.outputs import write_reports
from shared.bench.report.plots import plots

from shared.bench.record import Record
from shared.bench.report.picture import picture_file

DRAWN: dict[str, Any] = {
    "before": [[0.5, 0.01, 0.3], [0.0, 0.4, 0.1]],
    "after": [[0.9, 0.0, 0.0], [0.0, 0.95, 0.0]],
    "truth": [[0, 0], [1, 1]],
    "by": "JAX fused <train>",
}


def with_picture() -> Record:
    return replace(recorded.plain(), pictures={"batch": DRAWN})


def test_a_page_shows_it_before_and_after():
    shown = [plot for plot in plots(with_picture(), "r1") if "learning" in plot.title]
    assert [plot.title for plot in shown] == ["one alignment before learning", "one alignment after learning"]
    assert all("By JAX fused <train>." in plot.reading for plot in shown)
    # what is less probable than 2 % is not drawn: four squares before, two after
    assert [plot.svg.count("fill: var(--jax); opacity") for plot in shown] == [4, 2]


def test_a_file_is_an_image_in_colours_of_its_own():
    text = picture_file([recorded.plain(), with_picture()])
    assert minidom.parseString(text).documentElement is not None
    assert "before learning" in text and "after learning" in text
    assert "#fe01" not in text and "var(--" not in text
    assert text == picture_file([with_picture()])


def test_without_a_picture_no_file_is_made(tmp_path: Path):
    path = tmp_path / "picture.svg"
    assert write_reports([recorded.plain()], None, None, path) == [
        f"cannot make {path}: no case was right whose problem has a picture"
    ]
    assert write_reports([with_picture()], None, None, path) == [] and path.read_text().startswith("<?xml")
    assert [entry.name for entry in tmp_path.iterdir()] == ["picture.svg"]
