"""JAX functions inside PyTorch: `from_jax` makes one a function of tensors that autograd differentiates.

    tensors    -> arrays -> jax.jit(function)         -> arrays -> tensors
    cotangents -> arrays -> the pullback of jax.vjp   -> arrays -> gradients

An arrow shares memory by DLPack, into JAX by NumPy if JAX has only the CPU (not bfloat16).
What is copied, and which transforms are lost, is in docs/transforms.md. Only this module of the package imports JAX.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch._C import (
    _autograd,  # pyright: ignore[reportAttributeAccessIssue]
    _get_tracing_state,
)
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from shared.checks import CannotDifferentiate
from shared.first_import import explained
from torch_impl.transforms import in_torch_func

try:
    import jax
except ImportError as error:
    raise explained(error, __name__, "jax") from None

Tensor = torch.Tensor

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_DTYPES = (*_FLOATS, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
# what JAX traces beside tensors; anything else is static
_TRACED_TYPES = (float, np.floating, np.ndarray, jax.Array)
_TRACED = object()  # stands for a traced value among static ones


def from_jax(function: Callable[..., Any]) -> Callable[..., Any]:
    """A JAX function as a function of PyTorch tensors, differentiable by autograd.

        score = from_jax(jax_impl.smith_waterman)
        score(similarity, lengths, gap=gap, end="match").sum().backward()

    Args:
        function: anything that jax.jit can compile. It is compiled once for each combination of shapes, dtypes, static
            arguments, and tensors that require a gradient. Keep the result: another call of from_jax compiles anew.

    Returns:
        A function of the same arguments. They may be nested as in JAX (lists, tuples, dictionaries). Tensors, floats
        and arrays are traced; anything else (strings, booleans, integers) is static, so it must have a hash. The result
        has tensors in place of JAX's arrays, on the same device. Gradients are those of jax.vjp, to any order that the
        function has, for the tensors that require one. Where the function lacks an order,
        the error comes when that order would be recorded: in the derivative before it, with create_graph=True.

        Tensors are float32, float64, float16, bfloat16, bool or integers and keep their dtype, except that without
        JAX's 64-bit mode int64 becomes int32, as everywhere in JAX. They share memory with JAX if they are contiguous
        and, on a CPU, begin at a multiple of 64 bytes, as PyTorch allocates them; else a copy is made.

    Raises:
        TypeError: a dtype is another one, or float64 without JAX's 64-bit mode.
        ValueError: a tensor is on a device that JAX does not have.
        RuntimeError: inside torch.func, forward mode or a tracer, where a JAX function cannot be called.
        Whatever the function raises.
    """
    if not callable(function):
        raise TypeError(f"function must be a JAX function, got {type(function).__name__}")
    compiled = _Compiled(function)

    @torch.compiler.disable(reason="it calls a JAX function")
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        leaves, tree = jax.tree.flatten((arguments, options))
        values = [leaf for leaf in leaves if isinstance(leaf, (Tensor, *_TRACED_TYPES))]
        # with its type, or what was compiled for 1 would be taken for True, which is equal
        fixed = tuple(_TRACED if isinstance(leaf, (Tensor, *_TRACED_TYPES)) else (type(leaf), leaf) for leaf in leaves)
        _check_surroundings(values)
        if torch.is_grad_enabled() and any(isinstance(value, Tensor) and value.requires_grad for value in values):
            out_tree: list[Any] = []
            results = _Differentiable.apply(compiled, tree, fixed, out_tree, *values)
            return jax.tree.unflatten(out_tree[0], results)
        return jax.tree.map(torch.from_dlpack, compiled.value(tree, fixed, to_jax(values)))

    return call


class _Compiled:
    """A function's compiled forms. Its arguments are flat: `fixed` has the static ones, each as its type and itself,
    and _TRACED for the others.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        # (tree, fixed, values) -> result
        self.value = jax.jit(self._call, static_argnums=(0, 1))
        # (tree, fixed, needed, values) -> result, pullback
        self.value_and_pullback = jax.jit(self._linearize, static_argnums=(0, 1, 2))
        # (out_tree, shapes, pullback, cotangents) -> gradients
        self.pull = jax.jit(_pull, static_argnums=(0, 1))
        # the gradients as a function of values and cotangents, which can be differentiated again
        self.gradients = functools.cache(self._gradients)

    def _call(self, tree: Any, fixed: tuple[Any, ...], values: Sequence[Any]) -> Any:
        next_value = iter(values)
        leaves = [next(next_value) if value is _TRACED else value[1] for value in fixed]
        arguments, options = jax.tree.unflatten(tree, leaves)
        return self._function(*arguments, **options)

    def _linearize(self, tree: Any, fixed: tuple[Any, ...], needed: tuple[bool, ...], values: Sequence[Any]) -> Any:
        """needed: which of the values are differentiated."""

        def partial(*differentiated: Any) -> Any:
            next_value = iter(differentiated)
            return self._call(tree, fixed, [next(next_value) if n else v for n, v in zip(needed, values, strict=True)])

        result, pullback = jax.vjp(partial, *(v for n, v in zip(needed, values, strict=True) if n))
        for dtype in map(jax.numpy.result_type, jax.tree.leaves(result)):
            if np.issubdtype(dtype, np.complexfloating):  # whose gradients PyTorch defines as the conjugates
                raise TypeError(f"a JAX function must have real results to be differentiated here, got {dtype}")
        return result, pullback

    def _gradients(
        self, tree: Any, fixed: tuple[Any, ...], needed: tuple[bool, ...], out_tree: Any, shapes: Any
    ) -> Any:
        def gradients(values: Sequence[Any], cotangents: Sequence[Any]) -> Any:
            return _pull(out_tree, shapes, self._linearize(tree, fixed, needed, values)[1], cotangents)

        return from_jax(gradients)


