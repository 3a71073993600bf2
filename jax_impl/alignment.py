"""From a public function's arguments to a variant, in JAX: the choice of the variant, the checks, the call."""

from typing import Any

from jax_impl.arguments import prepare
from jax_impl.recurrences import RECURRENCES, Array
from jax_impl.sweeps import SCANNING, SWEEPS
from shared.variants import choose_variant

# variant -> why it cannot run in this framework
ABSENT: dict[str, str] = {}
# the fastest rung so far, for a single pair and for a batch, on every device; right to every order
AUTO = "vmap"


def align(
    function_name: str,
    similarity: Any,
    lengths: Any,
    parameters: dict[str, Any],
    options: dict[str, Any],
    variant: str,
    unroll: int | None = None,
) -> Array:
    """Scores of shape () or (batch,) by the named variant.

    parameters are differentiable, options (such as `end`) are not. unroll is the benchmark's: diagonals per step of
    the compiler's loop, for the variants that have one.
    """
    chosen = choose_variant(function_name, variant, ABSENT, AUTO)
    arguments = prepare(similarity, lengths, parameters)
    s = arguments.similarity
    if s.ndim == 3 and not len(s):
        return s.sum(axis=(1, 2)).astype(arguments.result_dtype)
    steps = {"unroll": unroll} if unroll and chosen in SCANNING else {}
    recurrence = RECURRENCES[function_name](**options)
    scores = SWEEPS[chosen](recurrence, arguments.parameters, s, arguments.lengths, **steps)
    return (scores * arguments.valid).astype(arguments.result_dtype)
