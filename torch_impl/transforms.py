"""Which transforms surround a call: the compiler, torch.func.vmap, or a derivative transform of torch.func."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch._C import (
    _functorch,  # pyright: ignore[reportAttributeAccessIssue]
    _get_tracing_state,
    _len_torch_dispatch_stack,
)
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

_Function = TypeVar("_Function", bound=Callable[..., Any])


def constant_while_compiling(function: _Function) -> _Function:
    """A decorator: the compiler calls the function while it traces, and takes its result for a constant.

    As torch.compiler.assume_constant_result, which imports the compiler: that takes a second.
    """
    function._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
    return function


def compiled_or_in_torch_func() -> bool:
    """Whether torch.compile, or a transform of torch.func, is active around this call."""
    return torch.compiler.is_compiling() or in_torch_func()


@constant_while_compiling  # or PyTorch 2.11 takes it for true in everything that it compiles
def is_exporting() -> bool:
    """Whether torch.export is active around this call."""
    return torch.compiler.is_exporting()


def runs_eagerly() -> bool:
    """Whether no compiler, tracer, torch.func transform, forward mode or dispatch mode is active around this call."""
    return not (
        torch.compiler.is_compiling()
        or _functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or _get_tracing_state() is not None
        or _len_torch_dispatch_stack()
    )


def in_torch_func() -> bool:
    """Whether this call runs inside a transform of torch.func; not seen while compiling."""
    return not torch.compiler.is_compiling() and _functorch.peek_interpreter_stack() is not None


@constant_while_compiling  # while compiling it is asked once, when this call is traced
def under_derivative_transform() -> bool:
    """Whether this call runs inside torch.func.grad, jvp or what is made of them."""
    return bool(levels_of("grad") or levels_of("jvp"))


@constant_while_compiling
def under_forward_mode() -> bool:
    """Whether this call runs inside torch.func.jvp, or inside torch.autograd.forward_ad.dual_level."""
    return bool(levels_of("jvp")) or forward_ad._current_level >= 0


def differentiated(*tensors: torch.Tensor) -> str | None:
    """Say how a call is differentiated other than by autograd, for shared.checks.transform_text; None if it is not."""
    if under_derivative_transform():
        return "differentiated by torch.func"
    return "differentiated in forward mode" if _is_dual(*tensors) else None


def _is_dual(*tensors: torch.Tensor) -> bool:
    """Whether one of them has a tangent of torch.autograd.forward_ad, as under torch.func.linearize."""
    if forward_ad._current_level < 0:
        return False
    return any(forward_ad.unpack_dual(_unmapped(tensor)).tangent is not None for tensor in tensors)


def _unmapped(tensor: torch.Tensor) -> torch.Tensor:
    """The whole tensor that torch.func.vmap maps: PyTorch cannot look for the tangent of one of its slices."""
    while _functorch.is_batchedtensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


@constant_while_compiling
def levels_of(transform: str) -> tuple[int, ...]:
    """The levels of the transforms of torch.func around this call: of "vmap", "grad" or "jvp", from the outermost."""
    kind = getattr(_functorch.TransformType, transform.capitalize())
    return tuple(level.level() for level in _functorch.get_interpreter_stack() or () if level.key() == kind)


def is_recorded(tensor: torch.Tensor) -> bool:
    """Whether autograd records what is done with the tensor, also under torch.func.vmap; not while compiling."""
    while _functorch.is_functorch_wrapped_tensor(tensor) and not tensor.requires_grad:
        tensor = _functorch.get_unwrapped(tensor)
    return tensor.requires_grad


def is_traced(tensor: torch.Tensor) -> bool:
    """Whether the tensor has no values that the host could look at."""
    return (
        torch.compiler.is_compiling()
        or isinstance(tensor, FakeTensor)
        or _functorch.is_functorch_wrapped_tensor(tensor)
    )


def depends_on_others(result: torch.Tensor, leaf: torch.Tensor) -> bool:
    """Whether the graph of `result` reaches a tensor that requires a gradient and is not `leaf`."""
    return any(other is not leaf for other in leaves_of(result))


def leaves_of(result: torch.Tensor, inputs: Sequence[torch.Tensor] = ()) -> Iterator[torch.Tensor]:
    """The leaves, other than these inputs, that the graph of `result` reaches without going through the inputs."""
    seen = {tensor.grad_fn for tensor in inputs}
    nodes = [result.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and all(leaf is not input_ for input_ in inputs):
            yield leaf
        nodes += [following for following, _ in node.next_functions]
