"""A record keeps a hash of the code that it measured: what keeps the hash, what changes it, and what is then said."""

import re
from collections.abc import Callable
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


@pytest.fixture
def hashes_after(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The hashes of the checkout above after a change of its files."""

    def hashed(change: Callable[[dict[str, str]], dict[str, str]]) -> dict[str, str]:
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in change(CHECKOUT).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        devices = {"vmap": "cpu", "cell_loop": "cpu", "fused": "cpu", "fused on a GPU": "cuda"}
        return {
            name: code_hash("jax", name.partition(" ")[0], "smith_waterman", device, root)
            for name, device in devices.items()
        }

    return hashed


def replaced(old: str, new: str, in_names: bool = False) -> Callable[[dict[str, str]], dict[str, str]]:
    """A change of a text in every file that has it, and in the names of files."""

    def change(files: dict[str, str]) -> dict[str, str]:
        changed = {name.replace(old, new) if in_names else name: re.sub(old, new, text) for name, text in files.items()}
        assert changed != files
        return changed

    return change


@pytest.mark.parametrize(
    "change",
    [
        replaced(r"\btotal\b", "found"),  # a local name
        replaced(r"\bmatrix\b", "similarity"),  # an argument
        replaced(r"\bsmax\b", "softmax"),  # a function
        replaced(r"\bnext_one\b", "following"),  # a method
        replaced(r"\bscale\b", "factor"),  # a field
        replaced("smooth", "maxima", in_names=True),  # a module
        replaced("(?s)(def smax.*)(def larger.*)", r"\2\1"),  # another order
        replaced(r'"""The (sum|next one)."""(  # as it is)?', '"""Another one."""'),
        replaced("total = smax(.*) [+] 3", "total = (\n      smax(total,rows.next_one(row))+3)"),
        replaced(r"\bhalf\b", "a_half"),  # C++ from here
        replaced(r"\brow\b", "line"),
        replaced("worth", "a_worth", in_names=True),  # now the first file
        replaced(r"/\* Solves. \*/", "// Finds a solution"),
        replaced("  const float half", "const\nfloat   half"),
    ],
)
def test_names_comments_and_formatting_keep_the_hash(hashes_after, change):
    assert hashes_after(change) == hashes_after(dict)


@pytest.mark.parametrize(
    ("change", "of"),
    [
        (replaced("0[.]5\n", "0.25\n"), {"vmap"}),
        (replaced("[+] 3", "- 3"), {"vmap"}),
        (replaced("jnp.sin", "jnp.cos"), {"vmap"}),
        (replaced("total.exp", "total.log"), {"vmap"}),
        (replaced(r"\bsub\b", "add"), {"vmap"}),
        (replaced("return a [+] b", "return a * b"), {"vmap"}),
        (replaced("order=5", "order=6"), {"vmap", "cell_loop"}),  # what a module does beside defining
        (replaced("    return s\n", "    return 2 * s\n"), set()),
        (replaced("0[.]5f", "0.25f"), {"fused"}),
        (replaced("std::exp", "std::log"), {"fused"}),
        (replaced("float", "double"), {"fused", "vmap"}),
        (replaced(r"def forward\(x\):\n    return x", "def forward(x):\n    return -x"), {"fused on a GPU"}),
    ],
)
def test_other_code_changes_the_hash_of_the_variants_that_run_it(hashes_after, change, of):
    before, after = hashes_after(dict), hashes_after(change)
    assert {name for name in before if before[name] != after[name]} == of


def test_a_record_says_above_its_tables_that_its_code_has_changed_since(tmp_path):
    cases = [case(framework, variant) for framework in ("jax", "torch") for variant in ("vmap", "fused")]
    made = record(*(steady(each, 0.25) for each in cases))
    path, line = tmp_path / "recorded.json", "Measured before the code of JAX vmap; PyTorch vmap, fused changed."

    def told() -> list[int]:
        made.write(path)
        docs._record.cache_clear()
        page = docs.rendered(
            "".join(f"<!-- generated: {kind} {path} -->\n<!-- end -->\n" for kind in docs.KINDS_OF_TABLES)
        )
        pages = [console_report(made), markdown_report([made]), html_report([made]), page]
        return [" ".join(page.split()).replace("\\", "").count(line) for page in pages]

    assert told() == [0] * 4
    made.code["jax"]["vmap"] = made.code["torch"]["vmap"] = made.code["torch"]["fused"] = "0" * 12
    assert told() == [1] * 4  # once above all tables of a page
    made.code = {}  # as in a record of before
    assert told() == [0] * 4


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
    assert ended.code == 2 and "cannot resume: Measured before the code of JAX vmap changed." in ended.err[-1]
