"""Biopython reads FASTA files and substitution matrices, and whoever has neither can do without it."""

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import JAX, ROOT, environment, run_compare

from tools.cuda_check import TESTS

# beside it what a machine with a GPU is not likely to have; this project asks for it in its tests alone
ABSENT = ("Bio", "parasail", "playwright")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ABSENT:
        (tmp_path / f"{name}.py").write_text(f'raise ImportError("No module named {name!r}")')
    return tmp_path


def test_random_matrices_are_compared_and_shown_again(folder: Path):
    done = run_compare(*JAX, "--pass", "score", "--json", str(folder / "random.json"), folders=(folder,))
    assert done.returncode == 0, done.stderr
    assert "every time above passed the parity gate" in done.stdout
    again = run_compare("--from", str(folder / "random.json"), "--report", str(folder / "a.html"), folders=(folder,))
    assert (again.returncode, again.stdout) == (0, done.stdout)


@pytest.mark.parametrize("arguments", [(), ("--input", "my.fasta"), ("--problem", "learn_alignment")])
def test_sequences_are_refused_in_one_line(arguments: tuple[str, ...], folder: Path):
    (folder / "my.fasta").write_text(">one\nMKV\n>two\nMKL\n")
    done = run_compare(*arguments, "--budget", "1", folders=(folder,), cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == (
        "compare.py: error: FASTA files and substitution matrices are read by Biopython: pip install biopython "
        "(No module named 'Bio')"
    )


def test_the_tests_for_a_gpu_can_be_collected(folder: Path):
    command = [sys.executable, "-m", "pytest", "-m", "cuda", "--collect-only", "-q", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=ROOT, env=environment(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "tests/test_cuda.py::" in done.stdout
