"""The variant `fused` in JAX: scores by one native call, and their derivatives, to second order.

With S(x) a pair's score, x its similarity and its parameters, and t a direction, the native calls give S, dS/dx and
H t, where H is the symmetric matrix of second derivatives. Two rules make of them what every transform needs:

    S      has the tangent <dS/dx, t>, and S and dS/dx come from the same call
    dS/dx  has the tangent H t, which is its own transposition
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.custom_derivatives import SymbolicZero

from jax_impl.kernels import calls
from jax_impl.kernels.calls import Array, Arrays
from jax_impl.kernels.linear import Linear
from shared import native
from shared.variants import CPU_ONLY


def why_not(similarity: Any, warn: bool) -> str | None:
    """Why these kernels cannot take this similarity; None if they can. Compiles them if that has not been done.

    warn: if that fails, not only return the reason but say it, once.
    """
    traced = not isinstance(similarity, jax.Array) or isinstance(similarity, Tracer)
    default = getattr(jax.config, "jax_default_device", None) or jax.default_backend()
    platforms = {getattr(default, "platform", default)} if traced else {d.platform for d in similarity.devices()}
    if platforms != {"cpu"}:
        return CPU_ONLY
    dtype = str(getattr(similarity, "dtype", ""))
    if dtype == "float64" and not isinstance(similarity, jax.Array):
        dtype = str(jnp.result_type(similarity))
    if dtype not in ("float16", "bfloat16", "float32", "float64"):
        return None  # the checks refuse it with a better reason
    try:
        calls.register(dtype if dtype == "float64" else "float32")
    except native.Absent as reason:
        if warn:
            native.warn(str(reason))
        return str(reason)
    return None


def fused(
    function_name: str, options: dict[str, Any], similarity: Array, lengths: Any, parameters: dict[str, Any], text: str
) -> Array:
    """Scores () or (batch,) of checked arguments; what lies outside lengths may be anything.

    A third derivative raises CannotDifferentiate(text). Raises native.Absent if there are no native kernels.
    """
    calls.register(str(similarity.dtype))  # not while XLA compiles: an error there would not be ours
    call = native.call_of(function_name, options)
    sizes = np.array(similarity.shape[-2:], np.int32) if lengths is None else lengths
    return _scores(call, text, similarity, sizes, tuple(parameters.values()))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _scores(call: native.Call, text: str, similarity: Array, lengths: Any, parameters: tuple[Any, ...]) -> Array:
    batch = similarity.shape[:-2]
    sizes = jnp.asarray(lengths)
    # the kernels clamp to the matrix, but what they get must not have wrapped around before
    if sizes.dtype in (jnp.uint32, jnp.int64, jnp.uint64):
        sizes = jnp.clip(sizes, 0, np.iinfo(np.int32).max)
    sizes = jnp.broadcast_to(sizes.astype(jnp.int32), (*batch, 2))
    values = tuple(jnp.broadcast_to(jnp.asarray(value).astype(similarity.dtype), batch) for value in parameters)
    return _score(call, text, similarity, sizes, values)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _score(call: native.Call, text: str, similarity: Array, lengths: Array, parameters: Arrays) -> Array:
    return calls.score(call, similarity, lengths, parameters)


@functools.partial(_score.defjvp, symbolic_zeros=True)
def _score_tangent(call: native.Call, text: str, primals: Any, tangents: Any) -> tuple[Array, Array]:
    t_similarity, _, t_parameters = tangents
    d_temperature = not _is_zero(t_parameters[-1])
    scores, d_similarity, d_parameters = _gradients(call, text, d_temperature, *primals)
    return scores, _slope(primals[1], d_similarity, d_parameters, t_similarity, t_parameters)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _gradients(
    call: native.Call, text: str, d_temperature: bool, similarity: Array, lengths: Array, parameters: Arrays
) -> tuple[Array, Array, Arrays]:
    return calls.gradients(call, d_temperature, similarity, lengths, parameters)


@functools.partial(_gradients.defjvp, symbolic_zeros=True)
def _gradients_tangent(call: native.Call, text: str, d_temperature: bool, primals: Any, tangents: Any) -> Any:
    similarity, lengths, parameters = primals
    t_similarity, _, t_parameters = tangents
    d_temperature = d_temperature or not _is_zero(t_parameters[-1])
    results = _gradients(call, text, d_temperature, similarity, lengths, parameters)
    given = [_instantiated(tangent) for tangent in (t_similarity, *t_parameters)]
    t_d_similarity, *rest = _product(call, text, (similarity, lengths, *parameters), given)
    slope = _slope(lengths, results[1], results[2], t_similarity, t_parameters)
    return results, (slope, t_d_similarity, tuple(rest))


def _product(call: native.Call, text: str, at: Sequence[Array], direction: Sequence[Array]) -> list[Array]:
    """H t, the second derivatives times a direction: H is symmetric, so this is its own transposition."""
    forward, backward = functools.partial(_tangents, call), functools.partial(_product, call, text)
    return Linear(forward, backward, text)(at, direction)


def _tangents(call: native.Call, at: Sequence[Array], direction: Sequence[Array]) -> list[Array]:
    similarity, lengths, *parameters = at
    t_similarity, *t_parameters = direction
    _, product, rest = calls.tangents(call, similarity, lengths, tuple(parameters), t_similarity, tuple(t_parameters))
    return [product, *rest]


def _slope(lengths: Array, d_similarity: Array, d_parameters: Arrays, t_similarity: Any, t_parameters: Any) -> Array:
    """The scores' tangent, by their derivatives."""
    terms = [d * t for d, t in zip(d_parameters, t_parameters, strict=True) if not _is_zero(t)]
    if not _is_zero(t_similarity):
        # the derivatives are 0 outside of lengths, but a tangent may be anything there
        (inside,) = Linear(_inside, _unchanged, "")((lengths,), (t_similarity,))
        terms.append((d_similarity * inside).sum(axis=(-2, -1)))
    return functools.reduce(operator.add, terms)


def _inside(fixed: Sequence[Array], arguments: Sequence[Array]) -> list[Array]:
    (lengths,), (matrix,) = fixed, arguments
    rows, cols = matrix.shape[-2:]
    sizes = lengths[..., None, None, :]
    return [jnp.where((jnp.arange(rows)[:, None] < sizes[..., 0]) & (jnp.arange(cols) < sizes[..., 1]), matrix, 0)]


def _unchanged(_: Sequence[Array], cotangents: Sequence[Array]) -> list[Array]:
    """The transposition of _inside, for cotangents that are 0 outside, as those here are: no pass over the matrix."""
    return list(cotangents)


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, SymbolicZero)


def _instantiated(tangent: Any) -> Array:
    return jnp.zeros(tangent.shape, tangent.dtype) if _is_zero(tangent) else tangent
