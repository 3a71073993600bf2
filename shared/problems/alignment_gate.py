"""The parity gate of the alignments: is a result right, pair by pair?"""

import numpy as np

from shared.alignments import ALIGNMENTS
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.alignment_reference import ReferenceResults, batched, best_alignments
from shared.problems.problem import Verdict
from shared.tolerances import hvp_bound, marginals_bound, score_bound
from shared.variants import PATH

# of a bound on a score that may be 0
SMALLEST = 1e-30


def judge(
    pass_name: str,
    result: np.ndarray,
    expected: ReferenceResults,
    dtype: str,
    temperature: float,
    shape: tuple[int, ...],
) -> Verdict:
    """Compare a result with the reference results of its pairs. shape, dtype: of the whole input's similarity."""
    right_shape = shape[:-2] if pass_name == "score" else shape
    if result.shape != right_shape or result.dtype != dtype:
        text = f"{pass_name} is {result.dtype} of shape {result.shape}, expected {dtype} of shape {right_shape}"
        return Verdict(False, text, None)
    batch = result if result.ndim in (1, 3) else result[None]
    finite = np.isfinite(batch).reshape(len(batch), -1).all(axis=1)
    if not finite.all():
        pair = f" for pair {int(finite.argmin())}" if len(batch) > 1 else ""
        return Verdict(False, f"{pass_name} has values that are not finite{pair}", None)
    got = batch[expected.pairs]
    expected_values = getattr(expected, pass_name)
    reference = np.zeros(got.shape)
    reference[tuple(map(slice, expected_values.shape))] = expected_values
    allowed = np.array(
        [_bound(pass_name, dtype, pair, temperature) for pair in zip(expected_values, expected.largest, strict=True)]
    )
    allowed = allowed.reshape(-1, *(1 for _ in got.shape[1:]))
    error = np.abs(got.astype(np.float64) - reference)
    fraction = float((error / allowed).max(initial=0.0))
    worst = np.unravel_index((error / allowed).argmax(), error.shape) if error.size else ()
    pair = f" for pair {expected.pairs[worst[0]]}" if worst and len(batch) > 1 else ""
    limit = float(np.broadcast_to(allowed, error.shape)[worst]) if worst else 0.0
    off = float(error[worst]) if worst else 0.0
    return Verdict(fraction <= 1.0, f"{pass_name} off by {off:.1e}{pair}, allowed {limit:.1e}", fraction)


def judge_path(
    problem: str, result: np.ndarray, expected: ReferenceResults, inputs: AlignmentInputs, dtype: str
) -> Verdict:
    """Compare the matches of best alignments, of which several may be as good, by what they are worth.

    That is the best score that the reference finds where no other match is allowed and each of these has a bonus, so
    that the best path takes all it can; less the bonuses.
    """
    if result.shape != inputs.similarity.shape or result.dtype != bool:
        text = f"{PATH} is {result.dtype} of shape {result.shape}, expected bool of shape {inputs.similarity.shape}"
        return Verdict(False, text, None)
    corner = (expected.pairs, *map(slice, expected.marginals.shape[1:]))
    matches = batched(result)[corner]
    gaps = {name: batched(gap)[corner] for name, gap in inputs.gaps.items()}
    table, count = batched(inputs.similarity)[corner].astype(np.float64), batched(result)[expected.pairs].sum((1, 2))
    costs = [*gaps.values(), *(value for name, value in inputs.parameters.items() if name != "temperature")]
    most, longest = sum(np.abs(cost).max() for cost in costs), sum(table.shape[1:])
    sign = -1 if ALIGNMENTS[problem].is_cost else 1
    bonus = sign * (1 + longest * most + 2 * np.abs(table[matches]).max(initial=0))
    allowed = np.where(matches, table + bonus, -sign * np.inf)
    worth, taken = best_alignments(problem, allowed, expected.lengths, {**inputs.keywords, **gaps})
    not_of_one_size = count != taken.sum((1, 2))
    if not_of_one_size.any():
        return Verdict(False, f"{PATH} is no alignment for pair {expected.pairs[not_of_one_size.argmax()]}", None)
    assert expected.path is not None, "a pass has reference results where it was asked for"
    scores = zip(expected.path, expected.largest, strict=True)
    bounds = np.array([score_bound(dtype, float(score), largest, 0.0) for score, largest in scores])
    error = np.abs(worth - bonus * count - expected.path)
    worst = int((error / np.maximum(bounds, SMALLEST)).argmax())
    text = (
        f"{PATH} off by {error[worst]:.1e} in its score for pair {expected.pairs[worst]}, allowed {bounds[worst]:.1e}"
    )
    fraction = float(error[worst] / max(bounds[worst], SMALLEST))
    return Verdict(fraction <= 1.0, text, fraction)


def _bound(pass_name: str, dtype: str, pair: tuple[np.ndarray, float], temperature: float) -> float:
    """The largest error allowed in a pair's result. pair: the expected result, and max|h|."""
    reference, largest = pair
    if pass_name == "score":
        return score_bound(dtype, float(reference), largest, temperature)
    if pass_name == "marginals":
        return marginals_bound(dtype, largest, temperature)
    return hvp_bound(dtype, float(np.abs(reference).max(initial=0.0)), largest, temperature)
