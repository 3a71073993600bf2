"""The variant `fused` in JAX: scores, gradients and Hessian products by one kernel call each."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jax_impl.arguments import computed_dtype
from jax_impl.derivatives import scores_of
from jax_impl.kernels import cpp_binding, triton_binding
from jax_impl.kernels.cpp_binding import Array, Arrays
from jax_impl.pairs import of_one_type
from shared.kernels import cpp
from shared.kernels import triton as triton_kernels


def why_not(similarity: Any, platform: str) -> str | None:
    """Why these kernels cannot take this similarity, given where it is; None if they can. Compiles C++ if need be."""
    if platform not in ("cpu", "cuda"):
        return "it runs on CPUs and CUDA devices only"
    reason = triton_kernels.why_absent() if platform == "cuda" else None
    if reason:
        return reason
    dtype = str(getattr(similarity, "dtype", ""))
    if dtype not in ("float16", "bfloat16", "float32", "float64"):
        return None  # the checks refuse it with a better reason
    try:
        _register(platform, computed_dtype(dtype))
    except cpp.Absent as reason:
        return str(reason)
    return None


def platform_of(similarity: Any) -> str:
    """The platform that it is on, or if traced will probably run on: "cpu", "cuda", or another name."""
    if isinstance(similarity, jax.Array) and not isinstance(similarity, Tracer):
        device = min(similarity.devices(), key=lambda device: device.id)
    else:
        device = getattr(jax.config, "jax_default_device", None) or jax.default_backend()
        if device == "cpu":
            return device
        device = jax.local_devices(backend=device)[0] if isinstance(device, str) else device
    if device.platform not in ("gpu", "cuda"):
        return device.platform
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"


def _register(platform: str, dtype: str) -> None:
    if platform == "cuda":
        triton_binding.register()
    else:
        cpp_binding.register(dtype)


def fused(
    call: cpp.Call, similarity: Array, lengths: Any, parameters: dict[str, Any], text: str, platform: str
) -> Array:
    """Scores () or (batch,) of checked arguments; what lies outside lengths may be anything.

    A third derivative raises CannotDifferentiate(text). Raises cpp.Absent if there are no native kernels.
    """
    _register(platform, str(similarity.dtype))  # before XLA compiles, where an error could not be raised as ours
    sizes = np.array(similarity.shape[-2:], np.int32) if lengths is None else lengths
    return _scores(_Kernels(call, platform), text, similarity, sizes, floating(parameters.values()))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _scores(kernels: "_Kernels", text: str, similarity: Array, lengths: Any, parameters: tuple[Any, ...]) -> Array:
    sizes, values = converted(similarity, lengths, parameters)
    similarity, sizes, *typed_values = of_one_type(similarity, sizes, *values)
    return scores_of(kernels, text, similarity, sizes, tuple(typed_values))


def floating(parameters: Iterable[Any]) -> tuple[Any, ...]:
    """Checked parameters, the host's whole numbers as floats: JAX would wrap them around, or refuse them, beyond 32
    bits."""
    return tuple(np.float64(value) if _is_whole(value) else value for value in parameters)


def _is_whole(value: Any) -> bool:
    return not isinstance(value, (float, jax.Array)) and np.asarray(value).dtype.kind in "iuO"


def converted(similarity: Array, lengths: Any, parameters: tuple[Any, ...]) -> tuple[Array, Arrays]:
    """Checked lengths and parameters as the kernels take them."""
    batch = similarity.shape[:-2]
    sizes = jnp.asarray(lengths)
    # the kernels clamp to the matrix, but the conversion must not wrap around
    if sizes.dtype in (jnp.uint32, jnp.int64, jnp.uint64):
        sizes = jnp.clip(sizes, 0, np.iinfo(np.int32).max)
    sizes = jnp.broadcast_to(sizes.astype(jnp.int32), (*batch, 2))
    values = tuple(
        jnp.broadcast_to(jnp.asarray(value).astype(similarity.dtype), similarity.shape if np.ndim(value) > 1 else batch)
        for value in parameters
    )
    return sizes, values


@dataclass(frozen=True)
class _Kernels:
    """The engine of these kernels, for jax_impl.derivatives."""

    call: cpp.Call
    platform: str

    @property
    def _own(self) -> Any:
        return triton_binding if self.platform == "cuda" else cpp_binding

    def score(self, similarity: Array, lengths: Array, parameters: Arrays) -> Array:
        return self._own.score(self.call, similarity, lengths, parameters)

    def gradients(
        self, needed: tuple[bool, ...], similarity: Array, lengths: Array, parameters: Arrays
    ) -> tuple[Array, Array, Arrays]:
        return self._own.gradients(self.call, any(needed), similarity, lengths, parameters)

    def tangents(
        self, similarity: Array, lengths: Array, parameters: Arrays, t_similarity: Array, t_parameters: Arrays
    ) -> tuple[Array, Arrays]:
        _, product, rest = self._own.tangents(self.call, similarity, lengths, parameters, t_similarity, t_parameters)
        return product, rest

    def product(self, similarity: Array, lengths: Array, parameters: Arrays, t_similarity: Array) -> Array:
        return self._own.product(self.call, similarity, lengths, parameters, t_similarity)
