"""How the frameworks lower and register the GPU kernels, on a machine without a GPU; what they say without Triton."""

import ast
import builtins
import dis
import functools
import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import FRAMEWORKS, PROBLEMS
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._higher_order_ops import triton_kernel_wrap
from torch._inductor.codecache import PyCodeCache
from torch._inductor.utils import get_code
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import jax_impl.alignment
import jax_impl.kernels.triton_binding as jax_calls
import torch_impl.alignment
import torch_impl.kernels.fused
from jax_impl.kernels.fused import _Kernels, _scores
from shared.kernels import cpp
from shared.kernels import triton as triton_kernels
from shared.kernels.cpp import library
from torch_impl.derivatives import scores_of as torch_scores
from torch_impl.operator_calls import engine_of

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

KINDS = {problem: cpp.call_of(problem, options[0]) for problem, (_, options) in PROBLEMS.items()}


@pytest.mark.parametrize(
    ("problem", "by_position"), [("smith_waterman", ()), ("smith_waterman_affine", ("gap_extend",))]
)
def test_jax_lowers_for_cuda_on_a_host_without_one(problem: str, by_position: tuple[str, ...]):
    names = PROBLEMS[problem].parameters
    parameters = tuple(jnp.full((3, 9, 7) if name in by_position else 3, 0.5 + k) for k, name in enumerate(names))
    arrays = jnp.ones((3, 9, 7)), np.full((3, 2), 5, np.int32), parameters
    kernels = _Kernels(cpp.call_of(problem, PROBLEMS[problem].options[0], by_position), "cuda")

    def score(s: Any) -> Any:
        return _scores(kernels, "", s, *arrays[1:]).sum()

    def curve(s: Any) -> Any:
        return (jax.grad(score)(s) ** 2).sum()

    def descent(s: Any) -> Any:
        return jax.lax.scan(lambda own, _: (own - jax.grad(score)(own), None), s, length=9)[0]

    # pairs that the first ones flag are left to the last ones
    odds = () if by_position else ("odds_forward", "odds_backward")
    launched = (
        (score, (*odds[:1], "forward")),
        (jax.grad(score), (*odds, "forward", "backward")),
        (descent, (*odds, "forward", "backward")),  # in the loop's body
        (jax.grad(curve), (*odds, "forward", "backward") * 2),
    )
    for function, names in launched:
        lowered = jax.jit(function).trace(arrays[0]).lower(lowering_platforms=("cuda",))
        text = lowered.as_text()
        assert sorted(re.findall(r"([a-z_]+)_kernel\\22", text)) == sorted(names) and jax_calls.TARGET in text


@pytest.mark.parametrize("shape", [(0, 9, 7), (3, 0, 7), (3, 9, 0)])
def test_no_pairs_are_no_launch(shape: tuple[int, int, int]):
    """An empty grid is an error to a GPU; matrices without cells have scores, and derivatives for the parameters."""
    kernels = _Kernels(KINDS["smith_waterman"], "cuda")
    arrays = np.full((shape[0], 2), 5, np.int32), (jnp.ones(shape[0]), jnp.ones(shape[0]))

    def score(s: Any) -> Any:
        return _scores(kernels, "", s, *arrays).sum()

    for function, launched in ((score, 2), (jax.grad(score), 4)):
        text = jax.jit(function).trace(jnp.ones(shape)).lower(lowering_platforms=("cuda",)).as_text()
        assert text.count("_kernel\\22") == launched * bool(shape[0])


def test_a_call_can_be_exported_for_machines_with_a_gpu():
    kernels = _Kernels(KINDS["free_gap"], "cuda")
    score = jax.jit(lambda s: _scores(kernels, "", s, np.full((3, 2), 5, np.int32), (jnp.ones(3),)))
    disabled = [jax.export.DisabledSafetyCheck.custom_call(jax_calls.TARGET)]
    exported = jax.export.export(score, platforms=["cuda"], disabled_checks=disabled)(jnp.ones((3, 9, 7)))
    assert exported.platforms == ("cuda",) and jax_calls.TARGET in exported.mlir_module()


def test_the_launcher_is_registered_for_cuda_alone():
    jax_calls.register()
    call = jax.ffi.ffi_call(jax_calls.TARGET, jax.ShapeDtypeStruct((3,), np.float32))
    with pytest.raises(jax.errors.JaxRuntimeError, match="No FFI handler registered"):
        jax.jit(lambda s: call(s, kernels="", launches=np.zeros(0, np.int64)))(jnp.ones(3))


