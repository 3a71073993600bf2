"""README.md and docs/: programs run, links resolve, figures are those of the records, pages stay short."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import docs
from tools.record import RECORDS

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in docs.pages()}


def programs(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "pages", [["README.md"], pytest.param([name for name in PAGES if name != "README.md"], marks=pytest.mark.slow)]
)
def test_the_programs_of_pages_run(tmp_path: Path, pages: list[str]):
    """Each with its own names; one process for all, to save imports. Files they write are not left in the checkout."""
    every = [(page, program) for page in pages for program in programs(PAGES[page])]
    if pages == ["README.md"]:
        assert "jax_impl" in every[0][1] and "torch_impl" in every[1][1]
    lines = [f"exec(compile({program!r}, {page!r}, 'exec'), {{'__name__': '__main__'}})" for page, program in every]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    watch = "import faulthandler; faulthandler.dump_traceback_later(270, exit=True)"  # where it hangs, if it does
    command = [sys.executable, "-c", "\n".join([watch, *lines])]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str):
    folder = (ROOT / page).parent
    for link in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (folder / path).resolve() if path else ROOT / page
        assert target.exists(), f"{page}: {link}"
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), f"{page}: {link}"


@pytest.mark.slow
def test_the_figures_of_all_pages_are_those_of_the_records():
    assert list(docs.outdated()) == [], "run make docs"


def test_figures_are_those_of_the_records_and_a_changed_one_is_seen():
    text = README.read_text(encoding="utf-8")
    assert docs.rendered(text) == text, "run make docs"
    assert docs.rendered(text.replace("×", "× as", 1)) == text


def test_the_head_counts_the_times_for_which_a_change_would_be_known():
    """Single calls, or fewer rounds than six, tell no change."""
    heads = {name: docs.KINDS["head"](ROOT / f"results/cpu-{name}.json") for name in ("memory", "shapes", "default")}
    assert ["times drifted" in text for text in heads.values()] == [False, False, True]


def test_records_can_be_made_anew_and_name_no_folder():
    recorded = {path.stem for path in (ROOT / "results").glob("*.json")} - {"validation"}
    assert recorded <= RECORDS.keys()
    for record in (ROOT / "results").glob("*.jsonl"):
        assert not re.search(r"""["'`( ]/\w""", record.read_text(encoding="utf-8")), record


def test_the_readme_is_short():
    assert len(PAGES["README.md"].splitlines()) <= 160
