"""The page in a real browser. Skipped where there is none, unless REQUIRE_BROWSER is set."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
import recorded
from hand_made import case, record, steady
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright
from rendered import html_report

OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
PHONE, DESKTOP = 390, 1280

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
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("REQUIRE_BROWSER"):
            pytest.fail(f"REQUIRE_BROWSER is set, and there is none of {', '.join(names)}")
        pytest.skip("there is no Chromium here")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=OPTIONS)
        yield started
        started.close()


class Opened:
    """A page in the browser, and the errors and requests that were heard of it."""

    def __init__(self, browser: Browser, file: Path, html: str) -> None:
        file.write_text(html, encoding="utf-8")
        self.heard: list[str] = []
        self._own = file.as_uri()
        self.page: Page = browser.new_page(viewport={"width": PHONE, "height": 844})
        self.page.on("console", self._hear_console)
        self.page.on("pageerror", lambda error: self.heard.append(f"page error: {error}"))
        self.page.on("request", self._hear_request)
        self.page.goto(self._own)

    def _hear_console(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self.heard.append(f"console: {said.text}")

    def _hear_request(self, wanted: Request) -> None:
        if wanted.url != self._own and not wanted.url.startswith("data:"):
            self.heard.append(f"request: {wanted.url}")

    def faults(self, width: int = PHONE) -> list[str]:
        self.page.set_viewport_size({"width": width, "height": 844})
        return self.heard + self.page.evaluate(FAULTS)


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Callable[[str], Opened]]:
    made: list[Opened] = []

    def open_page(html: str) -> Opened:
        made.append(Opened(browser, tmp_path / "report.html", html))
        return made[-1]

    yield open_page
    for entry in made:
        entry.page.close()


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("plain", "dark"), ("hostile", "light"), pytest.param("growth", "dark", marks=pytest.mark.slow)],
)
def test_the_page_has_no_fault_on_a_phone_or_a_wide_screen(
    opened: Callable[[str], Opened], name: str, scheme: Literal["light", "dark"]
):
    torch_wins = record(steady(case("jax", "vmap"), 0.2), steady(case("torch", "vmap"), 0.1))
    found = opened(html_report([recorded.EVERY_KIND[name](), torch_wins]))
    found.page.emulate_media(color_scheme=scheme)
    assert found.faults() == [] and found.faults(DESKTOP) == []


@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        ('<div style="width:2000px">wide</div>', "too wide: 2012 of 390"),
        ('<p style="color:#999;background:#fff">pale</p>', "contrast 2.85: pale"),
        ("<script>alert(1)</script>", "console: "),
        ('<img src="https://example.invalid/x.png">', "console: "),
        ('<img src="data:image/svg+xml;base64,AAAA" alt="a plot">', "not drawn: a plot"),
    ],
)  # fmt: skip
def test_a_fault_is_noticed(opened: Callable[[str], Opened], plant: str, fault: str):
    found = opened(html_report([recorded.begun()]).replace("</body>", f"{plant}</body>"))
    assert any(text.startswith(fault) for text in found.faults())


def test_a_wide_table_scrolls_in_its_own_frame_and_parts_have_roles(opened: Callable[[str], Opened]):
    page = opened(html_report([recorded.plain()])).page
    for name in ("Which framework is faster", "Time of a call"):
        assert page.get_by_role("heading", name=name, exact=True).count() == 1
    assert page.get_by_role("img", name="score: time of a call").count() == 1
    frame = page.get_by_role("region", name="Time of a call")
    frame.focus()
    assert frame.evaluate("frame => frame.scrollWidth > frame.clientWidth")
    frame.evaluate("frame => frame.scrollTo(frame.scrollWidth, 0)")
    variant, left = frame.locator("td.sticky").first.bounding_box(), frame.bounding_box()
    assert variant is not None and left is not None and abs(variant["x"] - left["x"]) < 3


def test_a_dark_page_is_dark_and_so_are_its_plots(opened: Callable[[str], Opened]):
    page = opened(html_report([recorded.plain()])).page
    page.emulate_media(color_scheme="dark")
    levels = page.evaluate("""async () => {
      const image = document.images[0], canvas = document.createElement("canvas"), style = getComputedStyle;
      const context = canvas.getContext("2d");
      context.filter = style(image).filter;
      context.drawImage(image, 0, 0);
      const paper = style(image.parentElement).backgroundColor, page = style(document.body).backgroundColor;
      return [page, paper].map(text => Number(text.match(/\\d+/)[0])).concat(context.getImageData(2, 2, 1, 1).data[0]);
    }""")
    assert levels[0] < 40 and levels[1] == pytest.approx(levels[2], abs=2)  # the plot's ground is the paper
