"""How the frameworks lower and register the GPU kernels, on a machine without a GPU; what they say without Triton."""

import ast
import builtins
import dis
import functools
import importlib
import importlib.util
import pkgutil
import re
from types import CodeType, SimpleNamespace
from typing import Any

import cuda_kernels
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import BY_AXIS, FRAMEWORKS, PROBLEMS
from gaps_by_position import OPTIONS
from gpu_programs import take_for_a_gpu
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._higher_order_ops import triton_kernel_wrap
from torch._inductor.codecache import PyCodeCache
from torch._inductor.utils import get_code
from torch.fx.experimental.proxy_tensor import make_fx

import jax_impl
import jax_impl.kernels.triton_binding as jax_calls
import torch_impl
from shared.alignments import LAST_TURN, SIMILARITY, Recurrence, recurrence_of
from shared.kernels import cpp
from shared.kernels import triton as triton_kernels
from shared.kernels.cpp import library
from shared.kernels.triton.programs import NARROW, kernels_of

NEIGHBOURS = "diagonal", "left", "up"


class Symbols(frozenset):
    """A sum of symbols: names of terms, and (neighbour, state) for a value of another cell."""

    def __add__(self, other: Any) -> "Symbols":
        assert not self & other, "a symbol is added twice"
        return Symbols(self | other)


def costs_of(table: Recurrence, options: dict[str, Any]) -> list[set[str]]:
    """The table's name of each cost of the kernels."""
    axes = ("[0]", "[1]") if table.is_by_axis else ("",)
    if len(table.states) == 1:
        return [{f"gap{axis}"} & {*table.parameters} for axis in axes]
    turn = "gap_open" if options["penalize_turns"] else "gap_extend"
    costs = [{f"{gap}{axis}"} for axis in axes for gap in ("gap_open", "gap_extend", turn)]
    return [*costs[:2], {LAST_TURN}, *costs[3:]] if LAST_TURN in table.parameters else costs


@pytest.mark.parametrize(
    ("problem", "options", "gaps"),
    [(problem, options, ()) for problem in PROBLEMS for options in OPTIONS[problem]] + BY_AXIS,
)
def test_choices_and_where_triton_hands_their_derivatives_are_the_table(problem, options, gaps, monkeypatch):
    pytest.importorskip("triton")
    from shared.kernels.triton import cells

    monkeypatch.setattr(cells, "plus", lambda a, b, product: a + b)
    monkeypatch.setattr(cells, "tl", SimpleNamespace(zeros_like=lambda _: Symbols()))
    table = recurrence_of(problem, options, gaps)
    costs, call = costs_of(table, options), cpp.call_of(problem, options, gaps)
    constants = dict(kernels_of("best", call, "float32", NARROW)[0].constants)
    kind, restricted = constants["kind"], constants["restrict_turns"]
    near = [tuple(Symbols([(name, k)]) for k in range(len(table.states))) for name in NEIGHBOURS]
    each = 3 // len(table.states)  # a linear gap opens, extends and turns
    symbols = tuple(Symbols(names) for names in costs for _ in range(each))
    states = cells.choices.fn(kind, restricted, True, Symbols([SIMILARITY]), *near, symbols)
    assert [len(set(choices)) for choices in states] == [len(choices) for choices in states]
    assert [set(choices) for choices in states] == [
        {frozenset([*([(one.neighbour, one.state)] if one.neighbour else []), *one.terms]) for one in choices}
        for choices in table.states
    ]

    def handed(symbol: Any) -> set[tuple[int, int]]:
        return {(k, c) for k, choices in enumerate(states) for c, choice in enumerate(choices) if symbol in choice}

    parts = tuple(tuple(Symbols([(k, c)]) for c in range(len(choices))) for k, choices in enumerate(states))
    *neighbours, matched, to_costs = cells.to_neighbours.fn(kind, restricted, table.is_by_axis, parts)
    for name, neighbour in zip(NEIGHBOURS, neighbours, strict=True):
        assert list(neighbour) == [handed((name, k)) for k in range(len(states))]
    assert matched == handed(SIMILARITY)
    for parameter in set().union(*costs):
        neighbour = [part for part, names in zip(to_costs, costs, strict=True) if parameter in names]
        assert sum(neighbour, Symbols()) == handed(parameter)


pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

LENGTHS = np.full((3, 2), 4, np.int32)
TENSOR = torch.from_numpy(LENGTHS)
EXACT = ["backward", "forward"]
ALL = sorted([*EXACT, "block_backward", "block_forward"])


def forwards(kernels: list[str]) -> list[str]:
    return [name for name in kernels if "forward" in name]


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The operators of PyTorch; public functions take the CPU for a GPU."""
    take_for_a_gpu(monkeypatch)
    return importlib.import_module("torch_impl.kernels.triton_binding")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_fused_is_absent_on_a_gpu_with_a_reason_where_triton_is_missing(framework, monkeypatch):
    package, backend = FRAMEWORKS[framework]
    assert "fused" not in backend.absent_on("cuda")
    monkeypatch.setattr(triton_kernels.importlib.util, "find_spec", lambda name: None)
    assert "pip install triton" in backend.absent_on("cuda")["fused"]
    assert backend.abilities("smith_waterman", "cuda").auto == "wavefront"
    matrix = np.ones((2, 3), np.float32)
    with pytest.raises(RuntimeError, match="pip install triton"):
        package.best_alignment(package.smith_waterman, matrix)
    monkeypatch.setattr(library, "_warned", False)
    with pytest.warns(RuntimeWarning, match="variant 'auto' is 'wavefront' here, .*: pip install triton"):
        package.smith_waterman(matrix)


def launched(function: Any, *arguments: Any) -> list[str]:
    """The kernels of a function that is exported for GPUs; what a program without any calls."""
    disabled = [jax.export.DisabledSafetyCheck.custom_call(jax_calls.TARGET)]
    exported = jax.export.export(jax.jit(function), platforms=["cuda"], disabled_checks=disabled)(*arguments)
    text = exported.mlir_module()
    names = sorted(re.findall(r"([a-z_]+)_kernel\\22", text))
    assert (jax_calls.TARGET in text) == bool(names)
    return names


@pytest.mark.parametrize(
    ("problem", "gaps"),
    [
        ("smith_waterman", {}),
        ("smith_waterman_affine", {"gap_extend": np.ones((3, 9, 7), np.float32)}),
        ("needleman_wunsch", {"gap": (-1.0, -2.0)}),
        ("needleman_wunsch_affine", {}),
    ],
)
def test_jax_exports_calls_for_gpus_from_a_machine_without_one(problem, gaps):
    function, s = getattr(jax_impl, problem), jnp.ones((3, 9, 7))

    def score(s: Any) -> Any:
        return function(s, LENGTHS, **gaps).sum()

    def curve(s: Any) -> Any:
        return (jax.grad(score)(s) ** 2).sum()

    def descent(s: Any) -> Any:
        return jax.lax.scan(lambda own, _: (own - jax.grad(score)(own), None), s, length=9)[0]

    # pairs that those with block exponents flag are left to the exact ones
    every = ALL if problem == "smith_waterman" else EXACT
    assert launched(score, s) == forwards(every)
    assert launched(jax.grad(score), s) == launched(descent, s) == every  # in the loop's body
    assert launched(jax.grad(curve), s) == sorted(every * 2)
    assert launched(lambda s: jax_impl.best_alignment(function, s, LENGTHS, **gaps), s) == ["best"]


@pytest.mark.parametrize("shape", [(0, 9, 7), (3, 0, 7), (3, 9, 0)])
def test_no_pairs_are_no_launch(shape):
    """An empty grid is an error to a GPU; matrices without cells have scores, and derivatives for the parameters."""

    def score(s: Any, gap: Any) -> Any:
        return jax_impl.smith_waterman(s, gap=gap).sum()

    for function, names in ((score, forwards(ALL)), (jax.grad(score), ALL)):
        assert launched(function, jnp.ones(shape), jnp.ones(shape[0])) == (names if shape[0] else [])


def test_the_launcher_is_registered_for_cuda_alone():
    jax_calls.register()
    call = jax.ffi.ffi_call(jax_calls.TARGET, jax.ShapeDtypeStruct((3,), np.float32))
    with pytest.raises(jax.errors.JaxRuntimeError, match="No FFI handler registered"):
        jax.jit(lambda s: call(s, kernels="", launches=np.zeros(0, np.int64)))(jnp.ones(3))


def test_kernels_are_compiled_before_the_tests_on_a_gpu_and_watched_for_races(calls, monkeypatch):
    import small_launches

    launched = set()

    def note(program: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        launched.update(launch.kernel for launch in program.launches)
        like, dtypes = inputs["similarity"], {"matches": torch.uint8}
        return {name: like.new_zeros(shape, dtype=dtypes.get(name)) for name, shape in program.results.items()}

    monkeypatch.setattr(calls, "_run", note)
    monkeypatch.setattr(calls, "forced_layout", None)  # so that it is put back
    monkeypatch.setattr(small_launches, "DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    small_launches.launch_all()
    assert {kernel.name for kernel in launched} == calls.KERNELS.keys() - {"exponentials_kernel"}
    lanes = {dict(kernel.constants).get("lanes") for kernel in launched if not kernel.name.startswith("block")}
    assert lanes == {layout.lanes for layout in small_launches.LAYOUTS}
    assert not launched - set(cuda_kernels.kernels())


def test_pytorch_knows_shapes_of_open_sizes_without_running(calls):
    call = cpp.call_of("smith_waterman", {"end": "any"})

    def every(s: torch.Tensor, lengths: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        arguments = s, lengths, values, []
        scores, matches = calls.best(*arguments, *call)
        assert calls.score(*arguments, *call).shape == scores.shape == s.shape[:1]
        assert (matches.shape, matches.dtype) == (s.shape, torch.bool)
        for results in (calls.gradients(*arguments, *call, True), calls.tangents(*arguments, s, values, [], *call)):
            *parts, of_gaps = results
            assert [part.shape for part in parts] == [scores.shape, s.shape, values.shape] and of_gaps == []
        return scores

    assert "triton" in make_fx(every, tracing_mode="symbolic")(torch.empty(3, 9, 7), TENSOR, torch.empty(3, 2)).code


EXACT_WRITES = {"scores", "totals", "first_plane", "planes"}, {"first_plane", "below", "d_values"}
BLOCKS_WRITE = (
    {"scores", "block_totals", "flags", "kept_rows", "kept_units", "kept"},
    {"flags", "block_below", "below_units", "d_similarity", "d_values"},
)
SCORE, BEST = torch_impl.smith_waterman, functools.partial(torch_impl.best_alignment, torch_impl.smith_waterman)


@pytest.mark.usefixtures("triton_cache", "triton_knows_a_gpu")
@pytest.mark.parametrize(
    ("function", "written"),
    [
        (lambda s, gap: SCORE(s, TENSOR, gap=gap), [EXACT_WRITES[0], EXACT_WRITES[1] | {"d_gap_open"}]),
        (lambda s, gap: sum(part.sum() for part in BEST(s, gap=gap)), [{"scores", "matches", "ends", "last_row"}]),
        pytest.param(lambda s, gap: SCORE(s, gap=gap[:, 0, 0]), [*EXACT_WRITES], marks=pytest.mark.slow),
        pytest.param(lambda s, _: SCORE(s, TENSOR), [*BLOCKS_WRITE, *EXACT_WRITES], marks=pytest.mark.slow),
    ],
)
def test_pytorchs_compiler_knows_what_the_kernels_write_and_adds_none(function, written):
    """A buffer that it takes for written is copied before, and back. A gradient launches everything in the forward."""
    graphs = []

    def compiler(graph: Any, _: Any) -> Any:
        graphs.append([(str(node.target), node.kwargs) for node in graph.graph.nodes])
        (outputs,) = (node.args[0] for node in graph.graph.nodes if node.op == "output")
        like = [None if node is None else node.meta["val"] for node in outputs]
        return make_boxed_func(lambda *_: [one if one is None else torch.ones(one.shape).to(one.dtype) for one in like])

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=aot_autograd(fw_compiler=compiler, bw_compiler=compiler))
    compiled(*(torch.zeros(3, 9, 7, requires_grad=True) for _ in range(2))).sum().backward()
    forward, backward = graphs
    launches = [kwargs for target, kwargs in forward if "triton_kernel_wrapper" in target]
    assert [set(kwargs["tensors_to_clone"]) for kwargs in launches] == written
    assert not any("triton" in target for target, _ in backward)
    assert not any("copy_" in target for target, _ in (*forward, *backward))
    assert any("no_gradient_of_best" in target for target, _ in backward) == ("matches" in written[0])


@pytest.mark.usefixtures("triton_cache", "triton_knows_a_gpu")
@pytest.mark.parametrize("problem", ["smith_waterman", pytest.param("smith_waterman_affine", marks=pytest.mark.slow)])
def test_pytorchs_compiler_generates_kernels_that_define_all_their_names(problem, calls, tmp_path, monkeypatch, caplog):
    """The generated source has each constant as its repr, and other globals only if they are of a few types."""
    values = torch.ones(3, len(PROBLEMS[problem].parameters))
    arguments = torch.zeros(3, 9, 7), TENSOR, values, []
    call = cpp.call_of(problem, PROBLEMS[problem].options[0])

    def every_call() -> torch.Tensor:
        scores = calls.score(*arguments, *call)
        _, gradients, *_ = calls.gradients(*arguments, *call, False)
        product = calls.product(*arguments, arguments[0], *call)
        _, matches = calls.best(*arguments, *call)
        return (gradients + product + matches).sum() + scores.sum()

    # without an analysis of what is written, all tensors count as written: that saves 40 s and changes no source
    monkeypatch.delattr(triton_kernel_wrap, "generate_ttir")
    caplog.set_level("ERROR", logger=triton_kernel_wrap.log.name)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # for what get_code keeps, which cannot run
    modules = [ast.parse(code) for code in get_code(torch.compile(every_call, fullgraph=True))]
    nodes = [node for module in modules for node in ast.walk(module) if isinstance(node, ast.Call)]
    sources = [node.args[:2] for node in nodes if ast.unparse(node.func) == "async_compile.triton"]
    # one measures the GPU
    assert {ast.literal_eval(name) for name, _ in sources} == calls.KERNELS.keys() - {"exponentials_kernel"}
    for source in (ast.literal_eval(source) for _, source in sources):
        module = PyCodeCache.load(source)
        for function in compile(source, "", "exec").co_consts:
            if isinstance(function, CodeType):
                names = {line.argval for line in dis.get_instructions(function) if line.opname == "LOAD_GLOBAL"}
                assert names <= {*vars(module), *dir(builtins)}, function.co_name


def test_a_name_means_the_same_in_every_module_of_kernels():
    """PyTorch's compiler copies all functions and constants that a kernel uses into one module."""
    import triton

    meant: dict[str, Any] = {}
    for module in pkgutil.iter_modules(triton_kernels.__path__, f"{triton_kernels.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, triton.JITFunction | triton.language.constexpr):
                assert meant.setdefault(name, value) is value, (module.name, name)
    assert "block_forward_kernel" in meant
