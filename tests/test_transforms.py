"""Under the frameworks' own transforms, and beside them: jit, grad, vmap, compile, no_grad; imports change nothing."""

import functools
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch._dynamo
import torch._functorch.config as functorch_config
from frameworks import BY_HAND, FRAMEWORKS, PROBLEMS, QUICK, ragged, run, single

import jax_impl
import torch_impl
from jax_impl.vmap_batching import of_any_batch
from shared import reference
from shared.alignments import ALIGNMENTS
from shared.variants import usable_variants
from torch_impl.compiler import compiled
from torch_impl.derivatives import mapped

ROOT = Path(__file__).parent.parent


def batch(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


S = batch(3, 4, 5)
LENGTHS = np.array([(4, 5), (2, 3), (0, 4)], dtype=np.int32)
SCORES = reference.smith_waterman(S, LENGTHS)
MARGINALS = reference.gradients("smith_waterman", S, LENGTHS)["similarity"]
# those by hand, and of the sweeps the one that is nearest to the user: in JAX, in PyTorch
VARIANTS = ("vmap", *BY_HAND)
TORCH_VARIANTS = ("diagonal_loop", *BY_HAND)


def close(got: Any, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_moving_an_array_to_the_device_and_back_keeps_it(framework):
    backend = FRAMEWORKS[framework].backend
    for array in (np.float32(3.0).reshape(()), S, S[:, ::2].swapaxes(0, 2), np.zeros((0, 4), np.float32)):
        moved = backend.to_numpy(backend.wait(backend.to_device(array, "cpu")))
        assert (moved.shape, moved.dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(moved, array)


def outer_scores(problem: str, outer: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The reference's scores of each batch of an outer axis."""
    return np.stack([getattr(reference, problem)(*pair) for pair in zip(outer, lengths, strict=True)])


# JAX


quick_jit = functools.partial(jax.jit, compiler_options=QUICK)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_jax_jit_traces_lengths_and_parameters(problem):
    traces = []

    @jax.jit
    def jitted(*arguments: Any, **parameters: Any) -> jax.Array:
        traces.append(1)
        return getattr(jax_impl, problem)(*arguments, **parameters)

    score = getattr(reference, problem)
    first = ALIGNMENTS[problem].parameters
    second = {name: value - 0.5 if name.startswith("gap") else 2 * value for name, value in first.items()}
    close(jitted(S, LENGTHS, **first), score(S, LENGTHS, **first))
    close(jitted(S, LENGTHS[::-1], **second), score(S, LENGTHS[::-1], **second))
    assert len(traces) == 1


@pytest.mark.parametrize("problem", ["smith_waterman", "needleman_wunsch"])
def test_jax_marginals_of_a_jitted_function(problem):
    marginals = jax_impl.marginals(jax.jit(getattr(jax_impl, problem)), S, LENGTHS)
    close(marginals, reference.gradients(problem, S, LENGTHS)["similarity"])


def test_jax_marginals_under_jit():
    close(jax.jit(functools.partial(jax_impl.marginals, jax_impl.smith_waterman))(S, LENGTHS), MARGINALS)


@pytest.mark.parametrize(
    ("problem", "variant"),
    [
        ("smith_waterman", "batch_loop"),
        ("free_gap", "vmap"),
        ("needleman_wunsch", "wavefront"),
        ("smith_waterman_affine", "fused"),
    ],
)
def test_jax_vmap_over_an_outer_axis(problem, variant):
    outer, lengths = np.stack([S, -S]), np.stack([LENGTHS, LENGTHS[::-1]])
    score = functools.partial(getattr(jax_impl, problem), variant=variant)
    close(quick_jit(jax.vmap(score))(outer, lengths), outer_scores(problem, outer, lengths))


@pytest.mark.parametrize("variant", VARIANTS)
def test_jax_grad_of_vmap_equals_the_sum_of_grads(variant):
    score = functools.partial(jax_impl.smith_waterman, variant=variant)
    total = lambda s: jax.vmap(score)(s, LENGTHS).sum()  # noqa: E731
    close(quick_jit(jax.grad(total))(S), MARGINALS)


def test_jax_splits_a_large_batch_and_drops_what_fills_the_last_chunk():
    matrices = batch(7, 3, 4)
    bytes_of_a_pair = (3 + 4) * 3 * 4
    split = of_any_batch(lambda s: (s.sum((1, 2)), 2 * s), table_bytes=3 * bytes_of_a_pair)
    sums, doubled = split(jnp.asarray(matrices))
    close(sums, matrices.sum((1, 2)))
    close(doubled, 2 * matrices)


@pytest.mark.parametrize("variant", VARIANTS)
def test_jax_clamps_traced_lengths_to_the_matrix(variant):
    score = functools.partial(jax_impl.smith_waterman, variant=variant)
    wild = np.array([(99, 5), (-3, 3), (2**31 - 1, -(2**31))], dtype=np.int32)
    clamped = np.clip(wild, 0, (4, 5))
    close(quick_jit(score)(S, wild), reference.smith_waterman(S, clamped))
    marginals = quick_jit(functools.partial(jax_impl.marginals, score))(S, wild)
    close(marginals, reference.gradients("smith_waterman", S, clamped)["similarity"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_jax_traced_temperature_that_is_not_positive_gives_nan_for_its_pair_only(variant):
    score = functools.partial(jax_impl.smith_waterman, variant=variant)
    scores, marginals = quick_jit(score), quick_jit(functools.partial(jax_impl.marginals, score))
    for bad in (0.0, -1.0, np.nan):
        temperature = jnp.array([1.0, bad, 1.0])
        got = np.asarray(scores(S, LENGTHS, temperature=temperature))
        assert np.isnan(got).tolist() == [False, True, False]
        close(got[[0, 2]], SCORES[[0, 2]])
        close(marginals(S, LENGTHS, temperature=temperature)[0], MARGINALS[0])


# PyTorch


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(S), torch.from_numpy(LENGTHS)


@pytest.mark.parametrize("variant", ["cell_loop", "diagonal_loop", *BY_HAND])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_torch_func_vmap_over_an_outer_axis(problem, variant):
    outer, lengths = np.stack([S, -S]), np.stack([LENGTHS, LENGTHS[::-1]])
    score = functools.partial(getattr(torch_impl, problem), variant=variant)
    got = torch.func.vmap(score)(torch.from_numpy(outer), torch.from_numpy(lengths))
    close(got, outer_scores(problem, outer, lengths))


def test_torch_maps_an_operator_over_any_axis_and_repeats_what_is_not_mapped():
    matrices, values = torch.from_numpy(batch(2, 3, 4, 5)), torch.arange(3.0)
    info, in_dims = SimpleNamespace(batch_size=2), (3, None)
    sums, out_dim = mapped(lambda s, v: s.sum((1, 2)) + v, info, in_dims, (matrices.movedim(0, 3), values))
    assert out_dim == 0
    torch.testing.assert_close(sums, matrices.sum((2, 3)) + values)


def test_torch_func_vmap_over_scan_cond_is_right():
    close(torch.func.vmap(functools.partial(torch_impl.smith_waterman, variant="scan_cond"))(*tensors()), SCORES)


@pytest.mark.parametrize("variant", TORCH_VARIANTS)
def test_torch_func_vmap_clamps_lengths_and_gives_nan_for_a_bad_temperature(variant):
    function = functools.partial(torch_impl.smith_waterman, variant=variant)
    wild = torch.tensor([(99, 5), (-3, 3), (4, -(2**40))])
    clamped = wild.numpy().clip(0, (4, 5))
    close(torch.func.vmap(function)(tensors()[0], wild), reference.smith_waterman(S, clamped))
    score = lambda s, temperature: function(s, temperature=temperature)  # noqa: E731
    scores = torch.func.vmap(score)(tensors()[0], torch.tensor([1.0, 0.0, -2.0]))
    assert scores.isnan().tolist() == [False, True, True]


@pytest.mark.parametrize("variant", TORCH_VARIANTS)
def test_torch_marginals_inside_no_grad_require_no_grad(variant):
    similarity, lengths = tensors()
    for matrix in (similarity, similarity.clone().requires_grad_()):
        with torch.no_grad():
            marginals = torch_impl.marginals(torch_impl.smith_waterman, matrix, lengths, variant=variant)
        assert not marginals.requires_grad
        close(marginals, MARGINALS)


@pytest.mark.parametrize("variant", TORCH_VARIANTS)
def test_torch_marginals_require_grad_when_an_argument_does(variant):
    similarity, lengths = tensors()
    score = functools.partial(torch_impl.smith_waterman, variant=variant)
    gap = torch.tensor(-1.0, requires_grad=True)
    assert not torch_impl.marginals(score, similarity, lengths).requires_grad
    marginals = torch_impl.marginals(score, similarity, lengths, gap=gap)
    (slope,) = torch.autograd.grad(marginals.sum(), gap)
    step = 1e-4
    sums = [reference.gradients("smith_waterman", S, LENGTHS, gap=-1 + d)["similarity"].sum() for d in (step, -step)]
    assert float(slope) == pytest.approx((sums[0] - sums[1]) / (2 * step), rel=1e-3)


@pytest.mark.parametrize("variant", TORCH_VARIANTS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_torch_marginals_inside_vmap(problem, variant):
    marginals = functools.partial(torch_impl.marginals, getattr(torch_impl, problem), variant=variant)
    close(torch.func.vmap(marginals)(*tensors()), reference.gradients(problem, S, LENGTHS)["similarity"])


def test_torch_marginals_leave_no_gradient_behind():
    similarity = torch.from_numpy(S).clone().requires_grad_()
    torch_impl.marginals(torch_impl.smith_waterman, similarity)
    assert similarity.grad is None


@pytest.mark.parametrize(
    ("problem", "variant"),
    [
        ("smith_waterman_affine", "diagonal_loop"),
        ("needleman_wunsch", "vmap"),
        *itertools.product(("smith_waterman", "needleman_wunsch"), BY_HAND),
    ],
)
def test_torch_marginals_of_a_compiled_function(problem, variant):
    function = compiled(functools.partial(getattr(torch_impl, problem), variant=variant), backend="eager")
    close(torch_impl.marginals(function, *tensors()), reference.gradients(problem, S, LENGTHS)["similarity"])


@pytest.mark.parametrize("variant", TORCH_VARIANTS)
def test_torch_marginals_inside_a_compiled_function(variant):
    similarity, lengths = tensors()
    marginals = functools.partial(torch_impl.marginals, torch_impl.smith_waterman, variant=variant)
    close(torch.compile(marginals, backend="aot_eager")(similarity, lengths), MARGINALS)


@pytest.mark.parametrize("variant", TORCH_VARIANTS)
def test_torch_compiled_by_its_user_is_right(variant):
    similarity, lengths = tensors()
    matrix = similarity.clone().requires_grad_()
    function = torch.compile(torch_impl.smith_waterman, backend="aot_eager", fullgraph=True)
    scores = function(matrix, lengths, variant=variant)
    close(scores.detach(), SCORES)
    close(torch.autograd.grad(scores.sum(), matrix)[0], MARGINALS)


def test_torch_parameters_of_zero_dimensions_go_with_any_matrix():
    similarity, lengths = tensors()
    gap, temperature = torch.tensor(-1, dtype=torch.float64), torch.tensor(1)
    scores = torch_impl.smith_waterman(similarity, lengths, gap=gap, temperature=temperature)
    assert scores.dtype == torch.float32
    close(scores, SCORES)


@pytest.mark.cuda
def test_torch_cpu_parameters_and_lengths_go_with_a_cuda_matrix():
    similarity, lengths = tensors()
    gap = torch.tensor(-1.0, requires_grad=True)
    scores = torch_impl.smith_waterman(similarity.cuda(), lengths, gap=gap, temperature=torch.tensor(1.0))
    assert scores.device.type == "cuda"
    close(scores.detach().cpu(), SCORES)
    (slope,) = torch.autograd.grad(scores.sum(), gap)
    assert slope.device.type == "cpu"


@pytest.mark.cuda
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_cuda_scores_equal_the_reference(framework):
    backend = FRAMEWORKS[framework].backend
    for variant in usable_variants("smith_waterman", backend.absent_on("cuda")):
        scores = backend.function("smith_waterman", variant)(backend.to_device(S, "cuda"), LENGTHS)
        close(backend.to_numpy(scores), SCORES)


# both


@pytest.mark.parametrize("variant", BY_HAND)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_arguments_are_left_as_they_were(framework, variant):
    inputs = ragged(4, 5)
    run(framework, inputs, "float64", variant, how="quick" if framework == "jax" else "eager")
    for array, untouched in zip(inputs[:2], ragged(4, 5)[:2], strict=True):
        np.testing.assert_array_equal(array, untouched)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.filterwarnings("error")
def test_read_only_numpy_arguments_raise_no_warning(framework):
    arrays = S.copy(), LENGTHS.copy()
    for array in arrays:
        array.setflags(write=False)
    package, backend = FRAMEWORKS[framework]
    close(backend.to_numpy(package.smith_waterman(*arrays)), SCORES)


@pytest.mark.parametrize("variant", BY_HAND)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_same_call_gives_the_same_bits(framework, variant):
    how = {"jax": "quick", "torch": "eager"}[framework]
    first, second = (run(framework, single(5, 8), "float32", variant, how) for _ in range(2))
    assert first.score == second.score
    np.testing.assert_array_equal(first.gradients["similarity"], second.gradients["similarity"])


def in_a_fresh_process(program: str, **environment: str) -> Any:
    """The JSON that a program prints, run where nothing has been imported."""
    command, own = [sys.executable, "-c", program], os.environ | environment
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_jax_impl_changes_no_flag_starts_no_device_and_compiles_nothing(tmp_path):
    before, after, backends, loaded = in_a_fresh_process(
        """
import json, os, sys, warnings
import jax, numpy
from jax._src import xla_bridge
state = lambda: repr((dict(os.environ), sorted(jax.config.values.items(), key=str), numpy.geterr(), warnings.filters))
before = state()
import jax_impl, jax_impl.backend
print(json.dumps([before, state(), len(xla_bridge._backends), "torch" in sys.modules]))
""",
        ALIGNMENT_CACHE=str(tmp_path / "cache"),
    )
    assert before == after
    assert backends == 0
    assert not loaded
    assert not (tmp_path / "cache").exists()


def test_importing_torch_impl_changes_no_flag_starts_no_device_and_compiles_nothing(tmp_path):
    before, after, cuda, loaded = in_a_fresh_process(
        """
import json, os, sys, warnings
import torch, torch._dynamo, torch._inductor.config, torch._functorch.config, numpy
configs = torch._dynamo.config, torch._inductor.config, torch._functorch.config
general = lambda: [torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(),
                   torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()]
state = lambda: repr((dict(os.environ), [c.shallow_copy_dict() for c in configs], general(), numpy.geterr()))
before = state()
import torch_impl, torch_impl.backend
print(json.dumps([before, state(), torch.cuda.is_initialized(), "jax" in sys.modules]))
""",
        ALIGNMENT_CACHE=str(tmp_path / "cache"),
    )
    assert before == after
    assert not cuda
    assert not loaded
    assert not (tmp_path / "cache").exists()


def test_shared_imports_no_framework():
    loaded = in_a_fresh_process(
        """
import importlib, json, pkgutil, sys
import shared
for module in pkgutil.walk_packages(shared.__path__, "shared."):
    if "worker" not in module.name and not module.name.startswith("shared.bench"):
        importlib.import_module(module.name)
print(json.dumps([name for name in ("jax", "torch") if name in sys.modules]))
"""
    )
    assert loaded == []


def test_a_compiled_call_puts_the_settings_back():
    def settings() -> tuple:
        dynamo = torch._dynamo.config
        return dynamo.capture_scalar_outputs, dynamo.recompile_limit, functorch_config.donated_buffer

    before = settings()
    torch_impl.smith_waterman(torch.ones(2, 2), variant="scan_select")
    compiled(torch_impl.smith_waterman, backend="eager")(torch.ones(2, 2))
    assert settings() == before
