"""The promises of the variants whose derivatives are written by hand, beyond parity.

PyTorch's operators are what its compiler expects; where fused is absent, a warning says so; and uses of their results.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch._dynamo
from frameworks import BY_HAND, FRAMEWORKS, ragged, run

import jax_impl
import torch_impl
import torch_impl.alignment
from shared.alignments import each_axis, recurrence_of
from shared.kernels import cpp
from shared.kernels.cpp import library
from torch_impl import diagonal_layout
from torch_impl.kernels import cpp_binding

BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)
VARIANT = pytest.mark.parametrize("variant", BY_HAND)
MATRIX = np.random.default_rng(0).normal(size=(2, 3))
MATRICES = np.random.default_rng(0).normal(size=(3, 6, 7))
LENGTHS = np.array([[6, 7], [4, 5], [3, 2]])


@pytest.mark.parametrize(
    ("problem", "options", "names", "dtype"),
    [
        ("smith_waterman", {"end": "any"}, (), "float32"),
        ("smith_waterman_affine", {"restrict_turns": False, "penalize_turns": True}, ("gap_extend",), "float64"),
    ],
    ids=str,
)
@VARIANT
def test_the_operators_are_what_pytorch_expects(variant, problem, options, names, dtype):
    inputs = ragged(3, 4, problem=problem)
    s = torch.tensor(np.nan_to_num(inputs.similarity, posinf=0, neginf=0)).to(getattr(torch, dtype))
    lengths, package, flags = torch.from_numpy(inputs.lengths), torch.ops.smooth_alignment, (True, False)
    if variant == "fused":
        s = s.mT.contiguous().mT
        score, gradients, tangents = cpp_binding.score, cpp_binding.gradients, cpp_binding.tangents
        columns, by_position = len(each_axis(problem, inputs.parameters, options)[0]), names
        last: tuple[Any, ...] = tuple(cpp.call_of(problem, options, names))
    else:
        score, gradients = package.wavefront_score.default, package.wavefront_gradients.default
        tangents, recurrence = package.wavefront_tangents.default, recurrence_of(problem, options, names)
        columns, by_position, last = len(recurrence.parameters) + 1, recurrence.by_position, (recurrence.name, False)
    values = torch.linspace(1, -2, columns).flip(0).to(s.dtype).expand(len(s), -1).contiguous()
    gaps = [-torch.rand_like(s) for _ in by_position]
    cases = [(score, (s, lengths, values, gaps, *last)), (tangents, (s, lengths, values, gaps, s, values, gaps, *last))]
    cases += [(gradients, (s, lengths, values, gaps, *last, flag)) for flag in flags]
    if variant == "fused":
        cases.append((cpp_binding.product, (s, lengths, values, gaps, s, *last)))
    for operator, arguments in cases:
        assert set(torch.library.opcheck(operator, arguments).values()) == {"SUCCESS"}


@pytest.mark.parametrize("problem", ["smith_waterman", pytest.param("needleman_wunsch_affine", marks=pytest.mark.slow)])
def test_both_frameworks_have_the_same_bits_by_fused(problem):
    results = [
        run(framework, ragged(9, 14, problem=problem), "float32", "fused", problem=problem) for framework in FRAMEWORKS
    ]
    np.testing.assert_array_equal(results[0].score, results[1].score)
    for name, gradient in results[0].gradients.items():
        np.testing.assert_array_equal(gradient, results[1].gradients[name], err_msg=name)


@pytest.mark.parametrize("use", ["score", "marginals", "product", "compiled"])
@BOTH
def test_where_fused_is_absent_auto_warns_once_at_the_users_line(framework, use, monkeypatch):
    package, backend = FRAMEWORKS[framework]
    compiled = {"jax": jax.jit, "torch": functools.partial(torch.compile, backend="eager", fullgraph=True)}[framework]
    s = backend.to_device(MATRIX.astype(np.float32), "cpu")
    call = {
        "score": lambda: package.smith_waterman(s),
        "marginals": lambda: package.marginals(package.smith_waterman, s),
        "product": lambda: package.hessian_vector_product(package.smith_waterman, s, s),
        "compiled": lambda: compiled(lambda s: package.smith_waterman(s))(s),
    }[use]
    monkeypatch.setitem(backend.absent, "fused", "it is off")
    monkeypatch.setattr(library, "_warned", False)
    with pytest.warns(RuntimeWarning) as caught:
        _ = call(), call()
    (warning,) = (entry for entry in caught if entry.category is RuntimeWarning)
    assert str(warning.message) == "variant 'auto' is 'wavefront' here, which is slower than 'fused': it is off"
    assert (warning.filename, warning.lineno) == (__file__, call.__code__.co_firstlineno)


@VARIANT
def test_torch_compile_of_transformed_functions_raises(variant):
    def mapped(matrices: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(torch.func.grad(score))(matrices)

    def pushed(matrices: torch.Tensor) -> torch.Tensor:
        return torch.func.jvp(score, (matrices,), (torch.ones_like(matrices),))[1]

    score = functools.partial(torch_impl.needleman_wunsch, variant=variant)
    for function in (mapped, pushed):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=r"inside torch\.compile here"):
            torch.compile(function, backend="eager", fullgraph=True)(torch.ones(2, 3, 3))


def torch_function(variant: str, **keywords: Any) -> Callable[..., Any]:
    return functools.partial(torch_impl.smith_waterman, variant=variant, **keywords)


def jax_function(variant: str, **keywords: Any) -> Callable[..., Any]:
    return functools.partial(jax_impl.smith_waterman, variant=variant, **keywords)


@VARIANT
def test_gradients_and_marginals_may_be_changed_before_the_next_call(variant):
    s = torch.tensor(MATRICES, requires_grad=True)
    score = torch_function(variant)(s).sum()
    (first,) = torch.autograd.grad(score, s, retain_graph=True)
    before = first.clone()
    first.numpy()[:] = 7  # which autograd does not see
    (second,) = torch.autograd.grad(score, s, retain_graph=True)
    second.mul_(0)  # which it does
    score.backward()
    for _ in range(2):
        marginals = torch_impl.marginals(torch_function(variant), s.detach())
        torch.testing.assert_close(marginals, before, rtol=0, atol=0)
        marginals.fill_(7)
    torch.testing.assert_close(s.grad, before, rtol=0, atol=0)
    assert torch.equal(s, torch.tensor(MATRICES))  # no call has written to it


@VARIANT
def test_default_device_and_dtype_do_not_change_results(variant):
    s, lengths = torch.tensor(MATRICES, dtype=torch.float32), torch.tensor(LENGTHS)
    call = lambda *lengths: torch_function(variant, gap=-2.0)(s, *lengths)  # noqa: E731
    expected, whole = call(lengths), call()
    with torch.device("meta"):  # any that is not the CPU, where nothing can be read
        assert torch.equal(call(lengths), expected)
        assert torch.equal(call(), whole)
        assert torch.isfinite(torch_impl.marginals(torch_function(variant), s)).all()
    torch.set_default_dtype(torch.float16)
    try:
        assert torch.equal(call(lengths), expected)
    finally:
        torch.set_default_dtype(torch.float32)


@VARIANT
def test_calls_inside_and_outside_of_inference_mode_do_not_disturb_each_other(variant, monkeypatch):
    monkeypatch.setattr(diagonal_layout.Memory, "_free", [])  # as in a new process
    s = torch.tensor(MATRICES)
    function = torch_function(variant)
    for _ in range(2):
        with torch.inference_mode():
            inside = function(s), torch_impl.marginals(function, s)
        outside = function(s), torch_impl.marginals(function, s)
        assert all(torch.equal(one, other) for one, other in zip(inside, outside, strict=True))


@VARIANT
@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 3, 4)])
def test_a_mapped_axis_or_a_batch_may_be_empty(variant, shape):
    by_torch, by_jax = torch_function(variant), jax_function(variant)
    of_torch, of_jax = torch.func.grad(lambda s: by_torch(s).sum()), jax.grad(lambda s: by_jax(s).sum())
    assert torch.func.vmap(by_torch)(torch.zeros(shape)).shape == shape[:-2]
    assert torch.func.vmap(of_torch)(torch.zeros(shape)).shape == shape
    assert jax.vmap(by_jax)(jnp.zeros(shape)).shape == shape[:-2]
    assert jax.vmap(of_jax)(jnp.zeros(shape)).shape == shape


@pytest.mark.parametrize("variant", [pytest.param("diagonal_loop", marks=pytest.mark.slow), *BY_HAND])
def test_a_traced_temperature_counts_as_the_limit_or_gives_nan(variant):
    s = MATRICES[:, :3, :4].astype(np.float32)
    score = jax.jit(lambda t: jax_function(variant)(s, temperature=t))
    by_torch = torch.func.vmap(lambda t: torch_function(variant)(torch.tensor(s), temperature=t))
    for temperature, counts_as in ((1e-25, 1e-15), (1e-37, 1e-15), (1e25, 1e15)):
        expected = score(counts_as)
        np.testing.assert_allclose(score(temperature), expected, rtol=1e-6)
        np.testing.assert_allclose(by_torch(torch.tensor([temperature]))[0], expected, rtol=1e-5)
    for temperature in (0.0, -1.0, np.inf, np.nan):
        assert np.isnan(score(temperature)).all()
        assert by_torch(torch.tensor([temperature])).isnan().all()


@VARIANT
def test_a_pair_with_nan_has_zeros_outside_lengths(variant):
    similarity, lengths = np.zeros((3, 3, 3), np.float32), np.array([[2, 2], [2, 2], [3, 3]], np.int32)
    similarity[:2, 0, 0] = np.nan, np.inf
    s, vector = torch.from_numpy(similarity), torch.ones(3, 3, 3)
    jax_vector, sizes = jnp.ones((3, 3, 3)), torch.from_numpy(lengths)
    expected = np.zeros((3, 3), bool)
    expected[:2, :2] = True
    for result in (
        torch_impl.marginals(torch_function(variant), s, sizes),
        torch_impl.hessian_vector_product(torch_function(variant), s, vector, sizes),
        jax_impl.marginals(jax_function(variant), similarity, lengths),
        jax_impl.hessian_vector_product(jax_function(variant), similarity, jax_vector, lengths),
    ):
        for pair in np.asarray(result)[:2]:
            assert np.array_equal(np.isnan(pair), expected)
            assert not pair[~expected].any()
        assert np.isfinite(np.asarray(result)[2]).all()


@pytest.mark.parametrize("framework", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_rounding_errors_of_log_space_do_not_add_up_on_a_long_way(framework):
    similarity = np.random.default_rng(0).normal(size=(1, 700, 800)).astype(np.float32)
    if framework == "jax":
        score = jax.jit(jax_function("wavefront", gap=-1.0))(similarity)
    else:
        score = torch_function("wavefront", gap=-1.0)(torch.from_numpy(similarity))
    expected = torch_function("wavefront", gap=-1.0)(torch.from_numpy(similarity).double())
    np.testing.assert_allclose(np.asarray(score), expected, rtol=1e-6)
