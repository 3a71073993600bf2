"""The NumPy reference: slow, obvious, float64, and sharing no code with what it checks.

    smith_waterman(similarity, lengths=None, *, gap=-1.0, temperature=1.0, end="any") -> scores
    gradients("smith_waterman", similarity, lengths, **parameters)                    -> exact derivatives

Shapes are those of `jax_impl` and `torch_impl`: similarity (rows, cols) or (batch, rows, cols), lengths (2,) or
(batch, 2) or None, parameters numbers or arrays of shape () or (batch,). Results are float64.
"""

from typing import Any

import numpy as np

from shared.reference import local_linear

# function name -> its module (score and gradients of one full pair) and its differentiable parameters
_PROBLEMS = {
    "smith_waterman": (local_linear, ("gap", "temperature")),
}


def smith_waterman(
    similarity: Any, lengths: Any = None, *, gap: Any = -1.0, temperature: Any = 1.0, end: str = "any"
) -> np.ndarray:
    """Smooth local alignment score with a linear gap; shape () or (batch,), float64."""
    return _scores("smith_waterman", similarity, lengths, gap=gap, temperature=temperature, end=end)


def gradients(function_name: str, similarity: Any, lengths: Any = None, **parameters: Any) -> dict[str, np.ndarray]:
    """Exact derivatives of each pair's score, by a backward recurrence of its own.

    Returns a dict: "similarity" has the shape of similarity (these are the marginals, exactly 0 outside lengths);
    each differentiable parameter has shape () or (batch,), the derivative of each pair's score for that pair's value.
    """
    module, differentiable = _PROBLEMS[function_name]
    pairs, batched = _pairs(similarity, lengths, parameters)
    shape = np.shape(similarity)[-2:]
    results = []
    for pair, pair_parameters in pairs:
        result: dict[str, Any] = {"similarity": np.zeros(shape)} | dict.fromkeys(differentiable, 0.0)
        if pair.size:
            result = module.gradients(pair, **pair_parameters)
            padding = [(0, full - part) for full, part in zip(shape, pair.shape, strict=True)]
            result["similarity"] = np.pad(result["similarity"], padding)
        results.append(result)
    if not batched:
        return {name: np.asarray(value, dtype=np.float64) for name, value in results[0].items()}
    empty = {"similarity": np.zeros((0, *shape))} | {name: np.zeros(0) for name in differentiable}
    return {name: np.array([result[name] for result in results]) for name in empty} if results else empty


def _scores(function_name: str, similarity: Any, lengths: Any, **parameters: Any) -> np.ndarray:
    module, _ = _PROBLEMS[function_name]
    pairs, batched = _pairs(similarity, lengths, parameters)
    scores = [module.score(pair, **pair_parameters) if pair.size else 0.0 for pair, pair_parameters in pairs]
    return np.array(scores if batched else scores[0], dtype=np.float64)


def _pairs(similarity: Any, lengths: Any, parameters: dict) -> tuple[list[tuple[np.ndarray, dict]], bool]:
    """Each pair cut to its lengths, with its own parameters; and whether a batch was given."""
    matrices = np.asarray(similarity, dtype=np.float64)
    batched = matrices.ndim == 3
    matrices = matrices if batched else matrices[None]
    count = len(matrices)
    full = np.array(matrices.shape[1:])
    sizes = np.broadcast_to(full if lengths is None else np.asarray(lengths).reshape(-1, 2), (count, 2))
    arrays = {name: value for name, value in parameters.items() if not isinstance(value, str)}
    columns = {name: np.broadcast_to(np.asarray(value, dtype=np.float64), (count,)) for name, value in arrays.items()}
    pairs = []
    for b in range(count):
        own = parameters | {name: float(column[b]) for name, column in columns.items()}
        pairs.append((matrices[b, : sizes[b, 0], : sizes[b, 1]], own))
    return pairs, batched
