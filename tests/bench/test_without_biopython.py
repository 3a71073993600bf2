"""Whoever has no Biopython, which reads FASTA files and substitution matrices, or one framework only can do without."""

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ROOT, TINY, environment, rows, verdicts, without
from in_process import assert_refused, run_here

from tools.cuda_check import TESTS

# beside it what a machine with a GPU is not likely to have; this project asks for it in its tests alone
ABSENT = ("Bio", "parasail", "playwright")


@pytest.fixture(autouse=True)
def no_biopython(monkeypatch: pytest.MonkeyPatch):
    """In this process."""
    for name in [name for name in sys.modules if name.split(".")[0] == "Bio"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Bio", None)


def test_random_matrices_are_measured_without_pytorch_too_and_shown_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("PYTHONPATH", str(without(tmp_path, "torch", *ABSENT)))  # of the workers
    path = tmp_path / "random.json"
    done = run_here(*TINY, "--variant", "fused", "--pass", "score", "--json", str(path))
    assert done.code == 0, done.err
    assert list(rows(done.out)) == [("score", "JAX", "fused (auto)")]
    assert verdicts(done.out)[0].startswith("score: only JAX (fused, ")
    told = [line for line in done.out.splitlines() if "not installed" in line]
    assert told == ["PyTorch was not measured: PyTorch is not installed (No module named 'torch')"]
    again = run_here("--from", str(path), "--report", str(tmp_path / "a.html"))
    assert again.code == 0 and done.out.endswith(again.out)


@pytest.mark.parametrize("arguments", [(), ("--input", "my.fasta"), ("learning",)])
def test_sequences_are_refused_in_one_line(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "my.fasta").write_text(">one\nMKV\n>two\nMKL\n")
    monkeypatch.chdir(tmp_path)
    reason = "FASTA files, Stockholm files and substitution matrices are read by Biopython: pip install biopython ("
    assert_refused(run_here(*arguments), reason)


@pytest.mark.slow
def test_the_tests_for_a_gpu_can_be_collected(tmp_path: Path):
    folder = without(tmp_path, *ABSENT)
    command = [sys.executable, "-m", "pytest", "-m", "cuda", "--collect-only", "-q", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=ROOT, env=environment(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "tests/test_cuda.py::" in done.stdout
