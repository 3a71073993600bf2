"""The transforms that are tried on the alignments: how each is written in JAX and in PyTorch, and what it gives.

`jax_impl.transformed` and `torch_impl.transformed` apply them, each to a public function f of its package and to the
arrays of a `Given`; `wanted` is what the NumPy reference says of the same arrays.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from shared import reference
from shared.tolerances import TOLERANCES

# what a transform may give, of the weighted sum of the scores, sum(cotangent * scores), if not said otherwise
SCORES, SLOPES = "scores", "slopes"  # each (batch,): the scores; their derivatives along the direction
MARGINALS, GRADIENT = "marginals", "gradient"  # each of similarity's shape, the first without the cotangent
PRODUCT, THIRD = "product", "third"  # the second derivative along the direction, and the third along it twice
ROUNDED = "rounded"  # the scores in bfloat16

# Relative errors that are allowed beside those of shared.tolerances: the reference takes differences of differences;
# bfloat16 has 8 bits.
_THIRD, _ROUNDED = 1e-3, 2.0**-7
_STEP = 1e-3  # of those differences, in units of the temperature


class Given(NamedTuple):
    """A batch, as arrays of NumPy or of a framework."""

    similarity: Any  # (batch, rows, cols)
    lengths: Any  # (batch, 2)
    parameters: dict[str, Any]  # each (batch,)
    cotangent: Any  # (batch,), of the scores
    direction: Any  # of similarity's shape


def on_device(given: Given, place: Callable[[np.ndarray], Any]) -> Given:
    """Convert a batch to arrays of a framework."""
    parameters = {name: place(value) for name, value in given.parameters.items()}
    similarity, lengths, _, cotangent, direction = given
    return Given(place(similarity), place(lengths), parameters, place(cotangent), place(direction))


class Transform(NamedTuple):
    """A transform's code in each framework; None where it does not exist, or is that of another row."""

    gives: str
    jax: str | None
    torch: str | None


TRANSFORMS = {
    "gradient": Transform(GRADIENT, "grad", "autograd"),
    "functional gradient": Transform(GRADIENT, None, "func.grad"),
    "vmap": Transform(SCORES, "vmap", "func.vmap"),
    "vmap of gradient": Transform(GRADIENT, "vmap of grad", "func.vmap of func.grad"),
    "second derivative": Transform(PRODUCT, "grad of grad", "autograd twice, create_graph"),
    "functional second derivative": Transform(PRODUCT, None, "func.grad of func.grad"),
    "third derivative": Transform(THIRD, "grad of grad of grad", "autograd three times, create_graph"),
    "forward mode": Transform(SLOPES, "jvp", "func.jvp"),
    "forward over reverse": Transform(PRODUCT, "jvp of grad", "func.jvp of func.grad"),
    "linearize": Transform(SLOPES, "linearize", "func.linearize"),
    "jacfwd": Transform(GRADIENT, "jacfwd", "func.jacfwd"),
    "jacrev": Transform(GRADIENT, "jacrev", "func.jacrev"),
    "gradients batched by the older vmap": Transform(GRADIENT, None, "autograd, is_grads_batched"),
    "Hessian": Transform(PRODUCT, "hessian", "func.hessian"),
    "Hessian by reverse mode": Transform(PRODUCT, "jacrev of jacrev", "func.jacrev of func.jacrev"),
    "Hessian by the older vmap": Transform(PRODUCT, None, "autograd.functional.hessian, vectorize"),
    "checkpoint": Transform(GRADIENT, "grad of checkpoint", "autograd of utils.checkpoint"),
    "map": Transform(SCORES, "lax.map", None),
    "bfloat16": Transform(ROUNDED, "bfloat16 similarity", "bfloat16 similarity"),
    "autocast": Transform(ROUNDED, None, "bfloat16 similarity in autocast"),
    "shard_map": Transform(SCORES, "shard_map", None),
    "shard_map of gradient": Transform(GRADIENT, "shard_map of grad", None),
    "export": Transform(SCORES, "export", "export"),
    "export of marginals": Transform(MARGINALS, "export of marginals", "export of marginals"),
    "compiled": Transform(SCORES, "jit", "compiler.compiled"),
    "gradient of compiled": Transform(GRADIENT, "grad of jit", "autograd of compiler.compiled"),
    "compiled alone": Transform(SCORES, None, "compile, fullgraph"),
    "compiled marginals": Transform(MARGINALS, "jit of marginals", "compile of marginals, fullgraph"),
}


def wanted(problem: str, given: Given, **options: Any) -> dict[str, np.ndarray]:
    """The reference's float64 results, by the kind of result that a transform gives. given: NumPy arrays."""
    similarity, lengths, parameters, cotangent, direction = given
    arguments = {**parameters, **options}
    scores = getattr(reference, problem)(similarity, lengths, **arguments)
    marginals = reference.gradients(problem, similarity, lengths, **arguments)["similarity"]
    weight = cotangent[:, None, None]

    def product(matrix: np.ndarray) -> np.ndarray:
        products = reference.hessian_vector_product(problem, matrix, direction, lengths, **arguments)
        return weight * products["similarity"]

    step = _STEP * np.asarray(parameters["temperature"], np.float64)[:, None, None]
    moved = [product(similarity + sign * step * direction) for sign in (1, -1)]
    return {
        SCORES: scores,
        SLOPES: (marginals * direction).sum(axis=(1, 2)),
        MARGINALS: marginals,
        GRADIENT: weight * marginals,
        PRODUCT: product(similarity),
        THIRD: (moved[0] - moved[1]) / (2 * step),
        ROUNDED: scores,
    }


def fault(gives: str, got: np.ndarray, right: np.ndarray) -> str | None:
    """Describe what is wrong with a result; None if it is right. right: from `wanted`."""
    if got.shape != right.shape:
        return f"shape {got.shape}, expected {right.shape}"
    if not np.isfinite(got).all():
        return "values that are not finite"
    tolerance = TOLERANCES["float64" if got.dtype == np.float64 else "float32"]
    relative = {SCORES: tolerance.score, PRODUCT: tolerance.hvp, THIRD: _THIRD, ROUNDED: _ROUNDED}
    allowed = relative.get(gives, tolerance.marginals) * max(1.0, float(np.abs(right).max(initial=0.0)))
    error = float(np.abs(got.astype(np.float64) - right).max(initial=0.0))
    return f"off by {error:.1e}, allowed {allowed:.1e}" if error > allowed else None
