"""Each variant is what its name says: seen in JAX's jaxpr, in the graph that PyTorch compiles, and by spies."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
import torch
import torch._dynamo
from frameworks import BY_HAND, FRAMEWORKS, PROBLEMS
from torch.utils._python_dispatch import TorchDispatchMode

import jax_impl.plain_loops
import jax_impl.sweeps
import torch_impl.plain_loops
import torch_impl.sweeps
from shared import reference
from shared.kernels import cpp
from shared.variants import FOR_GPUS, fastest_variant, variant_names
from torch_impl.compiler import compiled


def matrix(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr and of the jaxprs inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in inner_jaxprs(equation):
            yield from equations(inner)


def inner_jaxprs(equation: Any) -> Iterator[Any]:
    if equation.primitive.name == "pairs":  # which JAX does not look into before it compiles
        both = equation.invars, equation.outvars
        arrays, results = ([jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in variables] for variables in both)
        yield jax.make_jaxpr(lambda *own: tuple(equation.params["function"](results, *own)))(*arrays).jaxpr
    for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
        if hasattr(value, "eqns"):
            yield getattr(value, "jaxpr", value)


def traced(variant: str, *shape: int, problem: str = "smith_waterman") -> Any:
    return jax.make_jaxpr(FRAMEWORKS["jax"].backend.function(problem, variant))(matrix(*shape)).jaxpr


def named(name: str, jaxpr: Any) -> list[Any]:
    return [equation for equation in equations(jaxpr) if equation.primitive.name == name]


@functools.cache
def captured(variant: str, *shape: int, problem: str = "smith_waterman") -> torch.fx.GraphModule:
    """The one graph of a variant, without compiling it."""
    graphs = []

    def keep(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append(module)
        return module.forward

    torch._dynamo.reset()  # what once ended in an error, as other tests want it to, is not traced again before
    function = FRAMEWORKS["torch"].backend.function(problem, variant)
    # a string in the signature, but a callable serves as well
    compiled(function, backend=keep)(torch.from_numpy(matrix(*shape)))  # pyright: ignore[reportArgumentType]
    (graph,) = graphs
    return graph


def nodes(graph: torch.fx.GraphModule, operator: str) -> list[torch.fx.Node]:
    """The calls of a higher-order operator ("scan", "cond") or of a function by its name, inner graphs included."""
    modules = [module for module in graph.modules() if isinstance(module, torch.fx.GraphModule)]
    every = [node for module in modules for node in module.graph.nodes]
    calls = [node for node in every if node.op in ("call_function", "call_method")]
    return [node for node in calls if operator in (node.target, getattr(node.target, "__name__", None))]


class Operators(TorchDispatchMode):
    """Inside, the project's operators that PyTorch calls are noted."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "smooth_alignment":
            self.called.append(func._opname)
        return func(*args, **(kwargs or {}))


LADDER = tuple(name for name in variant_names("smith_waterman") if name not in (*BY_HAND, *FOR_GPUS))
UNROLLED = ("cell_loop", "diagonal_loop")
SCANNING = ("scan_cond", "scan_select", "batch_loop", "vmap")
SWEEPS = {"jax": jax_impl.sweeps, "torch": torch_impl.sweeps}
PLAIN_LOOPS = {"jax": jax_impl.plain_loops, "torch": torch_impl.plain_loops}
SLOWLY = [pytest.param(problem, marks=pytest.mark.slow) for problem in PROBLEMS if problem != "smith_waterman"]
ONE = pytest.mark.parametrize("problem", ["smith_waterman", *SLOWLY])  # the others in the slow tier
FRAMEWORK = pytest.mark.parametrize("framework", FRAMEWORKS)
LAST_TWO = pytest.mark.parametrize("variant", BY_HAND)
# one with loops written out for it alone, and one with several states: the sweeps are the same for the others
STRUCTURE = pytest.mark.parametrize("problem", ["smith_waterman", SLOWLY[0]])
# a step has a smooth maximum, so a log, for each of its states; the affine one has another for where it may end
STATES = dict.fromkeys(PROBLEMS, 1) | {"smith_waterman_affine": 3}
LOGS = dict.fromkeys(PROBLEMS, 1) | {"smith_waterman_affine": 4}
PAIRS, ROWS, COLS = 5, 2, 3  # three different numbers: an axis is known by its length
POSITIONS = (ROWS + COLS + 1) // 2


