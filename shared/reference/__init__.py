"""The NumPy reference: slow, obvious, float64; its recurrences share no code with what they check.

    smith_waterman(similarity, lengths=None, *, gap=-1.0, temperature=1.0, end="any") -> scores
    gradients("smith_waterman", similarity, lengths, **parameters)                    -> exact derivatives
    best_alignment(smith_waterman, similarity, lengths, gap=-1.0, end="any")          -> scores, matches

and the same for the other functions of shared/alignments.py. Shapes are those of `jax_impl` and `torch_impl`:
similarity (rows, cols) or (batch, rows, cols), lengths (2,) or (batch, 2) or None, parameters numbers or arrays of
shape () or (batch,), gaps also tuples of two of these, or of similarity's shape. Results are float64.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from shared.alignments import ALIGNMENTS, each_axis, names_by_position
from shared.checks import check_parameter, see_host
from shared.reference import affine, global_linear, local_linear, warping
from shared.tolerances import DIFFERENCE_STEP, FORBIDDEN

# function name -> its module (score, gradients and largest state of one full pair), and what it fixes there
_MODULES: dict[str, tuple[ModuleType, dict[str, Any]]] = {
    "smith_waterman": (local_linear, {}),
    "smith_waterman_affine": (affine, {"is_local": True}),
    "free_gap": (global_linear, {"gap": 0.0}),
    "needleman_wunsch": (global_linear, {}),
    "needleman_wunsch_affine": (affine, {}),
    "soft_dtw": (warping, {}),
}


def smith_waterman(
    similarity: Any, lengths: Any = None, *, gap: Any = -1.0, temperature: Any = 1.0, end: str = "any"
) -> np.ndarray:
    """Smooth local alignment score with a linear gap; shape () or (batch,), float64."""
    return _each_pair("score", "smith_waterman", similarity, lengths, gap=gap, temperature=temperature, end=end)


def smith_waterman_affine(
    similarity: Any,
    lengths: Any = None,
    *,
    gap_open: Any = -3.0,
    gap_extend: Any = -1.0,
    temperature: Any = 1.0,
    restrict_turns: bool = True,
    penalize_turns: bool = True,
) -> np.ndarray:
    """Smooth local alignment score with an affine gap; shape () or (batch,), float64."""
    parameters = {"gap_open": gap_open, "gap_extend": gap_extend, "temperature": temperature}
    options = {"restrict_turns": restrict_turns, "penalize_turns": penalize_turns}
    return _each_pair("score", "smith_waterman_affine", similarity, lengths, **parameters, **options)


def free_gap(similarity: Any, lengths: Any = None, *, temperature: Any = 1.0) -> np.ndarray:
    """Smooth global alignment score whose gaps cost nothing; shape () or (batch,), float64."""
    return _each_pair("score", "free_gap", similarity, lengths, temperature=temperature)


def needleman_wunsch(
    similarity: Any, lengths: Any = None, *, gap: Any = -1.0, temperature: Any = 1.0, end_gaps: str = "cost"
) -> np.ndarray:
    """Smooth global alignment score with a linear gap; shape () or (batch,), float64."""
    parameters = {"gap": gap, "temperature": temperature, "end_gaps": end_gaps}
    return _each_pair("score", "needleman_wunsch", similarity, lengths, **parameters)


def needleman_wunsch_affine(
    similarity: Any,
    lengths: Any = None,
    *,
    gap_open: Any = -3.0,
    gap_extend: Any = -1.0,
    temperature: Any = 1.0,
    end_gaps: str = "cost",
    restrict_turns: bool = True,
    penalize_turns: bool = True,
) -> np.ndarray:
    """Smooth global alignment score with an affine gap; shape () or (batch,), float64."""
    parameters = {"gap_open": gap_open, "gap_extend": gap_extend, "temperature": temperature}
    options = {"end_gaps": end_gaps, "restrict_turns": restrict_turns, "penalize_turns": penalize_turns}
    return _each_pair("score", "needleman_wunsch_affine", similarity, lengths, **parameters, **options)


def soft_dtw(cost: Any, lengths: Any = None, *, temperature: Any = 1.0) -> np.ndarray:
    """Soft dynamic time warping: the smoothly least cost; shape () or (batch,), float64."""
    return _each_pair("score", "soft_dtw", cost, lengths, temperature=temperature)


def gradients(function_name: str, similarity: Any, lengths: Any = None, **parameters: Any) -> dict[str, Any]:
    """Exact derivatives of each pair's score, by a backward recurrence of its own.

    Returns a dict: "similarity" has the shape of similarity (these are the marginals, exactly 0 outside lengths);
    each differentiable parameter has shape () or (batch,), the derivative of each pair's score for that pair's value,
    but a gap of similarity's shape has that shape, and a tuple is one of two derivatives.
    """
    module, pairs, batched = _pairs(function_name, similarity, lengths, parameters)
    shape = np.shape(similarity)[-2:]
    names = ("similarity", *ALIGNMENTS[function_name].parameters)
    results = []
    for pair, arguments in pairs:
        padding = [(0, full - part) for full, part in zip(shape, pair.shape, strict=True)]
        result = module.gradients(pair, **arguments)
        if module.score(pair, **arguments) <= FORBIDDEN:
            result = {name: np.zeros_like(value) for name, value in result.items()}
        if module is warping:
            result["temperature"] = 0.0 - result["temperature"]
        results.append({name: np.pad(result[name], padding if np.ndim(result[name]) == 2 else 0) for name in names})
    sizes = {"similarity": shape} | dict.fromkeys(names_by_position(function_name, parameters), shape)
    by_axis = [name for name in names if isinstance(parameters.get(name), tuple)]
    sizes |= dict.fromkeys(by_axis, (2,))
    batch = (len(pairs),) if batched else ()
    arrays = {name: np.reshape([r[name] for r in results], (*batch, *sizes.get(name, ()))) for name in names}
    return {name: tuple(value.T) if name in by_axis else value for name, value in arrays.items()}


def best_alignment(
    function: Callable[..., np.ndarray] | str, similarity: Any, lengths: Any = None, **parameters: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The best alignment of each pair, the limit of the smooth ones at temperature 0, and its score.

    function: one of this module's, or its name.

    Returns scores, shape () or (batch,), and matches, of similarity's shape and boolean. Where alignments are equally
    good, walking back from its end the one is taken that ends first, row by row, and in each cell starts if it can, or
    else comes from the diagonal, the left, or from above; with an affine gap from a match, or a gap along the row, or
    one along the column. Without an alignment the score is 0, of a global pair -inf, of soft_dtw inf, and nothing
    matches. A pair with NaN or +inf (as a cost -inf) inside its lengths, or NaN as a gap, has the score NaN, no match.
    """
    if "temperature" in parameters:
        raise TypeError("best_alignment takes no temperature")
    function_name = function if isinstance(function, str) else function.__name__
    module, pairs, batched = _pairs(function_name, similarity, lengths, parameters | {"temperature": 0.0})
    scores, matches = [], np.zeros(np.shape(similarity), bool)
    for (pair, arguments), matches_of_pair in zip(pairs, matches if batched else matches[None], strict=True):
        gaps = [arguments[name] for name in ALIGNMENTS[function_name].gaps]
        if np.isposinf(pair).any() or any(np.isnan(values).any() for values in (pair, *gaps)):
            scores.append(np.nan)
            continue
        score = module.score(pair, **arguments)
        scores.append(_allowed(function_name, score))
        is_matched = module.gradients(pair, **arguments)["similarity"] > 0.5
        matches_of_pair[: pair.shape[0], : pair.shape[1]] = is_matched & (score > FORBIDDEN)
    return np.array(scores if batched else scores[0], dtype=np.float64), matches


