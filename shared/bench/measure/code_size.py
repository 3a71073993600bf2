"""How much code a variant takes: lines that its function reaches within its framework's package."""

import ast
import functools
import re
from pathlib import Path

from shared.alignments import ALIGNMENTS

_ROOT = Path(__file__).resolve().parents[3]
# variant -> the module whose definitions are its own, and the names to start from (all if there are none)
_STARTS = {"vmap": ("sweeps", ("vmap",)), "wavefront": ("wavefront", ()), "fused": ("kernels.fused", ())}

_KERNELS = "shared/kernels/cpp"
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)

Definitions = dict[str, ast.stmt]


def code_lines(framework: str, problem: str) -> dict[str, int]:
    """By variant; empty for problems other than alignments."""
    if problem not in ALIGNMENTS:
        return {}
    return {variant: _lines(f"{framework}_impl", *start) for variant, start in _STARTS.items()}


def kernel_lines() -> int:
    """Lines of C++ of the CPU kernels that both frameworks call, without blank ones and comments."""
    sources = [path for path in (_ROOT / _KERNELS).iterdir() if path.suffix in (".cpp", ".h")]
    code = (_COMMENT.sub("", path.read_text(encoding="utf-8")) for path in sources)
    return sum(bool(line.strip()) for text in code for line in text.splitlines())


def _lines(package: str, module: str, names: tuple[str, ...]) -> int:
    """Lines without blank ones, comments and docstrings."""
    start = f"{package}.{module}"
    pending = [(start, name) for name in names or _definitions(start)]
    seen: set[tuple[str, str]] = set()
    lines: set[tuple[str, int]] = set()
    while pending:
        key = pending.pop()
        if key in seen:
            continue
        seen.add(key)
        module, name = key
        node = _definitions(module).get(name)
        if node is None:
            continue
        if isinstance(node, ast.ImportFrom):
            pending += _imported(node, name, package)
            continue
        lines |= {(module, number) for number in _code(node)}
        pending += [(module, used.id) for used in ast.walk(node) if isinstance(used, ast.Name)]
    return len(lines)


def _imported(node: ast.ImportFrom, name: str, package: str) -> list[tuple[str, str]]:
    """The definition behind an imported name, if it is one of the package; of a module all of them."""
    source = node.module or ""
    if not source.startswith(package):
        return []
    original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
    if _path(f"{source}.{original}").exists():
        return [(f"{source}.{original}", each) for each in _definitions(f"{source}.{original}")]
    return [(source, original)]


def _code(node: ast.stmt) -> set[int]:
    """The lines on which a statement has code."""
    docstrings = {
        line
        for inner in ast.walk(node)
        if isinstance(inner, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(inner) is not None
        for line in range(inner.body[0].lineno, (inner.body[0].end_lineno or 0) + 1)
    }
    lines = {
        line
        for inner in ast.walk(node)
        if isinstance(inner, ast.expr | ast.stmt | ast.arg)
        for line in (inner.lineno, inner.end_lineno or inner.lineno)
    }
    return lines - docstrings


@functools.cache
def _definitions(module: str) -> Definitions:
    """The top-level names of a module, and the statements that define them."""
    path = _path(module)
    found: Definitions = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: node for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    return found


def _path(module: str) -> Path:
    return (_ROOT / module.replace(".", "/")).with_suffix(".py")
