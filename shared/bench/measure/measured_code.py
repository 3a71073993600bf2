"""Whether the code that a record measured has changed since: a hash of it, by framework and variant.

A variant's code is what a module or an entry of a table with its name reaches, and the C++ beside these modules; of a
problem that is no alignment, also the problem's module. What checks and passes on the arguments of every variant is no
part of it, nor are kernels for other devices, nor a user's own file, which is an input. Renaming, moving, comments,
docstrings and formatting keep the hash.
"""

import ast
import functools
import hashlib
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

from shared.backends import module_of
from shared.bench.cases import FRAMEWORKS, Case, Settings
from shared.bench.measure.code_size import ROOT, Definition, names_of, project, reached
from shared.bench.record import Record
from shared.problems import problem_of

# the checks of arguments, and the names of the variants
_NO_PART = ("shared.checks", "shared.workload_checks", "shared.variants")
# what stands for a name: its kind, the module, the scope or the global name to which it belongs, if any, and itself
_MARK = re.compile(r"«(\w+)\|(.*?)\|(.*?)»")
# fields of Python's syntax that are names, and parts that define theirs
_NAMES, _BINDING = ("id", "arg", "attr", "name"), (ast.arg, ast.FunctionDef, ast.ExceptHandler)
# of C++: what counts is in the group
_TOKEN = re.compile(
    r"""/\*.*?\*/|//[^\n]*|#include[^\n]*|\\\n|("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])+'|\.?\d[\w.']*|\w+|\S)""", re.DOTALL
)
# a name after these is used; after other words, which are types, it is defined
_USING = ("return", "else", "case", "if", "goto", "new", "throw", "delete", "sizeof", "const", "volatile", "unsigned")


def hashes(settings: Settings, cases: Iterable[Case]) -> dict[str, dict[str, str]]:
    """By framework and variant, the hash of the code that the cases of a run measure."""
    found: dict[str, dict[str, str]] = {}
    for case in cases:
        own = code_hash(case.framework, case.variant, settings.problem, settings.device)
        found.setdefault(case.framework, {})[case.variant] = own
    return found


def warnings(record: Record) -> Iterator[str]:
    """A line for a reader of what was measured before its code changed, or before records knew of that."""
    where, changed = (record.settings.problem, record.settings.device), []
    for framework, own in record.code.items():
        names = [variant for variant, known in own.items() if code_hash(framework, variant, *where) != known]
        changed += [f"{FRAMEWORKS[framework]} {', '.join(names)}"] if names else []
    if changed:
        yield f"Measured before the code of {'; '.join(changed)} changed."
    elif record.results and not record.code:
        commit, day = str(record.environment.get("git_commit"))[:10], str(record.started)[:10]
        yield f"Measured on {day} at commit {commit}, before records told whether the measured code has changed since."


@functools.cache
def code_hash(framework: str, variant: str, problem: str, device: str, root: Path = ROOT) -> str:
    """The hash of a variant's code in a checkout."""
    package, definitions = f"{framework}_impl", project(root)
    starts = [f"{package}.{'learning' if problem == 'learn_alignment' else module_of(problem)}"]
    starts += _named(definitions, package, variant, problem_of(problem).variant_names)
    others, elsewhere = (*_NO_PART, package), ".triton" if device == "cpu" else ".cpp"
    found = reached(definitions, starts, lambda name: definitions[name].module not in others and elsewhere not in name)
    nodes = dict.fromkeys((node, each.module) for each in found.values() for node in each.nodes)
    paths = [root.joinpath(*each.module.split(".")) for each in found.values()]
    folders = dict.fromkeys(path if path.is_dir() else path.parent for path in paths)
    texts = [*(_python(*each) for each in nodes), *(text for folder in folders for text in _cpp(folder))]
    texts.sort(key=lambda text: _MARK.sub("", text))  # in the same order whatever names there are
    return hashlib.sha256(_numbered("\n".join(texts), definitions, found).encode()).hexdigest()[:12]