# JAX: the jaxpr


@STRUCTURE
@pytest.mark.parametrize("variant", UNROLLED)
def test_jax_writes_the_loop_out(variant, problem):
    small, large = traced(variant, 2, 2, problem=problem), traced(variant, 3, 4, problem=problem)
    for loop in ("scan", "while", "cond"):
        assert not named(loop, large)
    steps = {"cell_loop": (2 * 2, 3 * 4), "diagonal_loop": (2 + 2 - 1, 3 + 4 - 1)}[variant]
    # the smooth maxima of the steps and one over the ends
    logs = tuple(len(named("log", jaxpr)) for jaxpr in (small, large))
    assert logs == tuple(LOGS[problem] * count + 1 for count in steps)
    assert len(list(equations(large))) > len(list(equations(small)))


@STRUCTURE
@pytest.mark.parametrize("variant", SCANNING)
def test_jax_traces_one_step_whatever_the_size(variant, problem):
    small, large = traced(variant, 2, 3, problem=problem), traced(variant, 12, 9, problem=problem)
    assert len(named("scan", small)) == len(named("scan", large)) == 1
    assert len(named("log", small)) == LOGS[problem] + 1
    assert len(list(equations(small))) == len(list(equations(large)))
    assert named("scan", large)[0].params["length"] == 12 + 9 - 1


@STRUCTURE
def test_jax_branches_inside_the_scan_of_scan_cond_and_nowhere_else(problem):
    (scan,) = named("scan", traced("scan_cond", 4, 6, problem=problem))
    (cond,) = [equation for inner in inner_jaxprs(scan) for equation in named("cond", inner)]
    assert len(cond.params["branches"]) == 2
    for variant in ("scan_select", "batch_loop", "vmap"):
        assert not named("cond", traced(variant, 4, 6, problem=problem))
        assert not named("cond", traced(variant, PAIRS, 4, 6, problem=problem))


@STRUCTURE
@pytest.mark.parametrize(("variant", "carried"), [("vmap", (PAIRS, POSITIONS)), ("scan_select", (POSITIONS, PAIRS))])
def test_jax_carries_the_whole_batch_through_one_scan(variant, carried, problem):
    # mapped: the batch first; walked as one: the batch last
    (scan,) = named("scan", traced(variant, PAIRS, ROWS, COLS, problem=problem))
    *carry, endings = (variable.aval.shape for variable in scan.outvars)
    assert carry == [carried] * 2 * STATES[problem]  # of two anti-diagonals
    assert endings == (ROWS + COLS - 1, *carried)


@STRUCTURE
def test_jax_batch_loop_calls_one_compiled_function_for_each_pair(problem):
    jaxpr = traced("batch_loop", PAIRS, ROWS, COLS, problem=problem)
    calls = [
        e for e in jaxpr.eqns if e.primitive.name in ("jit", "pjit") and any(named("scan", i) for i in inner_jaxprs(e))
    ]
    assert len(calls) == PAIRS
    assert len({id(inner) for call in calls for inner in inner_jaxprs(call)}) == 1
    assert not any(equation.primitive.name == "scan" for equation in jaxpr.eqns)


# PyTorch: the graph that Dynamo hands to the compiler


def graph_of(variant: str, problem: str) -> torch.fx.GraphModule:
    """The graph that most tests look at: of a batch, unless the variant takes its pairs one by one."""
    shape = (ROWS, COLS) if variant == "batch_loop" else (PAIRS, ROWS, COLS)
    return captured(variant, *shape, problem=problem)


def step_of(graph: torch.fx.GraphModule, scan: torch.fx.Node) -> torch.fx.GraphModule:
    body = scan.args[0]
    assert isinstance(body, torch.fx.Node)
    step = graph.get_submodule(str(body.target))
    assert isinstance(step, torch.fx.GraphModule)
    return step


