"""Linear functions with a custom transpose rule, which support every transform of JAX.

jax.custom_derivatives.linear_call does the same without vmap; jax.custom_vjp does not support forward mode.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax._src import dispatch
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from jax_impl.pairs import mapped_first
from shared.checks import CannotDifferentiate

Arrays = Sequence[jax.Array]


@dataclass(frozen=True)
class Linear:
    """forward(fixed, arguments) -> results, linear in the arguments; backward(fixed, cotangents) is its transpose.

    Each result has the shape and dtype of the argument at its place, so that nothing is traced to find them out.

    Hashable, so that JAX finds what it has traced: pass functions of modules, or partials of them with hashable
    arguments. A further derivative differentiates `backward`, so that may itself be a Linear.
    """

    forward: Callable[[Arrays, Arrays], Arrays]
    backward: Callable[[Arrays, Arrays], Arrays]
    text: str  # the error when the fixed arrays are differentiated

    def __call__(self, fixed: Arrays, arguments: Arrays) -> list[jax.Array]:
        """The results; `fixed` is only read."""
        return _linear.bind(*fixed, *arguments, linear=self, count=len(fixed))


@dataclass(frozen=True)
class _Mapped:
    """A function mapped over an axis: `dims` of the fixed arrays, 0 of all others."""

    function: Callable[[Arrays, Arrays], Arrays]
    dims: tuple[int | None, ...]

    def __call__(self, fixed: Arrays, arguments: Arrays) -> Arrays:
        both = lambda own, rest: list(self.function(own, rest))  # noqa: E731
        return jax.vmap(both, in_axes=(list(self.dims), 0))(list(fixed), list(arguments))


def _run(*arrays: Any, linear: Linear, count: int) -> list[jax.Array]:
    return list(linear.forward(arrays[:count], arrays[count:]))


def _shapes(*avals: Any, linear: Linear, count: int) -> list[Any]:
    return [aval.update(weak_type=False) for aval in avals[count:]]


def _push(primals: Any, tangents: Any, *, linear: Linear, count: int) -> tuple[Any, Any]:
    # the tangents of integers have a dtype of their own and carry no information
    if any(type(tangent) is not ad.Zero and tangent.dtype != jax.dtypes.float0 for tangent in tangents[:count]):
        raise CannotDifferentiate(linear.text)
    fixed, results = primals[:count], _linear.bind(*primals, linear=linear, count=count)
    instantiated = [ad.instantiate_zeros(tangent) for tangent in tangents[count:]]
    return results, _linear.bind(*fixed, *instantiated, linear=linear, count=count)


def _pull(cotangents: Any, *arrays: Any, linear: Linear, count: int) -> list[Any]:
    instantiated = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    return [None] * count + list(linear.backward(arrays[:count], instantiated))


def _map(arrays: Any, dims: Any, *, linear: Linear, count: int) -> tuple[Any, Any]:
    arguments = mapped_first(arrays, dims)[count:]
    fixed_dims = tuple(dims[:count])
    mapped = Linear(_Mapped(linear.forward, fixed_dims), _Mapped(linear.backward, fixed_dims), linear.text)
    results = mapped(arrays[:count], arguments)
    return results, [0] * len(results)


_linear = Primitive("linear_by_hand")
_linear.multiple_results = True
_linear.def_impl(jax.jit(_run, static_argnames=("linear", "count")))
_linear.def_abstract_eval(_shapes)
ad.primitive_jvps[_linear] = _push
ad.primitive_transposes[_linear] = _pull
batching.primitive_batchers[_linear] = _map
mlir.register_lowering(_linear, mlir.lower_fun(_run, multiple_results=True))
dispatch.prim_requires_devices_during_lowering.add(_linear)
