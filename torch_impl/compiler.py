"""torch.compile with the settings that a program with the scan operator needs."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch._functorch.config
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from shared.checks import CannotDifferentiate
from torch_impl.first_order_guard import tied
from torch_impl.transforms import leaves_of

# capture_scalar_outputs: inductor lowers scan to a loop over an index that it reads as a scalar.
# recompile_limit: one compile per shape, dtype and set of differentiable arguments; 8 are soon used up.
_DYNAMO = {"capture_scalar_outputs": True, "recompile_limit": 256, "accumulated_recompile_limit": 1024}


def compiled(
    function: Callable[..., Any], backend: str = "inductor", dynamic: bool | None = False
) -> Callable[..., Any]:
    """The function under torch.compile; each shape is compiled by itself unless `dynamic`, which is torch.compile's,
    says otherwise. Importing this changes no setting.

    The settings hold during a call and are put back after it. A result that is a single tensor can be differentiated
    once: a second derivative raises, where torch.compile alone may silently drop it.
    """
    inner = torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True)

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)  # part of a larger compiled function, which has the settings
        # donated buffers: chained scans gave wrong gradients with them in 2.13, and they forbid create_graph
        with torch._dynamo.config.patch(_DYNAMO), torch._functorch.config.patch(donated_buffer=False):
            try:
                result = inner(*args, **kwargs)
            except Exception:
                _raise_own_error(function, args, kwargs)
                raise
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.requires_grad]
        if isinstance(result, torch.Tensor) and result.requires_grad:
            # also to what the function reaches by itself, such as the parameters of a module
            return tied(result, [*tensors, *leaves_of(result, tensors)])
        return result

    return call


def _raise_own_error(function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> None:
    """Raise the function's own error about its arguments, which the compiler only quotes in one of its own.

    The function is called again on tensors without data, so that nothing is computed.
    """
    own_error: Exception | None = None
    with FakeTensorMode() as mode, contextlib.suppress(Exception):
        own_args, own_kwargs = tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
        try:
            function(*own_args, **own_kwargs)
        except (TypeError, ValueError, CannotDifferentiate) as error:
            own_error = error
    if own_error is not None:
        raise own_error.with_traceback(None) from None
