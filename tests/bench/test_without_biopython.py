"""Whoever has no Biopython, which reads FASTA files and substitution matrices, or one framework only can do without."""

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ROOT, TINY, environment, rows, run_compare, verdicts, without
from in_process import assert_refused, run_here

from tools.cuda_check import TESTS

# beside it what a machine with a GPU is not likely to have; this project asks for it in its tests alone
ABSENT = ("Bio", "parasail", "playwright")


def test_random_matrices_are_measured_without_pytorch_too_and_shown_again(tmp_path: Path):
    folder, path = without(tmp_path, "torch", *ABSENT), tmp_path / "random.json"
    done = run_compare(*TINY, "--variant", "vmap", "--pass", "score", "--json", str(path), folders=(folder,))
    assert done.returncode == 0, done.stderr
    assert list(rows(done.stdout)) == [("score", "JAX", "vmap")]
    assert verdicts(done.stdout)[0].startswith("score: only JAX (vmap, ")
    told = [line for line in done.stdout.splitlines() if "not installed" in line]
    assert told == ["PyTorch was not measured: PyTorch is not installed (No module named 'torch')"]
    again = run_compare("--from", str(path), "--report", str(tmp_path / "a.html"), folders=(folder,))
    assert again.returncode == 0 and done.stdout.endswith(again.stdout)


@pytest.mark.parametrize("arguments", [(), ("--input", "my.fasta"), ("--problem", "learn_alignment")])
def test_sequences_are_refused_in_one_line(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "my.fasta").write_text(">one\nMKV\n>two\nMKL\n")
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "Bio"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Bio", None)
    reason = "FASTA files and substitution matrices are read by Biopython: pip install biopython ("
    assert_refused(run_here(*arguments), reason)


def test_the_tests_for_a_gpu_can_be_collected(tmp_path: Path):
    folder = without(tmp_path, *ABSENT)
    command = [sys.executable, "-m", "pytest", "-m", "cuda", "--collect-only", "-q", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=ROOT, env=environment(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "tests/test_cuda.py::" in done.stdout
