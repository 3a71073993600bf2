"""Dispatch from a public function to a variant, in PyTorch: the choice of the variant, the checks, the call."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from shared import checks
from shared.alignments import names_by_position, recurrence_of
from shared.kernels import cpp
from shared.kernels import triton as triton_kernels
from shared.variants import choose_variant, usable_variants
from torch_impl import wavefront
from torch_impl.arguments import columns_and_gaps, from_numpy, prepare, see, without_nan
from torch_impl.derivatives import Engine, scores_of
from torch_impl.dtensors import is_dtensor, of_own_pairs
from torch_impl.first_order_guard import first_order
from torch_impl.kernels.fused import fused, is_on_gpu, why_not
from torch_impl.kernels.plain_calls import plain_call
from torch_impl.operator_calls import kernel_pass, score
from torch_impl.recurrences import Tensor
from torch_impl.sweeps import SCANNING, SWEEPS, sweep_of
from torch_impl.transforms import constant_while_compiling, differentiated, is_exporting, under_transform

# variant -> why it cannot run in this framework on a CPU, as far as is known without trying: see `absent_on`
ABSENT: dict[str, str] = {"cuda_graph": "it launches a CUDA graph, which needs a CUDA device"}
_no_kernels = cpp.why_absent()
if _no_kernels:
    ABSENT["fused"] = _no_kernels


def absent_on(device: str) -> dict[str, str]:
    """Return the variants that are absent on "cpu" or "cuda", with the reason; for a CPU, tries the compiler once."""
    if device != "cpu":
        reason = triton_kernels.why_absent()
        return {"fused": reason} if reason else {}
    reason = cpp.why_unusable()
    if reason:
        ABSENT["fused"] = reason
    return dict(ABSENT)


def absent_here() -> dict[str, str]:
    """The variants that run neither on the CPU nor on a GPU of this machine, with the reasons."""
    absent = absent_on("cpu")
    if not torch.cuda.is_available():
        return absent
    return {name: reason for name, reason in absent.items() if name in absent_on("cuda")}


# variant -> (function name, options, gaps by position) -> what computes scores, gradients and their tangents
ENGINES: dict[str, Callable[[str, dict[str, Any], Sequence[str]], Engine]] = {
    "wavefront": wavefront.engine,
    "cuda_graph": functools.partial(wavefront.engine, graph=True),
}
# the rungs that autograd differentiates by itself
TO_ANY_ORDER = tuple(name for name in SWEEPS if name not in SCANNING)


def align(
    function_name: str,
    similarity: Any,
    lengths: Any,
    parameters: dict[str, Any],
    options: dict[str, Any],
    variant: str,
) -> Tensor:
    """Scores of shape () or (batch,) by the named variant.

    parameters are differentiable, options (such as `end`) are not.
    """
    if _may_be_fused(variant):
        text = functools.partial(_third_order_text, function_name)
        result = plain_call(score, function_name, options, similarity, lengths, parameters, text)
        if result is not None:
            return result
    if is_dtensor(similarity):

        def own(similarity: Tensor, lengths: Any, **parameters: Any) -> Tensor:
            return align(function_name, similarity, lengths, parameters, options, variant)

        return of_own_pairs(own, similarity, lengths, **parameters)
    by_position = names_by_position(function_name, parameters)
    chosen = _chosen(score, function_name, options, similarity, parameters, by_position, variant)
    if chosen == "fused":
        return _fused(score, function_name, options, similarity, lengths, parameters)
    if chosen in ENGINES:
        text = _third_order_text(function_name, chosen)
        call = functools.partial(scores_of, ENGINES[chosen](function_name, options, by_position), text)
        return _by_engine(call, similarity, lengths, parameters)
    arguments = prepare(similarity, lengths, parameters)
    s = arguments.similarity
    recurrence = recurrence_of(function_name, options, by_position)
    run = sweep_of(function_name, chosen, by_position)
    names = tuple(arguments.parameters)

    def sweep(matrix: Tensor, *values: Tensor) -> Tensor:
        return run(recurrence, dict(zip(names, values, strict=True)), matrix, arguments.lengths)

    values = tuple(arguments.parameters.values())
    if s.ndim == 3 and not len(s):
        scores = s.sum(dim=(1, 2))
    elif chosen in SCANNING:
        alternatives = tuple(name for name in usable_variants(function_name, ABSENT) if name not in SCANNING)
        if done := differentiated(s, *values):
            raise checks.CannotDifferentiate(checks.transform_text(chosen, done, alternatives))
        if chosen == "batch_loop" and under_transform():  # its compiled pair cannot be mapped
            raise checks.CannotDifferentiate(checks.transform_text(chosen, "mapped by torch.func", alternatives))
        if chosen == "vmap" and is_exporting():  # torch.export cannot trace a vmap in a scan
            raise checks.CannotDifferentiate(checks.transform_text(chosen, "exported", alternatives))
        scores = first_order(sweep, checks.second_order_text(chosen, alternatives), s, *values)
    else:
        scores = sweep(s, *values)
    # a score that has no alignment stays connected to every argument, so that its gradients are zeros, not an error
    corners = (value[..., 0, 0] if name in by_position else value for name, value in zip(names, values, strict=True))
    connected = 0.0 * (sum(corners) + s[..., 0, 0])
    return (scores * arguments.valid * without_nan(arguments) + connected).to(arguments.result_dtype)


def call_operators(
    call: Callable[..., Tensor],
    function_name: str,
    similarity: Any,
    lengths: Any,
    parameters: dict[str, Any],
    options: dict[str, Any],
    variant: str,
) -> Tensor | None:
    """The result (*batch, rows, cols) of a call of `operator_calls`; None if the chosen variant has no operators."""
    if _may_be_fused(variant):
        text = functools.partial(_third_order_text, function_name)
        result = plain_call(call, function_name, options, similarity, lengths, parameters, text)
        if result is not None:
            return result
    by_position = names_by_position(function_name, parameters)
    chosen = _chosen(call, function_name, options, similarity, parameters, by_position, variant)
    if chosen == "fused":
        return _fused(call, function_name, options, similarity, lengths, parameters)
    if chosen in ENGINES and is_exporting():  # which cannot trace autograd
        more = recurrence_of(function_name, options, by_position).name, chosen == "cuda_graph", str
        return _by_engine(lambda *tensors: call(wavefront, *tensors, *more), similarity, lengths, parameters)
    return None


def _may_be_fused(variant: Any) -> bool:
    """Whether this is worth a try: "auto" is fused wherever that can run."""
    return isinstance(variant, str) and variant in ("auto", "fused") and "fused" not in ABSENT


def _chosen(
    call: Callable[..., Tensor],
    function_name: str,
    options: dict[str, Any],
    similarity: Any,
    parameters: dict[str, Any],
    by_position: tuple[str, ...],
    variant: str,
) -> str:
    """The variant to run. Raises ValueError if it is absent or unknown."""

    def why_not_fused() -> str | None:
        kind = cpp.call_of(function_name, options).kind
        pass_name = kernel_pass(call, similarity, parameters.values())
        reason = why_not(similarity, kind, pass_name, bool(by_position))
        if reason and not is_on_gpu(similarity) and cpp.why_absent():  # the reason concerns every call
            ABSENT["fused"] = reason
        return reason

    # `why_not` reports what a GPU lacks for fused
    absent = {} if is_on_gpu(similarity) else ABSENT
    return choose_variant(
        function_name,
        variant,
        absent,
        lambda name: why_not_fused() if name == "fused" else None,
        lambda reason: _warn(reason, similarity),
    )


def _warn(reason: str, similarity: Any) -> None:
    # elsewhere nothing that the user could install would help
    if not isinstance(similarity, Tensor) or similarity.device.type in ("cpu", "cuda"):
        _warn_at_once(reason)


@constant_while_compiling  # not traced: the compiler warns while it traces
def _warn_at_once(reason: str) -> None:
    cpp.warn(reason)


def _by_engine(
    call: Callable[[Tensor, Tensor, Tensor, list[Tensor]], Tensor],
    similarity: Any,
    lengths: Any,
    parameters: dict[str, Any],
) -> Tensor:
    """Call an engine, which masks what lies outside lengths by itself, with similarity, lengths, values and gaps by
    position."""
    arguments = prepare(similarity, lengths, parameters, mask=False)
    s, sizes = arguments.similarity, arguments.lengths
    values, gaps = columns_and_gaps(arguments.parameters, s.shape[:-2])
    single = s.ndim == 2
    if single:
        s, sizes, values, gaps = s[None], sizes[None], values[None], [gap[None] for gap in gaps]
    # before the batch axis is removed: torch.func.vmap over an empty axis cannot multiply 0-dimensional tensors
    results = call(s, sizes, values, gaps)
    valid = arguments.valid.view(-1, *(1 for _ in results.shape[1:]))
    results = (results * valid).to(arguments.result_dtype)
    return results[0] if single else results


def _fused(
    call: Callable[..., Tensor],
    function_name: str,
    options: dict[str, Any],
    similarity: Any,
    lengths: Any,
    parameters: Any,
) -> Tensor:
    """A call of `operator_calls` with the fused kernels, which mask what lies outside lengths by themselves."""
    checks.check_alignment(see, similarity, lengths, parameters)
    s = similarity if isinstance(similarity, torch.Tensor) else from_numpy(similarity)
    result_dtype = s.dtype
    if result_dtype not in (torch.float32, torch.float64):
        s = s.float()
    text = functools.partial(_third_order_text, function_name)
    result = fused(function_name, options, s, lengths, parameters, text, call)
    return result if result.dtype == result_dtype else result.to(result_dtype)


def _third_order_text(function_name: str, variant: str = "fused") -> str:
    alternatives = tuple(name for name in usable_variants(function_name, ABSENT) if name in TO_ANY_ORDER)
    return checks.third_order_text(variant, alternatives) + checks.HVP_TEXT
