"""Whether the code that a record measured has changed since: a hash of it, by framework and variant.

A variant's code is everything reachable from the definitions with its name, and the C++ files beside those modules; for
a problem that is not an alignment, its module. Argument checks, kernels and bindings of other devices and a user's file
are left out. Within a statement, the project's names become numbers; names of libraries stay. So the hash misses a swap
of two names of the project, a rename to a name that a library has, and the name of an argument in a call.
"""

import ast
import functools
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from shared.backends import module_of
from shared.bench.cases import FRAMEWORKS, Case, Settings
from shared.bench.measure.code_size import COMMENT, definitions_of, names_of, reached
from shared.bench.measure.machine import ROOT
from shared.bench.record import Record

# ignored in what ast.dump writes: docstrings, imports, module names, argument names in calls
_UNSEEN = re.compile(
    r"""Expr\(value=Constant\(value=(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")\)\)|(?<=keyword\()arg='\w+'|Pass\(\)|"""
    r"(?:Import|ImportFrom|Global|Nonlocal)\([^]]*\](?:, level=\d)?\)|value='(?:jax_impl|torch_impl|shared)\.[.\w]+'"
)
_STATEMENT = r"\b(?:\w*Assign|Return|For|While|If|With|Expr|\w+Def|Lambda|\w+Comp|GeneratorExp)\b|[;{}]"
_CPP = r"[^\w.].*|\.?[\d_].*|\.|std::.*|.*_t|bool|const|double|else|false|float|for|if|int|long|return|true|while"


def hashes(settings: Settings, cases: Iterable[Case]) -> dict[str, dict[str, str]]:
    """The hash of the code that the cases of a run measure, by framework and variant."""
    hash_of: dict[str, dict[str, str]] = {}
    for framework, variant in dict.fromkeys((case.framework, case.variant) for case in cases):
        hash_of.setdefault(framework, {})[variant] = code_hash(framework, variant, settings.problem, settings.device)
    return hash_of


def warnings(record: Record) -> list[str]:
    """Return a line if code that the record measured has changed since."""
    where, changed = (record.settings.problem, record.settings.device), []
    for framework, old in record.code.items():
        names = [variant for variant, value in old.items() if code_hash(framework, variant, *where) != value]
        which = f" ({', '.join(names)})" if len(names) < len(old) else ""
        changed += [f"{FRAMEWORKS[framework]}{which}"] if names else []
    return [f"Measured before the project code for {' and for '.join(changed)} changed."] if changed else []


@functools.cache
def code_hash(framework: str, variant: str, problem: str, device: str, root: Path = ROOT) -> str:
    """The hash of a variant's code in a checkout."""
    package, definitions = f"{framework}_impl", definitions_of(root)
    starts = [f"{package}.{'learning' if problem == 'learn_alignment' else module_of(problem)}"]
    if not (root / package / f"{module_of(problem)}.py").exists():  # an alignment, or learning one
        names = (variant, variant == "cuda_graph" and "wavefront")  # a graph captures what wavefront launches
        starts += [name for name in definitions if name.startswith(package) and name.split(".")[-1] in names]
    not_timed = ("shared.checks", "shared.workload_checks", "shared.variants", package)
    elsewhere = ".triton" if device == "cpu" else ".cpp"
    used = reached(root, starts, lambda name: definitions[name].module not in not_timed and elsewhere not in name)
    nodes = {node for one in used.values() for node in one.nodes}
    bound = {name.split(".")[-1] for name, one in used.items() if one.nodes or definitions.keys() & one.uses[:1]}
    bound = bound.union(*(attributes for _, attributes in map(_python, nodes)))
    texts = [text for text, _ in map(_python, nodes)]
    for folder in {root.joinpath(*one.module.split(".")).parent for one in used.values()}:
        files = [path for path in folder.iterdir() if path.suffix in (".cpp", ".cc", ".h")]
        texts += [text for path in files for text in _cpp(path)]
    numbered = sorted(_numbered(text, frozenset(bound & _names(text))) for text in texts if text)
    return hashlib.sha256("\n".join(numbered).encode()).hexdigest()[:12]


@functools.cache
def _python(node: ast.stmt) -> tuple[str, set[str]]:
    """A statement as ast.dump writes it, without what is ignored; and the attributes that it defines."""
    parts = list(ast.walk(node))
    names = {name for part in parts if isinstance(part, ast.ClassDef) for item in part.body for name in names_of(item)}
    names |= {part.attr for part in parts if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)}
    return re.sub(r"(?:, )?\w+=\[[, ]*\]", "", _UNSEEN.sub("", ast.dump(node))), names


@functools.cache
def _cpp(path: Path) -> list[str]:
    """The declarations of a C++ file, with names as ast.dump writes them."""
    source, declarations = path.read_text(encoding="utf-8"), []
    text = re.sub("(?m)^ *#.*", r"\g<0>;", re.sub(r"#include.*|\\\n", "", COMMENT.sub("", source)))
    words = re.findall(r"std::\w+|\.?[a-zA-Z]\w*|[\w.]+|\S", text.replace("->", "."))
    tokens = [word if re.fullmatch(_CPP, word) else f"id='{word}'" for word in words]
    start, opened = 0, list[bool]()
    for place, token in enumerate(tokens):
        if token in ("{", "}"):  # of a function?
            opened = [*opened, "(" in tokens[start:place]] if token == "{" else opened[:-1]
        if token in ("{", "}", ";") and not any(opened):
            declarations.append(" ".join(tokens[start : place + 1]))
            start = place + 1
    return declarations


@functools.cache
def _names(text: str) -> set[str]:
    """The names in a text."""
    return {*re.findall(r"\b(?:id|attr|name|arg)='(\.?\w+)'", text)}


@functools.cache
def _numbered(text: str, bound: frozenset[str]) -> str:
    """The text with names that it or the project binds replaced by numbers, counted anew in each statement."""
    text, numbered = re.sub(r"\b(?:name|arg)='", "id='", text), ""
    local = bound.union(re.findall(r"\bid='(\.?\w+)'(?!, ctx=[LD])", text))
    chain = r"id='(\w+)', ctx=Load\(\)\)(?:, attr='\w+', ctx=Load\(\)\))+"  # dotted; a library's if its first part is
    text = re.sub(chain, lambda found: found[0] if found[1] in local else found[0].replace("='", ":'"), text)
    for part in re.split(f"(?={_STATEMENT})", text):
        for number, mark in enumerate(dict.fromkeys(re.findall(r"\b(?:id|attr)='\.?\w+'", part))):
            is_own = mark.split("'")[1] in (bound if mark.startswith("attr") else local)
            part = part.replace(mark, f"#{number}" if is_own else mark)
        numbered += part
    return re.sub(r"[\[(, ]+", " ", numbered)