def shapes(values: Any) -> list[tuple[int, ...]]:
    return [tuple(node.meta["example_value"].shape) for node in values]


@STRUCTURE
@pytest.mark.parametrize("variant", UNROLLED)
def test_torch_writes_the_loop_out(variant, problem):
    graph = captured(variant, ROWS, COLS, problem=problem)
    assert not nodes(graph, "scan")
    assert not nodes(graph, "cond")
    steps = {"cell_loop": ROWS * COLS, "diagonal_loop": ROWS + COLS - 1}[variant]
    assert len(nodes(graph, "log")) == LOGS[problem] * steps + 1


@STRUCTURE
@pytest.mark.parametrize("variant", SCANNING)
def test_torch_traces_one_step(variant, problem):
    graph = graph_of(variant, problem)
    (scan,) = nodes(graph, "scan")
    assert scan.target is torch.ops.higher_order.scan
    assert len(nodes(step_of(graph, scan), "log")) == LOGS[problem]
    assert len(nodes(graph, "log")) == LOGS[problem] + 1
    assert "smooth_alignment" not in graph.print_readable(print_output=False)


@STRUCTURE
def test_torch_branches_inside_the_scan_of_scan_cond_and_nowhere_else(problem):
    graph = graph_of("scan_cond", problem)
    (scan,) = nodes(graph, "scan")
    (cond,) = nodes(step_of(graph, scan), "cond")
    assert cond.target is torch.ops.higher_order.cond
    for variant in ("scan_select", "vmap", "batch_loop"):
        assert not nodes(graph_of(variant, problem), "cond")


@STRUCTURE
@pytest.mark.parametrize(("variant", "carried"), [("vmap", (PAIRS, POSITIONS)), ("scan_select", (POSITIONS, PAIRS))])
def test_torch_carries_the_whole_batch_through_one_scan(variant, carried, problem):
    (scan,) = nodes(graph_of(variant, problem), "scan")
    assert shapes(scan.args[1]) == [carried] * 2 * STATES[problem]  # of two anti-diagonals


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


# the last two rungs: framework code with one operator's derivatives, and one native call


LOOPS = ("scan", "while")
# pass -> the operator of PyTorch; what JAX calls is in test_fused.py
OPERATORS = {"score": "score", "marginals": "gradients", "hvp": "product"}


def arguments_of(pass_name: str) -> tuple[np.ndarray, ...]:
    """Similarity, lengths, and the vector that the pass hvp takes besides."""
    lengths = np.tile(np.array([ROWS, COLS], np.int32), (PAIRS, 1))
    vector = np.ones((PAIRS, ROWS, COLS), np.float32)
    return matrix(PAIRS, ROWS, COLS), lengths, *([vector] if pass_name == "hvp" else [])


@ONE
def test_jax_wavefront_is_the_compilers_loop_without_a_native_call(problem):
    small, large = traced("wavefront", 3, 4, problem=problem), traced("wavefront", 12, 15, problem=problem)
    assert not named("ffi_call", large)
    assert not any(named("cond", inner) for cond in named("cond", large) for inner in inner_jaxprs(cond))
    for primitive in (*LOOPS, "log", "log2", "exp", "exp2"):
        assert len(named(primitive, small)) == len(named(primitive, large))
    loops = [loop for name in LOOPS for loop in named(name, traced("wavefront", PAIRS, ROWS, COLS, problem=problem))]
    carried = [variable.aval.shape for loop in loops for variable in loop.outvars]
    # the last axis is the pairs', or positions times pairs
    assert any(len(shape) > 1 for shape in carried)
    assert all(shape[-1] % PAIRS == 0 for shape in carried if shape)


@STRUCTURE
@LAST_TWO
def test_torch_captures_one_opaque_operator_whatever_the_size(variant, problem):
    graphs = [captured(variant, *shape, problem=problem) for shape in ((PAIRS, ROWS, COLS), (PAIRS, 12, 9))]
    for graph in graphs:
        (operator,) = nodes(graph, f"{variant}_score.default")
        assert operator.target is getattr(torch.ops.smooth_alignment, f"{variant}_score").default
        assert not any(nodes(graph, name) for name in ("scan", "cond", "log", "exp", "logsumexp"))
    assert len(graphs[0].graph.nodes) == len(graphs[1].graph.nodes)


