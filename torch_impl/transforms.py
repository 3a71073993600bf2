"""What is at work around a call: the compiler, torch.func.vmap, or a derivative transform of torch.func."""

import torch
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch._subclasses.fake_tensor import FakeTensor


def in_transform() -> bool:
    """Whether torch.compile, or a transform of torch.func, is at work around this call."""
    return torch.compiler.is_compiling() or _functorch.peek_interpreter_stack() is not None


def under_derivative_transform() -> bool:
    """Whether this call runs inside torch.func.grad, jvp or what is made of them; not seen while compiling."""
    if torch.compiler.is_compiling():
        return False
    derivatives = (_functorch.TransformType.Grad, _functorch.TransformType.Jvp)
    return any(level.key() in derivatives for level in _functorch.get_interpreter_stack() or ())


def is_traced(tensor: torch.Tensor) -> bool:
    """Whether the tensor has no values that the host could look at."""
    return (
        torch.compiler.is_compiling()
        or isinstance(tensor, FakeTensor)
        or _functorch.is_functorch_wrapped_tensor(tensor)
    )
