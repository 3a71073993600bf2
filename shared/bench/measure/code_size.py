"""How much code a variant takes: the lines of what it uses within its framework's package, or within a user's file.

That is every top-level definition that it refers to, directly or not, also through imports. Blank lines, comments and
docstrings do not count.
"""

import ast
import functools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from shared.alignments import ALIGNMENTS
from shared.backends import is_file
from shared.bench.measure.machine import ROOT

# variant -> the definition, or the module, that is its own
_STARTS = {"diagonal_loop": "sweeps.diagonal_loop", "vmap": "sweeps.vmap", "wavefront": "wavefront",
           "fused": "kernels.fused"}  # fmt: skip

_KERNELS = ROOT / "shared/kernels"
# files of triton/ without a kernel of `fused`
_NO_KERNELS = ("__init__.py", "ahead.py", "exponentials.py", "hardware_limit.py", "machine_code.py", "programs.py")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def code_lines(framework: str, problem: str) -> dict[str, int]:
    """Count lines of code by variant; nothing for problems other than alignments, learning and a user's own."""
    if problem == "learn_alignment":
        folder = ROOT / f"{framework}_impl/learning"
        lines = sum(file_lines(folder / f"{name}.py") for name in ("models", "trainer"))
        return dict.fromkeys(_STARTS, lines)
    package, starts, root = f"{framework}_impl", _STARTS if problem in ALIGNMENTS else {}, ROOT
    if is_file(problem):
        root, starts = Path(problem), dict.fromkeys(("eager", "compiled"), f"{framework}_function")
        package = root.stem
    counts = {}
    for variant, start in starts.items():
        used = reached(root, [f"{package}.{start}"], lambda name: name.startswith(package) and name[-1] != ".")
        counts[variant] = len({line for one in used.values() for lines in one.nodes.values() for line in lines})
    return {variant: count for variant, count in counts.items() if count}


def kernel_lines(device: str) -> int:
    """Lines of code of the kernels that both frameworks call: C++ on a CPU, Triton on a GPU."""
    if device != "cpu":
        return sum(file_lines(path) for path in (_KERNELS / "triton").glob("*.py") if path.name not in _NO_KERNELS)
    sources = [path for path in (_KERNELS / "cpp").iterdir() if path.suffix in (".cpp", ".h")]
    code = (COMMENT.sub("", path.read_text(encoding="utf-8")) for path in sources)
    return sum(bool(line.strip()) for text in code for line in text.splitlines())


def file_lines(path: Path) -> int:
    """Lines of code of a file."""
    source = path.read_bytes()
    return len({line for node in ast.parse(source).body for line in _code(node, source.split(b"\n"))})


class Definition(NamedTuple):
    """The meaning of a dotted name: a top-level name; a module, all its names; "MODULE.", its other statements."""

    module: str
    uses: list[str]  # dotted names, also names outside the project
    # statement -> the (module, line) pairs of its code; empty for an imported name and for a module
    nodes: dict[ast.stmt, set[tuple[str, int]]]


def reached(root: Path, starts: Iterable[str], is_part: Callable[[str], bool]) -> dict[str, Definition]:
    """All definitions that the starts use, directly or not, and themselves; only names for which `is_part` holds."""
    definitions, pending, reached_ones = definitions_of(root), list(starts), dict[str, Definition]()
    while pending:
        name = pending.pop()
        if name in definitions and name not in reached_ones and is_part(name):
            reached_ones[name] = definitions[name]
            pending += definitions[name].uses
    return reached_ones


@functools.cache
def definitions_of(root: Path) -> dict[str, Definition]:
    """Find what a file, or the packages of a checkout except the benchmark, define or import, by dotted name."""
    definitions: dict[str, Definition] = {}
    folder, packages = (root.parent, []) if root.is_file() else (root, ["jax_impl", "torch_impl", "shared"])
    every = [path for package in packages for path in (root / package).rglob("*.py")] or [root]
    for path in [path for path in every if not path.is_relative_to(root / "shared/bench")]:
        module = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        code, itself = path.read_bytes(), Definition(module, [], {})
        of_module = {f"{module}.": itself}
        for node in ast.parse(code).body:
            parts = list(ast.walk(node))
            imports = [part for part in parts if isinstance(part, ast.ImportFrom)]
            names = {name.asname or name.name: f"{part.module}.{name.name}" for part in imports for name in part.names}
            if isinstance(node, ast.ImportFrom):
                of_module |= {f"{module}.{name}": Definition(module, [target], {}) for name, target in names.items()}
            elif not isinstance(node, ast.Import):  # dotted strings too: a module may be imported by one
                itself.uses.extend(s for c in parts if isinstance(c, ast.Constant) and "." in (s := str(c.value)))
                uses = [f"{module}.{part.id}" for part in parts if isinstance(part, ast.Name)]
                for name in {*names_of(node)} - {"_"} or [""]:
                    made = of_module.setdefault(f"{module}.{name}", Definition(module, [f"{module}."], {}))
                    made.uses.extend([*names.values(), *uses])
                    made.nodes[node] = {(module, line) for line in _code(node, code.split(b"\n"))}
        definitions |= of_module | {module: Definition(module, list(of_module), {})}
    return definitions


def names_of(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]


def _code(node: ast.stmt, source: list[bytes]) -> list[int]:
    """The lines of a statement, without blank ones, comments and docstrings."""
    texts = [part for part in ast.walk(node) if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)]
    no_code = {line for text in texts for line in range(text.lineno, (text.end_lineno or 0) + 1)}
    first = min(part.lineno for part in [node, *getattr(node, "decorator_list", [])])
    lines = range(first, (node.end_lineno or 0) + 1)
    return [line for line in lines if line not in no_code and not re.match(rb"\s*(#|$)", source[line - 1])]
