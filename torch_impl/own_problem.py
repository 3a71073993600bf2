"""A problem of the user's own in PyTorch: `torch_function` of a Python file, as it is and under torch.compile.

`jax_impl.own_problem` has the same names with the same meaning.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.exc import TorchDynamoException

from shared.problems.own_file import first_line, own_function, where_in
from shared.problems.problem import NotMeasurable
from shared.variants import Abilities
from shared.workload_checks import check_result
from torch_impl.compiler import compiled as compile_function

Tensor = torch.Tensor

FUNCTION = "torch_function"
# variant -> why it cannot run in this framework
ABSENT: dict[str, str] = {}


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose first call raises if it changes its arguments: every call must get the same."""
    is_checked = False

    def call(*arrays: Tensor) -> Any:
        nonlocal is_checked
        if is_checked:
            return function(*arrays)
        before = [array._version for array in arrays]  # which every change in place increases
        result = function(*arrays)
        for number, (array, version) in enumerate(zip(arrays, before, strict=True), 1):
            if array._version != version:
                raise ValueError(f"{FUNCTION} must not change its arguments, it changes argument {number}")
        is_checked = True
        return result

    return call


def _value(function: Callable[..., Any], *arrays: Tensor) -> Tensor:
    result = function(*arrays)
    check_result(FUNCTION, result, Tensor, arrays)
    return result


def _gradient(function: Callable[..., Any], *arrays: Tensor) -> Tensor:
    """The last array is the cotangent."""
    *inputs, cotangent = arrays
    inputs = [array.detach().requires_grad_(array.is_floating_point()) for array in inputs]
    with torch.enable_grad():
        result = function(*inputs)
        check_result(FUNCTION, result, Tensor, arrays, tuple(cotangent.shape))
        leaves = [array for array in inputs if array.requires_grad]
        gradients = torch.autograd.grad(result, leaves, cotangent, materialize_grads=True)
    return gradients[0] if len(gradients) == 1 else torch.cat([gradient.ravel() for gradient in gradients])


def abilities(device: str) -> Abilities:
    """Return what the benchmark may ask for."""
    return Abilities(None, ABSENT)


def call_of(variant: str, pass_name: str, options: dict[str, Any], compiled: bool) -> Callable[..., Tensor]:
    """The function to be timed: "value" is f(*arrays), "gradient" f(*arrays, cotangent), of sum(cotangent * result).

    The gradient is with respect to the floating-point arrays: of the array's shape where there is one, else raveled
    and concatenated.
    """
    function = own_function(options, FUNCTION)
    passes = {"value": _value, "gradient": _gradient}
    if not compiled:
        return _guarded(functools.partial(passes[pass_name], function))
    # torch.compile does not trace torch.autograd.grad: it compiles the function and its backward
    guarded = _guarded(functools.partial(passes[pass_name], compile_function(function)))

    def attempted(*arrays: Tensor) -> Tensor:
        try:
            return guarded(*arrays)
        except TorchDynamoException as error:  # the compiler's, not the function's own
            where = where_in(Path(options["file"]).resolve(), error)
            text = f"{type(error).__name__} ({first_line(str(error))[:200]})"
            raise NotMeasurable(f"torch.compile failed{where and f' at {where}'}: {text}") from error

    return attempted
