"""The page in a real browser. Skipped where there is none, unless REQUIRE_BROWSER is set."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

from shared.bench.report.html import html_report
from tests import recorded

KINDS = ("plain", "ladder", "sweep", "hostile", "begun", "interrupted")
DRAWINGS = {"plain": 4, "ladder": 8, "sweep": 8, "hostile": 4, "begun": 0, "interrupted": 0}
SCHEMES = ("light", "dark")
WIDTHS = (390, 1280)
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

# what is wrong with the page as it is laid out, a line each
FAULTS = """() => {
  const faults = [];
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) faults.push(`too wide: ${wide} of ${innerWidth}`);
  const shown = element => element.getClientRects().length > 0;
  const own = element => [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
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
    if (!own(element) || !shown(element)) continue;
    const style = getComputedStyle(element);
    const ink = element.closest("svg") ? style.fill : style.color;
    const [high, low] = [light(rgb(ink)), light(ground(element))].sort((a, b) => b - a);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) faults.push(`contrast ${contrast.toFixed(2)}: ${element.textContent.trim().slice(0, 40)}`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    if (frame.width < 100 || frame.height < 50) faults.push(`small drawing: ${frame.width} x ${frame.height}`);
    const scale = frame.width / svg.viewBox.baseVal.width;
    const texts = [...svg.querySelectorAll("text")];
    if (texts.length < 4) faults.push(`few texts: ${texts.length}`);
    const boxes = texts.map(text => text.getBoundingClientRect());
    texts.forEach((text, i) => {
      const pixels = parseFloat(getComputedStyle(text).fontSize) * scale, box = boxes[i];
      if (pixels < 9) faults.push(`small text: ${pixels} pixels: ${text.textContent}`);
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1)
        faults.push(`text outside its drawing: ${text.textContent}`);
      boxes.slice(0, i).forEach((other, j) => {
        const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
        const down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
        if (across > 1 && down > 4) faults.push(`texts overlap: ${texts[j].textContent} and ${text.textContent}`);
      });
    });
  }
  return faults;
}"""
INKS = """() => [...document.querySelectorAll("svg")].map(svg => [...new Set(
  [...svg.querySelectorAll("text, path, use, rect")].flatMap(element => {
    const { fill, stroke } = getComputedStyle(element);
    return element.tagName === "text" ? [fill] : [fill, stroke];
  }).filter(ink => ink.startsWith("rgb("))
)])"""


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


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: html_report([getattr(recorded, name)()]) for name in KINDS}


class Opened:
    """A page in the browser, and what was heard of it."""

    def __init__(self, browser: Browser, file: Path, html: str, width: int, scheme: str) -> None:
        file.write_text(html, encoding="utf-8")
        self.heard: list[str] = []
        self.page: Page = browser.new_page(
            viewport={"width": width, "height": 844},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        self.page.on("console", lambda said: self._hear(said.type in ("error", "warning"), f"console: {said.text}"))
        self.page.on("pageerror", lambda error: self._hear(True, f"page error: {error}"))
        self.page.on("dialog", self._hear_dialog)
        self.page.on("request", lambda wanted: self._hear(self._is_foreign(wanted.url, file), f"request: {wanted.url}"))
        self.page.goto(file.as_uri())

    def _hear(self, is_fault: bool, text: str) -> None:
        if is_fault:
            self.heard.append(text)

    def _hear_dialog(self, dialog: Dialog) -> None:
        self.heard.append("dialog")
        dialog.dismiss()

    @staticmethod
    def _is_foreign(url: str, file: Path) -> bool:
        return url != file.as_uri() and not url.startswith("data:")

    def faults(self) -> list[str]:
        return self.heard + self.page.evaluate(FAULTS)


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator:
    made: list[Opened] = []

    def open_page(html: str, width: int = 390, scheme: str = "light") -> Opened:
        made.append(Opened(browser, tmp_path / "report.html", html, width, scheme))
        return made[-1]

    yield open_page
    for entry in made:
        entry.page.close()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_page_has_no_fault(opened, pages: dict[str, str], kind: str, width: int, scheme: str):
    found = opened(pages[kind], width, scheme)
    assert found.faults() == []
    assert found.page.locator("svg").count() == DRAWINGS[kind]


@pytest.mark.parametrize("width", WIDTHS)
def test_unfolded_details_have_no_fault(opened, pages: dict[str, str], width: int):
    found = opened(pages["sweep"], width)
    assert found.page.locator("details").count() == 8
    found.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert found.faults() == []


@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        ('<div style="width:2000px">wide</div>', "too wide: 2012 of 390"),
        ('<p style="color:#999;background:#fff">pale</p>', "contrast 2.85: pale"),
        ("<script>alert(1)</script>", "console: "),
        ('<img src="https://example.invalid/x.png">', "console: "),
        ('<svg viewBox="0 0 4 4" width="20" height="20"></svg>', "small drawing: 20 x 20"),
        ('<svg viewBox="0 0 344 99" width="344"><text y="9" style="font-size:6px">x</text></svg>', "small text: 6 "),
        ('<svg viewBox="0 0 344 99" width="344"><text x="340" y="20">long</text></svg>', "text outside its drawing"),
        ('<svg viewBox="0 0 344 99"><text y="20">ab</text><text y="21">cd</text></svg>', "texts overlap: ab and cd"),
    ],
)  # fmt: skip
def test_a_fault_is_noticed(opened, pages: dict[str, str], plant: str, fault: str):
    found = opened(pages["begun"].replace("</main>", f"{plant}</main>"))
    assert any(text.startswith(fault) for text in found.faults())


def test_a_request_and_a_dialog_are_noticed(opened):
    found = opened('<script>alert(1)</script><img src="nowhere.png">')
    assert "dialog" in found.heard
    assert any(text.startswith("request: file:") and text.endswith("nowhere.png") for text in found.heard)


@pytest.mark.parametrize("kind", ["plain", "sweep"])
def test_no_ink_of_a_plot_is_the_same_in_light_and_dark(opened, pages: dict[str, str], kind: str):
    light, dark = (opened(pages[kind], scheme=scheme).page.evaluate(INKS) for scheme in SCHEMES)
    assert len(light) == DRAWINGS[kind]
    for in_light, in_dark in zip(light, dark, strict=True):
        # text, muted text, grid, paper and the two frameworks; black is what an undrawn element computes to
        drawn = set(in_light) - {"rgb(0, 0, 0)"}
        assert len(drawn) >= 5 and drawn.isdisjoint(in_dark)


def test_a_wide_table_scrolls_in_its_own_frame_and_keeps_its_cases_in_sight(opened, pages: dict[str, str]):
    page = opened(pages["plain"]).page
    frame = page.get_by_role("region", name="All cases")
    frame.focus()
    assert frame.evaluate("frame => frame.scrollWidth > frame.clientWidth")
    frame.evaluate("frame => frame.scrollTo(frame.scrollWidth, 0)")
    case, left = page.locator("td.sticky").first, frame.bounding_box()
    box = case.bounding_box()
    assert box is not None and left is not None
    assert abs(box["x"] - left["x"]) < 3


def test_a_reader_of_the_page_s_structure_finds_its_parts(opened, pages: dict[str, str]):
    page = opened(pages["plain"]).page
    assert page.title() == "JAX and PyTorch compared: smith_waterman on cpu"
    for name in ("Verdict", "Plots", "Every number", "Conditions"):
        assert page.get_by_role("heading", name=name, exact=True, level=2).count() == 1
        assert page.get_by_role("link", name=name).count() == 1
    assert page.get_by_role("img", name="score: time of a call").count() == 1
