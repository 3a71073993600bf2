"""The last two rungs are what their names say: framework code with one operator's derivatives, and one native call."""

import jax
import numpy as np
import pytest
import torch
from frameworks import BY_HAND, FRAMEWORKS, PROBLEMS
from graphs import Operators, captured, equations, inner_jaxprs, matrix, name_of, named, native_calls, nodes, traced

import jax_impl.sweeps
import torch_impl
import torch_impl.sweeps
from shared import reference
from shared.kernels import cpp
from shared.variants import FOR_GPUS, fastest_variant, variant_names

EVERY = pytest.mark.parametrize("problem", PROBLEMS)
BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)
LOOPS = ("scan", "while")
# pass -> the operator of PyTorch, and the native call of JAX
OPERATORS = {"score": "score", "marginals": "gradients", "hvp": "product"}
NATIVE_CALLS = {"score": "score", "marginals": "marginals", "hvp": "product", "path": "best"}
PAIRS, ROWS, COLS = 5, 2, 3  # three different numbers: an axis is known by its length
WEIGHTS = np.ones((PAIRS, ROWS, COLS), np.float32)


def arguments_of(pass_name: str) -> tuple[np.ndarray, ...]:
    """Similarity, lengths, and what the pass hvp takes besides."""
    lengths = np.tile(np.array([ROWS, COLS], np.int32), (PAIRS, 1))
    return matrix(PAIRS, ROWS, COLS), lengths, *([WEIGHTS] if pass_name == "hvp" else [])


# JAX


@EVERY
@pytest.mark.parametrize(("pass_name", "kernel"), NATIVE_CALLS.items())
def test_jax_fused_is_one_native_call_in_every_pass(pass_name, kernel, problem):
    backend = FRAMEWORKS["jax"].backend
    function = backend.pass_function(pass_name, backend.function(problem, "fused"), compiled=False)
    jaxpr = jax.make_jaxpr(function)(*arguments_of(pass_name)).jaxpr
    assert named("ffi_call", jaxpr)
    assert not any(named(loop, jaxpr) for loop in (*LOOPS, "cond"))
    assert native_calls(function, *arguments_of(pass_name)) == [f"{kernel}_float32"]


@EVERY
def test_jax_fused_is_the_same_few_steps_whatever_the_size(problem):
    small, large = traced("fused", 2, 3, problem=problem), traced("fused", 12, 9, problem=problem)
    assert len(named("ffi_call", large)) == 1
    assert len(list(equations(small))) == len(list(equations(large)))


@EVERY
def test_jax_wavefront_is_the_compilers_own_loop_without_a_native_call(problem):
    small, large = traced("wavefront", 3, 4, problem=problem), traced("wavefront", 12, 15, problem=problem)
    assert any(named(loop, large) for loop in LOOPS)
    for primitive in (*LOOPS, "log", "log2", "exp", "exp2"):
        assert len(named(primitive, small)) == len(named(primitive, large))
    assert not named("ffi_call", large)
    conds = named("cond", large)
    assert not any(named("cond", inner) for cond in conds for inner in inner_jaxprs(cond))
    # whether the branches loop: what is computed in logarithms only where it does not hold in odds, and before it the
    # look for what those lose, of local alignments
    in_logarithms, look = [True, False], [False, False]
    branches = [[any(named(loop, inner) for loop in LOOPS) for inner in inner_jaxprs(cond)] for cond in conds]
    expected = {"smith_waterman": [look, in_logarithms], "smith_waterman_affine": []}
    assert branches == expected.get(problem, [in_logarithms])
    assert not native_calls(FRAMEWORKS["jax"].backend.function(problem, "wavefront"), matrix(PAIRS, ROWS, COLS))


@pytest.mark.parametrize("variant", ["vmap", "wavefront"])
def test_what_jax_compiles_does_not_grow_with_the_lengths(variant):
    backend = FRAMEWORKS["jax"].backend
    function = jax.jit(backend.pass_function("marginals", backend.function("smith_waterman", variant), compiled=False))

    def lines(*shape: int) -> int:
        similarity, lengths = jax.ShapeDtypeStruct(shape, np.float32), jax.ShapeDtypeStruct((shape[0], 2), np.int32)
        return len((function.lower(similarity, lengths).compile().as_text() or "").splitlines())

    # enough pairs for more than one chunk at both sizes
    assert lines(200, 512, 576) <= 1.1 * lines(200, 64, 72)


