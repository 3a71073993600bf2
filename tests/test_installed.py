"""The packages as they are installed: one framework alone, beside a user's folder of the same name, from a wheel."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from command_line import ROOT, without

PACKAGES = {"jax_impl": ("jax", "torch"), "torch_impl": ("torch", "jax")}
# a loss on the alignment, its gradient, and a best alignment
USE = """
import numpy as np, sys, {package} as package
s = np.ones((2, 3), np.float32)
package.hessian_vector_product(package.needleman_wunsch, s, s)
package.best_alignment(package.smith_waterman_affine, s)
import {package}.backend
assert {other!r} not in sys.modules and package.__file__.startswith({folder!r})
"""


def run(*command: str, cwd: Path, path: list[Path], expected: int = 0) -> str:
    """Run Python without the paths of .pth files, such as this checkout; return its output. path: searched first."""
    everywhere = [*path, Path(sysconfig.get_path("purelib"))]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, everywhere))}
    command = (sys.executable, "-S", *command)
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == expected, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_works_where_the_other_framework_is_not_installed(package: str, tmp_path: Path):
    _, other = PACKAGES[package]
    program = USE.format(package=package, other=other, folder=str(ROOT))
    run("-c", program, cwd=tmp_path, path=[without(tmp_path, other), ROOT])


@pytest.mark.parametrize("package", PACKAGES)
def test_a_line_says_which_framework_or_whose_folder_is_in_the_way(package: str, tmp_path: Path):
    framework, _ = PACKAGES[package]
    (tmp_path / "absent").mkdir()
    path = [without(tmp_path / "absent", framework), ROOT]
    said = run("-c", f"import {package}", cwd=tmp_path, path=path, expected=1).splitlines()[-1]
    why = f"{framework} (No module named {framework!r}): install it, or this package with its extra [{framework}]"
    assert said == f"ModuleNotFoundError: {package} needs {why}"
    if package == "torch_impl":
        path = [without(tmp_path, "jax"), ROOT]
        said = run("-c", "import torch_impl.jax_bridge", cwd=tmp_path, path=path, expected=1).splitlines()[-1]
        assert said.startswith(
            "ModuleNotFoundError: torch_impl.jax_bridge needs jax (No module named 'jax'): install it"
        )
    for theirs in ("shared/__init__.py", "shared.py"):
        (tmp_path / theirs).parent.mkdir(exist_ok=True)
        (tmp_path / theirs).touch()
        (tmp_path / "script.py").write_text(f"import {package}\n")
        place = tmp_path / theirs.removesuffix("/__init__.py")
        for words in (["script.py"], ["-m", "compare"]):
            said = run(*words, cwd=tmp_path, path=[ROOT], expected=1).splitlines()[-1]
            assert f"needs the package shared in {ROOT / 'shared'}, but Python finds {place} first: rename" in said
        shutil.rmtree(tmp_path / "shared", ignore_errors=True)


@pytest.mark.slow
def test_a_wheel_has_every_file_and_answers_from_another_folder(tmp_path: Path):
    tracked = subprocess.check_output(["git", "ls-files", "shared", "jax_impl", "torch_impl", "compare.py"], cwd=ROOT)
    source, site, elsewhere = tmp_path / "source", tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in [*tracked.decode().split(), "pyproject.toml", "README.md", "LICENSE"]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    options = "--quiet --no-deps --no-build-isolation --target"
    subprocess.run([sys.executable, "-m", "pip", "install", *options.split(), site, source], check=True)
    assert [name for name in tracked.decode().split() if not (site / name).exists()] == []
    options = "--input random --size 6x7 --batch 3 --variant wavefront --framework torch --quick --workers 1 --rounds 2"
    said = run("-m", "compare", *options.split(), cwd=elsewhere, path=[site])
    assert "only PyTorch (wavefront" in said and "commit unknown" in said
    assert (site / "bin/jax-torch-compare").exists()
    for package, (_, other) in PACKAGES.items():
        run("-c", USE.format(package=package, other=other, folder=str(site)), cwd=elsewhere, path=[site])