@ONE
@LAST_TWO
def test_torch_calls_one_operator_for_each_order(variant, problem):
    backend = FRAMEWORKS["torch"].backend
    score = backend.function(problem, variant)
    called = []
    for pass_name in OPERATORS:
        function = backend.pass_function(pass_name, score, compiled=False)
        with Operators() as operators:
            function(*(torch.from_numpy(array) for array in arguments_of(pass_name)))
        called.append(operators.called)
    first, second, third = ([f"{variant}_{name}"] for name in OPERATORS.values())
    # where nothing more is differentiated, fused is asked for the product alone
    assert called == [first, second, third if variant == "fused" else [*second, f"{variant}_tangents"]]


@pytest.mark.parametrize("problem", PROBLEMS)
@FRAMEWORK
def test_auto_is_the_last_rung(framework, problem):
    package, backend = FRAMEWORKS[framework]
    assert fastest_variant(backend.absent) == "fused"
    assert package.variants(problem) == tuple(name for name in variant_names(problem) if name not in FOR_GPUS)
    assert package.variants(problem)[-2:] == BY_HAND
    if framework == "jax":
        assert len(named("ffi_call", traced("auto", ROWS, COLS, problem=problem))) == 1
    elif problem == "smith_waterman":
        assert len(nodes(captured("auto", ROWS, COLS), "fused_score.default")) == 1


def explode(*_: Any, **__: Any) -> Any:
    raise AssertionError("a rung called another")


@pytest.mark.parametrize(("problem", "variant"), [
    *(("smith_waterman", variant) for variant in (*LADDER, *BY_HAND)),
    *(pytest.param("needleman_wunsch", variant, marks=pytest.mark.slow) for variant in LADDER),
])  # fmt: skip
@FRAMEWORK
def test_no_rung_calls_another(framework, problem, variant, monkeypatch):
    sweeps, plain = SWEEPS[framework], PLAIN_LOOPS[framework]
    builds_on = {"batch_loop": "scan_select", "vmap": "scan_select" if framework == "jax" else ""}.get(variant, "")
    sweeps.forget_compiled()
    for other in set(LADDER) - {variant, builds_on}:
        monkeypatch.setattr(sweeps, other, explode)
        monkeypatch.setitem(sweeps.SWEEPS, other, explode)
    # those of smith_waterman are not those of the others
    for other in set(plain.PLAIN_LOOPS) - ({variant} if problem == "smith_waterman" else set()):
        monkeypatch.setattr(plain, other, explode)
        monkeypatch.setitem(plain.PLAIN_LOOPS, other, explode)
    if problem == "smith_waterman" and variant in UNROLLED:
        monkeypatch.setattr(sweeps, variant, explode)
        monkeypatch.setattr(sweeps, "recurrence_step", explode)
    if variant in UNROLLED:
        monkeypatch.setattr(sweeps, "_scan", explode)
    if variant == "cell_loop":
        monkeypatch.setattr(sweeps, "rotate", explode)
        monkeypatch.setattr(plain, "rotate", explode)
    if variant != "fused":
        monkeypatch.setattr(cpp, "kernel", explode)
    if framework == "torch" and variant == "batch_loop":
        monkeypatch.setattr(sweeps, "compiled", lambda function: function)
    function = FRAMEWORKS[framework].backend.function(problem, variant)
    # a mode that notes operators cannot look into a scan, for whose graph there are the tests above
    operators = Operators()
    with contextlib.nullcontext() if variant in SCANNING else operators:
        got = (jax.jit(function) if framework == "jax" else function)(matrix(1, ROWS, COLS))  # jit saves seconds
    sweeps.forget_compiled()
    assert float(got[0]) == pytest.approx(float(getattr(reference, problem)(matrix(ROWS, COLS))), rel=1e-6)
    assert framework == "jax" or operators.called == ([f"{variant}_score"] if variant in BY_HAND else [])