@EVERY
def test_jax_wavefront_carries_the_batch_innermost(problem):
    jaxpr = traced("wavefront", PAIRS, ROWS, COLS, problem=problem)
    carried = [variable.aval.shape for loop in LOOPS for found in named(loop, jaxpr) for variable in found.outvars]
    # the last axis is the pairs', or positions times pairs
    assert any(len(shape) > 1 for shape in carried)
    assert all(shape[-1] % PAIRS == 0 for shape in carried if shape)


@EVERY
@pytest.mark.parametrize("variant", BY_HAND)
def test_jax_has_rules_of_ours_for_the_derivatives(variant, problem):
    primitives = {equation.primitive.name for equation in equations(traced(variant, ROWS, COLS, problem=problem))}
    assert primitives & {"custom_jvp_call", "custom_vjp_call"}


# PyTorch


@EVERY
@pytest.mark.parametrize("variant", BY_HAND)
def test_torch_captures_one_opaque_operator_whatever_the_size(variant, problem):
    graphs = [captured(variant, *shape, problem=problem) for shape in ((PAIRS, ROWS, COLS), (PAIRS, 12, 9))]
    for graph in graphs:
        (operator,) = nodes(graph, f"{variant}_score.default")
        assert operator.target is getattr(torch.ops.smooth_alignment, f"{variant}_score").default
        assert not any(nodes(graph, name) for name in ("scan", "cond", "log", "exp", "logsumexp"))
    assert len(graphs[0].graph.nodes) == len(graphs[1].graph.nodes)


@EVERY
@pytest.mark.parametrize("variant", BY_HAND)
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


# no rung quietly calls another


def explode(*_, **__):
    raise AssertionError("a rung called another")


@EVERY
def test_the_rungs_before_call_nothing_of_the_last_two(problem):
    for variant in jax_impl.sweeps.SWEEPS:
        jaxpr = traced(variant, ROWS, COLS, problem=problem)
        assert not named("ffi_call", jaxpr)
        assert not named("custom_jvp_call", jaxpr)
    # what scans is looked at in the graphs of test_ladder.py
    for variant in ("cell_loop", "diagonal_loop"):
        with Operators() as operators:
            getattr(torch_impl, problem)(torch.ones(ROWS, COLS), variant=variant)
        assert operators.called == []


@BOTH
@pytest.mark.parametrize("variant", BY_HAND)
def test_the_last_two_call_no_sweep_and_not_each_other(framework, variant, monkeypatch):
    sweeps = {"jax": jax_impl.sweeps, "torch": torch_impl.sweeps}[framework]
    for name in sweeps.SWEEPS:
        monkeypatch.setattr(sweeps, name, explode)
        monkeypatch.setitem(sweeps.SWEEPS, name, explode)
    if variant == "wavefront":
        monkeypatch.setattr(cpp, "kernel", explode)
    function = FRAMEWORKS[framework].backend.function("smith_waterman", variant)
    got = (jax.jit(function) if framework == "jax" else function)(matrix(1, ROWS, COLS))
    assert float(got[0]) == pytest.approx(float(reference.smith_waterman(matrix(ROWS, COLS))), rel=1e-6)


@EVERY
@BOTH
def test_auto_is_the_last_rung(framework, problem):
    package, backend = FRAMEWORKS[framework]
    assert fastest_variant(backend.absent) == "fused"
    assert package.variants(problem) == tuple(name for name in variant_names(problem) if name not in FOR_GPUS)
    assert package.variants(problem)[-2:] == BY_HAND
    if framework == "jax":
        assert len(named("ffi_call", traced("auto", ROWS, COLS, problem=problem))) == 1
    else:
        called = [name_of(node) for node in captured("auto", ROWS, COLS, problem=problem).graph.nodes]
        assert called.count("fused_score.default") == 1
