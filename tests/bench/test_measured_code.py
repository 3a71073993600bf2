"""A record keeps a hash of the code that it measured: what keeps the hash, what changes it, and what is then said."""

import re
from pathlib import Path

import pytest
from hand_made import case, record, steady
from in_process import run_here, use_numpy_workers
from rendered import console_report, html_report, markdown_report

from shared.bench.measure.measured_code import code_hash, hashes
from shared.bench.record import Record
from tools import docs

CHECKOUT = {
    "jax_impl/sweeps.py": '''
import functools
import jax.numpy as jnp
from jax.lax import sub
from shared.smooth import larger, smax
class Rows:
    scale: float
    def next_one(self, row):
        """The next one."""
        return self.scale * row
def vmap(rows: Rows, matrix):
    """The sum."""  # as it is
    total = 0.5
    for row in matrix:
        total = smax(total, rows.next_one(row)) + 3
        total = larger(total, y=sub(row, 1))
    return jnp.sin(total.exp())
jnp.register("rows", order=5)
def cell_loop(matrix):
    return matrix * 7
''',
    "jax_impl/kernels/fused.py": "from shared import checks\nfrom shared.kernels.cpp import library\n"
    "def fused(x):\n    return library.run(checks.check(x))\nIN_TRITON = 'jax_impl.kernels.triton_binding'\n",
    "jax_impl/kernels/triton_binding.py": "from shared.kernels.triton.forward import forward\n",
    "shared/smooth.py": "def smax(a, b):\n    return a + b\n\ndef larger(a, y):\n    return a if a > y else y\n",
    "shared/checks.py": "def check(s):\n    return s\n",
    "shared/kernels/cpp/library.py": "def run(x):\n    return x\n",
    "shared/kernels/cpp/solve.h": '#include "worth.h"\n/* Solves. */\nfloat solve(float *row) {\n'
    "  const float half = 0.5f;  // of it\n  return worth(std::exp(half * row[0]));\n}\n",
    "shared/kernels/cpp/worth.h": "inline float worth(float x) { return x + 1; }\n",
    "shared/kernels/triton/forward.py": "def forward(x):\n    return x\n",
}


def hashes_of(folder: Path, old: str = "", new: str = "") -> dict[str, str]:
    """The hashes of the checkout above, with a change in its files and their names."""
    for name, text in CHECKOUT.items():
        path = folder / re.sub(old, new, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(re.sub(old, new, text))
    devices = {"vmap": "cpu", "cell_loop": "cpu", "fused": "cpu", "fused on a GPU": "cuda"}
    names = {name: (name.split()[0], "smith_waterman", device) for name, device in devices.items()}
    return {name: code_hash("jax", *asked, folder) for name, asked in names.items()}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"\btotal\b", "found"),  # a local name
        (r"\bmatrix\b", "similarity"),  # an argument
        (r"\bsmax\b", "softmax"),  # a function
        ("next_one", "following"),  # a method
        ("smooth", "maxima"),  # a module
        ("(?s)(def smax.*)(def larger.*)", r"\2\1"),  # another order
        (r'"""The (sum|next one)."""(  # as it is)?', '"""Another one."""'),
        ("total = smax(.*) [+] 3", "total = (\n      smax(total,rows.next_one(row))+3)"),
        (r"\bhalf\b", "a_half"),  # C++ from here
        (r"\brow\b", "line"),
        ("worth", "a_worth"),  # now the first file
        ("  const float half = 0.5f;  // of it", "const\nfloat   half=0.5f;"),
    ],
)
def test_names_comments_and_formatting_keep_the_hash(tmp_path, old, new):
    assert hashes_of(tmp_path / "after", old, new) == hashes_of(tmp_path / "before")


@pytest.mark.parametrize(
    ("old", "new", "of"),
    [
        ("0[.]5\n", "0.25\n", {"vmap"}),
        ("[+] 3", "- 3", {"vmap"}),
        ("jnp.sin", "jnp.cos", {"vmap"}),
        ("total.exp", "total.log", {"vmap"}),
        (r"\bsub\b", "add", {"vmap"}),
        ("order=5", "order=6", {"vmap", "cell_loop"}),  # what a module does beside defining
        ("    return s\n", "    return 2 * s\n", set()),
        ("0[.]5f", "0.25f", {"fused"}),
        ("std::exp", "std::log", {"fused"}),
        ("float", "double", {"fused", "vmap"}),
        (r"def forward\(x\):\n    return x", "def forward(x):\n    return -x", {"fused on a GPU"}),
    ],
)
def test_other_code_changes_the_hash_of_the_variants_that_run_it(tmp_path, old, new, of):
    before, after = hashes_of(tmp_path / "before"), hashes_of(tmp_path / "after", old, new)
    assert {name for name in before if before[name] != after[name]} == of


def test_a_record_says_above_its_tables_that_its_code_has_changed_since(tmp_path):
    cases = [case(framework, variant) for framework in ("jax", "torch") for variant in ("vmap", "fused")]
    made = record(*(steady(each, 0.25) for each in cases))
    path, line = tmp_path / "recorded.json", "Measured before the code of JAX (vmap) and PyTorch changed."

    def told() -> list[int]:
        made.write(path)
        docs._record.cache_clear()
        blocks = [f"<!-- generated: {kind} {path} -->\n<!-- end -->\n" for kind in docs.KINDS_OF_TABLES]
        pages = [console_report(made), markdown_report([made]), html_report([made]), docs.rendered("".join(blocks))]
        return [" ".join(page.split()).replace("\\", "").count(line) for page in pages]

    assert told() == [0] * 4
    made.code["jax"]["vmap"] = made.code["torch"]["vmap"] = made.code["torch"]["fused"] = "0" * 12
    assert told() == [1] * 4  # once above all tables of a page


def test_a_run_keeps_the_hashes_of_what_it_measures_and_is_not_resumed_once_they_changed(monkeypatch, tmp_path):
    use_numpy_workers(monkeypatch)
    path = tmp_path / "recorded.json"
    asked = ("--pass", "score", "--variant", "vmap", "--input", "random", "--size", "3x4")
    assert run_here(*asked, "--rounds", "1", "--workers", "1", "--json", str(path)).code == 0
    made = Record.read(path)
    assert made.code == hashes(made.settings, [result.case for result in made.results]) and len(made.code) == 2
    made.code["jax"]["vmap"] = "0" * 12
    made.write(path)
    ended = run_here("--resume", str(path))
    assert ended.code == 2 and "cannot resume: Measured before the code of JAX changed." in ended.err[-1]