def _named(
    definitions: Mapping[str, Definition], package: str, variant: str, variants: Container[object]
) -> Iterator[str]:
    """The modules of a package with a variant's name, and what stands at this name in a table of variants."""
    for name, each in definitions.items():
        if name == each.module and name.startswith(f"{package}.") and name.endswith(f".{variant}"):
            yield name
        for node in each.nodes if each.module.startswith(package) else ():
            if isinstance(table := getattr(node, "value", None), ast.Dict):
                keys = [getattr(key, "value", None) for key in table.keys]
                if variant in keys and all(key in variants for key in keys):
                    parts = ast.walk(table.values[keys.index(variant)])
                    yield from (f"{each.module}.{part.id}" for part in parts if isinstance(part, ast.Name))


def _numbered(text: str, definitions: Mapping[str, Definition], found: Iterable[str]) -> str:
    """A text with a number for each name that its code defines, by order of appearance; others stay."""
    numbers: dict[str, int] = {}
    marks, tops = set(_MARK.findall(text)), {name.rpartition(".")[2] for name in found}
    members, arguments = ({name for kind, _, name in marks if kind == own} for own in ("member", "argument"))

    def source(name: str) -> str:
        while (made := definitions.get(name)) and not made.nodes and name != made.module:
            name = made.uses[0]  # it is imported
        return name

    def number(match: re.Match[str]) -> str:
        kind, of, name = match.groups()
        key, is_own = of + name, True
        if kind == "keyword":
            is_own = name in members | arguments
        elif kind == "attribute":  # of a value, or of a global name, which may be another library's
            key, is_own = name, name in members if not of else source(of) in definitions and name in members | tops
        elif kind == "global":
            key = source(f"{of}.{name}")
            is_own, name = key in definitions, name if key == f"{of}.{name}" else key
        return f"«{numbers.setdefault(key, len(numbers))}»" if is_own else name

    return _MARK.sub(number, text)


@functools.cache
def _python(node: ast.stmt, module: str) -> str:
    """A statement at the top of a module as text, with marks for names."""
    parts = list(ast.walk(node))
    binding = [
        each for each in parts if isinstance(each, _BINDING) or isinstance(getattr(each, "ctx", None), ast.Store)
    ]
    local = {getattr(each, field, None) for each in binding for field in _NAMES}.difference(names_of(node, parts))
    bodies = [each.body for each in parts if isinstance(each, ast.ClassDef)]
    members = {name for body in bodies for each in body for name in names_of(each, ast.walk(each))}

    def marked(part: ast.AST, name: str) -> str:
        if isinstance(part, ast.keyword):
            return f"«keyword||{name}»"
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load):
            of = part.value
            while isinstance(of, ast.Attribute):
                of = of.value
            source = f"{module}.{of.id}" if isinstance(of, ast.Name) and of.id not in local else ""
            return f"«attribute|{source}|{name}»"
        if isinstance(part, ast.Attribute) or name in members:
            return f"«member||{name}»"
        if name in local:
            return f"«{'argument' if isinstance(part, ast.arg) else 'local'}|{module} {node.lineno} |{name}»"
        return f"«global|{module}|{name}»"

    def shown(part: object) -> str:
        if isinstance(part, list):
            return f"[{' '.join(map(shown, part))}]"
        if not isinstance(part, ast.AST):
            return repr(part)
        is_docstring = isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
        if is_docstring or isinstance(part, ast.Import | ast.ImportFrom | ast.expr_context):
            return ""
        text = type(part).__name__
        for field, value in ast.iter_fields(part):
            if value is not None and value != []:  # versions of Python have other fields that may be empty
                is_name = isinstance(value, str) and field in _NAMES
                text += f" {field}={marked(part, value) if is_name else shown(value)}"
        return f"({text})"

    return shown(node)


@functools.cache
def _cpp(folder: Path) -> list[str]:
    """The C++ files of a folder as texts, with marks for the names that they define."""
    paths = [path for path in sorted(folder.iterdir()) if path.suffix in (".cpp", ".cc", ".h")]
    files = [list(filter(None, _TOKEN.findall(path.read_text(encoding="utf-8")))) for path in paths]
    defined = {
        name
        for tokens in files
        for before, name, after in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if name.isidentifier() and (before == "define" or (after in "(=;,){[:>" and _is_type(before, after == "(")))
    }
    return [" ".join(f"«local|{folder} |{each}»" if each in defined else each for each in tokens) for tokens in files]


def _is_type(token: str, is_call: bool) -> bool:
    """Whether the name after it is being defined; is_call: whether a parenthesis follows that."""
    return (token.isidentifier() and token not in _USING) or (token in "*&>" and not is_call)
