"""The picture of what was learned."""

from xml.dom import minidom

import recorded

from shared.bench.report.plots import picture_svg, pictures


def test_a_page_shows_it_before_and_after():
    (plot,) = pictures(recorded.with_picture())
    assert plot.title == "one alignment before and after learning" and plot.reading.endswith(" By JAX fused.")
    # what is less probable than 2 % is not drawn
    assert plot.svg.count("opacity: 0.") == 6


def test_it_is_an_image_that_is_always_the_same():
    text, again = (picture_svg(recorded.with_picture().pictures["batch"]) for _ in range(2))
    assert minidom.parseString(text).documentElement is not None
    assert text == again
