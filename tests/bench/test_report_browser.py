"""The page in a real browser. Skipped where there is none, unless REQUIRE_BROWSER is set."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
import recorded
from hand_made import case, record, steady
from playwright.sync_api import Browser, Page, sync_playwright
from rendered import html_report

OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
PHONE, DESKTOP = 390, 1280
Open = Callable[[str], tuple[Page, list[str]]]

# what is wrong with the page as it is laid out, a line each
FAULTS = """() => {
  const faults = [];
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) faults.push(`too wide: ${wide} of ${innerWidth}`);
  const own = element => [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = element => {
    for (let at = element; at; at = at.parentElement) {
      const [r, g, b, a = 1] = rgb(getComputedStyle(at).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  for (const element of document.querySelectorAll("body *")) {
    if (!own(element) || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const [high, low] = [luminance(rgb(style.color)), luminance(ground(element))].sort((a, b) => b - a);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) faults.push(`contrast ${contrast.toFixed(2)}: ${element.textContent.trim().slice(0, 40)}`);
  }
  for (const image of document.images)
    if (!image.complete || !image.naturalWidth) faults.push(`not drawn: ${image.alt}`);
  return faults;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path_of_browser = next((path for name in names if (path := shutil.which(name))), None)
    if path_of_browser is None:
        if os.environ.get("REQUIRE_BROWSER"):
            pytest.fail(f"REQUIRE_BROWSER is set, and there is none of {', '.join(names)}")
        pytest.skip("there is no Chromium here")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path_of_browser, args=OPTIONS)
        yield started
        started.close()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Open pages in the browser; returns the page, and a list of the errors and requests that are heard of it."""
    context = browser.new_context(viewport={"width": PHONE, "height": 844})

    def open_page(html: str) -> tuple[Page, list[str]]:
        file, heard = tmp_path / "report.html", []
        file.write_text(html, encoding="utf-8")
        page = context.new_page()
        page.on("console", lambda said: heard.append(f"console: {said.type}: {said.text}"))
        page.on("pageerror", lambda error: heard.append(f"page error: {error}"))
        page.on("request", lambda wanted: heard.append(f"request: {wanted.url}"))
        page.goto(file.as_uri())
        heard[:] = [line for line in heard if not line.startswith((f"request: {file.as_uri()}", "request: data:"))]
        return page, heard

    yield open_page
    context.close()


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("plain", "dark"), ("hostile", "light"), pytest.param("growth", "dark", marks=pytest.mark.slow)],
)
def test_the_page_has_no_fault_on_a_phone_or_a_wide_screen(opened: Open, name: str, scheme: Literal["light", "dark"]):
    torch_wins = record(steady(case("jax", "vmap"), 0.2), steady(case("torch", "vmap"), 0.1))
    page, heard = opened(html_report([recorded.EVERY_KIND[name](), torch_wins]))
    page.emulate_media(color_scheme=scheme)
    assert page.evaluate(FAULTS) == []
    page.set_viewport_size({"width": DESKTOP, "height": 844})
    assert page.evaluate(FAULTS) == [] and heard == []


PLANTED = {
    "too wide: 2012 of 390": '<div style="width:2000px">wide</div>',
    "contrast 2.85: pale": '<p style="color:#999;background:#fff">pale</p>',
    "inline script": "<script>alert(1)</script>",
    "example.invalid": '<img src="https://example.invalid/x.png">',
    "not drawn: a plot": '<img src="data:image/svg+xml;base64,AAAA" alt="a plot">',
}


def test_faults_are_noticed(opened: Open):
    page, heard = opened(html_report([recorded.begun()]).replace("</body>", f"{''.join(PLANTED.values())}</body>"))
    faults = [*heard, *page.evaluate(FAULTS)]
    assert all(any(fault in text for text in faults) for fault in PLANTED), faults


def test_a_wide_table_scrolls_in_its_own_frame_and_parts_have_roles(opened: Open):
    page, _ = opened(html_report([recorded.plain()]))
    for name in ("Which framework is faster", "Time of a call"):
        assert page.get_by_role("heading", name=name, exact=True).count() == 1
    assert page.get_by_role("img", name="score: time of a call").count() == 1
    frame = page.get_by_role("region", name="Time of a call")
    frame.focus()
    assert frame.evaluate("frame => frame.scrollWidth > frame.clientWidth")
    frame.evaluate("frame => frame.scrollTo(frame.scrollWidth, 0)")
    variant, frame_box = frame.locator("td.sticky").first.bounding_box(), frame.bounding_box()
    assert variant is not None and frame_box is not None and abs(variant["x"] - frame_box["x"]) < 3


def test_a_dark_page_is_dark_and_so_are_its_plots(opened: Open):
    page, _ = opened(html_report([recorded.plain()]))
    page.emulate_media(color_scheme="dark")
    levels = page.evaluate("""() => {
      const image = document.images[0], style = getComputedStyle;
      const context = document.createElement("canvas").getContext("2d");
      context.filter = style(image).filter;
      context.drawImage(image, 0, 0);
      const paper = style(image.parentElement).backgroundColor, page = style(document.body).backgroundColor;
      return [page, paper].map(text => Number(text.match(/\\d+/)[0])).concat(context.getImageData(2, 2, 1, 1).data[0]);
    }""")
    assert levels[0] < 40 and levels[1] == pytest.approx(levels[2], abs=2)  # the plot's ground is the paper
