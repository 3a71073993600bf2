"""The modules of the benchmark import each other in one direction, from the command line down to cases."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
# every module imports only its own level and those below it
LEVELS = ({"cases", "estimates", "units"}, {"record", "measure"}, {"worker"}, {"run", "analysis", "report"},
          {"questions"}, {"command_line"}, {"compare"})  # fmt: skip


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(path): path for path in [ROOT / "compare.py", *sorted((ROOT / "shared/bench").rglob("*.py"))]}
IMPORTS = {name: [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
           for name, path in FILES.items()}  # fmt: skip


def imports() -> dict[str, set[str]]:
    """The benchmark's modules that each one imports, those in functions included."""
    graph: dict[str, set[str]] = {}
    for name, nodes in IMPORTS.items():
        modules = [f"{node.module}.{alias.name}" for node in nodes for alias in node.names]
        graph[name] = {module if module in FILES else module.rpartition(".")[0] for module in modules} & FILES.keys()
    return graph


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules of which each one leads to every other."""
    reached = {name: {name} for name in graph}
    for _ in graph:
        reached = {name: targets.union(*(reached[other] for other in graph[name])) for name, targets in reached.items()}
    joined = {frozenset(o for o in reached[name] if name in reached[o]) for name in graph}
    return [set(group) for group in joined if len(group) > 1]


def level(module: str) -> int:
    part = module.removeprefix("shared.bench.").partition(".")[0]
    return next(number for number, names in enumerate(LEVELS) if part in names)


def test_no_modules_import_each_other_in_a_circle():
    assert circles(imports()) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [{"b", "c"}]  # one is seen


def test_no_module_imports_one_above_it():
    above = [(name, other) for name, targets in imports().items() for other in targets
             if level(other) > level(name)]  # fmt: skip
    assert above == []


def test_only_slow_third_party_modules_are_imported_in_functions():
    for name, nodes in IMPORTS.items():
        late = {str(node.module) for node in nodes if node.col_offset and str(node.module).startswith("shared")}
        # before this one NumPy and the frameworks must not be imported: they start threads
        assert late <= ({"shared.bench.worker.commands"} if name == "shared.bench.worker.main" else set()), name
        assert "TYPE_CHECKING" not in FILES[name].read_text(), name
