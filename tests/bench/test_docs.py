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


def test_the_readme_shows_a_program_for_each_framework():
    jax_program, torch_program = programs(README.read_text())
    assert "jax_impl" in jax_program and "torch_impl" in torch_program


def test_the_programs_of_every_page_run(tmp_path):
    """Each with its own names; one process for all, to save imports. What they write is not left in the checkout."""
    every = [(page, program) for page, text in PAGES.items() for program in programs(text)]
    lines = [f"exec(compile({program!r}, {page!r}, 'exec'), {{'__name__': '__main__'}})" for page, program in every]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    watch = "import faulthandler; faulthandler.dump_traceback_later(240, exit=True)"  # where it hangs, if it does
    command = [sys.executable, "-c", "\n".join([watch, *lines])]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    folder = (ROOT / page).parent
    for link in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (folder / path).resolve() if path else ROOT / page
        assert target.exists(), f"{page}: {link}"
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), f"{page}: {link}"


def test_figures_are_those_of_the_records():
    assert list(docs.outdated()) == [], "run make docs"


@pytest.mark.parametrize(("name", "told"), [("memory", []), ("shapes", []), ("w-all", ["36"]), ("default", ["14"])])
def test_the_head_counts_the_times_of_which_a_change_would_be_known(name: str, told: list[str]):
    """Not those of single calls, or of fewer rounds than six."""
    head = docs.KINDS["head"](ROOT / f"results/cpu-{name}.json")
    assert re.findall(r"of (\d+) times changed", head) == told


def test_the_power_test_is_told_with_the_slowdown_that_was_found():
    """It is more than what was put in."""
    told = docs.KINDS["validation"](ROOT / "results/validation.json")
    assert "Power test, 5%: 20 of 20 detected, at ratios of 1.053 to 1.087; half-widths" in told


@pytest.mark.parametrize(("name", "has_lines"), [("default", True), ("affine", False)])
def test_lines_of_code_are_told_of_a_default_run_alone(name: str, has_lines: bool):
    """Lines are counted at a record's commit, so two records have two counts of the same code."""
    table = docs.KINDS["decision"](ROOT / f"results/cpu-{name}.json")
    assert ("lines of code" in table) == has_lines and "<br>vmap" in table


def test_the_results_name_what_ran_on_the_other_machine():
    named = {
        "the ladder": "ladder",
        "every variant in fresh processes": "w-all",
        "`linear_regression` over its variants": "regression",
    }
    page = " ".join(PAGES["docs/results.md"].split())
    (told,) = re.findall(r"an AMD EPYC, except for (.*?) \(an Intel Xeon\)", page)
    records = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "results").glob("cpu-*.json")}
    others = {name.removeprefix("cpu-") for name, text in records.items() if '"cpu": "AMD EPYC"' not in text}
    assert {named[words] for words in re.split(", | and ", told)} == others


def test_a_changed_figure_is_seen():
    text = README.read_text(encoding="utf-8")
    assert docs.rendered(text.replace("×", "× as", 1)) == text


def test_every_record_has_a_command_that_makes_it_anew():
    recorded = {path.stem for path in (ROOT / "results").glob("*.json")} - {"validation"}
    assert recorded <= RECORDS.keys()


def test_records_of_first_contacts_name_no_folder():
    for record in (ROOT / "results").glob("*.jsonl"):
        assert not re.search(r"""["'`( ]/\w""", record.read_text(encoding="utf-8")), record


def test_pages_are_short():
    lengths = {page: len(text.splitlines()) for page, text in PAGES.items()}
    assert lengths.pop("README.md") <= 160
    assert not {page: length for page, length in lengths.items() if length > 300}
