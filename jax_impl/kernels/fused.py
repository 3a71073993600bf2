"""The variant `fused` in JAX: scores by one native call, and their derivatives, to second order, by one call each."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jax_impl.derivatives import scores_of
from jax_impl.kernels import calls
from jax_impl.kernels.calls import Array, Arrays
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
    return scores_of(_Kernels(call), text, similarity, sizes, values)


@dataclass(frozen=True)
class _Kernels:
    """The engine."""

    call: native.Call

    def score(self, similarity: Array, lengths: Array, parameters: Arrays) -> Array:
        return calls.score(self.call, similarity, lengths, parameters)

    def gradients(
        self, wanted: tuple[bool, ...], similarity: Array, lengths: Array, parameters: Arrays
    ) -> tuple[Array, Array, Arrays]:
        return calls.gradients(self.call, wanted[-1], similarity, lengths, parameters)

    def tangents(
        self, similarity: Array, lengths: Array, parameters: Arrays, t_similarity: Array, t_parameters: Arrays
    ) -> tuple[Array, Arrays]:
        _, product, rest = calls.tangents(self.call, similarity, lengths, parameters, t_similarity, t_parameters)
        return product, rest
