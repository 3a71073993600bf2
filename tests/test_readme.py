"""What the README shows a reader runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def test_the_readme_has_a_program_for_each_framework() -> None:
    assert len(PROGRAMS) == 2
    assert "jax_impl" in PROGRAMS[0]
    assert "torch_impl" in PROGRAMS[1]


@pytest.mark.parametrize("program", PROGRAMS, ids=["jax", "torch"])
def test_the_readme_programs_run(program: str) -> None:
    check = "\nassert expected_alignment.shape == (8, 40, 50)\nassert abs(float(expected_alignment.sum())) > 1"
    check += "\nassert slope.shape == () and float(slope) != 0"
    done = subprocess.run([sys.executable, "-c", program + check], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_readme_links_to_files_that_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("https://")]
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
