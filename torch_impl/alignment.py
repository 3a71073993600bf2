"""Dispatch from a public function to a variant, in PyTorch: the choice of the variant, the checks, the call."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from shared import checks
from shared.alignments import ALIGNMENTS, Recurrence, each_axis, recurrence_of
from shared.kernels import cpp
from shared.kernels import triton as triton_kernels
from shared.variants import choose_variant, usable_variants
from torch_impl import wavefront
from torch_impl.arguments import Arguments, nan_factor, prepare, values_and_gaps
from torch_impl.derivatives import Engine, kernel_pass, marginals, score, transformed_score
from torch_impl.dtensors import is_dtensor, on_local_pairs
from torch_impl.first_order_guard import first_order
from torch_impl.kernels.fused import fused, is_on_gpu, is_plain_call, plain_call, why_not
from torch_impl.recurrences import Tensor
from torch_impl.sweeps import SCANNING, SWEEPS, sweep_of
from torch_impl.transforms import (
    compiled_or_in_torch_func,
    constant_while_compiling,
    differentiated,
    in_torch_func,
    is_exporting,
    under_forward_mode,
)

# variant -> why it cannot run in this framework on a CPU, as far as is known so far: see `absent_on`
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
    is_plain = is_plain_call(similarity)
    if not is_plain and is_dtensor(similarity):

        def on_this_process(similarity: Tensor, lengths: Any, **parameters: Any) -> Tensor:
            return align(function_name, similarity, lengths, parameters, options, variant)

        return on_local_pairs(on_this_process, similarity, lengths, **parameters)
    return run_pass(score, is_plain, function_name, similarity, lengths, parameters, options, variant)


def run_pass(
    pass_function: Callable[..., Any],
    is_plain: bool,
    function_name: str,
    similarity: Any,
    lengths: Any,
    parameters: dict[str, Any],
    options: dict[str, Any],
    variant: str,
) -> Any:
    """The result (*batch, ...) of a pass function, as in `derivatives`.

    None where the caller has to differentiate scores instead: only `fused` runs every pass directly, `wavefront` and
    `cuda_graph` run passes other than the score only under torch.export. Raises ValueError for a variant that is absent
    or unknown. is_plain: the result of `is_plain_call`.
    """
    # "auto" is fused wherever that can run
    if is_plain and isinstance(variant, str) and variant in ("auto", "fused") and "fused" not in ABSENT:
        result = plain_call(pass_function, function_name, options, similarity, lengths, parameters)
        if result is not None:
            return result
    parameters, gaps = each_axis(function_name, parameters, options)
    call = cpp.call_of(function_name, options, gaps)

    def why_not_fused() -> str | None:
        reason = why_not(similarity, call, kernel_pass(pass_function, similarity, parameters.values()))
        if reason and not is_on_gpu(similarity) and cpp.why_absent():  # so later calls need not try either
            ABSENT["fused"] = reason
        return reason

    # `why_not` reports what a GPU lacks for fused
    absent = {} if is_on_gpu(similarity) else ABSENT
    chosen = choose_variant(
        function_name,
        variant,
        absent,
        lambda name: why_not_fused() if name == "fused" else None,
        lambda reason: _warn(reason, similarity),
    )
    is_score = pass_function is score
    if is_score and (compiled_or_in_torch_func() or under_forward_mode()):
        pass_function = transformed_score
    if chosen == "fused":
        return fused(pass_function, call, similarity, lengths, parameters, ALIGNMENTS[function_name].matrix)
    recurrence = recurrence_of(function_name, options, gaps)
    is_cost = recurrence.is_cost
    if chosen not in SWEEPS and (is_score or is_exporting()):  # torch.export cannot trace autograd
        engine = Engine(chosen, wavefront, (recurrence.name, chosen == "cuda_graph"))
        arguments = prepare(similarity, lengths, parameters, recurrence, mask=False)
        results = _by_wavefront(functools.partial(pass_function, engine), arguments)
        # the first derivative for the costs is that for similarities: both signs cancel
        return 0.0 - results if is_cost and pass_function is not marginals else results
    if is_score:
        arguments = prepare(similarity, lengths, parameters, recurrence)
        scores = _by_sweep(function_name, chosen, recurrence, arguments)
        return 0.0 - scores if is_cost else scores
    return None


def _by_sweep(function_name: str, chosen: str, recurrence: Recurrence, arguments: Arguments) -> Tensor:
    """Scores (*batch) by a sweep."""
    s, names, run = arguments.similarity, tuple(arguments.parameters), sweep_of(function_name, chosen, recurrence)

    def sweep(matrix: Tensor, *values: Tensor) -> Tensor:
        return run(recurrence, dict(zip(names, values, strict=True)), matrix, arguments.lengths)

    values = tuple(arguments.parameters.values())
    if s.ndim == 3 and not len(s):
        scores = s.sum(dim=(1, 2))
    elif chosen in SCANNING:
        alternatives = tuple(name for name in usable_variants(function_name, ABSENT) if name not in SCANNING)
        if done := differentiated(s, *values):
            raise checks.CannotDifferentiate(checks.transform_text(chosen, done, alternatives))
        if chosen == "batch_loop" and in_torch_func():  # torch.func cannot map its compiled function
            raise checks.CannotDifferentiate(checks.transform_text(chosen, "mapped by torch.func", alternatives))
        if chosen == "vmap" and is_exporting():  # torch.export cannot trace a vmap in a scan
            raise checks.CannotDifferentiate(checks.transform_text(chosen, "exported", alternatives))
        scores = first_order(sweep, checks.second_order_text(chosen, alternatives), s, *values)
    else:
        scores = sweep(s, *values)
    # a score without an alignment still depends on all arguments, so that its gradients are zeros, not an error
    corners = (value[..., 0, 0] if value.ndim > arguments.temperature_factor.ndim else value for value in values)
    connected = 0.0 * (sum(corners) + s[..., 0, 0])
    return (scores * arguments.temperature_factor * nan_factor(arguments) + connected).to(arguments.result_dtype)


def _warn(reason: str, similarity: Any) -> None:
    # for a tensor on any other device, nothing that the user could install would help
    if not isinstance(similarity, Tensor) or similarity.device.type in ("cpu", "cuda"):
        _warn_at_once(reason)


@constant_while_compiling  # not traced: the warning comes while the compiler traces
def _warn_at_once(reason: str) -> None:
    cpp.warn(reason)


def _by_wavefront(call: Callable[..., Tensor], arguments: Arguments) -> Tensor:
    """The result (*batch, ...) of a pass by the wavefront, which itself masks what lies outside lengths."""
    s, lengths = arguments.similarity, arguments.lengths
    values, gaps = values_and_gaps(arguments.parameters, s.shape[:-2])
    single = s.ndim == 2
    if single:
        s, lengths, values, gaps = s[None], lengths[None], values[None], [gap[None] for gap in gaps]
    results = call(s, lengths, values, gaps)
    factor = arguments.temperature_factor.view(-1, *(1 for _ in results.shape[1:]))
    # before the batch axis is removed: torch.func.vmap over an empty axis cannot multiply 0-dimensional tensors
    results = (results * factor).to(arguments.result_dtype)
    return results[0] if single else results
