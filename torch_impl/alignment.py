"""From a public function's arguments to a variant, in PyTorch: the choice of the variant, the checks, the call."""

from typing import Any

from shared import checks
from shared.variants import choose_variant, usable_variants
from torch_impl.arguments import prepare
from torch_impl.first_order import first_order
from torch_impl.recurrences import RECURRENCES, Tensor
from torch_impl.sweeps import SCANNING, SWEEPS
from torch_impl.transforms import under_derivative_transform, under_transform

# variant -> why it cannot run in this framework
ABSENT: dict[str, str] = {}
# the fastest rung that is right to second order
AUTO = "diagonal_loop"


def align(
    function_name: str,
    similarity: Any,
    lengths: Any,
    parameters: dict[str, Any],
    options: dict[str, Any],
    variant: str,
    unroll: int | None = None,
) -> Tensor:
    """Scores of shape () or (batch,) by the named variant.

    parameters are differentiable, options (such as `end`) are not. unroll is the benchmark's: diagonals per step of
    the compiler's loop, for the variants that have one.
    """
    chosen = choose_variant(function_name, variant, ABSENT, AUTO)
    arguments = prepare(similarity, lengths, parameters)
    s = arguments.similarity
    recurrence = RECURRENCES[function_name](**options)
    names = tuple(arguments.parameters)

    def sweep(matrix: Tensor, *values: Tensor) -> Tensor:
        steps = {"unroll": unroll} if unroll and chosen in SCANNING else {}
        return SWEEPS[chosen](recurrence, dict(zip(names, values, strict=True)), matrix, arguments.lengths, **steps)

    values = tuple(arguments.parameters.values())
    if s.ndim == 3 and not len(s):
        scores = s.sum(dim=(1, 2))
    elif chosen in SCANNING:
        alternatives = tuple(name for name in usable_variants(function_name, ABSENT) if name not in SCANNING)
        if under_derivative_transform():
            raise checks.CannotDifferentiate(checks.transform_text(chosen, "differentiated", alternatives))
        if chosen == "batch_loop" and under_transform():  # its compiled pair cannot be mapped
            raise checks.CannotDifferentiate(checks.transform_text(chosen, "mapped", alternatives))
        scores = first_order(sweep, checks.second_order_text(chosen, alternatives), s, *values)
    else:
        scores = sweep(s, *values)
    # a score that has no alignment stays connected to every argument, so that its gradients are zeros, not an error
    connected = 0.0 * (sum(values) + s[..., 0, 0])
    return (scores * arguments.valid + connected).to(arguments.result_dtype)
