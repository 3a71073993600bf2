"""JAX's functions in PyTorch: values and derivatives against the reference, shared memory, and clear errors."""

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from frameworks import assert_parity, ragged, reference_result, run_function
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import jax_impl
import torch_impl
from jax_impl.backend import precision
from torch_impl import jax_bridge
from torch_impl.jax_bridge import from_jax

# one for all tests: each compiles anew
SCORE = from_jax(jax_impl.smith_waterman)
SQUARE = from_jax(lambda x: x * x)


def leaf(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype).requires_grad_()


@pytest.mark.parametrize(
    ("problem", "dtype", "options", "variant"),
    [
        ("smith_waterman_affine", "float32", {"penalize_turns": False}, "wavefront"),
        ("needleman_wunsch", "float64", {}, "fused"),
    ],
)
def test_scores_and_gradients_equal_the_reference(problem, dtype, options, variant):
    inputs = ragged(5, 8, problem=problem)
    score = functools.partial(from_jax(getattr(jax_impl, problem)), variant=variant, **options)
    with precision(dtype):
        result = run_function("torch", score, inputs, dtype)
    assert_parity(result, reference_result(inputs, problem, **options), dtype, inputs.parameters["temperature"])


def test_derivatives_have_the_orders_of_the_function_and_the_next_raises():
    x = leaf(4)
    cube, expected = from_jax(lambda x: jnp.sin(x) ** 3)(x), torch.sin(x) ** 3
    for _ in range(3):
        cube, expected = (torch.autograd.grad(y.sum(), x, create_graph=True)[0] for y in (cube, expected))
    torch.testing.assert_close(cube, expected)
    s = leaf(2, 3, 4)
    (first,) = torch.autograd.grad(SCORE(s, variant="fused").sum(), s, create_graph=True)
    with pytest.raises(RuntimeError, match="variant 'fused' is right to second order only"):
        torch.autograd.grad((first**2).sum(), s, create_graph=True)
    (second,) = torch.autograd.grad((first**2).sum() / 2, s)
    matrix, vector = s.detach(), first.detach()
    product = torch_impl.hessian_vector_product(torch_impl.smith_waterman, matrix, vector)
    torch.testing.assert_close(torch_impl.marginals(SCORE, matrix), vector)
    for result in (second, torch_impl.hessian_vector_product(SCORE, matrix, vector)):
        torch.testing.assert_close(result, product, rtol=1e-4, atol=1e-5)


def test_gradients_are_for_those_that_require_them():
    x, y, n = leaf(3), leaf(3, seed=1).detach(), torch.tensor([1, 2, 3])
    from_jax(lambda x, y, n: (x * y * n).sum())(x, y, n).backward()
    torch.testing.assert_close(x.grad, y * n)
    assert y.grad is None
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            result = SQUARE(x)
        assert not result.requires_grad and torch.equal(result, x * x)


def test_arguments_and_results_may_be_nested_and_some_are_integers():
    def function(p: Any, axis: int) -> Any:
        return {"sum": p["x"].sum(axis), "best": p["x"].argmax(), "none": None, "weight": 0.5}

    x = leaf(2, 3)
    results = from_jax(function)({"x": x}, 1)
    torch.testing.assert_close(results["sum"], x.sum(1))
    assert results["best"] == x.argmax() and not results["best"].requires_grad
    assert results["none"] is None and results["weight"] == 0.5
    assert torch.equal(torch.autograd.grad(results["sum"].sum(), x)[0], torch.ones(2, 3))


def test_floats_and_arrays_are_traced_and_everything_else_is_static():
    traces: list[Any] = []

    def function(x: Any, scale: Any, shift: Any, *, twice: bool) -> Any:
        traces.append((scale, shift, twice))
        return (x * scale + shift) * (2 if twice is True else 1)

    call, x = from_jax(function), torch.ones(3)
    assert call(x, 2.0, np.ones(3), twice=True).tolist() == [6.0] * 3
    assert call(x, 3.0, 5 * np.ones(3), twice=True).tolist() == [16.0] * 3
    assert len(traces) == 1 and traces[0][2] is True
    assert call(x, 3.0, 5 * np.ones(3), twice=1).tolist() == [8.0] * 3 and len(traces) == 2  # equal, of another type
    for number in (3.0, 4.0):  # another type than Python's float, not another value
        assert call(x, np.float32(number), 5 * np.ones(3), twice=1).tolist() == [5.0 + number] * 3
    assert len(traces) == 3


def test_each_shape_is_compiled_once_with_its_derivatives():
    traces = []
    call = from_jax(lambda x: traces.append(x.shape) or jnp.sin(x))
    for _ in range(3):
        x = leaf(4)
        (first,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
        first.sum().backward()
        call(x.detach())
    assert len(traces) <= 4  # the value; with its pullback; the gradients; those with their pullback


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.uint8])
def test_views_of_any_kind_and_dtype_give_the_right_values(dtype: torch.dtype):
    whole = torch.arange(24).to(dtype).view(4, 6) % 5
    views = [whole.T, whole[:, ::2], whole[1:, 1:], whole[0].expand(3, 6), whole[:0], whole[0, 0], whole.flatten()[1:]]
    if dtype.is_floating_point:
        # the latter is negated when it is read
        views += [torch.tensor([1 + 2j]).conj().imag.to(dtype), torch._neg_view(whole[0])]  # pyright: ignore
    for view in views:
        result = SQUARE(view)
        assert result.dtype is dtype
        assert torch.equal(result, view * view)