def hessian_vector_product(
    function_name: str, similarity: Any, direction: Any, lengths: Any = None, **parameters: Any
) -> dict[str, Any]:
    """Derivatives of sum(direction * marginals), the marginals being d score / d similarity: as `gradients` gives them.

    By symmetry this is the change of every first derivative along `direction`, so central differences of the exact
    first derivatives give it: to about 1e-8 of the largest value for a direction of normal random numbers, and less
    well where max|h| is more than 1e4 temperatures (shared.tolerances.hvp_bound).
    """
    temperature = parameters.get("temperature", ALIGNMENTS[function_name].parameters["temperature"])
    step = DIFFERENCE_STEP * np.asarray(temperature, dtype=np.float64)
    change = step[..., None, None] * np.asarray(direction, dtype=np.float64)
    ahead, behind = (
        gradients(function_name, np.asarray(similarity, dtype=np.float64) + sign * change, lengths, **parameters)
        for sign in (1, -1)
    )
    matrices = ("similarity", *names_by_position(function_name, parameters))
    steps = {name: step[..., None, None] if name in matrices else step for name in ahead}
    changes = {name: np.subtract(ahead[name], behind[name]) / (2 * steps[name]) for name in ahead}
    return {name: tuple(value) if isinstance(ahead[name], tuple) else value for name, value in changes.items()}