def _pull(out_tree: Any, shapes: Sequence[tuple[int, ...] | None], pullback: Any, cotangents: Sequence[Any]) -> Any:
    """The gradients. shapes: of each result that has no cotangent, because it is not floating-point; else None."""
    next_cotangent = iter(cotangents)
    zeros = jax.dtypes.float0
    leaves = [next(next_cotangent) if shape is None else np.zeros(shape, zeros) for shape in shapes]
    return pullback(jax.tree.unflatten(out_tree, leaves))


class _Differentiable(torch.autograd.Function):
    """A call whose tensors require gradients."""

    @staticmethod
    def forward(ctx: Any, compiled: _Compiled, tree: Any, fixed: Any, out_tree: list[Any], *values: Any) -> Any:
        needed = ctx.needs_input_grad[4:]
        result, ctx.pullback = compiled.value_and_pullback(tree, fixed, needed, to_jax(values))
        arrays, structure = jax.tree.flatten(result)
        out_tree.append(structure)
        results = tuple(map(torch.from_dlpack, arrays))
        shapes = tuple(None if r.dtype in _FLOATS else tuple(r.shape) for r in results)
        ctx.compiled, ctx.static = compiled, (tree, fixed, needed, structure, shapes)
        # the pullback has what it needs; these are for second derivatives, and an error if one was changed in place
        ctx.save_for_backward(*(value for value in values if isinstance(value, Tensor)))
        ctx.others = [None if isinstance(value, Tensor) else value for value in values]
        # a backward may run in another thread, or after the context that set the mode has ended
        ctx.x64 = _is_x64()
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        tensors = iter(ctx.saved_tensors)
        _, _, needed, structure, shapes = ctx.static
        used = [c for c, shape in zip(cotangents, shapes, strict=True) if shape is None]
        with jax.enable_x64(ctx.x64):
            if torch.is_grad_enabled():  # create_graph
                values = [next(tensors) if other is None else other for other in ctx.others]
                gradients = iter(ctx.compiled.gradients(*ctx.static)(values, used))
            else:
                pulled = ctx.compiled.pull(structure, shapes, ctx.pullback, to_jax(used))
                gradients = map(torch.from_dlpack, pulled)
                if not _autograd._get_current_graph_task_keep_graph():
                    ctx.pullback = None  # frees its memory, as PyTorch frees that of saved tensors
            return None, None, None, None, *(next(gradients) if need else None for need in needed)


def to_jax(values: Sequence[Any]) -> list[Any]:
    """The values with what JAX takes in place of tensors: arrays in their memory."""
    return [_shared(value) if isinstance(value, Tensor) else value for value in values]


def _shared(tensor: Tensor) -> Any:
    """A tensor's memory as an array; of a copy if it is not contiguous. JAX copies what is not aligned."""
    if tensor.dtype not in _DTYPES:
        dtypes = ", ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES)
        raise TypeError(f"tensors for JAX must be {dtypes}, got {str(tensor.dtype).removeprefix('torch.')}")
    if tensor.dtype is torch.float64 and not _is_x64():
        raise TypeError(
            "float64 tensors need JAX's 64-bit mode: jax.config.update('jax_enable_x64', True) or jax.enable_x64(True)"
        )
    if tensor.device.type not in _device_types():
        devices = " or ".join(_device_types())
        raise ValueError(f"tensors for JAX must be on a device that it has, {devices} here, got {tensor.device}")
    # DLPack would lose a negation that PyTorch has delayed, and JAX would compile again for another layout
    plain = tensor.detach().resolve_neg().contiguous()
    if _device_types() == ("cpu",) and tensor.dtype is not torch.bfloat16:
        return plain.numpy()  # jax.jit shares NumPy's memory too, in half the time of from_dlpack
    return jax.dlpack.from_dlpack(plain)


def _is_x64() -> bool:
    """Whether JAX is in its 64-bit mode, in this thread."""
    return jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]


@functools.cache
def _device_types() -> tuple[str, ...]:
    """PyTorch's names of the devices that JAX has."""
    try:
        return ("cpu", "cuda") if jax.devices("cuda") else ("cpu",)
    except RuntimeError:
        return ("cpu",)


def _check_surroundings(values: Sequence[Any]) -> None:
    """Raise where PyTorch would have to look into the JAX function."""
    instead = "apply JAX's transform to the function before from_jax"
    if in_torch_func():
        raise CannotDifferentiate(f"a JAX function cannot be transformed by torch.func; {instead}")
    if forward_ad._current_level >= 0:
        raise CannotDifferentiate(f"a JAX function has no forward mode in PyTorch; {instead}")
    if _get_tracing_state() is not None or any(isinstance(value, FakeTensor) for value in values):
        raise CannotDifferentiate("a JAX function cannot be traced or exported by PyTorch; leave it outside")
