"""Each variant is what its name says: seen in JAX's jaxpr, in the graph that PyTorch compiles, and by spies."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS

import jax_impl.alignment
import jax_impl.sweeps
import torch_impl.alignment
import torch_impl.sweeps
from shared.variants import variant_names
from torch_impl.compiler import compiled

LADDER = variant_names("smith_waterman")
UNROLLED = ("cell_loop", "diagonal_loop")
SCANNING = ("scan_cond", "scan_select", "batch_loop", "vmap")
SWEEPS = {"jax": jax_impl.sweeps, "torch": torch_impl.sweeps}
PAIRS, ROWS, COLS = 5, 2, 3  # three different numbers: an axis is known by its length
POSITIONS = (ROWS + COLS + 1) // 2


def matrix(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


# JAX: the jaxpr


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr and of the jaxprs inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in inner_jaxprs(equation):
            yield from equations(inner)


def inner_jaxprs(equation: Any) -> Iterator[Any]:
    for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
        if hasattr(value, "eqns"):
            yield getattr(value, "jaxpr", value)


def traced(variant: str, *shape: int, unroll: int | None = None) -> Any:
    function = FRAMEWORKS["jax"].backend.function("smith_waterman", variant, unroll=unroll)
    return jax.make_jaxpr(function)(matrix(*shape)).jaxpr


def named(name: str, jaxpr: Any) -> list[Any]:
    return [equation for equation in equations(jaxpr) if equation.primitive.name == name]


@pytest.mark.parametrize("variant", UNROLLED)
def test_jax_writes_the_loop_out(variant):
    small, large = traced(variant, 2, 3), traced(variant, 4, 6)
    for loop in ("scan", "while", "cond"):
        assert not named(loop, large)
    steps = {"cell_loop": (2 * 3, 4 * 6), "diagonal_loop": (2 + 3 - 1, 4 + 6 - 1)}[variant]
    # one smooth maximum per step and one over the ends
    assert tuple(len(named("log", jaxpr)) for jaxpr in (small, large)) == tuple(count + 1 for count in steps)
    assert len(list(equations(large))) > len(list(equations(small)))


@pytest.mark.parametrize("variant", SCANNING)
def test_jax_traces_one_step_whatever_the_size(variant):
    small, large = traced(variant, 2, 3), traced(variant, 12, 9)
    assert len(named("scan", small)) == len(named("scan", large)) == 1
    assert len(list(equations(small))) == len(list(equations(large)))
    assert named("scan", large)[0].params["length"] == 12 + 9 - 1


def test_jax_scan_cond_branches_inside_the_scan():
    (scan,) = named("scan", traced("scan_cond", 4, 6))
    (cond,) = [equation for inner in inner_jaxprs(scan) for equation in named("cond", inner)]
    assert len(cond.params["branches"]) == 2


@pytest.mark.parametrize("variant", ["scan_select", "batch_loop", "vmap"])
def test_jax_selects_without_a_branch(variant):
    assert not named("cond", traced(variant, 4, 6))
    assert not named("cond", traced(variant, PAIRS, 4, 6))


@pytest.mark.parametrize(("variant", "carried"), [("vmap", (PAIRS, POSITIONS)), ("scan_select", (POSITIONS, PAIRS))])
def test_jax_carries_the_whole_batch_through_one_scan(variant, carried):
    # mapped: the batch first; walked as one: the batch last
    (scan,) = named("scan", traced(variant, PAIRS, ROWS, COLS))
    *carry, endings = (variable.aval.shape for variable in scan.outvars)
    assert carry == [carried] * 2
    assert endings == (ROWS + COLS - 1, *carried)


def test_jax_batch_loop_calls_one_compiled_function_for_each_pair():
    jaxpr = traced("batch_loop", PAIRS, ROWS, COLS)
    calls = [
        e for e in jaxpr.eqns if e.primitive.name in ("jit", "pjit") and any(named("scan", i) for i in inner_jaxprs(e))
    ]
    assert len(calls) == PAIRS
    assert len({id(inner) for call in calls for inner in inner_jaxprs(call)}) == 1
    assert not any(equation.primitive.name == "scan" for equation in jaxpr.eqns)


@pytest.mark.parametrize("variant", SCANNING)
def test_jax_unrolls_as_asked(variant):
    for unroll in (1, 3):
        (scan,) = named("scan", traced(variant, ROWS, COLS, unroll=unroll))
        assert scan.params["unroll"] == unroll


# PyTorch: the graph that Dynamo hands to the compiler


def captured(variant: str, *shape: int, unroll: int | None = None) -> torch.fx.GraphModule:
    """The one graph of a variant, without compiling it."""
    graphs = []

    def keep(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append(module)
        return module.forward

    function = FRAMEWORKS["torch"].backend.function("smith_waterman", variant, unroll=unroll)
    # a string in the signature, but a callable serves as well
    compiled(function, backend=keep)(torch.from_numpy(matrix(*shape)))  # pyright: ignore[reportArgumentType]
    (graph,) = graphs
    return graph


def nodes(graph: torch.fx.GraphModule, operator: str) -> list[torch.fx.Node]:
    """The calls of a higher-order operator ("scan", "cond") or of a function by its name, inner graphs included."""
    modules = [module for module in graph.modules() if isinstance(module, torch.fx.GraphModule)]
    every = [node for module in modules for node in module.graph.nodes]
    return [node for node in every if node.op in ("call_function", "call_method") and name_of(node) == operator]


def name_of(node: torch.fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def step_of(graph: torch.fx.GraphModule, scan: torch.fx.Node) -> torch.fx.GraphModule:
    body = scan.args[0]
    assert isinstance(body, torch.fx.Node)
    step = graph.get_submodule(str(body.target))
    assert isinstance(step, torch.fx.GraphModule)
    return step


def shapes(values: Any) -> list[tuple[int, ...]]:
    return [tuple(node.meta["example_value"].shape) for node in values]


@pytest.mark.parametrize("variant", UNROLLED)
def test_torch_writes_the_loop_out(variant):
    for rows, cols in ((2, 2), (2, 4)):
        graph = captured(variant, rows, cols)
        assert not nodes(graph, "scan")
        assert not nodes(graph, "cond")
        steps = {"cell_loop": rows * cols, "diagonal_loop": rows + cols - 1}[variant]
        assert len(nodes(graph, "log")) == steps + 1


@pytest.mark.parametrize("variant", SCANNING)
def test_torch_traces_one_step(variant):
    graph = captured(variant, ROWS, COLS)
    (scan,) = nodes(graph, "scan")
    assert scan.target is torch.ops.higher_order.scan
    assert len(nodes(step_of(graph, scan), "log")) == 1
    assert len(nodes(graph, "log")) == 2


def test_torch_scan_cond_branches_inside_the_scan():
    graph = captured("scan_cond", ROWS, COLS)
    (scan,) = nodes(graph, "scan")
    (cond,) = nodes(step_of(graph, scan), "cond")
    assert cond.target is torch.ops.higher_order.cond


@pytest.mark.parametrize("variant", ["scan_select", "vmap", "batch_loop"])
def test_torch_selects_without_a_branch(variant):
    assert not nodes(captured(variant, ROWS, COLS), "cond")


@pytest.mark.parametrize(("variant", "carried"), [("vmap", (PAIRS, POSITIONS)), ("scan_select", (POSITIONS, PAIRS))])
def test_torch_carries_the_whole_batch_through_one_scan(variant, carried):
    (scan,) = nodes(captured(variant, PAIRS, ROWS, COLS), "scan")
    assert shapes(scan.args[1]) == [carried] * 2


def test_torch_batch_loop_scans_each_pair():
    scans = nodes(captured("batch_loop", 2, ROWS, COLS), "scan")
    assert [shapes(scan.args[1]) for scan in scans] == [[(POSITIONS,)] * 2] * 2


def test_torch_batch_loop_calls_one_compiled_function_for_each_pair(monkeypatch):
    compilations, calls = [], []

    def spied(function: Callable[..., Any]) -> Callable[..., Any]:
        compilations.append(function)
        return lambda parameters, s, lengths: calls.append(tuple(s.shape)) or s.sum()

    monkeypatch.setattr(torch_impl.sweeps, "compiled", spied)
    torch_impl.sweeps.forget_compiled()
    try:
        torch_impl.smith_waterman(torch.zeros(PAIRS, ROWS, COLS), variant="batch_loop")
    finally:
        torch_impl.sweeps.forget_compiled()
    assert len(compilations) == 1
    assert calls == [(ROWS, COLS)] * PAIRS


@pytest.mark.parametrize("variant", SCANNING)
def test_torch_unrolls_as_asked(variant):
    for unroll in (1, 3):
        graph = captured(variant, ROWS, COLS, unroll=unroll)
        (scan,) = nodes(graph, "scan")
        assert len(nodes(step_of(graph, scan), "log")) == unroll
        blocks = -(-(ROWS + COLS - 1) // unroll)
        assert all(shape[:2] == (blocks, unroll) for shape in shapes(scan.args[2]))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_unrolling_changes_no_score(framework):
    backend = FRAMEWORKS[framework].backend
    s = backend.to_device(matrix(3, 4), "cpu")
    scores = [float(backend.function("smith_waterman", "scan_select", unroll=unroll)(s)) for unroll in (1, 4)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)


# no rung quietly calls another


def explode(*_: Any, **__: Any) -> Any:
    raise AssertionError("a rung called another")


@pytest.mark.parametrize("variant", LADDER)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_rung_calls_another(framework, variant, monkeypatch):
    sweeps = SWEEPS[framework]
    builds_on = {"batch_loop": "scan_select", "vmap": "scan_select" if framework == "jax" else ""}.get(variant, "")
    sweeps.forget_compiled()
    expected = float(FRAMEWORKS[framework].package.smith_waterman(matrix(ROWS, COLS)))
    for other in set(LADDER) - {variant, builds_on}:
        monkeypatch.setattr(sweeps, other, explode)
    if variant in UNROLLED:
        monkeypatch.setattr(sweeps, "_scan", explode)
    if variant == "cell_loop":
        monkeypatch.setattr(sweeps, "_rotate", explode)
    if framework == "torch" and variant == "batch_loop":
        monkeypatch.setattr(sweeps, "compiled", lambda function: function)
    got = FRAMEWORKS[framework].package.smith_waterman(matrix(1, ROWS, COLS), variant=variant)
    sweeps.forget_compiled()
    assert float(got[0]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("variant", ["auto", *LADDER])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_variant_is_the_sweep_of_its_name(framework, variant, monkeypatch):
    package, backend = FRAMEWORKS[framework]
    chosen = backend.auto if variant == "auto" else variant
    own = SWEEPS[framework].SWEEPS["cell_loop"]
    called = []
    for name in LADDER:
        spy = lambda *arguments, name=name: called.append(name) or own(*arguments)  # noqa: E731
        monkeypatch.setitem(SWEEPS[framework].SWEEPS, name, spy)
    package.smith_waterman(matrix(1, 2), variant=variant)
    assert called == [chosen]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_absent_variant_is_an_error_with_its_reason(framework, monkeypatch):
    package, backend = FRAMEWORKS[framework]
    monkeypatch.setitem(backend.absent, "scan_cond", "it has no branches")
    usable = tuple(name for name in LADDER if name != "scan_cond")
    assert package.variants("smith_waterman") == usable
    text = f"variant 'scan_cond' is absent here: it has no branches; usable: {', '.join(usable)}"
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its text is compared
        package.smith_waterman(matrix(2, 2), variant="scan_cond")
    assert str(caught.value) == text