def largest_state(function_name: str, similarity: Any, lengths: Any = None, **parameters: Any) -> np.ndarray:
    """The largest absolute value that the recurrence meets, max|h|: what rounding errors are relative to.

    Shape () or (batch,).
    """
    return _each_pair("largest", function_name, similarity, lengths, **parameters)


def _each_pair(asked: str, function_name: str, similarity: Any, lengths: Any, **parameters: Any) -> np.ndarray:
    """A module's function of every pair."""
    module, pairs, batched = _pairs(function_name, similarity, lengths, parameters)
    values = [getattr(module, asked)(pair, **arguments) for pair, arguments in pairs]
    values = [_allowed(function_name, value) for value in values] if asked == "score" else values
    return np.array(values if batched else values[0], dtype=np.float64)


def _allowed(function_name: str, score: float) -> float:
    """Return the score, or where every alignment is forbidden -inf for a global pair and 0 for a local one.

    Of soft_dtw minus that.
    """
    if score <= FORBIDDEN:
        score = 0.0 if function_name.startswith("smith_waterman") else -np.inf
    return 0.0 - score if function_name == "soft_dtw" else score


def _pairs(
    function_name: str, similarity: Any, lengths: Any, given: dict[str, Any]
) -> tuple[ModuleType, list[tuple[np.ndarray, dict]], bool]:
    """The module; each pair cut to its lengths, with all its arguments; and whether a batch was given."""
    module, fixed = _MODULES[function_name]
    alignment = ALIGNMENTS[function_name]
    if unknown := given.keys() - alignment.parameters.keys() - alignment.options.keys():
        raise TypeError(f"{function_name} takes no {', '.join(sorted(unknown))}")
    parameters = alignment.parameters | alignment.options | given | fixed
    matrices = np.asarray(similarity, dtype=np.float64) * (-1 if module is warping else 1)
    matrices = np.where(matrices <= FORBIDDEN, -np.inf, matrices)
    batched = matrices.ndim == 3
    matrices = matrices if batched else matrices[None]
    count = len(matrices)
    full = np.array(matrices.shape[1:])
    sizes = np.broadcast_to(full if lengths is None else np.asarray(lengths).reshape(-1, 2), (count, 2))
    arrays = {name: value for name, value in parameters.items() if not isinstance(value, (str, bool))}
    by_position = names_by_position(function_name, parameters)
    if by_position and each_axis(function_name, parameters, parameters)[1] != by_position:
        raise ValueError("gaps by position cannot be combined with gaps by axis or free end gaps")
    for name in by_position:
        check_parameter(name, see_host(np.asarray(parameters[name])), np.shape(similarity))
    columns = {
        name: [
            np.broadcast_to(np.asarray(one, dtype=np.float64), matrices.shape if name in by_position else (count,))
            for one in (value if isinstance(value, tuple) else (value,))
        ]
        for name, value in arrays.items()
    }
    pairs = []
    for b, (rows, cols) in enumerate(sizes):
        arguments = dict(parameters)
        for name, each in columns.items():
            values = tuple(column[b, :rows, :cols] if name in by_position else float(column[b]) for column in each)
            arguments[name] = values if isinstance(parameters[name], tuple) else values[0]
        pairs.append((matrices[b, :rows, :cols], arguments))
    return module, pairs, batched