def test_pytorch_knows_shapes_without_running_and_the_compiler_sees_the_kernels():
    import torch_impl.kernels.triton_binding

    calls: Any = torch_impl.kernels.triton_binding
    call = KINDS["smith_waterman"]
    with FakeTensorMode():
        tensors: Any = (torch.empty(3, 9, 7), torch.empty(3, 2, dtype=torch.int32), torch.empty(3, 2))
        assert calls.score(*tensors, [], *call).shape == (3,)
        *parts, of_gaps = calls.gradients(*tensors, [], *call, True)
        assert [tuple(part.shape) for part in parts] == [(3,), (3, 9, 7), (3, 2)]
        assert of_gaps == []
        *parts, of_gaps = calls.tangents(*tensors, [], torch.empty(3, 9, 7), torch.empty(3, 2), [], *call)
        assert [tuple(part.shape) for part in parts] == [(3,), (3, 9, 7), (3, 2)]
        assert of_gaps == []
        parts = calls.best(*tensors, [], *call)
        assert [(tuple(part.shape), part.dtype) for part in parts] == [((3,), torch.float32), ((3, 9, 7), torch.bool)]
    for mode in ("fake", "symbolic"):  # sizes that are numbers, or that the compiler leaves open
        traced = make_fx(lambda *own: calls.gradients(*own, [], *call, True), tracing_mode=mode)(
            torch.empty(3, 9, 7), torch.empty(3, 2, dtype=torch.int32), torch.empty(3, 2)
        )
        assert "triton" in traced.code


BEST = {name: importlib.import_module(f"{name}_impl.best_alignment") for name in FRAMEWORKS}


@pytest.fixture
def best_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (BEST["torch"], torch_impl.kernels.fused):
        monkeypatch.setattr(module, "is_on_gpu", lambda _: True)
    monkeypatch.setattr(BEST["torch"], "plain_call", lambda *_: None)
    monkeypatch.setattr(BEST["jax"], "platform_of", lambda _: "cuda")


@pytest.mark.usefixtures("best_on_a_gpu")
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_without_triton_fused_is_absent_on_a_gpu_with_a_reason(framework: str, monkeypatch: pytest.MonkeyPatch):
    package, backend = FRAMEWORKS[framework]
    assert "fused" not in backend.absent_on("cuda")
    monkeypatch.setattr(triton_kernels.importlib.util, "find_spec", lambda name: None)
    assert "pip install triton" in backend.absent_on("cuda")["fused"]
    assert backend.abilities("smith_waterman", "cuda").auto == "wavefront"
    matrix = np.ones((2, 3), np.float32)
    with pytest.raises(RuntimeError, match="pip install triton"):
        package.best_alignment(package.smith_waterman, matrix)
    monkeypatch.setattr(library, "_warned", False)
    monkeypatch.setattr(jax_impl.alignment, "platform_of", lambda _: "cuda")
    monkeypatch.setattr(torch_impl.alignment, "is_on_gpu", lambda _: True)
    with pytest.warns(RuntimeWarning, match="variant 'auto' is 'wavefront' here, .*: pip install triton"):
        package.smith_waterman(matrix)


@pytest.mark.usefixtures("best_on_a_gpu")
def test_jax_lowers_best_alignments_in_one_launch():
    best = functools.partial(jax_impl.best_alignment, jax_impl.smith_waterman_affine)
    given = jnp.ones((3, 9, 7)), np.full((3, 2), 5, np.int32)
    text = jax.jit(lambda s, n: best(s, n, gap_open=s)).trace(*given).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("best_kernel\\22") == 1 and jax_calls.TARGET in text


def traced(function: Callable[..., Any], *arguments: Any) -> list[list[tuple[str, Any]]]:
    """The nodes of the graphs, forward and backward, that torch.compile makes: what each calls, and what it is given.

    Nothing is run: results are ones.
    """
    graphs = []

    def compiler(graph: Any, _: Any) -> Any:
        graphs.append([(str(node.target), node.kwargs) for node in graph.graph.nodes])
        (outputs,) = (node.args[0] for node in graph.graph.nodes if node.op == "output")
        like = [None if node is None else node.meta["val"] for node in outputs]
        return make_boxed_func(
            lambda *_: [None if own is None else torch.ones(own.shape, dtype=own.dtype) for own in like]
        )

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=compiler, bw_compiler=compiler)
    result = torch.compile(function, fullgraph=True, backend=backend)(*arguments)
    if result.requires_grad:
        result.backward()
    return graphs


