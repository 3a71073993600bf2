"""A problem of the user's own in JAX: `jax_function` of a Python file, under jit.

`torch_impl.own_problem` has the same names with the same meaning.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from shared.problems.own_file import own_function
from shared.variants import Abilities
from shared.workload_checks import check_result

FUNCTION = "jax_function"
# variant -> why it cannot run in this framework
ABSENT = {"eager": "JAX runs it under jit"}


def _value(function: Callable[..., Any], *arrays: jax.Array) -> jax.Array:
    result = function(*arrays)
    check_result(FUNCTION, result, jax.Array, arrays)
    return result


def _gradient(function: Callable[..., Any], *arrays: jax.Array) -> jax.Array:
    """The last array is the cotangent."""
    *inputs, cotangent = arrays
    places = [place for place, array in enumerate(inputs) if jnp.issubdtype(array.dtype, jnp.floating)]

    def loss(*given: jax.Array) -> jax.Array:
        result = function(*given)
        check_result(FUNCTION, result, jax.Array, arrays, cotangent.shape)
        return (cotangent * result).sum()

    gradients = jax.grad(loss, argnums=places)(*inputs)
    return gradients[0] if len(gradients) == 1 else jnp.concatenate([gradient.ravel() for gradient in gradients])


def abilities(device: str) -> Abilities:
    """Return what the benchmark may ask for."""
    return Abilities(None, ABSENT)


def call_of(variant: str, pass_name: str, options: dict[str, Any], compiled: bool) -> Callable[..., jax.Array]:
    """The function to be timed: "value" is f(*arrays), "gradient" f(*arrays, cotangent), of sum(cotangent * result).

    The gradient is with respect to the floating-point arrays: of the array's shape where there is one, else raveled
    and concatenated.
    """
    function = own_function(options, FUNCTION)
    function_of_pass = functools.partial({"value": _value, "gradient": _gradient}[pass_name], function)
    return jax.jit(function_of_pass) if compiled else function_of_pass
