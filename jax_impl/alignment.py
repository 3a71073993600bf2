"""Dispatch from a public function to a variant, in JAX: the choice of the variant, the checks, the call."""

from typing import Any

import jax.numpy as jnp

from jax_impl.arguments import nan_factor, prepare, see, widened
from jax_impl.kernels import cpp_binding
from jax_impl.kernels.fused import fused, platform_of, why_not
from jax_impl.recurrences import Array
from jax_impl.sweeps import SWEEPS, sweep_of
from jax_impl.wavefront import wavefront
from shared import checks
from shared.alignments import ALIGNMENTS, each_axis, recurrence_of
from shared.kernels import cpp
from shared.kernels import triton as triton_kernels
from shared.variants import choose_variant, usable_variants

# variant -> why it cannot run in this framework on a CPU, as far as is known without trying: see `absent_on`
ABSENT: dict[str, str] = {
    "cuda_graph": "JAX captures no graph by hand; XLA makes them of compiled loops by itself where "
    "XLA_FLAGS=--xla_gpu_enable_command_buffer=+WHILE asks for it"
}
_no_kernels = cpp.why_absent()
if _no_kernels:
    ABSENT["fused"] = _no_kernels


def absent_on(device: str) -> dict[str, str]:
    """Return the variants that are absent on "cpu" or "cuda", with the reason. Tries the C++ compiler, once."""
    reason = cpp.why_unusable()
    if reason:
        ABSENT["fused"] = reason
    absent = dict(ABSENT)
    if device != "cpu":
        reason = triton_kernels.why_absent()
        absent |= {"fused": reason} if reason else {}
    return absent


def align(
    function_name: str,
    similarity: Any,
    lengths: Any,
    parameters: dict[str, Any],
    options: dict[str, Any],
    variant: str,
) -> Array:
    """Scores of shape () or (batch,) by the named variant.

    parameters are differentiable, options (such as `end`) are not.
    """
    platform = platform_of(similarity)
    parameters, gaps = each_axis(function_name, parameters, options)
    chosen = choose_variant(
        function_name,
        variant,
        ABSENT,
        lambda name: _why_not(name, similarity, platform),
        lambda reason: _warn(reason, platform),
    )
    if chosen == "fused":
        checks.check_alignment(see, similarity, lengths, parameters, ALIGNMENTS[function_name].matrix)
        text = _third_order_text(function_name, chosen)
        return _fused(cpp.call_of(function_name, options, gaps), similarity, lengths, parameters, text, platform)
    recurrence = recurrence_of(function_name, options, gaps)
    arguments = prepare(similarity, lengths, parameters, recurrence)
    s = arguments.similarity
    if s.ndim == 3 and not len(s):
        return s.sum(axis=(1, 2)).astype(arguments.result_dtype)
    prepared = recurrence, arguments.parameters, s, arguments.lengths
    if chosen == "wavefront":
        scores = wavefront(*prepared, text=_third_order_text(function_name, chosen), platform=platform)
    else:
        scores = sweep_of(function_name, chosen, recurrence)(*prepared)
    if chosen != "wavefront" or recurrence.by_position:  # it misses NaN only in gaps that no step takes
        scores *= nan_factor(arguments)
    return ((0.0 - scores if recurrence.is_cost else scores) * arguments.temperature_factor).astype(
        arguments.result_dtype
    )


def _warn(reason: str, platform: str) -> None:
    if platform in ("cpu", "cuda"):  # elsewhere nothing that the user could install would help
        cpp.warn(reason)


def _why_not(name: str, similarity: Any, platform: str) -> str | None:
    """Why a variant that is not absent cannot take this similarity; None if it can."""
    if name != "fused":
        return None
    reason = why_not(similarity, platform)
    if reason and platform == "cpu" and not cpp_binding.loaded():  # the reason concerns every call
        ABSENT[name] = reason
    return reason


def _fused(call: cpp.Call, similarity: Any, lengths: Any, parameters: Any, text: str, platform: str) -> Array:
    """The fused kernels on checked arguments: they mask what lies outside lengths, and clamp, by themselves."""
    checks.check_fixed_shape(similarity.shape)
    s = jnp.asarray(similarity)
    return fused(call, widened(s), lengths, parameters, text, platform).astype(s.dtype)


def _third_order_text(function_name: str, variant: str) -> str:
    """The error for a third derivative. The variants that have one are those that JAX differentiates by itself."""
    alternatives = tuple(name for name in usable_variants(function_name, ABSENT) if name in SWEEPS)
    return checks.third_order_text(variant, alternatives)
