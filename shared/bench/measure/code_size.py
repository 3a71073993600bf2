"""How much code a variant takes: the lines of what it uses within its framework's package, or within a user's file.

That is each definition at the top of a module that it names, and what those name in turn, also through imports. Blank
lines, comments and docstrings do not count.
"""

import ast
import functools
import re
import tokenize
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from shared.alignments import ALIGNMENTS
from shared.backends import is_file

ROOT = Path(__file__).resolve().parents[3]
# what is measured; the benchmark itself is not
_PACKAGES, _BENCH = ("jax_impl", "torch_impl", "shared"), "shared/bench"
# variant -> the definition, or the module, that is its own
_STARTS = {
    "diagonal_loop": "sweeps.diagonal_loop", "vmap": "sweeps.vmap",
    "wavefront": "wavefront", "fused": "kernels.fused",
}  # fmt: skip

_KERNELS = ROOT / "shared/kernels"
# of Triton's folder, what describes and compiles the kernels
_NO_KERNELS = ("__init__.py", "ahead.py", "hardware_limit.py", "machine_code.py", "programs.py")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def code_lines(framework: str, problem: str) -> dict[str, int]:
    """Count lines of code by variant; nothing for problems other than alignments, learning and a user's own."""
    if problem == "learn_alignment":
        folder = ROOT / f"{framework}_impl/learning"
        lines = sum(file_lines(folder / f"{name}.py") for name in ("models", "trainer"))
        return dict.fromkeys(_STARTS, lines)
    root, starts = f"{framework}_impl", _STARTS if problem in ALIGNMENTS else {}
    definitions = project(ROOT) if starts else {}
    if is_file(problem):
        root, starts = Path(problem).stem, dict.fromkeys(("eager", "compiled"), f"{framework}_function")
        definitions = _of_file(Path(problem))
    counts = {}
    for variant, start in starts.items():
        found = reached(definitions, [f"{root}.{start}"], lambda name: not name.endswith("."))
        lines = {line for each in found.values() for line in each.lines}
        counts[variant] = sum(module.partition(".")[0] == root for module, _ in lines)
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
    lines = source.split("\n")
    return len({line for node in ast.parse(source).body for line in _code(node, list(ast.walk(node)), lines)})


def _source(path: Path) -> str:
    """The text of a Python file, which may begin with a byte-order mark or name its encoding."""
    with tokenize.open(path) as file:
        return file.read()


class Definition(NamedTuple):
    """A name at the top of a module, or the module itself, which uses all its names.

    What a module does beside defining, such as to register a function, has the name "", which all others use.
    """

    module: str
    nodes: list[ast.stmt]  # none where it is imported, and of a module
    lines: set[tuple[str, int]]  # (module, line)
    uses: list[str]  # dotted names, also of what is no definition of the project


def reached(
    definitions: Mapping[str, Definition], starts: Iterable[str], is_part: Callable[[str], bool]
) -> dict[str, Definition]:
    """All definitions that some reach, themselves included; neither those that are no part, nor through them."""
    pending, found = list(starts), dict[str, Definition]()
    while pending:
        name = pending.pop()
        if name in definitions and name not in found and is_part(name):
            found[name] = definitions[name]
            pending += definitions[name].uses
    return found


@functools.cache
def project(root: Path) -> dict[str, Definition]:
    """What the packages of a checkout define, by dotted name; the benchmark itself apart."""
    found: dict[str, Definition] = {}
    for path in (path for package in _PACKAGES for path in sorted((root / package).rglob("*.py"))):
        if not path.is_relative_to(root / _BENCH):
            found |= _of_file(path, root)
    return found


def _of_file(path: Path, root: Path | None = None) -> dict[str, Definition]:
    """By dotted name, all that a file defines or imports from others. root: of the packages, if it is in one."""
    parts = path.relative_to(root or path.parent).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    source = _source(path)
    lines, rest = source.split("\n"), Definition(module, [], set(), [])
    own = {module: Definition(module, [], set(), []), f"{module}.": rest}
    for node in ast.parse(source).body:
        parts = list(ast.walk(node))
        imports = [each for each in parts if isinstance(each, ast.ImportFrom)]
        named = [
            (alias.asname or alias.name, f"{each.module}.{alias.name}") for each in imports for alias in each.names
        ]
        if isinstance(node, ast.ImportFrom):
            own |= {f"{module}.{name}": Definition(module, [], set(), [target]) for name, target in named}
        elif not isinstance(node, ast.Import):
            texts = [each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            rest.uses.extend(text for text in texts if "." in text)  # a module can be imported by its name
            uses = [f"{module}.", *(target for _, target in named)]
            uses += [f"{module}.{each.id}" for each in parts if isinstance(each, ast.Name)]
            coded = {(module, line) for line in _code(node, parts, lines)}
            for name in [name for name in names_of(node, parts) if name != "_"] or [""]:
                made = own.setdefault(f"{module}.{name}", Definition(module, [], set(), []))
                made.nodes.append(node)
                made.lines.update(coded)
                made.uses.extend(uses)
    own[module].uses.extend(own)
    return own


def names_of(node: ast.stmt, parts: Iterable[ast.AST]) -> list[str]:
    """The names that a statement defines, of which these are the parts."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    return [each.id for each in parts if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]


def _code(node: ast.stmt, parts: Iterable[ast.AST], source: list[str]) -> list[int]:
    """The lines of a statement, without blank ones, comments and docstrings."""
    docstrings = [each for each in parts if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)]
    no_code = {line for each in docstrings for line in range(each.lineno, (each.end_lineno or 0) + 1)}
    first = min(each.lineno for each in [node, *getattr(node, "decorator_list", [])])
    lines = range(first, (node.end_lineno or 0) + 1)
    return [line for line in lines if line not in no_code and not re.match(r"\s*(#|$)", source[line - 1])]