@pytest.mark.usefixtures("triton_cache", "triton_knows_a_gpu")
@pytest.mark.parametrize(
    ("has_lengths", "by_position", "with_values"),
    [
        (True, ("gap",), True),
        pytest.param(False, (), True, marks=pytest.mark.slow),
        pytest.param(True, (), False, marks=pytest.mark.slow),
    ],
)
def test_pytorchs_compiler_knows_what_the_kernels_write_and_adds_none(
    has_lengths: bool, by_position: tuple[str, ...], with_values: bool
):
    """A buffer that it takes for written is copied before, and back. A gradient launches everything in the forward."""
    import torch_impl.kernels.triton_binding

    calls: Any = torch_impl.kernels.triton_binding
    call = cpp.call_of("smith_waterman", {"end": "any"}, by_position)
    engine = engine_of(calls, call.kind, call.options)
    lengths = torch.full((3 if has_lengths else 0, 2), 4, dtype=torch.int32)

    def total(s: torch.Tensor, values: torch.Tensor, *gaps: torch.Tensor) -> torch.Tensor:
        return torch_scores(engine, "no third", s, lengths, values, gaps).sum()

    gaps = (torch.zeros(3, 9, 7).requires_grad_() for _ in by_position)
    values = torch.ones(3, 2).requires_grad_(with_values)
    leaves = torch.zeros(3, 9, 7).requires_grad_(), values, *gaps
    forward, backward = traced(total, *leaves)
    written = [kwargs["tensors_to_clone"] for target, kwargs in forward if "triton_kernel_wrapper" in target]
    kept = {"kept_rows", "kept_units", "kept"}
    in_odds = [
        {"scores", "odds_totals", "flags", *kept},
        {"flags", "odds_below", "below_units", "d_similarity", "d_values"},
    ]
    assert [set(names) for names in written] == [
        *([] if with_values else in_odds),
        {"scores", "totals", "first_plane", "planes"},
        {"first_plane", "below", "d_values", *(["d_gap_open"] if by_position else [])},
    ]
    assert not any("triton" in target for target, _ in backward)
    assert not any("copy_" in target for graph in (forward, backward) for target, _ in graph)
    assert not leaves[0].detach().any()


@pytest.mark.usefixtures("triton_cache", "triton_knows_a_gpu", "best_on_a_gpu")
def test_pytorchs_compiler_knows_what_best_alignments_write_and_have_no_gradient():
    def total(s: torch.Tensor, gap: torch.Tensor) -> torch.Tensor:
        scores, matches = torch_impl.best_alignment(torch_impl.smith_waterman, s, gap=gap)
        return scores.sum() + matches.sum()

    leaf = torch.zeros(3, 9, 7).requires_grad_()
    forward, backward = traced(total, leaf, torch.zeros(3, 9, 7))
    (written,) = [kwargs["tensors_to_clone"] for target, kwargs in forward if "triton_kernel_wrapper" in target]
    assert set(written) == {"scores", "matches", "ends", "last_row"}
    assert any("no_gradient_of_best" in target for target, _ in backward)


def generated(function: Callable[[], torch.Tensor]) -> dict[str, str]:
    """The source that PyTorch's compiler generates for each Triton kernel of a function, which is not run."""
    modules = [ast.parse(code) for code in get_code(torch.compile(function, fullgraph=True))]
    calls = (node for module in modules for node in ast.walk(module) if isinstance(node, ast.Call))
    sources = (call.args[:2] for call in calls if ast.unparse(call.func) == "async_compile.triton")
    return {ast.literal_eval(name): ast.literal_eval(source) for name, source in sources}


@pytest.mark.usefixtures("triton_cache", "triton_knows_a_gpu")
@pytest.mark.parametrize("problem", ["smith_waterman", pytest.param("smith_waterman_affine", marks=pytest.mark.slow)])
def test_pytorchs_compiler_generates_kernels_that_define_all_their_names(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """The generated source has each constant as its repr, and other globals only if they are of a few types."""
    import torch_impl.kernels.triton_binding
    from shared.kernels.triton.kernels import KERNELS

    calls: Any = torch_impl.kernels.triton_binding
    values = torch.ones(3, 1 + len(PROBLEMS[problem].parameters))
    arguments = torch.zeros(3, 9, 7), torch.full((3, 2), 4, dtype=torch.int32), values, []

    def every_call() -> torch.Tensor:
        scores = calls.score(*arguments, *KINDS[problem])
        _, gradients, *_ = calls.gradients(*arguments, *KINDS[problem], False)
        product = calls.product(*arguments, arguments[0], *KINDS[problem])
        _, matches = calls.best(*arguments, *KINDS[problem])
        return (gradients + product + matches).sum() + scores.sum()

    # without an analysis of what is written, all tensors count as written: that saves 40 s and changes no source
    monkeypatch.delattr(triton_kernel_wrap, "generate_ttir")
    caplog.set_level("ERROR", logger=triton_kernel_wrap.log.name)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # for what get_code keeps, which cannot run
    sources = generated(every_call)
    assert sources.keys() == KERNELS.keys() - {"exponentials_kernel"}  # which measures the GPU
    for source in sources.values():
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
    assert "odds_forward_kernel" in meant