def test_float64_needs_the_64_bit_mode_of_the_call_alone():
    x = leaf(3, dtype=torch.float64)
    with pytest.raises(TypeError, match=r"float64 tensors need JAX's 64-bit mode: jax\.config"):
        SQUARE(x)
    with jax.enable_x64(True):
        result = SQUARE(x)
        assert SQUARE(torch.tensor([3])).dtype is torch.int64
    assert SQUARE(torch.tensor([3])).dtype is torch.int32
    (first,) = torch.autograd.grad(result.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert result.dtype is first.dtype is second.dtype is torch.float64
    torch.testing.assert_close(first, 2 * x)


def test_memory_of_contiguous_tensors_and_of_results_is_shared():
    whole = torch.ones(32 * 32 + 2, dtype=torch.bfloat16)
    first = whole[:-2].view(32, 32)
    # contiguous, 4 bytes later, transposed, columns
    views = [first, whole[2:].view(32, 32), first.T, first[:, ::2]]
    arrays = jax_bridge.to_jax(views)
    shared = [array.unsafe_buffer_pointer() == view.data_ptr() for array, view in zip(arrays, views, strict=True)]
    assert shared == [True, False, False, False]
    result = jax.jit(lambda x: 2 * x)(arrays[0])
    assert torch.from_dlpack(result).data_ptr() == result.unsafe_buffer_pointer()
    single = torch.ones(4)  # NumPy stands for it where JAX has nothing but the CPU
    (array,) = jax_bridge.to_jax([single])
    assert isinstance(array, np.ndarray) and array.ctypes.data == single.data_ptr()


def test_a_gpu_of_jax_takes_tensors_of_the_cpu_on_the_cpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jax_bridge, "_device_types", lambda: ("cpu", "cuda"))
    (array,) = jax_bridge.to_jax([torch.ones(4)])
    assert isinstance(array, jax.Array) and array.committed  # NumPy's would go to the GPU


def test_the_memory_of_a_backward_is_freed_with_it():
    x = leaf(3)
    result = SQUARE(x).sum()
    context = result.grad_fn.next_functions[0][0]  # pyright: ignore[reportOptionalMemberAccess]
    references = [weakref.ref(array) for array in jax.tree.leaves(context.pullback)]
    result.backward(retain_graph=True)
    assert references and all(array() is not None for array in references)
    result.backward()
    gc.collect()
    assert all(array() is None for array in references)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        result.backward()
    torch.testing.assert_close(x.grad, 4 * x.detach())


def test_an_input_that_is_changed_in_place_is_an_error_and_a_result_may_be():
    x = leaf(3)
    doubled = x * 1
    result = from_jax(jnp.exp)(doubled)
    result.mul_(2)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x, retain_graph=True)[0], 2 * x.exp())
    doubled.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_torch_compile_breaks_the_graph_and_checkpoint_calls_again():
    x = leaf(3)
    compiled = torch.compile(lambda x: SQUARE(x + 1) * 2, backend="eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x)[0], 4 * (x + 1))
    result: Any = checkpoint(SQUARE, 2 * x, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], 8 * x)


def forward_mode(x: torch.Tensor) -> Any:
    with forward_ad.dual_level():
        return SQUARE(forward_ad.make_dual(x, x))


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return SQUARE(x)


BY_FUNC = "cannot be transformed by torch.func; apply JAX's transform"
TRACED = "cannot be traced or exported by PyTorch"


@pytest.mark.parametrize(
    ("transform", "text"),
    [
        (torch.func.grad(lambda x: SQUARE(x).sum()), BY_FUNC),
        (torch.func.vmap(SQUARE), BY_FUNC),
        (lambda x: torch.func.jvp(SQUARE, (x,), (x,)), BY_FUNC),
        (forward_mode, "has no forward mode in PyTorch; apply JAX's transform"),
        (lambda x: torch.jit.trace(SQUARE, (x,)), TRACED),
        (lambda x: torch.export.export(Model(), (x,)), TRACED),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_transforms_that_are_lost_raise(transform: Callable[..., Any], text: str):
    with pytest.raises(RuntimeError, match=text):
        transform(torch.ones(3))


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (TypeError, "function must be a JAX function, got int", lambda: from_jax(3)),  # pyright: ignore
        (TypeError, r"must be float32, .*, got complex64", lambda: SQUARE(torch.ones(2, dtype=torch.complex64))),
        (TypeError, "must have real results to be .*, got complex64", lambda: from_jax(lambda x: x * 1j)(leaf(2))),
        (ValueError, "lengths must have shape", lambda: SCORE(leaf(2, 3, 4), torch.tensor([1, 2, 3]))),
        (ValueError, "on a device that it has, cpu here, got meta", lambda: SQUARE(torch.ones(3, device="meta"))),
    ],
)
def test_errors_name_what_was_expected(error: type[Exception], text: str, call: Callable[[], Any]):
    with pytest.raises(error, match=text):
        call()
