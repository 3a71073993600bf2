"""How much code a variant takes: the lines of what it uses within its framework's package, or within a user's file.

That is each definition at the top of a module that it names, and what those name in turn, also through imports. Blank
lines, comments and docstrings do not count.
"""

import ast
import re
import tokenize
from pathlib import Path
from typing import NamedTuple

from shared.alignments import ALIGNMENTS
from shared.backends import is_file

_ROOT = Path(__file__).resolve().parents[3]
# variant -> the definition, or the module, that is its own
_STARTS = {
    "diagonal_loop": "sweeps.diagonal_loop", "vmap": "sweeps.vmap",
    "wavefront": "wavefront", "fused": "kernels.fused",
}  # fmt: skip

_KERNELS = _ROOT / "shared/kernels"
# of Triton's folder, what describes and compiles the kernels
_NO_KERNELS = ("__init__.py", "ahead.py", "hardware_limit.py", "machine_code.py", "programs.py")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def code_lines(framework: str, problem: str) -> dict[str, int]:
    """Count lines of code by variant; nothing for problems other than alignments, learning and a user's own."""
    if problem == "learn_alignment":
        folder = _ROOT / f"{framework}_impl/learning"
        lines = sum(file_lines(folder / f"{name}.py") for name in ("models", "trainer"))
        return dict.fromkeys(_STARTS, lines)
    root, starts = _ROOT / f"{framework}_impl", _STARTS if problem in ALIGNMENTS else {}
    if is_file(problem):
        root, starts = Path(problem).resolve(), dict.fromkeys(("eager", "compiled"), f"{framework}_function")
    definitions = _definitions(root) if starts else {}
    counts = {variant: _lines(definitions, f"{root.stem}.{start}") for variant, start in starts.items()}
    return {variant: count for variant, count in counts.items() if count}


def kernel_lines(device: str) -> int:
    """Lines of code of the kernels that both frameworks call: C++ on a CPU, Triton on a GPU."""
    if device != "cpu":
        return sum(file_lines(path) for path in (_KERNELS / "triton").glob("*.py") if path.name not in _NO_KERNELS)
    sources = [path for path in (_KERNELS / "cpp").iterdir() if path.suffix in (".cpp", ".h")]
    code = (_COMMENT.sub("", path.read_text(encoding="utf-8")) for path in sources)
    return sum(bool(line.strip()) for text in code for line in text.splitlines())


def file_lines(path: Path) -> int:
    """Lines of code of a file."""
    source = _source(path)
    return len({line for node in ast.parse(source).body for line in _code(node, source.split("\n"))})


def _source(path: Path) -> str:
    """The text of a Python file, which may begin with a byte-order mark or name its encoding."""
    with tokenize.open(path) as file:
        return file.read()


def _lines(definitions: "dict[str, _Definition]", start: str) -> int:
    """Lines of all definitions that one of them reaches, itself included."""
    pending, reached = [start], set[str]()
    lines: set[tuple[str, int]] = set()
    while pending:
        name = pending.pop()
        if name in definitions and name not in reached:
            reached.add(name)
            lines |= definitions[name].lines
            pending += definitions[name].uses
    return len(lines)


class _Definition(NamedTuple):
    """A name at the top of a module, or the module itself, which uses all its names."""

    lines: set[tuple[str, int]]  # (module, line)
    uses: list[str]  # dotted names, also of what is no definition of the package


def _definitions(root: Path) -> dict[str, _Definition]:
    """By dotted name, all that a file or the modules of a package define or import from others."""
    found: dict[str, _Definition] = {}
    for path in [root] if root.is_file() else root.rglob("*.py"):
        module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        own: dict[str, _Definition] = {}
        source = _source(path)
        for node in ast.parse(source).body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    own[f"{module}.{alias.asname or alias.name}"] = _Definition(set(), [f"{node.module}.{alias.name}"])
            else:
                lines = {(module, line) for line in _code(node, source.split("\n"))}
                uses = [f"{module}.{each.id}" for each in ast.walk(node) if isinstance(each, ast.Name)]
                own |= {f"{module}.{name}": _Definition(lines, uses) for name in _names(node)}
        found |= own | {module: _Definition(set(), list(own))}
    return found


def _names(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]


def _code(node: ast.stmt, source: list[str]) -> list[int]:
    """The lines of a statement, without blank ones, comments and docstrings."""
    expressions = [each for each in ast.walk(node) if isinstance(each, ast.Expr)]
    docstrings = [each for each in expressions if isinstance(each.value, ast.Constant)]
    no_code = {line for each in docstrings for line in range(each.lineno, (each.end_lineno or 0) + 1)}
    first = min(each.lineno for each in [node, *getattr(node, "decorator_list", [])])
    lines = range(first, (node.end_lineno or 0) + 1)
    return [line for line in lines if line not in no_code and not re.match(r"\s*(#|$)", source[line - 1])]
